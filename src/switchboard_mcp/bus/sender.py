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
from switchboard_mcp.config.agent_names import is_agent_name
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.mail.store import remote_outbox
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.remote_outbox import MessageInTransit, ShippedMessage, ShippedReceipt
from switchboard_mcp.mail.store.store import MessageStore

# Limits of one transaction, in messages and bytes: a larger one would block Redis for other clients too long.
BATCH, BATCH_BYTES = 256, 4 * 1_048_576
# Messages in transit to one machine; further ones wait in their inbox.
WINDOW = 4_096
# Without a confirmation for this long, and with nothing left to read in Redis, everything is sent again. The delay
# doubles each time, up to the maximum.
RESEND_AFTER_S, MAX_RESEND_AFTER_S = 3.0, 60.0
MAX_RECEIPTS = 512
MAX_REASON_LENGTH = 2_000


class PeerLink:
    """Send state of the link to one machine."""

    def __init__(self, node: str, saved_next: int, window: Sequence[MessageInTransit]) -> None:
        self.node = node
        self.window = deque(window)
        # The next number as saved on disk, and in memory.
        self.saved_next = saved_next
        self.next = max(saved_next, window[-1].sequence + 1 if window else 1)
        # The highest number sent; 0 sends everything again.
        self.sent = 0
        self.progressed_at = self.checked_at = time.monotonic()
        self.resend_after_s = RESEND_AFTER_S

    @property
    def base(self) -> int:
        """The lowest number still kept here."""
        return self.window[0].sequence if self.window else self.next

    def unsent(self) -> list[MessageInTransit]:
        """Return the messages to send, or send again, limited to one batch."""
        if not self.window or self.window[-1].sequence <= self.sent:
            return []
        return [each for each in self.window if each.sequence > self.sent][:BATCH]

    def upto(self, sequence: int) -> list[MessageInTransit]:
        """Return the messages up to this number."""
        return list(takewhile(lambda each: each.sequence <= sequence, self.window))

    def confirm(self, upto: int) -> None:
        """Remove the messages up to this number: they have arrived."""
        while self.window and self.window[0].sequence <= upto:
            self.window.popleft()
        self.progressed_at, self.resend_after_s = time.monotonic(), RESEND_AFTER_S

    def find(self, sequence: int) -> MessageInTransit | None:
        """Return the message with this number, if it is in transit."""
        return next((each for each in self.window if each.sequence == sequence), None)

    def remove(self, sequence: int) -> None:
        """Remove a message that will not be stored by the receiver."""
        found = self.find(sequence)
        if found is not None:
            self.window.remove(found)

    def is_stalled(self, now: float) -> bool:
        """Return True if no confirmation has come for long, and that was not checked yet."""
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
        # Receipts sent and not confirmed, with the time they were sent.
        self._sent_receipts: dict[tuple[str, str], float] = {}
        self.shipped = 0

    async def recover(self) -> None:
        """Restore the messages that were in transit."""
        for node in await self._store.run(remote_outbox.in_transit):
            await self._link(node)

    async def _link(self, node: str) -> PeerLink:
        """Return the link to a machine, loading it from disk if necessary."""
        if node not in self.links:
            stored, there = await self._store.run(
                lambda tx: (
                    nodes.load(tx, nodes.next_number_file(node), int),
                    remote_outbox.in_transit(tx),
                )
            )
            self.links[node] = PeerLink(node, stored or 1, there.get(node, []))
        return self.links[node]

    def on_disconnect(self) -> None:
        """Send everything again: what the bus held may be lost."""
        for link in self.links.values():
            link.sent = 0
        self._sent_receipts.clear()

    async def pump(self, node_of: Mapping[str, str]) -> bool:
        """Make one step on every link; `node_of` maps each remote agent to its machine. Return True if there is more to
        do.
        """
        agents: dict[str, list[str]] = {}
        for agent, node in node_of.items():
            if nodes.is_node_id(node):  # else the machine is unknown now, and its mail waits
                agents.setdefault(node, []).append(agent)
        more = False
        for node in {*agents, *self.links}:
            link = await self._link(node)
            now = time.monotonic()
            if link.is_stalled(now):
                link.checked_at = now
                if now - link.progressed_at >= MAX_RESEND_AFTER_S or await self._has_drained(node):
                    link.rewind(now)
            more = await self._send(link, agents.get(node, [])) or more
        return await self._send_receipts(node_of) or more

    async def _has_drained(self, node: str) -> bool:
        """Return True if a machine has processed all its entries in Redis; else its reply is only late, not lost."""
        _, pending, lag = await self._client.stream_counts(node)
        return pending + lag == 0

    async def _send(self, link: PeerLink, agents: Sequence[str]) -> bool:
        unsent = link.unsent()
        if unsent:
            messages = await self._store.run(lambda tx: remote_outbox.reship(tx, unsent, BATCH_BYTES))
            upto = messages[-1].shipped.sequence if messages else unsent[-1].sequence
            # A file removed from disk cannot be sent; left in the window it would block the messages after it.
            found = {message.shipped.sequence for message in messages}
            for each in unsent:
                if each.sequence <= upto and each.sequence not in found:
                    link.remove(each.sequence)
        elif agents and len(link.window) < WINDOW:
            messages = await self._take(link, agents)
            upto = link.next - 1
        else:
            return False
        if not messages:
            link.sent = max(link.sent, upto)
            return bool(unsent)
        if link.saved_next < link.next:
            # Save the counter before sending: after a crash a number that has already left must not be used again.
            name, number = nodes.next_number_file(link.node), link.next
            await self._store.run(lambda tx: nodes.save(tx, name, number, durable=True))
            link.saved_next = number
        self._step("taken")
        base = link.base
        await self._client.send([(link.node, self._message_fields(message, base)) for message in messages])
        self._step("shipped")
        link.sent = upto
        link.progressed_at = time.monotonic()
        self.shipped += len(messages)
        return True

    async def _take(self, link: PeerLink, agents: Sequence[str]) -> list[ShippedMessage]:
        def work(tx: Transaction) -> list[ShippedMessage]:
            taken = remote_outbox.ship(tx, agents, link.node, link.next, BATCH, BATCH_BYTES)
            if taken:
                nodes.save(tx, nodes.next_number_file(link.node), link.next + len(taken), durable=True)
            return taken

        try:
            messages = await self._store.run(work)
        except BaseException:
            # Some may have been moved before the failure; reload the link's state from disk.
            self.links.pop(link.node)
            raise
        link.window.extend(message.shipped for message in messages)
        link.next = link.saved_next = link.next + len(messages)
        return messages

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

    async def _send_receipts(self, node_of: Mapping[str, str]) -> bool:
        node_of = {agent: node for agent, node in node_of.items() if nodes.is_node_id(node)}
        now = time.monotonic()
        late = {
            receipt
            for receipt, at in self._sent_receipts.items()
            if now - at >= RESEND_AFTER_S and receipt[0] in node_of
        }
        drained = {node for node in {node_of[agent] for agent, _ in late} if await self._has_drained(node)}
        self._sent_receipts.update((receipt, now) for receipt in late if node_of[receipt[0]] not in drained)
        on_the_bus = {receipt for receipt, at in self._sent_receipts.items() if now - at < RESEND_AFTER_S}
        due = await self._store.run(
            lambda tx: remote_outbox.pending_receipts(tx, node_of, MAX_RECEIPTS, on_the_bus)
        )
        if not due:
            return False
        await self._client.send([(node_of[receipt.agent], self._receipt_fields(receipt)) for receipt in due])
        self._sent_receipts.update(((receipt.agent, receipt.name), now) for receipt in due)
        return len(due) >= MAX_RECEIPTS

    def _receipt_fields(self, receipt: ShippedReceipt) -> Fields:
        named = {"from": self._node.id, "agent": receipt.agent, "name": receipt.name}
        return {"kind": "receipt", **named, "receipt": receipt.receipt}

    async def on_reply(self, entry: StreamEntry) -> None:
        """Process a receiver's reply to messages or receipts we sent.

        The disk first, then the window: if the disk fails, or we are cancelled, the reply comes again and finds all.
        """
        kind, link = entry.text("kind"), self.links.get(entry.text("from"))
        if kind == "filed" and is_agent_name(entry.text("agent")):
            names = entry.text("names").split()
            await self._store.run(lambda tx: remote_outbox.discard_receipts(tx, entry.text("agent"), names))
            for name in names:
                self._sent_receipts.pop((entry.text("agent"), name), None)
        if link is None or entry.text("epoch") != self._node.epoch:
            return
        if kind == "stored":
            arrived = link.upto(entry.number("upto"))
            if arrived:
                await self._store.run(lambda tx: remote_outbox.archive_shipped(tx, arrived))
                link.confirm(entry.number("upto"))
                self._step("put_away")
        elif kind == "refused":
            shipped = link.find(entry.number("seq"))
            if shipped is not None:
                problem: Failure = failure("mail_message_invalid", entry.text("reason")[:MAX_REASON_LENGTH])
                await self._store.run(lambda tx: remote_outbox.dead_letter_shipped(tx, shipped, problem))
                link.remove(shipped.sequence)
        elif kind == "resend":
            link.sent = min(link.sent, entry.number("seq") - 1)
