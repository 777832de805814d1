"""One of several servers behind the same address: limits and quarantine that count for all of them, by way of Redis.

Calls that wait for the count of all are asked for together: one question is under way at a time, and whoever comes
meanwhile is in the next, whatever its suite. While Redis is away, each replica counts and judges alone; nothing waits
for it then, and it is looked for again by and by. Owns when to ask and whom to tell; the sums are in `counters`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine
from hashlib import sha256
from typing import TypeVar

import msgspec
from msgspec import Struct

from switchboard_mcp.bus.replicas.counters import REPLICA_TIMEOUT_S, ReplicaCounters, TokenRequest
from switchboard_mcp.children.replica_types import CallMeter, RemoteQuarantine
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.observability.log import Log

T = TypeVar("T")

# How long until it is looked for again: at first, and at most.
RETRY_DELAY_S, MAX_RETRY_DELAY_S = 0.5, 5.0
# Takes the way of every call, rights and memory included, and leaves nothing behind.
PROBE = TokenRequest("", 60_000, 1, 1)
MAX_PROBLEM_LENGTH = 500


class Notice(Struct, frozen=True):
    """What stands in Redis of a child in quarantine. `token` is of one run of a replica."""

    replica: str
    token: str
    failures: int
    problem: str


class RedisReplicas:
    """See the module. Is a `children.replica_types.Replicas`."""

    def __init__(self, name: str, counters: ReplicaCounters, log: Log) -> None:
        self.name = name
        self.reachable = True
        self._counters = counters
        self._log = log
        self._token = os.urandom(6).hex()
        self._meters: dict[CallMeter, None] = {}  # with calls that wait, in the order they came
        self._quarantine_updates: dict[
            str, tuple[float, bytes]
        ] = {}  # of children: until when, and the notice, or none
        self._wake = asyncio.Event()

    def count(self, meter: CallMeter) -> None:
        """Calls wait; the meter is grants how many of them may go on."""
        self._meters[meter] = None
        self._wake.set()

    def gave_up(self, spec: ChildSpec, failures: int, problem: str, for_s: float) -> None:
        """The child is in quarantine here."""
        notice = Notice(self.name, self._token, failures, problem[:MAX_PROBLEM_LENGTH])
        self._quarantine_updates[child_key(spec)] = (time.monotonic() + for_s, msgspec.json.encode(notice))
        self._wake.set()

    def trusts(self, spec: ChildSpec) -> None:
        """The child has won back trust here."""
        self._quarantine_updates[child_key(spec)] = (0.0, b"")
        self._wake.set()

    async def verdict(self, spec: ChildSpec) -> RemoteQuarantine | None:
        """What another one thinks of the child, where it should not be started."""
        value = await self._query(self._counters.quarantine(child_key(spec))) if self.reachable else None
        if value is None:
            return None
        try:
            notice = msgspec.json.decode(value[0], type=Notice)
        except msgspec.DecodeError:
            return None
        if notice.token == self._token:
            return None
        return RemoteQuarantine(notice.replica, notice.failures, notice.problem, value[1])

    async def run(self) -> None:
        """Until cancelled; whoever waits then is not forgotten."""
        pause_s = RETRY_DELAY_S
        try:
            await self._query(
                self._counters.take_tokens([PROBE])
            )  # What is to be said of Redis is said at the start.
            while True:
                while self._meters:
                    await self._count_calls()
                if not self.reachable:
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, MAX_RETRY_DELAY_S)
                    await self._probe()
                elif self._quarantine_updates:
                    await self._publish_quarantine()
                else:
                    pause_s = RETRY_DELAY_S
                    self._wake.clear()
                    await self._wake.wait()
        finally:
            self.reachable = False
            for meter in self._meters:
                meter.next_batch()
                meter.decide_locally()
            await self._counters.close()

    async def _count_calls(self) -> None:
        """One question for all that wait now."""
        meters, self._meters = self._meters, {}
        requests = [
            TokenRequest(meter.key, meter.calls_per_minute, meter.burst, meter.next_batch())
            for meter in meters
        ]
        grants = None
        try:
            if self.reachable:
                grants = await self._query(self._counters.take_tokens(requests))
        finally:
            for place, meter in enumerate(meters):
                if grants is None:
                    meter.decide_locally()
                else:
                    meter.on_granted(*grants[place])

    async def _publish_quarantine(self) -> None:
        """Say what is new of children; what could not be said is said later, if it is still true."""
        child, (until, notice) = next(iter(self._quarantine_updates.items()))
        left_ms = round((until - time.monotonic()) * 1000)
        if not notice:
            await self._query(self._counters.clear_quarantine(child))
        elif left_ms > 0:
            await self._query(self._counters.set_quarantine(child, notice, left_ms))
        if self.reachable and self._quarantine_updates[child] == (until, notice):
            del self._quarantine_updates[child]

    async def _probe(self) -> None:
        """Whether Redis is there again."""
        if await self._query(self._counters.take_tokens([PROBE])) is not None:
            self.reachable = True
            self._log.info("replicas.back", url=self._counters.shown)

    async def _query(self, question: Coroutine[object, object, T]) -> T | None:
        """The answer, or None where there is none in time: then we are alone."""
        try:
            async with asyncio.timeout(REPLICA_TIMEOUT_S):
                return await question
        except (SwitchboardError, TimeoutError) as problem:
            if self.reachable:
                grants = str(problem) or f"No answer within {REPLICA_TIMEOUT_S:g} s."
                note = "limits and quarantine are this replica's own until Redis is back"
                self._log.warning("replicas.away", problem=grants, note=note)
            self.reachable = False
            self._wake.set()
            return None


def child_key(spec: ChildSpec) -> str:
    """Names a child as it is configured, wherever its folder is: while a new config is rolled out there are two."""
    parts = (
        spec.kind,
        spec.command,
        spec.args,
        sorted(spec.env.items()),
        spec.url,
        sorted(spec.headers.items()),
    )
    return f"{spec.name}:{sha256(msgspec.json.encode(parts)).hexdigest()[:16]}"
