"""Limits of a suite: how often, how many at once, how large; and answers that are given again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from switchboard_mcp.config.sections import CacheSettings, LimitSettings
from tests.cases import each_case
from tests.unit.gateway.board import Board, FakeChild, Host, Json, open_board
from tests.unit.gateway.pipeline.chained import Recorder, error, passing, text
from tests.unit.gateway.pipeline.chained import chained as given_chains

ROADS = {"short": (), "long": (passing,)}
road: list[str] = ["short"]


@pytest.fixture(autouse=True, params=ROADS)
def roads(request: pytest.FixtureRequest) -> None:
    """Every test twice: calls that are only counted have a road of their own, which must not be another."""
    road[0] = request.param


def chained(board: Board, *, limits: LimitSettings | None = None) -> Recorder:
    return given_chains(board, *ROADS[road[0]], limits=limits)


READ: Json = {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
WRITE: Json = {"name": "write", "inputSchema": {"type": "object"}}
BOTH = [READ, WRITE]


def serve(kid: FakeChild, host: Host, **call: Any) -> Json:
    """A call that the child answers."""
    called = host.call(**call)
    kid.server.give(kid.server.last(), text("served"))
    return host.result(called)


class TestRate:
    def test_beyond_it_calls_are_refused_with_the_time_to_wait(self, board: Board) -> None:
        kid = board.child()
        recorder = chained(board, limits=LimitSettings(calls_per_minute=60, burst=2))
        host = board.host()
        serve(kid, host)
        serve(kid, host)
        result = error(host, host.call())
        assert result["code"] == "rate_limited"
        assert result["retryAfterMs"] == 1000
        assert result["retryable"] is True
        assert "kid_suite" in result["message"]
        assert len(kid.server.requests("tools/call")) == 2
        board.advance(1)
        assert serve(kid, host) == text("served")
        assert recorder.outcomes == ["ok", "ok", "rate_limited", "ok"]

    def test_one_suite_does_not_use_up_what_another_has(self, board: Board) -> None:
        kid, other = board.child(), board.child("other")
        chained(board, limits=LimitSettings(calls_per_minute=1))
        host = board.host()
        serve(kid, host)
        serve(other, host, suite="other_suite")
        assert error(host, host.call())["code"] == "rate_limited"

    def test_a_suite_may_have_limits_of_its_own(self, board: Board) -> None:
        kid = board.child(limits=LimitSettings(calls_per_minute=1))
        free = board.child("free")
        chained(board)
        host = board.host()
        serve(kid, host)
        assert error(host, host.call())["code"] == "rate_limited"
        for _ in range(5):
            serve(free, host, suite="free_suite")

    def test_each_principal_has_its_own_where_that_is_the_rule(self, board: Board) -> None:
        kid = board.child()
        chained(board, limits=LimitSettings(calls_per_minute=1, per="principal"))
        alice, bob = board.host(principal="alice"), board.host(principal="bob")
        serve(kid, alice)
        serve(kid, bob)
        assert error(alice, alice.call())["code"] == "rate_limited"

    def test_else_they_share_one(self, board: Board) -> None:
        kid = board.child()
        chained(board, limits=LimitSettings(calls_per_minute=1))
        alice, bob = board.host(principal="alice"), board.host(principal="bob")
        serve(kid, alice)
        assert error(bob, bob.call())["code"] == "rate_limited"

    def test_to_look_inside_is_no_call(self, board: Board) -> None:
        board.child()
        chained(board, limits=LimitSettings(calls_per_minute=1))
        host = board.host()
        for _ in range(3):
            params = {"name": "kid_suite", "arguments": {"action": "introspect"}}
            assert "isError" not in host.get("tools/call", params)


class TestConcurrency:
    def test_beyond_it_calls_are_refused(self, board: Board) -> None:
        kid = board.child()
        chained(board, limits=LimitSettings(concurrent=2))
        host = board.host()
        first, _ = host.call(), host.call()
        result = error(host, host.call())
        assert result["code"] == "suite_busy"
        assert result["retryAfterMs"] > 0
        kid.server.give(kid.server.requests("tools/call")[0], {})
        host.result(first)
        host.call()
        assert len(kid.server.requests("tools/call")) == 3

    def test_in_a_queue_they_wait_for_their_turn(self, board: Board) -> None:
        kid = board.child()
        chained(board, limits=LimitSettings(concurrent=1, queue=2))
        host = board.host()
        calls = [host.call(args={"n": number}) for number in range(3)]
        assert error(host, host.call())["code"] == "suite_busy"
        for number, called in enumerate(calls):
            assert len(kid.server.requests("tools/call")) == number + 1
            assert kid.server.last()["params"]["arguments"] == {"n": number}
            kid.server.give(kid.server.last(), {})
            assert host.result(called) == {}

    def test_a_cancelled_request_in_the_queue_takes_no_place(self, board: Board) -> None:
        kid = board.child()
        chained(board, limits=LimitSettings(concurrent=1, queue=2))
        host = board.host()
        host.call()
        second, third = host.call(), host.call(args={"n": 3})
        host.cancel(second)
        kid.server.give(kid.server.last(), {})
        assert kid.server.last()["params"]["arguments"] == {"n": 3}
        kid.server.give(kid.server.last(), {})
        host.result(third)
        serve(kid, host)

    @each_case("end", ["cancelled", "refused", "late", "died", "unknown", "left"], board=open_board)
    def test_a_call_frees_its_place_on_every_way_it_ends(self, board: Board, end: str) -> None:
        kid = board.child()
        chained(board, limits=LimitSettings(concurrent=1))
        host, other = board.host(), board.host()
        called = host.call("nothing" if end == "unknown" else "echo")
        if end == "cancelled":
            host.cancel(called)
        elif end == "refused":
            kid.server.refuse(kid.server.last(), -1)
        elif end == "late":
            board.advance(61)
            kid.server.give(kid.server.last("ping"), {})
        elif end == "died":
            kid.server.die()
        elif end == "left":
            host.leave()
        assert serve(kid, other) == text("served")

    def test_a_call_that_cannot_start_leaves_its_place(self, board: Board) -> None:
        kid = board.child(script=lambda message: {"error": {"code": -1, "message": "no"}})
        chained(board, limits=LimitSettings(concurrent=1))
        host = board.host()
        for _ in range(3):
            assert error(host, host.call())["code"] != "suite_busy"
        assert kid.runs


class TestSize:
    def fetch(self, host: Host, cursor: str, subtool: str = "echo") -> Json:
        arguments = {"action": "call", "subtool": subtool, "cursor": cursor}
        return host.get("tools/call", {"name": "kid_suite", "arguments": arguments})

    def large(self, board: Board, size: int = 5000, **more: Any) -> tuple[Json, Host]:
        kid = board.child(**more)
        chained(board, limits=LimitSettings(result_bytes=1024))
        host = board.host(principal="alice")
        called = host.call()
        kid.server.give(kid.server.last(), text("abcdefghij" * (size // 10), isError=False, other=1))
        return host.result(called), host

    def test_a_result_within_it_comes_as_it_is(self, board: Board) -> None:
        result, _ = self.large(board, 900)
        assert result == text("abcdefghij" * 90, isError=False, other=1)

    def test_a_larger_one_is_cut_and_says_how_to_fetch_the_rest(self, board: Board) -> None:
        result, host = self.large(board)
        assert result["isError"] is False
        assert result["other"] == 1
        whole, pages = "", 0
        while True:
            pages += 1
            texts = [block["text"] for block in result["content"]]
            assert sum(map(len, texts)) < 1024 + 300
            rest = result.get("_meta", {}).get("switchboard/rest")
            if rest is None:
                whole += "".join(texts)
                break
            whole += "".join(texts[:-1])
            ask = json.loads(texts[-1][texts[-1].index("{") : texts[-1].rindex("}") + 1])
            assert ask == {"action": "call", "subtool": "echo", "cursor": rest["cursor"]}
            assert rest["bytes"] > 5000
            result = self.fetch(host, rest["cursor"])
        assert whole == "abcdefghij" * 500
        assert pages == 5

    def test_the_rest_is_not_for_others_nor_for_ever(self, board: Board) -> None:
        result, host = self.large(board)
        cursor = result["_meta"]["switchboard/rest"]["cursor"]
        bob = board.host(principal="bob")
        assert self.fetch(bob, cursor)["structuredContent"]["error"]["code"] == "cursor_invalid"
        other = board.host(principal=host.session.principal)
        assert self.fetch(other, cursor)["structuredContent"]["error"]["code"] == "cursor_invalid"
        assert self.fetch(host, cursor, "other")["structuredContent"]["error"]["code"] == "cursor_invalid"
        assert "isError" in self.fetch(host, cursor)
        board.advance(601)
        assert self.fetch(host, cursor)["structuredContent"]["error"]["code"] == "cursor_invalid"

    @each_case("cursor", ["x", "x.1", "x.1.2", "x.y.z", "x.-1.0", "x.1.²"], board=open_board)
    def test_a_cursor_that_is_none_is_refused(self, board: Board, cursor: str) -> None:
        _, host = self.large(board)
        result = self.fetch(host, cursor)["structuredContent"]["error"]
        assert result["code"] == "cursor_invalid"
        assert "without a cursor" in result["hint"]

    def test_direct_exposure_leaves_the_rest_out(self, board: Board) -> None:
        kid = board.child(exposure="direct")
        chained(board, limits=LimitSettings(result_bytes=1024))
        host = board.host()
        called = host.ask("tools/call", {"name": "echo", "arguments": {}})
        kid.server.give(kid.server.last(), text("x" * 5000))
        result = host.result(called)
        assert "omitted" in result["content"][-1]["text"]
        assert len(json.dumps(result)) < 1500

    def test_a_modern_host_gets_pages_of_its_era(self, board: Board) -> None:
        kid = board.child(era="modern")
        chained(board, limits=LimitSettings(result_bytes=1024))
        host = board.host(modern=True)
        called = host.call()
        kid.server.give(kid.server.last(), {"resultType": "complete", **text("x" * 1500)})
        result = host.result(called)
        assert result["resultType"] == "complete"
        assert self.fetch(host, result["_meta"]["switchboard/rest"]["cursor"])["resultType"] == "complete"


class TestCache:
    def cached(self, board: Board, **more: Any) -> FakeChild:
        kid = board.child(tools=BOTH, cache=CacheSettings(ttl_ms=10_000, **more))
        chained(board)
        return kid

    def calls(self, kid: FakeChild) -> int:
        return len(kid.server.requests("tools/call"))

    def test_an_answer_of_a_read_only_subtool_is_given_again(self, board: Board) -> None:
        kid = self.cached(board)
        host = board.host()
        first = serve(kid, host, subtool="read", args={"a": 1, "b": 2})
        assert host.result(host.call("read", args={"b": 2, "a": 1})) == first
        assert self.calls(kid) == 1
        serve(kid, host, subtool="read", args={"a": 2})
        assert self.calls(kid) == 2

    def test_for_so_long(self, board: Board) -> None:
        kid = self.cached(board)
        host = board.host()
        serve(kid, host, subtool="read")
        board.advance(11)
        serve(kid, host, subtool="read")
        assert self.calls(kid) == 2

    def test_to_the_principal_who_got_it_and_nobody_else(self, board: Board) -> None:
        kid = self.cached(board)
        serve(kid, board.host(principal="alice"), subtool="read")
        serve(kid, board.host(principal="bob"), subtool="read")
        assert self.calls(kid) == 2

    def test_a_subtool_that_does_not_say_it_only_reads_is_always_called(self, board: Board) -> None:
        kid = self.cached(board)
        host = board.host()
        serve(kid, host, subtool="write")
        serve(kid, host, subtool="write")
        assert self.calls(kid) == 2

    def test_a_call_that_may_write_empties_it(self, board: Board) -> None:
        kid = self.cached(board)
        host = board.host()
        serve(kid, host, subtool="read")
        serve(kid, host, subtool="write")
        serve(kid, host, subtool="read")
        assert self.calls(kid) == 3

    def test_a_read_during_a_write_is_not_kept(self, board: Board) -> None:
        kid = self.cached(board)
        host = board.host()
        serve(kid, host, subtool="write")
        writing = host.call("write")
        sent = kid.server.last()
        serve(kid, host, subtool="read")
        kid.server.give(sent, {})
        host.result(writing)
        before = self.calls(kid)
        serve(kid, host, subtool="read")
        assert self.calls(kid) == before + 1

    def test_only_subtools_that_are_named(self, board: Board) -> None:
        kid = self.cached(board, subtools=["other_*"])
        host = board.host()
        serve(kid, host, subtool="read")
        serve(kid, host, subtool="read")
        assert self.calls(kid) == 2

    @each_case("answer", [{"content": [], "isError": True}, None], board=open_board)
    def test_a_failure_is_never_kept(self, board: Board, answer: Json | None) -> None:
        kid = self.cached(board)
        host = board.host()
        for _ in range(2):
            called = host.call("read")
            if answer is None:
                kid.server.refuse(kid.server.last(), -1)
            else:
                kid.server.give(kid.server.last(), answer)
            host.result(called)
        assert self.calls(kid) == 2

    def test_an_answer_that_says_it_is_no_error_is_kept(self, board: Board) -> None:
        kid = self.cached(board)
        host = board.host()
        called = host.call("read")
        kid.server.give(kid.server.last(), text("fine", isError=False))
        assert host.result(called) == host.result(host.call("read"))
        assert self.calls(kid) == 1

    def test_a_cached_result_is_not_counted_as_a_call_to_the_child(self, board: Board) -> None:
        kid = board.child(
            tools=BOTH, cache=CacheSettings(ttl_ms=10_000), limits=LimitSettings(calls_per_minute=1)
        )
        recorder = chained(board)
        host = board.host()
        serve(kid, host, subtool="read")
        host.result(host.call("read"))
        assert recorder.outcomes == ["ok", "cached"]

    def test_hosts_of_the_two_eras_get_answers_in_their_own(self, board: Board) -> None:
        kid = self.cached(board)
        old, new = board.host(), board.host(modern=True)
        serve(kid, old, subtool="read")
        assert serve(kid, new, subtool="read")["resultType"] == "complete"
        assert new.result(new.call("read"))["resultType"] == "complete"
        assert "resultType" not in old.result(old.call("read"))
        assert self.calls(kid) == 2
