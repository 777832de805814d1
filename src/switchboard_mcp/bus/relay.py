"""The relay of one folder: carries letters and receipts both ways while Redis can be reached, and says how it goes.

One relay serves a folder at a time; others stand by for it. Whatever fails is tried again after a pause: what must
not be lost is on the disk, what came twice is noticed. Mail on this machine never waits for it. Owns the loops; what
they do is in `outward`, `inward`, `homes` and `tables`.
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
from switchboard_mcp.bus.receiver import MOST_AT_ONCE, BusReceiver, is_patient
from switchboard_mcp.bus.redis_client import BusClient, StreamEntry
from switchboard_mcp.bus.relay_status import STATUS_FILE, BusStatus, State
from switchboard_mcp.bus.sender import Outward
from switchboard_mcp.bus.shared_state import SharedState
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.store import MailboxChange, MessageStore
from switchboard_mcp.observability.log import Log

# Without a sign of life for so long a machine is taken for gone, and its names may be had by others.
LEASE_MS = 60_000
BEAT_S = 5.0
# How often the directory is compared although nothing is known to have changed.
LOOK_S = 2.0
READ_WAIT_MS = 1_000
# Entries that another consumer of this folder was given and has not acknowledged for so long are ours.
INHERIT_MS, INHERIT_EVERY_S = 60_000, 30.0
TRIM_EVERY_S = 10.0
EVENTS_EVERY_S = 0.5
# After a failure: at first, and at most.
PAUSE_S, MOST_PAUSE_S = 0.2, 5.0
STANDBY_S = 1.0

_STATES: dict[str, State] = {"bus_full": "full", "bus_refused": "refused"}


def nothing(_: str) -> None:
    """Called between steps; a test may end the process there."""


class BusRelay:
    """See the module. `step` is called between any two steps with the name of the one that is done."""

    def __init__(
        self,
        post: MessageStore,
        wire: BusClient,
        log: Log,
        step: Callable[[str], None] = nothing,
        audit: str = "",
    ) -> None:
        """`audit` is the folder of the audit record, where one is kept: its lines become events."""
        self._post = post
        self._wire = wire
        self._log = log
        self._step = step
        self._audit = audit
        self._token = os.urandom(6).hex()
        self._machine = nodes.machine()
        self._state: State = "standby"
        self._problem = self._remedy = ""
        self._stirred = asyncio.Event()
        self._news = asyncio.Event()
        self._waiting = 0
        self._backlog = 0
        self.ready = asyncio.Event()
        self.me = BusNode("", "")
        self.outward: Outward | None = None
        self.inward: BusReceiver | None = None
        self.homes: NameRegistry | None = None

    async def run(self) -> None:
        """Until it is cancelled."""
        lock = await self._only_one()
        stop = self._post.subscribe(self._changed)
        try:
            self.me = await self._post.run(nodes.identify)
            outward = self.outward = Outward(self._post, self._wire, self.me, self._step)
            self.inward = BusReceiver(self._post, self._wire, self.me, self._step)
            homes = self.homes = NameRegistry(self._post, self._wire, self.me)
            await homes.recover()
            await outward.recover()
            while True:
                try:
                    await self._connected(outward, self.inward, homes)
                except* Exception as problems:  # noqa: BLE001 - it is told, and tried again
                    await self._failed(problems)
        finally:
            stop()
            os.close(lock)
            await self._goodbye()

    async def _goodbye(self) -> None:
        try:
            await self._wire.leave(self.me.id, self._token, self._machine)
        except (SwitchboardError, asyncio.CancelledError):
            pass
        await self._wire.close()

    async def _only_one(self) -> int:
        while True:
            lock = await asyncio.to_thread(nodes.lock, self._post.path)
            if lock is not None:
                return lock
            await asyncio.sleep(STANDBY_S)

    async def _failed(self, problems: BaseExceptionGroup[BaseException]) -> None:
        """Say it once, wait a while, and begin anew: what Redis still has is not known."""
        problem: BaseException = problems
        while isinstance(problem, BaseExceptionGroup):
            problem = problem.exceptions[0]
        told = problem.failure if isinstance(problem, SwitchboardError) else None
        code = told.code if told is not None else ""
        # What nobody foresaw may be of one letter: it must not keep all the others.
        said = str(problem) if isinstance(problem, SwitchboardError | OSError) else repr(problem)
        if self._logged != said:
            self._log.warning("bus.away", problem=said)
            self._logged = said
        self._state, self._problem = _STATES.get(code, "away"), said
        self._remedy = (told.hint or "") if told is not None else ""
        self.ready.clear()
        for part in (self.outward, self.inward):
            if part is not None:
                part.lost_sight()
        await self._tell()
        if code == "bus_full" and await self._drain():
            self._pause_s = PAUSE_S
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, MOST_PAUSE_S)

    _pause_s = PAUSE_S
    _logged = ""

    async def _connected(self, outward: Outward, inward: BusReceiver, homes: NameRegistry) -> None:
        await self._beat()
        await self._wire.open_stream(self.me.id)
        tables = SharedState(self._post, self._wire)
        await homes.sync()
        async with asyncio.TaskGroup() as tasks:
            for loop in (
                self._beats(),
                self._directory(homes, tables),
                self._follow(),
                self._out(outward, homes),
                self._in(inward, outward),
                self._trims(),
                self._tell_events(),
            ):
                tasks.create_task(loop)

    async def _beat(self) -> None:
        card = encode(
            {"host": self._machine.partition("/")[0], "folder": self._post.path, "pid": os.getpid()}
        )
        if not await self._wire.beat(self.me.id, self._token, self._machine, LEASE_MS, card):
            told = f"Another relay serves the node {self.me.id} of {self._post.path}: was the folder copied?"
            hint = "Remove .switchboard/bus in the copy, so that it becomes a node of its own."
            raise refused("bus_busy", told, hint=hint)

    async def _drain(self) -> bool:
        """Take in what there is, so that Redis has room again; whether there was anything."""
        if self.inward is None or self.outward is None:
            return False
        try:
            entries = await self._wire.inherit(self.me.id, self._token, 0, MOST_AT_ONCE)
            entries = entries or await self._wire.read(self.me.id, self._token, MOST_AT_ONCE, 1)
            await self._heard(entries, self.inward, self.outward)
            await self._wire.trim(self.me.id)
            return bool(entries)
        except SwitchboardError:
            return True  # The next round tells.

    async def _beats(self) -> None:
        while True:
            await self._beat()
            if self._state != "connected":
                self._log.info("bus.connected", url=self._wire.shown, node=self.me.id)
            self._state, self._problem, self._remedy = "connected", "", ""
            length, pending, lag = await self._wire.lengths(self.me.id)
            self._backlog = min(length, pending + lag)
            await self._tell()
            await asyncio.sleep(BEAT_S)
            # Not before: what fails whenever it is connected is not tried, and told, several times a second.
            self._pause_s, self._logged = PAUSE_S, ""

    async def _directory(self, homes: NameRegistry, tables: SharedState) -> None:
        while True:
            self._news.clear()
            await homes.sync()
            await homes.tell_presence()
            await tables.sync()
            self.ready.set()
            self._stirred.set()
            await _within(self._news.wait(), LOOK_S)

    async def _follow(self) -> None:
        after = await self._wire.newest("changes")
        while True:
            seen = await self._wire.changes(after, READ_WAIT_MS)
            if seen != after:
                after = seen
                self._news.set()

    async def _out(self, outward: Outward, homes: NameRegistry) -> None:
        while True:
            self._stirred.clear()
            if not await outward.pump(homes.away):
                await _within(self._stirred.wait(), LOOK_S / 2)

    async def _in(self, inward: BusReceiver, outward: Outward) -> None:
        # Only one relay holds this node: whatever was handed out before belongs to somebody who is no more.
        idle_ms, inherited = 0, 0.0
        while True:
            entries = []
            if not idle_ms or time.monotonic() - inherited >= INHERIT_EVERY_S:
                entries = await self._wire.inherit(self.me.id, self._token, idle_ms, MOST_AT_ONCE)
                if not entries:
                    idle_ms, inherited = INHERIT_MS, time.monotonic()
            if not entries:
                entries = await self._wire.read(self.me.id, self._token, MOST_AT_ONCE, READ_WAIT_MS)
            if entries:
                await self._heard(entries, inward, outward)

    async def _heard(self, entries: list[StreamEntry], inward: BusReceiver, outward: Outward) -> None:
        self._step("read")
        try:
            for entry in entries:
                if entry.text("kind") not in ("letter", "receipt"):
                    await outward.hear(entry)
            await inward.take(entries)
        except SwitchboardError as problem:
            if is_patient(problem):
                await self._wire.forgive(self.me.id, self._token, [entry.id for entry in entries])
            raise
        self._stirred.set()

    async def _tell_events(self) -> None:
        events = EventPublisher(self._post, self._wire, self.me, self._audit)
        while True:
            if not await events.pump():
                await asyncio.sleep(EVENTS_EVERY_S)

    async def _trims(self) -> None:
        while True:
            await asyncio.sleep(TRIM_EVERY_S)
            await self._wire.trim(self.me.id)

    def _changed(self, change: MailboxChange) -> None:
        away = self.homes.away if self.homes is not None else {}
        if change.kind == "state" or (change.agent and change.agent not in away):
            if change.kind == "state" or self.homes is None or change.agent not in self.homes.owned:
                self._news.set()
        else:
            self._stirred.set()

    async def _tell(self) -> None:
        try:
            self._waiting = await self._post.run(self._count)
            status = self.status()
            await self._post.run(lambda tx: nodes.save(tx, STATUS_FILE, status, durable=False))
        except SwitchboardError as problem:
            self._log.warning("bus.status", problem=str(problem))

    def _count(self, tx: Transaction) -> int:
        away = self.homes.away if self.homes is not None else {}
        return sum(len(os.listdir(tx.folder("inbox", name))) for name in away if tx.has("inbox", name))

    def status(self) -> BusStatus:
        """How it goes."""
        links = self.outward.links.values() if self.outward is not None else ()
        busy = [link for link in links if link.window]
        homes = self.homes
        return BusStatus(
            state=self._state,
            node=self.me.id,
            url=self._wire.shown,
            pid=os.getpid(),
            at=time.time(),
            problem=self._problem,
            remedy=self._remedy,
            waiting=self._waiting,
            on_their_way=sum(len(link.window) for link in busy),
            oldest_s=round(max((time.monotonic() - link.moved_at for link in busy), default=0.0), 1),
            backlog=self._backlog,
            shipped=self.outward.shipped if self.outward is not None else 0,
            stored=self.inward.stored if self.inward is not None else 0,
            dead=self.inward.dead if self.inward is not None else 0,
            agents=len(homes.owned) if homes is not None else 0,
            elsewhere=len(homes.away) if homes is not None else 0,
            conflicts=sorted(homes.conflicts) if homes is not None else [],
        )

    @property
    def is_away(self) -> bool:
        """Whether it is known that Redis cannot be used now."""
        return self._state not in ("standby", "connected")


async def _within(work: Coroutine[object, object, object], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        pass
