"""Streamable HTTP: what a server says unasked, streams that are lost, and requests that are cancelled."""

from __future__ import annotations

import asyncio

import pytest

from switchboard_mcp.transport.http import streamable_http
from switchboard_mcp.transport.http.streamable_http import StreamableHttpTransport
from tests.cases import each_case
from tests.unit.transport.http.remotes import dialled
from tests.unit.transport.http.streamables import (
    ENVELOPE,
    after_greeting,
    decoded,
    greet,
    never,
    opened,
    result,
)
from tests.unit.transport.http.webserver import Reply, Request, serving
from tests.unit.transport.recorder import settle


class TestUnasked:
    async def test_messages_that_the_server_starts_are_delivered(self) -> None:
        note = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

        async def handle(request: Request, reply: Reply) -> None:
            if request.method == "GET":
                await reply.stream()
                await reply.event(note)
                await asyncio.Event().wait()
            await greet(request, reply)

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            await rig.until_received(1)
        assert decoded(rig) == [note]

    async def test_calls_wait_for_it_and_lists_do_not(self) -> None:
        go = asyncio.Event()

        async def handle(request: Request, reply: Reply) -> None:
            if request.method == "GET":
                await go.wait()
                await reply.stream()
                await asyncio.Event().wait()
            elif not await greet(request, reply):
                await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            rig.ask("tools/call", 2)
            rig.ask("tools/list", 3)
            await rig.until_received(1)
            await web.until_called("GET")
            await settle(50)
            assert "tools/call" not in web.calls
            go.set()
            await rig.until_received(2)

    async def test_a_server_that_keeps_silent_on_it_is_waited_for_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(streamable_http, "LISTEN_TIMEOUT_S", 0.01)

        async def handle(request: Request, reply: Reply) -> None:
            if request.method == "GET":
                await asyncio.Event().wait()
            elif not await greet(request, reply):
                await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            rig.ask("tools/call", 2)
            await rig.until_received(1)
            monkeypatch.setattr(streamable_http, "LISTEN_TIMEOUT_S", 1000)
            rig.ask("tools/call", 3)
            await rig.until_received(2)

    async def test_its_stream_is_taken_up_again_where_it_was_cut(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            if request.method != "GET":
                await greet(request, reply)
                return
            place = int(request.headers.get("last-event-id", "0"))
            await reply.stream()
            await reply.event({"jsonrpc": "2.0", "method": f"notifications/{place}"}, id=place + 1, retry=1)
            if place == 2:
                await asyncio.Event().wait()
            elif place == 1:
                reply.cut()
            else:
                await reply.end()

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            await rig.until_received(3)
        assert [message["method"] for message in decoded(rig)] == [f"notifications/{n}" for n in range(3)]

    @each_case("status", [405, 400, 500, 200])
    async def test_a_server_without_such_a_stream_is_not_asked_again(self, status: int) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            if request.method == "GET":
                await reply.send(status, b"{}", content_type="application/json")
            elif not await greet(request, reply):
                await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            await web.until_called("GET")
            rig.ask("tools/list", 2)
            await rig.until_received(1)
        assert web.calls.count("GET") == 1
        assert rig.ends == 0


class TestLostStreams:
    async def test_an_answer_is_fetched_from_where_its_stream_was_cut(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.stream()
            if request.method == "POST":
                await reply.event(None, id="p1", retry=1)
                reply.cut()
            elif request.headers["last-event-id"] == "p1":
                await reply.event({"jsonrpc": "2.0", "method": "notifications/x"}, id="p2")
                await reply.end()
            else:
                await reply.event(result(2), id="p3")
                await reply.end()

        async with serving(after_greeting(handle)) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            rig.ask("tools/call", 2)
            await rig.until_received(2)
        assert [request.headers.get("last-event-id") for request in web.named("GET")][-2:] == ["p1", "p2"]
        assert decoded(rig)[-1] == result(2)
        assert not rig.lost

    async def test_a_server_that_says_when_to_come_back_is_asked_until_it_answers(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.stream()
            if len(web.named("GET")) < 10:
                await reply.event(None, id="p1", retry=1)
            else:
                await reply.event(result(2))
            await reply.end()

        async with serving(after_greeting(handle)) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            rig.ask("tools/call", 2)
            await rig.until_received(1)

    @each_case("how", ["ended", "cut"])
    async def test_a_stream_without_places_cannot_be_taken_up(self, how: str) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.stream()
            await reply.event({"jsonrpc": "2.0", "method": "notifications/x"})
            if how == "cut":
                await rig.until_received(1)
                reply.cut()
            else:
                await reply.end()

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("tools/call")
            assert (await rig.until_lost()).code == "child_answer_lost"
        assert rig.ends == 0

    async def test_a_stream_that_cannot_be_taken_up_is_lost_after_a_few_tries(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(streamable_http, "FIRST_RETRY_S", 0.001)

        async def handle(request: Request, reply: Reply) -> None:
            if request.method == "POST":
                await reply.stream()
                await reply.event(None, id="p1")
                await reply.end()
            else:
                reply.cut()

        async with serving(after_greeting(handle)) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            rig.ask("tools/call", 2)
            assert (await rig.until_lost(2)).code == "child_answer_lost"
        assert len(web.named("GET")) <= 1 + streamable_http.MAX_RESUME_ATTEMPTS

    async def test_a_connection_cut_before_the_response_loses_the_answer(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            reply.cut()

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("tools/call")
            problem = await rig.until_lost()
        assert problem.code == "child_answer_lost"
        assert "check before you try again" in str(problem.hint)

    async def test_a_body_that_is_cut_loses_the_answer(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.head(200, {"content-type": "application/json", "content-length": "100"})
            await reply.raw(b'{"jsonrpc":"2.0",')
            reply.transport.close()

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("tools/call")
            assert (await rig.until_lost()).code == "child_answer_lost"


class TestCancelling:
    async def test_in_the_handshake_era_the_server_is_told_and_the_response_closed(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.stream()
            await asyncio.Event().wait()

        async with serving(after_greeting(handle)) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            rig.ask("tools/call", 2)
            await web.until_called("tools/call")
            before = web.closed
            rig.tell("notifications/cancelled", b'{"requestId":2}')
            output = await web.until_called("notifications/cancelled")
            await web.until(lambda: web.closed > before)
        assert output.json["params"] == {"requestId": 2}
        assert not rig.lost

    async def test_without_a_handshake_closing_the_response_is_all(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.stream()
            await asyncio.Event().wait()

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("tools/call", 2, ENVELOPE)
            await web.until_called("tools/call")
            rig.tell("notifications/cancelled", b'{"requestId":2}')
            await web.until(lambda: web.closed == 1)
            rig.ask("tools/list", 3, ENVELOPE)
            await web.until_called("tools/list")
        assert web.calls == ["tools/call", "tools/list"]
        assert not rig.lost

    async def test_a_request_that_waits_for_its_turn_is_never_sent(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(streamable_http, "MAX_REQUESTS", 1)
        go = asyncio.Event()

        async def handle(request: Request, reply: Reply) -> None:
            await go.wait()
            await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            for id in (1, 2, 3):
                rig.ask("tools/call", id, ENVELOPE)
            await web.until_called("tools/call")
            rig.tell("notifications/cancelled", b'{"requestId":2}')
            go.set()
            await rig.until_received(2)
        assert [request.json["id"] for request in web.requests] == [1, 3]

    async def test_a_greeting_and_what_is_over_cannot_be_cancelled(self) -> None:
        async with serving(never) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("initialize", 1)
            await web.until_called("initialize")
            rig.tell("notifications/cancelled", b'{"requestId":1}')
            rig.tell("notifications/cancelled", b'{"requestId":9}')
            rig.tell("notifications/cancelled")
            await web.until(lambda: web.closed == 1)
            await settle(20)
        assert web.calls == ["initialize"]

    async def test_closing_the_link_closes_every_response(self) -> None:
        async with serving(never) as web, dialled(StreamableHttpTransport, web.url) as rig:
            for id in range(5):
                rig.ask("tools/call", id)
            await web.until_called("tools/call", 5)
            await rig.link.aclose()
            rig.ask("tools/call", 9)
            await web.until(lambda: web.closed == 5)
        assert len(web.requests) == 5
        assert (rig.ends, rig.lost, rig.received) == (0, {}, [])
