"""Streamable HTTP: requests that stand alone, and everything a server may refuse, cut short or send elsewhere."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from switchboard_mcp.errors import Failure
from switchboard_mcp.protocol.http_headers import HeaderMirror
from switchboard_mcp.transport.http import streamable_http
from switchboard_mcp.transport.http.streamable_http import StreamableHttpTransport
from tests.cases import each_case
from tests.unit.transport.http.remotes import dialled
from tests.unit.transport.http.streamables import (
    ENVELOPE,
    decoded,
    never,
    result,
)
from tests.unit.transport.http.webserver import Handler, Reply, Request, serving
from tests.unit.transport.recorder import settle

BOMB = gzip.compress(b" " * (64 << 20), 9)  # 64 KiB


class TestCompression:
    async def test_an_answer_may_be_compressed(self) -> None:
        value = [{"id": number, "text": "x" * 100} for number in range(50_000)]

        async def handle(request: Request, reply: Reply) -> None:
            body = json.dumps(result(1, value)).encode()
            headers = {"content_type": "application/json", "content_encoding": "gzip"}
            await reply.send(200, gzip.compress(body), **headers)

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("tools/call", 1, ENVELOPE)
            await rig.until_received(1)
        assert decoded(rig)[0]["result"] == value

    @each_case("kind", ["application/json", "text/event-stream"])
    async def test_one_that_grows_without_end_fails_its_call(self, kind: str) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.send(200, BOMB, content_type=kind, content_encoding="gzip")

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("tools/call", 1, ENVELOPE)
            lost = await rig.until_lost()
        assert lost.code == "child_http_error"
        assert "more than 200 times as large" in lost.message

    async def test_one_that_was_compressed_twice_fails_its_call(self) -> None:
        """Each time multiplies by a thousand, and what comes between need not become anything that is counted."""

        async def handle(request: Request, reply: Reply) -> None:
            body = gzip.compress(gzip.compress(json.dumps(result(1)).encode()))
            await reply.send(200, body, content_type="application/json", content_encoding="gzip, gzip")

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("tools/call", 1, ENVELOPE)
            lost = await rig.until_lost()
        assert lost.code == "child_http_error"
        assert "more than once" in lost.message


class TestWithoutHandshake:
    async def test_headers_repeat_the_body(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.result(request, "x", mcp_session_id="ignored")

        call = json.dumps(
            {**json.loads(ENVELOPE), "name": "Zürich", "arguments": {"region": "eu", "other": 1}}
        ).encode()
        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.link.mirrors = {"Zürich": (HeaderMirror(("region",), "Region"),)}
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

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("tools/call", 1, ENVELOPE)
            assert (await rig.until_lost()).code == "child_answer_lost"
        assert web.calls == ["tools/call"]

    async def test_404_with_an_error_in_it_is_an_answer(self) -> None:
        error = {"code": -32601, "message": "no such method"}

        async def handle(request: Request, reply: Reply) -> None:
            await reply.json({"jsonrpc": "2.0", "id": request.json["id"], "error": error}, 404)

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("ping", 1, ENVELOPE)
            await rig.until_received(1)
        assert decoded(rig)[0]["error"] == error

    async def test_subscriptions_do_not_take_the_turn_of_calls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(streamable_http, "MAX_REQUESTS", 1)

        async def handle(request: Request, reply: Reply) -> None:
            if request.call == "subscriptions/listen":
                await asyncio.Event().wait()
            await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            for id in (1, 2):
                rig.ask("subscriptions/listen", id, ENVELOPE)
            await web.until_called("subscriptions/listen", 2)
            rig.ask("tools/list", 3, ENVELOPE)
            await rig.until_received(1)


class TestRefusals:
    async def ask(self, handler: Handler, **options: object) -> Failure:
        """The failure that a request ends in."""
        async with serving(handler) as web, dialled(StreamableHttpTransport, web.url, **options) as rig:  # type: ignore[arg-type]
            rig.ask("tools/call")
            problem = await rig.until_lost()
            await settle(20)
        assert problem.child == "kid"
        assert f"http://127.0.0.1:{web.port}/mcp" in problem.message
        assert rig.received == []
        return problem

    @each_case("status", [400, 403, 404, 422, 500, 503])
    @each_case("id", [1, None])
    async def test_an_error_of_the_protocol_is_read_at_any_status(self, status: int, id: int | None) -> None:
        error = {"code": -32602, "message": "wrong", "data": {"x": 1}}

        async def handle(request: Request, reply: Reply) -> None:
            await reply.json({"jsonrpc": "2.0", "id": id, "error": error}, status)

        if status == 403:
            assert (await self.ask(handle)).code == "child_unauthorized"
            return
        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("tools/call")
            await rig.until_received(1)
        assert decoded(rig) == [{"jsonrpc": "2.0", "id": 1, "error": error}]

    @each_case("status", [400, 404, 405, 429, 500, 502, 503])
    async def test_a_status_alone_is_a_failure_that_names_it(self, status: int) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.send(status, b"go  away\nplease", content_type="text/plain", retry_after="7")

        problem = await self.ask(handle)
        assert problem.code == "child_http_error"
        assert f"HTTP {status}" in problem.message
        assert problem.message.endswith("It said: go away please")
        assert problem.retry_after_ms == 7000

    @each_case("status", [401, 403])
    async def test_a_refused_client_gets_the_reason(self, status: int) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.send(status)

        problem = await self.ask(handle)
        assert (problem.code, problem.retryable) == ("child_unauthorized", False)

    async def test_a_page_for_people_is_not_shown(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.send(502, b"<html>nginx</html>", content_type="text/html; charset=utf-8")

        assert "html" not in (await self.ask(handle)).message

    @each_case("kind", ["text/html", "text/plain", ""])
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

    @each_case("body", [b"{", b"[]", b"{}", b'{"jsonrpc":"2.0","id":9,"result":{}}'])
    async def test_json_that_is_no_answer_is_reported_as_such(self, body: bytes) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.send(200, body, content_type="application/json")

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("tools/call")
            assert (await rig.until_lost()).code == "child_protocol"

    async def test_a_server_that_is_not_there_is_reported_and_ends_the_link(self) -> None:
        async with serving(never) as web:
            url = web.url
        async with dialled(StreamableHttpTransport, url) as rig:
            rig.ask("tools/call")
            problem = await rig.until_over()
        assert (problem.code, problem.retryable) == ("child_unreachable", True)
        assert "the connection was refused" in problem.message

    async def test_a_host_unreachable_for_one_call_may_answer_another(self) -> None:
        go = asyncio.Event()

        async def handle(request: Request, reply: Reply) -> None:
            await go.wait()
            await reply.result(request, "x")

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
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

    async def test_an_unknown_host_is_reported(self) -> None:
        async with dialled(StreamableHttpTransport, "http://nowhere.invalid/mcp") as rig:
            rig.ask("tools/call")
            assert (await rig.until_lost()).code == "child_unreachable"

    async def test_secrets_in_the_address_are_not_shown(self) -> None:
        async with serving(never) as web:
            port = web.port
        url = f"http://user:hunter22@127.0.0.1:{port}/s/k3y0123456789abcdef012/mcp?token=abc"
        async with dialled(StreamableHttpTransport, url) as rig:
            rig.ask("tools/call")
            problem = await rig.until_lost()
        assert f"http://127.0.0.1:{port}/s/…/mcp " in problem.message
        for secret in ("hunter22", "k3y01", "abc"):
            assert secret not in problem.message


class TestLimits:
    async def test_a_json_answer_beyond_the_limit_is_reported_with_its_id(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.result(request, "x" * 100_000)

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url, limit=10_000) as rig:
            rig.ask("tools/call")
            await rig.until(lambda: bool(rig.odd))
            await settle(20)
        assert rig.received == []
        assert b'"id": 1,' in rig.odd[0].head  # type: ignore[union-attr]

    async def test_an_event_beyond_the_limit_is_reported_and_those_after_it_come(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.stream()
            await reply.event({"jsonrpc": "2.0", "method": "x" * 100_000})
            await reply.event(result())
            await reply.end()

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url, limit=10_000) as rig:
            rig.ask("tools/call")
            await rig.until_received(1)
        assert len(rig.odd) == 1
        assert decoded(rig) == [result()]

    async def test_a_large_message_counts_as_backlog_until_it_is_taken(self) -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await reply.result(request, len(request.body))

        async with serving(handle) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("tools/call", 1, b'"%b"' % (b"x" * 5_000_000))
            assert rig.link.write_buffer_size > 5_000_000
            await rig.until_received(1)
            assert rig.link.write_buffer_size == 0
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
            dialled(StreamableHttpTransport, web.url, {"Authorization": "Bearer abc"}) as rig,
        ):
            rig.ask("tools/call")
            await rig.until_received(1)
        assert decoded(rig)[0]["result"] == "/mcp/"
        assert [request.headers["authorization"] for request in web.requests] == ["Bearer abc"] * 2

    async def test_to_another_origin_they_are_not_followed(self) -> None:
        async with serving(never) as other, serving(self.sending_on(other.url + "?x=secret")) as web:
            async with dialled(StreamableHttpTransport, web.url, {"Authorization": "Bearer abc"}) as rig:
                rig.ask("tools/call")
                problem = await rig.until_lost()
            assert problem.code == "child_http_error"
            assert f"redirects to {other.url} (HTTP 307)" in problem.message
            assert "secret" not in problem.message
            assert other.connections == 0

    @each_case("status", [301, 302, 303])
    async def test_those_that_would_drop_the_message_are_not_followed(self, status: int) -> None:
        async with (
            serving(self.sending_on("/other", status)) as web,
            dialled(StreamableHttpTransport, web.url) as rig,
        ):
            rig.ask("tools/call")
            assert f"/other (HTTP {status})" in (await rig.until_lost()).message
        assert len(web.requests) == 1

    async def test_a_ring_of_them_ends(self) -> None:
        async with serving(self.sending_on("/mcp")) as web, dialled(StreamableHttpTransport, web.url) as rig:
            rig.ask("tools/call")
            assert (await rig.until_lost()).code == "child_http_error"
        assert 1 < len(web.requests) < 10

    async def test_a_user_in_the_location_is_not_taken_over(self) -> None:
        async with serving(never) as web:
            web.handler = self.sending_on(f"http://eve:x@127.0.0.1:{web.port}/other")
            async with dialled(StreamableHttpTransport, web.url) as rig:
                rig.ask("tools/call")
                assert "eve" not in (await rig.until_lost()).message
        assert len(web.requests) == 1
