"""A thread as shown by the tools: short, with what a late joiner needs. No model is involved."""

from __future__ import annotations

from switchboard_mcp.mail.conversations.threads import Thread, is_open
from switchboard_mcp.mail.messages import StoredMessage
from switchboard_mcp.mail.presentation import message_view, summary_view
from switchboard_mcp.mail.workflows import notices
from switchboard_mcp.mail.workflows.definitions import WorkflowRun


def thread_view(thread: Thread, limit: int, *, full: bool = False) -> dict[str, object]:
    """Return a thread with its newest messages, what is open, and what its workflow has produced."""
    shown = thread.messages[-limit:]
    view: dict[str, object] = {"thread": thread.id}
    if thread.subject:
        view["subject"] = thread.subject
    view["members"] = thread.members
    open_messages = [
        f"{item.message.id} ({item.message.recipient})" for item in thread.messages if is_open(item)
    ]
    if open_messages:
        view["open"] = open_messages[-limit:]
    if thread.run is not None:
        view["workflow"] = run_summary(thread.run)
    if len(thread.messages) > len(shown):
        view["earlier"] = len(thread.messages) - len(shown)
    view["messages"] = [_message(stored, full) for stored in shown]
    return view


def _message(stored: StoredMessage, full: bool) -> dict[str, object]:
    view = message_view(stored.message) if full else summary_view(stored)
    return {**view, "to": stored.message.recipient, "state": stored.outcome or stored.place}


def run_summary(run: WorkflowRun) -> dict[str, object]:
    """Return what happened in a workflow and the files it produced, newest version of each."""
    files = {artifact.path: artifact.sha256 for step in run.steps for artifact in step.artifacts}
    view: dict[str, object] = {"id": run.id, "status": run.status, "parts": run.agents}
    if run.current_phase is not None:
        view |= {"phase": run.current_phase.name, "turn": run.actor, "needs": run.needs()}
    view["history"] = notices.history(run).splitlines()
    if files:
        view["artifacts"] = [{"path": path, "sha256": digest} for path, digest in files.items()]
    return view
