"""Delivery rule for workflows: messages of a run must fit its phase, and its members are protected from others.

A message that ends a phase takes the step here, in the transaction that accepts the message (see `message_steps`). Runs
in the writer thread.
"""

from __future__ import annotations

import msgspec

from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.agent_registry import now
from switchboard_mcp.mail.messages import DeliveryRule, MailMessage, SharedState
from switchboard_mcp.mail.workflows.definitions import WorkflowRun
from switchboard_mcp.mail.workflows.rules import MessageFacts, RunMembership, match_message


class WorkflowRule:
    """Applies the runs of one workspace to messages; `folder` is its `.switchboard`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._version: dict[str, bytes] = {}
        self._known: list[WorkflowRun] = []

    def apply(self, message: MailMessage, state: SharedState) -> MailMessage | Failure:
        """Tag a message that belongs to a run, or return why it may not be sent now."""
        runs = self._current(state)
        named = message.metadata.get("workflow")
        if not runs and named is None:
            return message
        sending = MessageFacts(
            action=message.action,
            sender=message.sender,
            recipient=message.recipient,
            verified=message.verified,
            workflow=named,
        )
        membership = _already_taken(runs, message) or match_message(runs, sending, now())
        if not isinstance(membership, RunMembership):
            return membership or message
        if named is not None and "completes" in message.metadata and not membership.taken:
            from switchboard_mcp.mail.workflows.message_steps import take_step  # Rarely needed.

            problem = take_step(self._folder, message, membership.run, state)
            if problem is not None:
                return problem
        tags = {"workflow": membership.run, "phase": membership.phase}
        if membership.role:
            tags["role"] = membership.role
        # The next rule adds the persona of the part, whatever the sender has set.
        return msgspec.structs.replace(message, metadata={**message.metadata, **tags}, persona=None)

    def _current(self, state: SharedState) -> list[WorkflowRun]:
        version = state.section("workflows")
        if version != self._version:
            self._known, self._version = _read(version), version
        return self._known


def _already_taken(runs: list[WorkflowRun], message: MailMessage) -> RunMembership | None:
    """Return the membership of a message whose step was already taken: it is delivered again after a crash."""
    for run in runs:
        for step in run.steps:
            same = step.via == message.unique_key and step.by == message.sender
            if same and message.metadata.get("completes") == step.phase:
                return RunMembership(run.id, step.phase, "", taken=True)
    return None


def delivery_rule(folder: str) -> DeliveryRule:
    """Return the workflow rule of a workspace."""
    return WorkflowRule(folder).apply


def _read(section: dict[str, bytes]) -> list[WorkflowRun]:
    runs = []
    for entry in section.values():
        try:
            runs.append(msgspec.json.decode(entry, type=WorkflowRun))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # From another version or edited by hand: an unreadable run reserves no agents.
    return runs
