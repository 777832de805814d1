"""Letters for agents on other machines: from their inbox here into `shipped/`, and out of it when they have arrived.

The name in `shipped/` says to which machine a letter goes and under which number; it is on the disk before the letter
leaves, so that it never goes under two numbers. Owns these moves; does not know the bus.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.mail.store import (
    dead_letters,
    file_operations,
    message_lookup,
    receipts,
    sending,
    signing,
)
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import (
    MessageFile,
    parse,
    parse_receipt_name,
    shipped_name,
    waiting_name,
)


class MessageInTransit(Struct, frozen=True):
    """A letter that is on its way."""

    sequence: int
    agent: str
    name: str


class ShippedMessage(Struct, frozen=True):
    """What is sent of it. `again` tells that it came from another machine before: it may be known already."""

    shipped: MessageInTransit
    message: bytes
    attachment: bytes = b""
    again: bool = False


class ShippedReceipt(Struct, frozen=True):
    """A receipt for somebody on another machine."""

    agent: str
    name: str
    receipt: bytes


def ship(
    tx: Transaction, agents: Iterable[str], node: str, first: int, most: int, most_bytes: int
) -> list[ShippedMessage]:
    """Number what waits, and move it to where it is kept until it has arrived. The caller syncs the folders."""
    taken: list[ShippedMessage] = []
    size = 0
    for agent in agents:
        if len(taken) >= most or size >= most_bytes:
            break
        waiting = message_lookup.entries(tx, "inbox", agent)
        if not waiting:
            continue
        target = tx.folder("shipped", agent, make=True)
        with tx.locked(agent):
            for entry in waiting:
                if len(taken) >= most or size >= most_bytes:
                    break
                sequence = first + len(taken)
                name = shipped_name(entry.stem, node, sequence)
                parcel = _load_shipped(tx, agent, entry, MessageInTransit(sequence, agent, name))
                if parcel is None:
                    continue  # Not delivered yet, or gone.
                tx.move(tx.folder("inbox", agent), entry.name, target, name)
                taken.append(parcel)
                size += len(parcel.message) + len(parcel.attachment)
    return taken


def reship(tx: Transaction, shipped: Sequence[MessageInTransit], most_bytes: int) -> list[ShippedMessage]:
    """The same letters once more, as many as fit; at least the first that can be read."""
    found: list[ShippedMessage] = []
    size = 0
    for each in shipped:
        entry = parse("shipped", each.name)
        parcel = _load_shipped(tx, each.agent, entry, each) if entry is not None else None
        if parcel is not None:
            found.append(parcel)
            size += len(parcel.message) + len(parcel.attachment)
        if size >= most_bytes:
            break
    return found


def _load_shipped(
    tx: Transaction, agent: str, entry: MessageFile, shipped: MessageInTransit
) -> ShippedMessage | None:
    found = file_operations.read(tx.folder(entry.place, agent), entry.name, signing.MAX_FILE_BYTES)
    if isinstance(found, file_operations.RejectedFile):
        return None
    message = signing.verify(tx.signing_key(), entry.stem, agent, found.data)
    if message is None:
        return None
    attachment = b""
    if isinstance(message.metadata.get("attachment"), dict):
        try:
            attachment = sending.attachment(tx, message)
        except SwitchboardError:
            pass  # It is gone here as well; whoever wants it is told so.
    return ShippedMessage(
        shipped, msgspec.json.encode(message), attachment, entry.stem.tail.startswith("file-")
    )


def in_transit(tx: Transaction) -> dict[str, list[MessageInTransit]]:
    """Everything in `shipped/`, by machine and in the order of the numbers."""
    found: dict[str, list[MessageInTransit]] = {}
    for agent in tx.agents("shipped"):
        for entry in message_lookup.entries(tx, "shipped", agent):
            found.setdefault(entry.node, []).append(MessageInTransit(entry.sequence, agent, entry.name))
    for shipped in found.values():
        shipped.sort(key=lambda each: each.sequence)
    return found


def archive_shipped(tx: Transaction, shipped: Sequence[MessageInTransit]) -> None:
    """They are stored where they belong: ours are kept in the archive. A crash may undo this; then they go again."""
    _move(tx, shipped, "archive")


def return_to_inbox(tx: Transaction, shipped: Sequence[MessageInTransit]) -> None:
    """They wait again, for the machine they were shipped to will never say."""
    _move(tx, shipped, "inbox")
    tx.sync_folders()


def _move(tx: Transaction, shipped: Sequence[MessageInTransit], place: str) -> None:
    for agent in {each.agent for each in shipped}:
        with tx.locked(agent):
            for each in shipped:
                if each.agent == agent:
                    _move_one(tx, each, place)


def _move_one(tx: Transaction, each: MessageInTransit, place: str) -> None:
    entry = parse("shipped", each.name)
    if entry is None:
        return
    try:
        source, target = tx.folder("shipped", each.agent), tx.folder(place, each.agent, make=True)
        tx.move(source, each.name, target, waiting_name(entry.stem))
    except FileNotFoundError:
        pass  # Done before a crash.
    except FileExistsError:
        tx.remove(tx.folder("shipped", each.agent), each.name)


def dead_letter_shipped(tx: Transaction, shipped: MessageInTransit, problem: Failure) -> None:
    """The other machine will not have it: a dead letter here, with the reason, and a receipt that says so."""
    entry = parse("shipped", shipped.name)
    if entry is not None:
        dead_letters.dead_letter(tx, shipped.agent, entry, "rejected", problem)


def pending_receipts(
    tx: Transaction, agents: Iterable[str], most: int, unless: Container[tuple[str, str]]
) -> list[ShippedReceipt]:
    """Receipts that wait here for senders who live elsewhere, but for these (agent, name)."""
    found: list[ShippedReceipt] = []
    for agent in agents:
        for name in tx.names("outbox", agent):
            if len(found) >= most:
                return found
            if (agent, name) in unless or parse_receipt_name(name) is None:
                continue
            read = file_operations.read(tx.folder("outbox", agent), name, receipts.MAX_RECEIPT_BYTES)
            if isinstance(read, file_operations.FileContent):
                found.append(ShippedReceipt(agent, name, read.data))
    return found


def discard_receipts(tx: Transaction, agent: str, names: Iterable[str]) -> None:
    """These receipts are where their reader lives; ours are done with."""
    if not tx.has("outbox", agent):
        return
    for name in names:
        if parse_receipt_name(name) is not None:
            try:
                tx.remove(tx.folder("outbox", agent), name)
            except FileNotFoundError:
                continue
