"""Receipts for senders: one file when a message is delivered or refused, another with its outcome.

Receipts are never changed once written, so no reader sees a partial one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import islice

import msgspec

from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.mail.messages import OUTCOMES, MailMessage, Receipt
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import TempFile, Transaction
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.filenames import Outcome, parse_receipt_name, receipt_name
from switchboard_mcp.mail.store.index.recent_receipts import KEPT

MAX_RECEIPT_BYTES = 65_536
MAX_SUMMARY_CHARS = 2_000
# A folder of this size has had about a thousand receipts, and segments of this size as many.
LARGE_FOLDER_BYTES = 65_536
LARGE_SEGMENT_BYTES = 262_144
# Files of an outbox that are looked at in one piece: about 0.05 s.
PIECE = 5_000
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


class NewestReceipts:
    """Finds the newest receipts of a sender. If its outbox must be listed, that is done in pieces.

    Keeps the ids of the newest receipts alone, however many there are.
    """

    def __init__(self, sender: str, ids: Sequence[str] | None, limit: int) -> None:
        self._sender = sender
        self._limit = max(0, limit)
        self._ids = None if ids is None else ids[: self._limit]
        self._most = max(self._limit, KEPT)
        self._listing: Iterator[str] | None = None
        # When the newest receipt of a message was written.
        self._found: dict[str, float] = {}
        self._oldest = 0.0

    def advance(self, tx: Transaction) -> list[Receipt] | None:
        """Return the latest receipt of each requested message; without ids, the most recent first.

        Returns None after a piece of a listing: call it again.
        """
        if self._ids is None:
            self._ids = self.newest_ids(tx)
        ids = self._ids
        # Each of them may need several lookups in segments, so these are indexed first.
        if ids is None or (len(ids) > 1 and day_segments.index_piece(tx, "outbox", self._sender)):
            return None
        # One that was noted may be missing: its process ended before it was written.
        latest_receipts = (latest(tx, self._sender, each) for each in ids)
        return list(islice((receipt for receipt in latest_receipts if receipt is not None), self._limit))

    def newest_ids(self, tx: Transaction) -> list[str] | None:
        """Return the ids of the messages with the newest receipts, newest first; None after a piece of a listing."""
        recent = tx.recent_receipts(self._sender)
        if self._listing is None:
            known = recent.newest(self._limit)
            if known is not None:
                return known
            if not tx.has("outbox", self._sender):
                return []
            if not tx.directory.read_only and is_large(tx, self._sender):
                recent.begin()
            self._listing = file_operations.each_name(tx.folder("outbox", self._sender))
        if self._list_piece(tx.folder("outbox", self._sender)):
            return None
        for name, changed in self._packed(tx):
            self._add(name, changed)
        ids = [each for each, _ in self._newest_found()]
        if not tx.directory.read_only and is_large(tx, self._sender):
            recent.write(ids)
        return ids

    def _list_piece(self, folder: int) -> bool:
        """Look at some files; returns True if there may be more."""
        names = list(islice(self._listing or (), PIECE))
        for name in names:
            receipt = parse_receipt_name(name)
            changed = None if receipt is None else file_operations.mtime(folder, name)
            if receipt is not None and changed is not None:
                self._add(receipt[0], changed)
        return len(names) == PIECE

    def _packed(self, tx: Transaction) -> Iterator[tuple[str, float]]:
        """Yield the messages of the receipts that were packed last, and when these were written."""
        seen: set[str] = set()
        for line in day_segments.newest(tx, "outbox", self._sender):
            receipt = parse_receipt_name(line.name)
            if receipt is not None:
                seen.add(receipt[0])
                yield receipt[0], float(line.at)
            if len(seen) > self._most:
                return

    def _add(self, message_id: str, changed: float) -> None:
        if changed < self._oldest:
            return
        self._found[message_id] = max(changed, self._found.get(message_id, 0.0))
        if len(self._found) > 4 * self._most:
            self._found = dict(self._newest_found())
            self._oldest = min(self._found.values())

    def _newest_found(self) -> list[tuple[str, float]]:
        return nlargest(self._most, self._found.items(), key=lambda each: (each[1], each[0]))


def is_large(tx: Transaction, sender: str) -> bool:
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
