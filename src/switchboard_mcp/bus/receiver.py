"""Receives messages from other machines: stores each once and in order, then confirms and acknowledges it.

An entry is acknowledged only after its message is on disk. A message that cannot be stored now stays in the stream and
is delivered again; one that never can be, or has failed too often, goes to the dead-letter stream and its sender is
notified. Not aware of which agent is on which machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus.node import BusNode
from switchboard_mcp.bus.redis_client import BusClient, Fields, StreamEntry
from switchboard_mcp.bus.sender import BATCH, WINDOW
from switchboard_mcp.bus.sequence import SequenceMark, check_sequence
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.mail.messages import MAX_ATTACHMENT_BYTES, MailMessage
from switchboard_mcp.mail.store import signing
from switchboard_mcp.mail.store.receipts import MAX_RECEIPT_BYTES
from switchboard_mcp.mail.store.remote import remote_inbox
from switchboard_mcp.mail.store.store import MessageStore

# An entry is dead-lettered after this many unexpected failures, or this many deliveries without an acknowledgement:
# it probably crashes the process. The second limit is higher because an unstable connection also causes redelivery.
MAX_ATTEMPTS, MAX_DELIVERIES = 5, 50
# Entries processed together.
MAX_BATCH = 512
# Messages that may be stored beyond the mark on disk after a crash or a power failure: those since the last durable
# mark, and a batch whose mark was not saved.
MAX_UNMARKED = 2 * MAX_BATCH
# The disk, not the message, is at fault: the message waits as long as that takes.
TEMPORARY = frozenset({"mail_not_stored", "shutting_down", "mail_unsafe"})


# The fields of a message or a receipt, and how long each may be.
MAX_FIELD_BYTES = {
    **dict.fromkeys(("kind", "from", "epoch", "seq", "base", "again", "agent", "name"), 256),
    "message": signing.MAX_FILE_BYTES,
    "attachment": MAX_ATTACHMENT_BYTES,
    "receipt": MAX_RECEIPT_BYTES,
}


class ReceivedMessage(Struct):
    """A message to be stored, and the outcome."""

    entry: StreamEntry
    message: MailMessage | None = None
    problem: Exception | None = None
    maybe_stored: bool = True


class LinkBatch(Struct):
    """The entries of one link that are received together: those to be stored, and the progress after them."""

    reached: SequenceMark
    maybe_stored_upto: int
    """Messages up to this number may be stored already."""
    incoming: list[ReceivedMessage] = []
    skipped: list[str] = []
    """Ids of entries that are known, or follow a gap."""
    has_gap: bool = False


class BusReceiver:
    """The receiving side of every link to this machine."""

    def __init__(
        self, store: MessageStore, client: BusClient, node: BusNode, step: Callable[[str], None]
    ) -> None:
        self._store = store
        self._client = client
        self._node = node
        self._step = step
        self._marks: dict[str, SequenceMark] = {}
        # Those that a power failure cannot take back.
        self._durable_marks: dict[str, SequenceMark] = {}
        # By link, the highest number that may be stored although the mark is lower: a commit may have been interrupted
        # before its mark was written.
        self._maybe_stored_upto: dict[str, int] = {}
        self._attempts: dict[str, int] = {}
        self._resend_requested: dict[str, SequenceMark] = {}
        self.stored = 0
        self.dead = 0

    def on_disconnect(self) -> None:
        """Forget which gaps were reported: the request to resend may have been lost."""
        self._resend_requested.clear()

    async def receive(self, entries: Sequence[StreamEntry]) -> None:
        """Store the messages of these entries, then confirm and acknowledge them. Raises if disk or bus fail."""
        out: list[tuple[str, Fields]] = []
        acked = [entry.id for entry in entries if entry.text("kind") not in ("letter", "receipt")]
        links: dict[str, list[StreamEntry]] = {}
        receipts: list[StreamEntry] = []
        for entry in entries:
            kind = entry.text("kind")
            problem = _find_flaw(entry) if kind in ("letter", "receipt") else ""
            if problem:
                self._client.malformed.report(f"in:{self._node.id}/{entry.id}", problem)
                acked.append(entry.id)
                out.append(("dead", self._dead_fields(entry, problem)))
            elif kind == "letter":
                links.setdefault(entry.text("from"), []).append(entry)
            elif kind == "receipt":
                receipts.append(entry)
        trouble: Exception | None = None
        for node, messages in links.items():
            failed = await self._receive_messages(node, messages, out, acked)
            trouble = trouble or failed
        if receipts:
            await self._receipts(receipts, out, acked)
        if out or acked:
            await self._confirm(out, acked)
            self._step("confirmed")
        if trouble is not None:
            raise trouble

    async def _confirm(self, out: Sequence[tuple[str, Fields]], acked: Sequence[str]) -> None:
        try:
            await self._client.send(out, self._node.id, acked)
        except SwitchboardError as problem:
            if problem.failure.code == "bus_full" and not any(node == "dead" for node, _ in out):
                # Stored messages can be dropped to free memory. Without our confirmation the sender sends them again.
                await self._client.send([], self._node.id, acked)
                await self._client.trim(self._node.id)
            raise

    async def _receive_messages(
        self, node: str, entries: Sequence[StreamEntry], out: list[tuple[str, Fields]], acked: list[str]
    ) -> Exception | None:
        """Store the messages of one link; return the problem that kept some of them from being stored."""
        mark = self._marks.get(node)
        if mark is None:
            mark = await self._store.run(lambda tx: nodes.load_sequence_mark(tx, node))
        batch = self._select(node, entries, mark)
        acked += batch.skipped
        # If this commit is interrupted, the next attempt must check which of these messages are already stored.
        self._maybe_stored_upto[node] = max(batch.maybe_stored_upto, batch.reached.last)
        await self._store_messages(batch.incoming, batch.maybe_stored_upto)
        self._step("stored")
        reached, trouble = self._settle(batch.incoming, batch.reached, out, acked)
        self._marks[node] = reached
        if reached != mark:
            await self._save_mark(node, reached)
            self._step("noted")
        if trouble is None:
            self._maybe_stored_upto[node] = batch.maybe_stored_upto
        link: dict[str, str | bytes | int] = {"from": self._node.id, "epoch": reached.epoch}
        out.append((node, {"kind": "stored", **link, "upto": reached.last}))
        # Once per gap: a repeated request would make the sender send everything twice.
        if batch.has_gap and self._resend_requested.get(node) != reached:
            self._resend_requested[node] = reached
            out.append((node, {"kind": "resend", **link, "seq": reached.last + 1}))
        return trouble

    def _select(self, node: str, entries: Sequence[StreamEntry], mark: SequenceMark) -> LinkBatch:
        """Decide which entries of a link are the next to be stored."""
        batch = LinkBatch(mark, self._maybe_stored_upto.get(node, mark.last + MAX_UNMARKED))
        new_epoch = False
        for entry in entries:
            sequence, before = entry.number("seq"), batch.reached
            if sequence:
                verdict, reached = check_sequence(before, entry.text("epoch"), sequence, entry.number("base"))
                new_epoch = new_epoch or reached.epoch != before.epoch
                if reached.last > before.last:
                    # Numbers are missing here that this machine has confirmed: its mark may be an old one.
                    batch.maybe_stored_upto = max(batch.maybe_stored_upto, reached.last + MAX_UNMARKED)
                batch.reached = reached
                if verdict != "store":
                    batch.has_gap = batch.has_gap or verdict == "gap"
                    batch.skipped.append(entry.id)
                    continue
                batch.reached = SequenceMark(reached.epoch, sequence)
            batch.incoming.append(ReceivedMessage(entry))
        if new_epoch:
            # A sender that lost its state may have had a full window and batch in transit.
            batch.maybe_stored_upto = batch.reached.last + WINDOW + BATCH
        return batch

    async def _save_mark(self, node: str, mark: SequenceMark) -> None:
        """Save a link's progress; now and then durably, so that a power failure takes back a limited part."""
        saved = self._durable_marks.get(node, SequenceMark())
        durable = saved.epoch != mark.epoch or mark.last - saved.last >= MAX_BATCH
        await self._store.run(lambda tx: nodes.save(tx, nodes.received_file(node), mark, durable=durable))
        if durable:
            self._durable_marks[node] = mark

    async def _store_messages(self, incoming: Sequence[ReceivedMessage], maybe_stored_upto: int) -> None:
        for received in incoming:
            try:
                received.message = remote_inbox.read(received.entry.fields.get("message", b""))
            except SwitchboardError as problem:
                received.problem = problem
        readable = [received for received in incoming if received.message is not None]
        new: list[ReceivedMessage] = []
        for received in readable:
            entry = received.entry
            received.maybe_stored = entry.number("seq") <= maybe_stored_upto or bool(entry.number("again"))
            if (
                self._attempts.get(received.entry.id, 0) >= MAX_ATTEMPTS
                or received.entry.deliveries > MAX_DELIVERIES
            ):
                message = "The message could not be stored after repeated attempts."
                received.problem = refused("mail_message_invalid", message)
            else:
                new.append(received)
        if not new:
            return
        trouble = await self._commit(new)
        if trouble is None or is_temporary(trouble):
            return
        # One of them fails the whole commit: store them one at a time, so those before it get through.
        for received in new:
            received.problem = None
            if await self._commit([received]) is not None:
                return

    async def _commit(self, messages: Sequence[ReceivedMessage]) -> Exception | None:
        """Store these messages in one commit. A failure is recorded with the first message that was not stored."""
        items = [
            remote_inbox.RemoteMessage(
                received.message, received.entry.fields.get("attachment", b""), received.maybe_stored
            )
            for received in messages
            if received.message is not None
        ]
        rules = self._store.rules
        try:
            refusals = await self._store.commit(
                lambda tx: remote_inbox.receive(tx, items, rules), numbers=len(items)
            )
        except Exception as problem:  # noqa: BLE001 - any failure is counted, and the message is retried
            messages[0].problem = problem
            return problem
        for received, refusal in zip(messages, refusals, strict=True):
            received.problem = SwitchboardError(refusal) if refusal is not None else None
        self.stored += sum(refusal is None for refusal in refusals)
        return None

    def _settle(
        self,
        incoming: Sequence[ReceivedMessage],
        reached: SequenceMark,
        out: list[tuple[str, Fields]],
        acked: list[str],
    ) -> tuple[SequenceMark, Exception | None]:
        """Return the link's progress, up to the first message that must be retried, and that message's problem."""
        for received in incoming:
            problem, entry = received.problem, received.entry
            if problem is not None and not _is_permanent(problem):
                self._attempts[entry.id] = self._attempts.get(entry.id, 0) + (
                    0 if is_temporary(problem) else 1
                )
                sequence = entry.number("seq")
                return (SequenceMark(reached.epoch, sequence - 1) if sequence else reached), problem
            if problem is not None:
                self.dead += 1
                out += self._dead_letter(entry, str(problem))
            self._attempts.pop(entry.id, None)
            acked.append(entry.id)
        return reached, None

    def _dead_fields(self, entry: StreamEntry, reason: str) -> Fields:
        """Return the fields of a dead letter, without those that no relay writes, which may be of any size."""
        kept = {
            name: entry.fields[name]
            for name, limit in MAX_FIELD_BYTES.items()
            if len(entry.fields.get(name, b"")) <= limit and name in entry.fields
        }
        return {**kept, "to": self._node.id, "reason": reason}

    def _dead_letter(self, entry: StreamEntry, reason: str) -> list[tuple[str, Fields]]:
        """Return the entries that dead-letter a message and notify its sender."""
        dead = self._dead_fields(entry, reason)
        link: dict[str, str | bytes | int] = {
            "kind": "refused",
            "from": self._node.id,
            "epoch": entry.text("epoch"),
            "seq": entry.number("seq"),
            "reason": reason,
        }
        return [("dead", dead), (entry.text("from"), link)]

    async def _receipts(
        self, entries: Sequence[StreamEntry], out: list[tuple[str, Fields]], acked: list[str]
    ) -> None:
        async def one(entry: StreamEntry) -> Exception | None:
            agent, name = entry.text("agent"), entry.text("name")
            data = entry.fields.get("receipt", b"")
            try:
                await self._store.commit(lambda tx: remote_inbox.store_receipt(tx, agent, name, data))
            except Exception as problem:  # noqa: BLE001 - any failure is counted, and the receipt is retried
                return problem
            return None

        problems = await asyncio.gather(*(one(entry) for entry in entries))
        self._step("filed")
        filed: dict[tuple[str, str], list[str]] = {}
        for entry, problem in zip(entries, problems, strict=True):
            if problem is not None and not _is_permanent(problem):
                self._attempts[entry.id] = self._attempts.get(entry.id, 0) + (not is_temporary(problem))
                if self._attempts[entry.id] < MAX_ATTEMPTS:
                    continue  # It will be delivered again.
            self._attempts.pop(entry.id, None)
            if problem is not None:
                out.append(("dead", self._dead_fields(entry, str(problem))))
            acked.append(entry.id)
            filed.setdefault((entry.text("from"), entry.text("agent")), []).append(entry.text("name"))
        for (node, agent), names in filed.items():
            out.append(
                (node, {"kind": "filed", "from": self._node.id, "agent": agent, "names": " ".join(names)})
            )


def _find_flaw(entry: StreamEntry) -> str:
    """Return the reason that a message or receipt cannot have been sent by a relay; empty if it can."""
    if not nodes.is_node_id(entry.text("from")):
        return "The sender is not a valid node id."
    if any(len(entry.fields.get(name, b"")) > limit for name, limit in MAX_FIELD_BYTES.items()):
        return "It is too large."
    if entry.text("kind") == "receipt":
        return ""
    sequence, base = entry.number("seq"), entry.number("base")
    if "seq" not in entry.fields:  # sent again by `bus replay`
        return ""
    if not (0 < base <= sequence):
        return "The sequence number is not valid."
    return "" if nodes.is_node_id(entry.text("epoch")) else "The epoch is not valid."


def is_temporary(problem: Exception) -> bool:
    """Return True if the problem may pass, so the message is retried without limit."""
    return isinstance(problem, SwitchboardError) and problem.failure.code in TEMPORARY


def _is_permanent(problem: Exception) -> bool:
    """Return True if a retry cannot help. Unexpected exceptions are retried a few times."""
    return isinstance(problem, SwitchboardError) and problem.failure.code not in TEMPORARY
