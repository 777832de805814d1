"""Deadlines that act: when `ackBy` has passed, a message that nobody has claimed goes to a substitute if
`mail.reassign` names one, and the sender and the overseer are notified.

A message with a deadline has a record in `deadlines/`, which is durable before the message is. The record is removed
last, so a process that dies in between leaves it to the next one. Every step may be repeated by any number of
processes: a message is withdrawn once, by the first, and all that is sent has an idempotency key.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from switchboard_mcp.config.agent_names import OVERSEER, RESERVED_FOR, SYSTEM, is_agent_name
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.conversations import resending, threads
from switchboard_mcp.mail.messages import Draft, MailMessage, StoredMessage
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.clocks import stamp
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import is_message_id
from switchboard_mcp.mail.store.sending import DEADLINES
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.system.star_patterns import matches_stars

# Deadlines that one pass acts on, so that many of them do not delay other upkeep.
MAX_PER_PASS = 100


class Deadline(Struct, frozen=True):
    """The record of one deadline."""

    name: str
    due_ms: int
    recipient: str
    id: str


class DeadlineWatch:
    """Acts on deadlines that have passed. Looks at the folder only if it has changed or a deadline is due."""

    def __init__(self, reassign: Mapping[str, str]) -> None:
        self._reassign = reassign
        self._stamp = -1
        self._next_ms: int | None = None

    async def act(self, store: MessageStore) -> list[str]:
        """Act on passed deadlines; returns the ids of the messages that were late."""
        now, due, rest = await store.run(self._due)
        late = []
        for deadline in due[:MAX_PER_PASS]:
            if await _act_on(store, deadline, now, self._reassign):
                late.append(deadline.id)
        if len(due) > MAX_PER_PASS:
            self._stamp = -1
        else:
            self._next_ms = rest
        return late

    def _due(self, tx: Transaction) -> tuple[str, list[Deadline], int | None]:
        now_ms = tx.clocks.microseconds() // 1000
        now = tx.clocks.iso()
        if not tx.has(DEADLINES):
            return now, [], None
        changed = os.fstat(tx.folder(DEADLINES)).st_mtime_ns
        if changed == self._stamp and (self._next_ms is None or self._next_ms > now_ms):
            return now, [], self._next_ms
        self._stamp = changed
        parsed = [parse_record(name) for name in tx.names(DEADLINES)]
        records = sorted(
            (record for record in parsed if record is not None), key=lambda record: record.due_ms
        )
        due = [record for record in records if record.due_ms <= now_ms]
        return now, due, records[len(due)].due_ms if len(due) < len(records) else None


def parse_record(name: str) -> Deadline | None:
    """Parse the name of a record; None if it is none."""
    due, _, rest = name.partition(".")
    recipient, _, id = rest.partition(".")
    if not (due.isascii() and due.isdigit() and len(due) < 19):
        return None
    if not is_agent_name(recipient) or not is_message_id(id):
        return None
    return Deadline(name, int(due), recipient, id)


async def _act_on(store: MessageStore, deadline: Deadline, now: str, reassign: Mapping[str, str]) -> bool:
    """Act on one deadline, then remove its record; returns False if the message was settled in time."""
    stored = await _read(store, deadline)
    late = stored is not None and (threads.is_open(stored) or stored.outcome == "reassigned")
    if stored is not None and late:
        message = stored.message
        substitute = await _substitute(store, stored, reassign)
        if substitute and stored.outcome != "reassigned":
            substitute = await _withdraw(store, message, substitute)
        moved = ""
        if substitute:
            moved = (await _send_again(store, message, substitute, now)) or ""
        await _notify(store, stored, substitute if moved else "", now)
    await store.run(lambda tx: _remove(tx, deadline.name))
    return late


async def _read(store: MessageStore, deadline: Deadline) -> StoredMessage | None:
    try:
        return await store.read(deadline.recipient, deadline.id)
    except SwitchboardError:
        return None


async def _substitute(store: MessageStore, stored: StoredMessage, reassign: Mapping[str, str]) -> str:
    """Return the agent that takes over a message; empty if no rule names one."""
    message = stored.message
    if stored.place not in ("inbox", "archive") or {"workflow", "reassignedFrom"} & message.metadata.keys():
        return ""
    agents = await store.agents()
    for pattern, name in reassign.items():
        if matches_stars(message.recipient, pattern.split("*")):
            fits = name in agents and name not in (message.recipient, message.sender)
            return name if fits else ""
    return ""


async def _withdraw(store: MessageStore, message: MailMessage, substitute: str) -> str:
    text = f"Reassigned to '{substitute}': '{message.recipient}' did not take it by {message.ack_by}."
    try:
        await store.withdraw(message.recipient, message.id, outcome="reassigned", summary=text)
    except SwitchboardError:
        return ""  # Claimed in this moment.
    return substitute


async def _send_again(store: MessageStore, message: MailMessage, substitute: str, now: str) -> str | None:
    draft = await resending.draft_of(store, message, f"reassigned {message.id}")
    draft = replace(
        draft,
        ack_by=_new_deadline(message, now),
        metadata={**draft.metadata, "reassignedFrom": message.recipient},
    )
    reserved = message.sender in RESERVED_FOR
    sent = await store.send(
        draft,
        sender=message.sender,
        recipient=substitute,
        verified=message.verified,
        from_dashboard=reserved,
    )
    return sent.id


def _new_deadline(message: MailMessage, now: str) -> str:
    """Return a deadline that leaves the substitute as much time as the first recipient had."""
    began, due = datetime.fromisoformat(message.created_at), datetime.fromisoformat(message.ack_by or now)
    at = datetime.fromisoformat(now)
    try:
        left = due.replace(tzinfo=due.tzinfo or at.tzinfo) - began.replace(tzinfo=began.tzinfo or at.tzinfo)
        return stamp((at + max(left, timedelta(minutes=1))).astimezone(at.tzinfo))
    except OverflowError:
        return now


async def _notify(store: MessageStore, stored: StoredMessage, substitute: str, now: str) -> None:
    message = stored.message
    state = "claimed, but not settled" if stored.place == "claimed" else "not claimed"
    text = f"'{message.recipient}' has not settled the message by {message.ack_by}; it is {state}."
    if substitute:
        text = (
            f"'{message.recipient}' did not take the message by {message.ack_by}. '{substitute}' has it now."
        )
    subject = {"subject": message.subject} if message.subject else {}
    draft = Draft(
        action="status_update",
        payload=text,
        reply_to=message.id,
        priority="high",
        thread=message.thread,
        metadata={**subject, "overdue": message.id},
        idempotency_key=f"overdue {message.id} to {message.recipient}",
        answers=True,
    )
    await store.register(OVERSEER)
    for name in sorted({message.sender, OVERSEER} - {SYSTEM}):
        try:
            await store.send(draft, sender=SYSTEM, recipient=name, from_system=True)
        except SwitchboardError as problem:
            if problem.failure.retryable:
                raise
            # Its sender is gone; the overseer still gets a notice.


def _remove(tx: Transaction, name: str) -> None:
    if tx.has(DEADLINES) and file_operations.exists(tx.folder(DEADLINES), name):
        tx.remove(tx.folder(DEADLINES), name)
        tx.sync_folders()
