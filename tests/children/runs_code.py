"""A server with one tool, `run`, which executes Python code and fails with its traceback. Standard library only."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback
from typing import Any


def call(code: str) -> dict[str, Any]:
    printed, failed = io.StringIO(), False
    with contextlib.redirect_stdout(printed):
        try:
            exec(code, {})
        except Exception:  # noqa: BLE001
            printed.write(traceback.format_exc())
            failed = True
    return {"content": [{"type": "text", "text": printed.getvalue()}], "isError": failed}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "runs-code", "version": "1"},
        }
    if method == "tools/list":
        schema = {"type": "object", "properties": {"code": {"type": "string"}}}
        return {"tools": [{"name": "run", "description": "Run code.", "inputSchema": schema}]}
    return call(params["arguments"]["code"]) if method == "tools/call" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params") or {})
        body = {"result": result} if result is not None else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)
