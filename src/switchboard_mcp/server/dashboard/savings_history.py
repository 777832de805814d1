"""Tokens saved over time: a point every few seconds from the start of the server on, thinned out as they grow old.

What a suite saves one host is measured by `suite_cost`. Here it counts once for every host that was served:
each would have paid for the flat list. Hosts that came before the suites changed keep what they had saved by then.
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

# More are more than a chart has pixels for.
MAX_POINTS = 600
SAMPLE_S = 5.0


class SavingsPoint(Struct, array_like=True):
    """When (ms), and how many tokens were saved by then."""

    at: int
    saved: int


class SavingsHistory:
    """The series. It begins with nothing at the start of the server."""

    def __init__(self, started_ms: int) -> None:
        self.points: list[SavingsPoint] = [SavingsPoint(started_ms, 0)]
        self.suites: Mapping[str, int] = {}  # what each saves one host
        self._settled = 0  # by hosts that came before the suites changed
        self._hosts = 0  # how many those were

    def add(self, at_ms: int, suites: Mapping[str, int], hosts: int) -> SavingsPoint | None:
        """Take a look; the new point, where anything has changed."""
        if self.suites and suites.keys() != self.suites.keys():
            self._settled += sum(self.suites.values()) * (hosts - self._hosts)
            self._hosts = hosts
        self.suites = suites
        total = self._settled + sum(suites.values()) * (hosts - self._hosts)
        last = self.points[-1]
        # A level stretch has two ends; the second moves on.
        if len(self.points) > 1 and self.points[-2].saved == last.saved == total:
            last.at = at_ms
            return None
        point = SavingsPoint(at_ms, total)
        self.points.append(point)
        if len(self.points) > MAX_POINTS:
            # The older half loses every second point, so that what is new stays exact.
            half = MAX_POINTS // 2
            self.points = self.points[:half:2] + self.points[half:]
        return point

    def sample(self, gateway: Gateway, hosts: int) -> SavingsPoint | None:
        """Take a look at all suites."""
        suites = {suite.name: tokens_saved_by(suite) for suite in gateway.all_suites.values()}
        return self.add(int(time.time() * 1000), suites, hosts)

    async def sample_forever(self, gateway: Gateway, hosts: Callable[[], int]) -> None:
        """Look now and then, until cancelled. Before the first host there is nothing to save."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            if hosts():
                for suite in [*gateway.all_suites.values()]:
                    tokens_saved_by(suite)  # which measures it where that was not done yet
                    await asyncio.sleep(0)  # so that calls come between
                self.sample(gateway, hosts())
