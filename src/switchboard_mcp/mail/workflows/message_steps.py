"""Workflow steps taken by message: how an agent that only has files ends its phase.

The message belongs to a run and names the phase in `metadata.completes`. The step follows the same rules as one taken
by tool, in the transaction that accepts the message; a refused step refuses the message. The step stores the message's
id and recipient, so a message that is imported again takes no second step. The importing process sends the notices.
Runs in the writer thread.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.mail.messages import MailMessage, SharedState
from switchboard_mcp.mail.workflows import engine
from switchboard_mcp.mail.workflows.artifact_files import scan
from switchboard_mcp.mail.workflows.definitions import WorkflowRun
from switchboard_mcp.mail.workflows.steps import Complete, Event, Skip

# The message has the full text; the record keeps the beginning.
NOTE_CHARS = 200


class StepMetadata(Struct, rename="camel"):
    """Step arguments in the message metadata, as for the tool."""

    completes: str
    next: str = ""
    artifacts: list[str] = []
    skip_reason: str = ""


def take_step(folder: str, message: MailMessage, run_id: str, shared: SharedState) -> Failure | None:
    """Take the step, or return why not; `folder` is the workspace's `.switchboard`."""
    try:
        metadata = msgspec.convert(message.metadata, StepMetadata)
    except msgspec.ValidationError as problem:
        text = (
            f"The metadata for ending a phase (completes, next, artifacts, skipReason) is invalid: {problem}."
        )
        return failure("mail_message_invalid", text)

    def change(state: dict[str, object]) -> None:
        run = engine.find(state, message.sender, run_id)
        leads = engine.is_lead(state, message.sender)
        event = _event(os.path.dirname(folder), run, message, metadata, leads=leads)
        engine.state_change(run, event)(state)

    try:
        shared.update(change)
    except SwitchboardError as refused:
        return refused.failure
    return None


def _event(
    workspace: str, run: WorkflowRun, message: MailMessage, metadata: StepMetadata, *, leads: bool
) -> Event:
    when = engine.moment(run.definition.idle_minutes)
    if metadata.skip_reason:
        return Skip(
            phase=metadata.completes,
            by=message.sender,
            when=when,
            reason=metadata.skip_reason,
            next=metadata.next,
            leads=leads,
            verified=message.verified,
            via=message.unique_key,
        )
    named = engine.parse_artifacts(metadata.artifacts)
    return Complete(
        phase=metadata.completes,
        by=message.sender,
        when=when,
        found=scan(workspace, [*run.scan_paths(), *named]),
        named=named,
        next=metadata.next,
        note=" ".join(message.payload[:NOTE_CHARS].split()),
        verified=message.verified,
        via=message.unique_key,
    )
