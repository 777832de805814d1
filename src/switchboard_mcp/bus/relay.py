"""The relay of one folder: publishes events, carries messages and receipts both ways, and reports its status.

One relay serves a folder at a time; others wait on standby. Failures are retried after a delay: everything that must
not be lost is on disk, and duplicates are detected. Local mail never waits for the relay. This module runs the loops;
the work is done by `sender`, `receiver`, `name_registry` and `shared_state`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine

from msgspec.json import encode

from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus.event_publisher import EventPublisher
from switchboard_mcp.bus.name_registry import NameRegistry
from switchboard_mcp.bus.node import BusNode
from switchboard_mcp.bus.receiver import MAX_BATCH, BusReceiver, is_temporary
from switchboard_mcp.bus.redis_client import BusClient, StreamEntry
from switchboard_mcp.bus.relay_status import STATUS_FILE, BusStatus, State
from switchboard_mcp.bus.sender import BusSender
from switchboard_mcp.bus.shared_state import SharedState
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.store import MailboxChange, MessageStore
from switchboard_mcp.observability.log import Log

# A machine that has not renewed its lease for this long is considered gone, and others may claim its names.
LEASE_MS = 60_000
LEASE_RENEWAL_S = 5.0
# How often the sizes of the shared tables are checked, and presence is published.
SYNC_INTERVAL_S = 2.0
# Even if no change was announced, all entries are compared: this many a second, so that an idle relay costs the same
# however many machines there are, and each of them at least once in the maximum.
COMPARED_PER_S, MAX_COMPARE_INTERVAL_S = 20, 60.0
# After a comparison the next one waits this many times as long as it took, however many changes are announced.
PAUSE_FACTOR = 10
READ_WAIT_MS = 1_000
# Entries that another consumer of this folder has not acknowledged for this long are claimed.
CLAIM_IDLE_MS, CLAIM_INTERVAL_S = 60_000, 30.0
# A stream is trimmed after this time, and after this many entries.
TRIM_INTERVAL_S, TRIM_AFTER = 10.0, 8_192
# The bytes of a batch after which the next ones hold fewer entries.
MAX_BATCH_BYTES = 16 * 1_048_576
EVENTS_INTERVAL_S = 0.5
# Delay after a failure: initial, and the limit it doubles up to.
RETRY_DELAY_S, MAX_RETRY_DELAY_S = 0.2, 5.0
STANDBY_INTERVAL_S = 1.0
LOSS_INTERVAL_S = 60.0
REPLIES = frozenset({"stored", "refused", "resend", "filed"})

_STATES: dict[str, State] = {"bus_full": "full", "bus_refused": "refused"}


def no_step(_: str) -> None:
    """Do nothing between steps; a fault test may end the process there."""


class BusRelay:
    """Relays one folder's events, and its mail unless `mail` is off. `step` is called after each step with its name."""

    def __init__(
        self,
        store: MessageStore,
        client: BusClient,
        log: Log,
        step: Callable[[str], None] = no_step,
        audit: str = "",
        mail: bool = True,
    ) -> None:
        """`audit` is the folder of the audit log, if one is kept: its lines are published as events."""
        self._store = store
        self._client = client
        client.malformed.log = lambda place, reason: log.warning("bus.malformed", key=place, reason=reason)
        self._log = log
        self._step = step
        self._audit = audit
        self._mail = mail
        self._token = os.urandom(6).hex()
        self._machine = nodes.machine_id()
        self._state: State = "standby"
        self._problem = self._remedy = ""
        # Entries to read at once. Redis limits a reply by entries alone, so large ones are read a few at a time, also
        # after a failure: the reply may have been too large for the time it may take.
        self._batch = MAX_BATCH
        self._joined = False
        self._lost_at = 0.0
        self._wake_sender = asyncio.Event()
        self._wake_sync = asyncio.Event()
        self._waiting = 0
        self._backlog = 0
        self.ready = asyncio.Event()
        self.node = BusNode("", "")
        self.sender: BusSender | None = None
        self.receiver: BusReceiver | None = None
        self.names: NameRegistry | None = None
        self.shared: SharedState | None = None
        self.events: EventPublisher | None = None
        self._waiting_events = 0

    async def run(self) -> None:
        """Relay events and mail until cancelled."""
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task is not None else 0
        lock = await self._acquire_folder()
        stop = self._store.subscribe(self._on_mailbox_change)
        try:
            self.node = await self._store.run(nodes.identify)
            previous = await self._store.run(lambda tx: nodes.load(tx, STATUS_FILE, BusStatus))
            if previous is not None and (previous.node, previous.url) == (self.node.id, self._client.shown):
                self._joined = previous.joined
            self.events = EventPublisher(self._store, self._client, self.node, self._audit, mail=self._mail)
            if self._mail:
                self.sender = BusSender(self._store, self._client, self.node, self._step)
                self.receiver = BusReceiver(self._store, self._client, self.node, self._step)
                self.names = NameRegistry(self._store, self._client, self.node)
                await self.names.recover()
                await self.sender.recover()
            while True:
                try:
                    # A separate task: a task group leaves the count of cancellations of its task changed.
                    await asyncio.create_task(self._connected())
                except* Exception as problems:  # noqa: BLE001 - it is logged and retried
                    if task is not None and task.cancelling() > cancelled_before:
                        # Cancelled in the same moment in which a connection failed.
                        raise asyncio.CancelledError from None
                    await self._on_failure(problems)
        finally:
            stop()
            os.close(lock)
            await self._disconnect()

    async def _disconnect(self) -> None:
        try:
            await self._client.release_lease(self.node.id, self._token, self._machine)
        except (SwitchboardError, asyncio.CancelledError):
            pass
        await self._client.close()

    async def _acquire_folder(self) -> int:
        while True:
            lock = await asyncio.to_thread(nodes.acquire_lock, self._store.path)
            if lock is not None:
                return lock
            if not self._on_standby:
                self._on_standby = True
                self._log.info("bus.standby", note="another process of this workspace publishes and relays")
            await asyncio.sleep(STANDBY_INTERVAL_S)

    async def _on_failure(self, problems: BaseExceptionGroup[BaseException]) -> None:
        """Log the failure once, wait, and start over: the contents of Redis are unknown now."""
        problem: BaseException = problems
        while isinstance(problem, BaseExceptionGroup):
            problem = problem.exceptions[0]
        failure = problem.failure if isinstance(problem, SwitchboardError) else None
        code = failure.code if failure is not None else ""
        # An unexpected exception may concern a single message, so it must not stop the relay.
        text = str(problem) if isinstance(problem, SwitchboardError | OSError) else repr(problem)
        if self._last_logged != text:
            self._log.warning("bus.away", problem=text)
            self._last_logged = text
        self._state, self._problem = _STATES.get(code, "away"), text
        self._remedy = (failure.hint or "") if failure is not None else ""
        self.ready.clear()
        self._batch = max(1, self._batch // 4)
        for part in (self.sender, self.receiver):
            if part is not None:
                part.on_disconnect()
        await self._write_status()
        if (code == "bus_full" and await self._drain()) or (
            code == "bus_malformed" and await self._set_aside()
        ):
            self._retry_delay_s = RETRY_DELAY_S
        await asyncio.sleep(self._retry_delay_s)
        self._retry_delay_s = min(self._retry_delay_s * 2, MAX_RETRY_DELAY_S)

    _on_standby = False
    _retry_delay_s = RETRY_DELAY_S
    _last_logged = ""

    async def _connected(self) -> None:
        await self._client.require_single_server()
        await self._renew_lease()
        sender, receiver, names = self.sender, self.receiver, self.names
        if names is not None:
            if await self._client.create_stream(self.node.id) and self._joined:
                self._note_loss()
            self._joined = True
            await names.sync()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._lease_loop())
            tasks.create_task(self._event_loop())
            if sender is not None and receiver is not None and names is not None:
                self.shared = self.shared or SharedState(self._store, self._client, self._log_conflict)
                tasks.create_task(self._sync_loop(names, self.shared))
                tasks.create_task(self._change_loop())
                tasks.create_task(self._send_loop(sender, names))
                tasks.create_task(self._receive_loop(receiver, sender))
                tasks.create_task(self._trim_loop())

    async def _renew_lease(self) -> None:
        card = encode(
            {"host": self._machine.partition("/")[0], "folder": self._store.path, "pid": os.getpid()}
        )
        if not await self._client.renew_lease(self.node.id, self._token, self._machine, LEASE_MS, card):
            message = (
                f"Another relay serves the node {self.node.id} of {self._store.path}: was the folder copied?"
            )
            hint = "Remove .switchboard/bus in the copy, so it becomes a separate node."
            raise refused("bus_busy", message, hint=hint)

    async def _drain(self) -> bool:
        """Receive pending entries to free memory in Redis; return True if there were any."""
        if self.receiver is None or self.sender is None:
            return False
        try:
            entries = await self._client.claim_idle(self.node.id, self._token, 0, self._batch)
            entries = entries or await self._client.read(self.node.id, self._token, self._batch, 1)
            await self._process(entries, self.receiver, self.sender)
            await self._client.trim(self.node.id)
            return bool(entries)
        except SwitchboardError:
            return True  # The next attempt reports it.

    async def _set_aside(self) -> bool:
        """Move keys that no command can use out of the way; return True if there were any."""
        links, remote = (self.sender.links if self.sender else {}), (self.names.remote if self.names else {})
        others = {node for node in {*links, *remote.values()} if nodes.is_node_id(node)}
        try:
            return bool(await self._client.set_aside_unusable([self.node.id, *sorted(others)]))
        except SwitchboardError:
            return False  # The next attempt reports it.

    async def _lease_loop(self) -> None:
        while True:
            await self._renew_lease()
            if self._state != "connected":
                self._log.info("bus.connected", url=self._client.shown, node=self.node.id)
            self._state, self._problem, self._remedy = "connected", "", ""
            length, pending, lag = await self._client.stream_counts(self.node.id)
            self._backlog = min(length, pending + lag)
            await self._write_status()
            await asyncio.sleep(LEASE_RENEWAL_S)
            # Only now: a failure right after each connect must not be retried and logged several times a second.
            self._retry_delay_s, self._last_logged = RETRY_DELAY_S, ""

    async def _sync_loop(self, names: NameRegistry, shared_state: SharedState) -> None:
        while True:
            self._wake_sync.clear()
            began = time.monotonic()
            await names.sync(shared_state.removed_agents())
            await names.publish_presence()
            restored = shared_state.restored
            await shared_state.sync()
            if shared_state.restored > restored:
                self._note_loss()
            self.ready.set()
            self._wake_sender.set()
            await self._wait_for_sync(names, time.monotonic() - began)

    async def _wait_for_sync(self, names: NameRegistry, took_s: float) -> None:
        """Return when names and shared state are to be compared again; the last comparison took so long."""
        began = time.monotonic()
        interval_s = min(max(SYNC_INTERVAL_S, names.count / COMPARED_PER_S), MAX_COMPARE_INTERVAL_S)
        sizes = await self._client.table_sizes()
        await asyncio.sleep(min(took_s * PAUSE_FACTOR, MAX_COMPARE_INTERVAL_S))
        while not self._wake_sync.is_set() and time.monotonic() - began < interval_s:
            await _wait_at_most(self._wake_sync.wait(), SYNC_INTERVAL_S)
            await names.publish_presence()
            if await self._client.table_sizes() != sizes:  # also if Redis was emptied while we are connected
                return

    def _note_loss(self) -> None:
        """Report that Redis has lost data, which is put back: once for all of it that is found in a minute."""
        now = time.time()
        if abs(now - self._lost_at) > LOSS_INTERVAL_S:
            note = "it was emptied, or is an older copy; it gets everything back"
            self._log.warning("bus.lost", url=self._client.shown, note=note)
        self._lost_at = now

    def _log_conflict(self, entry: str) -> None:
        note = (
            "two machines had different values of the same revision; the same one counts on all of them now"
        )
        self._log.warning("bus.conflict", entry=entry, note=note)

    async def _change_loop(self) -> None:
        after = await self._client.last_id("changes")
        while True:
            seen = await self._client.wait_for_change(after, READ_WAIT_MS)
            if seen != after:
                after = seen
                self._wake_sync.set()

    async def _send_loop(self, sender: BusSender, names: NameRegistry) -> None:
        while True:
            self._wake_sender.clear()
            if not await sender.pump(names.remote):
                await _wait_at_most(self._wake_sender.wait(), SYNC_INTERVAL_S / 2)

    async def _receive_loop(self, receiver: BusReceiver, sender: BusSender) -> None:
        # Only one relay holds this node, so every earlier consumer is gone and its entries can be claimed at once.
        idle_ms, inherited = 0, 0.0
        untrimmed = 0
        while True:
            entries = []
            if not idle_ms or time.monotonic() - inherited >= CLAIM_INTERVAL_S:
                entries = await self._client.claim_idle(self.node.id, self._token, idle_ms, self._batch)
                if not entries:
                    idle_ms, inherited = CLAIM_IDLE_MS, time.monotonic()
            if not entries:
                entries = await self._client.read(self.node.id, self._token, self._batch, READ_WAIT_MS)
            if entries:
                await self._process(entries, receiver, sender)
            is_large = sum(entry.size for entry in entries) > MAX_BATCH_BYTES
            self._batch = max(1, self._batch // 4) if is_large else min(MAX_BATCH, self._batch * 2)
            untrimmed += len(entries)
            if untrimmed >= TRIM_AFTER:
                await self._client.trim(self.node.id)
                untrimmed = 0

    async def _process(self, entries: list[StreamEntry], receiver: BusReceiver, sender: BusSender) -> None:
        self._step("read")
        try:
            for entry in entries:
                if entry.text("kind") not in ("letter", "receipt"):
                    await self._on_reply(entry, sender)
            await receiver.receive(entries)
        except SwitchboardError as problem:
            if is_temporary(problem):
                await self._client.reset_delivery_counts(
                    self.node.id, self._token, [entry.id for entry in entries]
                )
            raise
        self._wake_sender.set()

    async def _on_reply(self, entry: StreamEntry, sender: BusSender) -> None:
        """Process a reply. One that cannot be used is reported and dropped: what it replied to is sent again."""
        if entry.text("kind") in REPLIES and nodes.is_node_id(entry.text("from")):
            await sender.on_reply(entry)
        else:
            self._client.malformed.report(f"in:{self.node.id}/{entry.id}", "it is neither mail nor a reply")

    async def _event_loop(self) -> None:
        assert self.events is not None
        while True:
            if not await self.events.pump():
                await asyncio.sleep(EVENTS_INTERVAL_S)

    async def _trim_loop(self) -> None:
        while True:
            await asyncio.sleep(TRIM_INTERVAL_S)
            await self._client.trim(self.node.id)

    def _on_mailbox_change(self, change: MailboxChange) -> None:
        if self.events is not None and change.kind != "inbox":
            self.events.on_change()
        remote = self.names.remote if self.names is not None else {}
        if change.kind == "state" or (change.agent and change.agent not in remote):
            if change.kind == "state" or self.names is None or change.agent not in self.names.owned:
                self._wake_sync.set()
        else:
            if self.sender is not None:
                self.sender.on_change(change.agent)
            self._wake_sender.set()

    async def _write_status(self) -> None:
        try:
            self._waiting = await self._store.run(self._count_waiting)
            if self.events is not None:
                self._waiting_events = await self._store.run(self.events.count_waiting)
            status = self.status()
            await self._store.run(lambda tx: nodes.save(tx, STATUS_FILE, status, durable=False))
        except SwitchboardError as problem:
            self._log.warning("bus.status", problem=str(problem))

    def _count_waiting(self, tx: Transaction) -> int:
        if self.names is None or self.sender is None:
            return 0
        # While mail is sent, only the mailboxes that have some are known; else none is checked by the sender.
        agents = set(self.sender.mailboxes.messages) if self._state == "connected" else set(self.names.remote)
        return sum(len(tx.names("inbox", agent)) for agent in agents)

    def status(self) -> BusStatus:
        """Return the current status."""
        links = self.sender.links.values() if self.sender is not None else ()
        busy = [link for link in links if link.window]
        in_flight = sum(len(link.window) for link in busy)
        names = self.names
        return BusStatus(
            state=self._state,
            node=self.node.id,
            url=self._client.shown,
            pid=os.getpid(),
            at=time.time(),
            problem=self._problem,
            remedy=self._remedy,
            waiting=self._waiting,
            in_flight=in_flight,
            on_their_way=in_flight,
            oldest_s=round(max((time.monotonic() - link.progressed_at for link in busy), default=0.0), 1),
            backlog=self._backlog,
            shipped=self.sender.shipped if self.sender is not None else 0,
            stored=self.receiver.stored if self.receiver is not None else 0,
            dead=self.receiver.dead if self.receiver is not None else 0,
            agents=len(names.owned) if names is not None else 0,
            elsewhere=len(names.remote) if names is not None else 0,
            conflicts=sorted(names.conflicts) if names is not None else [],
            joined=self._joined,
            lost_at=self._lost_at,
            restored=self.shared.restored if self.shared is not None else 0,
            state_conflicts=list(self.shared.conflicts) if self.shared is not None else [],
            mail=self._mail,
            malformed=self._client.malformed.count,
            events=self.events.published if self.events is not None else 0,
            events_waiting=self._waiting_events,
            events_lost=self.events.lost if self.events is not None else 0,
        )

    @property
    def is_unreachable(self) -> bool:
        """True if Redis is known to be unusable now."""
        return self._state not in ("standby", "connected")


async def _wait_at_most(work: Coroutine[object, object, object], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        pass
