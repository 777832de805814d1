"""Rules of restarts: when a failed child may be restarted, and the thresholds of its health checks.

A failed child may be restarted at once, after a back-off, or after a quarantine: `decide_restart` returns the event
for the table in `children.lifecycle`, and the delay. `children.health` keeps the
number of failures and applies the decision; `children.child` and `children.startup` perform the restart.
Pure: no clock, no I/O.
"""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.children.lifecycle import LifecycleEvent

# The first restart is immediate, since a single crash may be an accident. Then the delay doubles.
FIRST_BACKOFF_S = 1.0
# A missing binary will still be missing; check again only after the user had time to fix it.
FAULT_RECHECK_S = 2.0


class HealthRules(Struct, frozen=True):
    """Thresholds of the health checks, from the settings (`health.health_rules`).

    A `spawn_fail_s` of 0 leaves only the start timeout.
    """

    spawn_warn_s: float
    spawn_fail_s: float
    failures: int
    quarantine_s: float
    successes: int
    probe_s: float


class RestartDecision(Struct, frozen=True):
    """The event that a failure causes, and the delay before a restart is permitted."""

    event: LifecycleEvent
    wait_s: float


def decide_restart(failures: int, rules: HealthRules) -> RestartDecision:
    """Decide when a child may be restarted after its `failures`-th failure in a row (counting from 1)."""
    if failures >= rules.failures:
        return RestartDecision(LifecycleEvent.CRASH_LIMIT, rules.quarantine_s)
    if failures <= 1:
        return RestartDecision(LifecycleEvent.CRASH, 0.0)
    return RestartDecision(LifecycleEvent.CRASH, FIRST_BACKOFF_S * 2 ** (failures - 2))
