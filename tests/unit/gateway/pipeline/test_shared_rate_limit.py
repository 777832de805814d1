"""A rate that counts for all replicas: who waits for an answer, who goes on, and what becomes of the others."""

from __future__ import annotations

import pytest

from switchboard_mcp.children.replica_types import CallMeter, RemoteQuarantine, Replicas
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.sections import LimitSettings
from tests.unit.gateway.board import Board, FakeChild
from tests.unit.gateway.pipeline.chained import Recorder, chained, error, passing, text


class Others(Replicas):
    """Replicas that answer when the test says so."""

    def __init__(self) -> None:
        self.reachable = True
        self.meters: dict[CallMeter, None] = {}
        self.waiting: list[CallMeter] = []

    def count(self, meter: CallMeter) -> None:
        self.meters[meter] = None

    def gave_up(self, spec: ChildSpec, failures: int, problem: str, for_s: float) -> None:
        raise AssertionError

    def trusts(self, spec: ChildSpec) -> None:
        raise AssertionError

    async def verdict(self, spec: ChildSpec) -> RemoteQuarantine | None:
        return None

    def asked(self) -> dict[str, int]:
        """What is asked for now, by key."""
        self.waiting, self.meters = [*self.meters], {}
        return {meter.key: meter.next_batch() for meter in self.waiting}

    def answer(self, granted: int, wait_s: float = 1.5) -> None:
        for meter in self.waiting:
            meter.on_granted(granted, wait_s)

    def vanish(self) -> None:
        self.reachable = False
        for meter in self.waiting:
            meter.decide_locally()


@pytest.fixture
def others(board: Board) -> Others:
    board.services.replicas = found = Others()
    return found


@pytest.fixture(params=["short", "long"])
def road(request: pytest.FixtureRequest, board: Board, others: Others) -> Road:
    return Road(board, request.param == "long")


class Road:
    """A board whose calls take the short road through a chain, or the long one."""

    def __init__(self, board: Board, long: bool) -> None:
        self.board = board
        self.long = long

    def limit(self, **limits: int | str) -> tuple[FakeChild, Recorder]:
        kid = self.board.child()
        settings = LimitSettings(**{"calls_per_minute": 60, "burst": 3, **limits})  # type: ignore[arg-type]
        return kid, chained(self.board, *([passing] if self.long else []), limits=settings)


def sent(kid: FakeChild) -> int:
    """How many calls have come to the child."""
    return len(kid.server.requests("tools/call")) if kid.runs else 0


def test_calls_wait_for_the_answer_and_as_many_go_on_as_it_allows(
    board: Board, others: Others, road: Road
) -> None:
    kid, recorder = road.limit()
    host = board.host()
    calls = [host.call(args={"n": number}) for number in range(4)]
    assert sent(kid) == 0
    assert others.asked() == {"kid_suite:60/3": 4}
    others.answer(2)
    board.settle()
    assert [one["params"]["arguments"]["n"] for one in kid.server.requests("tools/call")] == [0, 1]
    for one in kid.server.requests("tools/call"):
        kid.server.give(one, text("served"))
    assert [host.result(one) for one in calls[:2]] == [text("served")] * 2
    problems = [error(host, one) for one in calls[2:]]
    assert [(one["code"], one["retryAfterMs"]) for one in problems] == [("rate_limited", 1500)] * 2
    assert sorted(recorder.outcomes) == ["ok", "ok", "rate_limited", "rate_limited"]


def test_who_comes_while_a_question_is_under_way_is_in_the_next(
    board: Board, others: Others, road: Road
) -> None:
    kid, _ = road.limit()
    host = board.host()
    host.call()
    assert others.asked() == {"kid_suite:60/3": 1}
    host.call()
    host.call()
    others.answer(1)
    board.settle()
    assert sent(kid) == 1
    assert others.asked() == {"kid_suite:60/3": 2}
    others.answer(2)
    board.settle()
    assert sent(kid) == 3


def test_a_call_that_is_cancelled_while_it_waits_is_not_asked_for(
    board: Board, others: Others, road: Road
) -> None:
    kid, recorder = road.limit()
    host = board.host()
    first = host.call()
    host.call(args={"n": 2})
    host.cancel(first)
    assert others.asked() == {"kid_suite:60/3": 1}
    others.answer(1)
    board.settle()
    assert kid.server.last()["params"]["arguments"] == {"n": 2}
    assert recorder.outcomes == ["cancelled"]


def test_a_call_that_is_cancelled_while_it_is_asked_for_is_not_made(
    board: Board, others: Others, road: Road
) -> None:
    kid, _ = road.limit()
    host = board.host()
    first = host.call()
    others.asked()
    host.cancel(first)
    others.answer(1)
    board.settle()
    assert sent(kid) == 0


def test_who_leaves_while_a_call_waits_takes_it_along(board: Board, others: Others, road: Road) -> None:
    kid, _ = road.limit()
    host = board.host()
    host.call()
    others.asked()
    host.leave()
    others.answer(1)
    board.settle()
    assert sent(kid) == 0


def test_when_nobody_answers_the_bucket_here_decides(board: Board, others: Others, road: Road) -> None:
    kid, _ = road.limit()
    host = board.host()
    calls = [host.call() for _ in range(4)]
    others.asked()
    others.vanish()
    board.settle()
    assert sent(kid) == 3
    assert error(host, calls[3])["code"] == "rate_limited"
    assert error(host, host.call())["code"] == "rate_limited"  # and without any wait from now on
    board.advance(1)
    host.call()
    assert sent(kid) == 4


def test_what_the_others_have_granted_is_gone_from_the_bucket_here_too(
    board: Board, others: Others, road: Road
) -> None:
    road.limit()
    host = board.host()
    for _ in range(3):
        host.call()
    others.asked()
    others.answer(3)
    others.vanish()
    assert error(host, host.call())["code"] == "rate_limited"


def test_each_principal_is_counted_by_its_name(board: Board, others: Others, road: Road) -> None:
    road.limit(per="principal")
    board.host(principal="ann").call()
    board.host(principal="ben").call()
    assert others.asked() == {"kid_suite:60/3:ann": 1, "kid_suite:60/3:ben": 1}


def test_places_are_kept_for_those_that_wait_for_an_answer(board: Board, others: Others, road: Road) -> None:
    kid, _ = road.limit(concurrent=1, queue=1)
    host = board.host()
    first, second = host.call(), host.call(args={"n": 2})
    assert error(host, host.call())["code"] == "suite_busy"
    others.asked()
    others.answer(2)
    board.settle()
    assert sent(kid) == 1
    kid.server.give(kid.server.last(), text("one"))
    assert host.result(first) == text("one")
    assert kid.server.last()["params"]["arguments"] == {"n": 2}
    kid.server.give(kid.server.last(), text("two"))
    assert host.result(second) == text("two")


def test_a_suite_without_a_rate_asks_nobody(board: Board, others: Others) -> None:
    kid = board.child()
    chained(board, limits=LimitSettings(concurrent=2))
    board.host().call()
    assert sent(kid) == 1
    assert others.meters == {}
