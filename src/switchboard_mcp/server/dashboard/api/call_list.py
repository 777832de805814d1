"""API endpoints about calls: the recent ones by filter, one with its details, and what they have in common."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from functools import partial

import msgspec
from msgspec import Struct
from starlette.exceptions import HTTPException

from switchboard_mcp.errors import KINDS, Failure
from switchboard_mcp.gateway.pipeline.watched_call import WatchedCall
from switchboard_mcp.observability.audit.entry import AuditEntry
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.observability.timeline import BOUNDS
from switchboard_mcp.server.dashboard import call_query
from switchboard_mcp.server.dashboard.api import audit
from switchboard_mcp.server.dashboard.api.routes import ApiRequest
from switchboard_mcp.server.dashboard.call_details import (
    CallPhases,
    ShownBody,
    phases_of,
    show_error,
    trace_id,
)
from switchboard_mcp.server.dashboard.call_log import LiveCall
from switchboard_mcp.server.dashboard.call_query import CallFilter, ErrorGroup, SubtoolLatency
from switchboard_mcp.server.dashboard.state import DashboardState
from switchboard_mcp.system import work_thread

MOST_ON_PAGE = 1_000
MOST_IN_WATERFALL = 2_000
MOST_SPAN_MS = 600_000
MOST_QUERY_CHARS = 500
MINUTE_MS = 60_000
# Entries of the audit log that are read to find the one of a call.
AUDIT_ENTRIES = 20_000


class CallPage(Struct, rename="camel"):
    """Calls; `next` continues with older ones, 0 if there are none. `seq` is the newest of all, `kept` their number."""

    calls: list[LiveCall]
    next: int = 0
    seq: int = 0
    kept: int = 0


class WaterfallCall(Struct, rename="camel", omit_defaults=True):
    """A call in a waterfall. `phases` is present if its details are kept."""

    seq: int
    started_at: float
    ms: float
    child: str
    subtool: str
    client: str
    outcome: str
    phases: CallPhases | None = None


class Waterfall(Struct, rename="camel"):
    """The calls in progress between two times, oldest first; `left` is the number of those left out."""

    begin: int = msgspec.field(name="from")
    end: int = msgspec.field(name="to")
    calls: list[WaterfallCall]
    left: int = 0


class LatencyReport(Struct):
    """Latencies per subtool. `bounds` are the upper bounds of the bins in milliseconds; the last bin has none."""

    bounds: list[float]
    subtools: list[SubtoolLatency]


class ErrorReport(Struct):
    """Failed calls by cause."""

    groups: list[ErrorGroup]


class GateDecision(Struct, omit_defaults=True):
    """What the gate decided. `outcome` is the answer if it asked; `rule` is the index of the rule, -1 for no rule."""

    effect: str
    rule: int
    reason: str = ""
    outcome: str = ""


class CallRetries(Struct):
    """Repetitions of a call: because its tools had to be listed again, and for input of the host."""

    relisted: bool = False
    rounds: int = 0


class CallDetail(Struct, rename="camel"):
    """One call. `bodies` says why arguments and result are absent: `off`, `not_kept` or `no_right`; else it is `kept`.

    `error` is what went wrong in a failed call whose result was not kept.
    `session` is the id of the session, `command` repeats the call in a terminal, `audit` is its entry in the log.
    """

    call: LiveCall
    started_at: float
    bodies: str
    suite: str = ""
    session: str = ""
    version: str = ""
    profile: str = ""
    phases: CallPhases | None = None
    trace_id: str = ""
    retries: CallRetries | None = None
    gate: GateDecision | None = None
    args: ShownBody | None = None
    result: ShownBody | None = None
    error: ShownBody | None = None
    failure: Failure | None = None
    command: str = ""
    audit: AuditEntry | None = None


async def calls(state: DashboardState, request: ApiRequest) -> CallPage:
    """Return the calls after `after`, oldest first; or the newest that match a filter, newest first."""
    log = state.call_log
    if not request.query.keys() - {"after"}:
        shown = log.since(request.number("after", 0, 1 << 53))
        return CallPage(shown, 0, log.seq, log.kept)
    before = request.number("before", 0, 1 << 53)
    limit = max(1, request.number("limit", 100, MOST_ON_PAGE))
    matches, following = call_query.select(log.newest_first(), _filter(request), before, limit)
    after = request.number("after", 0, 1 << 53)
    return CallPage([log.show(*match) for match in matches if match[0] > after], following, log.seq, log.kept)


async def call(state: DashboardState, request: ApiRequest) -> CallDetail:
    """Return one call with its details."""
    seq, record = _find(state, request.names[0])
    details = state.details
    watched = details.get(seq) if details is not None else None
    shown = state.call_log.show(seq, record)
    seconds = max(record.duration_s, 0.0)
    detail = CallDetail(shown, round((record.at - seconds) * 1000, 3), "kept")
    if watched is None:
        detail.bodies = "off" if details is None else "not_kept"
    else:
        _describe(state, detail, watched)
        if not request.viewer.may_act:
            detail.bodies = "no_right"
        elif details is not None:
            args, detail.result = await work_thread.run(
                work_thread.OWN, lambda: (details.arguments(watched), details.result(watched))
            )
            detail.args = args
            if not args.cut:
                detail.command = _command(shown, args.text)
    error = state.call_log.error_of(seq)
    if error is not None and detail.result is None and request.viewer.may_act:
        redactor = state.services.redactor
        detail.error = await work_thread.run(work_thread.OWN, lambda: show_error(redactor, error))
    detail.audit = await _audit_entry(state, record)
    return detail


async def waterfall(state: DashboardState, request: ApiRequest) -> Waterfall:
    """Return the calls in progress between two times; by default those of the last minute."""
    now = int(time.time() * 1000)
    end = request.number("to", now, 1 << 50)
    begin = max(request.number("from", end - MINUTE_MS, 1 << 50), end - MOST_SPAN_MS)
    log, details = state.call_log, state.details
    overlapping = call_query.overlapping(log.newest_first(), begin / 1000, end / 1000)
    rows = []
    for seq, record in overlapping[:MOST_IN_WATERFALL]:
        shown = log.show(seq, record)
        watched = details.get(seq) if details is not None else None
        rows.append(
            WaterfallCall(
                seq,
                round((record.at - record.duration_s) * 1000, 3),
                shown.duration_ms,
                shown.child,
                shown.subtool,
                shown.client,
                shown.outcome,
                phases_of(watched) if watched is not None else None,
            )
        )
    rows.sort(key=lambda row: row.started_at)
    return Waterfall(begin, end, rows, max(0, len(overlapping) - MOST_IN_WATERFALL))


async def latency(state: DashboardState, request: ApiRequest) -> LatencyReport:
    """Return the distribution of durations per subtool."""
    latencies = call_query.latencies(state.call_log.newest_first(), _filter(request))
    text = state.services.redactor.redact_text
    for entry in latencies:
        entry.subtool = text(entry.subtool)
    return LatencyReport([round(bound, 3) for bound in BOUNDS], latencies)


async def errors(state: DashboardState, request: ApiRequest) -> ErrorReport:
    """Return the failed calls by cause, with what to do."""
    groups = call_query.error_groups(state.call_log.newest_first(), _filter(request))
    text = state.services.redactor.redact_text
    for group in groups:
        group.subtools = [text(name) for name in group.subtools]
        problem = _recent_failure(state, group.code, group.child)
        if problem is not None:
            group.message, group.hint = problem.message, problem.hint or ""
        elif group.code in KINDS:
            group.hint = KINDS[group.code].hint
        else:
            group.message = "The subtool returned an error."
            group.hint = "Open a call to see the text of the child."
    return ErrorReport(groups)


def _filter(request: ApiRequest) -> CallFilter:
    query = {name: value[:MOST_QUERY_CHARS] for name, value in request.query.items()}
    end = request.number("to", 0, 1 << 50)
    return CallFilter(
        client=query.get("client", ""),
        session=_session_number(query.get("session", "")),
        principal=query.get("who", ""),
        child=query.get("child", ""),
        subtool=query.get("subtool", ""),
        kind=query.get("kind", ""),
        outcome=query.get("outcome", ""),
        text=query.get("q", "").strip().casefold(),
        since=request.number("from", 0, 1 << 50) / 1000,
        until=(end + 1) / 1000 if end else 0.0,  # to the end of that millisecond
        min_ms=request.number("minMs", 0, 1 << 40) or call_query.NO_MINIMUM,
    )


def _session_number(id: str) -> int:
    """Return the number in the id of a session; 0 for no id, and -1, which no session has, for another text."""
    if not id:
        return 0
    number = id.removeprefix("s")
    return int(number) or -1 if number.isascii() and number.isdecimal() and len(number) < 17 else -1


def _find(state: DashboardState, text: str) -> tuple[int, CallRecord]:
    call = state.call_log.get(int(text)) if text.isascii() and text.isdecimal() and len(text) < 17 else None
    if call is None:
        raise HTTPException(
            404, f"There is no call '{text[:20]}' any more. The last {state.call_log.kept:,} are kept."
        )
    return int(text), call


def _describe(state: DashboardState, detail: CallDetail, call: WatchedCall) -> None:
    redactor = state.services.redactor
    detail.suite, detail.profile = call.suite, call.profile
    detail.version = redactor.redact_text(call.version)
    detail.session = f"s{call.session}" if call.session else ""
    detail.phases = phases_of(call)
    detail.trace_id = trace_id(call.traceparent)
    detail.retries = CallRetries(call.relisted, call.rounds)
    if call.problem is not None:
        detail.failure = redactor.redact_failure(call.problem)
    if call.decision is not None:
        decision = call.decision
        detail.gate = GateDecision(decision.effect, decision.rule, decision.reason, call.gate_outcome)


def _command(call: LiveCall, args: str) -> str:
    """Return the command that repeats a call. Masked arguments stay masked."""
    if call.kind != "call":
        return ""
    try:
        compact = msgspec.json.format(args.encode(), indent=-1).decode()
    except (msgspec.MsgspecError, UnicodeError):
        return ""
    return shlex.join(["switchboard", "call", call.child, call.subtool, compact])


def _recent_failure(state: DashboardState, code: str, child: str) -> Failure | None:
    """Return the newest failure with this code, of this child if there is one. It is redacted already."""
    recent = state.services.recent_errors
    return recent.newest(code, child) if recent is not None else None


async def _audit_entry(state: DashboardState, record: CallRecord) -> AuditEntry | None:
    """Return the entry of a call in the audit log; None if there is no log, or it is too far back."""
    if state.services.audit is None:
        return None
    folder = os.path.join(state.workspace.folder, state.workspace.config.audit.path)
    try:
        return await asyncio.to_thread(partial(audit.find, folder, record, AUDIT_ENTRIES))
    except OSError:
        return None
