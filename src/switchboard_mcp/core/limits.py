"""How many calls are too many: a bucket of tokens that fills with time. Pure: the time is passed in."""

from __future__ import annotations

from msgspec import Struct

MINUTE_S = 60.0


class Rate(Struct, frozen=True):
    """So many calls a second on average, and so many at once."""

    per_s: float
    burst: float


class Bucket(Struct):
    """What is left of a rate, and when that was counted."""

    tokens: float
    at: float


def rate(calls_per_minute: int, burst: int | None) -> Rate:
    """The rate that a configuration states; without a burst, a whole minute's calls may come at once."""
    return Rate(calls_per_minute / MINUTE_S, float(burst or calls_per_minute))


def take(bucket: Bucket, rate: Rate, now: float) -> float:
    """Take a token where there is one; otherwise say after how many seconds there will be."""
    tokens = min(rate.burst, bucket.tokens + (now - bucket.at) * rate.per_s)
    bucket.at = now
    if tokens >= 1.0:
        bucket.tokens = tokens - 1.0
        return 0.0
    bucket.tokens = tokens
    return (1.0 - tokens) / rate.per_s
