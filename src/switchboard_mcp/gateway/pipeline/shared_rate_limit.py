"""A limiter whose rate is shared by all replicas: a call waits for their joint decision.

The number of concurrent calls is limited per replica, since it protects this process. While Redis is unreachable, the
local bucket decides alone; it is kept in step with the shared one meanwhile.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque

from switchboard_mcp.children.replica_types import Replicas
from switchboard_mcp.config.sections import LimitSettings
from switchboard_mcp.errors import Failure
from switchboard_mcp.gateway.pipeline.rate_limit import Admission, RateLimiter


class SharedRateLimiter(RateLimiter):
    """Limits the rate of calls across replicas. Implements `children.replica_types.CallMeter`."""

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
        # Different limits have different buckets, for example while a new config is rolled out.
        self.key = f"{suite}:{self.calls_per_minute}/{self.burst}"
        if principal is not None:
            self.key += f":{principal}"
        self._replicas = replicas
        self._unsent: deque[Admission] = deque()  # not in a request to Redis yet
        self._in_flight: deque[Admission] = deque()

    def acquire(self, call: Admission, now: float) -> Failure | bool:
        """Return False if the call waits for the replicas or a slot; otherwise as the base class."""
        if call.follows_call or not self._replicas.reachable:
            return super().acquire(call, now)
        if self._max_running is not None:
            places = self._max_running + self._max_waiting
            if self._running + len(self._waiting) + len(self._in_flight) + len(self._unsent) >= places:
                return self._busy()
        self._unsent.append(call)
        self._replicas.count(self)
        return False

    def abandon(self, call: Admission) -> None:
        """Remove a cancelled call from all queues."""
        for line in (self._unsent, self._in_flight):
            if call in line:
                line.remove(call)
        super().abandon(call)

    def next_batch(self) -> int:
        """Start a request for all waiting calls and return their number."""
        self._in_flight, self._unsent = self._unsent, self._in_flight
        return len(self._in_flight)

    def on_granted(self, granted: int, wait_s: float) -> None:
        """Admit `granted` calls of the batch and refuse the others: the next token is `wait_s` away."""
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
        """Decide the batch with the local bucket: the replicas cannot be reached."""
        now = self._loop.time()
        while self._in_flight:
            call = self._in_flight.popleft()
            verdict = super().acquire(call, now)
            if verdict is True:
                call.on_admitted()
            elif verdict is not False:
                self._loop.call_soon(call.on_failed, verdict)

    def _start(self, call: Admission) -> None:
        """Start a call that has its token, or queue it: `acquire` made sure that the queue has room."""
        if self._max_running is not None:
            if self._running >= self._max_running:
                self._waiting.append(call)
                return
            self._running += 1
            call.limiter = self
        call.on_admitted()
