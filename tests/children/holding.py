"""A child that takes its time: `hold(message, until)` is answered when there is a file of that name, and so is `look`.

Its answers begin with the label it was started with, so that it can be told which run of it has answered. Standard
library only.
"""

from __future__ import annotations

import json
import os
import select
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from tests.children.plain_child import Json, send, text, tool

LOOK_S = 0.05


def serve(label: str) -> None:
    held: dict[str, list[Json]] = {}
    rest = b""
    while True:
        ready, _, _ = select.select([0], [], [], LOOK_S if held else None)
        for path in [path for path in held if Path(path).exists()]:
            for answer in held.pop(path):
                send(answer)
        if not ready:
            continue
        data = os.read(0, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for asked in map(json.loads, lines):
            if "id" not in asked:
                continue
            answer = {"id": asked["id"], "result": result(asked, label)}
            until = asked.get("params", {}).get("arguments", {}).get("until", "")
            if until:
                held.setdefault(until, []).append(answer)
            else:
                send(answer)


def result(asked: Json, label: str) -> Json:
    method = asked["method"]
    if method == "initialize":
        return {
            "protocolVersion": asked["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": label, "version": "1"},
        }
    if method == "tools/list":
        tools = [tool("hold"), {**tool("look"), "annotations": {"readOnlyHint": True}}]
        for one in tools:
            one["inputSchema"]["properties"]["until"] = {"type": "string"}
        return {"tools": tools}
    if method == "tools/call":
        return text(f"{label}:{asked['params']['arguments']['message']}")
    return {}


if __name__ == "__main__":
    serve(sys.argv[1])
