"""The most recent failures, kept in memory for `switchboard status` and the dashboard.

Failures are redacted. A client sees those of its own calls and processes, and those of shared processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from switchboard_mcp.errors import Failure

MAX_ERRORS = 50


class RecentError(Struct):
    """A failure, counted if it repeats. `owner` is the client whose call or process failed; None if it is shared."""

    at: float
    problem: Failure
    owner: object
    times: int = 1


class RecentErrors:
    """A bounded list of failures, oldest first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._errors: deque[RecentError] = deque(maxlen=MAX_ERRORS)

    def note(self, problem: Failure, owner: object = None) -> None:
        """Add a redacted failure, or count it if it is the same as the last."""
        last = self._errors[-1] if self._errors else None
        if last is not None and (last.problem, last.owner) == (problem, owner):
            last.at, last.times = self.now(), last.times + 1
        else:
            self._errors.append(RecentError(self.now(), problem, owner))

    def newest(self, code: str, child: str) -> Failure | None:
        """Return the newest failure of a child with this code."""
        problems = (error.problem for error in reversed(self._errors))
        return next(
            (problem for problem in problems if problem.code == code and problem.child == child), None
        )

    def seen_by(self, is_own: Callable[[object], bool]) -> list[RecentError]:
        """Return the failures of shared processes, and those of owners for which `is_own` is True, latest first."""
        return [error for error in reversed(self._errors) if error.owner is None or is_own(error.owner)]
