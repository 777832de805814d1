from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.server.dashboard.call_log import MAX_CALLS, MAX_NAME_CHARS, CallLog
from switchboard_mcp.server.dashboard.call_query import CallFilter, error_groups, latencies
from tests.cases import each_case


class Record:
    """An audit record, as far as a live one knows it."""

    fail_closed = True
    write_failure = None

    def __init__(self) -> None:
        self.records: list[CallRecord] = []
        self.closed = False

    def record(self, record: CallRecord) -> None:
        self.records.append(record)

    def close(self) -> None:
        self.closed = True


def services(audit: Record | None = None) -> Any:
    redactor = Redactor()
    redactor.register("hunter2-hunter2")
    return SimpleNamespace(records=audit, redactor=redactor)


def test_a_watched_call_is_recorded_with_arguments_and_kept_without() -> None:
    audit = Record()
    live = CallLog(services(audit))
    live.record(CallRecord("call", "ann", "git", "log", b'{"a":1}', "ok", 0.002))
    live.record(CallRecord("call", "ann", "git", "hunter2-hunter2", b"{}", "subtool_unknown", 0.004))
    assert [(record.subtool, record.args) for record in audit.records] == [
        ("log", b'{"a":1}'),
        ("hunter2-hunter2", b"{}"),
    ]
    first, second = live.since(0)
    assert (first.seq, first.subtool, first.outcome, first.duration_ms) == (1, "log", "ok", 2.0)
    assert "hunter2" not in repr(second)
    assert live.since(1) == [second]
    tally = live.timelines["git"]
    assert (tally.calls, tally.errors, tally.percentile_ms(0.5), tally.percentile_ms(0.95)) == (
        2,
        1,
        2.0,
        4.0,
    )
    (point,) = live.timeline.points()
    assert (point.calls, point.errors) == (2, 1)
    assert live.fail_closed is True


@each_case("outcome", ["ok", "cancelled", "input_required"])
def test_a_host_that_goes_or_is_asked_something_is_no_error(outcome: str) -> None:
    live = CallLog(services())
    live.record(CallRecord("call", "ann", "git", "log", b"", outcome, 0.002))
    assert (live.timelines["git"].calls, live.timelines["git"].errors) == (1, 0)


def test_a_call_that_waits_for_a_person_is_shown_and_its_time_is_in_no_figure() -> None:
    live = CallLog(services())
    live.record(CallRecord("call", "ann", "git", "push", b"", "gate_waiting", 45.0))
    assert [call.outcome for call in live.since(0)] == ["gate_waiting"]
    assert live.timelines == {}
    assert latencies(live.newest_first(), CallFilter()) == []
    assert error_groups(live.newest_first(), CallFilter()) == []


def test_looks_and_refusals_are_shown_and_count_as_no_calls() -> None:
    live = CallLog(services())
    live.record(CallRecord("introspect", "ann", "git", "", b"", "ok"))
    live.record(CallRecord("decision", "ann", "git", "push", b"", "denied"))
    assert [call.kind for call in live.since(0)] == ["introspect", "decision"]
    assert live.timelines == {}
    assert live.timeline.current() is None


def test_with_its_end_the_record_is_closed() -> None:
    audit = Record()
    CallLog(services(audit)).close()
    assert audit.closed


def test_a_name_without_end_is_cut_and_not_in_the_middle_of_a_secret() -> None:
    live = CallLog(services())
    live.record(
        CallRecord("call", "ann", "git", "x" * (MAX_NAME_CHARS - 4) + "hunter2-hunter2", b"", "ok", 0.1)
    )
    (call,) = live.since(0)
    assert len(call.subtool) <= MAX_NAME_CHARS
    assert "hunt" not in call.subtool


@each_case("count", [1, MAX_CALLS + 50])
def test_only_so_many_calls_are_kept(count: int) -> None:
    live = CallLog(services())
    for _ in range(count):
        live.record(CallRecord("call", "", "git", "log", b"", "ok", 0.001))
    kept = live.since(0)
    assert (len(kept), live.seq, kept[-1].seq) == (min(count, MAX_CALLS), count, count)


def test_sessions_with_calls_are_counted_once_and_clients_without_a_session_by_their_name() -> None:
    live = CallLog(services())
    for number in (1, 2, 3, 1):
        live.record(CallRecord("call", "http", "git", outcome="ok", client="claude-code", number=number))
    for client in ("codex", "codex", "gemini"):
        live.record(CallRecord("call", "ann", "git", outcome="ok", client=client))
    for outcome in ("ok", "child_failed"):
        live.record(CallRecord("introspect", "eve", "git", outcome=outcome))
    assert live.callers == {"http": 2, "ann": 2}
    assert live.introspections == {"git": 1}
    assert [call.client for call in live.since(4)[:3]] == ["codex", "codex", "gemini"]
