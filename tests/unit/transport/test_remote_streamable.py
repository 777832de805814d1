"""Streamable HTTP, against servers that do well and servers that do not."""

from __future__ import annotations

import asyncio
import json

import pytest

from switchboard_mcp.core.headers import Mirror
from switchboard_mcp.errors import Failure
from switchboard_mcp.transport import streamable
from switchboard_mcp.transport.streamable import StreamableLink
from tests.unit.transport.recorder import settle
from tests.unit.transport.remotes import Rig, dialled
from tests.unit.transport.webserver import Handler, Json, Reply, Request, serving

VERSION = "2025-11-25"
ENVELOPE = json.dumps({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}).encode()


def result(id: int = 1, value: object = "x") -> Json:
    return {"jsonrpc": "2.0", "id": id, "result": value}


def decoded(rig: Rig) -> list[Json]:
    return [json.loads(message) for message in rig.received]


async def greet(request: Request, reply: Reply) -> bool:
    """What every server of the handshake era does first. True where that was all."""
    if request.call == "initialize":
        await reply.result(request, {"protocolVersion": VERSION}, mcp_session_id="s1")
    elif request.method == "GET" and "last-event-id" not in request.headers:
        await reply.send(405)
    elif request.method == "DELETE":
        await reply.send(200)
    elif request.call.startswith("notifications/") or request.call == "response":
        await reply.send(202)
    else:
        return False
    return True


def after_greeting(handler: Handler) -> Handler:
    async def handle(request: Request, reply: Reply) -> None:
        if not await greet(request, reply):
            await handler(request, reply)

    return handle


async def opened(rig: Rig) -> None:
    """Through the handshake."""
    rig.ask("initialize", 0)
    await rig.until_received(1)
    rig.tell("notifications/initialized")
    rig.received.clear()


async def test_the_trace_of_a_request_is_in_its_headers_in_both_eras() -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    async def handle(request: Request, reply: Reply) -> None:
        await reply.result(request, request.headers.get("traceparent"))

    async with serving(after_greeting(handle)) as web, dialled(StreamableLink, web.url) as rig:
        await opened(rig)
        traced = {"_meta": {"traceparent": parent}}
        modern = {"_meta": {**traced["_meta"], **json.loads(ENVELOPE)["_meta"]}}
        for number, params in enumerate((traced, modern, {}), 1):
            rig.ask("tools/call", number, json.dumps(params).encode())
            await rig.until_received(number)
        assert [answer["result"] for answer in decoded(rig)] == [parent, parent, None]


async def never(request: Request, reply: Reply) -> None:
    await asyncio.Event().wait()


class TestMessages:
    async def test_an_answer_may_come_as_json(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.result(request, {"big": 2**70})

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
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

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
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

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            for id in range(20):
                rig.ask("tools/call", id)
            await rig.until_received(20)
        assert sorted(message["id"] for message in decoded(rig)) == list(range(20))

    async def test_beyond_the_most_that_may_be_under_way_requests_wait_for_their_turn(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(streamable, "MAX_REQUESTS", 2)
        go = asyncio.Event()

        async def handle(request: Request, reply: Reply) -> None:
            if request.call == "notifications/hurry":
                await reply.send(202)
                return
            await go.wait()
            await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            for id in (1, 2, 3):
                rig.ask("tools/call", id)
            await web.until_called("tools/call", 2)
            rig.tell("notifications/hurry")
            await web.until_called("notifications/hurry")
            assert len(web.named("tools/call")) == 2
            assert rig.link.backlog > 0
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

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            for id in range(1, 7):
                rig.ask("tools/call", id)
                await rig.until_received(id)
                await settle(50)
            assert web.connections <= 2

    async def test_a_batch_answers_a_request(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.json([result(7), result(1)])

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
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
            dialled(StreamableLink, web.url, headers) as rig,
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

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
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

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            rig.__class__ = Fragile
            rig.listen(rig.link)
            rig.ask("tools/call")
            await rig.until_received(2)
        assert [str(problem) for problem in rig.errors] == ["a surprise"]


class TestSession:
    async def test_session_and_version_go_with_everything_after_the_greeting(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.result(request, "x")

        async with serving(after_greeting(handle)) as web, dialled(StreamableLink, web.url) as rig:
            await opened(rig)
            rig.ask("tools/list", 2)
            await rig.until_received(1)
            rig.link.send(b'{"jsonrpc":"2.0","id":"q","result":{}}')
            await web.until_called("response")
            rig.link.close_sending()
            await rig.link.farewell_done.wait()
        greeting, *others = web.requests
        assert not {"mcp-session-id", "mcp-protocol-version"} & greeting.headers.keys()
        assert {"notifications/initialized", "GET", "tools/list", "response", "DELETE"} == {
            request.call for request in others
        }
        for request in others:
            assert request.headers["mcp-session-id"] == "s1"
            assert request.headers["mcp-protocol-version"] == VERSION

    async def test_nothing_overtakes_the_word_that_we_are_ready(self) -> None:
        go = asyncio.Event()

        async def handle(request: Request, reply: Reply) -> None:
            if request.call == "notifications/initialized":
                await go.wait()
                await reply.send(202)
            elif not await greet(request, reply):
                await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            await opened(rig)
            rig.ask("tools/list", 2)
            await web.until_called("notifications/initialized")
            await settle(50)
            assert web.calls == ["initialize", "notifications/initialized"]
            go.set()
            await rig.until_received(1)

    async def test_notifications_and_answers_keep_their_order(self) -> None:
        async with serving(after_greeting(never)) as web, dialled(StreamableLink, web.url) as rig:
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

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            await opened(rig)
            await web.until_called("GET")
            rig.link.close_sending()
            await rig.link.farewell_done.wait()
        assert "DELETE" not in web.calls

    @pytest.mark.parametrize("status", [404, 400])
    async def test_a_session_that_is_gone_ends_the_link(self, status: int) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
            await reply.json({"jsonrpc": "2.0", "id": None, "error": error}, status)

        async with serving(after_greeting(handle)) as web, dialled(StreamableLink, web.url) as rig:
            await opened(rig)
            rig.ask("tools/list", 2)
            assert (await rig.until_over()).code == "child_session_lost"
        assert rig.received == []

    async def test_what_the_server_had_taken_before_is_lost_and_what_it_has_not_is_not(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(streamable, "MAX_REQUESTS", 2)

        async def handle(request: Request, reply: Reply) -> None:
            if request.json["id"] == 2:
                await asyncio.Event().wait()
            await reply.send(404)

        async with serving(after_greeting(handle)) as web, dialled(StreamableLink, web.url) as rig:
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

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            await opened(rig)
            rig.tell("notifications/x")
            assert (await rig.until_over()).code == "child_session_lost"

    async def test_a_session_that_is_gone_is_noticed_by_the_stream_too(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            if request.method == "GET":
                await reply.send(404)
            else:
                await greet(request, reply)

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            await opened(rig)
            assert (await rig.until_over()).code == "child_session_lost"

    async def test_a_server_that_keeps_the_goodbye_waiting_does_not_keep_us(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            if request.method == "DELETE":
                await asyncio.Event().wait()
            await greet(request, reply)

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            await opened(rig)
            rig.link.close_sending()
            await web.until_called("DELETE")
            assert not rig.link.farewell_done.is_set()


class TestUnasked:
    async def test_what_the_server_says_unasked_is_delivered(self) -> None:
        note = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

        async def handle(request: Request, reply: Reply) -> None:
            if request.method == "GET":
                await reply.stream()
                await reply.event(note)
                await asyncio.Event().wait()
            await greet(request, reply)

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
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

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
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
        monkeypatch.setattr(streamable, "HEARING_WITHIN_S", 0.01)

        async def handle(request: Request, reply: Reply) -> None:
            if request.method == "GET":
                await asyncio.Event().wait()
            elif not await greet(request, reply):
                await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            await opened(rig)
            rig.ask("tools/call", 2)
            await rig.until_received(1)
            monkeypatch.setattr(streamable, "HEARING_WITHIN_S", 1000)
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

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            await opened(rig)
            await rig.until_received(3)
        assert [message["method"] for message in decoded(rig)] == [f"notifications/{n}" for n in range(3)]

    @pytest.mark.parametrize("status", [405, 400, 500, 200])
    async def test_a_server_without_such_a_stream_is_not_asked_again(self, status: int) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            if request.method == "GET":
                await reply.send(status, b"{}", content_type="application/json")
            elif not await greet(request, reply):
                await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
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

        async with serving(after_greeting(handle)) as web, dialled(StreamableLink, web.url) as rig:
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

        async with serving(after_greeting(handle)) as web, dialled(StreamableLink, web.url) as rig:
            await opened(rig)
            rig.ask("tools/call", 2)
            await rig.until_received(1)

    @pytest.mark.parametrize("how", ["ended", "cut"])
    async def test_a_stream_without_places_cannot_be_taken_up(self, how: str) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.stream()
            await reply.event({"jsonrpc": "2.0", "method": "notifications/x"})
            if how == "cut":
                await rig.until_received(1)
                reply.cut()
            else:
                await reply.end()

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            rig.ask("tools/call")
            assert (await rig.until_lost()).code == "child_answer_lost"
        assert rig.ends == 0

    async def test_a_stream_that_cannot_be_taken_up_is_lost_after_a_few_tries(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(streamable, "FIRST_WAIT_S", 0.001)

        async def handle(request: Request, reply: Reply) -> None:
            if request.method == "POST":
                await reply.stream()
                await reply.event(None, id="p1")
                await reply.end()
            else:
                reply.cut()

        async with serving(after_greeting(handle)) as web, dialled(StreamableLink, web.url) as rig:
            await opened(rig)
            rig.ask("tools/call", 2)
            assert (await rig.until_lost(2)).code == "child_answer_lost"
        assert len(web.named("GET")) <= 1 + streamable.MOST_TRIES

    async def test_a_connection_cut_before_the_response_loses_the_answer(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            reply.cut()

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            rig.ask("tools/call")
            problem = await rig.until_lost()
        assert problem.code == "child_answer_lost"
        assert "look before you try again" in str(problem.hint)

    async def test_a_body_that_is_cut_loses_the_answer(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.head(200, {"content-type": "application/json", "content-length": "100"})
            await reply.raw(b'{"jsonrpc":"2.0",')
            reply.transport.close()

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            rig.ask("tools/call")
            assert (await rig.until_lost()).code == "child_answer_lost"


class TestCancelling:
    async def test_in_the_handshake_era_the_server_is_told_and_the_response_closed(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.stream()
            await asyncio.Event().wait()

        async with serving(after_greeting(handle)) as web, dialled(StreamableLink, web.url) as rig:
            await opened(rig)
            rig.ask("tools/call", 2)
            await web.until_called("tools/call")
            before = web.closed
            rig.tell("notifications/cancelled", b'{"requestId":2}')
            told = await web.until_called("notifications/cancelled")
            await web.until(lambda: web.closed > before)
        assert told.json["params"] == {"requestId": 2}
        assert not rig.lost

    async def test_without_a_handshake_closing_the_response_is_all(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.stream()
            await asyncio.Event().wait()

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
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
        monkeypatch.setattr(streamable, "MAX_REQUESTS", 1)
        go = asyncio.Event()

        async def handle(request: Request, reply: Reply) -> None:
            await go.wait()
            await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            for id in (1, 2, 3):
                rig.ask("tools/call", id, ENVELOPE)
            await web.until_called("tools/call")
            rig.tell("notifications/cancelled", b'{"requestId":2}')
            go.set()
            await rig.until_received(2)
        assert [request.json["id"] for request in web.requests] == [1, 3]

    async def test_a_greeting_and_what_is_over_cannot_be_cancelled(self) -> None:
        async with serving(never) as web, dialled(StreamableLink, web.url) as rig:
            rig.ask("initialize", 1)
            await web.until_called("initialize")
            rig.tell("notifications/cancelled", b'{"requestId":1}')
            rig.tell("notifications/cancelled", b'{"requestId":9}')
            rig.tell("notifications/cancelled")
            await web.until(lambda: web.closed == 1)
            await settle(20)
        assert web.calls == ["initialize"]

    async def test_closing_the_link_closes_every_response(self) -> None:
        async with serving(never) as web, dialled(StreamableLink, web.url) as rig:
            for id in range(5):
                rig.ask("tools/call", id)
            await web.until_called("tools/call", 5)
            await rig.link.aclose()
            rig.ask("tools/call", 9)
            await web.until(lambda: web.closed == 5)
        assert len(web.requests) == 5
        assert (rig.ends, rig.lost, rig.received) == (0, {}, [])


class TestWithoutHandshake:
    async def test_headers_repeat_the_body(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.result(request, "x", mcp_session_id="ignored")

        call = json.dumps(
            {**json.loads(ENVELOPE), "name": "Zürich", "arguments": {"region": "eu", "other": 1}}
        ).encode()
        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            rig.link.mirrors = {"Zürich": (Mirror(("region",), "Region"),)}
            rig.ask("tools/call", 1, call)
            await rig.until_received(1)
            rig.ask("tools/list", 2, ENVELOPE)
            await rig.until_received(2)
        called, listed = (request.headers for request in web.requests)
        assert {name: value for name, value in called.items() if name.startswith("mcp-")} == {
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "=?base64?WsO8cmljaA==?=",
            "mcp-param-region": "eu",
        }
        assert {name for name in listed if name.startswith("mcp-")} == {"mcp-protocol-version", "mcp-method"}

    async def test_a_lost_stream_is_a_lost_answer_whatever_ids_it_had(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.stream()
            await reply.event(None, id="p1", retry=1)
            await reply.end()

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            rig.ask("tools/call", 1, ENVELOPE)
            assert (await rig.until_lost()).code == "child_answer_lost"
        assert web.calls == ["tools/call"]

    async def test_404_with_an_error_in_it_is_an_answer(self) -> None:
        error = {"code": -32601, "message": "no such method"}

        async def handle(request: Request, reply: Reply) -> None:
            await reply.json({"jsonrpc": "2.0", "id": request.json["id"], "error": error}, 404)

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            rig.ask("ping", 1, ENVELOPE)
            await rig.until_received(1)
        assert decoded(rig)[0]["error"] == error

    async def test_subscriptions_do_not_take_the_turn_of_calls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(streamable, "MAX_REQUESTS", 1)

        async def handle(request: Request, reply: Reply) -> None:
            if request.call == "subscriptions/listen":
                await asyncio.Event().wait()
            await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            for id in (1, 2):
                rig.ask("subscriptions/listen", id, ENVELOPE)
            await web.until_called("subscriptions/listen", 2)
            rig.ask("tools/list", 3, ENVELOPE)
            await rig.until_received(1)


class TestRefusals:
    async def ask(self, handler: Handler, **options: object) -> Failure:
        """The failure that a request ends in."""
        async with serving(handler) as web, dialled(StreamableLink, web.url, **options) as rig:  # type: ignore[arg-type]
            rig.ask("tools/call")
            problem = await rig.until_lost()
            await settle(20)
        assert problem.child == "kid"
        assert f"http://127.0.0.1:{web.port}/mcp" in problem.message
        assert rig.received == []
        return problem

    @pytest.mark.parametrize("status", [400, 403, 404, 422, 500, 503])
    @pytest.mark.parametrize("id", [1, None])
    async def test_an_error_of_the_protocol_is_read_at_any_status(self, status: int, id: int | None) -> None:
        error = {"code": -32602, "message": "wrong", "data": {"x": 1}}

        async def handle(request: Request, reply: Reply) -> None:
            await reply.json({"jsonrpc": "2.0", "id": id, "error": error}, status)

        if status == 403:
            assert (await self.ask(handle)).code == "child_unauthorized"
            return
        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            rig.ask("tools/call")
            await rig.until_received(1)
        assert decoded(rig) == [{"jsonrpc": "2.0", "id": 1, "error": error}]

    @pytest.mark.parametrize("status", [400, 404, 405, 429, 500, 502, 503])
    async def test_a_status_alone_is_a_failure_that_names_it(self, status: int) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.send(status, b"go  away\nplease", content_type="text/plain", retry_after="7")

        problem = await self.ask(handle)
        assert problem.code == "child_http_error"
        assert f"HTTP {status}" in problem.message
        assert problem.message.endswith("It said: go away please")
        assert problem.retry_after_ms == 7000

    @pytest.mark.parametrize("status", [401, 403])
    async def test_who_is_not_let_in_is_told_so(self, status: int) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.send(status)

        problem = await self.ask(handle)
        assert (problem.code, problem.retryable) == ("child_unauthorized", False)

    async def test_a_page_for_people_is_not_shown(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.send(502, b"<html>nginx</html>", content_type="text/html; charset=utf-8")

        assert "html" not in (await self.ask(handle)).message

    @pytest.mark.parametrize("kind", ["text/html", "text/plain", ""])
    async def test_an_answer_of_another_kind_is_none(self, kind: str) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.send(200, b"<html>welcome</html>", **({"content_type": kind} if kind else {}))

        problem = await self.ask(handle)
        assert problem.code == "child_http_error"
        assert (kind or "nothing") in problem.message

    async def test_accepting_a_request_is_no_answer(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.send(202)

        assert "HTTP 202" in (await self.ask(handle)).message

    @pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"jsonrpc":"2.0","id":9,"result":{}}'])
    async def test_json_that_is_no_answer_is_told_as_such(self, body: bytes) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.send(200, body, content_type="application/json")

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            rig.ask("tools/call")
            assert (await rig.until_lost()).code == "child_protocol"

    async def test_a_server_that_is_not_there_is_told_and_ends_the_link(self) -> None:
        async with serving(never) as web:
            url = web.url
        async with dialled(StreamableLink, url) as rig:
            rig.ask("tools/call")
            problem = await rig.until_over()
        assert (problem.code, problem.retryable) == ("child_unreachable", True)
        assert "the connection was refused" in problem.message

    async def test_who_cannot_be_reached_for_one_call_may_still_answer_another(self) -> None:
        go = asyncio.Event()

        async def handle(request: Request, reply: Reply) -> None:
            await go.wait()
            await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            rig.ask("tools/call", 1)
            await web.until_called("tools/call")
            port, web.port = web.port, 1
            rig.link.server = type(rig.link.server)(name="kid", url=web.url)
            rig.ask("tools/call", 2)
            await rig.until_lost(2)
            web.port = port
            go.set()
            await rig.until_received(1)
            await settle(20)
        assert rig.ends == 0

    async def test_an_unknown_host_is_told(self) -> None:
        async with dialled(StreamableLink, "http://nowhere.invalid/mcp") as rig:
            rig.ask("tools/call")
            assert (await rig.until_lost()).code == "child_unreachable"

    async def test_what_is_secret_in_the_address_is_not_shown(self) -> None:
        async with serving(never) as web:
            port = web.port
        url = f"http://user:hunter22@127.0.0.1:{port}/s/k3y0123456789abcdef012/mcp?token=abc"
        async with dialled(StreamableLink, url) as rig:
            rig.ask("tools/call")
            problem = await rig.until_lost()
        assert f"http://127.0.0.1:{port}/s/…/mcp " in problem.message
        for secret in ("hunter22", "k3y01", "abc"):
            assert secret not in problem.message


class TestLimits:
    async def test_a_json_answer_beyond_the_limit_is_told_with_its_id(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.result(request, "x" * 100_000)

        async with serving(handle) as web, dialled(StreamableLink, web.url, limit=10_000) as rig:
            rig.ask("tools/call")
            await rig.until(lambda: bool(rig.odd))
            await settle(20)
        assert rig.received == []
        assert b'"id": 1,' in rig.odd[0].head  # type: ignore[union-attr]

    async def test_an_event_beyond_the_limit_is_told_and_those_after_it_come(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.stream()
            await reply.event({"jsonrpc": "2.0", "method": "x" * 100_000})
            await reply.event(result())
            await reply.end()

        async with serving(handle) as web, dialled(StreamableLink, web.url, limit=10_000) as rig:
            rig.ask("tools/call")
            await rig.until_received(1)
        assert len(rig.odd) == 1
        assert decoded(rig) == [result()]

    async def test_a_large_message_counts_as_backlog_until_it_is_taken(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.result(request, len(request.body))

        async with serving(handle) as web, dialled(StreamableLink, web.url) as rig:
            rig.ask("tools/call", 1, b'"%b"' % (b"x" * 5_000_000))
            assert rig.link.backlog > 5_000_000
            await rig.until_received(1)
            assert rig.link.backlog == 0
        assert decoded(rig)[0]["result"] > 5_000_000


class TestRedirects:
    @staticmethod
    def sending_on(location: str, status: int = 307) -> Handler:
        async def handle(request: Request, reply: Reply) -> None:
            if request.path == "/mcp":
                await reply.send(status, location=location)
            else:
                await reply.result(request, request.path)

        return handle

    async def test_within_the_origin_they_are_followed_with_the_message(self) -> None:
        async with (
            serving(self.sending_on("/mcp/", 308)) as web,
            dialled(StreamableLink, web.url, {"Authorization": "Bearer abc"}) as rig,
        ):
            rig.ask("tools/call")
            await rig.until_received(1)
        assert decoded(rig)[0]["result"] == "/mcp/"
        assert [request.headers["authorization"] for request in web.requests] == ["Bearer abc"] * 2

    async def test_to_another_origin_they_are_not_followed(self) -> None:
        async with serving(never) as other, serving(self.sending_on(other.url + "?x=secret")) as web:
            async with dialled(StreamableLink, web.url, {"Authorization": "Bearer abc"}) as rig:
                rig.ask("tools/call")
                problem = await rig.until_lost()
            assert problem.code == "child_http_error"
            assert f"sends on to {other.url} (HTTP 307)" in problem.message
            assert "secret" not in problem.message
            assert other.connections == 0

    @pytest.mark.parametrize("status", [301, 302, 303])
    async def test_those_that_would_drop_the_message_are_not_followed(self, status: int) -> None:
        async with serving(self.sending_on("/other", status)) as web, dialled(StreamableLink, web.url) as rig:
            rig.ask("tools/call")
            assert f"/other (HTTP {status})" in (await rig.until_lost()).message
        assert len(web.requests) == 1

    async def test_a_ring_of_them_ends(self) -> None:
        async with serving(self.sending_on("/mcp")) as web, dialled(StreamableLink, web.url) as rig:
            rig.ask("tools/call")
            assert (await rig.until_lost()).code == "child_http_error"
        assert 1 < len(web.requests) < 10

    async def test_a_user_in_the_location_is_not_taken_over(self) -> None:
        async with serving(never) as web:
            web.handler = self.sending_on(f"http://eve:x@127.0.0.1:{web.port}/other")
            async with dialled(StreamableLink, web.url) as rig:
                rig.ask("tools/call")
                assert "eve" not in (await rig.until_lost()).message
        assert len(web.requests) == 1


async def test_a_server_under_no_load_sees_no_needless_requests() -> None:
    async def handle(request: Request, reply: Reply) -> None:
        await reply.result(request, "x")

    async with serving(after_greeting(handle)) as server, dialled(StreamableLink, server.url) as rig:
        await opened(rig)
        rig.ask("tools/call", 2)
        await rig.until_received(1)
        await server.until_called("GET")
    assert sorted(server.calls) == ["GET", "initialize", "notifications/initialized", "tools/call"]
