"""Rate limits and quarantine shared by several servers behind one address, through Redis.

Waiting calls are counted in batches: one query is in flight at a time, and calls that arrive meanwhile go into the
next, whatever their suite. While Redis is unreachable, each replica counts and decides alone without waiting, and
Redis is probed from time to time. The counters themselves are in `counters`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import TypeVar

import msgspec
from msgspec import Struct

from switchboard_mcp.bus.connection_url import hide
from switchboard_mcp.bus.malformed import decode
from switchboard_mcp.bus.replicas.counters import REPLICA_TIMEOUT_S, ReplicaCounters, TokenRequest
from switchboard_mcp.children.replica_types import CallMeter, RemoteQuarantine
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.config.sections import BusSettings
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.observability.log import Log

T = TypeVar("T")

# Delay before Redis is probed again: initial, and the limit it doubles up to.
RETRY_DELAY_S, MAX_RETRY_DELAY_S = 0.5, 5.0
# Exercises the same script as every call, permissions and memory included, and leaves nothing behind.
PROBE = TokenRequest("", 60_000, 1, 1)
MAX_PROBLEM_LENGTH, MAX_NAME_LENGTH = 500, 100


class Notice(Struct, frozen=True):
    """The notice in Redis about a quarantined child. `token` identifies one run of a replica."""

    replica: str
    token: str
    failures: int
    problem: str


class RedisReplicas:
    """Shares limits and quarantine through Redis. Implements `children.replica_types.Replicas`."""

    def __init__(self, name: str, counters: ReplicaCounters, log: Log) -> None:
        self.name = name
        self.reachable = True
        self._counters = counters
        self._log = log
        counters.malformed.log = lambda place, reason: log.warning(
            "replicas.malformed", key=place, reason=reason
        )
        self._token = os.urandom(6).hex()
        self._meters: dict[CallMeter, None] = {}  # with waiting calls, in order of arrival
        # By child: the end of the quarantine and its notice, empty to clear it.
        self._quarantine_updates: dict[str, tuple[float, bytes]] = {}
        self._wake = asyncio.Event()

    @classmethod
    def open(
        cls, name: str, settings: BusSettings, log: Log, register: Callable[[str], None]
    ) -> RedisReplicas:
        """Return the replica of this name. `register` is called with the secrets of the connection to redact."""
        hide(settings.url, register)
        return cls(name, ReplicaCounters(settings), log)

    def count(self, meter: CallMeter) -> None:
        """Queue a meter with waiting calls; it learns how many of them may proceed."""
        self._meters[meter] = None
        self._wake.set()

    def gave_up(self, spec: ChildSpec, failures: int, problem: str, for_s: float) -> None:
        """Publish that the child is quarantined here."""
        notice = Notice(self.name, self._token, failures, problem[:MAX_PROBLEM_LENGTH])
        self._quarantine_updates[child_key(spec)] = (time.monotonic() + for_s, msgspec.json.encode(notice))
        self._wake.set()

    def trusts(self, spec: ChildSpec) -> None:
        """Publish that the child is trusted here again."""
        self._quarantine_updates[child_key(spec)] = (0.0, b"")
        self._wake.set()

    async def verdict(self, spec: ChildSpec) -> RemoteQuarantine | None:
        """Return another replica's quarantine of this child, if it should not be started."""
        value = await self._query(self._counters.quarantine(child_key(spec))) if self.reachable else None
        if value is None:
            return None
        notice = decode(value[0], Notice)
        if notice is None:
            self._counters.malformed.report(f"quarantine:{child_key(spec)}", "it is not a notice")
        if notice is None or notice.token == self._token:
            return None
        problem = notice.problem[:MAX_PROBLEM_LENGTH]
        return RemoteQuarantine(notice.replica[:MAX_NAME_LENGTH], notice.failures, problem, value[1])

    async def run(self) -> None:
        """Run until cancelled; calls still waiting then are decided locally."""
        delay_s = RETRY_DELAY_S
        try:
            await self._query(self._counters.take_tokens([PROBE]))  # Report an unreachable Redis at startup.
            while True:
                while self._meters:
                    await self._count_calls()
                if not self.reachable:
                    await asyncio.sleep(delay_s)
                    delay_s = min(delay_s * 2, MAX_RETRY_DELAY_S)
                    await self._probe()
                elif self._quarantine_updates:
                    await self._publish_quarantine()
                else:
                    delay_s = RETRY_DELAY_S
                    self._wake.clear()
                    await self._wake.wait()
        finally:
            self.reachable = False
            for meter in self._meters:
                meter.next_batch()
                meter.decide_locally()
            await self._counters.close()

    async def _count_calls(self) -> None:
        """Send one query for all meters that wait now."""
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
        """Publish the next quarantine update; one that could not be published is retried while it is still in force."""
        child, (until, notice) = next(iter(self._quarantine_updates.items()))
        left_ms = round((until - time.monotonic()) * 1000)
        if not notice:
            await self._query(self._counters.clear_quarantine(child))
        elif left_ms > 0:
            await self._query(self._counters.set_quarantine(child, notice, left_ms))
        if self.reachable and self._quarantine_updates[child] == (until, notice):
            del self._quarantine_updates[child]

    async def _probe(self) -> None:
        """Check if Redis is reachable again."""
        if await self._query(self._counters.take_tokens([PROBE])) is not None:
            self.reachable = True
            self._log.info("replicas.back", url=self._counters.shown)

    async def _query(self, question: Coroutine[object, object, T]) -> T | None:
        """Return the result of a query, or None if there is none in time: then this replica decides alone."""
        try:
            async with asyncio.timeout(REPLICA_TIMEOUT_S):
                return await question
        except (SwitchboardError, TimeoutError) as problem:
            if self.reachable:
                message = str(problem) or f"No answer within {REPLICA_TIMEOUT_S:g} s."
                note = "until Redis is back, limits and quarantine apply to this replica only"
                self._log.warning("replicas.away", problem=message, note=note)
            self.reachable = False
            self._wake.set()
            return None


def child_key(spec: ChildSpec) -> str:
    """Return a key for a child as it is configured: during the rollout of a new config there are two."""
    parts = (
        spec.kind,
        spec.command,
        spec.args,
        sorted(spec.env.items()),
        spec.url,
        sorted(spec.headers.items()),
    )
    return f"{spec.name}:{sha256(msgspec.json.encode(parts)).hexdigest()[:16]}"
