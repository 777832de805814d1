"""Sends one message to several agents: copies for information, and messages to everyone. Limited by
`mail.maxRecipients`.

A copy is a separate `status_update`, marked with the message it copies, so it is not mistaken for a task. Its
idempotency key is that message: a send that is repeated after a crash stores each copy once.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from switchboard_mcp.config.agent_names import RESERVED_FOR
from switchboard_mcp.errors import Failure, refused
from switchboard_mcp.mail.messages import Draft, Sent
from switchboard_mcp.mail.store.rows import parse_name as parse_agent_name
from switchboard_mcp.mail.store.store import MessageStore

EVERYONE = ("everyone", "*")
# Keys that act in a workflow, or that belong to the original alone.
_NOT_COPIED = ("workflow", "completes", "next", "artifacts", "skipReason", "cc")


async def is_everyone(store: MessageStore, recipient: str) -> bool:
    """Return True if a message to this name goes to all agents. An agent of that name goes first."""
    return recipient == "*" or (recipient in EVERYONE and recipient not in await store.agents())


async def everyone(store: MessageStore, sender: str, limit: int) -> list[str]:
    """Return all agents but the sender. Raises `mail_quota` if they are more than the limit."""
    names = [name for name in await store.agents() if name != sender and name not in RESERVED_FOR]
    _require_limit(len(names), limit)
    if not names:
        raise refused("mail_recipient_unknown", "There is no other agent here.")
    return names


def parse_copies(cc: Sequence[str], recipient: str, sender: str, limit: int) -> list[str]:
    """Return who gets a copy, each name once, without recipient and sender. Raises `mail_quota` beyond the limit."""
    names = dict.fromkeys(parse_agent_name(text) for text in cc)
    _require_limit(len(names) + 1, limit)
    return [name for name in names if name not in (recipient, sender)]


def _require_limit(count: int, limit: int) -> None:
    if count > limit:
        text = f"The message has {count} recipients, but mail.maxRecipients is {limit}."
        raise refused("mail_quota", text, hint="Send it to fewer agents, or raise mail.maxRecipients.")


async def send_copies(
    store: MessageStore,
    draft: Draft,
    sent: Sent,
    *,
    sender: str,
    copies: Sequence[str],
    verified: bool = True,
) -> list[Sent | Failure]:
    """Send copies of a message that was stored; each is stored or refused independently."""
    if not copies:
        return []
    metadata = {key: value for key, value in draft.metadata.items() if key not in _NOT_COPIED}
    metadata |= {"copyOf": sent.id, "to": sent.recipient, "copiedAction": draft.action}
    copy = replace(
        draft,
        action="status_update",
        metadata=metadata,
        ack_by=None,
        thread=draft.thread or sent.id,
        idempotency_key=f"copy of {sent.id}",
    )
    return await store.send_to_many(copy, sender=sender, recipients=copies, verified=verified)
