"""A client of the Yett broker in another language, by docs/protocol.md alone.

It exists for the tests: it shows that the page is enough to write a client. It
uses nothing but the standard library, on Linux.

It trusts the broker only after the checks of section 1, and what it reads only
when the kernel names the process that listens as the sender.
"""

import json
import os
import pwd
import select
import socket
import stat
import struct

MAX_MESSAGE = 1 << 20
MAX_WAIT_MS = 50_000
SO_PEERPIDFD = getattr(socket, "SO_PEERPIDFD", 77)
TIMEOUT = 30.0  # of one read or write
DIAL_TIMEOUT = 3.0


class Unavailable(Exception):
    """There is no broker that may be spoken to; nothing was sent."""


class Closed(Exception):
    """The channel has ended, so what was asked last may have been done."""


class Refused(Exception):
    """The broker said no: a code, a sentence, and a next step for the person."""

    def __init__(self, error):
        self.data = error["data"]
        self.code = self.data["code"]
        self.next_step = self.data.get("next_step", "")
        super().__init__(f"{self.code}: {error['message']}")


# Finding the broker, and proving it.


def contract(home=None):
    """The directory from which on no symbolic link is followed, and the way to
    the socket from there. No variable of the environment is asked."""
    if home is not None:
        return os.path.realpath(home), ["run"]
    uid = os.getuid()
    run = f"/run/user/{uid}"
    try:
        st = os.lstat(run)
        if stat.S_ISDIR(st.st_mode) and st.st_uid == uid and stat.S_IMODE(st.st_mode) == 0o700:
            return run, ["yett"]
    except OSError:
        pass
    try:
        home = pwd.getpwuid(uid).pw_dir
    except KeyError as e:
        raise Unavailable(f"account {uid} has no entry and so no home") from e
    return os.path.realpath(home), [".local", "state", "yett", "run"]


def open_node(root, way):
    """Opens the socket's node, as a name only, once place and owner are right."""
    uid = os.getuid()
    path = root
    at = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in way:
            path = os.path.join(path, name)
            below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = below
        st = os.fstat(at)
        if st.st_uid != uid or stat.S_IMODE(st.st_mode) != 0o700:
            raise Unavailable(f"{path} is not this account's alone")
        node = os.open("broker.sock", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    except OSError as e:
        raise Unavailable(f"{path}: {e.strerror}") from e
    finally:
        os.close(at)
    st = os.fstat(node)
    if not stat.S_ISSOCK(st.st_mode) or st.st_uid != uid or stat.S_IMODE(st.st_mode) != 0o600:
        os.close(node)
        raise Unavailable(f"{path}/broker.sock is no socket of this account's alone")
    return node


def gone(pidfd):
    """Whether a process has ended: asked of the kernel, not concluded."""
    return bool(select.select([pidfd], [], [], 0)[0])


def prove(sock, yett):
    """Judges who listens, and returns its pid. Nothing has been sent to it."""
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid != os.getuid() or pid <= 0:
        raise Unavailable(f"process {pid} of account {uid} listens")
    try:
        pidfd = sock.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as e:
        raise Unavailable(f"the kernel has no handle of process {pid}: {e.strerror}") from e
    try:
        wrong = not_installed(pid, yett)
        if gone(pidfd):  # what was read just now may be about another process
            raise Unavailable("the process that listened has ended")
    finally:
        os.close(pidfd)
    if wrong:
        raise Unavailable(f"process {pid} listens and {wrong}")
    return pid


def not_installed(pid, yett):
    """What is wrong with the program of a process, as far as the kernel shows
    it: a hidden one is no refusal."""
    try:
        path, runs = os.readlink(f"/proc/{pid}/exe"), os.stat(f"/proc/{pid}/exe")
    except PermissionError:
        return None
    except OSError as e:
        return f"its program cannot be read: {e.strerror}"
    try:
        installed = os.stat(yett)
    except OSError as e:
        return f"there is no {yett} to compare it with: {e.strerror}"
    if (runs.st_dev, runs.st_ino) == (installed.st_dev, installed.st_ino):
        return None
    if path == os.path.realpath(yett) + " (deleted)":  # replaced by an update
        return None
    return f"runs {path}, not the installed yett"


def dial(home=None, yett="/usr/bin/yett"):
    """Connects to the broker and proves it; sends nothing."""
    node = open_node(*contract(home))
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # before it connects
        sock.settimeout(DIAL_TIMEOUT)
        try:
            sock.connect(f"/proc/self/fd/{node}")  # the node that was looked at
        except OSError as e:
            raise Unavailable(f"nobody listens: {e.strerror or e}") from e
        finally:
            os.close(node)
        channel = Channel(sock, prove(sock, yett))
        sock.settimeout(TIMEOUT)
        return channel
    except BaseException:
        sock.close()
        raise


class Channel:
    """Lines to and from the broker. What is read was sent by the process pid;
    a pid of None is for a socket of which that is known otherwise."""

    def __init__(self, sock, pid):
        self.sock = sock
        self.pid = pid
        self.buffer = b""

    def fileno(self):
        return self.sock.fileno()

    def receive(self):
        """The next bytes, or b"" at the end."""
        data, ancillary, _, _ = self.sock.recvmsg(1 << 16, socket.CMSG_SPACE(12))
        if self.pid is None or not data:
            return data
        senders = [struct.unpack("3i", value)[0] for level, kind, value in ancillary
                   if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS]
        if senders != [self.pid]:
            raise Closed(f"bytes came from process {senders}, not from the broker")
        return data

    def send(self, line):
        self.sock.sendall(line + b"\n")

    def line(self):
        """The next message, or None when the broker has closed the channel."""
        while b"\n" not in self.buffer:
            if len(self.buffer) > MAX_MESSAGE:
                raise Closed("a message is too long")
            try:
                data = self.receive()
            except ConnectionError:
                data = b""
            if not data:
                return None
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line

    def close(self):
        self.sock.close()


# Asking for actions.


class Client:
    """One channel and its session, asking one thing after the other."""

    def __init__(self, program, version, home=None, yett="/usr/bin/yett"):
        self.channel = dial(home, yett)
        self.last_id = 0
        self.sequence = 0
        self.session = None
        hello = self.call("hello", {"protocol_min": 1, "protocol_max": 1, "program": program, "version": version, "role": "native"})
        self.nonce = hello["nonce"]

    def call(self, method, params):
        self.last_id += 1
        request = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}
        self.channel.send(json.dumps(request).encode())
        while True:
            line = self.channel.line()
            if line is None:
                raise Closed(f"the broker closed the channel before it answered {method}")
            reply = json.loads(line)
            if reply["id"] not in (self.last_id, None):
                continue  # the answer to a call that was given up
            if "error" in reply:
                raise Refused(reply["error"])
            return reply["result"]

    def open(self, capabilities=(), purpose=None):
        params = {"nonce": self.nonce, "capabilities": list(capabilities)}
        if purpose:
            params["purpose"] = purpose
        opened = self.call("session.open", params)
        self.session = opened["session_id"]
        return opened

    def ask(self, method, **params):
        """A message of the session, with the next number."""
        self.sequence += 1
        return self.call(method, {"session_id": self.session, "sequence": self.sequence, **params})

    def act(self, capability, action, wait_ms=MAX_WAIT_MS, idempotency_key=None):
        more = {"idempotency_key": idempotency_key} if idempotency_key else {}
        return self.ask("action.request", capability=capability, action=action, wait_ms=wait_ms, **more)

    def operation(self, operation_id, wait_ms=MAX_WAIT_MS):
        return self.ask("operation.get", operation_id=operation_id, wait_ms=wait_ms)

    def close(self):
        self.channel.close()
