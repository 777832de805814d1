"""Delivery rule for workflows: messages of a run must fit its phase, and its members are protected from others.

A message that ends a phase takes the step here (see `message_steps`). Runs are read from the state file and cached
while it is unchanged; if it cannot be read, the last known runs or the previous version count. Runs in the writer
thread.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.agent_registry import now
from switchboard_mcp.mail.messages import DeliveryRule, MailMessage
from switchboard_mcp.mail.store.workspace_state import BEFORE, FILE
from switchboard_mcp.mail.workflows.definitions import WorkflowRun
from switchboard_mcp.mail.workflows.rules import MessageFacts, RunMembership, match_message

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _State(Struct):
    workflows: dict[str, Raw] = {}


class WorkflowRule:
    """Applies the runs of one workspace to messages; `folder` is its `.switchboard`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._version: object = None
        self._known: list[WorkflowRun] | None = None

    def apply(self, message: MailMessage) -> MailMessage | Failure:
        """Tag a message that belongs to a run, or return why it may not be sent now."""
        runs = self._current()
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

            problem = take_step(self._folder, message, membership.run)
            if problem is not None:
                return problem
        tags = {"workflow": membership.run, "phase": membership.phase}
        if membership.role:
            tags["role"] = membership.role
        # The next rule adds the persona of the part, whatever the sender has set.
        return msgspec.structs.replace(message, metadata={**message.metadata, **tags}, persona=None)

    def _current(self) -> list[WorkflowRun]:
        version = _file_version(os.path.join(self._folder, FILE))
        if self._known is None or version != self._version:
            runs = _read(os.path.join(self._folder, FILE))
            if runs is None and self._known is None:
                runs = _read(os.path.join(self._folder, BEFORE))
            if runs is not None:
                self._known = runs
            self._version = version
        return self._known or []


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


def _file_version(path: str) -> object:
    try:
        info = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return info.st_ino, info.st_size, info.st_mtime_ns


def _read(path: str) -> list[WorkflowRun] | None:
    """Read the runs from a state file; None if it cannot be read."""
    try:
        with open(os.open(path, _READ), "rb") as file:
            state = msgspec.json.decode(file.read(), type=_State)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    runs = []
    for raw in state.workflows.values():
        try:
            runs.append(msgspec.json.decode(raw, type=WorkflowRun))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # From another version or edited by hand: an unreadable run reserves no agents.
    return runs
