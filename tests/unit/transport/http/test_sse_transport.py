"""HTTP+SSE, against servers that do well and servers that do not."""

from __future__ import annotations

import asyncio
import json

from switchboard_mcp.transport.http.sse_transport import SseTransport
from tests.cases import each_case
from tests.unit.transport.http.remotes import Rig, dialled
from tests.unit.transport.http.webserver import Handler, Json, Reply, Request, serving
from tests.unit.transport.recorder import settle


def result(id: int = 1, value: object = "x") -> Json:
    return {"jsonrpc": "2.0", "id": id, "result": value}


def decoded(rig: Rig) -> list[Json]:
    return [json.loads(message) for message in rig.received]


class Desk:
    """A server of this kind: what is posted is answered on the stream, unless the test does so itself."""

    def __init__(self, endpoint: str = "/messages?session_id=1") -> None:
        self.endpoint = endpoint
        self.stream: Reply
        self.open = asyncio.Event()

    async def __call__(self, request: Request, reply: Reply) -> None:
        if request.method == "GET":
            await reply.stream()
            await reply.chunk(f"event: endpoint\r\ndata: {self.endpoint}\r\n\r\n".encode())
            self.stream = reply
            self.open.set()
            await asyncio.Event().wait()
        await self.posted(request, reply)

    async def posted(self, request: Request, reply: Reply) -> None:
        await reply.send(202, b"Accepted")
        if "id" in request.json and "method" in request.json:
            await self.stream.event(result(request.json["id"], request.json["method"]), event="message")


async def test_messages_are_posted_to_the_address_that_the_stream_names() -> None:
    desk = Desk()
    async with serving(desk) as web, dialled(SseTransport, web.url, {"X-Key": "abc"}) as rig:
        for id in range(3):
            rig.ask("tools/list", id)
        await rig.until_received(3)
    assert {message["id"] for message in decoded(rig)} == {0, 1, 2}
    stream, *posts = web.requests
    assert stream.headers["accept"] == "text/event-stream"
    assert {request.path for request in posts} == {"/messages?session_id=1"}
    assert {request.headers["x-key"] for request in web.requests} == {"abc"}
    assert {request.headers["content-type"] for request in posts} == {"application/json"}


async def test_no_message_overtakes_the_initialized_notification_and_notifications_keep_their_order() -> None:
    desk = Desk()
    async with serving(desk) as web, dialled(SseTransport, web.url) as rig:
        rig.tell("notifications/initialized")
        rig.ask("tools/list")
        names = [f"notifications/{number}" for number in range(10)]
        for name in names:
            rig.tell(name)
        await rig.until_received(1)
        await web.until_called(names[-1])
    calls = web.calls[1:]
    assert calls[0] == "notifications/initialized"
    assert [call for call in calls if call in names] == names


async def test_messages_that_the_server_starts_are_delivered() -> None:
    desk = Desk()
    note = {"jsonrpc": "2.0", "method": "notifications/x"}
    async with serving(desk) as web, dialled(SseTransport, web.url) as rig:
        await desk.open.wait()
        await desk.stream.chunk(b": ping\n\n")
        await desk.stream.event(note)
        await rig.until_received(1)
    assert decoded(rig) == [note]


@each_case(
    "endpoint",
    [
        "http://evil.example/messages",
        "//evil.example/messages",
        "http://127.0.0.1:1/messages",
        "https://127.0.0.1/messages",
        "file:///etc/passwd",
        "http://[",
    ],
)
async def test_an_address_of_somebody_else_is_refused(endpoint: str) -> None:
    async with serving(Desk(endpoint)) as web, dialled(SseTransport, web.url) as rig:
        rig.ask("initialize")
        problem = await rig.until_over()
    assert problem.code == "child_protocol"
    assert "names an endpoint of another origin" in problem.message
    assert web.calls == ["GET"]


@each_case("endpoint", ["messages", "/messages", "?x=1", "http://127.0.0.1:{port}/messages"])
async def test_an_address_of_its_own_may_be_written_in_any_way(endpoint: str) -> None:
    desk = Desk()
    async with serving(desk) as web:
        desk.endpoint = endpoint.format(port=web.port)
        async with dialled(SseTransport, web.url) as rig:
            rig.ask("initialize")
            await rig.until_received(1)


async def test_only_the_first_address_counts() -> None:
    desk = Desk()
    async with serving(desk) as web, dialled(SseTransport, web.url) as rig:
        await desk.open.wait()
        await desk.stream.chunk(b"event: endpoint\ndata: http://evil.example/\n\n")
        rig.ask("tools/list")
        await rig.until_received(1)
    assert rig.ends == 0


@each_case("how", ["ended", "cut"])
async def test_the_end_of_the_stream_ends_the_link(how: str) -> None:
    desk = Desk()
    async with serving(desk) as web, dialled(SseTransport, web.url) as rig:
        await desk.open.wait()
        if how == "cut":
            desk.stream.cut()
        else:
            await desk.stream.end()
        problem = await rig.until_over()
        rig.ask("tools/list")
    assert problem.code in ("child_crashed", "child_answer_lost")
    assert web.calls == ["GET"]


def answering(status: int, body: bytes = b"", **headers: str) -> Handler:
    async def handle(request: Request, reply: Reply) -> None:
        await reply.send(status, body, **headers)

    return handle


@each_case(
    ("status", "code"),
    [
        (401, "child_unauthorized"),
        (403, "child_unauthorized"),
        (404, "child_http_error"),
        (500, "child_http_error"),
    ],
)
async def test_a_stream_that_is_refused_is_reported(status: int, code: str) -> None:
    async with serving(answering(status)) as web, dialled(SseTransport, web.url) as rig:
        problem = await rig.until_over()
    assert problem.code == code
    assert f"HTTP {status}" in problem.message


async def test_a_response_that_is_no_stream_is_reported() -> None:
    async with (
        serving(answering(200, b"{}", content_type="application/json")) as web,
        dialled(SseTransport, web.url) as rig,
    ):
        assert "answered with application/json" in (await rig.until_over()).message


async def test_a_server_that_is_not_there_is_reported() -> None:
    async with serving(Desk()) as web:
        url = web.url
    async with dialled(SseTransport, url) as rig:
        assert (await rig.until_over()).code == "child_unreachable"


class TestRefusedPosts:
    async def test_a_request_that_is_not_taken_fails_alone(self) -> None:
        class Picky(Desk):
            async def posted(self, request: Request, reply: Reply) -> None:
                if request.json.get("id") == 1:
                    await reply.send(503)
                else:
                    await super().posted(request, reply)

        async with serving(Picky()) as web, dialled(SseTransport, web.url) as rig:
            rig.ask("tools/call", 1)
            rig.ask("tools/call", 2)
            assert (await rig.until_lost(1)).code == "child_http_error"
            await rig.until_received(1)
        assert rig.ends == 0

    async def test_an_error_of_the_protocol_in_the_refusal_is_the_answer(self) -> None:
        error = {"code": -32602, "message": "wrong"}

        class Picky(Desk):
            async def posted(self, request: Request, reply: Reply) -> None:
                await reply.json({"jsonrpc": "2.0", "id": None, "error": error}, 400)

        async with serving(Picky()) as web, dialled(SseTransport, web.url) as rig:
            rig.ask("tools/call")
            await rig.until_received(1)
        assert decoded(rig) == [{"jsonrpc": "2.0", "id": 1, "error": error}]

    @each_case("message", ["request", "notification"])
    async def test_a_session_that_is_gone_ends_the_link(self, message: str) -> None:
        class Forgetful(Desk):
            async def posted(self, request: Request, reply: Reply) -> None:
                await reply.send(404, b"Could not find session")

        async with serving(Forgetful()) as web, dialled(SseTransport, web.url) as rig:
            if message == "request":
                rig.ask("tools/call")
                assert (await rig.until_lost()).code == "child_session_lost"
            else:
                rig.tell("notifications/x")
            assert (await rig.until_over()).code == "child_crashed"

    async def test_a_notification_that_is_not_taken_is_noted(self) -> None:
        class Picky(Desk):
            async def posted(self, request: Request, reply: Reply) -> None:
                if request.call == "notifications/x":
                    await reply.send(500)
                else:
                    await super().posted(request, reply)

        async with serving(Picky()) as web, dialled(SseTransport, web.url) as rig:
            rig.tell("notifications/x")
            rig.tell("notifications/y")
            await web.until_called("notifications/y")
        assert "HTTP 500" in rig.notes[0]
        assert rig.ends == 0


async def test_an_event_beyond_the_limit_is_reported_and_those_after_it_come() -> None:
    class Large(Desk):
        async def posted(self, request: Request, reply: Reply) -> None:
            await reply.send(202)
            await self.stream.event(result(1, "x" * 100_000))
            await self.stream.event(result(2))

    async with serving(Large()) as web, dialled(SseTransport, web.url, limit=10_000) as rig:
        rig.ask("tools/call")
        await rig.until_received(1)
    assert len(rig.odd) == 1
    assert decoded(rig) == [result(2)]


async def test_closing_lets_the_last_messages_go_and_then_the_stream() -> None:
    async with serving(Desk()) as web, dialled(SseTransport, web.url) as rig:
        rig.tell("notifications/last")
        rig.link.close_sending()
        rig.tell("notifications/late")
        await rig.link.sending_closed.wait()
        await rig.link.aclose()
        await web.until(lambda: web.closed >= 1)
        await settle()
    assert web.calls == ["GET", "notifications/last"]
    assert rig.ends == 0
