"""Tokens saved over time: a point every few seconds since the start of the server, thinned out with age.

`suite_cost` measures what a suite saves one host. Here it counts once per host served, since each would have paid for
the flat list. Hosts that came before the suites changed keep what they had saved by then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from switchboard_mcp.gateway.status import tokens_saved_by

if TYPE_CHECKING:
    from switchboard_mcp.gateway.gateway import Gateway

# A chart has no pixels for more.
MAX_POINTS = 600
SAMPLE_S = 5.0


class SavingsPoint(Struct, array_like=True):
    """Time in milliseconds, and tokens saved by then."""

    at: int
    saved: int


class SavingsHistory:
    """The time series, starting at zero."""

    def __init__(self, started_ms: int) -> None:
        self.points: list[SavingsPoint] = [SavingsPoint(started_ms, 0)]
        self.suites: Mapping[str, int] = {}  # tokens each saves one host
        self._settled = 0  # saved by hosts that came before the suites changed
        self._hosts = 0  # number of those hosts

    def add(self, at_ms: int, suites: Mapping[str, int], hosts: int) -> SavingsPoint | None:
        """Add a sample. Return the new point, or None if nothing has changed."""
        if self.suites and suites.keys() != self.suites.keys():
            self._settled += sum(self.suites.values()) * (hosts - self._hosts)
            self._hosts = hosts
        self.suites = suites
        total = self._settled + sum(suites.values()) * (hosts - self._hosts)
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

    def sample(self, gateway: Gateway, hosts: int) -> SavingsPoint | None:
        """Sample all suites."""
        suites = {suite.name: tokens_saved_by(suite) for suite in gateway.all_suites.values()}
        return self.add(int(time.time() * 1000), suites, hosts)

    async def sample_forever(self, gateway: Gateway, hosts: Callable[[], int]) -> None:
        """Sample periodically until cancelled. Before the first host there is nothing to save."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            if hosts():
                for suite in [*gateway.all_suites.values()]:
                    tokens_saved_by(suite)  # measures it on first use
                    await asyncio.sleep(0)  # let calls run in between
                self.sample(gateway, hosts())
