"""Workflow notices: to the agent whose turn it is, to the others at the end, and views of a run for tools.

Every notice has an idempotency key for its step, so sending it twice stores it once. Makes no decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.workflows.artifact_files import write_record
from switchboard_mcp.mail.workflows.definitions import Definition, WorkflowRun, WorkflowStep


def record_name(run: WorkflowRun) -> str:
    """Return the name of the record file of a run in the reviews folder."""
    return f"{run.id}.json"


def thread_of(run: str) -> str:
    """Return the id of the thread that holds all notices of a run."""
    return f"msg_workflow-{run}"


async def send_notices(store: MessageStore, run: WorkflowRun) -> list[str]:
    """Send the notices for the current state of a run; returns warnings about what failed."""
    last = run.steps[-1] if run.steps else None
    sender = (last.by if last else "") or run.started_by
    verified = not (last.unverified if last else run.unverified)
    key = f"workflow {run.id} {len(run.steps)}"
    if run.status == "running":
        phase = run.current_phase
        if phase is None or run.actor == sender:
            return []
        draft = Draft(
            action=phase.ask,
            payload=turn_notice(run),
            metadata={"workflow": run.id},
            idempotency_key=key,
            thread=thread_of(run.id),
        )
        return await _send_all(store, draft, sender, [run.actor], verified)
    warnings = await _store_record(store, run)
    metadata = {"workflowRecord": f".switchboard/reviews/{record_name(run)}"}
    text = f"{_title(run)} is {run.status}.\n{history(run)}"
    update = Draft(
        action="status_update",
        payload=text,
        metadata=metadata,
        idempotency_key=key,
        thread=thread_of(run.id),
    )
    others = sorted(run.members - {sender, run.started_by})
    warnings += await _send_all(store, update, sender, others, verified)
    if run.started_by != sender:
        # The starter waits for the outcome.
        result = msgspec.structs.replace(update, action="submit_result")
        warnings += await _send_all(store, result, sender, [run.started_by], verified)
    return warnings


async def _send_all(
    store: MessageStore, draft: Draft, sender: str, recipients: list[str], verified: bool
) -> list[str]:
    warnings = []
    for recipient in recipients:
        try:
            await store.send(draft, sender=sender, recipient=recipient, verified=verified)
        except SwitchboardError as problem:
            warnings.append(f"Could not notify '{recipient}': {problem.failure.message}")
    return warnings


async def _store_record(store: MessageStore, run: WorkflowRun) -> list[str]:
    record = msgspec.json.format(msgspec.json.encode({"workflow": run, "version": 1}), indent=2) + b"\n"
    try:
        await asyncio.to_thread(write_record, store.path, record_name(run), record)
    except SwitchboardError as problem:
        return [f"Could not write the record: {problem.failure.message}"]
    return []


def turn_notice(run: WorkflowRun) -> str:
    """Return the notice for the agent whose turn it is."""
    phase = run.current_phase
    if phase is None:
        return f"{_title(run)} is {run.status}."
    lines = [f"{_title(run)}: phase '{phase.name}', your part is {phase.by}.", phase.does]
    if run.needs():
        lines.append(f"Required artifacts: {', '.join(run.needs())}")
    transitions = run.definition.transitions(phase)
    next_argument = f',"next":"{"|".join(transitions)}"' if len(transitions) > 1 else ""
    workflow = f'"workflow":"{run.id}"'
    lines.append(
        f'When it is done: complete_workflow_phase {{{workflow},"phase":"{phase.name}"{next_argument}}}'
    )
    action = phase.may_send[0] if phase.may_send else "status_update"
    lines.append(
        f'Without tools: a {action} with "metadata":{{{workflow},"completes":"{phase.name}"{next_argument}}}'
    )
    if run.steps:
        lines.append(f"So far:\n{history(run)}")
    return "\n".join(lines)


def run_view(run: WorkflowRun, agent: str = "") -> dict[str, object]:
    """Return a run as shown by the tools."""
    view: dict[str, object] = {
        "workflow": run.id,
        "subject": run.subject,
        "status": run.status,
        "agents": run.agents,
        "startedBy": run.started_by,
    }
    phase = run.current_phase
    if phase is not None:
        view |= {"phase": phase.name, "round": run.round(phase.name), "actor": run.actor, "does": phase.does}
        view |= {"needs": run.needs(), "next": run.definition.transitions(phase), "heldUntil": run.due}
        view |= {"phases": [entry.name for entry in run.definition.phases]}
        if agent:
            view["yourTurn"] = run.actor == agent
    else:
        view["record"] = f".switchboard/reviews/{record_name(run)}"
    return {key: value for key, value in view.items() if value != ""} | {"steps": run.steps}


def definitions_view(definitions: Mapping[str, Definition | Failure]) -> list[dict[str, object]]:
    """Return the available definitions as shown by the tools."""
    return [
        {"name": name, "error": definition.message}
        if isinstance(definition, Failure)
        else {"name": name, "description": definition.description, "parts": definition.parts}
        for name, definition in sorted(definitions.items())
    ]


def _title(run: WorkflowRun) -> str:
    return f"Workflow {run.id} ({run.subject})" if run.subject else f"Workflow {run.id}"


def history(run: WorkflowRun) -> str:
    """Return the steps so far, one line each."""
    return "\n".join(f"- {_line(step)}" for step in run.steps)


def _line(step: WorkflowStep) -> str:
    line = f"{step.phase} {step.how}" + (f" by {step.by}" if step.by else "")
    line += " (unverified)" if step.unverified else ""
    line += f", on to {step.to}" if step.to else ""
    if step.reason or step.note:
        line += f": {step.reason or step.note}"
    files = ", ".join(f"{artifact.path} (sha256 {artifact.sha256[:12]}…)" for artifact in step.artifacts)
    return f"{line} [{files}]" if files else line
