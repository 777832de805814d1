"""Answers that are late, streams that are quiet: over a gateway that says nothing by itself."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from switchboard_mcp.gateway.session import ReplyChannel, Session
from switchboard_mcp.server.http import event_stream, streamable_http_session, streamable_http_stateless
from tests.unit.server.http.front import HEAD, Front, front, until

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
STATELESS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
MODERN = b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n"
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{}}'


def post(message: dict[str, Any], *more: bytes) -> bytes:
    body = json.dumps(message).encode()
    length = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    return b"POST /mcp HTTP/1.1\r\n" + HEAD + b"".join(more) + length + body


class Desk:
    """In place of the gateway: whoever asks waits until the test answers."""

    def __init__(self, running: Front, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: asyncio.Queue[ReplyChannel] = asyncio.Queue()
        monkeypatch.setattr(running.gateway, "receive", self.receive)

    def receive(self, session: Session, route: ReplyChannel, data: bytes) -> None:
        session.initialized = True
        self.asked.put_nowait(route)


async def test_a_late_answer_becomes_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamable_http_stateless, "COMMIT_S", 0.02)
    async with front() as running, running.connect() as (reader, writer):
        desk = Desk(running, monkeypatch)
        writer.write(post(STATELESS, MODERN))
        route = await desk.asked.get()
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"text/event-stream" in head
        route.answer(ANSWER)
        assert b"data: " + ANSWER in await reader.readuntil(b"0\r\n\r\n")


async def test_an_answer_in_time_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    async with front() as running, running.connect() as (reader, writer):
        desk = Desk(running, monkeypatch)
        writer.write(post(STATELESS, MODERN))
        (await desk.asked.get()).answer(ANSWER)
        assert b"application/json" in await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(len(ANSWER)) == ANSWER


async def test_a_late_answer_of_a_session_can_be_fetched_after_a_break(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streamable_http_session, "COMMIT_S", 0.02)
    async with front() as running:
        desk = Desk(running, monkeypatch)
        async with running.connect() as (reader, writer):
            writer.write(post({"jsonrpc": "2.0", "id": 1, "method": "initialize"}))
            route = await desk.asked.get()
            head = await reader.readuntil(b"\r\n\r\n")
            place = (await reader.readuntil(b"\n\n")).partition(b"id: ")[2].partition(b"\n")[0]
        key = head.lower().partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0]
        assert key
        key = head[head.lower().index(key) :][: len(key)]
        route.answer(ANSWER)
        async with running.connect() as (reader, writer):
            writer.write(b"GET /mcp HTTP/1.1\r\n" + HEAD + b"Mcp-Session-Id: " + key)
            writer.write(b"\r\nLast-Event-ID: " + place + b"\r\n\r\n")
            assert b"data: " + ANSWER in await reader.readuntil(b"0\r\n\r\n")


async def test_a_quiet_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.01)
    async with front() as running, running.connect() as (reader, writer):
        writer.write(b"GET /sse HTTP/1.1\r\n" + HEAD + b"\r\n")
        for _ in range(3):
            await reader.readuntil(b": ping\n\n")


async def test_a_burst_is_not_a_client_that_does_not_read() -> None:
    """Whatever is said at once reaches a client that reads."""
    async with front() as running, running.connect() as (reader, writer):
        writer.write(b"GET /sse HTTP/1.1\r\n" + HEAD + b"\r\n")
        await reader.readuntil(b"endpoint")
        (session,) = running.gateway.sessions
        large = b'"' + b"x" * 3_000_000 + b'"'
        for _ in range(3):
            session.channel.send(large)
        for number in range(100):
            session.channel.send(b"%d" % number)
        assert len(await reader.readuntil(b"data: 99\n\n")) > 9_000_000


async def test_a_flood_is_cut_off() -> None:
    async with front() as running, running.connect() as (reader, writer):
        writer.write(b"GET /sse HTTP/1.1\r\n" + HEAD + b"\r\n")
        await reader.readuntil(b"endpoint")
        (session,) = running.gateway.sessions
        for _ in range(30):
            session.channel.send(b"x" * 1_000_000)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(30_000_000)


async def test_older_waiting_requests_are_given_up_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "SLOW_CLIENT_S", 0.0)
    async with front() as running:
        loop = asyncio.get_running_loop()
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            await loop.sock_connect(slow, ("127.0.0.1", running.port))
            await loop.sock_sendall(slow, b"GET /sse HTTP/1.1\r\n" + HEAD + b"\r\n")
            await until(lambda: bool(running.gateway.sessions))
            (session,) = running.gateway.sessions
            sent = 0
            while running.gateway.sessions:
                session.channel.send(b"x" * 100_000)
                sent += 100_000
                await asyncio.sleep(0)
        assert sent < event_stream.MAX_BUFFERED_BYTES
