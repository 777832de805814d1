"""Statistics of calls per child and over time, in bounded memory: fine for the last minutes, coarser before.

Observers add finished calls. A span is closed by the first call after it, so no timer is needed and idle times take no
memory. The time is passed in.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Sequence

from msgspec import Struct

# Width in seconds and number of spans with calls that are kept: 24 minutes, four hours, three days.
TIERS = ((5, 288), (60, 240), (900, 288))
MINUTES = 1
# In milliseconds, each a fifth above the one before, up to a quarter of an hour.
BOUNDS = tuple(0.05 * 2 ** (step / 4) for step in range(97))
# Number of calls of a child that its percentiles are computed from.
MAX_TIMES = 256


class ChildTimeline:
    """Counts and recent durations of one child."""

    __slots__ = ("calls", "errors", "times")

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.times: deque[float] = deque(maxlen=MAX_TIMES)

    def bins(self) -> dict[int, int]:
        """Return the recent durations as counts by the place of their bound."""
        return dict(Counter(bisect_left(BOUNDS, ms) for ms in self.times))

    def percentile_ms(self, part: float) -> float:
        """Return the duration in milliseconds that this part of the last calls did not exceed."""
        ordered = sorted(self.times)
        return round(ordered[round((len(ordered) - 1) * part)], 2)


class TimelinePoint(Struct, array_like=True, frozen=True):
    """One span: start (ms), width (s), calls, errors, and percentiles of the duration (ms)."""

    at: int
    seconds: int
    calls: int
    errors: int
    p50: float
    p95: float


class Span:
    """The counters of a span that is still open."""

    __slots__ = ("at", "bins", "calls", "errors", "until")

    def __init__(self, at: int, until: int) -> None:
        self.at = at
        self.until = until
        self.calls = 0
        self.errors = 0
        self.bins = [0] * (len(BOUNDS) + 1)

    def merge(self, finer: Span) -> None:
        """Add the counts of a finer span."""
        self.calls += finer.calls
        self.errors += finer.errors
        self.bins = [mine + its for mine, its in zip(self.bins, finer.bins, strict=True)]

    def to_point(self) -> TimelinePoint:
        """Return the span as a point."""
        p50, p95 = percentile(self.bins, 0.5), percentile(self.bins, 0.95)
        return TimelinePoint(self.at * 1000, self.until - self.at, self.calls, self.errors, p50, p95)


class Timeline:
    """Collects finished calls in spans of several widths."""

    def __init__(self) -> None:
        self._spans = [Span(0, 0) for _ in TIERS]
        self._closed: list[deque[TimelinePoint]] = [deque(maxlen=most) for _, most in TIERS]
        self.on_minute: Callable[[Span], None] | None = None
        """Receives each minute that is over, with its counters."""

    def add(self, at_s: float, ms: float, failed: bool) -> None:
        """Count a finished call."""
        span = self._spans[0]
        if not span.at <= at_s < span.until:  # earlier than the span if the clock was set back
            span = self._rotate(0, at_s)
        span.calls += 1
        span.errors += failed
        span.bins[bisect_left(BOUNDS, ms)] += 1

    def open_minutes(self) -> list[Span]:
        """Return the counters of the minutes that are not over, with all calls so far."""
        fine, minute = self._spans[0], self._spans[MINUTES]
        minutes: dict[int, Span] = {}
        for span in (minute, fine):
            if span.calls:
                width = TIERS[MINUTES][0]
                begin = span.at // width * width
                minutes.setdefault(begin, Span(begin, begin + width)).merge(span)
        return list(minutes.values())

    def current(self) -> TimelinePoint | None:
        """Return the newest span, which may still grow; None before the first call."""
        span = self._spans[0]
        return span.to_point() if span.calls else None

    def points(self) -> list[TimelinePoint]:
        """Return all points, oldest first, without overlaps and as fine as they are kept."""
        points: list[TimelinePoint] = []
        begin_ms = None
        for tier, closed in enumerate(self._closed):
            span = self._spans[tier]
            tier_points = [*closed, span.to_point()] if span.calls else [*closed]
            # If calls are rare, fine spans may reach back further than coarser ones, which then add nothing.
            points = [*(point for point in tier_points if begin_ms is None or point.at < begin_ms), *points]
            if len(closed) < TIERS[tier][1] or tier + 1 == len(TIERS) or not points:
                break  # nothing was dropped from this tier yet
            # Switch to the coarser tier at one of its boundaries.
            coarse_ms = TIERS[tier + 1][0] * 1000
            begin_ms = -(-points[0].at // coarse_ms) * coarse_ms
            points = [point for point in points if point.at >= begin_ms]
        return points

    def _rotate(self, tier: int, at_s: float) -> Span:
        """Close a span, merge it into the coarser tier, and open the next."""
        span, width = self._spans[tier], TIERS[tier][0]
        if span.calls:
            if tier == MINUTES and self.on_minute is not None:
                self.on_minute(span)
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
    """Return the duration in milliseconds that this part of all calls did not exceed, to within about 10 %."""
    target, seen = part * sum(bins), 0
    for index, count in enumerate(bins):
        seen += count
        if count and seen >= target:
            return round(BOUNDS[min(index, len(BOUNDS) - 1)] / 2**0.125, 2)
    return 0.0
