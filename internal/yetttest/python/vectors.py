"""Runs the protocol vectors of docs/vectors over the client's channels.

Usage: vectors.py DIR HOME YETT GOT. Standard input names a vector a line, as
{"file", "index"}. What a person, the upstream and the ledger have to do with it
is asked on standard output ({"ask": …}) and answered on standard input; then
comes {"done": null} or {"done": "what is wrong"}. Every byte that came from the
broker is added to the file GOT.
"""

import base64
import json
import os
import re
import socket
import subprocess
import sys
from datetime import datetime
from json.decoder import scanstring

import yett_client


class Failed(Exception):
    pass


# Texts within texts. How a vector is spelled counts, so what is sent and
# compared is cut out of the file, not made anew.

SPACE = re.compile(r"[ \t\n\r]*")
DECODER = json.JSONDecoder()


def skip(text, i):
    return SPACE.match(text, i).end()


def elements(text):
    """The texts of the elements of an array."""
    i, found = skip(text, 1), []
    while text[i] != "]":
        _, end = DECODER.raw_decode(text, i)
        found.append(text[i:end])
        i = skip(text, end)
        i = skip(text, i + 1) if text[i] == "," else i
    return found


def members(text):
    """The texts of the members of an object."""
    i, found = skip(text, 1), {}
    while text[i] != "}":
        name, i = scanstring(text, i + 1)
        i = skip(text, skip(text, i) + 1)
        _, end = DECODER.raw_decode(text, i)
        found[name] = text[i:end]
        i = skip(text, end)
        i = skip(text, i + 1) if text[i] == "," else i
    return found


def same_id(text):
    """Strings can be escaped in several ways; a number comes back as it was sent."""
    return json.dumps(json.loads(text)) if text.startswith('"') else text


# Patterns.

KINDS = {
    "@any": lambda v: v is not None,
    "@string": lambda v: isinstance(v, str) and v != "",
    "@id": lambda v: isinstance(v, str) and "_" in v and len(v.split("_", 1)[1]) >= 26,
    "@integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "@time": lambda v: isinstance(v, str) and bool(datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", v).replace("Z", "+00:00"))),
    "@activity": lambda v: isinstance(v, str) and re.fullmatch(r"activity:[1-9][0-9]*", v) is not None,
}


def match(where, want, have):
    if isinstance(want, dict):
        if not isinstance(have, dict):
            raise Failed(f"{where}: want an object, got {have!r}")
        for name, value in want.items():
            if name not in have:
                raise Failed(f"{where}.{name} is missing in {have!r}")
            match(f"{where}.{name}", value, have[name])
    elif isinstance(want, list):
        if not isinstance(have, list) or len(have) != len(want):
            raise Failed(f"{where}: want {len(want)} elements, got {have!r}")
        for i, value in enumerate(want):
            match(f"{where}[{i}]", value, have[i])
    elif isinstance(want, str) and want in KINDS:
        if not KINDS[want](have):
            raise Failed(f"{where}: want {want}, got {have!r}")
    elif isinstance(want, bool) != isinstance(have, bool) or want != have:
        raise Failed(f"{where}: want {want!r}, got {have!r}")


def lookup(tree, path):
    for name in path.split("."):
        if not isinstance(tree, dict) or name not in tree:
            return None, False
        tree = tree[name]
    return tree, True


# Channels.


class Recorded:
    """A channel, its request ids, and the replies that came early."""

    def __init__(self, name, channel, got):
        self.name, self.channel, self.got = name, channel, got
        self.last_id, self.early, self.closed, self.child = 0, {}, False, None

    def send(self, data):
        try:
            self.channel.send(data)
        except OSError:
            pass  # the broker closed it; what it said before is still read

    def read(self):
        line = self.channel.line()
        if line is not None:
            self.got.write(line + b"\n")
        return line

    def reply(self, where, wanted):
        while wanted not in self.early:
            line = self.read()
            if line is None:
                raise Failed(f"{where}: channel {self.name} was closed; waiting for the reply to {wanted}")
            text = line.decode()
            self.early[same_id(members(text)["id"])] = text
        return self.early.pop(wanted)

    def must_close(self, where):
        line = self.read()
        if line is not None:
            raise Failed(f"{where}: channel {self.name} is open and says {line!r}")
        self.closed = True

    def close(self):
        self.channel.close()
        if self.child:
            self.child.wait(timeout=yett_client.TIMEOUT)


def elsewhere(home, yett):
    """A channel of a process of its own, which passes bytes on."""
    mine, its = socket.socketpair()
    child = subprocess.Popen([sys.executable, __file__, "relay", home, yett], stdin=its, stdout=its)
    its.close()
    mine.settimeout(yett_client.TIMEOUT)
    return yett_client.Channel(mine, None), child


def relay(home, yett):
    import threading

    broker, driver = yett_client.dial(home, yett), socket.socket(fileno=0)
    broker.sock.settimeout(None)

    def down():
        try:
            while data := broker.receive():
                driver.sendall(data)
        except OSError:
            pass  # whoever ended it, the driver sees the end
        driver.shutdown(socket.SHUT_WR)

    threading.Thread(target=down, daemon=True).start()
    while data := driver.recv(1 << 16):
        try:
            broker.sock.sendall(data)
        except OSError:
            break
    os._exit(0)


# One vector.


class Run:
    def __init__(self, runner):
        self.runner, self.channels, self.values, self.later = runner, {}, {}, {}

    def channel(self, name):
        if name not in self.channels:
            child = None
            if name.startswith("other"):
                channel, child = elsewhere(self.runner.home, self.runner.yett)
            else:
                channel = yett_client.dial(self.runner.home, self.runner.yett)
            self.channels[name] = Recorded(name, channel, self.runner.got)
            self.channels[name].child = child
        return self.channels[name]

    def fill(self, text, name):
        def value(m):
            key = m.group(1)
            if key == "pad":
                return m.group(0)
            if "." not in key and name:
                key = f"{name}.{key}"
            if key not in self.values:
                raise Failed(f"there is no value for ${{{key}}}")
            return self.values[key]

        return re.sub(r"\$\{([^}]+)\}", value, text)

    def step(self, where, text, on=None):
        s = members(text)
        get = lambda name: json.loads(s[name]) if name in s else None
        on = on or get("on")
        if "person" in s:
            what = get("person").replace("$on", on or "")
            self.ask({"person": self.fill(what, on), "values": self.values})
        elif "upstream" in s:
            self.ask({"upstream": get("upstream")})
        elif "release" in s:
            self.ask({"release": True})
        elif "row" in s:
            self.ask({"row": json.loads(self.fill(s["row"], None))})
        elif "reply_to" in s:
            channel, wanted = self.later[get("reply_to")]
            self.judge(where, s, channel, wanted)
        else:
            self.exchange(where, s, get, self.channel(on or "a"))

    def ask(self, question):
        wrong = self.runner.ask(question)
        if wrong:
            raise Failed(wrong)

    def exchange(self, where, s, get, channel):
        wanted = "null"
        if "call" in s:
            method, params = elements(s["call"])
            channel.last_id += 1
            wanted = str(channel.last_id)
            params = self.fill(params, channel.name)
            channel.send(f'{{"jsonrpc":"2.0","id":{wanted},"method":{method},"params":{params}}}'.encode())
        elif "send_base64" in s:
            channel.send(base64.b64decode(get("send_base64")))
        elif "send" in s:
            line = self.fill(get("send"), channel.name).encode()
            if "pad_to" in s:
                line = line.replace(b"${pad}", b"x" * (get("pad_to") - len(line) + len(b"${pad}")), 1)
            channel.send(line)
        if "id" in s:
            wanted = same_id(s["id"])
        if "later" in s:
            self.later[get("later")] = (channel, wanted)
        elif "result" in s or "error" in s:
            self.judge(where, s, channel, wanted)
        elif "closed" in s:
            channel.must_close(where)

    def judge(self, where, s, channel, wanted):
        text = channel.reply(where, wanted)
        reply = json.loads(text)
        if "error" in s:
            code, error = json.loads(s["error"]), reply.get("error") or {}
            if error.get("data", {}).get("code") != code or error.get("code") != -32000 or not error.get("message") or not error["data"].get("next_step"):
                raise Failed(f"{where}: want the error {code} with a sentence and a next step, got {text}")
            if "data" in s:
                match(where, json.loads(self.fill(s["data"], channel.name)), error["data"])
        elif "result" not in reply:
            raise Failed(f"{where}: want a result, got {text}")
        elif "result" in s:
            match(where, json.loads(self.fill(s["result"], channel.name)), reply["result"])
        for path in json.loads(s.get("absent", "[]")):
            if lookup(reply, path)[1]:
                raise Failed(f"{where}: {path} must not be there: {text}")
        for name, path in json.loads(s.get("save", "{}")).items():
            value, ok = lookup(reply, path)
            if not ok:
                raise Failed(f"{where}: there is no {path} in {text}")
            self.values[f"{channel.name}.{name}"] = str(value)
        if "closed" in s:
            channel.must_close(where)

    def all(self, vector):
        for on, begin in sorted(json.loads(vector.get("begin", "{}")).items()):
            kind, _, capability = begin.partition(" ")
            self.values[f"{on}.capability"] = capability
            for text in self.runner.begin[kind]:
                self.step(f"begin {on}", text, on)
        for i, text in enumerate(elements(vector["steps"])):
            self.step(f"step {i + 1}", text)
        for name in sorted(self.channels):
            channel = self.channels[name]
            if not channel.closed:
                channel.send(b'{"jsonrpc":"2.0","id":"open?","method":"no.such.method","params":{}}')
                code = json.loads(channel.reply("at the end", '"open?"'))["error"]["data"]["code"]
                if code != "bad_request":
                    raise Failed(f"at the end: channel {name} answers {code}")


class Runner:
    def __init__(self, directory, home, yett, got):
        self.directory, self.home, self.yett = directory, home, yett
        self.got = open(got, "wb", buffering=0)
        self.begin = {kind: elements(steps) for kind, steps in members(self.read("begin.json")).items()}

    def read(self, name):
        with open(os.path.join(self.directory, name), encoding="utf-8") as f:
            return f.read().strip()

    def say(self, message):
        print(json.dumps(message), flush=True)

    def ask(self, question):
        self.say({"ask": question})
        return json.loads(sys.stdin.readline())["wrong"]

    def vector(self, name, index):
        run = Run(self)
        try:
            run.all(members(elements(members(self.read(name))["vectors"])[index]))
        except (Failed, yett_client.Unavailable, yett_client.Closed, OSError) as e:
            return f"{type(e).__name__}: {e}"
        finally:
            for channel in run.channels.values():
                channel.close()

    def serve(self):
        for line in sys.stdin:
            order = json.loads(line)
            self.say({"done": self.vector(order["file"], order["index"])})


if __name__ == "__main__":
    if sys.argv[1] == "relay":
        relay(*sys.argv[2:])
    else:
        Runner(*sys.argv[1:]).serve()
