"""Receipts for senders: one file when a message is delivered or refused, another with its outcome.

Receipts are never changed once written, so no reader sees a partial one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice

import msgspec

from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.mail.messages import OUTCOMES, MailMessage, Receipt
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import TempFile, Transaction
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.filenames import Outcome, parse_receipt_name, receipt_name

MAX_RECEIPT_BYTES = 65_536
MAX_SUMMARY_CHARS = 2_000
# A folder of this size has had about a thousand receipts, and segments of this size as many.
LARGE_FOLDER_BYTES = 65_536
LARGE_SEGMENT_BYTES = 262_144
_decoder = msgspec.json.Decoder(Receipt)


def read(tx: Transaction, sender: str, message_id: str, outcome: Outcome | None = None) -> Receipt | None:
    """Read one receipt; None if missing or unreadable."""
    if not tx.has("outbox", sender):
        return None
    name = receipt_name(message_id, outcome)
    content = tx.read("outbox", sender, name, MAX_RECEIPT_BYTES)
    return None if isinstance(content, file_operations.RejectedFile) else decode(content.data)


def decode(data: bytes) -> Receipt | None:
    """Decode a receipt file; None if invalid."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def encode(receipt: Receipt) -> bytes:
    """Encode a receipt file."""
    return msgspec.json.encode(receipt) + b"\n"


def publish_first(tx: Transaction, file: TempFile, sender: str, message_id: str) -> None:
    """Publish the first receipt of a message, unless one already says that it was accepted."""
    folder, name = tx.folder("outbox", sender, make=True), receipt_name(message_id)
    try:
        tx.publish(file, folder, name)
        return
    except FileExistsError:
        pass
    # A packed receipt belongs to a settled message, of which this would be a duplicate.
    content = file_operations.read(folder, name, MAX_RECEIPT_BYTES)
    existing = None if isinstance(content, file_operations.RejectedFile) else decode(content.data)
    if existing is None or existing.status == "refused":
        tx.put(file, folder, name)


def restore(tx: Transaction, sender: str, receipt: Receipt, outcome: Outcome | None = None) -> None:
    """Write a receipt that a crash has prevented; best effort, because `repair` does so too."""
    try:
        existing = read(tx, sender, receipt.in_reply_to, outcome)
        if tx.is_remote(sender) or (existing is not None and existing.status != "refused"):
            return
        file = tx.write(encode(receipt))
        tx.sync_file(file)
        tx.put(file, tx.folder("outbox", sender, make=True), receipt_name(receipt.in_reply_to, outcome))
    except (OSError, SwitchboardError):
        pass


def latest(tx: Transaction, sender: str, message_id: str) -> Receipt | None:
    """Return the latest receipt of a message."""
    for outcome in OUTCOMES:
        receipt = read(tx, sender, message_id, outcome)
        if receipt is not None:
            return receipt
    return read(tx, sender, message_id)


def outcomes_by_message(tx: Transaction, sender: str) -> dict[str, set[Outcome | None]]:
    """Map each message of this sender to the kinds of receipts it has; None stands for delivery."""
    outcomes: dict[str, set[Outcome | None]] = {}
    for name in tx.all_names("outbox", sender):
        receipt = parse_receipt_name(name)
        if receipt is not None:
            outcomes.setdefault(receipt[0], set()).add(receipt[1])
    return outcomes


def newest(tx: Transaction, sender: str, ids: Sequence[str] | None, limit: int) -> list[Receipt]:
    """Return the latest receipt of each requested message; without ids, the most recent first."""
    limit = max(0, limit)
    if ids is None:
        ids = tx.recent_receipts(sender).newest(limit) or _ids_by_latest(tx, sender)
    else:
        ids = ids[:limit]
    # One that was noted may be missing: its process ended before it was written.
    latest_receipts = (latest(tx, sender, each) for each in ids)
    return list(islice((receipt for receipt in latest_receipts if receipt is not None), limit))


def _ids_by_latest(tx: Transaction, sender: str) -> list[str]:
    """List the outbox; notes the newest ones if there are very many."""
    recent = tx.recent_receipts(sender)
    many = not tx.directory.read_only and _is_large(tx, sender)
    if many:
        recent.begin()
    dated = []
    for message_id, outcomes in outcomes_by_message(tx, sender).items():
        folder = tx.folder("outbox", sender)
        changed = [
            file_operations.mtime(folder, receipt_name(message_id, outcome)) or 0.0 for outcome in outcomes
        ]
        dated.append((max(changed), message_id))
    ids = [message_id for _, message_id in sorted(dated, reverse=True)]
    if many:
        recent.write(ids)
    return ids


def _is_large(tx: Transaction, sender: str) -> bool:
    """Return True if an outbox has many files or segments, without listing it."""
    if not tx.has("outbox", sender):
        return False
    size = os.fstat(tx.folder("outbox", sender)).st_size
    return size > LARGE_FOLDER_BYTES or day_segments.total_bytes(tx, "outbox", sender) > LARGE_SEGMENT_BYTES


def delivered_receipt(message_id: str, recipient: str, at: str) -> Receipt:
    """Return the receipt for a delivered message."""
    return Receipt(
        id=f"receipt_{message_id}",
        in_reply_to=message_id,
        status="delivered",
        summary=f"Message delivered to '{recipient}' inbox",
        processed_at=at,
        recipient=recipient,
    )


def refused_receipt(message_id: str, recipient: str, problem: Failure, at: str) -> Receipt:
    """Return the receipt for a rejected dropped file."""
    return Receipt(
        id=f"receipt_{message_id}",
        in_reply_to=message_id,
        status="refused",
        summary=f"Message to '{recipient}' was not delivered",
        processed_at=at,
        error=problem.message,
        recipient=recipient,
    )


def final_receipt(message: MailMessage, outcome: Outcome, reason: str, at: str) -> Receipt:
    """Return the receipt for the outcome of a message."""
    default: dict[Outcome, str] = {
        "done": f"'{message.recipient}' completed it",
        "failed": f"'{message.recipient}' could not do it",
        "rejected": f"'{message.recipient}' rejected it",
        "recalled": f"'{message.sender}' recalled it",
        "reassigned": f"It was taken from '{message.recipient}'",
    }
    summary = reason[:MAX_SUMMARY_CHARS] or default[outcome]
    return Receipt(
        id=f"receipt_{message.id}",
        in_reply_to=message.id,
        status=outcome,
        summary=summary,
        processed_at=at,
        error=summary if outcome in ("failed", "rejected") else None,
        recipient=message.recipient,
    )
