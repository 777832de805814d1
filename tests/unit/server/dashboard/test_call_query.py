from __future__ import annotations

import time
from types import SimpleNamespace

from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.server.dashboard.call_log import MAX_CALLS, CallLog
from switchboard_mcp.server.dashboard.call_query import (
    MAX_SUBTOOLS,
    CallFilter,
    error_groups,
    latencies,
    overlapping,
    select,
)
from tests.cases import each_case

STALL_S = 0.1


def filled(count: int) -> CallLog:
    log = CallLog(SimpleNamespace(records=None, redactor=Redactor()))  # type: ignore[arg-type]
    for number in range(1, count + 1):
        log.clock = lambda number=number: 1_000.0 + number  # type: ignore[misc]
        outcome = "child_timeout" if number % 5 == 0 else "ok"
        child = "git" if number % 2 else "fs"
        call = CallRecord("call", "ann", child, f"tool{number % 3}", b"", outcome, 0.5, 0.0, "Code")
        call.session = number % 3 or 3
        log.record(call)
    return log


@each_case(
    ("conditions", "expected"),
    [
        (CallFilter(), [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]),
        (CallFilter(child="git"), [9, 7, 5, 3, 1]),
        (CallFilter(subtool="tool0"), [9, 6, 3]),
        (CallFilter(outcome="failed"), [10, 5]),
        (CallFilter(outcome="ok", child="fs"), [8, 6, 4, 2]),
        (CallFilter(text="tool1"), [10, 7, 4, 1]),
        (CallFilter(client="other"), []),
        (CallFilter(session=3), [9, 6, 3]),
        (CallFilter(session=-1), []),
        (CallFilter(principal="ann", kind="call", min_ms=600), []),
        (CallFilter(since=1_003, until=1_006), [5, 4, 3]),
    ],
)
def test_calls_are_selected_by_all_conditions(conditions: CallFilter, expected: list[int]) -> None:
    found, following = select(filled(10).newest_first(), conditions, 0, 100)
    assert [number for number, _ in found] == expected
    assert following == 0


def test_pages_have_every_call_once() -> None:
    log, seen, before = filled(23), list[int](), 0
    while True:
        page, before = select(log.newest_first(), CallFilter(child="git"), before, 5)
        seen += [number for number, _ in page]
        if not before:
            break
    assert seen == list(range(23, 0, -2))


def test_a_call_overlaps_a_span_if_it_was_in_progress_then() -> None:
    found = overlapping(
        filled(10).newest_first(), 1_003.6, 1_004.2
    )  # each takes half a second before its end
    assert [number for number, _ in found] == [4]


def test_latencies_and_causes_are_bounded_however_many_names_hosts_choose() -> None:
    log = CallLog(SimpleNamespace(records=None, redactor=Redactor()))  # type: ignore[arg-type]
    for number in range(MAX_SUBTOOLS + 50):
        log.record(CallRecord("call", "", "git", f"name{number}", b"", "subtool_unknown", 0.001))
    assert len(latencies(log.newest_first(), CallFilter())) == MAX_SUBTOOLS
    (group,) = error_groups(log.newest_first(), CallFilter())
    assert group.count == MAX_SUBTOOLS + 50
    assert (len(group.subtools), len(group.seqs)) == (20, 5)


def test_a_full_log_is_looked_through_without_stopping_the_loop() -> None:
    log = filled(MAX_CALLS)
    for look in (
        lambda: select(log.newest_first(), CallFilter(text="nothing like it"), 0, 100),
        lambda: latencies(log.newest_first(), CallFilter()),
        lambda: error_groups(log.newest_first(), CallFilter()),
        lambda: overlapping(log.newest_first(), 0, 1e12),
        lambda: log.since(MAX_CALLS - 200),
    ):
        begin = time.thread_time()
        look()
        assert time.thread_time() - begin < STALL_S
