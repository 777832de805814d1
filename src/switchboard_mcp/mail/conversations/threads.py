"""Threads: the messages of one conversation, for those who take part in it.

A thread is named after its first message. An answer belongs to the thread of the message it answers, and only an agent
that sent or received that message can answer it; so an agent takes part if a message of the thread went to or came from
it. All participants may read all of it, as with quoted mail. The messages about a workflow are one thread.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from switchboard_mcp.config.agent_names import is_agent_name
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.mail.messages import Draft, MailMessage, StoredMessage
from switchboard_mcp.mail.store.filenames import PLACES
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.workflows import engine, notices
from switchboard_mcp.mail.workflows.definitions import WorkflowRun

# Members whose mailboxes are searched for a thread, and messages that are read of each.
MAX_MEMBERS = 200
MAX_MESSAGES = 1_000
# Receipts that show whom an agent has written to.
RECENT_RECEIPTS = 1_000
_DELIVERED_TO = re.compile(r"Message delivered to '([a-z0-9_-]{1,64})' inbox")


class Thread(Struct, kw_only=True):
    """A conversation, oldest message first."""

    id: str
    subject: str
    members: list[str]
    messages: list[StoredMessage]
    run: WorkflowRun | None = None


async def find_message(store: MessageStore, agent: str, message_id: str) -> StoredMessage:
    """Return a message that `agent` received or sent, in any place. Raises `mail_not_found`."""
    try:
        return await store.read(agent, message_id)
    except SwitchboardError as problem:
        if problem.failure.code not in ("mail_not_found", "mail_recipient_unknown"):
            raise
    for recipient in await _recipients(store, agent, [message_id]):
        try:
            stored = await store.read(recipient, message_id)
        except SwitchboardError:
            continue
        if stored.message.sender == agent:
            return stored
    text = f"'{agent}' has neither received nor sent a message '{message_id[:150]}'."
    raise refused("mail_not_found", text)


async def _recipients(store: MessageStore, agent: str, ids: list[str] | None) -> set[str]:
    """Return the agents that received these messages of `agent`, or its recent ones."""
    receipts = await store.receipts(agent, ids=ids, limit=RECENT_RECEIPTS)
    recipients = {receipt.recipient for receipt in receipts if receipt.recipient}
    # Receipts of earlier versions have the recipient in the summary alone.
    matches = (_DELIVERED_TO.match(receipt.summary) for receipt in receipts if not receipt.recipient)
    return recipients | {match[1] for match in matches if match}


async def join(store: MessageStore, sender: str, draft: Draft, recipient: str = "") -> Draft:
    """Return the draft as part of the thread it answers, with that thread's subject unless it has its own.

    A message that answers one which the sender neither sent nor received begins a new thread.
    """
    if draft.reply_to is None:
        return draft
    try:
        answered = (await find_message(store, sender, draft.reply_to)).message
    except SwitchboardError:
        return draft
    subject = {"subject": answered.subject} if answered.subject else {}
    return replace(
        draft,
        thread=answered.thread,
        metadata={**subject, **draft.metadata},
        answers=answered.sender == recipient and answered.recipient == sender,
    )


async def read_thread(store: MessageStore, agent: str, id: str) -> Thread:
    """Return the thread of a message that `agent` sent or received, or a thread or workflow it has a part in, by id."""
    run = engine.runs(await store.state()).get(id)
    if run is not None and agent in {*run.members, run.started_by}:
        return await _collect(store, notices.thread_of(run.id), {*run.members, run.started_by}, run)
    first = (await _own_message(store, agent, id)).message
    workflow = first.metadata.get("workflow")
    if run is None and isinstance(workflow, str):
        run = engine.runs(await store.state()).get(workflow)
    return await _collect(store, first.thread, {agent, *people_of(first)}, run)


async def whole_thread(store: MessageStore, id: str) -> Thread:
    """Return a thread or a workflow's conversation by id, whoever participates: for the person who sees all mail."""
    run = engine.runs(await store.state()).get(id)
    if run is not None:
        return await _collect(store, notices.thread_of(run.id), {*run.members, run.started_by}, run)
    for agent in await store.agents():
        received = await store.search(agent, thread=id, places=PLACES, limit=1)
        if received:
            first = received[0].message
            workflow = first.metadata.get("workflow")
            run = engine.runs(await store.state()).get(workflow) if isinstance(workflow, str) else None
            return await _collect(store, first.thread, people_of(first), run)
    raise refused("mail_not_found", f"There is no thread '{id[:150]}'.")


async def _own_message(store: MessageStore, agent: str, id: str) -> StoredMessage:
    """Return a message that shows that `agent` takes part: the one of this id, or another of the thread of this id."""
    try:
        return await find_message(store, agent, id)
    except SwitchboardError:
        received = await store.search(agent, thread=id, places=PLACES, limit=1)
        if not received:
            raise
        return received[0]


async def _collect(
    store: MessageStore, thread: str, members: Collection[str], run: WorkflowRun | None
) -> Thread:
    collected: dict[str, StoredMessage] = {}
    searched: set[str] = set()
    waiting = set(members)
    while waiting and len(searched) < MAX_MEMBERS:
        name = min(waiting)
        messages = await store.search(name, thread=thread, places=PLACES, limit=MAX_MESSAGES)
        collected |= {stored.message.unique_key: stored for stored in messages}
        searched.add(name)
        waiting |= {person for stored in messages for person in people_of(stored.message)}
        waiting -= searched
    originals = {stored.message.id for stored in collected.values()}
    ordered = sorted(collected.values(), key=lambda stored: stored.order)
    shown = [stored for stored in ordered if stored.message.metadata.get("copyOf") not in originals]
    everybody = {person for stored in ordered for person in people_of(stored.message)} or set(members)
    subject = next((stored.message.subject for stored in ordered if stored.message.subject), "")
    return Thread(
        id=thread,
        subject=subject or (run.subject if run else ""),
        members=sorted(everybody),
        messages=shown,
        run=run,
    )


def people_of(message: MailMessage) -> set[str]:
    """Return everybody a message concerns: sender, recipient and those who get a copy; of a copy, also the recipient
    of the original.
    """
    copies = message.metadata.get("cc")
    names = [name for name in copies if isinstance(name, str)] if isinstance(copies, list) else []
    original = message.metadata.get("to") if "copyOf" in message.metadata else None
    names += [original] if isinstance(original, str) else []
    return {message.sender, message.recipient, *filter(is_agent_name, names)}


async def search_sent(
    store: MessageStore, agent: str, query: str, *, recipient: str | None, action: str | None, limit: int
) -> list[StoredMessage]:
    """Search the messages that `agent` sent, newest first if there is no query."""
    names = [recipient] if recipient else sorted(await _recipients(store, agent, None))
    messages: list[StoredMessage] = []
    for name in names:
        messages += await store.search(name, query, sender=agent, action=action, places=PLACES, limit=limit)
    if not query.strip():
        messages.sort(key=lambda stored: -stored.order)
    return messages[:limit]


def is_open(stored: StoredMessage) -> bool:
    """Return True if a message is not settled."""
    return stored.place in ("inbox", "claimed")
