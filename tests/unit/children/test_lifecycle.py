from __future__ import annotations

import ast
import inspect

from switchboard_mcp.children import child, health
from switchboard_mcp.children.health import OPEN_RULES
from switchboard_mcp.children.lifecycle import (
    HEALTH,
    TRANSITIONS,
    Action,
    Health,
    LifecycleEvent,
    State,
)
from switchboard_mcp.children.restart_rules import decide_restart
from tests.cases import each_case

RECOVERY = (State.PROBATION, State.READY)

# What `children.child` can meet, state by state: the table must hold exactly this, no row missing and none idle.
# A call comes in every state; too early it can only be after a failure, since only failures set a time to retry.
# A start ends while STARTING; a crash is heard of while it runs; the sweep tells READY and IDLE apart. A child is
# doubted when a call to it takes too long, which is no call of an idle one; from then on it is probed.
POSSIBLE: dict[State, set[LifecycleEvent]] = {
    State.CONFIGURED: {LifecycleEvent.CALL},
    State.STARTING: {
        LifecycleEvent.CALL,
        LifecycleEvent.STARTED,
        LifecycleEvent.RESTARTED,
        LifecycleEvent.FAULT,
        LifecycleEvent.CRASH,
        LifecycleEvent.CRASH_LIMIT,
    },
    State.READY: {
        LifecycleEvent.CALL,
        LifecycleEvent.CALL_TIMEOUT,
        LifecycleEvent.PROBE_OK,
        LifecycleEvent.PROBE_FAILED,
        LifecycleEvent.IDLE,
        LifecycleEvent.CRASH,
        LifecycleEvent.CRASH_LIMIT,
    },
    State.PROBATION: {
        LifecycleEvent.CALL,
        LifecycleEvent.TRUSTED,
        LifecycleEvent.CALL_TIMEOUT,
        LifecycleEvent.PROBE_OK,
        LifecycleEvent.PROBE_FAILED,
        LifecycleEvent.IDLE_TIMEOUT,
        LifecycleEvent.CRASH,
        LifecycleEvent.CRASH_LIMIT,
    },
    State.UNHEALTHY: {
        LifecycleEvent.CALL,
        LifecycleEvent.CALL_TIMEOUT,
        LifecycleEvent.PROBE_OK,
        LifecycleEvent.PROBE_FAILED,
        LifecycleEvent.CRASH,
        LifecycleEvent.CRASH_LIMIT,
    },
    State.IDLE: {
        LifecycleEvent.CALL,
        LifecycleEvent.IDLE_TIMEOUT,
        LifecycleEvent.CRASH,
        LifecycleEvent.CRASH_LIMIT,
    },
    State.STOPPING: {LifecycleEvent.CALL, LifecycleEvent.EXITED},
    State.STOPPED: {LifecycleEvent.CALL},
    State.BACKOFF: {LifecycleEvent.CALL, LifecycleEvent.CALL_TOO_EARLY},
    State.FAILED: {LifecycleEvent.CALL, LifecycleEvent.CALL_TOO_EARLY},
    State.QUARANTINED: {LifecycleEvent.CALL, LifecycleEvent.CALL_TOO_EARLY},
}


def reachable(start: State) -> set[State]:
    found = {start}
    while True:
        more = {after for (before, _), (after, _) in TRANSITIONS.items() if before in found}
        if more <= found:
            return found
        found |= more


class TestTable:
    @each_case("state", State)
    def test_a_state_has_a_row_for_all_that_can_happen_in_it_and_no_other(self, state: State) -> None:
        assert {event for before, event in TRANSITIONS if before is state} == POSSIBLE[state]

    def test_every_state_is_reached_from_the_first(self) -> None:
        assert reachable(State.CONFIGURED) == set(State)

    @each_case("state", State)
    def test_from_every_state_a_child_can_become_ready(self, state: State) -> None:
        assert State.READY in reachable(state)

    def test_every_event_and_every_action_is_in_the_table(self) -> None:
        assert {event for _, event in TRANSITIONS} == set(LifecycleEvent)
        assert {action for _, action in TRANSITIONS.values()} == set(Action)

    def test_a_process_is_started_exactly_on_the_way_into_starting(self) -> None:
        for (before, _), (after, action) in TRANSITIONS.items():
            assert (action is Action.START) == (after is State.STARTING and before is not State.STARTING)

    def test_a_call_is_never_lost(self) -> None:
        kept = {Action.START, Action.WAIT, Action.SEND, Action.REJECT}
        assert {TRANSITIONS[state, LifecycleEvent.CALL][1] for state in State} <= kept

    def test_a_call_is_sent_only_to_a_child_that_is_up(self) -> None:
        senders = {before for (before, _), (_, action) in TRANSITIONS.items() if action is Action.SEND}
        assert senders == {State.READY, State.IDLE, State.PROBATION}

    def test_a_call_is_sent_only_to_a_child_that_is_healthy_or_on_probation(self) -> None:
        """The health gate."""
        senders = {before for (before, _), (_, action) in TRANSITIONS.items() if action is Action.SEND}
        assert {HEALTH[state] for state in senders} == {Health.HEALTHY, Health.PROBATION}

    def test_an_unhealthy_child_becomes_healthy_only_by_way_of_probation(self) -> None:
        ways = {after for (before, _), (after, _) in TRANSITIONS.items() if before is State.UNHEALTHY}
        assert ways == {State.UNHEALTHY, State.PROBATION, State.BACKOFF, State.QUARANTINED}
        assert {
            event for (before, event), (after, _) in TRANSITIONS.items() if (before, after) == RECOVERY
        } == {LifecycleEvent.TRUSTED}

    def test_every_state_has_a_health_and_every_health_a_state(self) -> None:
        assert set(HEALTH) == set(State)
        assert set(HEALTH.values()) == set(Health)

    def test_only_a_child_without_work_is_stopped(self) -> None:
        stopped = [
            key for key, (after, _) in TRANSITIONS.items() if after is State.STOPPING and key[0] is not after
        ]
        assert stopped == [
            (State.IDLE, LifecycleEvent.IDLE_TIMEOUT),
            (State.PROBATION, LifecycleEvent.IDLE_TIMEOUT),
        ]

    def test_the_owner_of_a_child_applies_every_event(self) -> None:
        """The possibilities above are those of the code: each event is named there, or comes from `decide_restart`."""
        named = {
            node.attr
            for module in (health, child)
            for node in ast.walk(ast.parse(inspect.getsource(module)))
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "LifecycleEvent"
        }
        judged = {decide_restart(failures, OPEN_RULES).event.name for failures in range(1, 10)}
        assert named | judged == set(LifecycleEvent.__members__)
