"""Deadlines that act: when `ackBy` has passed, the sender and the overseer are notified.

The deadline of a message is a column of its row, and is cleared last, so a process that dies in between leaves it to
the next one. Every step may be repeated by any number of processes: all that is sent has an idempotency key.
"""

from __future__ import annotations

from switchboard_mcp.config.agent_names import OVERSEER, SYSTEM
from switchboard_mcp.database.transactions import Transaction
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.messages import Draft, StoredMessage
from switchboard_mcp.mail.store import aging
from switchboard_mcp.mail.store.store import MessageStore


async def act_on_deadlines(store: MessageStore) -> list[str]:
    """Act on passed deadlines, some at a time; returns the ids of the messages that were late."""
    late = await store.read_rows(aging.overdue)
    for overdue in late:
        await _notify(store, overdue.message)

        def clear(tx: Transaction, order: int = overdue.message.order) -> None:
            aging.clear_deadline(tx, order)

        await store.write(clear)
    return [overdue.message.message.id for overdue in late]


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
