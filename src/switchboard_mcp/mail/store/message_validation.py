"""Validates messages, from tools and from dropped files alike. Not aware of folders or delivery rules."""

from __future__ import annotations

from typing import Any

import msgspec

from switchboard_mcp.config.agent_names import RESERVED_FOR, agent_name
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.mail.messages import (
    MAX_METADATA_BYTES,
    MAX_PAYLOAD_BYTES,
    PRIORITIES,
    RESERVED,
    Draft,
    MailMessage,
)
from switchboard_mcp.mail.store.filenames import is_message_id

# Accepted at the top level too, for authors who do not know `metadata`; no other keys have these names.
_TOP_LEVEL_KEYS = ("priority", "ackBy", "idempotencyKey")
MAX_KEY_CHARS = 256
MAX_REFERENCE_CHARS = 256


def from_draft(draft: Draft, sender: str, recipient: str, created_at: str) -> MailMessage | Failure:
    """Build a message without an id from a draft, or return what is wrong with it."""
    metadata = {key: value for key, value in draft.metadata.items() if key not in RESERVED}
    if draft.priority != "normal":
        metadata["priority"] = draft.priority
    if draft.ack_by is not None:
        metadata["ackBy"] = draft.ack_by
    if draft.idempotency_key is not None:
        metadata["idempotencyKey"] = draft.idempotency_key
    if draft.thread is not None:
        metadata["thread"] = draft.thread
    metadata["verified"] = True
    message = MailMessage(
        id="msg_0",
        action=draft.action,
        sender=sender,
        recipient=recipient,
        payload=draft.payload,
        reply_to=draft.reply_to,
        metadata=metadata,
        team=draft.team,
        created_at=created_at,
    )
    return validate(message) or message


def has_message_name(name: str) -> bool:
    """Return True if a file name has the form of a message."""
    return name.startswith("msg_") and name.endswith(".json")


def from_file(data: bytes, agent: str, file: str, created_at: str) -> MailMessage | Failure:
    """Parse a dropped file, or return what is wrong with it. Keys reserved for the store are removed."""
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        return _invalid(f"it is not JSON: {problem}")
    if not isinstance(content, dict):
        return _invalid("it is not a JSON object")
    content = _with_defaults(content, file, created_at)
    try:
        message = msgspec.convert(content, MailMessage)
    except (msgspec.ValidationError, RecursionError) as problem:
        return _invalid(str(problem))
    return _check_address(message, agent) or validate(message) or message


def _with_defaults(content: dict[str, Any], file: str, created_at: str) -> dict[str, Any]:
    content = {"createdAt": created_at, "id": file.removesuffix(".json"), **content}
    content.pop("persona", None)  # Added by the store alone.
    metadata = content.get("metadata")
    if metadata is None or isinstance(metadata, dict):
        kept = {key: value for key, value in (metadata or {}).items() if key not in ("seal", "attachment")}
        kept |= {key: content.pop(key) for key in _TOP_LEVEL_KEYS if key in content}
        content["metadata"] = {**kept, "verified": False}
    for name in ("sender", "recipient"):
        if isinstance(content.get(name), str):
            content[name] = agent_name(content[name]) or content[name]
    return content


def _check_address(message: MailMessage, agent: str) -> Failure | None:
    if not is_message_id(message.id):
        return _invalid("`id` must be msg_ followed by up to 100 letters, digits, - or _")
    if agent_name(message.sender) is None:
        return _invalid("`sender` is not a valid agent name")
    if message.sender in RESERVED_FOR:
        return _invalid(
            f"`sender` is '{message.sender}', which is reserved for {RESERVED_FOR[message.sender]}"
        )
    if message.recipient != agent:
        return _invalid(
            f"`recipient` is '{message.recipient[:80]}', but the file is in the inbox of '{agent}'"
        )
    return None


def validate(message: MailMessage) -> Failure | None:
    """Return what is wrong with a message, or None."""
    if _utf8(message.payload) > MAX_PAYLOAD_BYTES:
        return failure("mail_too_large", f"`payload` is larger than {MAX_PAYLOAD_BYTES} bytes.")
    try:
        if len(msgspec.json.encode(message.metadata)) > MAX_METADATA_BYTES:
            return failure("mail_too_large", f"`metadata` is larger than {MAX_METADATA_BYTES} bytes.")
        # Lone surrogates are valid in memory but not in a file.
        msgspec.json.encode(message)
    except (TypeError, ValueError, RecursionError) as problem:
        return _invalid(f"it cannot be written as JSON: {problem}")
    return _check_metadata(message) or _check_references(message)


def _check_metadata(message: MailMessage) -> Failure | None:
    metadata = message.metadata
    if "priority" in metadata and metadata["priority"] not in PRIORITIES:
        return _invalid(f"`priority` must be one of {', '.join(PRIORITIES)}")
    if "ackBy" in metadata and not _is_timestamp(metadata["ackBy"]):
        return _invalid("`ackBy` must be an ISO 8601 time")
    if not is_message_id(metadata.get("thread", "msg_0")):
        return _invalid("`thread` must be the id of a message")
    key = metadata.get("idempotencyKey", "-")
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS:
        return _invalid(f"`idempotencyKey` must be a string of 1 to {MAX_KEY_CHARS} characters")
    return None


def _check_references(message: MailMessage) -> Failure | None:
    for name, text in (("replyTo", message.reply_to), ("team", message.team)):
        if text is not None and not 0 < len(text) <= MAX_REFERENCE_CHARS:
            return _invalid(f"`{name}` must have 1 to {MAX_REFERENCE_CHARS} characters")
    if message.persona is not None and _utf8(message.persona) > MAX_METADATA_BYTES:
        return failure("mail_too_large", f"`persona` is larger than {MAX_METADATA_BYTES} bytes.")
    if not _is_timestamp(message.created_at):
        return _invalid("`createdAt` must be an ISO 8601 time")
    return None


def _is_timestamp(text: object) -> bool:
    from datetime import datetime  # Not at the top: hooks load this module at every turn and rarely need it.

    if not isinstance(text, str) or len(text) > 64:
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _utf8(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _invalid(reason: str) -> Failure:
    return failure("mail_message_invalid", f"The message is invalid: {reason}.")
