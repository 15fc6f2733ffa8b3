"""A small real job of a native program: read one document.

Usage: job.py HOME YETT. What it does stands on standard output, a JSON line
for each step.
"""

import base64
import json
import sys

from yett_client import Client


def say(step, value):
    print(json.dumps({"step": step, "value": value}), flush=True)


def main(home, yett):
    client = Client("python-job", "1", home, yett)
    say("open", client.open(purpose="read one document"))
    asked = client.ask("access.request", capabilities=["http:demo.read"], purpose="read one document")
    say("asked", asked)  # its tag is what the person compares with the card
    while asked["pending"]:
        asked = client.ask("session.wait", wait_ms=50_000)
    say("decided", asked)
    operation = client.act("http:demo.read", {"method": "GET", "path": "/v1/a"}, wait_ms=0)
    say("began", operation)
    while operation["state"] in ("queued", "executing"):
        operation = client.operation(operation["operation_id"])
    say("done", operation)
    result = operation["result"]
    body = b""
    while len(body) < result["size"]:
        piece = client.ask("operation.body", body_ref=result["body_ref"], offset=len(body), limit=3)
        body += base64.b64decode(piece["bytes_base64"])
    say("body", body.decode())
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
