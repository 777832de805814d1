"""Durations in buckets so coarse that they reveal nothing about the data. Shared by audit and evidence."""

from __future__ import annotations

from bisect import bisect_left

# Upper edges in seconds, each with its name; anything longer is `more`.
EDGES = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0)
NAMES = ("1ms", "10ms", "100ms", "1s", "10s", "60s", "more")


def bucket(seconds: float) -> str:
    """Return the name of the bucket that a duration falls into."""
    return NAMES[bisect_left(EDGES, seconds)]
