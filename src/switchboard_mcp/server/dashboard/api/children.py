"""The API's orders about children: start, stop, restart, and accept what has drifted. All of it is recorded."""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.children import admin
from switchboard_mcp.children.child import Child
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.server.dashboard.api.overview import find_child
from switchboard_mcp.server.dashboard.api.routes import ApiRequest, RefusedError
from switchboard_mcp.server.dashboard.state import DashboardState


class DriftApproval(Struct, forbid_unknown_fields=True):
    """Which differences were seen."""

    mark: str


async def start(state: DashboardState, request: ApiRequest) -> object:
    """Start a child now."""
    child = _find_child(state, request)
    _require_shared(child)
    return _record_outcome(state, request, child, "start", await admin.start(child))


async def stop(state: DashboardState, request: ApiRequest) -> object:
    """Stop a child; its next call starts it anew."""
    child = _find_child(state, request)
    return _record_outcome(state, request, child, "stop", await admin.stop(child, _actor(request)))


async def restart(state: DashboardState, request: ApiRequest) -> object:
    """Stop a child, then start it."""
    child = _find_child(state, request)
    _require_shared(child)
    problem = await admin.stop(child, _actor(request))
    return _record_outcome(state, request, child, "restart", problem or await admin.start(child))


async def approve(state: DashboardState, request: ApiRequest) -> object:
    """Take what a child offers now as its lock."""
    child = _find_child(state, request)
    seen = request.decode(DriftApproval).mark
    return _record_outcome(state, request, child, "lock", admin.accept(child, seen), "accepted")


def _find_child(state: DashboardState, request: ApiRequest) -> Child:
    _, child = find_child(state, request.names[0])
    if child.spec.kind == "builtin":
        raise RefusedError(409, f"'{child.name}' is a part of Switchboard: it runs as long as that does.")
    return child


def _require_shared(child: Child) -> None:
    if child.processes() != [child]:
        raise RefusedError(409, f"'{child.name}' runs once for each host, and starts when a host calls it.")


def _actor(request: ApiRequest) -> str:
    return f"dashboard {request.viewer.principal}".strip()


def _record_outcome(
    state: DashboardState,
    request: ApiRequest,
    child: Child,
    kind: str,
    problem: Failure | None,
    good: str = "ok",
) -> object:
    audit = state.services.audit
    if audit is not None:
        audit.record(kind, _actor(request), child.name, outcome=problem.code if problem is not None else good)
    if problem is not None:
        raise SwitchboardError(problem)
    return {"child": child.name, "state": child.state.value}
