"""Drafts of stored messages that are sent again to another agent."""

from __future__ import annotations

from msgspec.structs import replace

from switchboard_mcp.mail.messages import Draft, FileAttachment, MailMessage
from switchboard_mcp.mail.store.store import MessageStore


async def draft_of(store: MessageStore, message: MailMessage, key: str) -> Draft:
    """Return the draft of a stored message with its attachment, to be stored once under this idempotency key."""
    record = message.metadata.get("attachment")
    draft = Draft(
        action=message.action,
        payload=message.payload,
        reply_to=message.reply_to,
        priority=message.priority,
        ack_by=message.ack_by,
        metadata={name: value for name, value in message.metadata.items() if name != "attachment"},
        team=message.team,
        thread=message.thread,
        idempotency_key=key,
        answers=True,
    )
    if not isinstance(record, dict):
        return draft
    data = await store.attachment(message)
    if "name" not in record:
        return replace(draft, payload=data.decode())
    file = FileAttachment(name=str(record["name"]), media_type=str(record["mediaType"]), data=data)
    return replace(draft, attachment=file)
