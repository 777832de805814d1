"""A child that says every secret it has, in every way it can think of: the secrets gate sees whether any gets through.

Run with a mode: `serve`, `refuse` (answers the handshake with an error), or `die` (ends before it is ready).
"""

from __future__ import annotations

import base64
import json
import os
import sys
from urllib.parse import quote, quote_plus

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

from tests.children.plain_child import Child, Json, complain, send, text, write


def disguises(secret: str) -> list[str]:
    """The secret as programs write it."""
    inner = json.dumps({"deep": [secret]})
    return [
        f"as it is: {secret}.",
        f"https://me:{quote(secret, safe='')}@example.com/x?k={quote_plus(secret)}&n=1",
        f"basic {base64.b64encode(f'me:{secret}'.encode()).decode()} ok",
        f"base64 {base64.b64encode(secret.encode()).decode()}",
        f"urlsafe {base64.urlsafe_b64encode(f'xy{secret}z'.encode()).decode().rstrip('=')}",
        f"hex {secret.encode().hex()} {secret.encode().hex().upper()}",
        f"json {inner}",
        f"json in json {json.dumps(json.dumps(inner))}",
        "x" * 480 + secret,
    ]


def own_secrets() -> list[str]:
    """Return the secrets from our environment and arguments."""
    named = [value for name, value in os.environ.items() if name.startswith("PLANTED_")]
    return named + [word.partition("=")[2] or word for word in sys.argv[2:] if not word.startswith("--key")]


def all_disguises(more: list[str]) -> list[str]:
    return [line for secret in own_secrets() + more for line in disguises(secret)]


class Leaky(Child):
    """Echoes; leaks in an error; crashes with a scream."""

    tools = ("echo", "leak_error", "crash")

    def call(self, id: object, params: Json, line: bytes) -> None:
        given = params.get("arguments") or {}
        told = [str(value) for value in (given.get("card") or {}).values()] + [str(given.get("pin", ""))]
        for line_ in all_disguises([secret for secret in told if secret]):
            complain(line_)
        if params["name"] == "crash":
            os._exit(3)
        if params["name"] == "leak_error":
            everything = all_disguises([secret for secret in told if secret])
            error = {"code": -32050, "message": " | ".join(everything), "data": {"lines": everything}}
            send({"id": id, "error": error})
            return
        send({"id": id, "result": text(json.dumps(given))})


def main() -> None:
    mode = sys.argv[1]
    for line in all_disguises([]):
        complain(line)
        write(line.encode() + b"\n")
    if mode == "die":
        os._exit(4)
    if mode == "refuse":
        for line in sys.stdin:
            message = json.loads(line)
            if "id" in message:
                error = {"code": -32000, "message": " | ".join(all_disguises([]))}
                send({"id": message["id"], "error": error})
        return
    Leaky().serve()


if __name__ == "__main__":
    main()
