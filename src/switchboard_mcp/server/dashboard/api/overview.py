"""The API's answers about the server, its children, what they save, and calls. Looks only: nothing is started."""

from __future__ import annotations

import os
import time

from switchboard_mcp import __version__
from switchboard_mcp.children.admin import drift, mark
from switchboard_mcp.children.child import Child
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.mail.roles import OVERSEER
from switchboard_mcp.server.dashboard.api.routes import ApiRequest, RefusedError
from switchboard_mcp.server.dashboard.state import DashboardState
from switchboard_mcp.suites.summary import summarise

SUMMARY_CHARS = 300


async def overview(board: DashboardState, asked: ApiRequest) -> object:
    """What the frame of the page needs."""
    audit, governance = board.services.audit, board.workspace.config.governance
    return {
        "version": __version__,
        "pid": os.getpid(),
        "startedAt": board.began_ms,
        "now": int(time.time() * 1000),
        "workspace": board.workspace.folder,
        "viewer": asked.viewer.principal or "the token of this start",
        "sender": asked.viewer.principal or OVERSEER,
        "mayAct": asked.viewer.may_act,
        "sessions": board.sessions(),
        "hostsServed": board.hosts(),
        "mode": governance.mode,
        "disabled": board.services.disabled,
        "audit": audit is not None,
        "auditTrouble": audit.trouble if audit is not None else None,
        "mail": board.desk is not None,
        "warnings": [board.services.redactor.text(str(warning)) for warning in board.workspace.warnings],
    }


async def children(board: DashboardState, asked: ApiRequest) -> object:
    """All of them: a hundred are some thirty kilobytes."""
    return {"children": board.rows()}


async def child(board: DashboardState, asked: ApiRequest) -> object:
    """One, in full."""
    suite, found = find(board, asked.names[0])
    changes = drift(found)
    row = next(row for row in board.rows() if row["id"] == asked.names[0])
    spec = found.spec
    tools = suite.permitted(found.inventory.known_tools()) if found.snapshot is not None else []
    return {
        **row,
        "source": spec.source,
        "command": board.services.redactor.text(spec.command or spec.url),
        "weight": suite.weighed().weight if found.snapshot is not None else None,
        "subtoolList": [
            {"name": tool.name, "summary": summarise(tool.description or "", SUMMARY_CHARS)} for tool in tools
        ],
        "driftMark": mark(changes) if changes else "",
        "driftChanges": [{"tool": change.tool, "told": change.told()} for change in changes],
    }


async def savings(board: DashboardState, asked: ApiRequest) -> object:
    """The series so far, with a point for now."""
    board.look_at_savings()
    found = ((name, saved) for name, saved in board.savings.suites.items() if saved)
    suites = sorted(found, key=lambda pair: -pair[1])
    return {
        "points": board.savings.points,
        "suites": [{"suite": name, "saved": saved} for name, saved in suites],
        "hosts": board.hosts(),
    }


async def calls(board: DashboardState, asked: ApiRequest) -> object:
    """Those after `after`, oldest first."""
    after = asked.number("after", 0, 1 << 53)
    return {"calls": board.live.since(after)}


async def history(board: DashboardState, asked: ApiRequest) -> object:
    """How calls went, from the start on."""
    return {"startedAt": board.began_ms, "points": board.live.timeline.points()}


def find(board: DashboardState, id: str) -> tuple[ChildSuite, Child]:
    """The child, or the process of one, that an id of a row means."""
    name, _, place = id.partition("#")
    for suite in board.gateway.all.values():
        if suite.child.name == name:
            kept = suite.child.processes() or [suite.child]
            number = int(place) if place.isascii() and place.isdecimal() and len(place) < 6 else 0
            if number < len(kept):
                return suite, kept[number]
    raise RefusedError(404, f"There is no child '{id[:100]}'.")
