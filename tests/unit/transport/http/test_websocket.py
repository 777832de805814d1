"""WebSockets, against servers that do well and servers that do not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from switchboard_mcp.protocol.framing import OVERSIZED_EXCERPT_BYTES, Oversized
from switchboard_mcp.transport.http.websocket import WebSocketTransport
from tests.cases import each_case
from tests.patience import PATIENCE_S
from tests.unit.transport.http.remotes import dialled
from tests.unit.transport.recorder import settle

Handler = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler, **options: Any) -> AsyncIterator[str]:
    """The address of a server."""
    options.setdefault("subprotocols", [Subprotocol("mcp")])
    server: Server
    async with serve(handler, "127.0.0.1", 0, close_timeout=1, **options) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    await settle()


async def echo(socket: ServerConnection) -> None:
    """Answer every request with its own params."""
    async for data in socket:
        message = json.loads(data)
        if "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": message["params"]}
            await socket.send(json.dumps(answer))


async def test_every_message_is_a_text_frame_and_all_keep_their_order() -> None:
    frames: list[str | bytes] = []
    seen = asyncio.Event()

    async def handle(socket: ServerConnection) -> None:
        assert socket.subprotocol == "mcp"
        async for data in socket:
            frames.append(data)
            if len(frames) == 21:
                seen.set()

    async with serving(handle) as url, dialled(WebSocketTransport, url) as rig:
        rig.ask("initialize", 0)
        for number in range(20):
            rig.tell(f"notifications/{number}")
        await asyncio.wait_for(seen.wait(), PATIENCE_S)
    assert all(isinstance(frame, str) for frame in frames)
    assert [json.loads(frame)["method"] for frame in frames[1:]] == [f"notifications/{n}" for n in range(20)]


async def test_answers_come_back_as_they_were_sent() -> None:
    async with serving(echo) as url, dialled(WebSocketTransport, url) as rig:
        for id in range(50):
            rig.ask("x", id, b'{"text":"na\\u00efve \xe2\x98\x95"}')
        await rig.until_received(50)
    assert json.loads(rig.received[0]) == {"jsonrpc": "2.0", "id": 0, "result": {"text": "naïve ☕"}}


async def test_headers_go_with_the_opening() -> None:
    seen: list[Request] = []

    async def handle(socket: ServerConnection) -> None:
        assert socket.request is not None
        seen.append(socket.request)
        await echo(socket)

    async with (
        serving(handle) as url,
        dialled(WebSocketTransport, url, {"Authorization": "Bearer abc"}) as rig,
    ):
        rig.ask("x")
        await rig.until_received(1)
    assert seen[0].headers["Authorization"] == "Bearer abc"
    assert seen[0].headers["User-Agent"].startswith("switchboard/")


async def test_nothing_is_compressed() -> None:
    """A compressed frame of a hundred kilobytes may become one of the limit, and stop everybody meanwhile."""
    offered: list[str | None] = []

    async def handle(socket: ServerConnection) -> None:
        assert socket.request is not None
        offered.append(socket.request.headers.get("Sec-WebSocket-Extensions"))
        await echo(socket)

    async with serving(handle) as url, dialled(WebSocketTransport, url) as rig:
        rig.ask("x", 1, b"{}")
        await rig.until_received(1)
    assert offered == [None]


async def test_a_server_that_names_no_subprotocol_is_spoken_to_as_well() -> None:
    async with serving(echo, subprotocols=None) as url, dialled(WebSocketTransport, url) as rig:
        rig.ask("x")
        await rig.until_received(1)


async def test_a_large_message_passes_both_ways_and_counts_as_backlog_meanwhile() -> None:
    async with serving(echo, max_size=None) as url, dialled(WebSocketTransport, url) as rig:
        rig.ask("x", 1, b'"%b"' % (b"x" * 3_000_000))
        assert rig.link.write_buffer_size > 3_000_000
        await rig.until_received(1)
        assert rig.link.write_buffer_size == 0
    assert len(rig.received[0]) > 3_000_000


async def test_paused_it_delivers_nothing_and_then_everything() -> None:
    async with serving(echo) as url, dialled(WebSocketTransport, url) as rig:
        rig.ask("x", 1)
        await rig.until_received(1)
        rig.link.pause()
        for id in range(100):
            rig.ask("x", id)
        await settle(50)
        assert len(rig.received) == 1
        rig.link.resume()
        await rig.until_received(101)


async def test_a_connection_that_the_server_closes_ends_the_link() -> None:
    async def handle(socket: ServerConnection) -> None:
        await socket.send('{"jsonrpc":"2.0","method":"notifications/last"}')
        await socket.close(1001, "going away")

    async with serving(handle) as url, dialled(WebSocketTransport, url) as rig:
        problem = await rig.until_over()
    assert problem.code == "child_crashed"
    assert problem.message.endswith("has closed the connection (1001 going away).")
    assert len(rig.received) == 1


async def test_a_connection_that_breaks_ends_the_link() -> None:
    async def handle(socket: ServerConnection) -> None:
        socket.transport.abort()

    async with serving(handle) as url, dialled(WebSocketTransport, url) as rig:
        assert (await rig.until_over()).code == "child_crashed"


@each_case("first", [1, 1_000, 5_000, 9_999])
async def test_a_message_in_frames_beyond_the_limit_is_thrown_away_alone(first: int) -> None:
    big = b'{"jsonrpc":"2.0","id":7,"result":"%b"}' % (b"x" * 20_000)

    async def handle(socket: ServerConnection) -> None:
        await socket.send([big[:first], *(big[at : at + 5_000] for at in range(first, len(big), 5_000))])
        await echo(socket)

    async with serving(handle) as url, dialled(WebSocketTransport, url, limit=10_000) as rig:
        rig.ask("x", 1)
        await rig.until_received(1)
    (odd,) = rig.odd
    assert odd == Oversized(len(big), big[:OVERSIZED_EXCERPT_BYTES], big[-OVERSIZED_EXCERPT_BYTES:])


async def test_a_message_in_frames_within_the_limit_comes_whole() -> None:
    async def handle(socket: ServerConnection) -> None:
        await socket.send([b"{", b'"jsonrpc":"2.0"', b"", b',"method":"x"}'])
        await socket.wait_closed()

    async with serving(handle) as url, dialled(WebSocketTransport, url) as rig:
        await rig.until_received(1)
    assert rig.received == [b'{"jsonrpc":"2.0","method":"x"}']


async def test_a_frame_beyond_the_limit_ends_the_link_and_is_reported() -> None:
    async with serving(echo) as url, dialled(WebSocketTransport, url, limit=10_000) as rig:
        rig.ask("x", 1, b'"%b"' % (b"x" * 20_000))
        problem = await rig.until_over()
    assert problem.code == "message_too_large"
    assert "'kid'" in problem.message
    assert "larger than the 10,000 bytes" in problem.message


@each_case(
    ("status", "code"),
    [
        (401, "child_unauthorized"),
        (403, "child_unauthorized"),
        (404, "child_http_error"),
        (500, "child_http_error"),
    ],
)
async def test_an_opening_that_is_refused_is_reported(status: int, code: str) -> None:
    def refuse(socket: ServerConnection, request: Request) -> Response:
        return socket.respond(HTTPStatus(status), "no entry here")

    async with serving(echo, process_request=refuse) as url, dialled(WebSocketTransport, url) as rig:
        problem = await rig.until_over()
    assert problem.code == code
    assert f"HTTP {status}" in problem.message
    assert problem.message.endswith("It said: no entry here")


async def test_a_redirect_is_not_followed() -> None:
    reached: list[ServerConnection] = []

    async def other(socket: ServerConnection) -> None:
        reached.append(socket)

    async with serving(other) as elsewhere:

        def send_on(socket: ServerConnection, request: Request) -> Response:
            response = socket.respond(HTTPStatus.FOUND, "")
            response.headers["Location"] = elsewhere
            return response

        async with (
            serving(echo, process_request=send_on) as url,
            dialled(WebSocketTransport, url, {"Authorization": "Bearer abc"}) as rig,
        ):
            assert (await rig.until_over()).code == "child_http_error"
    assert reached == []


async def test_a_server_that_is_not_there_is_reported() -> None:
    async with serving(echo) as url:
        pass
    async with dialled(WebSocketTransport, url) as rig:
        rig.ask("x")
        problem = await rig.until_over()
    assert problem.code == "child_unreachable"
    assert "the connection was refused" in problem.message


async def test_a_server_that_speaks_no_http_is_reported() -> None:
    async def gibberish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ready\r\n")
        writer.close()

    server = await asyncio.start_server(gibberish, "127.0.0.1", 0)
    async with (
        server,
        dialled(WebSocketTransport, f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}") as rig,
    ):
        assert (await rig.until_over()).code == "child_http_error"


async def test_closing_sends_what_was_left_and_says_goodbye() -> None:
    frames: list[str | bytes] = []
    codes: list[int | None] = []
    left = asyncio.Event()

    async def handle(socket: ServerConnection) -> None:
        async for frame in socket:
            frames.append(frame)
        codes.append(socket.close_code)
        left.set()

    async with serving(handle) as url, dialled(WebSocketTransport, url) as rig:
        rig.tell("notifications/last")
        rig.link.close_sending()
        rig.tell("notifications/late")
        await rig.link.sending_closed.wait()
        await asyncio.wait_for(left.wait(), PATIENCE_S)
    assert len(frames) == 1
    assert codes == [1000]
