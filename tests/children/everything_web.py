"""The server `everything` over every transport but pipes, in one process: `everything_web.py`.

Its first line is a JSON object with the address of each. They have nothing in common but the process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

# It runs as a program, from any folder.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import anyio
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from starlette.types import ASGIApp, Receive, Scope, Send
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_sockets
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.children.everything import build, converse_over
from tests.conformance.fixture.eras import only


def over_sse(server: Server[Any], era: str) -> ASGIApp:
    """HTTP+SSE."""
    transport = SseServerTransport("/messages")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/messages":
            await transport.handle_post_message(scope, receive, send)
            return
        async with transport.connect_sse(scope, receive, send) as (read, write):
            await converse_over(server, era, read, write)

    return app


async def over_socket(server: Server[Any], era: str, connection: ServerConnection) -> None:
    """One client over a WebSocket."""
    to_server, inward = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    outward, from_server = anyio.create_memory_object_stream[SessionMessage](100)

    async def receive() -> None:
        async with to_server:
            async for data in connection:
                await to_server.send(SessionMessage(jsonrpc_message_adapter.validate_json(data)))

    async def send() -> None:
        with suppress(ConnectionClosed):
            async for message in from_server:
                await connection.send(message.message.model_dump_json(by_alias=True, exclude_unset=True))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        tasks.start_soon(send)
        await converse_over(server, era, inward, outward)
        tasks.cancel_scope.cancel()


def listen() -> tuple[socket.socket, str]:
    listener = socket.create_server(("127.0.0.1", 0))
    # asyncio does that only for its own sockets
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener, f"127.0.0.1:{listener.getsockname()[1]}"


async def main() -> None:
    addresses: dict[str, str] = {}
    async with AsyncExitStack() as sockets, asyncio.TaskGroup() as tasks:
        for era in ("legacy", "modern"):
            listener, here = listen()
            talk = partial(over_socket, build(era), era)
            await sockets.enter_async_context(
                serve_sockets(talk, sock=listener, subprotocols=[Subprotocol("mcp")])
            )
            addresses[f"ws-{era}"] = f"ws://{here}/"
        apps: dict[str, ASGIApp] = {"sse-legacy": over_sse(build("legacy"), "legacy")}
        for era in ("legacy", "modern"):
            apps[f"http-{era}"] = only(build("both").streamable_http_app(), era)
        for name, app in apps.items():
            listener, here = listen()
            addresses[name] = f"http://{here}/{'sse' if name.startswith('sse') else 'mcp'}"
            config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=0)
            tasks.create_task(uvicorn.Server(config).serve([listener]))
        print(json.dumps(addresses), flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(main())
