"""API endpoints that control children: start, stop, switch, accept drift, call. All are recorded in the audit log."""

from __future__ import annotations

import time
from asyncio import Future, get_running_loop
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct
from starlette.exceptions import HTTPException

from switchboard_mcp import __version__
from switchboard_mcp.children.child import Child
from switchboard_mcp.children.locking import drift_review
from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.gateway.session import http_host
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.gateway.suites.suite_tools import PlainParams
from switchboard_mcp.middleware import is_error
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.server.dashboard.api.child_detail import find_tool
from switchboard_mcp.server.dashboard.api.overview import find_child
from switchboard_mcp.server.dashboard.api.routes import ApiRequest
from switchboard_mcp.server.dashboard.call_details import ShownBody, show_body
from switchboard_mcp.server.dashboard.state import DashboardState
from switchboard_mcp.suites.suite_arguments import SuiteCall
from switchboard_mcp.system import work_thread

# The name of the dashboard as a client.
CLIENT = "dashboard"
MOST_SHOWN_CHARS = 200_000


class TryRequest(Struct, forbid_unknown_fields=True):
    """Body of `try`: a subtool and its arguments."""

    subtool: str
    args: dict[str, Any] = {}


class TriedCall(Struct, frozen=True, rename="camel"):
    """The response to a call, redacted, and its number in the list of calls; 0 if it is not there."""

    result: ShownBody
    is_error: bool
    ms: float
    seq: int


class AnswerChannel:
    """A reply channel whose answer is awaited."""

    backlog = 0

    def __init__(self) -> None:
        self.future: Future[bytes] = get_running_loop().create_future()

    def send(self, message: bytes) -> None:
        """Drop a notification: nobody reads it."""

    def answer(self, message: bytes) -> None:
        """Take the response."""
        if not self.future.done():
            self.future.set_result(message)


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
        state,
        request,
        child,
        "lock",
        drift_review.accept_drift(child, state.services.workspace, seen),
        "accepted",
    )


async def enable(state: DashboardState, request: ApiRequest) -> object:
    """Enable a disabled child in its file. Servers notice the change at once."""
    return await _switch(state, request, disabled=False)


async def disable(state: DashboardState, request: ApiRequest) -> object:
    """Disable a child in its file: hosts no longer see it."""
    return await _switch(state, request, disabled=True)


async def try_subtool(state: DashboardState, request: ApiRequest) -> TriedCall:
    """Call a subtool as a host would: policies, gate, limits and audit apply. Waits for the result."""
    suite, child = find_child(state, request.names[0])
    wanted = request.decode(TryRequest)
    find_tool(suite, child, wanted.subtool)
    view = state.gateway.view_of(request.viewer.principal)
    visible = next(
        (candidate for candidate in view.suites.values() if candidate.source == suite.source), None
    )
    if visible is None:
        raise HTTPException(403, f"The profile of your token does not show '{child.name}'.")
    args = msgspec.json.encode(wanted.args)
    started, first = time.monotonic(), state.call_log.seq
    answer = await _call(
        state, request, visible, SuiteCall(action="call", subtool=wanted.subtool, args=Raw(args))
    )
    ms = round((time.monotonic() - started) * 1000, 3)
    seq = next(
        (
            number
            for number, record in state.call_log.newest_first()
            if number > first and record.client == CLIENT and record.subtool == wanted.subtool
        ),
        0,
    )
    message = msgspec.json.decode(answer, type=RpcMessage)
    result = message.result if message.result is not UNSET else Raw(b"")
    body = bytes(message.error) if message.error is not UNSET else bytes(result)
    shown = await work_thread.run(
        work_thread.OWN, partial(show_body, state.services.redactor, body, MOST_SHOWN_CHARS)
    )
    return TriedCall(shown, message.error is not UNSET or is_error(body), ms, seq)


async def _call(state: DashboardState, request: ApiRequest, suite: ChildSuite, arguments: SuiteCall) -> bytes:
    """Make one call in a session of its own, and return the response."""
    channel = AnswerChannel()
    session = state.gateway.open(channel, http_host("dashboard", request.viewer.principal))
    session.client, session.initialized = CLIENT, True
    session.client_version = __version__
    session.whole_results = True
    try:
        suite.begin(session, channel, b"1", PlainParams(suite.name, arguments))
        return await channel.future
    finally:
        state.gateway.close(session)  # cancels the call if the viewer has left


async def _switch(state: DashboardState, request: ApiRequest, *, disabled: bool) -> object:
    name = request.names[0]
    specs = (*state.workspace.children, *state.workspace.disabled)
    spec = next((spec for spec in specs if spec.name == name and spec.kind != "builtin"), None)
    if spec is None:
        raise HTTPException(404, f"There is no child '{name[:100]}' that can be switched.")
    if state.switch_child is None:
        raise HTTPException(
            409, "This server cannot change files. Run `switchboard disable NAME` in a terminal."
        )
    kind = "disable" if disabled else "enable"
    try:
        changed = await work_thread.run_alone(partial(state.switch_child, spec, disabled=disabled))
        problem = None
    except OSError as error:
        text = f"{spec.source} cannot be written: {error.strerror or error}."
        changed, problem = False, failure("setup_refused", text, child=name)
    except SwitchboardError as error:
        changed, problem = False, error.failure
    _record(state, request, name, kind, problem.code if problem is not None else "ok")
    if problem is not None:
        raise SwitchboardError(problem)
    return {"child": name, "disabled": disabled, "changed": changed, "file": spec.source}


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
    _record(state, request, child.name, kind, problem.code if problem is not None else good)
    if problem is not None:
        raise SwitchboardError(problem)
    return {"child": child.name, "state": child.state.value}


def _record(state: DashboardState, request: ApiRequest, child: str, kind: str, outcome: str) -> None:
    records = state.services.records
    if records is not None:
        records.record(CallRecord(kind, _actor(request), child, outcome=outcome))
