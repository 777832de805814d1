"""Messages for agents on other machines: moved from the inbox to `shipped/`, and out of it once they have arrived.

The name in `shipped/` holds the target machine and the sequence number. It is durable before the message leaves, so a
message never leaves under two numbers. Not aware of the bus.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.mail.store import (
    dead_letters,
    file_operations,
    message_lookup,
    quotas,
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

# Files of one folder that are kept in memory after it was listed.
MAX_LISTED = 16_384


class MessageInTransit(Struct, frozen=True):
    """A message in transit. `size` is that of its content, if it is known."""

    sequence: int
    agent: str
    name: str
    size: int = 0


class ShippedMessage(Struct, frozen=True):
    """Content of a message to ship. `again` marks one that came from another machine, so it may be known there."""

    shipped: MessageInTransit
    message: bytes
    attachment: bytes = b""
    again: bool = False


class ShippedReceipt(Struct, frozen=True):
    """A receipt for a sender on another machine."""

    agent: str
    name: str
    receipt: bytes


def with_mail(tx: Transaction, agents: Iterable[str]) -> tuple[set[str], set[str]]:
    """Return those of these agents that have messages here, and those that have receipts."""
    agents = list(agents)
    inboxes = {agent for agent in agents if tx.names("inbox", agent)}
    return inboxes, {agent for agent in agents if tx.names("outbox", agent)}


class Shipment:
    """Numbers the waiting messages of agents on one machine and moves them to `shipped/`, a batch at a time.

    A folder is listed once for all batches: messages that come later have higher order numbers.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._listed: dict[str, deque[MessageFile]] = {}
        # True if a folder held more than were listed, or a batch was full.
        self.has_more = False

    def ship(
        self, tx: Transaction, agents: Iterable[str], first: int, limit: int, max_bytes: int
    ) -> list[ShippedMessage]:
        """Move one batch, numbered from `first`; a shorter one is the last. The caller syncs the folders."""
        shipped: list[ShippedMessage] = []
        size = 0
        self.has_more = False
        for agent in agents:
            waiting = self._listed.get(agent)
            if not waiting:
                entries = message_lookup.entries(tx, "inbox", agent)
                self.has_more = self.has_more or len(entries) > MAX_LISTED
                waiting = self._listed[agent] = deque(entries[:MAX_LISTED])
            if not waiting:
                continue
            target = tx.folder("shipped", agent, make=True)
            with tx.locked(agent):
                while waiting and len(shipped) < limit and size < max_bytes:
                    message = self._ship(tx, agent, waiting.popleft(), target, first + len(shipped))
                    if message is not None:
                        shipped.append(message)
                        size += message.shipped.size
            self.has_more = self.has_more or bool(waiting)
        return shipped

    def _ship(
        self, tx: Transaction, agent: str, entry: MessageFile, target: int, sequence: int
    ) -> ShippedMessage | None:
        """Move one message; return None if it is not delivered yet, or gone."""
        name = shipped_name(entry.stem, self._node, sequence)
        content = file_operations.read(tx.folder("inbox", agent), entry.name, signing.MAX_FILE_BYTES)
        message = _decode(tx, agent, entry, content, MessageInTransit(sequence, agent, name))
        if message is None or isinstance(content, file_operations.RejectedFile):
            return None
        tx.move(tx.folder("inbox", agent), entry.name, target, name, data=content.data)
        return message


def reship(tx: Transaction, shipped: Sequence[MessageInTransit], max_bytes: int) -> list[ShippedMessage]:
    """Load the same messages again, as many as fit; at least the first that can be read."""
    messages: list[ShippedMessage] = []
    size = 0
    for each in shipped:
        entry = parse("shipped", each.name)
        if entry is None:
            continue
        content = file_operations.read(tx.folder("shipped", each.agent), each.name, signing.MAX_FILE_BYTES)
        message = _decode(tx, each.agent, entry, content, each)
        if message is not None:
            messages.append(message)
            size += message.shipped.size
        if size >= max_bytes:
            break
    return messages


def _decode(
    tx: Transaction,
    agent: str,
    entry: MessageFile,
    content: file_operations.FileContent | file_operations.RejectedFile,
    shipped: MessageInTransit,
) -> ShippedMessage | None:
    """Return a message with its attachment; None if the file is not a message of this store."""
    if isinstance(content, file_operations.RejectedFile):
        return None
    message = signing.verify(tx.signing_key(), entry.stem, agent, content.data)
    if message is None:
        return None
    attachment = b""
    if isinstance(message.metadata.get("attachment"), dict):
        try:
            attachment = sending.attachment(tx, message)
        except SwitchboardError:
            pass  # Missing here too; the recipient gets an error when reading it.
    data = msgspec.json.encode(message)
    shipped = msgspec.structs.replace(shipped, size=len(data) + len(attachment))
    return ShippedMessage(shipped, data, attachment, entry.stem.tail.startswith("file-"))


def in_transit(tx: Transaction) -> dict[str, list[MessageInTransit]]:
    """List everything in `shipped/`, by machine and in sequence."""
    by_node: dict[str, list[MessageInTransit]] = {}
    for agent in tx.agents("shipped"):
        for entry in message_lookup.entries(tx, "shipped", agent):
            by_node.setdefault(entry.node, []).append(MessageInTransit(entry.sequence, agent, entry.name))
    for shipped in by_node.values():
        shipped.sort(key=lambda each: each.sequence)
    return by_node


def archive_shipped(tx: Transaction, shipped: Sequence[MessageInTransit]) -> None:
    """Archive messages that have arrived. Not synced: after a crash they are shipped again and deduplicated."""
    _move(tx, shipped, "archive")


def return_to_inbox(tx: Transaction, shipped: Sequence[MessageInTransit]) -> None:
    """Return messages to the inbox, because their target machine will never confirm them."""
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
        size = file_operations.size(source, each.name)
        tx.move(source, each.name, target, waiting_name(entry.stem))
        if place == "archive":
            quotas.settle(tx, each.agent, size)
    except FileNotFoundError:
        pass  # Done before a crash.
    except FileExistsError:
        tx.remove(tx.folder("shipped", each.agent), each.name)


def dead_letter_shipped(tx: Transaction, shipped: MessageInTransit, problem: Failure) -> None:
    """Dead-letter a message that the other machine refused."""
    entry = parse("shipped", shipped.name)
    if entry is not None:
        dead_letters.dead_letter(tx, shipped.agent, entry, "rejected", problem)


def pending_receipts(
    tx: Transaction, agents: Iterable[str], limit: int, unless: Container[tuple[str, str]]
) -> list[ShippedReceipt]:
    """List receipts for senders on other machines, except these (agent, name)."""
    pending: list[ShippedReceipt] = []
    for agent in agents:
        for name in tx.names("outbox", agent):
            if len(pending) >= limit:
                return pending
            if (agent, name) in unless or parse_receipt_name(name) is None:
                continue
            read = file_operations.read(tx.folder("outbox", agent), name, receipts.MAX_RECEIPT_BYTES)
            if isinstance(read, file_operations.FileContent):
                pending.append(ShippedReceipt(agent, name, read.data))
    return pending


def discard_receipts(tx: Transaction, agent: str, names: Iterable[str]) -> None:
    """Remove receipts that have reached their reader."""
    if not tx.has("outbox", agent):
        return
    for name in names:
        if parse_receipt_name(name) is not None:
            try:
                tx.remove(tx.folder("outbox", agent), name)
            except FileNotFoundError:
                continue
