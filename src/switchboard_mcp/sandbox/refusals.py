"""Counts what the sandboxes of a child have refused, over all of its processes."""

from __future__ import annotations

from collections.abc import Iterator

from switchboard_mcp.sandbox.denials import Denial

# A child may try in a loop, each time with another name; the last ones are kept by name.
KEPT = 100


class Refusals:
    """The number of refusals, and the last different ones with how often each has occurred."""

    def __init__(self) -> None:
        self.total = 0
        self._counts: dict[Denial, int] = {}

    def count(self, denial: Denial, times: int = 1) -> None:
        """Count a refusal."""
        self.total += times
        self._counts[denial] = self._counts.pop(denial, 0) + times  # last, as the newest
        while len(self._counts) > KEPT:
            del self._counts[next(iter(self._counts))]

    def newest(self) -> Iterator[tuple[Denial, int]]:
        """Yield the refusals with their counts, the newest first."""
        return ((denial, self._counts[denial]) for denial in reversed(self._counts))
