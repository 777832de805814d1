from __future__ import annotations

import asyncio
import socket

import pytest

from switchboard_mcp.server.http import asgi, connection_limits, event_stream, request_framing
from tests.cases import each_case
from tests.unit.server.http.front import HEAD, front, until

POST = b"POST /mcp HTTP/1.1\r\n" + HEAD + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
HEALTH = b"GET /health HTTP/1.1\r\n" + HEAD + b"\r\n"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks that run out at once."""
    for name in ("HEAD_TIMEOUT_S", "IDLE_TIMEOUT_S", "SWEEP_S"):
        monkeypatch.setattr(connection_limits, name, 0.05)
    monkeypatch.setattr(asgi, "BODY_TIMEOUT_S", 0.05)
    monkeypatch.setattr(asgi, "DISCARD_TIMEOUT_S", 0.05)


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection ends, however it does."""
    parts = []
    try:
        while part := await reader.read(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("sent", [b"", b"\r\n\r\n", b"POST /mcp HT", HEALTH[:-2], POST, POST + b"{"])
async def test_a_client_that_does_not_go_on_is_cut_off(sent: bytes) -> None:
    async with front() as running, running.connect() as (reader, writer):
        writer.write(sent)
        assert await ended(reader) == b""
        assert b" 200 " in await running.get()


@pytest.mark.usefixtures("impatient")
async def test_a_client_that_sends_a_byte_now_and_then_is_cut_off() -> None:
    async with front() as running, running.connect() as (reader, writer):
        over = asyncio.create_task(ended(reader))
        writer.write(b"POST /mcp HTTP/1.1\r\n")
        while not over.done():
            writer.write(b"X")
            await asyncio.sleep(0.005)
        assert over.result() == b""


@pytest.mark.usefixtures("impatient")
async def test_a_kept_connection_is_closed_when_it_is_not_used() -> None:
    async with front() as running, running.connect() as (reader, writer):
        writer.write(HEALTH)
        assert b" 200 " in await ended(reader)


@pytest.mark.usefixtures("impatient")
async def test_a_stream_may_be_quiet_for_long() -> None:
    async with front() as running, running.connect() as (reader, writer):
        writer.write(b"GET /sse HTTP/1.1\r\n" + HEAD + b"\r\n")
        await reader.readuntil(b"endpoint")
        for _ in range(4):
            async with running.connect() as (other, _writer):
                await ended(other)  # a client that does nothing is cut off meanwhile
        assert running.gateway.sessions
        writer.close()
        await until(lambda: not running.gateway.sessions)


@pytest.mark.usefixtures("impatient")
async def test_a_body_that_nobody_sends_does_not_hold_up_a_refusal() -> None:
    async with front() as running, running.connect() as (reader, writer):
        writer.write(POST.replace(b"Bearer token", b"Bearer wrong"))
        assert b" 401 " in await ended(reader)


async def test_a_connection_serves_one_request_after_the_other() -> None:
    async with front() as running, running.connect() as (reader, writer):
        for _ in range(3):
            writer.write(HEALTH)
            assert b" 200 " in await reader.readuntil(b"}}")
        writer.write(HEALTH * 3)
        for _ in range(3):
            assert b" 200 " in await reader.readuntil(b"}}")


@each_case("size", [10, 70_000, 1_000_000])
async def test_requests_that_wait_behind_another_are_served_in_order(size: int) -> None:
    head = b"POST /mcp HTTP/1.1\r\n" + HEAD + b"Content-Type: application/json\r\n"
    requests = []
    for number in range(6):
        body = b'{"jsonrpc":"2.0","id":%d,"method":"initialize"}' % number + b" " * size
        if number % 2:
            requests.append(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        else:
            chunked = b"%x\r\n%b\r\n0\r\nX-Trailer: x\r\n\r\n" % (len(body), body)
            requests.append(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunked)
    async with front() as running, running.connect() as (reader, writer):
        writer.write(b"".join(requests))
        for number in range(6):
            assert b'"id":%d' % number in await reader.readuntil(b'"}}}')


async def test_a_client_whose_request_goes_on_after_its_response_is_cut_off() -> None:
    async with front() as running, running.connect() as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\n" + HEAD + b"Content-Length: 1000\r\n\r\n")
        assert b" 200 " in await ended(reader)


@each_case("waiting", [b"", HEALTH, HEALTH * 100])
async def test_a_client_that_leaves_is_noticed_with_requests_that_wait(waiting: bytes) -> None:
    async with front() as running, running.connect() as (reader, writer):
        writer.write(b"GET /sse HTTP/1.1\r\n" + HEAD + b"\r\n" + waiting)
        await reader.readuntil(b"endpoint")
        writer.close()
        await until(lambda: not running.gateway.sessions)


async def test_the_quietest_entry_is_removed_when_there_are_too_many() -> None:
    async with front(max_connections=3) as running:
        connections = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(3)]
        kept_reader, kept_writer = connections[0]
        kept_writer.write(HEALTH)
        await kept_reader.readuntil(b"}}")
        assert b" 200 " in await running.get()
        assert await ended(connections[1][0]) == b""
        kept_writer.write(HEALTH)
        assert b" 200 " in await kept_reader.readuntil(b"}}")
        for _, writer in connections:
            writer.close()


async def test_new_requests_are_refused_when_all_connections_are_busy() -> None:
    async with front(max_connections=1) as running, running.connect() as (reader, writer):
        writer.write(b"GET /sse HTTP/1.1\r\n" + HEAD + b"\r\n")
        await reader.readuntil(b"endpoint")
        async with running.connect() as (other, _writer):
            assert b" 503 " in await ended(other)


@each_case("cut", [1, 7, 1000])
async def test_a_head_is_found_in_any_chunking(cut: int) -> None:
    async with front() as running, running.connect() as (reader, writer):
        for start in range(0, len(HEALTH), cut):
            writer.write(HEALTH[start : start + cut])
            await writer.drain()
            await asyncio.sleep(0)
        assert b" 200 " in await reader.readuntil(b"}}")


@each_case("size", [request_framing.MAX_HEAD_BYTES - 200, request_framing.MAX_HEAD_BYTES + 200])
@each_case("cut", [1000, 1_000_000])
async def test_a_head_has_a_limit(size: int, cut: int) -> None:
    filler = b"X-Filler: " + b"x" * (size - len(HEALTH)) + b"\r\n\r\n"
    data = HEALTH[:-2] + filler
    async with front() as running, running.connect() as (reader, writer):
        for start in range(0, len(data), cut):
            writer.write(data[start : start + cut])
            await asyncio.sleep(0)
        status = (await reader.readline()).split()[1]
        assert status == (b"200" if size < request_framing.MAX_HEAD_BYTES else b"431")


async def test_a_reader_that_stalls_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "STALL_TIMEOUT_S", 0.05)
    monkeypatch.setattr(event_stream, "SLOW_CLIENT_BYTES", 1 << 40)
    async with front() as running:
        loop = asyncio.get_running_loop()
        with socket.socket() as stalled:
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stalled.setblocking(False)
            await loop.sock_connect(stalled, ("127.0.0.1", running.port))
            await loop.sock_sendall(stalled, b"GET /sse HTTP/1.1\r\n" + HEAD + b"\r\n")
            await until(lambda: bool(running.gateway.sessions))
            (session,) = running.gateway.sessions
            while running.gateway.sessions:
                session.channel.send(b"x" * 100_000)
                await asyncio.sleep(0.001)


async def test_a_fault_in_one_request_is_logged_and_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with front() as running:

        async def fail(exchange: object) -> None:
            raise RuntimeError("a fault")

        with monkeypatch.context() as patched:
            patched.setattr(running.front, "_health", fail)
            assert await running.get() == b""
        assert b" 200 " in await running.get()
        assert any(b"a fault" in line for line in running.lines)
