"""Values in Redis that cannot be used: each is skipped, counted and logged once, and everything else goes on.

Any program with access to Redis may write any value under any key. Not aware of the client library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")
# Places that are remembered, so that each is counted and logged once.
MAX_PLACES = 1_000
MAX_SHOWN = 100
# Our own values are far shorter: an agent's entry, a team, a workflow with its steps.
MAX_VALUE_BYTES = 1_048_576


class MalformedValues:
    """Counts the places in Redis whose values cannot be used. `log` is called with each place and the reason."""

    def __init__(self) -> None:
        self._places: set[str] = set()
        self.log: Callable[[str, str], None] | None = None

    @property
    def count(self) -> int:
        """The number of places, at most `MAX_PLACES`."""
        return len(self._places)

    @property
    def places(self) -> list[str]:
        """The places, sorted."""
        return sorted(self._places)

    def report(self, place: str, reason: str) -> None:
        """Count and log a value, unless it is known."""
        place = place if len(place) <= MAX_SHOWN else place[: MAX_SHOWN - 1] + "…"
        if place in self._places or len(self._places) >= MAX_PLACES:
            return
        self._places.add(place)
        if self.log is not None:
            self.log(place, reason)


def decode(data: bytes | None, kind: type[T]) -> T | None:
    """Decode JSON of any origin; return None if it is not of this type."""
    if data is None or len(data) > MAX_VALUE_BYTES:
        return None
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # a UnicodeDecodeError is a ValueError
        return None


def text(data: bytes) -> str:
    """Return text of any origin; bytes that are not UTF-8 are replaced."""
    return data.decode("utf-8", "replace")
