"""A well-behaved MCP child in a few lines, for the faulty ones to spoil one step of. Standard library only.

Owns just enough of the protocol: initialize, ping, tools/list, and `echo(message)`. It knows no fault.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def dump(message: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode()


def send(message: Json) -> None:
    write(dump(message) + b"\n")


def complain(line: str) -> None:
    os.write(2, line.encode() + b"\n")


def lines() -> Iterator[bytes]:
    """Messages from the client, which always sends one a line."""
    parts: list[bytes] = []
    while chunk := os.read(0, 65536):
        *whole, rest = chunk.split(b"\n")
        if whole:
            yield b"".join((*parts, whole[0]))
            yield from whole[1:]
            parts.clear()
        parts.append(rest)


def tool(name: str) -> Json:
    return {
        "name": name,
        "description": f"The tool {name}.",
        "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}},
    }


def text(value: str) -> Json:
    return {"content": [{"type": "text", "text": value}]}


class Child:
    """Answers initialize, ping, tools/list and tools/call; a mode replaces the step it spoils."""

    version = "2025-11-25"
    tools: tuple[str, ...] = ("echo",)

    def serve(self) -> None:
        for line in lines():
            message = json.loads(line)
            if "method" in message:
                self.receive(message, line)
            else:
                self.hear(message)

    def receive(self, message: Json, line: bytes) -> None:
        params = message.get("params") or {}
        if "id" not in message:
            return
        if message["method"] == "tools/call":
            self.call(message["id"], params, line)
        elif message["method"] not in ("initialize", "ping", "tools/list"):
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
        else:
            self.answer(message["id"], self.result(message["method"], params))

    def hear(self, message: Json) -> None:
        """The client has answered a request of ours."""

    def result(self, method: str, params: Json) -> Json:
        if method == "initialize":
            info = {"name": "faulty", "version": "1"}
            return {"protocolVersion": self.version, "capabilities": {"tools": {}}, "serverInfo": info}
        return self.page(params.get("cursor")) if method == "tools/list" else {}

    def page(self, cursor: str | None) -> Json:
        return {"tools": [tool(name) for name in self.tools]}

    def call(self, request_id: object, params: Json, line: bytes) -> None:
        self.answer(request_id, text(str((params.get("arguments") or {}).get("message", ""))))

    def answer(self, request_id: object, result: Json) -> None:
        self.transmit(dump({"id": request_id, "result": result}))

    def transmit(self, body: bytes) -> None:
        write(body + b"\n")


def record(pid_file: str) -> None:
    with open(pid_file, "a") as file:
        file.write(f"{os.getpid()}\n")
