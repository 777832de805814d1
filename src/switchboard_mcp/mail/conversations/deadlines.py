"""Deadlines that act: when `ackBy` has passed, the sender and the overseer are notified.

A message with a deadline has a record in `deadlines/`, which is durable before the message is. The record is removed
last, so a process that dies in between leaves it to the next one. Every step may be repeated by any number of
processes: all that is sent has an idempotency key.
"""

from __future__ import annotations

import os

from msgspec import Struct

from switchboard_mcp.config.agent_names import OVERSEER, SYSTEM, is_agent_name
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.conversations import threads
from switchboard_mcp.mail.messages import Draft, StoredMessage
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import is_message_id
from switchboard_mcp.mail.store.sending import DEADLINES
from switchboard_mcp.mail.store.store import MessageStore

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

    def __init__(self) -> None:
        self._stamp = -1
        self._next_ms: int | None = None

    async def act(self, store: MessageStore) -> list[str]:
        """Act on passed deadlines; returns the ids of the messages that were late."""
        due, rest = await store.run(self._due)
        late = []
        for deadline in due[:MAX_PER_PASS]:
            if await _act_on(store, deadline):
                late.append(deadline.id)
        if len(due) > MAX_PER_PASS:
            self._stamp = -1
        else:
            self._next_ms = rest
        return late

    def _due(self, tx: Transaction) -> tuple[list[Deadline], int | None]:
        now_ms = tx.clocks.microseconds() // 1000
        if not tx.has(DEADLINES):
            return [], None
        changed = os.fstat(tx.folder(DEADLINES)).st_mtime_ns
        if changed == self._stamp and (self._next_ms is None or self._next_ms > now_ms):
            return [], self._next_ms
        self._stamp = changed
        parsed = [parse_record(name) for name in tx.names(DEADLINES)]
        records = sorted(
            (record for record in parsed if record is not None), key=lambda record: record.due_ms
        )
        due = [record for record in records if record.due_ms <= now_ms]
        return due, records[len(due)].due_ms if len(due) < len(records) else None


def parse_record(name: str) -> Deadline | None:
    """Parse the name of a record; None if it is none."""
    due, _, rest = name.partition(".")
    recipient, _, id = rest.partition(".")
    if not (due.isascii() and due.isdigit() and len(due) < 19):
        return None
    if not is_agent_name(recipient) or not is_message_id(id):
        return None
    return Deadline(name, int(due), recipient, id)


async def _act_on(store: MessageStore, deadline: Deadline) -> bool:
    """Act on one deadline, then remove its record; returns False if the message was settled in time."""
    stored = await _read(store, deadline)
    late = stored is not None and threads.is_open(stored)
    if stored is not None and late:
        await _notify(store, stored)
    await store.run(lambda tx: _remove(tx, deadline.name))
    return late


async def _read(store: MessageStore, deadline: Deadline) -> StoredMessage | None:
    try:
        return await store.read(deadline.recipient, deadline.id)
    except SwitchboardError:
        return None


async def _notify(store: MessageStore, stored: StoredMessage) -> None:
    message = stored.message
    state = "claimed, but not settled" if stored.place == "claimed" else "not claimed"
    text = f"'{message.recipient}' has not settled the message by {message.ack_by}; it is {state}."
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
