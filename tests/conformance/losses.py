"""What a proxy cannot keep, with the reason: checks that pass directly and need not pass through Switchboard.

Everything else must pass, so a line here is a decision, and one that is no longer needed fails the tests.
"""

from __future__ import annotations

from collections.abc import Mapping

Excused = Mapping[tuple[str, str], str]

# By suite and era of the child (none where the suite is the server): the scenario and check, and why.
LOSSES: Mapping[tuple[str, str | None], Excused] = {}


def allowed(suite: str, era: str | None) -> Excused:
    return LOSSES.get((suite, era), {})
