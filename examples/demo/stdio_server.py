"""The part of MCP that the demo's servers share: a handshake, a list of tools, calls. Standard library only.

Owns the wire and the shape of a tool. It does not know what the tools do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

Json = dict[str, Any]
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


class MistakeError(Exception):
    """The caller asked for something that cannot be done; the message says why."""


class Tool(NamedTuple):
    """One tool: what it says of itself, and what it does."""

    name: str
    description: str
    properties: Json
    required: tuple[str, ...]
    run: Callable[[Json], object]
    writes: bool = False

    def described(self) -> Json:
        schema: Json = {"type": "object", "properties": self.properties, "additionalProperties": False}
        if self.required:
            schema["required"] = list(self.required)
        hints = {"readOnlyHint": not self.writes, "destructiveHint": False, "openWorldHint": False}
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": schema,
            "annotations": hints,
        }


def text(description: str, **more: object) -> Json:
    return {"type": "string", "description": description, **more}


def number(description: str, **more: object) -> Json:
    return {"type": "integer", "description": description, **more}


def flag(description: str, default: bool) -> Json:
    return {"type": "boolean", "description": description, "default": default}


def choice(description: str, *values: str, **more: object) -> Json:
    return {"type": "string", "enum": list(values), "description": description, **more}


def several(description: str, items: Json, **more: object) -> Json:
    return {"type": "array", "items": items, "description": description, **more}


def serve(name: str, tools: list[Tool], instructions: str = "") -> None:
    """Answer one client until its input ends."""
    by_name = {tool.name: tool for tool in tools}
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        params = message.get("params") or {}
        answer: Json = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "initialize":
            answer["result"] = introduce(name, params, instructions)
        elif message["method"] == "tools/list":
            answer["result"] = {"tools": [tool.described() for tool in tools]}
        elif message["method"] == "tools/call" and params.get("name") in by_name:
            answer["result"] = call(by_name[params["name"]], params.get("arguments") or {})
        elif message["method"] == "tools/call":
            answer["error"] = {"code": -32602, "message": f"Unknown tool: {params.get('name')}"}
        elif message["method"] == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": -32601, "message": f"Method not found: {message['method']}"}
        sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
        sys.stdout.buffer.flush()


def introduce(name: str, params: Json, instructions: str) -> Json:
    wanted = params.get("protocolVersion")
    return {
        "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[-1],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": f"demo-{name}", "version": "1.0.0"},
        "instructions": instructions,
    }


def call(tool: Tool, args: Json) -> Json:
    missing = [name for name in tool.required if name not in args]
    unknown = [name for name in args if name not in tool.properties]
    try:
        if missing:
            raise MistakeError(f"{tool.name} needs {', '.join(missing)}.")
        if unknown:
            raise MistakeError(f"{tool.name} does not know {', '.join(unknown)}.")
        value = tool.run(args)
    except MistakeError as mistake:
        return {"content": [{"type": "text", "text": str(mistake)}], "isError": True}
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {"content": [{"type": "text", "text": shown}]}
