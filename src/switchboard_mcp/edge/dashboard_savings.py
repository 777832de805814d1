"""Tokens saved over time: a point now and then while somebody looks, thinned out as they grow old.

What a suite saves one host is measured by `gateway.weighing`. Here it counts once for every host that was served:
each would have paid for the flat list.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

# More are more than a chart has pixels for.
MOST_POINTS = 600


class Point(Struct, array_like=True):
    """When (ms), and how many tokens were saved by then."""

    at: int
    saved: int


class Savings:
    """The series. It begins with nothing at the start of the server."""

    def __init__(self, began_ms: int) -> None:
        self.points: list[Point] = [Point(began_ms, 0)]
        self.suites: dict[str, int] = {}  # what each saves one host

    def note(self, at_ms: int, suites: Mapping[str, int], hosts: int) -> Point | None:
        """Take a look; the new point, where anything has changed."""
        self.suites = {name: saved for name, saved in suites.items() if saved}
        total = sum(self.suites.values()) * hosts
        last = self.points[-1]
        # A level stretch has two ends; the second moves on.
        if len(self.points) > 1 and self.points[-2].saved == last.saved == total:
            last.at = at_ms
            return None
        point = Point(at_ms, total)
        self.points.append(point)
        if len(self.points) > MOST_POINTS:
            # The older half loses every second point, so that what is new stays exact.
            half = MOST_POINTS // 2
            self.points = self.points[:half:2] + self.points[half:]
        return point
