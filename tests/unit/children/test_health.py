"""The health gate of one child: doubt, probes, refusals with a time to retry, quarantine, the way back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from switchboard_mcp.children.health import GOVERNED_RULES, OPEN_RULES, health_rules
from switchboard_mcp.children.lifecycle import Health, State
from switchboard_mcp.config.sections import HealthSettings as Settings
from tests.unit.gateway.board import Board, FakeChild, Host, Json, Script

PROBE_S = OPEN_RULES.probe_s


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board()
    yield board
    board.close()


def late_call(board: Board, host: Host) -> None:
    """A call that the child leaves unanswered until it is over."""
    called = host.call()
    board.advance(61)
    assert problem(host, called)["code"] == "child_timeout"


def problem(host: Host, called: int | str) -> Json:
    error: Json = host.result(called)["structuredContent"]["error"]
    return error


def answer(kid: FakeChild, method: str = "tools/call") -> None:
    kid.server.give(kid.server.last(method), {})


def health(kid: FakeChild) -> Health:
    """Asked anew each time."""
    return kid.health


def make_unhealthy(board: Board, kid: FakeChild, host: Host) -> None:
    late_call(board, host)
    board.advance(PROBE_S)
    assert health(kid) is Health.UNHEALTHY


def test_a_child_that_answers_the_probe_was_only_slow(board: Board) -> None:
    kid, host = board.child(), board.host()
    late_call(board, host)
    assert len(kid.server.requests("ping")) == 1
    answer(kid, "ping")
    assert health(kid) is Health.HEALTHY
    board.advance(10 * PROBE_S)
    assert len(kid.server.requests("ping")) == 1
    assert len(kid.runs) == 1


def test_a_refusal_of_the_probe_is_an_answer(board: Board) -> None:
    kid, host = board.child(), board.host()
    late_call(board, host)
    kid.server.refuse(kid.server.last("ping"), -32601)
    board.advance(PROBE_S)
    assert health(kid) is Health.HEALTHY


def test_an_answer_to_another_call_is_as_good_as_one_to_the_probe(board: Board) -> None:
    kid, host = board.child(), board.host()
    late_call(board, host)
    other = host.call()
    answer(kid)
    host.result(other)
    board.advance(PROBE_S)
    assert health(kid) is Health.HEALTHY


def test_a_modern_child_is_probed_with_what_its_era_has(board: Board) -> None:
    kid = board.child(era="modern", script=_silent_after_the_first_discovery())
    host = board.host(modern=True)
    late_call(board, host)
    assert kid.server.requests("ping") == []
    assert len(kid.server.requests("server/discover")) == 2
    board.advance(PROBE_S)
    assert health(kid) is Health.UNHEALTHY


def test_an_unhealthy_child_is_sent_nothing_and_says_when_to_come_back(board: Board) -> None:
    kid, host = board.child(), board.host()
    make_unhealthy(board, kid, host)
    sent = len(kid.server.requests("tools/call"))
    board.advance(1)
    error = problem(host, host.call())
    assert error["code"] == "child_unhealthy"
    assert error["child"] == "kid"
    assert error["retryable"] is True
    assert error["retryAfterMs"] == kid.retry_after_ms == 4000
    assert len(kid.server.requests("tools/call")) == sent


def test_an_unhealthy_child_that_answers_is_on_probation_and_then_healthy(board: Board) -> None:
    kid, host = board.child(), board.host()
    make_unhealthy(board, kid, host)
    board.advance(PROBE_S)
    answer(kid, "ping")
    assert health(kid) is Health.PROBATION
    called = host.call()
    answer(kid)
    assert host.result(called) == {}
    assert health(kid) is Health.HEALTHY
    assert kid.failures == 0
    pings = len(kid.server.requests("ping"))
    board.advance(10 * PROBE_S)
    assert len(kid.server.requests("ping")) <= pings + 1


def test_on_probation_answered_probes_count_where_nobody_calls(board: Board) -> None:
    kid, host = board.child(), board.host()
    make_unhealthy(board, kid, host)
    board.advance(PROBE_S)
    answer(kid, "ping")
    board.advance(PROBE_S)
    answer(kid, "ping")
    assert health(kid) is Health.HEALTHY


def test_on_probation_one_late_call_is_enough(board: Board) -> None:
    kid, host = board.child(), board.host()
    make_unhealthy(board, kid, host)
    board.advance(PROBE_S)
    answer(kid, "ping")
    called = host.call()
    board.loop.now += 61  # past the next probe as well
    board.settle()
    assert problem(host, called)["code"] == "child_timeout"
    assert health(kid) is Health.UNHEALTHY


def test_a_child_that_stays_silent_is_stopped_and_quarantined(board: Board) -> None:
    kid, host = board.child(), board.host()
    late_call(board, host)
    for _ in range(2 * OPEN_RULES.failures):
        board.advance(PROBE_S)
    assert health(kid) is Health.QUARANTINED
    assert kid.server.stopped
    error = problem(host, host.call())
    assert error["code"] == "child_quarantined"
    assert 0 < error["retryAfterMs"] <= OPEN_RULES.quarantine_s * 1000


def test_after_quarantine_a_child_is_started_on_probation(board: Board) -> None:
    kid, host = board.child(), board.host()
    late_call(board, host)
    for _ in range(2 * OPEN_RULES.failures):
        board.advance(PROBE_S)
    board.advance(OPEN_RULES.quarantine_s)
    called = host.call()
    assert len(kid.runs) == 2
    assert health(kid) is Health.PROBATION
    answer(kid)
    host.result(called)
    assert health(kid) is Health.HEALTHY


def test_a_child_that_crashed_comes_back_on_probation(board: Board) -> None:
    kid, host = board.child(), board.host()
    answer_one(kid, host)
    kid.server.die()
    assert health(kid) is Health.UNHEALTHY
    assert kid.state is State.BACKOFF
    host.call()
    assert health(kid) is Health.PROBATION


def test_an_idle_child_on_probation_is_stopped_like_any_other(board: Board) -> None:
    kid, host = board.child(), board.host()
    answer_one(kid, host)
    kid.server.die()
    called = host.call()
    host.cancel(called)
    assert health(kid) is Health.PROBATION
    for _ in range(3):
        kid.sweep(board.loop.now)
        board.advance(601)
    assert kid.state is State.STOPPED


def test_a_child_that_dies_while_it_is_probed_is_dead_and_nothing_else(board: Board) -> None:
    kid, host = board.child(), board.host()
    make_unhealthy(board, kid, host)
    kid.server.die()
    assert kid.state is State.BACKOFF
    board.advance(10 * PROBE_S)
    assert kid.state is State.BACKOFF
    assert len(kid.runs) == 1


def test_the_gate_is_stricter_in_governed_mode() -> None:
    assert health_rules(Settings(), governed=False) == OPEN_RULES
    assert health_rules(Settings(), governed=True) == GOVERNED_RULES
    assert GOVERNED_RULES.spawn_warn_s == 2
    assert GOVERNED_RULES.spawn_fail_s == 5
    assert OPEN_RULES.spawn_fail_s == 0


def test_a_setting_counts_in_either_mode() -> None:
    settings = Settings(spawn_fail_ms=700, successes=2, failures=3, quarantine_ms=9000, probe_ms=100)
    for governed in (False, True):
        found = health_rules(settings, governed=governed)
        assert (found.spawn_fail_s, found.successes, found.failures) == (0.7, 2, 3)
        assert (found.quarantine_s, found.probe_s) == (9, 0.1)


def answer_one(kid: FakeChild, host: Host) -> None:
    called = host.call()
    answer(kid)
    host.result(called)


def _silent_after_the_first_discovery() -> Script:
    seen: list[Json] = []

    def script(message: Json) -> Json | None:
        if message["method"] == "server/discover":
            seen.append(message)
            return {} if len(seen) > 1 else None
        return None

    return script
