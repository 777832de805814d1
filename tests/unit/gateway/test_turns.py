"""Sessions that use the same child take turns."""

from __future__ import annotations

from switchboard_mcp.transport.fair_queue import REVIEW_S, WINDOW
from tests.unit.gateway.board import Board, FakeChild, Host, Json

CROWD = 60


def shared_child(board: Board) -> tuple[FakeChild, Host, Host]:
    """A child that two sessions have used, and both of them."""
    kid = board.child()
    busy, quiet = board.host(), board.host()
    for host in (busy, quiet):
        host.call()
        kid.server.give(kid.server.last(), {"content": []})
        board.settle()
    return kid, busy, quiet


def calls_of(kid: FakeChild, who: str) -> list[Json]:
    calls = kid.server.requests("tools/call")
    return [call for call in calls if call["params"]["arguments"].get("who") == who]


def answer(board: Board, kid: FakeChild, call: Json) -> None:
    kid.server.give(call, {"content": [], "structuredContent": call["params"]["arguments"]})
    board.settle()


def test_a_call_does_not_wait_for_all_calls_of_another_session(board: Board) -> None:
    kid, busy, quiet = shared_child(board)
    for _ in range(CROWD):
        busy.call(args={"who": "busy"})
    one = quiet.call(args={"who": "quiet"})
    assert len(calls_of(kid, "busy")) == WINDOW
    answer(board, kid, calls_of(kid, "quiet")[0])
    assert quiet.result(one)["structuredContent"] == {"who": "quiet"}


def test_every_call_of_a_busy_session_is_answered_in_order(board: Board) -> None:
    kid, busy, _ = shared_child(board)
    ids = [busy.call(args={"who": "busy", "number": number}) for number in range(CROWD)]
    for number in range(CROWD):
        answer(board, kid, calls_of(kid, "busy")[number])
    assert [busy.result(id)["structuredContent"]["number"] for id in ids] == [*range(CROWD)]
    assert not busy.session.in_flight


def test_a_session_alone_sends_all_calls_at_once(board: Board) -> None:
    kid = board.child()
    busy = board.host()
    for _ in range(CROWD):
        busy.call(args={"who": "busy"})
    assert len(calls_of(kid, "busy")) == CROWD


def test_requests_of_hosts_without_a_session_do_not_wait(board: Board) -> None:
    kid, _, _ = shared_child(board)
    for _ in range(CROWD):
        board.passer().call(args={"who": "passer"})
    assert len(calls_of(kid, "passer")) == CROWD


def test_calls_that_wait_are_answered_when_the_child_exits(board: Board) -> None:
    kid, busy, _ = shared_child(board)
    ids = [busy.call(args={"who": "busy"}) for _ in range(CROWD)]
    run = kid.server
    run.die()
    board.settle()
    for id in ids:
        assert busy.result(id)["structuredContent"]["error"]["code"] == "child_crashed"
    assert len([call for call in run.requests("tools/call") if call["params"]["arguments"]]) == WINDOW


def test_calls_that_wait_time_out_like_others(board: Board) -> None:
    kid, busy, _ = shared_child(board)
    ids = [busy.call(args={"who": "busy"}) for _ in range(WINDOW + 1)]
    board.loop.now += kid.call_timeout_s + 1
    board.settle()
    for id in ids:
        assert busy.result(id)["structuredContent"]["error"]["code"] == "child_timeout"


def test_a_call_that_is_cancelled_while_it_waits_never_reaches_the_child(board: Board) -> None:
    kid, busy, _ = shared_child(board)
    ids = [busy.call(args={"who": "busy", "number": number}) for number in range(WINDOW + 2)]
    busy.cancel(ids[WINDOW])
    assert not kid.server.requests("notifications/cancelled")
    for _ in range(2):
        answer(board, kid, calls_of(kid, "busy")[0])
    assert calls_of(kid, "busy")[-1]["params"]["arguments"]["number"] == WINDOW + 1
    assert busy.answer(ids[WINDOW]) is None


def test_calls_that_wait_go_with_their_session(board: Board) -> None:
    kid, busy, quiet = shared_child(board)
    for _ in range(CROWD):
        busy.call(args={"who": "busy"})
    busy.leave()
    quiet.call(args={"who": "quiet"})
    board.loop.now += REVIEW_S * 2
    board.settle()
    assert len(calls_of(kid, "busy")) == WINDOW
    assert len(kid.server.requests("notifications/cancelled")) == WINDOW
    assert len(calls_of(kid, "quiet")) == 1
    assert kid.peer is not None
    assert len(kid.peer.pending) == 1


def test_a_child_that_is_silent_gets_further_calls(board: Board) -> None:
    kid, busy, _ = shared_child(board)
    for _ in range(CROWD):
        busy.call(args={"who": "busy"})
    for _ in range(CROWD):
        board.loop.now += REVIEW_S
        board.settle()
    assert len(calls_of(kid, "busy")) == CROWD
