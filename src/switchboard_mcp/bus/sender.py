"""Sends messages to agents on other machines, in order and numbered, until they are confirmed.

A message is numbered on disk before it leaves, stays in `shipped/` until its receiver confirms that it is stored, and
is sent again if that takes too long or the bus was unreachable. The receiving side is in `receiver`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile

from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus.node import BusNode
from switchboard_mcp.bus.redis_client import BusClient, Fields, StreamEntry
from switchboard_mcp.bus.remote_mailboxes import RemoteMailboxes
from switchboard_mcp.config.agent_names import is_agent_name
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.group_commit import Job
from switchboard_mcp.mail.store.remote import remote_outbox
from switchboard_mcp.mail.store.remote.remote_outbox import (
    MessageInTransit,
    Shipment,
    ShippedMessage,
    ShippedReceipt,
)
from switchboard_mcp.mail.store.store import MessageStore

# Limits of one transaction, in messages and bytes: a larger one would block Redis for other clients too long.
BATCH, BATCH_BYTES = 256, 4 * 1_048_576
# Messages in transit to one machine, and their bytes; further ones wait in their inbox. Also the limit of receipts.
WINDOW, WINDOW_BYTES = 4_096, 64 * 1_048_576
# Numbers are reserved on disk in advance, so that one sync serves many batches. Those not used are skipped after a
# restart: the lowest number that the sender keeps is in every entry, and the receiver continues there.
RESERVED_NUMBERS = 4_096
# The stream of a machine that is gone must not fill Redis, however often its senders start again.
MAX_STREAM_LENGTH = 100_000
# A machine that confirmed something so recently is at work, so the length of its stream is not checked.
ACTIVE_S = 1.0
# Without a confirmation for this long, and with nothing of ours left in the stream, everything is sent again. The delay
# doubles each time, up to the maximum.
RESEND_AFTER_S, MAX_RESEND_AFTER_S = 3.0, 60.0
MAX_RECEIPTS = 512
MAX_REASON_LENGTH = 2_000


class PeerLink:
    """Send state of the link to one machine."""

    def __init__(self, node: str, reserved: int, window: Sequence[MessageInTransit]) -> None:
        self.node = node
        self.window = deque(window)
        self.shipment = Shipment(node)
        # Numbers below this one may have been used, according to the disk.
        self.reserved = reserved
        self.next = max(reserved, window[-1].sequence + 1 if window else 1)
        # The highest number sent; 0 sends everything again.
        self.sent = 0
        # The ids of the newest message and receipt in the machine's stream.
        self.newest_message = self.newest_receipt = ""
        # Receipts sent and not confirmed, by agent and name.
        self.receipts: set[tuple[str, str]] = set()
        self.receipts_progressed_at = 0.0
        # True after the connection was lost: Redis may have lost what was sent.
        self.in_doubt = False
        self.confirmed_at = 0.0
        self.progressed_at = self.checked_at = time.monotonic()
        self.resend_after_s = RESEND_AFTER_S

    @property
    def base(self) -> int:
        """The lowest number still kept here."""
        return self.window[0].sequence if self.window else self.next

    @property
    def is_full(self) -> bool:
        """True if no more messages may be sent before some are confirmed."""
        return len(self.window) >= WINDOW or self._bytes_in_transit() >= WINDOW_BYTES

    def _bytes_in_transit(self) -> int:
        return sum(message.size for message in self.window)

    def unsent(self) -> list[MessageInTransit]:
        """Return the messages to send, or send again, limited to one batch."""
        if not self.window or self.window[-1].sequence <= self.sent:
            return []
        return [message for message in self.window if message.sequence > self.sent][:BATCH]

    def upto(self, sequence: int) -> list[MessageInTransit]:
        """Return the messages up to this number."""
        return list(takewhile(lambda message: message.sequence <= sequence, self.window))

    def confirm(self, upto: int) -> None:
        """Remove the messages up to this number: they have arrived."""
        while self.window and self.window[0].sequence <= upto:
            self.window.popleft()
        self.confirmed_at = self.progressed_at = time.monotonic()
        self.resend_after_s = RESEND_AFTER_S

    def find(self, sequence: int) -> MessageInTransit | None:
        """Return the message with this number, if it is in transit."""
        return next((message for message in self.window if message.sequence == sequence), None)

    def remove(self, sequence: int) -> None:
        """Remove a message that will not be stored by the receiver."""
        message = self.find(sequence)
        if message is not None:
            self.window.remove(message)

    def is_stalled(self, now: float) -> bool:
        """Return True if confirmations have been missing for long, and that was not checked yet."""
        waiting = bool(self.window) and self.sent > 0
        return waiting and now - max(self.progressed_at, self.checked_at) >= self.resend_after_s

    def rewind(self, now: float) -> None:
        """Send everything again."""
        self.sent, self.progressed_at = 0, now
        self.resend_after_s = min(self.resend_after_s * 2, MAX_RESEND_AFTER_S)


class BusSender:
    """The sending side of every link of this machine."""

    def __init__(
        self, store: MessageStore, client: BusClient, node: BusNode, step: Callable[[str], None]
    ) -> None:
        self._store = store
        self._client = client
        self._node = node
        self._step = step
        self.links: dict[str, PeerLink] = {}
        self.mailboxes = RemoteMailboxes(store)
        self.shipped = 0

    async def recover(self) -> None:
        """Restore the messages that were in transit."""
        for node in await self._store.run(remote_outbox.in_transit):
            await self._link(node)

    async def _link(self, node: str) -> PeerLink:
        """Return the link to a machine, loading it from disk if necessary."""
        if node not in self.links:
            reserved, there = await self._store.run(
                lambda tx: (
                    nodes.load(tx, nodes.next_number_file(node), int),
                    remote_outbox.in_transit(tx),
                )
            )
            self.links[node] = PeerLink(node, reserved or 1, there.get(node, []))
        return self.links[node]

    def on_disconnect(self) -> None:
        """Doubt everything that was sent: Redis may have lost it."""
        for link in self.links.values():
            link.in_doubt = True

    def on_change(self, agent: str) -> None:
        """Note that the mailbox here of a remote agent has changed; an empty name means all."""
        self.mailboxes.on_change(agent, active=self.mailboxes.node_of(agent) in self.links)

    async def pump(self, node_of: Mapping[str, str]) -> bool:
        """Make one step on every link; `node_of` maps each remote agent to its machine. Return True if there is more to
        do.
        """
        self.mailboxes.update(node_of)
        await self.mailboxes.check()
        messages = self.mailboxes.by_node(self.mailboxes.messages)
        receipts = self.mailboxes.by_node(self.mailboxes.receipts)
        active = {link.node for link in self.links.values() if link.window or link.receipts}
        more = False
        for node in {*messages, *receipts, *active}:
            link = await self._link(node)
            await self._resend_if_lost(link)
            if await self._is_overfull(link):
                continue
            more = await self._send(link, messages.get(node, [])) or more
            if node in receipts:
                more = await self._send_receipts(link, receipts[node]) or more
        return more

    async def _resend_if_lost(self, link: PeerLink) -> None:
        """Send again what is neither confirmed nor in the machine's stream; if it is there, the reply is only late."""
        now = time.monotonic()
        if link.in_doubt or link.is_stalled(now):
            link.checked_at = now
            if link.sent and not await self._client.is_waiting(link.node, link.newest_message, self._node.id):
                link.rewind(now)
        late = now - link.receipts_progressed_at >= RESEND_AFTER_S
        if link.receipts and (link.in_doubt or late):
            link.receipts_progressed_at = now
            if not await self._client.is_waiting(link.node, link.newest_receipt, self._node.id):
                self.mailboxes.receipts |= {agent for agent, _ in link.receipts}
                link.receipts.clear()
        link.in_doubt = False

    async def _is_overfull(self, link: PeerLink) -> bool:
        """Return True if a machine that confirms nothing has too many entries in its stream already."""
        if time.monotonic() - link.confirmed_at < ACTIVE_S:
            return False
        return await self._client.stream_length(f"in:{link.node}") >= MAX_STREAM_LENGTH

    async def _send(self, link: PeerLink, agents: Sequence[str]) -> bool:
        """Send one batch; return True if there may be more."""
        unsent = link.unsent()
        if unsent:
            messages = await self._store.run(lambda tx: remote_outbox.reship(tx, unsent, BATCH_BYTES))
            upto = messages[-1].shipped.sequence if messages else unsent[-1].sequence
            # A file removed from disk cannot be sent; left in the window it would block the messages after it.
            sequences = {message.shipped.sequence for message in messages}
            for queued in unsent:
                if queued.sequence <= upto and queued.sequence not in sequences:
                    link.remove(queued.sequence)
        elif agents and not link.is_full:
            messages = await self._take(link, agents)
            upto = link.next - 1
        else:
            return False
        if not messages:
            link.sent = max(link.sent, upto)
            return bool(unsent)
        if link.reserved < link.next:  # The counter on disk was lost.
            await self._reserve_numbers(link)
        self._step("taken")
        base = link.base
        ids = await self._client.send(
            [(link.node, self._message_fields(message, base)) for message in messages]
        )
        self._step("shipped")
        link.newest_message = ids[-1]
        link.sent = upto
        link.progressed_at = time.monotonic()
        self.shipped += len(messages)
        return True

    async def _take(self, link: PeerLink, agents: Sequence[str]) -> list[ShippedMessage]:
        """Number and move a batch of messages, as part of a group commit."""

        def work(tx: Transaction) -> Job[list[ShippedMessage]]:
            shipped = link.shipment.ship(tx, agents, link.next, BATCH, BATCH_BYTES)
            yield None
            return shipped

        # Changes that are reported meanwhile must not be forgotten.
        self.mailboxes.messages.difference_update(agents)
        try:
            await self._reserve_numbers(link)
            messages = await self._store.commit(work, numbers=0)
        except BaseException:
            # Some may have been moved before the failure; reload the link's state from disk.
            self.links.pop(link.node)
            self.mailboxes.messages.update(agents)
            raise
        if link.shipment.has_more:
            self.mailboxes.messages.update(agents)
        link.window.extend(message.shipped for message in messages)
        link.next += len(messages)
        return messages

    async def _reserve_numbers(self, link: PeerLink) -> None:
        """Save the counter before numbers are used: after a crash, one that has already left must not be used again."""
        if link.next + BATCH <= link.reserved:
            return
        name, number = nodes.next_number_file(link.node), link.next + RESERVED_NUMBERS
        await self._store.run(lambda tx: nodes.save(tx, name, number, durable=True))
        link.reserved = number

    def _message_fields(self, message: ShippedMessage, base: int) -> Fields:
        fields: dict[str, str | bytes | int] = {
            "kind": "letter",
            "from": self._node.id,
            "epoch": self._node.epoch,
            "seq": message.shipped.sequence,
            "base": base,
            "message": message.message,
        }
        if message.attachment:
            fields["attachment"] = message.attachment
        if message.again:
            fields["again"] = 1
        return fields

    async def _send_receipts(self, link: PeerLink, agents: Sequence[str]) -> bool:
        """Send one batch of receipts; return True if there may be more."""
        limit = min(MAX_RECEIPTS, WINDOW - len(link.receipts))
        if limit <= 0:
            return False
        self.mailboxes.receipts.difference_update(agents)
        try:
            due = await self._store.run(
                lambda tx: remote_outbox.pending_receipts(tx, agents, limit, link.receipts)
            )
            if due:
                ids = await self._client.send([(link.node, self._receipt_fields(receipt)) for receipt in due])
                link.newest_receipt = ids[-1]
        except BaseException:
            self.mailboxes.receipts.update(agents)
            raise
        if len(due) >= limit:
            self.mailboxes.receipts.update(agents)
        link.receipts.update((receipt.agent, receipt.name) for receipt in due)
        link.receipts_progressed_at = time.monotonic()
        return len(due) >= limit

    def _receipt_fields(self, receipt: ShippedReceipt) -> Fields:
        named = {"from": self._node.id, "agent": receipt.agent, "name": receipt.name}
        return {"kind": "receipt", **named, "receipt": receipt.receipt}

    async def on_reply(self, entry: StreamEntry) -> None:
        """Process a receiver's reply to messages or receipts we sent.

        The disk first, then the window: if the disk fails, or we are cancelled, the repeated reply finds everything.
        """
        kind, link = entry.text("kind"), self.links.get(entry.text("from"))
        if kind == "filed" and is_agent_name(entry.text("agent")):
            await self._on_filed(link, entry.text("agent"), entry.text("names").split())
        if link is None or entry.text("epoch") != self._node.epoch:
            return
        if kind == "stored":
            await self._on_stored(link, entry.number("upto"))
        elif kind == "refused":
            await self._on_refused(link, entry.number("seq"), entry.text("reason"))
        elif kind == "resend":
            link.sent = min(link.sent, max(entry.number("seq") - 1, 0))

    async def _on_filed(self, link: PeerLink | None, agent: str, names: Sequence[str]) -> None:
        await self._store.run(lambda tx: remote_outbox.discard_receipts(tx, agent, names))
        if link is not None:
            link.receipts.difference_update((agent, name) for name in names)
            link.confirmed_at = link.receipts_progressed_at = time.monotonic()

    async def _on_stored(self, link: PeerLink, upto: int) -> None:
        if upto >= link.next:
            await self._begin_epoch()
            return
        arrived = link.upto(upto)
        if arrived:
            await self._store.run(lambda tx: remote_outbox.archive_shipped(tx, arrived))
            link.confirm(upto)
            self._step("put_away")

    async def _begin_epoch(self) -> None:
        """Number everything anew: a machine has stored numbers that were not used yet, so this folder is an older copy.

        Under the old epoch, its new messages would be taken for those that had these numbers.
        """
        self._node = await self._store.run(nodes.begin_epoch)
        for link in self.links.values():
            link.sent = 0

    async def _on_refused(self, link: PeerLink, sequence: int, reason: str) -> None:
        shipped = link.find(sequence)
        if shipped is not None:
            problem: Failure = failure("mail_message_invalid", reason[:MAX_REASON_LENGTH])
            await self._store.run(lambda tx: remote_outbox.dead_letter_shipped(tx, shipped, problem))
            link.remove(sequence)
