"""Streamable HTTP, against servers that do well and servers that do not."""

from __future__ import annotations

import asyncio
import json

import pytest

from switchboard_mcp.transport.http import streamable_http
from switchboard_mcp.transport.http.streamable_http import StreamableHttpTransport
from tests.cases import each_case
from tests.unit.transport.http.remotes import Rig, dialled
from tests.unit.transport.http.streamables import (
    ENVELOPE,
    VERSION,
    after_greeting,
    decoded,
    greet,
    never,
    opened,
    result,
)
from tests.unit.transport.http.webserver import Reply, Request, serving
from tests.unit.transport.recorder import settle


async def test_the_trace_of_a_request_is_in_its_headers_in_both_eras() -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    async def handle(request: Request, reply: Reply) -> None:
        await reply.result(request, request.headers.get("traceparent"))

    async with serving(after_greeting(handle)) as web, dialled(StreamableHttpTransport, web.url) as rig:
        await opened(rig)
        traced = {"_meta": {"traceparent": parent}}
        modern = {"_meta": {**traced["_meta"], **json.loads(ENVELOPE)["_meta"]}}
        for number, params in enumerate((traced, modern, {}), 1):
            rig.ask("tools/call", number, json.dumps(params).encode())
            await rig.until_received(number)
        assert [answer["result"] for answer in decoded(rig)] == [parent, parent, None]


class TestMessages:
    async def test_an_answer_may_come_as_json(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.result(request, {"big": 2**70})

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("tools/call")
            await rig.until_received(1)
        assert rig.received == [b'{"jsonrpc": "2.0", "id": 1, "result": {"big": 1180591620717411303424}}']
        (request,) = web.requests
        assert (request.method, request.path) == ("POST", "/mcp")
        assert request.headers["content-type"] == "application/json"
        assert request.headers["accept"] == "application/json, text/event-stream"

    async def test_an_answer_may_come_as_events_after_what_belongs_to_it(self) -> None:
        note = {"jsonrpc": "2.0", "method": "notifications/progress"}
        question = {"jsonrpc": "2.0", "id": "q", "method": "ping"}

        async def handle(request: Request, reply: Reply) -> None:
            await reply.stream()
            await reply.chunk(b": hello\n\n")
            await reply.event(note)
            await reply.event(question, event="message")
            await reply.event({"ignored": True}, event="other")
            await reply.event(result())
            await reply.end()

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("tools/call")
            await rig.until_received(3)
            await web.until(lambda: web.connections == 1)
        assert decoded(rig) == [note, question, result()]

    async def test_many_requests_are_under_way_at_once_and_answered_in_any_order(self) -> None:
        held: list[tuple[Request, Reply]] = []
        done = asyncio.Event()

        async def handle(request: Request, reply: Reply) -> None:
            held.append((request, reply))
            if len(held) == 20:
                for each, back in reversed(held):
                    await back.result(each, "x")
                done.set()
            await done.wait()

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            for id in range(20):
                rig.ask("tools/call", id)
            await rig.until_received(20)
        assert sorted(message["id"] for message in decoded(rig)) == list(range(20))

    async def test_beyond_the_most_that_may_be_under_way_requests_wait_for_their_turn(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(streamable_http, "MAX_REQUESTS", 2)
        go = asyncio.Event()

        async def handle(request: Request, reply: Reply) -> None:
            if request.call == "notifications/hurry":
                await reply.send(202)
                return
            await go.wait()
            await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            for id in (1, 2, 3):
                rig.ask("tools/call", id)
            await web.until_called("tools/call", 2)
            rig.tell("notifications/hurry")
            await web.until_called("notifications/hurry")
            assert len(web.named("tools/call")) == 2
            assert rig.link.write_buffer_size > 0
            go.set()
            await rig.until_received(3)

    async def test_a_connection_is_used_again_after_an_answer_of_either_kind(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            if request.json["id"] % 2:
                await reply.result(request, "x")
                return
            await reply.stream()
            await reply.event(result(request.json["id"]))
            await reply.end()

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            for id in range(1, 7):
                rig.ask("tools/call", id)
                await rig.until_received(id)
                await settle(50)
            assert web.connections <= 2

    async def test_a_batch_answers_a_request(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.json([result(7), result(1)])

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("tools/call")
            await rig.until_received(1)
            await settle(20)
        assert not rig.lost

    async def test_headers_of_the_entry_go_with_every_request_and_do_not_replace_those_of_the_protocol(
        self,
    ) -> None:
        headers = {"Authorization": "Bearer abc", "Accept": "text/html", "User-Agent": "mine"}
        async with (
            serving(after_greeting(never)) as web,
            dialled(StreamableHttpTransport, web.url, headers) as rig,
        ):
            await opened(rig)
            await web.until_called("GET")
        for request in web.requests:
            assert request.headers["authorization"] == "Bearer abc"
            assert request.headers["user-agent"] == "mine"
            assert "text/event-stream" in request.headers["accept"]

    async def test_paused_it_delivers_nothing_and_then_everything(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.link.pause()
            rig.ask("tools/call")
            await web.until_called("tools/call")
            await settle(50)
            assert rig.received == []
            rig.link.resume()
            await rig.until_received(1)

    async def test_a_message_that_fails_in_its_receiver_does_not_take_the_next_with_it(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.stream()
            await reply.event({"jsonrpc": "2.0", "method": "notifications/x"})
            await reply.event(result())
            await reply.end()

        class Fragile(Rig):
            def receive(self, message: bytes) -> None:
                super().receive(message)
                if b"notifications/x" in message:
                    raise ValueError("a surprise")

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.__class__ = Fragile
            rig.listen(rig.link)
            rig.ask("tools/call")
            await rig.until_received(2)
        assert [str(problem) for problem in rig.errors] == ["a surprise"]


class TestSession:
    async def test_session_and_version_go_with_everything_after_the_greeting(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.result(request, "x")

        async with serving(after_greeting(handle)) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            rig.ask("tools/list", 2)
            await rig.until_received(1)
            rig.link.send(b'{"jsonrpc":"2.0","id":"q","result":{}}')
            await web.until_called("response")
            rig.link.close_sending()
            await rig.link.sending_closed.wait()
        greeting, *others = web.requests
        assert not {"mcp-session-id", "mcp-protocol-version"} & greeting.headers.keys()
        assert {"notifications/initialized", "GET", "tools/list", "response", "DELETE"} == {
            request.call for request in others
        }
        for request in others:
            assert request.headers["mcp-session-id"] == "s1"
            assert request.headers["mcp-protocol-version"] == VERSION

    async def test_no_request_overtakes_the_initialized_notification(self) -> None:
        go = asyncio.Event()

        async def handle(request: Request, reply: Reply) -> None:
            if request.call == "notifications/initialized":
                await go.wait()
                await reply.send(202)
            elif not await greet(request, reply):
                await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            rig.ask("tools/list", 2)
            await web.until_called("notifications/initialized")
            await settle(50)
            assert web.calls == ["initialize", "notifications/initialized"]
            go.set()
            await rig.until_received(1)

    async def test_notifications_and_answers_keep_their_order(self) -> None:
        async with serving(after_greeting(never)) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            names = [f"notifications/{number}" for number in range(20)]
            for name in names:
                rig.tell(name)
            await web.until_called(names[-1])
        assert [call for call in web.calls if call in names] == names

    async def test_a_server_without_sessions_is_not_told_that_we_go(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            if request.call == "initialize":
                await reply.result(request, {"protocolVersion": VERSION})
            else:
                await reply.send(405 if request.method == "GET" else 202)

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            await web.until_called("GET")
            rig.link.close_sending()
            await rig.link.sending_closed.wait()
        assert "DELETE" not in web.calls

    @each_case("status", [404, 400])
    async def test_a_session_that_is_gone_ends_the_link(self, status: int) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
            await reply.json({"jsonrpc": "2.0", "id": None, "error": error}, status)

        async with serving(after_greeting(handle)) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            rig.ask("tools/list", 2)
            assert (await rig.until_over()).code == "child_session_lost"
        assert rig.received == []

    async def test_requests_that_the_server_had_read_are_lost_and_others_are_kept(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(streamable_http, "MAX_REQUESTS", 2)

        async def handle(request: Request, reply: Reply) -> None:
            if request.json["id"] == 2:
                await asyncio.Event().wait()
            await reply.send(404)

        async with serving(after_greeting(handle)) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            rig.ask("tools/call", 2)
            await web.until_called("tools/call")
            rig.ask("tools/call", 3)
            rig.ask("tools/call", 4)
            assert (await rig.until_over()).code == "child_session_lost"
        assert {id: problem.code for id, problem in rig.lost.items()} == {b"2": "child_answer_lost"}

    async def test_a_session_that_is_gone_is_noticed_by_a_notification_too(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            if request.call == "notifications/x":
                await reply.send(404)
            else:
                await greet(request, reply)

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            rig.tell("notifications/x")
            assert (await rig.until_over()).code == "child_session_lost"

    async def test_a_session_that_is_gone_is_noticed_by_the_stream_too(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            if request.method == "GET":
                await reply.send(404)
            else:
                await greet(request, reply)

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            assert (await rig.until_over()).code == "child_session_lost"

    async def test_a_server_that_keeps_the_goodbye_waiting_does_not_keep_us(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            if request.method == "DELETE":
                await asyncio.Event().wait()
            await greet(request, reply)

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            await opened(rig)
            rig.link.close_sending()
            await web.until_called("DELETE")
            assert not rig.link.sending_closed.is_set()


async def test_a_server_under_no_load_sees_no_needless_requests() -> None:
    async def handle(request: Request, reply: Reply) -> None:
        await reply.result(request, "x")

    async with serving(after_greeting(handle)) as server, dialled(StreamableHttpTransport, server.url) as rig:
        await opened(rig)
        rig.ask("tools/call", 2)
        await rig.until_received(1)
        await server.until_called("GET")
    assert sorted(server.calls) == ["GET", "initialize", "notifications/initialized", "tools/call"]
