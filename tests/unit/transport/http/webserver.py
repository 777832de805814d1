"""A web server that does exactly what a test tells it to, however wrong that is."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from tests.patience import PATIENCE_S
from tests.unit.transport.recorder import settle

Json = dict[str, Any]


class Request:
    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Json:
        message: Json = json.loads(self.body)
        return message

    @property
    def call(self) -> str:
        """Return the method of its message, else that of HTTP."""
        return str(self.json.get("method", "response")) if self.body else self.method


class Reply:
    """The way back to the client. A handler uses one of these, or several, or none."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    async def raw(self, data: bytes) -> None:
        self.transport.write(data)

    async def head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items())]
        await self.raw("\r\n".join([*lines, "", ""]).encode())

    async def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await self.head(status, {"content-length": str(len(body)), **named})
        await self.raw(body)

    async def json(self, message: object, status: int = 200, **headers: str) -> None:
        await self.send(status, json.dumps(message).encode(), content_type="application/json", **headers)

    async def result(self, request: Request, result: object, **headers: str) -> None:
        await self.json({"jsonrpc": "2.0", "id": request.json["id"], "result": result}, 200, **headers)

    async def stream(self, **headers: str) -> None:
        """Begin a stream of events."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await self.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked", **named})

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, message: object = None, **fields: object) -> None:
        lines = [f"{name}: {value}" for name, value in fields.items()]
        lines.append("data: " + ("" if message is None else json.dumps(message)))
        await self.chunk("\n".join([*lines, "", ""]).encode())

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    def cut(self) -> None:
        """Break the connection off."""
        self.transport.abort()


Handler = Callable[[Request, Reply], Awaitable[None]]


class WebServer:
    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.requests: list[Request] = []
        self.connections = 0
        self.port = 0
        self.scheme = "http"
        self.closed = 0  # connections that the client has closed
        self.tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/mcp"

    @property
    def calls(self) -> list[str]:
        return [request.call for request in self.requests]

    def named(self, call: str) -> list[Request]:
        return [request for request in self.requests if request.call == call]

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not happened():
                self._news.clear()
                await self._news.wait()

    async def until_called(self, call: str, times: int = 1) -> Request:
        await self.until(lambda: len(self.named(call)) >= times)
        return self.named(call)[times - 1]

    def tell(self) -> None:
        self._news.set()

    async def serve(self, reader: asyncio.StreamReader, transport: asyncio.Transport) -> None:
        try:
            while (request := await self._read(reader)) is not None:
                self.requests.append(request)
                self._news.set()
                await self.handler(request, Reply(transport))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> Request | None:
        first = await reader.readline()
        if not first:
            return None
        method, path, _ = first.decode().split()
        headers: dict[str, str] = {}
        while line := (await reader.readline()).strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Request(method, path, headers, body)

    async def close(self) -> None:
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class _Connection(asyncio.Protocol):
    """One client. Whatever is being answered stops when the client goes."""

    def __init__(self, web: WebServer) -> None:
        self.web = web
        self.reader = asyncio.StreamReader()
        self.task: asyncio.Task[None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.web.connections += 1
        both_ways = cast(asyncio.Transport, transport)
        self.task = asyncio.get_running_loop().create_task(self.web.serve(self.reader, both_ways))
        self.web.tasks.add(self.task)
        self.task.add_done_callback(self.web.tasks.discard)

    def data_received(self, data: bytes) -> None:
        self.reader.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.task.cancel()
        self.web.closed += 1
        self.web.tell()


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[WebServer]:
    web = WebServer(handler)
    web.scheme = "https" if tls else "http"
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(web), "127.0.0.1", 0, ssl=tls)
    web.port = server.sockets[0].getsockname()[1]
    try:
        yield web
    finally:
        server.close()
        await web.close()
        await server.wait_closed()
        await settle()
