"""Retention: removes messages settled long ago, with their receipts, dedup keys and attachments.

Never removes waiting, claimed, shipped or dead-lettered messages. Receipts are removed first and durably, so a crash in
between never leaves a receipt for a missing message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from switchboard_mcp.mail.messages import OUTCOMES, MailMessage
from switchboard_mcp.mail.store import (
    file_operations,
    message_lookup,
    quotas,
    receipts,
    sending,
    signing,
)
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.filenames import (
    PLACES,
    MessageFile,
    Place,
    parse,
    parse_receipt_name,
    receipt_name,
)
from switchboard_mcp.mail.store.store import MessageStore

# Batch size: small enough that concurrent senders do not wait long.
BATCH = 200
_ATTACHED = re.compile(rb"attachments/([0-9a-f]{64}\.(?:txt|bin))")


class PrunableMessage(Struct, frozen=True):
    """A message settled long ago."""

    agent: str
    entry: MessageFile
    bytes: int


class Pruned(Struct, rename="camel", kw_only=True):
    """Number of items removed."""

    messages: int = 0
    receipts: int = 0
    attachments: int = 0
    bytes: int = 0


async def prune(store: MessageStore, seconds: float) -> Pruned:
    """Remove messages settled more than `seconds` ago, in batches between which other jobs run."""
    until = await store.run(lambda tx: _ago(tx, seconds))
    prunable = await store.run(lambda tx: find_prunable(tx, until))
    done = Pruned()
    for start in range(0, len(prunable), BATCH):
        some = prunable[start : start + BATCH]
        await store.run(lambda tx, some=some: remove_messages(tx, some, done))  # type: ignore[misc]
    await store.run(lambda tx: remove_packed(tx, until, done))
    await store.run(lambda tx: remove_leftovers(tx, until, done))
    if done.messages or done.attachments:
        await store.run(quotas.recount_stored)
    return done


async def would_prune(store: MessageStore, seconds: float) -> Pruned:
    """Count the messages that `prune` would remove, without their receipts and attachments."""
    until = await store.run(lambda tx: _ago(tx, seconds))
    prunable = await store.run(lambda tx: find_prunable(tx, until))
    packed = await store.run(lambda tx: _packed_before(tx, until))
    return Pruned(
        messages=len(prunable) + len(packed), bytes=sum(each.bytes for each in prunable) + sum(packed)
    )


def _packed_before(tx: Transaction, until: float) -> list[int]:
    """Return the sizes of the messages in segments that `remove_packed` would remove."""
    return [
        size
        for agent in tx.agents("archive")
        for size in day_segments.sizes(tx, "archive", agent, until=until - day_segments.DAY_S)
    ]


def remove_packed(tx: Transaction, until: float, done: Pruned) -> None:
    """Remove the segments of days before this time: those of receipts first, for the reason above.

    A receipt may be written on the day after its message was settled, so messages are kept for one more day.
    """
    for sender in tx.agents("outbox"):
        done.receipts += sum(1 for _ in day_segments.remove_segments(tx, "outbox", sender, until))
    tx.sync_folders()
    for agent in tx.agents("archive"):
        with tx.locked(agent):
            for name, data in day_segments.remove_segments(tx, "archive", agent, until - day_segments.DAY_S):
                done.messages += 1
                done.bytes += len(data)
                entry, message = parse("archive", name), signing.decode(data)
                if entry is not None and message is not None:
                    _remove_keys(tx, agent, entry, message)
    tx.sync_folders()


def _ago(tx: Transaction, seconds: float) -> float:
    return tx.clocks.microseconds() / 1e6 - seconds


def find_prunable(tx: Transaction, until: float) -> list[PrunableMessage]:
    """List the messages settled before `until`."""
    return [
        PrunableMessage(agent, entry, file_operations.size(tx.folder("archive", agent), entry.name))
        for agent in tx.agents("archive")
        for name in tx.names("archive", agent)
        if (entry := parse("archive", name)) is not None
        and _is_old(tx.folder("archive", agent), name, until)
        and _is_settled(tx, agent, entry)
    ]


def _is_old(folder: int, name: str, until: float) -> bool:
    changed = file_operations.mtime(folder, name)
    return changed is not None and changed < until


def _is_settled(tx: Transaction, agent: str, entry: MessageFile) -> bool:
    """Return True if the message is settled; one shipped to another machine, if that machine has reported how."""
    if not tx.is_remote(agent):
        return True
    message = message_lookup.read(tx, agent, entry)
    return not isinstance(message, file_operations.RejectedFile) and any(
        receipts.read(tx, message.sender, entry.stem.id, outcome) for outcome in OUTCOMES
    )


def remove_messages(tx: Transaction, batch: Sequence[PrunableMessage], done: Pruned) -> None:
    """Remove these messages permanently."""
    gone = [(each, message) for each in batch if (message := _remove_receipts(tx, each, done)) is not None]
    tx.sync_folders()
    for agent in {each.agent for each, _ in gone}:
        with tx.locked(agent):
            for each, message in gone:
                if each.agent == agent:
                    _remove(tx, each, message, done)
    tx.sync_folders()


def _remove_receipts(tx: Transaction, each: PrunableMessage, done: Pruned) -> MailMessage | None:
    """Remove the receipts of a message and return it; None if it must stay."""
    message = message_lookup.read(tx, each.agent, each.entry)
    if isinstance(message, file_operations.RejectedFile):
        return None
    if not tx.has("outbox", message.sender):
        return message
    folder = tx.folder("outbox", message.sender)
    if tx.is_remote(message.sender) and any(
        file_operations.exists(folder, name) for name in _receipt_names(message)
    ):
        return None  # They have not reached their reader yet.
    done.receipts += sum(_unlink(tx, folder, name) for name in _receipt_names(message))
    return message


def _receipt_names(message: MailMessage) -> list[str]:
    """Return the possible names of a message's receipts."""
    return [receipt_name(message.id, outcome) for outcome in (None, *OUTCOMES)]


def _remove(tx: Transaction, each: PrunableMessage, message: MailMessage, done: Pruned) -> None:
    if tx.has("outbox", message.sender) and not tx.is_remote(message.sender):
        for name in _receipt_names(message):  # Again, because a concurrent `repair` may have restored them.
            _unlink(tx, tx.folder("outbox", message.sender), name)
    if not _unlink(tx, tx.folder("archive", each.agent), each.entry.name):
        return
    done.messages += 1
    done.bytes += each.bytes
    _remove_keys(tx, each.agent, each.entry, message)


def _remove_keys(tx: Transaction, agent: str, entry: MessageFile, message: MailMessage) -> None:
    if tx.has("keys", agent):
        dropped_id = message.id if entry.stem.tail.startswith("file-") else ""
        for mark in sending.dedup_keys(message, dropped_id):
            _unlink(tx, tx.folder("keys", agent), mark)


def remove_leftovers(tx: Transaction, until: float, done: Pruned) -> None:
    """Remove old receipts of refused files, and old attachments that no message refers to."""
    for sender in tx.agents("outbox"):
        if not tx.is_remote(sender):
            done.receipts += _remove_refused_receipts(tx, sender, until)
    _remove_attachments(tx, until, done)
    tx.sync_folders()


def _remove_refused_receipts(tx: Transaction, sender: str, until: float) -> int:
    folder = tx.folder("outbox", sender)
    count = 0
    for name in file_operations.names(folder):
        parsed = parse_receipt_name(name)
        if parsed is None or parsed[1] is not None or not _is_old(folder, name, until):
            continue
        receipt = receipts.read(tx, sender, parsed[0])
        if receipt is not None and receipt.status == "refused":
            count += _unlink(tx, folder, name)
    return count


def _remove_attachments(tx: Transaction, until: float, done: Pruned) -> None:
    folder = tx.folder("attachments")
    aged = {name for name in file_operations.names(folder) if _is_old(folder, name, until)}
    named = _referenced_attachments(tx) if aged else None
    if named is None:
        return
    # Concurrent senders of the same content hold one of these locks and write the file again.
    with tx.locked(*tx.agents()):
        for name in aged - named:
            size = file_operations.size(folder, name)
            if _is_old(folder, name, until) and _unlink(tx, folder, name):
                done.attachments += 1
                done.bytes += size


def _referenced_attachments(tx: Transaction) -> set[str] | None:
    """Return the attachments that messages refer to; None if messages moved so that not all could be read."""
    referenced: set[str] = set()
    for agent in {agent for place in PLACES for agent in tx.agents(place)}:
        with tx.locked(agent):
            names = [(place, name) for place in PLACES for name in tx.all_names(place, agent)]
        for place, name in names:
            data = _read_message(tx, agent, place, name)
            if data is None:
                return None
            referenced |= {each.decode() for each in _ATTACHED.findall(data)}
    return referenced


def _read_message(tx: Transaction, agent: str, place: Place, name: str) -> bytes | None:
    if not tx.has(place, agent):
        return None
    read = tx.read(place, agent, name, signing.MAX_FILE_BYTES)
    if isinstance(read, file_operations.RejectedFile) and read.gone:
        entry = parse(place, name)
        moved = entry and message_lookup.find(tx, agent, entry.stem.id)
        if moved is None:
            return None
        read = tx.read(moved.place, agent, moved.name, signing.MAX_FILE_BYTES)
    if isinstance(read, file_operations.RejectedFile):
        return None if parse(place, name) else b""  # An unreadable message may refer to one.
    return read.data


def _unlink(tx: Transaction, folder: int, name: str) -> bool:
    try:
        tx.remove(folder, name)
    except FileNotFoundError:
        return False
    return True
