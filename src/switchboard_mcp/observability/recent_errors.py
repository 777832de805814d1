"""The most recent failures, kept in memory for `switchboard status` and the dashboard.

Failures are redacted. A principal sees those of its own calls and those of the children.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from switchboard_mcp.errors import Failure

MAX_ERRORS = 50


class RecentError(Struct):
    """A failure, counted if it repeats. `principal` is None for a failure that was not caused by a call."""

    at: float
    problem: Failure
    principal: str | None
    times: int = 1


class RecentErrors:
    """A bounded list of failures, oldest first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._errors: deque[RecentError] = deque(maxlen=MAX_ERRORS)

    def note(self, problem: Failure, principal: str | None = None) -> None:
        """Add a redacted failure, or count it if it is the same as the last."""
        last = self._errors[-1] if self._errors else None
        if last is not None and (last.problem, last.principal) == (problem, principal):
            last.at, last.times = self.now(), last.times + 1
        else:
            self._errors.append(RecentError(self.now(), problem, principal))

    def newest(self, code: str, child: str) -> Failure | None:
        """Return the newest failure of a child with this code."""
        found = (error.problem for error in reversed(self._errors))
        return next((each for each in found if each.code == code and each.child == child), None)

    def seen_by(self, principal: str) -> list[RecentError]:
        """Return the failures of a principal's calls and of the children, latest first."""
        return [error for error in reversed(self._errors) if error.principal in (None, principal)]
