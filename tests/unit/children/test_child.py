"""One child and its eras: how it is met, and what is remembered of that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from switchboard_mcp.children.child import REFRESH_INTERVAL_S
from tests.unit.gateway.board import Board, FakeChild, Json


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board()
    yield board
    board.close()


def greetings(kid: FakeChild) -> list[list[str]]:
    """What each run was greeted with."""
    opening = ("initialize", "server/discover")
    return [
        [message["method"] for message in run.heard if message.get("method") in opening] for run in kid.runs
    ]


@pytest.mark.parametrize(
    ("era", "modern", "expected"),
    [
        ("legacy", False, ["initialize"]),
        ("legacy", True, ["server/discover", "initialize"]),
        ("modern", False, ["initialize", "server/discover"]),
        ("modern", True, ["server/discover"]),
        ("both", False, ["initialize"]),
        ("both", True, ["server/discover"]),
    ],
)
def test_a_child_is_met_in_the_era_of_its_host_where_it_knows_it(
    board: Board, era: str, modern: bool, expected: list[str]
) -> None:
    kid = board.child(era=era)
    board.host(modern=modern).call()
    assert greetings(kid) == [expected]
    assert len(kid.server.requests("tools/call")) == 1


def test_a_child_that_ends_when_it_is_probed_is_started_again_with_a_handshake(board: Board) -> None:
    def script(message: Json) -> Json | None:
        if message["method"] == "server/discover":
            kid.server.link.close_sending()
            return {}
        return None

    kid = board.child(script=script)
    host = board.host(modern=True)
    called = host.call()
    assert [run[0] for run in greetings(kid)] == ["server/discover", "initialize"]
    kid.server.give(kid.server.last(), {"content": []})
    assert host.result(called) == {"resultType": "complete", "content": []}
    kid.server.die()
    host.call()
    assert greetings(kid)[2:] == [["initialize"]]


def test_a_child_that_meets_a_probe_with_silence_has_its_time_for_the_handshake(board: Board) -> None:
    kid = board.child(script=lambda message: {} if message["method"] == "server/discover" else None)
    host = board.host(modern=True)
    called = host.call()
    board.advance(10)
    assert greetings(kid) == [["server/discover", "initialize"]]
    kid.server.give(kid.server.last(), {})
    assert host.result(called) == {"resultType": "complete"}
    assert kid.server.requests("notifications/cancelled") == []


def test_a_greeting_that_takes_too_long_is_not_cancelled(board: Board) -> None:
    kid = board.child(script=lambda message: {} if message["method"] == "initialize" else None)
    host = board.host()
    called = host.call()
    board.advance(61)
    assert host.result(called)["structuredContent"]["error"]["code"] == "child_start_timeout"
    assert kid.runs[0].requests("notifications/cancelled") == []


def test_a_slow_child_that_came_to_the_probe_after_all_is_met_as_a_modern_one(board: Board) -> None:
    late: list[Json] = []

    def script(message: Json) -> Json | None:
        if message["method"] == "initialize":
            return {
                "error": {"code": -32022, "message": "modern here", "data": {"supported": ["2026-07-28"]}}
            }
        if message["method"] == "server/discover" and not late:
            late.append(message)
            return {}
        return None

    kid = board.child(era="modern", script=script)
    host = board.host(modern=True)
    host.call()
    board.advance(10)
    assert greetings(kid) == [["server/discover", "initialize", "server/discover"]]
    assert len(kid.server.requests("tools/call")) == 1


def test_subtools_that_a_child_does_not_have_are_looked_for_once_however_many_ask(board: Board) -> None:
    held: list[Json] = []

    def script(message: Json) -> Json | None:
        if message["method"] == "tools/list" and kid.server.requests("tools/call"):
            held.append(message)
            return {}
        return None

    kid = board.child(script=script)
    host = board.host()
    host.call()
    called = [host.call(f"gone_{number}") for number in range(20)]
    assert len(held) == 1
    kid.server.give(held[0], {"tools": [{"name": "echo", "inputSchema": {}}]})
    board.settle()
    assert {error_code(host.result(id)) for id in called} == {"subtool_unknown"}


def test_a_subtool_that_was_just_looked_for_is_not_looked_for_again_for_a_while(board: Board) -> None:
    kid = board.child()
    host = board.host()
    for _ in range(50):
        assert error_code(host.result(host.call("new"))) == "subtool_unknown"
    assert len(kid.server.requests("tools/list")) == 2, "the start, and the first that missed something"
    kid.lists["tools/list"] = [{"name": name, "inputSchema": {}} for name in ("new", "newer")]
    host.call("newer")
    assert len(kid.server.requests("tools/list")) == 3, "another one is"
    assert kid.server.last()["params"]["name"] == "newer"
    kid.lists["tools/list"] = [{"name": "newest", "inputSchema": {}}]
    assert error_code(host.result(host.call("old"))) == "subtool_unknown"
    kid.lists["tools/list"] = [{"name": "old", "inputSchema": {}}]
    board.advance(REFRESH_INTERVAL_S)
    host.call("old")
    assert kid.server.last()["params"]["name"] == "old"


def test_a_waiter_for_the_list_of_a_dying_child_gets_an_error(board: Board) -> None:
    kid = board.child(
        script=lambda message: (
            {} if message["method"] == "tools/list" and kid.server.requests("tools/call") else None
        )
    )
    host = board.host()
    host.call()
    waiting = [host.call("new"), host.call("newer")]
    kid.server.die()
    board.settle()
    assert [error_code(host.result(id)) for id in waiting] == ["child_crashed"] * 2


def error_code(result: Json) -> str:
    code: str = result["structuredContent"]["error"]["code"]
    return code
