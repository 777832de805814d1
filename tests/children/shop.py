"""A server on the official SDK over a remote transport: `shop.py TRANSPORT [PORT]`.

The first line of its output is its address. Its tools tell what has happened to one another, for a test to wait for.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections import defaultdict
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from starlette.types import ASGIApp, Receive, Scope, Send
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

server = MCPServer("shop", instructions="Ask for bread.")
begun: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
cancelled: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def count(to: int, ctx: Context) -> str:
    """Report progress on the way."""
    for step in range(to):
        await ctx.report_progress(step, to, f"step {step}")
    return "counted"


@server.tool()
async def wait(name: str) -> str:
    """Wait for good."""
    begun[name].set()
    try:
        await asyncio.Event().wait()
    finally:
        cancelled[name].set()
    return "never"


@server.tool()
async def until_begun(name: str) -> str:
    """Answers when `wait` of this name has begun."""
    await begun[name].wait()
    return "begun"


@server.tool()
async def until_cancelled(name: str) -> str:
    """Answers when `wait` of this name was cancelled."""
    await cancelled[name].wait()
    return "cancelled"


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    """Have one tool more."""
    server.add_tool(add, name=name)
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "grown"


@server.tool()
async def large(size: int) -> str:
    """A text of this size."""
    return "x" * size


def modern_only(app: ASGIApp) -> ASGIApp:
    """The same server without the handshake era: what does not name a version in its headers is refused."""

    async def serve_modern(scope: Scope, receive: Receive, send: Send) -> None:
        versions = [value for name, value in scope.get("headers", ()) if name == b"mcp-protocol-version"]
        if scope["type"] != "http" or versions == [b"2026-07-28"]:
            await app(scope, receive, send)
            return
        error = {
            "code": -32022,
            "message": "Unsupported protocol version",
            "data": {"supported": ["2026-07-28"]},
        }
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 400, "headers": head})
        await send({"type": "http.response.body", "body": body})

    return serve_modern


async def talk(connection: ServerConnection) -> None:
    """One client over a WebSocket."""
    lowlevel = server._lowlevel_server
    to_server, inward = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    outward, from_server = anyio.create_memory_object_stream[SessionMessage](100)

    async def receive() -> None:
        async with to_server:
            async for data in connection:
                await to_server.send(SessionMessage(jsonrpc_message_adapter.validate_json(data)))

    async def send() -> None:
        async for message in from_server:
            await connection.send(message.message.model_dump_json(by_alias=True, exclude_unset=True))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        tasks.start_soon(send)
        await lowlevel.run(inward, outward, lowlevel.create_initialization_options())
        tasks.cancel_scope.cancel()


async def main(transport: str, port: int) -> None:
    listener = socket.create_server(("127.0.0.1", port))
    listener.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )  # asyncio does that only for its own sockets
    here = f"127.0.0.1:{listener.getsockname()[1]}"
    if transport == "websocket":
        async with serve(talk, sock=listener, subprotocols=[Subprotocol("mcp")]):
            print(f"ws://{here}/", flush=True)
            await asyncio.Event().wait()
    apps: dict[str, Any] = {
        "streamable": server.streamable_http_app,
        "json": lambda: server.streamable_http_app(json_response=True),
        "modern": lambda: modern_only(server.streamable_http_app()),
        "sse": server.sse_app,
    }
    print(f"http://{here}/{'sse' if transport == 'sse' else 'mcp'}", flush=True)
    await uvicorn.Server(uvicorn.Config(apps[transport](), log_level="critical")).serve([listener])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0))
