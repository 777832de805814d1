from __future__ import annotations

from switchboard_mcp.gateway.status import child_statuses
from switchboard_mcp.observability.timeline import ChildTimeline
from tests.unit.gateway.board import Board


def seen(calls: int, errors: int) -> ChildTimeline:
    tally = ChildTimeline()
    tally.calls, tally.errors = calls, errors
    tally.times.extend([1.0] * calls)
    return tally


def test_a_child_that_was_made_anew_keeps_the_calls_that_were_counted(board: Board) -> None:
    kid = board.child()
    suites = board.gateway.all_suites.values()
    (status,) = child_statuses(suites, timelines={kid.name: seen(9, 2)})
    assert (status.calls, status.errors, status.p50) == (9, 2, 1.0)


def test_calls_of_several_processes_are_reported_once(board: Board) -> None:
    board.isolated()
    for _ in range(2):
        board.host().call()
    suites = list(board.gateway.all_suites.values())
    status = child_statuses(suites, timelines={suites[0].source: seen(2, 1)})
    assert [(each.calls, each.errors) for each in status] == [(1, 1), (1, 0)]
