"""A gate whose rate counts for all replicas: a call waits until it is known whether all of them together allow it.

How many are under way at once is for this replica alone to say, since its own process is what that protects. While the
others cannot be heard of, the bucket here counts alone; it is kept in step meanwhile.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque

from switchboard_mcp.children.replica_types import Replicas
from switchboard_mcp.config.sections import LimitSettings
from switchboard_mcp.errors import Failure
from switchboard_mcp.gateway.pipeline.rate_limit import Admission, RateLimiter


class SharedRateLimiter(RateLimiter):
    """See the module. Is a `children.replica_types.Meter`."""

    def __init__(
        self,
        suite: str,
        limits: LimitSettings,
        loop: AbstractEventLoop,
        replicas: Replicas,
        principal: str | None,
    ) -> None:
        super().__init__(suite, limits, loop)
        assert limits.calls_per_minute is not None
        self.calls_per_minute = limits.calls_per_minute
        self.burst = limits.burst or limits.calls_per_minute
        # With other limits, as while a new config is rolled out, it is another bucket.
        self.key = f"{suite}:{self.calls_per_minute}/{self.burst}"
        if principal is not None:
            self.key += f":{principal}"
        self._replicas = replicas
        self._unsent: deque[Admission] = deque()  # not asked for yet
        self._in_flight: deque[Admission] = deque()

    def acquire(self, call: Admission, now: float) -> Failure | bool:
        """False where the call waits for an answer or its turn; else as every gate."""
        if not self._replicas.reachable:
            return super().acquire(call, now)
        if self._max_running is not None:
            places = self._max_running + self._max_waiting
            if self._running + len(self._waiting) + len(self._in_flight) + len(self._unsent) >= places:
                return self._busy()
        self._unsent.append(call)
        self._replicas.count(self)
        return False

    def abandon(self, call: Admission) -> None:
        """A call that waits is no longer wanted."""
        for line in (self._unsent, self._in_flight):
            if call in line:
                line.remove(call)
        super().abandon(call)

    def next_batch(self) -> int:
        """How many calls wait for an answer; they are the ones that it is for."""
        self._in_flight, self._unsent = self._unsent, self._in_flight
        return len(self._in_flight)

    def on_granted(self, granted: int, wait_s: float) -> None:
        """So many of them may go on; for another one there is room after so long. No call's fault is another's."""
        assert self._bucket is not None
        now = self._loop.time()
        while self._in_flight:
            call = self._in_flight.popleft()
            if granted > 0:
                granted -= 1
                self._bucket.take(now)
                self._start(call)
            else:
                self._loop.call_soon(call.on_failed, self._rate_limited(wait_s))

    def decide_locally(self) -> None:
        """Nobody answers: the bucket here does."""
        now = self._loop.time()
        while self._in_flight:
            call = self._in_flight.popleft()
            verdict = super().acquire(call, now)
            if verdict is True:
                call.on_admitted()
            elif verdict is not False:
                self._loop.call_soon(call.on_failed, verdict)

    def _start(self, call: Admission) -> None:
        """Past the count: on, or into the queue, where there is room for all that were let in."""
        if self._max_running is not None:
            if self._running >= self._max_running:
                self._waiting.append(call)
                return
            self._running += 1
            call.limiter = self
        call.on_admitted()
