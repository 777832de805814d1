"""A child that another replica has in quarantine: refused here without a start, until that is over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from switchboard_mcp.children.health import OPEN_RULES
from switchboard_mcp.children.lifecycle import Health, State
from switchboard_mcp.children.replica_types import CallMeter, RemoteQuarantine, Replicas
from switchboard_mcp.config.models import ChildSpec
from tests.unit.gateway.board import Board, FakeChild, Json

VERDICT = RemoteQuarantine("b", 5, "Child 'kid' died.", 40.0)


class Others(Replicas):
    """The word of the others, and what they are told."""

    reachable = True

    def __init__(self) -> None:
        self.word: RemoteQuarantine | None = None
        self.queries = 0
        self.heard: list[tuple[object, ...]] = []

    def count(self, meter: CallMeter) -> None:
        raise AssertionError

    def gave_up(self, spec: ChildSpec, failures: int, problem: str, for_s: float) -> None:
        self.heard.append((spec.name, failures, problem, for_s))

    def trusts(self, spec: ChildSpec) -> None:
        self.heard.append((spec.name, "trusted"))

    async def verdict(self, spec: ChildSpec) -> RemoteQuarantine | None:
        self.queries += 1
        return self.word


@pytest.fixture
def others() -> Others:
    return Others()


@pytest.fixture
def board(others: Others) -> Iterator[Board]:
    board = Board()
    board.services.replicas = others
    yield board
    board.close()


def problem(board: Board, answer: FakeChild | None = None) -> Json:
    """The error of a call; empty where the child answers."""
    host = board.host()
    called = host.call()
    if answer is not None and answer.runs and answer.server.requests("tools/call"):
        answer.server.give(answer.server.last(), {})
    error: Json = host.result(called).get("structuredContent", {}).get("error", {})
    return error


def dying(board: Board, times: int) -> FakeChild:
    """A child that dies in its first handshakes."""
    left = [times]

    def script(message: Json) -> Json | None:
        if message["method"] == "initialize" and left[0]:
            left[0] -= 1
            kid.server.link.close_sending()
            return {}
        return None

    kid = board.child(script=script)
    return kid


def test_it_is_refused_without_a_start_and_says_where_and_until_when(board: Board, others: Others) -> None:
    kid, others.word = board.child(), VERDICT
    error = problem(board)
    assert (error["code"], error["retryAfterMs"], error["retryable"]) == ("child_quarantined", 40_000, True)
    assert "failed 5 times in a row; next try in 40.0 s" in error["message"]
    assert "On replica 'b': Child 'kid' died." in error["message"]
    assert kid.runs == []
    assert (kid.health, kid.retry_after_ms, kid.failures) == (Health.QUARANTINED, 40_000, 0)
    assert others.heard == []  # it is not this one's to say


def test_each_call_asks_again_so_that_the_end_is_noticed_before_its_time(
    board: Board, others: Others
) -> None:
    kid, others.word = board.child(), VERDICT
    problem(board)
    others.word = RemoteQuarantine("b", 5, "Child 'kid' died.", 20.0)
    assert problem(board)["retryAfterMs"] == 20_000
    others.word = None
    assert problem(board, kid) == {}
    assert kid.state is State.READY


def test_after_the_time_told_it_is_tried_once_whatever_they_say(board: Board, others: Others) -> None:
    kid, others.word = dying(board, 1), VERDICT
    problem(board)
    board.advance(40)
    assert problem(board)["code"] == "child_start_failed"
    assert len(kid.runs) == 1
    assert problem(board)["code"] == "child_quarantined"  # it failed here too: their word counts again
    assert len(kid.runs) == 1


def test_one_that_runs_goes_on_and_their_word_counts_when_it_has_crashed(
    board: Board, others: Others
) -> None:
    kid = board.child()
    assert problem(board, kid) == {}
    others.word = VERDICT
    assert problem(board, kid) == {}
    kid.server.die()
    board.settle()
    assert problem(board)["code"] == "child_quarantined"
    assert len(kid.runs) == 1


def test_a_person_starts_it_all_the_same(board: Board, others: Others) -> None:
    kid, others.word = board.child(), VERDICT
    started = board.loop.create_task(kid.start_now())
    board.settle()
    assert started.result() is None
    assert kid.state is State.READY
    assert others.queries == 0


def test_others_hear_of_a_quarantine_here_and_of_its_end(board: Board, others: Others) -> None:
    kid = dying(board, OPEN_RULES.failures)
    for _ in range(OPEN_RULES.failures):
        problem(board)
        board.advance(30)
    ((name, failures, message, for_s),) = others.heard
    assert (name, failures, for_s) == ("kid", OPEN_RULES.failures, 60.0)
    assert "kid" in str(message)
    board.advance(60)
    assert problem(board, kid) == {}
    assert kid.health is Health.HEALTHY
    assert others.heard[1:] == [("kid", "trusted")]


def test_a_child_of_each_host_alone_is_a_matter_of_this_server(board: Board, others: Others) -> None:
    kids, others.word = board.isolated(), VERDICT
    board.host().call()
    assert len(kids.made[0].runs) == 1
    assert others.queries == 0
