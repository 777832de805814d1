"""API endpoints that approve a child for governed mode, as `switchboard approve CHILD` does: look, then approve.

What is approved is computed again, and written only if it is what the viewer has seen. It reads every file that the
child runs, so it works in a thread of its own.
"""

from __future__ import annotations

from functools import partial

from msgspec import Struct
from msgspec.json import encode
from starlette.exceptions import HTTPException

from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.policy.approved_settings import settings_in, suite_status
from switchboard_mcp.policy.governance import make_launch_policy
from switchboard_mcp.policy.launch.child_approval import (
    ChildProposal,
    approval_remarks,
    ascii_form,
    describe_approval,
    propose_child,
    record_approval,
)
from switchboard_mcp.policy.launch.rules import LaunchPolicy
from switchboard_mcp.server.dashboard.api.routes import ApiRequest
from switchboard_mcp.server.dashboard.state import DashboardState
from switchboard_mcp.suites.sanitize import clean
from switchboard_mcp.system import work_thread


class ApprovalRequest(Struct, forbid_unknown_fields=True):
    """Body of the approval of a child: the mark of what the viewer has seen."""

    mark: str


class ShownFact(Struct, frozen=True, omit_defaults=True):
    """One line of what is approved. `plain` has escapes for characters that may look like others."""

    name: str
    value: str
    plain: str = ""


class ShownApproval(Struct, frozen=True):
    """What an approval of a child would record. `mark` approves exactly this."""

    child: str
    file: str
    facts: list[ShownFact]
    remarks: list[str]
    mark: str


async def propose(state: DashboardState, request: ApiRequest) -> ShownApproval:
    """Return what an approval of the child would record. Nothing is started."""
    proposal, _ = await work_thread.run_alone(partial(_propose, state, request.names[0]))
    rows = describe_approval(proposal.spec, proposal.approval)
    rows += [
        ("setting", f"{proposal.suite.name}: {f'{key} = ' if key else ''}{encode(value).decode()}")
        for key, value in (settings_in(proposal.suite.value) if proposal.suite.value else ())
    ]
    redact = state.services.redactor.redact_text
    return ShownApproval(
        proposal.spec.name,
        proposal.spec.source,
        [ShownFact(name, clean(redact(value)), clean(ascii_form(value))) for name, value in rows],
        [clean(remark) for remark in approval_remarks(proposal.approval, proposal.before)],
        proposal.mark,
    )


async def approve(state: DashboardState, request: ApiRequest) -> object:
    """Record that the child may run as the viewer has seen it."""
    name, mark = request.names[0], request.decode(ApprovalRequest).mark
    problem = await work_thread.run_alone(partial(_approve, state, name, mark))
    records = state.services.records
    if records is not None:
        actor = f"dashboard {request.viewer.principal}".strip()
        outcome = problem.code if problem is not None else "approved"
        records.record(CallRecord("approval", actor, name, outcome=outcome))
    if problem is not None:
        raise SwitchboardError(problem)
    return {"child": name, "approved": True}


def _approve(state: DashboardState, name: str, mark: str) -> Failure | None:
    """Write the approval, if it is still the one with this mark; else return the failure."""
    try:
        proposal, policy = _propose(state, name)
        if proposal.mark != mark:
            message = f"What child '{name}' runs has changed since it was shown."
            return failure("launch_refused", message, child=name, hint="Look at it again, then approve it.")
        record_approval(proposal, policy)
    except SwitchboardError as problem:
        return problem.failure
    return None


def _propose(state: DashboardState, name: str) -> tuple[ChildProposal, LaunchPolicy]:
    """Return the approval of a child as it is configured now. The files are read anew: a reload may be under way."""
    environ = state.services.environ
    workspace = load_workspace(
        state.workspace.folder, state.workspace.source or None, environ, originals=True
    )
    if workspace.written_config.governance.mode == "open":
        raise HTTPException(409, "This workspace is not governed: no child needs an approval.")
    spec = next(
        (
            candidate
            for candidate in workspace.children
            if candidate.name == name and candidate.kind != "builtin"
        ),
        None,
    )
    if spec is None:
        raise HTTPException(404, f"There is no child '{name[:100]}' in the config.")
    policy = make_launch_policy(workspace, environ)
    suite = suite_status(workspace.written_config, name, policy.approvals)
    proposal = propose_child(spec, suite, policy)
    if isinstance(proposal, Failure):
        raise SwitchboardError(proposal)
    return proposal, policy
