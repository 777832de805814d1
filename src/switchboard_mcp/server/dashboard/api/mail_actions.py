"""The API's orders about mail: send as the overseer, and decide on an `execute` that waits.

The overseer is the person at the dashboard. Whoever comes with a named token sends under that name. An `execute` that
is approved is sent anew in the overseer's name, who may have terminals type; the message that asked for it is settled.
"""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.messages import Action, Draft, Priority, Sent, StoredMessage
from switchboard_mcp.mail.roles import OVERSEER
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.server.dashboard.api.mail import desk_of
from switchboard_mcp.server.dashboard.api.routes import ApiRequest, RefusedError
from switchboard_mcp.server.dashboard.state import DashboardState

OPEN = ("inbox", "claimed")


class SendRequest(Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """What is sent, and to whom: `to` is an agent, or `team:` and the name of a team."""

    to: str
    payload: str
    action: Action = "status_update"
    priority: Priority = "normal"
    reply_to: str | None = None


class ExecuteRejection(Struct, forbid_unknown_fields=True):
    """Why an `execute` is refused."""

    reason: str = ""


async def send(board: DashboardState, asked: ApiRequest) -> object:
    """One message, to an agent or to all of a team."""
    post = await desk_of(board).post()
    head = asked.read(SendRequest)
    if not head.payload.strip():
        raise RefusedError(400, "There is nothing written in it.")
    sender = await _sender(post, asked)
    draft = Draft(action=head.action, payload=head.payload, priority=head.priority, reply_to=head.reply_to)
    if not head.to.startswith("team:"):
        sent = await post.send(draft, sender=sender, recipient=head.to)
        _note(board, asked, "send", sent.recipient, "ok")
        return {"sent": [sent.id]}
    team = agent_registry.read_name(head.to.removeprefix("team:"))
    people = [each.agent for each in agent_registry.addressees(await post.state(), team, None, sender)]
    draft.team = team
    outcomes = await post.send_to_many(draft, sender=sender, recipients=people)
    refused = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    if len(refused) == len(outcomes):
        raise SwitchboardError(refused[0])
    _note(board, asked, "send", team, "ok")
    return {"sent": [outcome.id for outcome in outcomes if isinstance(outcome, Sent)], "refused": refused}


async def approve(board: DashboardState, asked: ApiRequest) -> object:
    """Have a terminal type what somebody asked for."""
    post = await desk_of(board).post()
    letter = await _waiting(post, asked)
    message = letter.message
    sender = await _sender(post, asked)
    if message.sender == sender:
        raise RefusedError(409, "You sent it yourself: there is nothing to approve.")
    # The key makes of two approvals one.
    draft = Draft(
        action="execute",
        payload=message.payload,
        idempotency_key=f"approved {message.id}",
        metadata={"approves": message.id, "askedBy": message.sender},
    )
    sent = await post.send(draft, sender=sender, recipient=message.recipient)
    told = f"Approved by {sender}, and sent as {sent.id}."
    await post.ack(message.recipient, message.id, outcome="done", summary=told)
    _note(board, asked, "execute", message.recipient, "approved")
    return {"sent": [sent.id]}


async def reject(board: DashboardState, asked: ApiRequest) -> object:
    """Do not."""
    post = await desk_of(board).post()
    letter = await _waiting(post, asked)
    reason = asked.read(ExecuteRejection).reason[:1000]
    sender = await _sender(post, asked)
    told = f"RefusedError by {sender}." + (f" {reason}" if reason else "")
    await post.ack(letter.message.recipient, letter.message.id, outcome="rejected", summary=told)
    _note(board, asked, "execute", letter.message.recipient, "rejected")
    return {"rejected": letter.message.id}


async def _waiting(post: MessageStore, asked: ApiRequest) -> StoredMessage:
    agent, id = asked.names
    letter = await post.read(agent, id)
    if letter.message.action != "execute" or letter.place not in OPEN:
        raise RefusedError(409, "This is no `execute`, or it has been decided already.")
    return letter


async def _sender(post: MessageStore, asked: ApiRequest) -> str:
    """Who sends; somebody with a mailbox, so that answers have where to go."""
    name = agent_registry.read_name(asked.viewer.principal or OVERSEER)
    if name not in await post.agents():
        await post.register(name)
        await post.update(
            agent_registry.enrol(name, interface="dashboard", purpose="The person who watches over it.")
        )
    return name


def _note(board: DashboardState, asked: ApiRequest, kind: str, whom: str, outcome: str) -> None:
    audit = board.services.audit
    if audit is not None:
        who = f"dashboard {asked.viewer.principal}".strip()
        audit.record(kind, who, "mail", whom, outcome=outcome)
