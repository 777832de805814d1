"""How long something took, in buckets so coarse that they tell nothing of anybody's data.

Owns the edges, which audit and evidence share.
"""

from __future__ import annotations

from bisect import bisect_left

# Upper edges in seconds, each with its name; what is beyond the last is `more`.
EDGES = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0)
NAMES = ("1ms", "10ms", "100ms", "1s", "10s", "60s", "more")


def bucket(seconds: float) -> str:
    """The name of the bucket: at most so long."""
    return NAMES[bisect_left(EDGES, seconds)]
