from __future__ import annotations

from msgspec.structs import replace

from switchboard_mcp.children.health import OPEN_RULES
from switchboard_mcp.children.lifecycle import LifecycleEvent
from switchboard_mcp.children.restart_rules import decide_restart


def test_the_first_restart_is_free_then_the_wait_doubles_until_quarantine() -> None:
    judged = [decide_restart(failures, OPEN_RULES) for failures in range(1, 8)]
    assert [verdict.wait_s for verdict in judged] == [0, 1, 2, 4, 60, 60, 60]
    assert [verdict.event for verdict in judged] == [LifecycleEvent.CRASH] * 4 + [
        LifecycleEvent.CRASH_LIMIT
    ] * 3


def test_quarantine_comes_with_the_fifth_failure() -> None:
    assert decide_restart(OPEN_RULES.failures - 1, OPEN_RULES).event is LifecycleEvent.CRASH
    assert decide_restart(OPEN_RULES.failures, OPEN_RULES).event is LifecycleEvent.CRASH_LIMIT


def test_the_rules_set_the_number_of_failures_and_the_time() -> None:
    rules = replace(OPEN_RULES, failures=2, quarantine_s=7)
    assert decide_restart(1, rules).event is LifecycleEvent.CRASH
    assert decide_restart(2, rules).event is LifecycleEvent.CRASH_LIMIT
    assert decide_restart(2, rules).wait_s == 7


def test_a_count_that_makes_no_sense_costs_no_wait() -> None:
    assert decide_restart(0, OPEN_RULES).wait_s == 0
