"""Taking away what ended long ago: archived messages with their receipts, keys and attachments.

Never what waits, is claimed, is on its way or is a dead letter. A message's receipts go first and for certain, so that
nobody who is killed in between leaves a receipt for a message that is nowhere. Owns what may go, and in which order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from switchboard_mcp.mail.messages import OUTCOMES, MailMessage
from switchboard_mcp.mail.store import file_operations, message_lookup, receipts, sending, signing
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import PLACES, MessageFile, Place, parse, receipt_for, receipt_name
from switchboard_mcp.mail.store.store import MessageStore

# So many at once that nobody who sends meanwhile waits for long.
BATCH = 200
_ATTACHED = re.compile(rb"attachments/([0-9a-f]{64}\.txt)")


class Old(Struct, frozen=True):
    """A message that ended long ago."""

    agent: str
    entry: MessageFile
    bytes: int


class Pruned(Struct, rename="camel", kw_only=True):
    """How much was taken away."""

    messages: int = 0
    receipts: int = 0
    attachments: int = 0
    bytes: int = 0


async def prune(post: MessageStore, seconds: float) -> Pruned:
    """Take away what ended more than so many seconds ago, in steps between which others have their turn."""
    until = await post.work(lambda visit: _ago(visit, seconds))
    found = await post.work(lambda visit: old(visit, until))
    done = Pruned()
    for start in range(0, len(found), BATCH):
        some = found[start : start + BATCH]
        await post.work(lambda visit, some=some: take_away(visit, some, done))  # type: ignore[misc]
    await post.work(lambda visit: take_leftovers(visit, until, done))
    return done


async def would_prune(post: MessageStore, seconds: float) -> Pruned:
    """How many messages that would be, without their receipts and attachments."""
    found = await post.work(lambda visit: old(visit, _ago(visit, seconds)))
    return Pruned(messages=len(found), bytes=sum(each.bytes for each in found))


def _ago(visit: Transaction, seconds: float) -> float:
    return visit.clocks.microseconds() / 1e6 - seconds


def old(visit: Transaction, until: float) -> list[Old]:
    """The messages that ended before that time."""
    return [
        Old(agent, entry, file_operations.size(visit.folder("archive", agent), entry.name))
        for agent in visit.agents("archive")
        for entry in message_lookup.entries(visit, "archive", agent)
        if _is_old(visit.folder("archive", agent), entry.name, until) and _has_ended(visit, agent, entry)
    ]


def _is_old(folder: int, name: str, until: float) -> bool:
    changed = file_operations.changed(folder, name)
    return changed is not None and changed < until


def _has_ended(visit: Transaction, agent: str, entry: MessageFile) -> bool:
    """What was shipped to another machine has ended when that machine has said how."""
    if not visit.is_elsewhere(agent):
        return True
    message = message_lookup.read(visit, agent, entry)
    return not isinstance(message, file_operations.RejectedFile) and any(
        receipts.read(visit, message.sender, entry.stem.id, outcome) for outcome in OUTCOMES
    )


def take_away(visit: Transaction, some: Sequence[Old], done: Pruned) -> None:
    """Remove these for good."""
    gone = [(each, message) for each in some if (message := _without_receipts(visit, each, done)) is not None]
    visit.sync_folders()
    for agent in {each.agent for each, _ in gone}:
        with visit.locked(agent):
            for each, message in gone:
                if each.agent == agent:
                    _remove(visit, each, message, done)
    visit.sync_folders()


def _without_receipts(visit: Transaction, each: Old, done: Pruned) -> MailMessage | None:
    """The message, whose receipts are gone now; None where it has to stay."""
    message = message_lookup.read(visit, each.agent, each.entry)
    if isinstance(message, file_operations.RejectedFile):
        return None
    if not visit.has("outbox", message.sender):
        return message
    folder = visit.folder("outbox", message.sender)
    if visit.is_elsewhere(message.sender) and any(
        file_operations.exists(folder, name) for name in _slips(message)
    ):
        return None  # They have not reached their reader yet.
    done.receipts += sum(_take(visit, folder, name) for name in _slips(message))
    return message


def _slips(message: MailMessage) -> list[str]:
    """The names that receipts of a message may have."""
    return [receipt_name(message.id, outcome) for outcome in (None, *OUTCOMES)]


def _remove(visit: Transaction, each: Old, message: MailMessage, done: Pruned) -> None:
    if visit.has("outbox", message.sender) and not visit.is_elsewhere(message.sender):
        for name in _slips(message):  # Once more: somebody who mends may have missed them meanwhile.
            _take(visit, visit.folder("outbox", message.sender), name)
    if not _take(visit, visit.folder("archive", each.agent), each.entry.name):
        return
    done.messages += 1
    done.bytes += each.bytes
    if visit.has("keys", each.agent):
        drop_id = message.id if each.entry.stem.tail.startswith("file-") else ""
        for mark in sending.marks(message, drop_id):
            _take(visit, visit.folder("keys", each.agent), mark)


def take_leftovers(visit: Transaction, until: float, done: Pruned) -> None:
    """Remove what belongs to no message: receipts of what was refused, and attachments, as old."""
    for sender in visit.agents("outbox"):
        if not visit.is_elsewhere(sender):
            done.receipts += _refusals(visit, sender, until)
    _attachments(visit, until, done)
    visit.sync_folders()


def _refusals(visit: Transaction, sender: str, until: float) -> int:
    folder = visit.folder("outbox", sender)
    count = 0
    for name in file_operations.names(folder):
        told = receipt_for(name)
        if told is None or told[1] is not None or not _is_old(folder, name, until):
            continue
        found = receipts.read(visit, sender, told[0])
        if found is not None and found.status == "refused":
            count += _take(visit, folder, name)
    return count


def _attachments(visit: Transaction, until: float, done: Pruned) -> None:
    folder = visit.folder("attachments")
    aged = {name for name in file_operations.names(folder) if _is_old(folder, name, until)}
    named = _named(visit) if aged else None
    if named is None:
        return
    # Whoever sends the same content just now does so under one of these locks, and makes the file anew.
    with visit.locked(*visit.agents()):
        for name in aged - named:
            size = file_operations.size(folder, name)
            if _is_old(folder, name, until) and _take(visit, folder, name):
                done.attachments += 1
                done.bytes += size


def _named(visit: Transaction) -> set[str] | None:
    """Every attachment that a message names; None where messages moved so that not all could be read."""
    found: set[str] = set()
    for agent in {agent for place in PLACES for agent in visit.agents(place)}:
        with visit.locked(agent):
            names = [(place, name) for place in PLACES for name in visit.names(place, agent)]
        for place, name in names:
            data = _content(visit, agent, place, name)
            if data is None:
                return None
            found |= {each.decode() for each in _ATTACHED.findall(data)}
    return found


def _content(visit: Transaction, agent: str, place: Place, name: str) -> bytes | None:
    read = file_operations.read(visit.folder(place, agent), name, signing.MOST_FILE_BYTES)
    if isinstance(read, file_operations.RejectedFile) and read.gone:
        entry = parse(place, name)
        moved = entry and message_lookup.find(visit, agent, entry.stem.id)
        if moved is None:
            return None
        read = file_operations.read(visit.folder(moved.place, agent), moved.name, signing.MOST_FILE_BYTES)
    if isinstance(read, file_operations.RejectedFile):
        return None if parse(place, name) else b""  # a message that cannot be read may name one
    return read.data


def _take(visit: Transaction, folder: int, name: str) -> bool:
    try:
        visit.remove(folder, name)
    except FileNotFoundError:
        return False
    return True
