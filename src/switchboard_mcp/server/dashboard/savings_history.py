"""Tokens saved over time: a point every few seconds since the start of the server, thinned out with age.

The base line is a session that lists every tool of the suites it sees. It counts once for each session that called
something, less the suite tools listed in their place, and less the cost of every introspection. A session counts by
the suites as they were known when it first called.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from switchboard_mcp.gateway.gateway import Gateway
    from switchboard_mcp.gateway.suites.child_suite import ChildSuite

# A chart has no pixels for more.
MAX_POINTS = 600
SAMPLE_S = 5.0


class SavingsPoint(Struct, array_like=True):
    """Time in milliseconds, and tokens saved by then."""

    at: int
    saved: int


class Usage(Protocol):
    """Counts of the server since its start: see `CallLog`."""

    callers: dict[str, int]
    introspections: dict[str, int]


class SavingsHistory:
    """The time series, starting at zero."""

    def __init__(self, started_ms: int) -> None:
        self.points: list[SavingsPoint] = [SavingsPoint(started_ms, 0)]
        self.suites: Mapping[str, int] = {}  # tokens that listing each saves one session
        self._total = 0.0
        self._callers: dict[str, int] = {}  # those in the total
        self._introspections: dict[str, int] = {}

    def count(self, usage: Usage, saved: Callable[[str], int], opening: Callable[[str], float]) -> None:
        """Add sessions and introspections since the last time to the total.

        `saved` returns the tokens that a session of a principal saves, `opening` those of introspecting a child.
        """
        for principal, sessions in usage.callers.items():
            fresh = sessions - self._callers.get(principal, 0)
            if fresh:
                self._total += fresh * saved(principal)
                self._callers[principal] = sessions
        for child, introspections in usage.introspections.items():
            fresh = introspections - self._introspections.get(child, 0)
            if fresh:
                self._total -= fresh * opening(child)
                self._introspections[child] = introspections

    def add(self, at_ms: int) -> SavingsPoint | None:
        """Add the total as a sample. Return the new point, or None if nothing has changed."""
        total = round(self._total)
        last = self.points[-1]
        # A constant stretch has two points; the second moves on.
        if len(self.points) > 1 and self.points[-2].saved == last.saved == total:
            last.at = at_ms
            return None
        point = SavingsPoint(at_ms, total)
        self.points.append(point)
        if len(self.points) > MAX_POINTS:
            # The older half loses every second point; recent ones stay exact.
            half = MAX_POINTS // 2
            self.points = self.points[:half:2] + self.points[half:]
        return point

    def sample(self, gateway: Gateway, usage: Usage) -> SavingsPoint | None:
        """Sample all suites."""
        self.suites = {suite.name: saved_by_listing(suite) for suite in gateway.all_suites.values()}

        def saved(principal: str) -> int:
            return sum(map(saved_by_listing, gateway.view_of(principal).suites.values()))

        def opening(child: str) -> float:
            suites = (suite for suite in gateway.all_suites.values() if suite.source == child)
            return max((suite.cost().weight.opening for suite in suites if not suite.direct), default=0.0)

        self.count(usage, saved, opening)
        return self.add(int(time.time() * 1000))

    async def sample_forever(self, gateway: Gateway, usage: Usage) -> None:
        """Sample periodically until cancelled. Before the first call there is nothing to save."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            if usage.callers or usage.introspections:
                for suite in [*gateway.all_suites.values()]:
                    saved_by_listing(suite)  # measures it on first use
                    await asyncio.sleep(0)  # let calls run in between
                self.sample(gateway, usage)


def saved_by_listing(suite: ChildSuite) -> int:
    """Return the tokens that listing a suite saves one session, as far as its child is known."""
    return suite.cost().tokens_saved(suite, opened=False) if suite.child.snapshot is not None else 0
