"""Rules of restarts: when a failed child may be restarted, and the thresholds of its health checks.

A failed child may be restarted at once, after a back-off, or after a quarantine: `decide_restart` returns the event
for the table in `children.lifecycle`, and the delay. `children.health` counts the failures and applies the decision;
`children.child` and `children.startup` perform the restart. The module is pure: no clock, no I/O.
"""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.children.lifecycle import LifecycleEvent

# The first restart is immediate, since a single crash may be an accident. Then the delay doubles.
FIRST_BACKOFF_S = 1.0
# Five failures in a row without a recovery are not an accident.
FAILURES_TO_QUARANTINE = 5
QUARANTINE_S = 60.0
# A start slower than this is logged; governed mode fails it after GOVERNED_START_LIMIT_S.
SLOW_START_S = 2.0
GOVERNED_START_LIMIT_S = 5.0
# Answers needed to leave probation: one in open mode; a governed child has to earn trust back.
SUCCESSES, GOVERNED_SUCCESSES = 1, 3
# A live server answers a ping at once, unless the machine is very busy.
PROBE_S = 5.0
# A missing binary will still be missing; check again only after somebody had time to fix it.
FAULT_RECHECK_S = 2.0


class HealthRules(Struct, frozen=True):
    """Thresholds of the health checks. A `spawn_fail_s` of 0 leaves only the start timeout."""

    spawn_warn_s: float = SLOW_START_S
    spawn_fail_s: float = 0.0
    failures: int = FAILURES_TO_QUARANTINE
    quarantine_s: float = QUARANTINE_S
    successes: int = SUCCESSES
    probe_s: float = PROBE_S


OPEN_RULES = HealthRules()
GOVERNED_RULES = HealthRules(spawn_fail_s=GOVERNED_START_LIMIT_S, successes=GOVERNED_SUCCESSES)


class RestartDecision(Struct, frozen=True):
    """The event that a failure causes, and the delay before a restart is permitted."""

    event: LifecycleEvent
    wait_s: float


def decide_restart(failures: int, rules: HealthRules = OPEN_RULES) -> RestartDecision:
    """Decide when a child may be restarted after its `failures`-th failure in a row (counting from 1)."""
    if failures >= rules.failures:
        return RestartDecision(LifecycleEvent.CRASH_LIMIT, rules.quarantine_s)
    if failures <= 1:
        return RestartDecision(LifecycleEvent.CRASH, 0.0)
    return RestartDecision(LifecycleEvent.CRASH, FIRST_BACKOFF_S * 2 ** (failures - 2))
