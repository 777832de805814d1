"""Looks into the recent calls: filters, the calls of a span of time, latencies per subtool, errors by cause.

Pure: takes records and returns what to show. Texts that peers chose are redacted by the caller.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from msgspec import Struct

from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.observability.timeline import BOUNDS, percentile
from switchboard_mcp.server.dashboard.call_log import NON_ERRORS, UNDECIDED

Numbered = tuple[int, CallRecord]
FAILED = "failed"
# Subtools whose latencies are told apart; hosts choose the names of unknown ones.
MAX_SUBTOOLS = 500
SHOWN_SEQS = 5
# Below the duration of what was not measured.
NO_MINIMUM = -2_000.0
SHOWN_SUBTOOLS = 20


class CallFilter(Struct, frozen=True, kw_only=True):
    """Conditions on a call; empty ones match everything. Times are in seconds, `min_ms` is a duration."""

    client: str = ""
    session: int = 0
    principal: str = ""
    child: str = ""
    subtool: str = ""
    kind: str = ""
    outcome: str = ""
    text: str = ""
    since: float = 0.0
    until: float = 0.0
    min_ms: float = NO_MINIMUM

    def matches(self, record: CallRecord) -> bool:
        """Return whether a call meets all conditions."""
        return (
            self.client in ("", record.client)
            and self.session in (0, record.session)
            and self.principal in ("", record.principal)
            and self.child in ("", record.child)
            and self.subtool in ("", record.subtool)
            and self.kind in ("", record.kind)
            and (
                self.outcome in ("", record.outcome)
                or (self.outcome == FAILED and record.outcome not in NON_ERRORS)
            )
            and record.at >= self.since
            and (not self.until or record.at < self.until)
            and record.duration_s * 1000 >= self.min_ms
            and (not self.text or self.text in _text(record))
        )


class SubtoolLatency(Struct, rename="camel"):
    """Durations of one subtool in milliseconds. `bins` counts calls by the bounds of the response."""

    child: str
    subtool: str
    calls: int = 0
    errors: int = 0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    max: float = 0.0
    bins: list[int] = []


class ErrorGroup(Struct, rename="camel"):
    """Failed calls with the same cause. `seqs` are the newest of them."""

    code: str
    child: str
    count: int = 0
    first_at: int = 0
    last_at: int = 0
    subtools: list[str] = []
    seqs: list[int] = []
    message: str = ""
    hint: str = ""


def select(
    calls: Iterable[Numbered], conditions: CallFilter, before: int, limit: int
) -> tuple[list[Numbered], int]:
    """Return a page of calls, newest first, and the number to continue from; 0 if there are no more."""
    page: list[Numbered] = []
    for number, record in calls:
        if before and number >= before:
            continue
        if conditions.matches(record):
            if len(page) == limit:
                return page, page[-1][0] if page else number + 1
            page.append((number, record))
    return page, 0


def overlapping(calls: Iterable[Numbered], begin_s: float, end_s: float) -> list[Numbered]:
    """Return the calls that were in progress at any time of a span, newest first."""
    return [
        (number, record)
        for number, record in calls
        if record.duration_s >= 0 and record.at >= begin_s and record.at - record.duration_s <= end_s
    ]


def latencies(calls: Iterable[Numbered], conditions: CallFilter) -> list[SubtoolLatency]:
    """Return the latencies of each subtool, those with the most calls first."""
    by_subtool: dict[tuple[str, str], SubtoolLatency] = {}
    for _, record in calls:
        is_timed = record.duration_s >= 0 and record.kind == "call" and record.outcome != UNDECIDED
        if not is_timed or not conditions.matches(record):
            continue
        key = (record.child, record.subtool)
        entry = by_subtool.get(key)
        if entry is None:
            if len(by_subtool) >= MAX_SUBTOOLS:
                continue
            entry = by_subtool[key] = SubtoolLatency(*key, bins=[0] * (len(BOUNDS) + 1))
        ms = record.duration_s * 1000
        entry.calls += 1
        entry.errors += record.outcome not in NON_ERRORS
        entry.max = max(entry.max, round(ms, 2))
        entry.bins[bisect_left(BOUNDS, ms)] += 1
    for entry in by_subtool.values():
        # The bounds of the bins are above what was measured in them.
        parts = (min(percentile(entry.bins, part), entry.max) for part in (0.5, 0.95, 0.99))
        entry.p50, entry.p95, entry.p99 = parts
    return sorted(by_subtool.values(), key=lambda entry: -entry.calls)


def error_groups(calls: Iterable[Numbered], conditions: CallFilter) -> list[ErrorGroup]:
    """Return failed calls by code and child, the most frequent first."""
    groups: dict[tuple[str, str], ErrorGroup] = {}
    for number, record in calls:
        if record.outcome in NON_ERRORS or not record.outcome or record.duration_s < 0:
            continue
        if not conditions.matches(record):
            continue
        key = (record.outcome, record.child)
        at = int(record.at * 1000)
        group = groups.get(key)
        if group is None:
            group = groups[key] = ErrorGroup(*key, last_at=at)
        group.count += 1
        group.first_at = at
        if len(group.seqs) < SHOWN_SEQS:
            group.seqs.append(number)
        if len(group.subtools) < SHOWN_SUBTOOLS and record.subtool not in group.subtools:
            group.subtools.append(record.subtool)
    return sorted(groups.values(), key=lambda group: -group.count)


def _text(record: CallRecord) -> str:
    return (
        f"{record.kind} {record.principal} {record.client} {record.child} {record.subtool} {record.outcome}"
    ).casefold()
