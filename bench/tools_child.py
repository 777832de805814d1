"""A stdio MCP server with the tools of a file; every call is answered with its name."""

from __future__ import annotations

import json
import sys


def main(path: str) -> None:
    with open(path) as file:
        tools = json.load(file)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "id" not in request:
            continue
        result: object = {}
        if request["method"] == "initialize":
            version = request["params"]["protocolVersion"]
            info = {"name": "tools", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        elif request["method"] == "tools/list":
            result = {"tools": tools}
        elif request["method"] == "tools/call":
            result = {"content": [{"type": "text", "text": request["params"]["name"]}]}
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": result}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1])
