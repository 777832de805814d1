"""A small MCP server over HTTP with three tools, for the governed example.

    python notes.py [PORT]

Uses the Python standard library only. It keeps its notes in memory.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
PORT = 38417
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS: list[Json] = [
    {
        "name": "list_notes",
        "description": "List all notes, oldest first.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    },
    {"name": "add_note", "description": "Add a note.", "inputSchema": TEXT},
    {"name": "delete_notes", "description": "Delete all notes.", "inputSchema": {"type": "object"}},
]
NOTES: list[str] = []


def call(name: str, arguments: Json) -> Json:
    """Return the result of a tool."""
    if name == "add_note":
        NOTES.append(str(arguments.get("text", "")))
    elif name == "delete_notes":
        NOTES.clear()
    elif name != "list_notes":
        return {"content": [{"type": "text", "text": f"There is no tool {name}."}], "isError": True}
    return {"content": [{"type": "text", "text": "\n".join(NOTES) or "There are no notes."}]}


def answer(method: str, params: Json) -> Json | None:
    """Return the result of a request, or None for an unknown method."""
    if method == "initialize":
        version = params.get("protocolVersion")
        return {
            "protocolVersion": version if version in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "notes", "version": "1.0.0"},
        }
    if method == "tools/call":
        return call(params.get("name", ""), params.get("arguments") or {})
    return {"ping": {}, "tools/list": {"tools": TOOLS}}.get(method)


class Handler(BaseHTTPRequestHandler):
    """Answers each POST with one JSON message, and offers no stream."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a message; a notification with 202."""
        message = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if "id" not in message:
            self._send(202, b"")
            return
        result = answer(message.get("method", ""), message.get("params") or {})
        error = {"error": {"code": -32601, "message": "Method not found"}}
        response = {
            "jsonrpc": "2.0",
            "id": message["id"],
            **({"result": result} if result is not None else error),
        }
        self._send(200, json.dumps(response).encode())

    def do_GET(self) -> None:
        """Refuse a stream."""
        self._send(405, b"")

    def do_DELETE(self) -> None:
        """Refuse to end a session: there are none."""
        self._send(405, b"")

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else PORT), Handler)
    print(f"ready on port {server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
