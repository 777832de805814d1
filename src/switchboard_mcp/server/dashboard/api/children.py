"""The API's orders about children: start, stop, restart, and accept what has drifted. All of it is recorded."""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.children import admin
from switchboard_mcp.children.child import Child
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.server.dashboard.api.overview import find
from switchboard_mcp.server.dashboard.api.routes import ApiRequest, RefusedError
from switchboard_mcp.server.dashboard.state import DashboardState


class DriftApproval(Struct, forbid_unknown_fields=True):
    """Which differences were seen."""

    mark: str


async def start(board: DashboardState, asked: ApiRequest) -> object:
    """Start a child now."""
    child = _meant(board, asked)
    _demand_shared(child)
    return _done(board, asked, child, "start", await admin.start(child))


async def stop(board: DashboardState, asked: ApiRequest) -> object:
    """Stop a child; its next call starts it anew."""
    child = _meant(board, asked)
    return _done(board, asked, child, "stop", await admin.stop(child, _who(asked)))


async def restart(board: DashboardState, asked: ApiRequest) -> object:
    """Stop a child, then start it."""
    child = _meant(board, asked)
    _demand_shared(child)
    problem = await admin.stop(child, _who(asked))
    return _done(board, asked, child, "restart", problem or await admin.start(child))


async def approve(board: DashboardState, asked: ApiRequest) -> object:
    """Take what a child offers now as its lock."""
    child = _meant(board, asked)
    seen = asked.read(DriftApproval).mark
    return _done(board, asked, child, "lock", admin.accept(child, seen), "accepted")


def _meant(board: DashboardState, asked: ApiRequest) -> Child:
    _, child = find(board, asked.names[0])
    if child.spec.kind == "builtin":
        raise RefusedError(409, f"'{child.name}' is a part of Switchboard: it runs as long as that does.")
    return child


def _demand_shared(child: Child) -> None:
    if child.processes() != [child]:
        raise RefusedError(409, f"'{child.name}' runs once for each host, and starts when a host calls it.")


def _who(asked: ApiRequest) -> str:
    return f"dashboard {asked.viewer.principal}".strip()


def _done(
    board: DashboardState,
    asked: ApiRequest,
    child: Child,
    kind: str,
    problem: Failure | None,
    good: str = "ok",
) -> object:
    audit = board.services.audit
    if audit is not None:
        audit.record(kind, _who(asked), child.name, outcome=problem.code if problem is not None else good)
    if problem is not None:
        raise SwitchboardError(problem)
    return {"child": child.name, "state": child.state.value}
