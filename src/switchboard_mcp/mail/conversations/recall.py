"""Recalls a message that nobody has claimed yet, and its copies."""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.conversations import threads
from switchboard_mcp.mail.messages import Acked
from switchboard_mcp.mail.store.store import MessageStore


class Recalled(Struct, rename="camel", kw_only=True):
    """Result of `recall`."""

    id: str
    recipient: str
    copies: list[str] = []
    """Agents whose copies were taken back."""
    read_by: list[str] = []
    """Agents who have already taken their copies."""


async def recall(store: MessageStore, sender: str, message_id: str, reason: str = "") -> Recalled:
    """Take a message back. Raises `mail_claimed` if it was claimed, `mail_not_found` if `sender` did not send it."""
    stored = await threads.find_message(store, sender, message_id)
    message = stored.message
    await _withdraw(store, message.recipient, message_id, sender, reason)
    recalled = Recalled(id=message_id, recipient=message.recipient)
    for name in sorted(threads.people_of(message) - {message.sender, message.recipient}):
        for copy in await store.search(name, thread=message.thread, sender=sender, limit=100):
            if copy.message.metadata.get("copyOf") != message_id:
                continue
            try:
                await _withdraw(store, name, copy.message.id, sender, reason)
                recalled.copies.append(name)
            except SwitchboardError:
                recalled.read_by.append(name)
    return recalled


async def _withdraw(store: MessageStore, recipient: str, id: str, sender: str, reason: str) -> Acked:
    return await store.withdraw(recipient, id, outcome="recalled", summary=reason, sender=sender)
