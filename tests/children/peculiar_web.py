"""The child `peculiar` over every transport but pipes, in one process: `peculiar_web.py`.

Its first line is a JSON object with the address of each. Bytes go out as they are written; no SDK is in between.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

# It runs as a program, from any folder.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import uvicorn
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

from tests.children.peculiar import PREFIX, Json, Peculiar

METHOD_NOT_FOUND = -32601


class Conversation:
    """One client. What is said before the answer to a request is said on the way back of the latest."""

    def __init__(self) -> None:
        self.child = Peculiar(self._write)
        self._ways: dict[str, asyncio.Queue[bytes]] = {}
        self._latest: asyncio.Queue[bytes] = asyncio.Queue()

    async def request(self, id: object, body: bytes) -> AsyncIterator[bytes]:
        """Everything up to the answer."""
        way = self._ways[json.dumps(id)] = self._latest = asyncio.Queue()
        self.child.respond(body)
        while json.dumps(id) in self._ways or not way.empty():
            yield await way.get()

    async def everything(self) -> AsyncIterator[bytes]:
        """All there is to hear, where one channel carries it."""
        while True:
            yield await self._latest.get()

    def _write(self, message: bytes) -> None:
        told = json.loads(message)
        answers = "id" in told and "method" not in told
        way = self._ways.pop(json.dumps(told["id"]), self._latest) if answers else self._latest
        way.put_nowait(message)


class App:
    """Streamable HTTP at /mcp and HTTP+SSE at /sse, as an ASGI application."""

    def __init__(self) -> None:
        self._open: dict[str, Conversation] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        body = await self._body(receive) if scope["method"] == "POST" else b""
        match scope["method"], scope["path"]:
            case "POST", "/mcp":
                await self._post(headers.get(b"mcp-session-id", b"").decode(), body, send)
            case "GET", "/sse":
                await self._events(receive, send)
            case "POST", "/messages":
                self._open[scope["query_string"].decode()].child.respond(body)
                await _respond(send, 202)
            case _:
                await _respond(send, 405)

    async def _body(self, receive: Any) -> bytes:
        body, more = b"", True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        return body

    async def _post(self, key: str, body: bytes, send: Any) -> None:
        message: Json = json.loads(body)
        modern = PREFIX + "protocolVersion" in message.get("params", {}).get("_meta", {})
        if message.get("method") == "initialize":
            key = uuid4().hex
            self._open[key] = Conversation()
        talk = Conversation() if modern else self._open[key]
        if "method" not in message or "id" not in message:
            talk.child.respond(body)
            await _respond(send, 202)
            return
        head = [(b"mcp-session-id", key.encode())] if key else []
        first = True
        async for told in talk.request(message["id"], body):
            if first and "method" not in json.loads(told):
                unknown = json.loads(told).get("error", {}).get("code") == METHOD_NOT_FOUND
                await _respond(send, 404 if modern and unknown else 200, told, *head)
                return
            if first:
                await _begin(send, *head)
            first = False
            await _event(send, told)
        await send({"type": "http.response.body", "body": b""})

    async def _events(self, receive: Any, send: Any) -> None:
        key, talk = uuid4().hex, Conversation()
        self._open[key] = talk
        await _begin(send)
        await send(
            {
                "type": "http.response.body",
                "body": b"event: endpoint\ndata: /messages?%b\n\n" % key.encode(),
                "more_body": True,
            }
        )
        async with _until_gone(receive):
            async for told in talk.everything():
                await _event(send, told)


@asynccontextmanager
async def _until_gone(receive: Any) -> AsyncIterator[None]:
    """Cancel the body when the client disconnects."""
    task = asyncio.current_task()
    assert task is not None

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        task.cancel()

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()


async def _begin(send: Any, *headers: tuple[bytes, bytes]) -> None:
    head = [(b"content-type", b"text/event-stream"), *headers]
    await send({"type": "http.response.start", "status": 200, "headers": head})


async def _event(send: Any, message: bytes) -> None:
    event = b"event: message\ndata: " + message + b"\n\n"
    await send({"type": "http.response.body", "body": event, "more_body": True})


async def _respond(send: Any, status: int, body: bytes = b"", *headers: tuple[bytes, bytes]) -> None:
    kind = [(b"content-type", b"application/json")] if body else []
    head = [*kind, *headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def over_socket(connection: ServerConnection) -> None:
    """One client over a WebSocket."""
    talk = Conversation()

    async def tell() -> None:
        async for told in talk.everything():
            await connection.send(told, text=True)

    async with asyncio.TaskGroup() as tasks:
        telling = tasks.create_task(tell())
        async for data in connection:
            talk.child.respond(data if isinstance(data, bytes) else data.encode())
        telling.cancel()


async def main() -> None:
    web, sockets = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    here, there = (f"127.0.0.1:{listener.getsockname()[1]}" for listener in (web, sockets))
    async with serve(over_socket, sock=sockets, subprotocols=[Subprotocol("mcp")]):
        addresses = {"http": f"http://{here}/mcp", "sse": f"http://{here}/sse", "ws": f"ws://{there}/"}
        print(json.dumps(addresses), flush=True)
        config = uvicorn.Config(App(), log_level="critical", lifespan="off")
        await uvicorn.Server(config).serve([web])


if __name__ == "__main__":
    asyncio.run(main())
