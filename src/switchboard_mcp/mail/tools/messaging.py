"""Tools to send, read, wait for, claim and acknowledge messages. The rows are in `TOOLS` at the end."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.inprocess.server_app import ToolRequest, ToolSpec
from switchboard_mcp.mail import agent_registry, resources
from switchboard_mcp.mail.messages import Action, Draft, Outcome, Priority, Sent
from switchboard_mcp.mail.presentation import claimed_view, message_view, summary_view
from switchboard_mcp.mail.roles import read_role
from switchboard_mcp.mail.session import AgentSession
from switchboard_mcp.mail.tools.agents import MailToolArgs

# Hosts time out a call after 60 s.
LONGEST_WAIT_S, USUAL_WAIT_S = 55, 50
TICK_S = 5.0

Count = Annotated[int, Meta(ge=1, le=100)]
Fence = Annotated[int, Meta(ge=1)]
MessageId = Annotated[str, Meta(min_length=1, max_length=200)]


class MessageArgs(MailToolArgs, kw_only=True):
    """Arguments of every message."""

    action: Action
    payload: Annotated[str, Meta(description="Task, review, result or news, as text.")]
    reply_to: Annotated[str | None, Meta(description="Id of the message you reply to.")] = None
    priority: Priority = "normal"
    ack_by: Annotated[str | None, Meta(description="ISO 8601 time to acknowledge by.")] = None
    metadata: dict[str, Any] = field(default_factory=dict)
    idempotency_key: Annotated[
        str | None, Meta(description="Messages with the same key and recipient are sent once.")
    ] = None
    sender: Annotated[str | None, Meta(description="Only your own name.")] = None

    def draft(self, **more: Any) -> Draft:
        """Return the draft for the store."""
        return Draft(
            action=self.action,
            payload=self.payload,
            reply_to=self.reply_to,
            priority=self.priority,
            ack_by=self.ack_by,
            idempotency_key=self.idempotency_key,
            metadata={**self.metadata, **more.pop("metadata", {})},
            **more,
        )


class SendMessage(MessageArgs, kw_only=True):
    recipient: Annotated[str, Meta(min_length=1, description="An agent, or a role that one agent has.")]


class SendTeamMessage(MessageArgs, kw_only=True):
    team: Annotated[str, Meta(min_length=1)]
    role: Annotated[str | None, Meta(description="Only members in this role.")] = None


class CheckInbox(MailToolArgs, kw_only=True):
    limit: Count = 20
    after: Annotated[int, Meta(ge=0, description="Only messages after this `order`.")] = 0
    id: Annotated[str | None, Meta(description="Show this message in full, in any state.")] = None


class WaitForMail(MailToolArgs, kw_only=True):
    seconds: Annotated[int, Meta(ge=1, le=LONGEST_WAIT_S)] = USUAL_WAIT_S
    after: Annotated[int, Meta(ge=0, description="Only messages after this `order`.")] = 0


class ClaimMessages(MailToolArgs, kw_only=True):
    max: Count = 1
    lease_seconds: Annotated[int, Meta(ge=1, le=86_400, description="Duration of the claim.")] = 300


class AckMessage(MailToolArgs, kw_only=True):
    id: MessageId
    outcome: Outcome
    result: Annotated[str | None, Meta(description="Sent back as submit_result.")] = None
    summary: Annotated[str, Meta(max_length=2_000, description="A sentence for the receipt.")] = ""
    fence: Annotated[
        Fence | None, Meta(description="From claim_messages; only needed from another connection.")
    ] = None


class GetReceipts(MailToolArgs, kw_only=True):
    ids: Annotated[list[MessageId], Meta(max_length=100, description="Only these messages.")] = field(
        default_factory=list
    )
    limit: Count = 20


class SearchMessages(MailToolArgs, kw_only=True):
    query: str = ""
    sender: str | None = None
    action: Action | None = None
    place: Literal["inbox", "claimed", "archive", "deadletter"] | None = None
    limit: Count = 20


async def send_message(session: AgentSession, args: SendMessage, request: ToolRequest) -> object:
    """Send a message to one agent; returns once it is stored."""
    sender = await session.agent()
    session.check_sender(sender, args.sender)
    store = await session.server.store()
    recipient = args.recipient
    if read_role(recipient) is not None:
        recipient = agent_registry.resolve_recipient(await store.state(), recipient)
    sent = await store.send(args.draft(), sender=sender, recipient=recipient)
    if "completes" in args.metadata:
        await session.server.send_workflow_notices()
    view = _sent_view(sent)
    warning = await session.server.delivery_warning(sent.recipient)
    return {**view, "warning": warning} if warning else view


async def send_team_message(session: AgentSession, args: SendTeamMessage, request: ToolRequest) -> object:
    """Send a message to the members of a team; each is stored or refused independently."""
    sender = await session.agent()
    session.check_sender(sender, args.sender)
    store = await session.server.store()
    team = agent_registry.parse_name(args.team)
    chosen = agent_registry.addressees(await store.state(), team, args.role, sender)
    played = chosen[0].role
    draft = args.draft(team=team, metadata={"role": played} if played else {})
    outcomes = await store.send_to_many(
        draft, sender=sender, recipients=[addressee.agent for addressee in chosen]
    )
    sent = [_sent_view(outcome) for outcome in outcomes if isinstance(outcome, Sent)]
    if not sent:
        problem = next(outcome for outcome in outcomes if isinstance(outcome, Failure))
        raise SwitchboardError(problem)
    refused = [
        {"recipient": addressee.agent, "error": outcome}
        for addressee, outcome in zip(chosen, outcomes, strict=True)
        if isinstance(outcome, Failure)
    ]
    return {"team": team, "sent": sent, **({"refused": refused} if refused else {})}


def _sent_view(sent: Sent) -> dict[str, object]:
    view: dict[str, object] = {"id": sent.id, "recipient": sent.recipient, "status": sent.receipt.status}
    return {**view, "duplicate": True} if sent.duplicate else view


async def check_inbox(session: AgentSession, args: CheckInbox, request: ToolRequest) -> object:
    """Show the inbox without consuming anything."""
    agent = await session.agent()
    session.server.note_notified(agent)
    if args.id is not None:
        stored = await (await session.server.store()).read(agent, args.id)
        return {"place": stored.place, **message_view(stored.message)}
    return await resources.read_inbox(session.server, agent, args.limit, args.after)


async def wait_for_mail(session: AgentSession, args: WaitForMail, request: ToolRequest) -> object:
    """Wait for mail in slices, with progress notifications in between."""
    agent = await session.agent()
    store = await session.server.store()
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        waited = loop.time() - began
        if waited > 0.001:
            request.progress(round(waited, 3), args.seconds, f"Waiting for mail to '{agent}'")
        await session.agent()  # raises if the name was taken over
        remaining = args.seconds - waited
        messages = await store.wait(agent, max(0.0, min(TICK_S, remaining)), after=args.after)
        if messages or remaining <= TICK_S:
            break
    if messages:
        session.server.note_notified(agent)
    return {"agent": agent, "messages": [summary_view(message) for message in messages]}


async def claim_messages(session: AgentSession, args: ClaimMessages, request: ToolRequest) -> object:
    """Claim messages for a limited time."""
    agent = await session.agent()
    session.server.note_notified(agent)
    store = await session.server.store()
    claimed = await store.claim(agent, limit=args.max, lease_s=float(args.lease_seconds))
    session.remember_claims(claimed)
    return {"messages": [claimed_view(one) for one in claimed]}


async def ack_message(session: AgentSession, args: AckMessage, request: ToolRequest) -> object:
    """Settle a claimed message."""
    agent = await session.agent()
    fence = args.fence or session.fences.get(args.id)
    if fence is None:
        message = f"Message '{args.id}' was not claimed through this connection."
        hint = "Claim it first, or pass the `fence` from claim_messages."
        return failure("mail_lease_lost", message, hint=hint)
    acked = await (await session.server.store()).ack(
        agent,
        args.id,
        fence=fence,
        outcome=args.outcome,
        summary=args.summary,
        result=args.result,
    )
    told_of = {"id": acked.id, "outcome": acked.outcome, "receipt": acked.receipt.status}
    return {**told_of, "result": _sent_view(acked.result)} if acked.result is not None else told_of


async def get_receipts(session: AgentSession, args: GetReceipts, request: ToolRequest) -> object:
    """Return the receipts of sent messages."""
    agent = await session.agent()
    receipts = await (await session.server.store()).receipts(agent, ids=args.ids or None, limit=args.limit)
    return {"receipts": receipts}


async def search_messages(session: AgentSession, args: SearchMessages, request: ToolRequest) -> object:
    """Search the agent's messages."""
    agent = await session.agent()
    places = (args.place,) if args.place else ("inbox", "claimed", "archive")
    messages = await (await session.server.store()).search(
        agent, args.query, sender=args.sender, action=args.action, places=places, limit=args.limit
    )
    return {"messages": [summary_view(message) for message in messages]}


TOOLS = (
    ToolSpec(
        name="send_message",
        description="Send a message to an agent. Returns once it is safely stored.",
        args_type=SendMessage,
        handler=send_message,
    ),
    ToolSpec(
        name="send_team_message",
        description="Send a message to all members of a team, or to those in one role.",
        args_type=SendTeamMessage,
        handler=send_team_message,
    ),
    ToolSpec(
        name="check_inbox",
        description="List your unread messages in brief. Consumes nothing.",
        args_type=CheckInbox,
        handler=check_inbox,
        read_only=True,
    ),
    ToolSpec(
        name="wait_for_mail",
        description="Wait for mail, at most `seconds`. Consumes nothing; call again to keep waiting.",
        args_type=WaitForMail,
        handler=wait_for_mail,
        read_only=True,
    ),
    ToolSpec(
        name="claim_messages",
        description="Take your next messages in full, to work on. Settle each with ack_message, or it returns.",
        args_type=ClaimMessages,
        handler=claim_messages,
    ),
    ToolSpec(
        name="ack_message",
        description="Settle a claimed message: done, failed or rejected. `result` is sent to its sender.",
        args_type=AckMessage,
        handler=ack_message,
        idempotent=True,
    ),
    ToolSpec(
        name="get_receipts",
        description="Show what happened to messages you sent.",
        args_type=GetReceipts,
        handler=get_receipts,
        read_only=True,
    ),
    ToolSpec(
        name="search_messages",
        description="Search messages you received, by words, sender or action.",
        args_type=SearchMessages,
        handler=search_messages,
        read_only=True,
    ),
)
