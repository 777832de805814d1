"""API endpoints that read the server: overview, children, savings and calls. They start no child."""

from __future__ import annotations

import os
import time

from msgspec import Struct
from starlette.exceptions import HTTPException

from switchboard_mcp import __version__
from switchboard_mcp.children.child import Child
from switchboard_mcp.config.agent_names import OVERSEER
from switchboard_mcp.gateway.status import child_uses
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.server.dashboard.api.routes import ApiRequest
from switchboard_mcp.server.dashboard.history import RANGES, HistoryPoint, database_errors
from switchboard_mcp.server.dashboard.state import DashboardState
from switchboard_mcp.server.memory_report import measure_memory
from switchboard_mcp.suites.results.counts import ResultCounts
from switchboard_mcp.system import work_thread


class HistoryReport(Struct, frozen=True, rename="camel"):
    """Points of the history, oldest first; spans without calls are left out. `stored` if they survive a restart.

    A point is `[begin in ms, width in s, calls, errors, p50 in ms, p95 in ms, tokens saved]`.
    """

    started_at: int
    points: list[HistoryPoint]
    stored: bool


async def overview(state: DashboardState, request: ApiRequest) -> object:
    """Return what the frame of the page shows."""
    audit, governance = state.services.audit, state.workspace.config.governance
    return {
        "version": __version__,
        "pid": os.getpid(),
        "startedAt": state.started_ms,
        "now": int(time.time() * 1000),
        "workspace": state.workspace.folder,
        "viewer": request.viewer.principal or "the token of this start",
        "sender": request.viewer.principal or OVERSEER,
        "mayAct": request.viewer.may_act,
        "scope": request.viewer.right,
        "sessions": state.sessions(),
        "sessionList": state.session_list(),
        "hostsServed": state.hosts_served(),
        "approvals": state.approvals,
        "mode": governance.mode,
        "disabled": state.services.disabled,
        "audit": audit is not None,
        "details": state.details_setting,
        "history": state.history is not None and not state.history.is_broken,
        "auditTrouble": audit.write_failure if audit is not None else None,
        "attention": state.attention(state.rows()),
        **state.connections(),
        "mail": state.mail_server is not None,
        "warnings": [
            state.services.redactor.redact_text(str(warning)) for warning in state.workspace.warnings
        ],
    }


async def children(state: DashboardState, request: ApiRequest) -> object:
    """Return all children. A hundred take some thirty kilobytes."""
    return {"children": state.rows()}


async def savings(state: DashboardState, request: ApiRequest) -> object:
    """Return the savings so far, including the current ones."""
    state.sample_savings()
    saving = ((name, saved) for name, saved in state.savings.suites.items() if saved)
    suites = sorted(saving, key=lambda pair: -pair[1])
    results = ResultCounts()
    for suite in state.gateway.all_suites.values():
        results.add(suite.result_counts() or ResultCounts())
    return {
        "results": results,
        "points": state.savings.points,
        "suites": [{"suite": name, "saved": saved} for name, saved in suites],
        "sessions": sum(state.call_log.callers.values()),
        "introspections": sum(state.call_log.introspections.values()),
        # The former count, which includes sessions without a call; removed in the next release.
        "hosts": state.hosts_served(),
    }


async def memory(state: DashboardState, request: ApiRequest) -> object:
    """Return the memory of the server and its children, and what the sharing of children saves."""
    sessions, children = state.session_list(), child_uses(state.gateway.all_suites.values())
    return await work_thread.run_alone(lambda: measure_memory(os.getpid(), sessions, children))


async def history(state: DashboardState, request: ApiRequest) -> HistoryReport:
    """Return calls, errors, latency and tokens saved over time: since the start, or of a range."""
    name, child = request.query.get("range", ""), request.query.get("child", "")
    recorder = state.history if state.history is not None and not state.history.is_broken else None
    if name and name not in RANGES:
        raise HTTPException(400, f"'range' must be one of {', '.join(RANGES)}.")
    if name and recorder is not None and (name != "5m" or child):
        try:
            return HistoryReport(state.started_ms, await recorder.points(name, child), True)
        except database_errors() as problem:
            raise HTTPException(500, f"The history cannot be read: {problem}.") from None
    since = (time.time() - RANGES[name][0]) * 1000 if name else 0
    points = [
        HistoryPoint(point.at, point.seconds, point.calls, point.errors, point.p50, point.p95)
        for point in state.call_log.timeline.points()
        if not child and point.at + point.seconds * 1000 > since
    ]
    return HistoryReport(state.started_ms, points, False)


def find_child(state: DashboardState, id: str) -> tuple[ChildSuite, Child]:
    """Return the suite and the child, or its process, for the id of a row. Raise 404 if there is none."""
    name, _, place = id.partition("#")
    for suite in state.gateway.all_suites.values():
        if suite.child.name == name:
            kept = suite.child.processes() or [suite.child]
            number = int(place) if place.isascii() and place.isdecimal() and len(place) < 6 else 0
            if number < len(kept):
                return suite, kept[number]
    raise HTTPException(404, f"There is no child '{id[:100]}'.")
