"""Tools to send, read, wait for, claim and acknowledge messages. The rows are in `TOOLS` at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.inprocess.server_app import ToolRequest, ToolSpec
from switchboard_mcp.mail import agent_registry, resources
from switchboard_mcp.mail.agent_session import AgentSession
from switchboard_mcp.mail.conversations import attached_files, fan_out, progress, threads
from switchboard_mcp.mail.conversations.progress import TaskState
from switchboard_mcp.mail.conversations.thread_view import thread_view
from switchboard_mcp.mail.messages import (
    AckOutcome,
    Action,
    Draft,
    FileAttachment,
    MailMessage,
    Priority,
    Sent,
)
from switchboard_mcp.mail.presentation import claimed_view, message_view, summary_view
from switchboard_mcp.mail.roles import read_role
from switchboard_mcp.mail.store.store import MessageStore
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
    subject: Annotated[str, Meta(max_length=200)] = ""
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
            metadata={**self._subject(), **self.metadata, **more.pop("metadata", {})},
            **more,
        )

    def _subject(self) -> dict[str, str]:
        return {"subject": self.subject} if self.subject else {}


class SendMessage(MessageArgs, kw_only=True):
    recipient: Annotated[
        str, Meta(min_length=1, description="An agent, a role that one agent has, or everyone.")
    ]
    cc: Annotated[list[str], Meta(description="Agents that get a copy, for information.")] = field(
        default_factory=list
    )

    file: Annotated[dict[str, str], Meta(description='{"path"}, or {"name","data"} in base64.')] = field(
        default_factory=dict
    )


class SendTeamMessage(MessageArgs, kw_only=True):
    team: Annotated[str, Meta(min_length=1)]
    role: Annotated[str | None, Meta(description="Only members in this role.")] = None


class CheckInbox(MailToolArgs, kw_only=True):
    limit: Count = 20
    after: Annotated[int, Meta(ge=0, description="Only messages after this `order`.")] = 0
    id: Annotated[str | None, Meta(description="Show this message in full, received or sent.")] = None
    file: Annotated[bool, Meta(description="With id: its attached file too, as base64.")] = False


class ReadThread(MailToolArgs, kw_only=True):
    id: Annotated[str, Meta(min_length=1, max_length=200, description="A message of it, or a workflow.")]
    limit: Count = 20
    full: bool = False


class UpdateMessage(MailToolArgs, kw_only=True):
    id: MessageId
    note: Annotated[str, Meta(max_length=20_000, description="News or a question for its sender.")] = ""
    state: Annotated[TaskState, Meta(description="input-required: the note is a question.")] = "working"
    lease_seconds: Annotated[int, Meta(ge=0, le=86_400)] = 0
    fence: Fence | None = None


class WaitForMail(MailToolArgs, kw_only=True):
    seconds: Annotated[int, Meta(ge=1, le=LONGEST_WAIT_S)] = USUAL_WAIT_S
    after: Annotated[int, Meta(ge=0, description="Only messages after this `order`.")] = 0


class ClaimMessages(MailToolArgs, kw_only=True):
    max: Count = 1
    lease_seconds: Annotated[int, Meta(ge=1, le=86_400, description="Duration of the claim.")] = 300


class AckMessage(MailToolArgs, kw_only=True):
    id: MessageId
    outcome: AckOutcome
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
    box: Literal["received", "sent"] = "received"
    sender: Annotated[str | None, Meta(description="In `sent`: the recipient.")] = None
    action: Action | None = None
    place: Literal["inbox", "claimed", "archive", "deadletter"] | None = None
    limit: Count = 20


async def send_message(session: AgentSession, args: SendMessage, request: ToolRequest) -> object:
    """Send a message to one agent; returns once it is stored."""
    sender = await session.agent()
    session.check_sender(sender, args.sender)
    store = await session.server.store()
    limit = session.server.settings.max_recipients
    attachment = await _read_file(session, args.file)
    recipient = args.recipient
    if await fan_out.is_everyone(store, recipient):
        names = await fan_out.everyone(store, sender, limit)
        draft = await threads.join(store, sender, args.draft(attachment=attachment))
        return _many_view(names, await store.send_to_many(draft, sender=sender, recipients=names))
    if read_role(recipient) is not None:
        recipient = agent_registry.resolve_recipient(await store.state(), recipient)
    recipient = agent_registry.parse_name(recipient)
    copies = fan_out.parse_copies(args.cc, recipient, sender, limit)
    draft = args.draft(attachment=attachment, metadata={"cc": copies} if copies else {})
    draft = await threads.join(store, sender, draft, recipient)
    sent = await store.send(draft, sender=sender, recipient=recipient)
    copied = await fan_out.send_copies(store, draft, sent, sender=sender, copies=copies)
    if "completes" in args.metadata:
        await session.server.send_workflow_notices()
    view = _sent_view(sent)
    if copies:
        view["copies"] = _copies_view(copies, copied)
    warning = await session.server.check_recipient(sent.recipient)
    return {**view, "warning": warning} if warning else view


async def _read_file(session: AgentSession, file: dict[str, str]) -> FileAttachment | None:
    if not file:
        return None
    path, name, data = file.get("path", ""), file.get("name", ""), file.get("data")
    if file.keys() - {"path", "name", "data", "mediaType"} or bool(path) == (data is not None):
        text = "`file` needs either a path, or a name and data."
        raise refused("mail_message_invalid", text, hint='For example: {"path":"report.pdf"}')
    if data is not None:
        content = attached_files.decode_base64(data)
    elif session.caller.principal:
        # A token may be used from another machine, and must not read this one's files.
        raise refused("mail_forbidden", "A connection with a token cannot send a file by its path.")
    else:
        content = await asyncio.to_thread(attached_files.read_file, session.server.workspace, path)
        name = name or path.rpartition("/")[2]
    return FileAttachment(
        name=name, media_type=file.get("mediaType") or attached_files.media_type(name), data=content
    )


def _copies_view(names: Sequence[str], outcomes: Sequence[Sent | Failure]) -> list[object]:
    return [
        name if isinstance(outcome, Sent) else {"recipient": name, "error": outcome}
        for name, outcome in zip(names, outcomes, strict=True)
    ]


async def send_team_message(session: AgentSession, args: SendTeamMessage, request: ToolRequest) -> object:
    """Send a message to the members of a team; each is stored or refused independently."""
    sender = await session.agent()
    session.check_sender(sender, args.sender)
    store = await session.server.store()
    team = agent_registry.parse_name(args.team)
    chosen = agent_registry.addressees(await store.state(), team, args.role, sender)
    played = chosen[0].role
    draft = args.draft(
        team=team,
        metadata={"role": played} if played else {},
    )
    draft = await threads.join(store, sender, draft)
    names = [addressee.agent for addressee in chosen]
    outcomes = await store.send_to_many(draft, sender=sender, recipients=names)
    return {"team": team, **_many_view(names, outcomes)}


def _many_view(names: Sequence[str], outcomes: Sequence[Sent | Failure]) -> dict[str, object]:
    sent = [_sent_view(outcome) for outcome in outcomes if isinstance(outcome, Sent)]
    failed = [
        {"recipient": name, "error": outcome}
        for name, outcome in zip(names, outcomes, strict=True)
        if isinstance(outcome, Failure)
    ]
    if not sent:
        raise SwitchboardError(next(other for other in outcomes if isinstance(other, Failure)))
    return {"sent": sent, **({"refused": failed} if failed else {})}


def _sent_view(sent: Sent) -> dict[str, object]:
    view: dict[str, object] = {"id": sent.id, "recipient": sent.recipient, "status": sent.receipt.status}
    return {**view, "duplicate": True} if sent.duplicate else view


async def check_inbox(session: AgentSession, args: CheckInbox, request: ToolRequest) -> object:
    """Show the inbox without consuming anything."""
    agent = await session.agent()
    session.server.note_notified(agent)
    if args.id is not None:
        store = await session.server.store()
        stored = await threads.find_message(store, agent, args.id)
        view = {"place": stored.place, **message_view(stored.message)}
        if stored.message.sender == agent:
            view["to"] = stored.message.recipient
        return {**view, **await _file_view(store, stored.message)} if args.file else view
    return await resources.read_inbox(session.server, agent, args.limit, args.after)


async def _file_view(store: MessageStore, message: MailMessage) -> dict[str, object]:
    record = message.metadata.get("attachment")
    if not isinstance(record, dict):
        raise refused("mail_not_found", f"Message '{message.id}' has no file.")
    data = await store.attachment(message)
    if len(data) > attached_files.MAX_SHOWN_BYTES:
        text = (
            f"The file has {len(data)} bytes, more than a result holds. It is .switchboard/{record['file']}."
        )
        raise refused("mail_too_large", text, hint="Read it from there.")
    return {"data": attached_files.encode_base64(data)}


async def read_thread(session: AgentSession, args: ReadThread, request: ToolRequest) -> object:
    """Read a conversation."""
    agent = await session.agent()
    thread = await threads.read_thread(await session.server.store(), agent, args.id)
    return thread_view(thread, args.limit, full=args.full)


async def update_message(session: AgentSession, args: UpdateMessage, request: ToolRequest) -> object:
    """Renew a claim, with news for the sender."""
    agent = await session.agent()
    fence = session.require_fence(args.id, args.fence)
    reported = await progress.report(
        await session.server.store(),
        agent,
        args.id,
        fence=fence,
        state=args.state,
        note=args.note,
        lease_s=float(args.lease_seconds),
        earlier=session.notes.get(args.id, ""),
    )
    view: dict[str, object] = {"id": args.id, "expiresAt": reported.claimed.expires_at}
    if reported.note is None:
        return view
    if args.state == "working":
        session.notes[args.id] = reported.note.id
    return {**view, "note": reported.note.id}


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
        session.waiting += 1
        try:
            messages = await store.wait(agent, max(0.0, min(TICK_S, remaining)), after=args.after)
        finally:
            session.waiting -= 1
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
    return {"messages": [claimed_view(claim) for claim in claimed]}


async def ack_message(session: AgentSession, args: AckMessage, request: ToolRequest) -> object:
    """Settle a claimed message."""
    agent = await session.agent()
    fence = session.require_fence(args.id, args.fence)
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
    store = await session.server.store()
    if args.box == "sent":
        recipient = agent_registry.parse_name(args.sender) if args.sender else None
        sent = await threads.search_sent(
            store, agent, args.query, recipient=recipient, action=args.action, limit=args.limit
        )
        return {"messages": [{**summary_view(stored), "to": stored.message.recipient} for stored in sent]}
    places = (args.place,) if args.place else ("inbox", "claimed", "archive")
    messages = await store.search(
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
        name="update_message",
        description="Keep a claimed message longer, and send news or a question to its sender.",
        args_type=UpdateMessage,
        handler=update_message,
    ),
    ToolSpec(
        name="read_thread",
        description="Read a conversation you take part in: who, what is open, what a workflow produced.",
        args_type=ReadThread,
        handler=read_thread,
        read_only=True,
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
        description="Search messages you received or sent, by words, agent or action.",
        args_type=SearchMessages,
        handler=search_messages,
        read_only=True,
    ),
)
