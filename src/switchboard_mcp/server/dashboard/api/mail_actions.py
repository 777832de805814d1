"""API endpoints that act on mail: send as the overseer, approve or reject a pending `execute`.

The overseer is the person at the dashboard; a viewer with a named token sends under that name. An approved `execute`
is sent again in the overseer's name, who may have terminals type, and the original message is acknowledged.
"""

from __future__ import annotations

from msgspec import Struct
from starlette.exceptions import HTTPException

from switchboard_mcp.config.agent_names import OVERSEER
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.conversations.threads import join
from switchboard_mcp.mail.messages import Action, Draft, Priority, Sent, StoredMessage
from switchboard_mcp.mail.overseer import register_overseer
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.server.dashboard.api.mail import require_mail
from switchboard_mcp.server.dashboard.api.routes import ApiRequest
from switchboard_mcp.server.dashboard.dashboard_access import ADMIN
from switchboard_mcp.server.dashboard.state import DashboardState

OPEN = ("inbox", "claimed")
MAX_SUBJECT_CHARS = 200


class SendRequest(Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Body of `send`. `to` is an agent, or `team:` and the name of a team."""

    to: str
    payload: str
    action: Action = "status_update"
    priority: Priority = "normal"
    reply_to: str | None = None
    subject: str = ""
    ack_by: str | None = None
    """The deadline, as an ISO 8601 time."""


class ExecuteRejection(Struct, forbid_unknown_fields=True):
    """Body of `reject`."""

    reason: str = ""


async def send(state: DashboardState, request: ApiRequest) -> object:
    """Send a message to an agent or a team."""
    store = await require_mail(state).store()
    order = request.decode(SendRequest)
    if not order.payload.strip():
        raise HTTPException(400, "The message is empty.")
    if order.action == "execute" and not request.viewer.has(ADMIN):
        raise HTTPException(403, "An `execute` runs a command. Use a token whose dashboard access is admin.")
    sender = await _sender(store, request)
    draft = Draft(
        action=order.action,
        payload=order.payload,
        priority=order.priority,
        reply_to=order.reply_to,
        ack_by=order.ack_by,
        metadata={"subject": order.subject[:MAX_SUBJECT_CHARS]} if order.subject.strip() else {},
    )
    draft = await join(store, sender, draft, order.to)
    if not order.to.startswith("team:"):
        sent = await store.send(draft, sender=sender, recipient=order.to, from_dashboard=True)
        _record(state, request, "send", sent.recipient, "ok")
        return {"sent": [sent.id]}
    team = agent_registry.parse_name(order.to.removeprefix("team:"))
    recipients = [
        addressee.agent for addressee in agent_registry.addressees(await store.state(), team, None, sender)
    ]
    draft.team = team
    outcomes = await store.send_to_many(draft, sender=sender, recipients=recipients, from_dashboard=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    if len(refused) == len(outcomes):
        raise SwitchboardError(refused[0])
    _record(state, request, "send", team, "ok")
    return {"sent": [outcome.id for outcome in outcomes if isinstance(outcome, Sent)], "refused": refused}


async def requeue(state: DashboardState, request: ApiRequest) -> object:
    """Return a dead letter to the inbox of its agent."""
    store = await require_mail(state).store()
    agent, id = agent_registry.parse_name(request.names[0]), request.names[1]
    await store.requeue(agent, id)
    _record(state, request, "requeue", agent, "ok")
    return {"agent": agent, "id": id}


async def approve(state: DashboardState, request: ApiRequest) -> object:
    """Approve an `execute`: a terminal types its payload."""
    store = await require_mail(state).store()
    stored = await _pending_execute(store, request)
    message = stored.message
    sender = await _sender(store, request)
    if message.sender == sender:
        raise HTTPException(409, "You sent this message yourself. Another person must approve it.")
    # Two approvals send one message.
    draft = Draft(
        action="execute",
        payload=message.payload,
        idempotency_key=f"approved {message.id}",
        metadata={"approves": message.id, "askedBy": message.sender},
    )
    sent = await store.send(draft, sender=sender, recipient=message.recipient, from_dashboard=True)
    summary = f"Approved by {sender}, and sent as {sent.id}."
    await store.ack(message.recipient, message.id, outcome="done", summary=summary)
    _record(state, request, "execute", message.recipient, "approved")
    return {"sent": [sent.id]}


async def reject(state: DashboardState, request: ApiRequest) -> object:
    """Reject an `execute`."""
    store = await require_mail(state).store()
    stored = await _pending_execute(store, request)
    reason = request.decode(ExecuteRejection).reason[:1000]
    sender = await _sender(store, request)
    summary = f"Rejected by {sender}." + (f" {reason}" if reason else "")
    await store.ack(stored.message.recipient, stored.message.id, outcome="rejected", summary=summary)
    _record(state, request, "execute", stored.message.recipient, "rejected")
    return {"rejected": stored.message.id}


async def _pending_execute(store: MessageStore, request: ApiRequest) -> StoredMessage:
    agent, id = request.names
    stored = await store.read(agent, id)
    if stored.message.action != "execute" or stored.place not in OPEN:
        raise HTTPException(409, "This message is not an `execute`, or it was already decided.")
    return stored


async def _sender(store: MessageStore, request: ApiRequest) -> str:
    """Return the sending agent, registered if needed so that it can receive replies."""
    name = agent_registry.parse_name(request.viewer.principal or OVERSEER)
    await register_overseer(store, name)
    return name


def _record(state: DashboardState, request: ApiRequest, kind: str, recipient: str, outcome: str) -> None:
    records = state.services.records
    if records is not None:
        actor = f"dashboard {request.viewer.principal}".strip()
        records.record(CallRecord(kind, actor, "mail", recipient, outcome=outcome))
