"""The HTTP front in this process, over a gateway without children, for tests that turn its clocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from switchboard_mcp.config.models import Config, HttpSettings
from switchboard_mcp.gateway.gateway import Gateway
from switchboard_mcp.observability.log import Log
from switchboard_mcp.server.http.auth import TokenTable
from switchboard_mcp.server.http.front import HttpServer
from switchboard_mcp.server.http.sockets import listen
from switchboard_mcp.transport.flow_control import FlowControl

TOKEN = "token"
HEAD = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\nAccept: */*\r\n".encode()
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Front:
    """A running front."""

    def __init__(self, front: HttpServer, gateway: Gateway, port: int, lines: list[bytes]) -> None:
        self.front = front
        self.gateway = gateway
        self.port = port
        self.lines = lines

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Streams]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        try:
            yield reader, writer
        finally:
            writer.close()

    async def get(self, path: str = "/health") -> bytes:
        """A whole response, on a connection of its own."""
        async with self.connect() as (reader, writer):
            writer.write(f"GET {path} HTTP/1.1\r\n".encode() + HEAD + b"Connection: close\r\n\r\n")
            return await reader.read()


async def until(so: Callable[[], bool]) -> None:
    """Wait until something is so, however many turns of the loop that takes."""
    while not so():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)


@asynccontextmanager
async def front(**settings: int) -> AsyncIterator[Front]:
    lines: list[bytes] = []
    log = Log(level="debug", write=lines.append)
    http = HttpSettings(**settings)  # type: ignore[arg-type]
    gateway = Gateway([], Config(http=http), log, asyncio.get_running_loop(), FlowControl())
    running = HttpServer(gateway, http, "127.0.0.1", TokenTable({"": TOKEN}), log)
    listener = listen("127.0.0.1", 0)
    await running.listen(listener)
    async with asyncio.TaskGroup() as tasks:
        sweeper = tasks.create_task(running.sweep())
        try:
            yield Front(running, gateway, listener.getsockname()[1], lines)
        finally:
            await running.stop()
            sweeper.cancel()
