"""Calls that are watched for the dashboard pass like others, and each phase is noted."""

from __future__ import annotations

from typing import Any

import pytest

from switchboard_mcp.config.sections import LimitSettings
from switchboard_mcp.gateway.pipeline.watched_call import WatchedCall, WatchedRequest
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.server.dashboard.call_details import CALL_BYTES, CallDetails, phases_of
from tests.unit.gateway.board import Board
from tests.unit.gateway.pipeline.chained import chained, passing, text


@pytest.fixture
def watched() -> list[WatchedCall]:
    return []


def watch(recorder: Any, watched: list[WatchedCall], most_bytes: int = 1_000_000) -> CallDetails:
    details = CallDetails(most_bytes, Redactor(), lambda: len(recorder.records))

    def begin(request: WatchedRequest) -> WatchedCall:
        watched.append(details.watch(request))
        return watched[-1]

    recorder.watch = begin
    return details


@pytest.mark.parametrize("middleware", [(), (passing,)])
def test_a_call_passes_unchanged_and_has_its_phases_and_bodies(
    board: Board, watched: list[WatchedCall], middleware: tuple[Any, ...]
) -> None:
    kid = board.child()
    recorder = chained(board, *middleware)
    details = watch(recorder, watched)
    host = board.host()
    called = host.call()
    board.settle()
    kid.server.give(kid.server.last(), text("done"))
    board.settle()
    assert host.result(called) == text("done")
    (call,) = watched
    assert details.get(1) is call
    phases = phases_of(call)
    assert None not in (phases.queue, phases.start, phases.child, phases.relay)
    assert '"done"' in (details.result(call) or details.arguments(call)).text
    assert (call.suite, call.session > 0, call.relisted, call.rounds) == ("kid_suite", True, False, 0)


def test_without_a_watch_a_call_keeps_its_channel(board: Board) -> None:
    board.child()
    chained(board)
    host = board.host()
    host.call()
    (request,) = host.session.in_flight.values()
    assert request.watch is None  # type: ignore[attr-defined]
    assert not isinstance(request.channel, WatchedCall)  # type: ignore[attr-defined]


def test_a_call_that_waits_for_a_slot_or_is_cancelled_is_kept(
    board: Board, watched: list[WatchedCall]
) -> None:
    kid = board.child()
    recorder = chained(board, limits=LimitSettings(concurrent=1, queue=5))
    details = watch(recorder, watched)
    host = board.host()
    first, second = host.call(), host.call()
    assert watched[1].acquired_at == 0
    host.cancel(second)
    assert recorder.outcomes == ["cancelled"]
    assert details.get(1) is watched[1]
    assert details.result(watched[1]) is None
    assert phases_of(watched[1]).child is None
    kid.server.give(kid.server.last(), text("done"))
    assert host.result(first) == text("done")


def test_the_oldest_are_dropped_when_all_are_too_large(board: Board, watched: list[WatchedCall]) -> None:
    kid = board.child()
    recorder = chained(board)
    details = watch(recorder, watched, 3 * CALL_BYTES)
    host = board.host()
    for _ in range(10):
        called = host.call()
        kid.server.give(kid.server.last(), text("x" * 100))
        host.result(called)
    assert details.bytes <= 3 * CALL_BYTES
    assert details.get(1) is None
    assert details.get(10) is watched[-1]
    details.clear()
    assert (details.bytes, details.get(10)) == (0, None)


def test_the_wait_for_a_person_is_a_phase_of_its_own(board: Board, watched: list[WatchedCall]) -> None:
    board.child()
    watch(chained(board), watched)
    board.host().call()
    (call,) = watched
    call.started_at -= 10.0  # asked at once, and answered 8 s later
    call.note_decision("gate_asked")
    call.asked_at -= 8.0
    call.note_decision("gate_allowed")
    call.acquired_at = call.started_at + 10.0
    phases = phases_of(call)
    assert phases.person is not None
    assert phases.queue is not None
    assert 8_000 <= phases.person < 9_000
    assert phases.queue <= 2_000
