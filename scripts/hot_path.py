#!/usr/bin/env python3
"""Counts the Python calls between a host's bytes and their answer, and fails if budgets.toml allows fewer.

scripts/hot_path.py          print the figure of every way to be served beside its budget
scripts/hot_path.py WAY      print the functions of one way in order, indented by depth

Only functions of the package count. A change that adds a call for every request must save one elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

REPO = Path(__file__).resolve().parent.parent
PACKAGE = str(REPO / "src" / "switchboard_mcp") + os.sep
# From a session without anything to one with audit, limits and two gate rules; over HTTP; and a list of tools.
WAYS = ("stdio", "broker", "pipeline", "gate", "http", "http-stateless", "list")
WARM_UP = 20
# A timer that fires meanwhile adds its calls, so the shortest of several counts.
TRACED = 5
TIMEOUT_S = 120
CALL = {
    "name": "fast_suite",
    "arguments": {"action": "call", "subtool": "echo", "args": {"message": "hi", "path": "/tmp/x"}},
}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}
# A stdio server with one tool and no library, so that its own cost does not matter.
CHILD = """
import json, os, sys
tool = {"name": "echo", "description": "Echoes.", "inputSchema": {"type": "object"}}
for line in iter(sys.stdin.buffer.readline, b""):
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    method, params = message["method"], message.get("params", {})
    result = {}
    if method == "initialize":
        about = {"name": "fast", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    elif method == "tools/list":
        result = {"tools": [tool]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": "Echo: " + params["arguments"]["message"]}]}
    # In one piece: an answer that arrives in two is read by more calls.
    os.write(1, (json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\\n").encode())
"""


class Tracer:
    """Records the calls of the package between `start` and `stop`: those of the shortest record."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str]] = []
        self._current: list[tuple[int, str]] = []

    def start(self) -> None:
        self._current = []
        sys.setprofile(self._record)

    def stop(self) -> None:
        sys.setprofile(None)
        if self._current and (not self.calls or len(self._current) < len(self.calls)):
            self.calls = self._current

    def _record(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        depth, outer = 0, frame.f_back
        while outer is not None:
            depth, outer = depth + 1, outer.f_back
        self._current.append(
            (depth, f"{frame.f_code.co_filename[len(PACKAGE) :]}:{frame.f_code.co_qualname}")
        )


def encode(method: str, params: dict[str, Any], number: int = 1) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


async def trace_stdio(way: str, runtime: Any, log: Any, tracer: Tracer) -> None:
    from switchboard_mcp.gateway.session import local_host
    from switchboard_mcp.server import stdio

    (their_in, our_in), (our_out, their_out) = os.pipe(), os.pipe()
    stdio.take_over_stdio = lambda: (their_in, their_out)
    context, identity = runtime.context, local_host("")
    if way == "broker":
        from switchboard_mcp.server.handed_over import HandedOverHost
        from switchboard_mcp.transport.session_journal import Journal

        journal = Journal(os.memfd_create("trace"))
        pipes = (their_in, their_out)
        HandedOverHost(runtime.gateway, context.cork, context.flow_control, identity, pipes, journal, log)
    else:
        stdio.StdioServer(runtime.gateway, context.cork, context.flow_control, identity, log)
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    buffer = bytearray()

    def read() -> None:
        tracer.stop()
        buffer.extend(os.read(our_out, 65_536))
        while b"\n" in buffer:
            line, _, rest = bytes(buffer).partition(b"\n")
            buffer[:] = rest
            lines.put_nowait(line)

    asyncio.get_running_loop().add_reader(our_out, read)

    async def ask(message: bytes, *, traced: bool = False) -> None:
        os.write(our_in, message + b"\n")
        if traced:
            tracer.start()
        await lines.get()

    await ask(encode("initialize", INITIALIZE))
    message = encode("tools/list", {}, 3) if way == "list" else encode("tools/call", CALL, 3)
    for _ in range(WARM_UP):
        await ask(message)
    for _ in range(TRACED):
        await ask(message, traced=True)
    os.close(our_in)


class AnyToken:
    """Accepts every token."""

    def principal(self, _: str) -> str:
        return ""


async def trace_http(way: str, runtime: Any, workspace: Any, log: Any, tracer: Tracer) -> None:
    from switchboard_mcp import app
    from switchboard_mcp.protocol import message_meta, versions
    from switchboard_mcp.server.http.front import HttpServer

    runtime.context.shared_capabilities = app.SHARED_CAPABILITIES
    front: Any = HttpServer(runtime.gateway, workspace.config.http, "127.0.0.1", AnyToken(), log)  # type: ignore[arg-type]
    listener = socket.create_server(("127.0.0.1", 0))
    await front.listen(listener)
    port = listener.getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def post(body: bytes, extra: str = "", *, traced: bool = False) -> dict[bytes, bytes]:
        head = (
            f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer t\r\n"
            "accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n{extra}\r\n"
        )
        writer.write(head.encode() + body)
        if traced:
            tracer.start()
        answer = await reader.readuntil(b"\r\n\r\n")
        tracer.stop()
        status, *lines = answer.split(b"\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines)}
        if b" 200 " not in status:
            raise RuntimeError(answer.decode())
        await reader.readexactly(int(headers.get(b"content-length", b"0")))
        return headers

    if way == "http-stateless":
        meta = {
            message_meta.VERSION: versions.LATEST_STATELESS,
            message_meta.CAPABILITIES: {},
            message_meta.CLIENT: {"name": "t", "version": "1"},
        }
        message = encode("tools/call", {**CALL, "_meta": meta}, 3)
        extra = f"mcp-protocol-version: {versions.LATEST_STATELESS}\r\nmcp-method: tools/call\r\n"
        extra += "mcp-name: fast_suite\r\n"
    else:
        headers = await post(encode("initialize", INITIALIZE))
        message = encode("tools/call", CALL, 3)
        extra = f"mcp-session-id: {headers[b'mcp-session-id'].decode()}\r\n"
    for _ in range(WARM_UP):
        await post(message, extra)
    for _ in range(TRACED):
        await post(message, extra, traced=True)
    writer.close()
    front._server.close()
    front._connections.abort_all()


async def trace(way: str, folder: Path) -> Tracer:
    from switchboard_mcp import app
    from switchboard_mcp.observability.log import Log
    from switchboard_mcp.redaction.redactor import Redactor

    child = folder / "child.py"
    child.write_text(CHILD)
    config: dict[str, Any] = {"mcpServers": {"fast": {"command": sys.executable, "args": [str(child)]}}}
    if way in ("pipeline", "gate"):
        config |= {"audit": {"enabled": True}, "limits": {"concurrent": 100, "callsPerMinute": 100_000}}
    if way == "gate":
        config["gate"] = [
            {"deny": True, "suite": "fast", "subtool": "rm_*"},
            {"ask": "always", "suite": "fast", "args": {"path": {"outside": "/tmp"}}},
        ]
    (folder / "switchboard.config.json").write_text(json.dumps(config))
    redactor, tracer = Redactor(), Tracer()
    log = Log(level="error", redactor=redactor)
    workspace = app.load(app.CommandOptions(workspace=str(folder), include_user=False))
    async with app.running(workspace, log, redactor, several_hosts=way == "broker") as runtime:
        if way.startswith("http"):
            await trace_http(way, runtime, workspace, log, tracer)
        else:
            await trace_stdio(way, runtime, log, tracer)
    return tracer


def show(way: str) -> None:
    """Trace one way in this process."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            {f"XDG_{name}_HOME": f"{folder}/xdg" for name in ("CACHE", "CONFIG", "DATA", "STATE")}
        )
        tracer = asyncio.run(trace(way, Path(folder)))
    base = min(depth for depth, _ in tracer.calls)
    print(len(tracer.calls))
    for depth, name in tracer.calls:
        print("  " * (depth - base) + name)


def count(way: str) -> str:
    """Return the number of calls of one way, or what went wrong."""
    done = subprocess.run(
        [sys.executable, __file__, way], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return (
        done.stdout.partition("\n")[0] if done.returncode == 0 else done.stderr.rstrip().rpartition("\n")[2]
    )


def main() -> int:
    if len(sys.argv) > 1:
        show(sys.argv[1])
        return 0
    budgets = tomllib.loads((REPO / "budgets.toml").read_text(encoding="utf-8"))["python_calls"]
    with ThreadPoolExecutor(2) as pool:
        counts = dict(zip(WAYS, pool.map(count, WAYS), strict=True))
    exceeded = [way for way in WAYS if not counts[way].isdigit() or int(counts[way]) > budgets[way]]
    for way in WAYS:
        print(f"{'✗' if way in exceeded else ' '} {way}: {counts[way]} Python calls (budget {budgets[way]})")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
