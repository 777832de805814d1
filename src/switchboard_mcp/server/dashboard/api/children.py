"""API endpoints that control children: start, stop, restart, accept drift. All are recorded in the audit log."""

from __future__ import annotations

from msgspec import Struct
from starlette.exceptions import HTTPException

from switchboard_mcp.children import admin
from switchboard_mcp.children.child import Child
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.server.dashboard.api.overview import find_child
from switchboard_mcp.server.dashboard.api.routes import ApiRequest
from switchboard_mcp.server.dashboard.state import DashboardState


class DriftApproval(Struct, forbid_unknown_fields=True):
    """Body of `approve`: the mark of the drift that the viewer has seen."""

    mark: str


async def start(state: DashboardState, request: ApiRequest) -> object:
    """Start a child now."""
    child = _find_child(state, request)
    _require_shared(child)
    return _record_outcome(state, request, child, "start", await child.start_now())


async def stop(state: DashboardState, request: ApiRequest) -> object:
    """Stop a child. Its next call restarts it."""
    child = _find_child(state, request)
    return _record_outcome(state, request, child, "stop", await child.stop_now(_actor(request)))


async def restart(state: DashboardState, request: ApiRequest) -> object:
    """Stop a child, then start it."""
    child = _find_child(state, request)
    _require_shared(child)
    problem = await child.stop_now(_actor(request))
    return _record_outcome(state, request, child, "restart", problem or await child.start_now())


async def approve(state: DashboardState, request: ApiRequest) -> object:
    """Accept the drift of a child into the lock."""
    child = _find_child(state, request)
    seen = request.decode(DriftApproval).mark
    return _record_outcome(
        state, request, child, "lock", admin.accept_drift(child, state.services.workspace, seen), "accepted"
    )


def _find_child(state: DashboardState, request: ApiRequest) -> Child:
    _, child = find_child(state, request.names[0])
    if child.spec.kind == "builtin":
        raise HTTPException(409, f"'{child.name}' is built into Switchboard and cannot be controlled.")
    return child


def _require_shared(child: Child) -> None:
    if child.processes() != [child]:
        raise HTTPException(409, f"'{child.name}' runs once per host and starts when a host calls it.")


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
    records = state.services.records
    if records is not None:
        outcome = problem.code if problem is not None else good
        records.record(CallRecord(kind, _actor(request), child.name, outcome=outcome))
    if problem is not None:
        raise SwitchboardError(problem)
    return {"child": child.name, "state": child.state.value}
