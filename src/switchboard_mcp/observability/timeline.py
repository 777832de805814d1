"""How calls went, for one child and over time: fine for the last minutes, coarser before, in memory that does not grow.

Whoever sees calls end adds them; a span of time is closed when the first call after it comes, so that no timer is
needed and quiet times take no room. Knows no clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from msgspec import Struct

# Width in seconds, and how many that had calls are kept: 24 minutes, four hours, three days.
TIERS = ((5, 288), (60, 240), (900, 288))
# In milliseconds, each a fifth above the one before, up to a quarter of an hour.
BOUNDS = tuple(0.05 * 2 ** (step / 4) for step in range(97))
# The last calls of a child, of which it is told how long they took.
MAX_TIMES = 256


class ChildTimeline:
    """What was seen of one child."""

    __slots__ = ("calls", "errors", "times")

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.times: deque[float] = deque(maxlen=MAX_TIMES)

    def percentile_ms(self, part: float) -> float:
        """Milliseconds within which that part of the last calls ended."""
        ordered = sorted(self.times)
        return round(ordered[round((len(ordered) - 1) * part)], 2)


class TimelinePoint(Struct, array_like=True, frozen=True):
    """One span: its begin (ms) and width (s), its calls and how many failed, and how long they took (ms)."""

    at: int
    seconds: int
    calls: int
    errors: int
    p50: float
    p95: float


class Span:
    """What is counted now."""

    __slots__ = ("at", "bins", "calls", "errors", "until")

    def __init__(self, at: int, until: int) -> None:
        self.at = at
        self.until = until
        self.calls = 0
        self.errors = 0
        self.bins = [0] * (len(BOUNDS) + 1)

    def merge(self, finer: Span) -> None:
        """Take in a part of it."""
        self.calls += finer.calls
        self.errors += finer.errors
        self.bins = [mine + its for mine, its in zip(self.bins, finer.bins, strict=True)]

    def to_point(self) -> TimelinePoint:
        """As it is told."""
        p50, p95 = percentile(self.bins, 0.5), percentile(self.bins, 0.95)
        return TimelinePoint(self.at * 1000, self.until - self.at, self.calls, self.errors, p50, p95)


class Timeline:
    """See the module."""

    def __init__(self) -> None:
        self._spans = [Span(0, 0) for _ in TIERS]
        self._closed: list[deque[TimelinePoint]] = [deque(maxlen=most) for _, most in TIERS]

    def add(self, at_s: float, ms: float, failed: bool) -> None:
        """One call has ended."""
        span = self._spans[0]
        if not span.at <= at_s < span.until:  # before it, where somebody has set the clock back
            span = self._rotate(0, at_s)
        span.calls += 1
        span.errors += failed
        span.bins[bisect_left(BOUNDS, ms)] += 1

    def current(self) -> TimelinePoint | None:
        """The newest span, which may still grow; None before the first call."""
        span = self._spans[0]
        return span.to_point() if span.calls else None

    def points(self) -> list[TimelinePoint]:
        """All that is known, oldest first, each time once and as fine as it is kept."""
        points: list[TimelinePoint] = []
        begin_ms = None
        for tier, closed in enumerate(self._closed):
            span = self._spans[tier]
            tier_points = [*closed, span.to_point()] if span.calls else [*closed]
            # Where calls are rare, fine spans may reach back further than coarser ones, which then add nothing.
            points = [*(point for point in tier_points if begin_ms is None or point.at < begin_ms), *points]
            if len(closed) < TIERS[tier][1] or tier + 1 == len(TIERS) or not points:
                break  # nothing was ever dropped here
            # What coarser spans tell begins and ends where theirs do.
            coarse_ms = TIERS[tier + 1][0] * 1000
            begin_ms = -(-points[0].at // coarse_ms) * coarse_ms
            points = [point for point in points if point.at >= begin_ms]
        return points

    def _rotate(self, tier: int, at_s: float) -> Span:
        """Close a span, hand it on to the coarser ones, and begin the next."""
        span, width = self._spans[tier], TIERS[tier][0]
        if span.calls:
            self._closed[tier].append(span.to_point())
            if tier + 1 < len(TIERS):
                upper = self._spans[tier + 1]
                if not upper.at <= span.at < upper.until:
                    upper = self._rotate(tier + 1, span.at)
                upper.merge(span)
        begin = int(at_s // width) * width
        self._spans[tier] = fresh = Span(begin, begin + width)
        return fresh


def percentile(bins: Sequence[int], part: float) -> float:
    """Milliseconds within which that part of all calls ended, told within a tenth or so."""
    target, seen = part * sum(bins), 0
    for index, count in enumerate(bins):
        seen += count
        if count and seen >= target:
            return round(BOUNDS[min(index, len(BOUNDS) - 1)] / 2**0.125, 2)
    return 0.0
