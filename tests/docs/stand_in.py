"""A server with the tools that are named as its arguments. Each takes anything, and says that it was called."""

from __future__ import annotations

import json
import sys
from typing import Any


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        about = {"name": "stand-in", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": about,
        }
    if method == "tools/list":
        named = [
            {"name": name, "description": f"{name}.", "inputSchema": {"type": "object"}}
            for name in sys.argv[1:]
        ]
        return {"tools": named}
    return {"content": [{"type": "text", "text": f"called {params.get('name', '')}"}]}


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        told = {
            "jsonrpc": "2.0",
            "id": asked["id"],
            "result": answer(asked["method"], asked.get("params", {})),
        }
        print(json.dumps(told), flush=True)
