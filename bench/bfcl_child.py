"""A stdio MCP server with one of BFCL's back ends. `bench_load` sets a scenario, `bench_state` returns its state."""

from __future__ import annotations

import importlib
import json
import random
import sys
import types
from datetime import datetime
from typing import Any

SOURCE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"


def state_of(value: object, seen: frozenset[int] = frozenset()) -> Any:
    """Return all that an object holds, as JSON; an object inside itself is left out."""
    if isinstance(value, str | int | float | bool | None):
        return value
    if id(value) in seen:
        return "…"
    inner = seen | {id(value)}
    if isinstance(value, dict):
        return {str(key): state_of(one, inner) for key, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [state_of(one, inner) for one in value]
    if isinstance(value, random.Random | datetime):  # files have the time of their last change
        return type(value).__name__
    return state_of(vars(value), inner) if hasattr(value, "__dict__") else str(value)


class BackEnd:
    """One back end, created anew for each scenario."""

    def __init__(self, wheel: str, file: str, api: str) -> None:
        sys.path.insert(0, wheel)
        # One function of one back end needs it; its calls fail.
        sys.modules.setdefault("mpmath", types.ModuleType("mpmath"))
        self._class = getattr(importlib.import_module(f"{SOURCE}.{file}"), api)
        self.server = self._class()

    def call(self, name: str, args: dict[str, Any]) -> Any:
        """Return the result of a function, or its error as BFCL's runner reports it."""
        if name == "bench_state":
            return {"state": state_of(self.server)}
        if name == "bench_load":
            random.seed(args["seed"])
            self.server = self._class()
            if hasattr(self.server, "_load_scenario"):
                self.server._load_scenario(args["config"], long_context=args["long"])
            return {"ok": True}
        try:
            return getattr(self.server, name)(**args)
        except Exception as error:  # noqa: BLE001  # as BFCL's own runner does it
            return {"error": str(error)}


def main(wheel: str, file: str, api: str, tools: str) -> None:
    back_end = BackEnd(wheel, file, api)
    with open(tools) as source:
        listed = json.load(source)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "id" not in request:
            continue
        result: object = {}
        if request["method"] == "initialize":
            version = request["params"]["protocolVersion"]
            info = {"name": api, "version": "1"}
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        elif request["method"] == "tools/list":
            result = {"tools": listed}
        elif request["method"] == "tools/call":
            params = request["params"]
            text = json.dumps(back_end.call(params["name"], params.get("arguments", {})), default=str)
            result = {"content": [{"type": "text", "text": text}]}
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": result}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
