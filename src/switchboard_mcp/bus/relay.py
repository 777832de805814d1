"""The publisher of one folder: sends its events to Redis, and reports its status.

One publisher serves a folder at a time; others wait on standby. Failures are retried after a delay: the events are on
disk until they were published. This module runs the loops; `event_publisher` does the work.
"""

from __future__ import annotations

import asyncio
import os
import time

from msgspec.json import encode

from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus.event_publisher import EventPublisher
from switchboard_mcp.bus.node import BusNode
from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.bus.relay_status import STATUS_FILE, BusStatus, State
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.observability.log import Log

# A publisher that has not renewed its lease for this long is considered gone.
LEASE_MS = 60_000
LEASE_RENEWAL_S = 5.0
EVENTS_INTERVAL_S = 0.5
# Delay after a failure: initial, and the limit it doubles up to.
RETRY_DELAY_S, MAX_RETRY_DELAY_S = 0.2, 5.0
STANDBY_INTERVAL_S = 1.0

_STATES: dict[str, State] = {"bus_full": "full", "bus_refused": "refused"}


class BusRelay:
    """Publishes one folder's events; `path` is its `.switchboard`. Without a `store` there is no mail."""

    def __init__(
        self, path: str, client: BusClient, log: Log, audit: str = "", store: MessageStore | None = None
    ) -> None:
        """`audit` is the folder of the audit log, if one is kept: its lines are published as events."""
        self._path = path
        self._store = store
        self._client = client
        client.malformed.log = lambda place, reason: log.warning("bus.malformed", key=place, reason=reason)
        self._log = log
        self._audit = audit
        self._token = os.urandom(6).hex()
        self._machine = nodes.machine_id()
        self._state: State = "standby"
        self._problem = self._remedy = ""
        self._on_standby = False
        self._retry_delay_s = RETRY_DELAY_S
        self._last_logged = ""
        self.node = BusNode("")
        self.events: EventPublisher | None = None
        self._waiting_events = 0

    async def run(self) -> None:
        """Publish events until cancelled."""
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task is not None else 0
        lock = await self._acquire_folder()
        try:
            self.node = await asyncio.to_thread(nodes.identify, self._path)
            self.events = EventPublisher(self._path, self._client, self.node, self._audit, self._store)
            while True:
                try:
                    await self._connected()
                except* (SwitchboardError, OSError, ValueError, KeyError, TypeError) as problems:
                    if task is not None and task.cancelling() > cancelled_before:
                        # Cancelled in the same moment in which a connection failed.
                        raise asyncio.CancelledError from None
                    await self._on_failure(problems)
        finally:
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
            lock = await asyncio.to_thread(nodes.acquire_lock, self._path)
            if lock is not None:
                return lock
            if not self._on_standby:
                self._on_standby = True
                self._log.info("bus.standby", note="another process of this workspace publishes")
            await asyncio.sleep(STANDBY_INTERVAL_S)

    async def _on_failure(self, problems: BaseExceptionGroup[BaseException]) -> None:
        """Log the failure once, and wait."""
        problem: BaseException = problems
        while isinstance(problem, BaseExceptionGroup):
            problem = problem.exceptions[0]
        failure = problem.failure if isinstance(problem, SwitchboardError) else None
        code = failure.code if failure is not None else ""
        # An unexpected exception may concern a single event, so it must not stop the publisher.
        text = str(problem) if isinstance(problem, SwitchboardError | OSError) else repr(problem)
        if self._last_logged != text:
            self._log.warning("bus.away", problem=text)
            self._last_logged = text
        self._state, self._problem = _STATES.get(code, "away"), text
        self._remedy = (failure.hint or "") if failure is not None else ""
        await self._write_status()
        if code == "bus_malformed" and await self._set_aside():
            self._retry_delay_s = RETRY_DELAY_S
        await asyncio.sleep(self._retry_delay_s)
        self._retry_delay_s = min(self._retry_delay_s * 2, MAX_RETRY_DELAY_S)

    async def _connected(self) -> None:
        await self._client.require_single_server()
        await self._renew_lease()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._lease_loop())
            tasks.create_task(self._event_loop())

    async def _renew_lease(self) -> None:
        card = encode({"host": self._machine.partition("/")[0], "folder": self._path, "pid": os.getpid()})
        if not await self._client.renew_lease(self.node.id, self._token, self._machine, LEASE_MS, card):
            message = (
                f"Another publisher serves the node {self.node.id} of {self._path}: was the folder copied?"
            )
            hint = "Remove .switchboard/bus in the copy, so it becomes a separate node."
            raise refused("bus_busy", message, hint=hint)

    async def _set_aside(self) -> bool:
        """Move keys that no command can use out of the way; return True if there were any."""
        try:
            return bool(await self._client.set_aside_unusable(self.node.id))
        except SwitchboardError:
            return False  # The next attempt reports it.

    async def _lease_loop(self) -> None:
        while True:
            await self._renew_lease()
            if self._state != "connected":
                self._log.info("bus.connected", url=self._client.shown, node=self.node.id)
            self._state, self._problem, self._remedy = "connected", "", ""
            await self._write_status()
            await asyncio.sleep(LEASE_RENEWAL_S)
            # Only now: a failure right after each connect must not be retried and logged several times a second.
            self._retry_delay_s, self._last_logged = RETRY_DELAY_S, ""

    async def _event_loop(self) -> None:
        assert self.events is not None
        while True:
            if not await self.events.pump():
                await asyncio.sleep(EVENTS_INTERVAL_S)

    async def _write_status(self) -> None:
        try:
            if self.events is not None:
                self._waiting_events = await asyncio.to_thread(self.events.count_waiting)
            status = self.status()
            await asyncio.to_thread(nodes.save, self._path, STATUS_FILE, status, durable=False)
        except (SwitchboardError, OSError) as problem:
            self._log.warning("bus.status", problem=str(problem))

    def status(self) -> BusStatus:
        """Return the current status."""
        return BusStatus(
            state=self._state,
            node=self.node.id,
            url=self._client.shown,
            pid=os.getpid(),
            at=time.time(),
            problem=self._problem,
            remedy=self._remedy,
            mail=self._store is not None,
            malformed=self._client.malformed.count,
            events=self.events.published if self.events is not None else 0,
            events_waiting=self._waiting_events,
            events_lost=self.events.lost if self.events is not None else 0,
        )
