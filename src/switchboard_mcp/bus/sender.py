"""What goes out: letters to agents on other machines, in order and under numbers, until they are confirmed.

A letter is numbered on the disk before it leaves, stays in `shipped/` until its receiver says that it is stored, and
goes again where that takes too long or the bus was away. Owns the sending side of every link; what a receiver does is
in `inward`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus.node import BusNode
from switchboard_mcp.bus.redis_client import BusClient, Fields, StreamEntry
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.mail.agent_names import is_agent_name
from switchboard_mcp.mail.store import remote_outbox
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.remote_outbox import MessageInTransit, ShippedMessage, ShippedReceipt
from switchboard_mcp.mail.store.store import MessageStore

# One step takes at most this many letters, or bytes; with more, Redis would be kept from others for too long.
BATCH, BATCH_BYTES = 256, 4 * 1_048_576
# Letters on their way to one machine; more wait in their inbox.
WINDOW = 4_096
# Without a confirmation for so long, and with nothing left in Redis that is still to be read, everything goes again;
# each time it waits twice as long, and at the latest after the longer one.
AGAIN_S, MOST_AGAIN_S = 3.0, 60.0
MOST_SLIPS = 512


class PeerLink:
    """The way to one machine."""

    def __init__(self, node: str, noted: int, window: Sequence[MessageInTransit]) -> None:
        self.node = node
        self.window = deque(window)
        # The next number as it is on the disk, and as it is.
        self.noted = noted
        self.next = max(noted, window[-1].sequence + 1 if window else 1)
        # The highest number that was put on the bus; 0 sends everything again.
        self.sent = 0
        self.moved_at = self.looked_at = time.monotonic()
        self.again_s = AGAIN_S

    @property
    def base(self) -> int:
        """The lowest number that is still kept here."""
        return self.window[0].sequence if self.window else self.next

    def unsent(self) -> list[MessageInTransit]:
        """What is to go (again), as far as one step takes it."""
        if not self.window or self.window[-1].sequence <= self.sent:
            return []
        return [each for each in self.window if each.sequence > self.sent][:BATCH]

    def confirm(self, upto: int) -> list[MessageInTransit]:
        """These have arrived."""
        arrived = []
        while self.window and self.window[0].sequence <= upto:
            arrived.append(self.window.popleft())
        if arrived:
            self.moved_at, self.again_s = time.monotonic(), AGAIN_S
        return arrived

    def take_out(self, sequence: int) -> MessageInTransit | None:
        """One that will not be stored there."""
        found = next((each for each in self.window if each.sequence == sequence), None)
        if found is not None:
            self.window.remove(found)
        return found

    def is_silent(self, now: float) -> bool:
        """Whether no answer has come for long, and that was not looked into yet."""
        waiting = bool(self.window) and self.sent > 0
        return waiting and now - max(self.moved_at, self.looked_at) >= self.again_s

    def rewind(self, now: float) -> None:
        """Send everything again."""
        self.sent, self.moved_at = 0, now
        self.again_s = min(self.again_s * 2, MOST_AGAIN_S)


class Outward:
    """All links of this machine."""

    def __init__(self, post: MessageStore, wire: BusClient, me: BusNode, step: Callable[[str], None]) -> None:
        self._post = post
        self._wire = wire
        self._me = me
        self._step = step
        self.links: dict[str, PeerLink] = {}
        # Receipts that are on the bus, with when they were put there.
        self._slips: dict[tuple[str, str], float] = {}
        self.shipped = 0

    async def recover(self) -> None:
        """Know again what was on its way."""
        for node in await self._post.run(remote_outbox.in_transit):
            await self._link(node)

    async def _link(self, node: str) -> PeerLink:
        """The link to a machine; where it is not known, or no longer, as the disk has it."""
        if node not in self.links:
            stored, there = await self._post.run(
                lambda tx: (
                    nodes.load(tx, nodes.next_file(node), int),
                    remote_outbox.in_transit(tx),
                )
            )
            self.links[node] = PeerLink(node, stored or 1, there.get(node, []))
        return self.links[node]

    def lost_sight(self) -> None:
        """The bus was away: what it held may be gone, so that everything goes again."""
        for link in self.links.values():
            link.sent = 0
        self._slips.clear()

    async def pump(self, homes: Mapping[str, str]) -> bool:
        """One step on every link; `homes` says on which machine an agent lives. True where there is more to do."""
        agents: dict[str, list[str]] = {}
        for agent, node in homes.items():
            agents.setdefault(node, []).append(agent)
        more = False
        for node in {*agents, *self.links}:
            link = await self._link(node)
            now = time.monotonic()
            if link.is_silent(now):
                link.looked_at = now
                if now - link.moved_at >= MOST_AGAIN_S or await self._has_drained(node):
                    link.rewind(now)
            more = await self._send(link, agents.get(node, [])) or more
        return await self._send_slips(homes) or more

    async def _has_drained(self, node: str) -> bool:
        """Whether a machine has taken in all that Redis has for it: else its answer is yet to come, not lost."""
        _, pending, lag = await self._wire.lengths(node)
        return pending + lag == 0

    async def _send(self, link: PeerLink, agents: Sequence[str]) -> bool:
        unsent = link.unsent()
        if unsent:
            parcels = await self._post.run(lambda tx: remote_outbox.reship(tx, unsent, BATCH_BYTES))
            upto = parcels[-1].shipped.sequence if parcels else unsent[-1].sequence
            # What somebody has taken away cannot go; kept in the window, it would hold up what comes behind it.
            found = {parcel.shipped.sequence for parcel in parcels}
            for each in unsent:
                if each.sequence <= upto and each.sequence not in found:
                    link.take_out(each.sequence)
        elif agents and len(link.window) < WINDOW:
            parcels = await self._take(link, agents)
            upto = link.next - 1
        else:
            return False
        if not parcels:
            link.sent = max(link.sent, upto)
            return bool(unsent)
        if link.noted < link.next:
            # Nothing leaves under a number that could be given again when it has arrived, and so is out of sight.
            name, number = nodes.next_file(link.node), link.next
            await self._post.run(lambda tx: nodes.save(tx, name, number, durable=True))
            link.noted = number
        self._step("taken")
        base = link.base
        await self._wire.ship([(link.node, self._letter(parcel, base)) for parcel in parcels])
        self._step("shipped")
        link.sent = upto
        link.moved_at = time.monotonic()
        self.shipped += len(parcels)
        return True

    async def _take(self, link: PeerLink, agents: Sequence[str]) -> list[ShippedMessage]:
        def work(tx: Transaction) -> list[ShippedMessage]:
            taken = remote_outbox.ship(tx, agents, link.node, link.next, BATCH, BATCH_BYTES)
            if taken:
                nodes.save(tx, nodes.next_file(link.node), link.next + len(taken), durable=True)
            return taken

        try:
            parcels = await self._post.run(work)
        except BaseException:
            # Some may have been moved before it failed; what they are is on the disk.
            self.links.pop(link.node)
            raise
        link.window.extend(parcel.shipped for parcel in parcels)
        link.next = link.noted = link.next + len(parcels)
        return parcels

    def _letter(self, parcel: ShippedMessage, base: int) -> Fields:
        fields: dict[str, str | bytes | int] = {
            "kind": "letter",
            "from": self._me.id,
            "epoch": self._me.epoch,
            "seq": parcel.shipped.sequence,
            "base": base,
            "message": parcel.message,
        }
        if parcel.attachment:
            fields["attachment"] = parcel.attachment
        if parcel.again:
            fields["again"] = 1
        return fields

    async def _send_slips(self, homes: Mapping[str, str]) -> bool:
        now = time.monotonic()
        late = {slip for slip, at in self._slips.items() if now - at >= AGAIN_S and slip[0] in homes}
        drained = {node for node in {homes[agent] for agent, _ in late} if await self._has_drained(node)}
        self._slips.update((slip, now) for slip in late if homes[slip[0]] not in drained)
        on_the_bus = {slip for slip, at in self._slips.items() if now - at < AGAIN_S}
        due = await self._post.run(
            lambda tx: remote_outbox.pending_receipts(tx, homes, MOST_SLIPS, on_the_bus)
        )
        if not due:
            return False
        await self._wire.ship([(homes[slip.agent], self._receipt(slip)) for slip in due])
        self._slips.update(((slip.agent, slip.name), now) for slip in due)
        return len(due) >= MOST_SLIPS

    def _receipt(self, slip: ShippedReceipt) -> Fields:
        named = {"from": self._me.id, "agent": slip.agent, "name": slip.name}
        return {"kind": "receipt", **named, "receipt": slip.receipt}

    async def hear(self, entry: StreamEntry) -> None:
        """What a receiver says of what was sent."""
        kind, link = entry.text("kind"), self.links.get(entry.text("from"))
        if kind == "filed" and is_agent_name(entry.text("agent")):
            names = entry.text("names").split()
            await self._post.run(lambda tx: remote_outbox.discard_receipts(tx, entry.text("agent"), names))
            for name in names:
                self._slips.pop((entry.text("agent"), name), None)
        if link is None or entry.text("epoch") != self._me.epoch:
            return
        if kind == "stored":
            arrived = link.confirm(entry.number("upto"))
            if arrived:
                await self._post.run(lambda tx: remote_outbox.archive_shipped(tx, arrived))
                self._step("put_away")
        elif kind == "refused":
            shipped = link.take_out(entry.number("seq"))
            if shipped is not None:
                problem: Failure = failure("mail_message_invalid", entry.text("reason"))
                await self._post.run(lambda tx: remote_outbox.dead_letter_shipped(tx, shipped, problem))
        elif kind == "resend":
            link.sent = min(link.sent, entry.number("seq") - 1)
