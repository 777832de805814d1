"""Rules for workflows: valid definitions, assignment of parts, and which messages fit a run.

A message belongs to a run if it says so (`metadata.workflow`), or if one member requests something of another: members
cannot leave the run by not naming it. Not aware of where definitions and messages come from.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.mail.path_patterns import REVIEWS, artifact_path
from switchboard_mcp.mail.roles import ROLES, read_role
from switchboard_mcp.mail.workflows.definitions import (
    END,
    Definition,
    Phase,
    WorkflowRun,
    fill_path,
    is_active,
)

# Between members these belong to the run even if it is not named; results and status updates may concern anything.
ASKS = frozenset({"delegate_task", "request_review"})
_WORD = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class DefinitionError(Struct, frozen=True):
    """An error in a definition, and its key."""

    key: str
    message: str


def definition_errors(definition: Definition) -> list[DefinitionError]:
    """Return the errors of a definition that already has the right shape."""
    return [
        *_part_errors(definition),
        *(error for index in range(len(definition.phases)) for error in _phase_errors(definition, index)),
        *_reachability_errors(definition),
    ]


def _part_errors(definition: Definition) -> Iterator[DefinitionError]:
    if not definition.parts:
        yield DefinitionError("parts", "must name at least one part.")
    for part, role in definition.parts.items():
        if not _WORD.fullmatch(part):
            yield DefinitionError(
                f"parts.{part[:40]}", "must be at most 40 lower-case letters, digits, - and _."
            )
        if role and read_role(role) is None:
            yield DefinitionError(
                f"parts.{part}", f"is not a role; use {', '.join(ROLES)}, or leave it empty."
            )
    for index, part in enumerate(definition.distinct):
        if part not in definition.parts:
            yield DefinitionError(
                f"distinct[{index}]", f"there is no part '{part[:40]}'; {_known(definition.parts)}."
            )


def _phase_errors(definition: Definition, index: int) -> Iterator[DefinitionError]:
    phase, key = definition.phases[index], f"phases[{index}]"
    names = [entry.name for entry in definition.phases]
    if phase.name == END or phase.name in names[:index]:
        yield DefinitionError(
            f"{key}.name", f"'{phase.name}' is taken; phase names must be unique and not '{END}'."
        )
    if phase.by not in definition.parts:
        yield DefinitionError(f"{key}.by", f"there is no part '{phase.by[:40]}'; {_known(definition.parts)}.")
    for place, name in enumerate(phase.next):
        if name not in (*names, END):
            yield DefinitionError(
                f"{key}.next[{place}]", f"there is no phase '{name[:40]}'; {_known([*names, END])}."
            )
    for place, name in enumerate(phase.unchanged):
        if name not in names:
            yield DefinitionError(
                f"{key}.unchanged[{place}]", f"there is no phase '{name[:40]}'; {_known(names)}."
            )
    for place, path in enumerate(phase.artifacts):
        if artifact_path(fill_path(path, "id", 1)) != fill_path(path, "id", 1):
            text = "must be a path or pattern inside the workspace, without .. and //; in .switchboard only below"
            yield DefinitionError(f"{key}.artifacts[{place}]", f"{text} {REVIEWS}.")


def _reachability_errors(definition: Definition) -> Iterator[DefinitionError]:
    """Report phases that cannot be reached, or from which the end cannot be reached."""
    phases = definition.phases
    forward: dict[str, list[str]] = {phase.name: definition.transitions(phase) for phase in phases}
    reached = _reachable(phases[0].name, forward)
    for index, phase in enumerate(phases):
        if phase.name not in reached:
            yield DefinitionError(f"phases[{index}].name", f"no phase leads to '{phase.name}'.")
        elif END not in _reachable(phase.name, forward):
            yield DefinitionError(f"phases[{index}].next", f"'{phase.name}' cannot reach '{END}'.")


def _reachable(start: str, transitions: Mapping[str, Iterable[str]]) -> set[str]:
    reachable: set[str] = set()
    ahead = [start]
    while ahead:
        name = ahead.pop()
        if name not in reachable:
            reachable.add(name)
            ahead.extend(transitions.get(name, ()))
    return reachable


def _known(names: Iterable[str]) -> str:
    return f"known: {', '.join(names)}"


def assign_parts(
    definition: Definition, assigned: Mapping[str, str], roles: Mapping[str, str], starter: str
) -> dict[str, str] | Failure:
    """Assign agents to parts: those named, else the only agent in the role; a part that is left goes to the starter.

    `roles` maps all agents to their roles.
    """
    for part in assigned:
        if part not in definition.parts:
            return _refused(
                f"Workflow '{definition.name}' has no part '{part[:80]}'; {_known(definition.parts)}."
            )
    chosen = dict(assigned)
    for part, role in definition.parts.items():
        if part not in chosen and role:
            busy = {
                chosen[other]
                for other in definition.distinct
                if other in chosen and part in definition.distinct
            }
            fitting = [
                name for name, role_name in roles.items() if role_name == read_role(role) and name not in busy
            ]
            if starter in fitting or len(fitting) == 1:
                chosen[part] = starter if starter in fitting else fitting[0]
    left = [part for part in definition.parts if part not in chosen]
    if len(left) == 1 and starter not in chosen.values():
        chosen[left[0]] = starter
        left = []
    if left:
        return _refused(
            f"Workflow '{definition.name}': set in `agents` who is {' and who is '.join(left)}, "
            f'such as {{"{left[0]}":"{starter}"}}.'
        )
    agents = [chosen[part] for part in definition.distinct]
    if len(set(agents)) < len(set(definition.distinct)):
        message = (
            f"In workflow '{definition.name}' {' and '.join(definition.distinct)} must be different agents"
        )
        return _refused(f"{message}, not {', '.join(agents)}.")
    return {part: chosen[part] for part in definition.parts}


class MessageFacts(Struct, frozen=True, kw_only=True):
    """Facts about a message that these decisions need."""

    action: str
    sender: str
    recipient: str
    verified: bool
    workflow: object = None


class RunMembership(Struct, frozen=True):
    """The run and phase a message belongs to, and the role in which its recipient is addressed."""

    run: str
    phase: str
    role: str
    taken: bool = False
    """True if the step in the message was already taken."""


def match_message(
    runs: Collection[WorkflowRun], sending: MessageFacts, at: str
) -> RunMembership | Failure | None:
    """Return the run a message belongs to; None if it belongs to none. A failure refuses the message."""
    if sending.workflow is not None:
        run = next((run for run in runs if run.id == sending.workflow), None)
        if run is None:
            message = f"There is no workflow {str(sending.workflow)[:80]!r} (`metadata.workflow`)."
            return failure("mail_workflow_unknown", message)
        return _match_run(run, sending)
    active = [run for run in runs if is_active(run, at)]
    if sending.action in ASKS:
        for run in active:
            if sending.sender in run.members and sending.recipient in run.members:
                return _match_run(run, sending)
    for run in active:
        if sending.recipient in run.agents.values() and sending.action in run.definition.protects:
            return busy_failure(
                run, sending.recipient, f"accepts no {sending.action} from '{sending.sender}'"
            )
    return None


def busy_failure(run: WorkflowRun, agent: str, reason: str) -> Failure:
    """Return the failure for an agent reserved by a run, with phase and time."""
    message = f"'{agent}' is in workflow '{run.id}' and {reason}. It is in phase '{run.phase}' (turn of '{run.actor}')"
    return failure(
        "mail_agent_busy", f"{message}, and reserves '{agent}' until it ends, at the latest {run.due}."
    )


def _match_run(run: WorkflowRun, sending: MessageFacts) -> RunMembership | Failure:
    """Check that the phase allows the message: a request to its actor, what the actor may send, or a status update."""
    phase = run.current_phase
    if phase is None:
        return _refused(f"Workflow '{run.id}' is {run.status} and takes no more messages.")
    for name in (sending.sender, sending.recipient):
        if name not in run.members:
            return _refused(f"'{name}' has no part in workflow '{run.id}'.")
    if phase.verified and not sending.verified:
        message = f"Phase '{phase.name}' of workflow '{run.id}' only accepts messages from verified senders"
        return _refused(f"{message}; '{sending.sender}' is not verified.")
    asks = sending.action == phase.ask and sending.recipient == run.actor
    tells = sending.action in phase.may_send and sending.sender == run.actor
    if not (asks or tells or sending.action == "status_update"):
        return _refused(f"Workflow '{run.id}' is in phase '{phase.name}': {_phase_takes(run, phase)}.")
    part = phase.by if asks else _part(run, sending.recipient)
    role = run.definition.parts.get(part, "")
    return RunMembership(run.id, phase.name, read_role(role) or "" if role else "")


def _phase_takes(run: WorkflowRun, phase: Phase) -> str:
    may = " or ".join(phase.may_send) or "nothing"
    return (
        f"members may send {phase.ask} to '{run.actor}', '{run.actor}' may send {may} to members, and all may send "
        "status_update"
    )


def _part(run: WorkflowRun, agent: str) -> str:
    return next((part for part, name in run.agents.items() if name == agent), "")


def _refused(message: str) -> Failure:
    return failure("mail_workflow_refused", message)
