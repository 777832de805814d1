"""A token bucket. Pure: the time is passed in."""

from __future__ import annotations

MINUTE_S = 60.0


class TokenBucket:
    """Token bucket: `calls_per_minute` sustained, `burst` at once (defaults to one minute's worth)."""

    __slots__ = ("_at", "_burst", "_per_s", "_tokens")

    def __init__(self, calls_per_minute: int, burst: int | None, now: float) -> None:
        self._per_s = calls_per_minute / MINUTE_S
        self._burst = self._tokens = float(burst or calls_per_minute)
        self._at = now

    def take(self, now: float) -> float:
        """Take a token and return 0, or return the seconds until there will be one."""
        tokens = self._tokens + (now - self._at) * self._per_s
        if tokens > self._burst:  # `min` would cost as much as all of this, and every call comes here
            tokens = self._burst
        self._at = now
        if tokens >= 1.0:
            self._tokens = tokens - 1.0
            return 0.0
        self._tokens = tokens
        return (1.0 - tokens) / self._per_s
