"""What went wrong lately: a short memory, for those who ask what happened.

Holds failures as they were shown, without secrets. Whose call it was decides who may read of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from switchboard_mcp.errors import Failure

MOST = 50


class RecentError(Struct):
    """One failure, or the same several times in a row. `principal` is None where it was no call of anybody."""

    at: float
    problem: Failure
    principal: str | None
    times: int = 1


class RecentErrors:
    """The last failures, oldest first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._kept: deque[RecentError] = deque(maxlen=MOST)

    def note(self, problem: Failure, principal: str | None = None) -> None:
        """One more, as it may be shown."""
        last = self._kept[-1] if self._kept else None
        if last is not None and (last.problem, last.principal) == (problem, principal):
            last.at, last.times = self.now(), last.times + 1
        else:
            self._kept.append(RecentError(self.now(), problem, principal))

    def seen_by(self, principal: str) -> list[RecentError]:
        """Those of its own calls, and those of children; the latest first."""
        return [mishap for mishap in reversed(self._kept) if mishap.principal in (None, principal)]
