"""Rate and concurrency limits of one suite.

Synchronous: a call that may proceed has been counted when `acquire` returns. The arithmetic is in `token_bucket`. A
suite has one limiter for all callers, or one per principal.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from typing import Protocol

from switchboard_mcp.config.sections import LimitSettings
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.gateway.pipeline.token_bucket import TokenBucket

# It is unknown when a slot becomes free; retrying once a second costs little.
BUSY_RETRY_MS = 1_000
# Requests about tasks, such as polls, are not calls; enough for ten tasks that are polled every second.
TASK_REQUESTS_PER_MINUTE = 600


class Admission(Protocol):
    """A call that a limiter admits. `limiter` is set while it holds a slot."""

    limiter: RateLimiter | None

    @property
    def follows_call(self) -> bool:
        """True for a request about the task of an earlier call."""

    def on_admitted(self) -> None:
        """Proceed: a slot is free after all."""

    def on_failed(self, problem: Failure) -> None:
        """Fail after waiting."""


class RateLimiter:
    """Limits the rate of calls and the number in flight, with a bounded queue."""

    def __init__(self, suite: str, limits: LimitSettings, loop: AbstractEventLoop) -> None:
        self._suite = suite
        self._loop = loop
        self._bucket: TokenBucket | None = None
        self._task_bucket: TokenBucket | None = None
        if limits.calls_per_minute is not None:
            self._bucket = TokenBucket(limits.calls_per_minute, limits.burst, loop.time())
            self._task_bucket = TokenBucket(TASK_REQUESTS_PER_MINUTE, None, loop.time())
        self._max_running = limits.concurrent
        self._max_waiting = limits.queue or 0
        self._running = 0
        self._waiting: deque[Admission] = deque()

    def acquire(self, call: Admission, now: float) -> Failure | bool:
        """Return True if the call may proceed, False if it is queued, or the failure that refuses it."""
        # A request about a task must not wait for the slot that the task itself may hold.
        max_running = self._max_running if not call.follows_call else None
        full = max_running is not None and self._running >= max_running
        if full and len(self._waiting) >= self._max_waiting:
            return self._busy()
        bucket = self._task_bucket if call.follows_call else self._bucket
        if bucket is not None:
            wait_s = bucket.take(now)
            if wait_s:
                return self._task_limited(wait_s) if call.follows_call else self._rate_limited(wait_s)
        if max_running is None:
            return True
        if full:
            self._waiting.append(call)
            return False
        self._running += 1
        call.limiter = self
        return True

    def release(self, call: Admission) -> None:
        """Release the slot of a finished call to the one that has waited longest."""
        call.limiter = None
        if not self._waiting:
            self._running -= 1
            return
        next_call = self._waiting.popleft()
        next_call.limiter = self
        # Not called directly: a fault of the next call must not affect the end of this one.
        self._loop.call_soon(next_call.on_admitted)

    def abandon(self, call: Admission) -> None:
        """Remove a cancelled call from the queue."""
        if call in self._waiting:
            self._waiting.remove(call)

    def _busy(self) -> Failure:
        message = (
            f"Suite '{self._suite}' has {self._running} calls in progress, the maximum of limits.concurrent."
        )
        return failure("suite_busy", message, retry_after_ms=BUSY_RETRY_MS)

    def _rate_limited(self, wait_s: float) -> Failure:
        message = f"Suite '{self._suite}' is called more often than limits.callsPerMinute allows."
        return failure("rate_limited", message, retry_after_ms=max(1, round(wait_s * 1000)))

    def _task_limited(self, wait_s: float) -> Failure:
        message = (
            f"Tasks of suite '{self._suite}' are polled more than {TASK_REQUESTS_PER_MINUTE} times a minute."
        )
        return failure("rate_limited", message, retry_after_ms=max(1, round(wait_s * 1000)))


class RateLimiterSet:
    """The limiters of one suite: one for all callers, or one per principal."""

    def __init__(self, suite: str, limits: LimitSettings, loop: AbstractEventLoop) -> None:
        self._suite = suite
        self._limits = limits
        self._loop = loop
        self.shared = None if limits.per == "principal" else self._build()
        self._by_principal: dict[str, RateLimiter] = {}  # bounded: principals are defined in the config

    def for_principal(self, principal: str) -> RateLimiter:
        """Return the limiter that counts the principal's calls."""
        if self.shared is not None:
            return self.shared
        limiter = self._by_principal.get(principal)
        if limiter is None:
            limiter = self._by_principal[principal] = self._build()
        return limiter

    def _build(self) -> RateLimiter:
        return RateLimiter(self._suite, self._limits, self._loop)


def build_limiters(suite: str, limits: LimitSettings, loop: AbstractEventLoop) -> RateLimiterSet | None:
    """Return the limiters of a suite, or None if nothing is limited."""
    if limits.calls_per_minute is None and limits.concurrent is None:
        return None
    return RateLimiterSet(suite, limits, loop)
