"""Health of one child: its lifecycle state, its failures in a row, and its recovery.

Applies the rows of `children.lifecycle` and the decisions of `children.restart_rules`, and keeps what they need: the
last failure, the time of the next permitted restart, and the answers that count on probation. It starts and stops
nothing: `child.Child` does, by what is returned here.
"""

from __future__ import annotations

import time
from collections import deque

from msgspec import Struct
from msgspec.structs import replace

from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.lifecycle import HEALTH, TRANSITIONS, Action, Health, LifecycleEvent, State
from switchboard_mcp.children.restart_rules import (
    FAULT_RECHECK_S,
    HealthRules,
    RestartDecision,
    decide_restart,
)
from switchboard_mcp.config.models import ChildSpec, Config
from switchboard_mcp.config.sections import HealthSettings
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.observability.log import Log
from switchboard_mcp.transport.rpc import Peer

# Defaults of governed mode if `health.spawnFailMs` and `health.successes` are not set: a governed child has to start
# quickly, and to earn trust back.
GOVERNED_START_LIMIT_MS = 5_000
GOVERNED_SUCCESSES = 3
RUNNING = frozenset({State.READY, State.IDLE, State.PROBATION, State.UNHEALTHY})
# Failures of a start that will repeat until the user fixes the cause.
LASTING_FAULTS = frozenset(
    {
        "config_invalid",
        "variable_missing",
        "child_incomplete",
        "command_not_found",
        "command_not_executable",
        "folder_not_found",
        "child_protocol",
        "transport_unsupported",
        "child_unauthorized",
        "child_not_allowed",
        "launch_refused",
    }
)
# Changes of state that are kept for people.
MAX_EVENTS = 64
# Every call may lead from one to the other.
QUIET = frozenset({State.READY, State.IDLE})
STARTS = frozenset({LifecycleEvent.STARTED, LifecycleEvent.RESTARTED})
FAILURES = frozenset(
    {
        LifecycleEvent.FAULT,
        LifecycleEvent.CRASH,
        LifecycleEvent.CRASH_LIMIT,
        LifecycleEvent.PROBE_FAILED,
    }
)


class ChildEvent(Struct, frozen=True):
    """A change of a child's state. `text` is the failure that led to it, not redacted; `seconds` those of a start."""

    at: float
    event: str
    state: str
    text: str = ""
    seconds: float = -1.0


class HealthTracker:
    """Tracks the state, the failures in a row and the recovery of one child.

    `last_failure` is the reason given when a call is rejected.
    """

    def __init__(self, spec: ChildSpec, config: Config, context: ChildContext, log: Log) -> None:
        self.state = State.CONFIGURED
        self.failures = 0
        self.last_failure: Failure | None = None
        self.retry_at = 0.0
        self.rules = health_rules(config.health, governed=config.governance.mode != "open")
        self.history: deque[ChildEvent] = deque(maxlen=MAX_EVENTS)
        self._start_s = -1.0
        self._spec = spec
        self._context = context
        self._log = log
        self._peer: Peer | None = None
        self._answers_at_start = 0  # only answers beyond these count towards trust

    def apply(self, event: LifecycleEvent) -> Action:
        """Apply the transition for an event and return its action."""
        before = self.state
        self.state, action = TRANSITIONS[before, event]
        if self.state is not before:
            if not (before in QUIET and self.state in QUIET):
                self._note(event)
            self._context.log.debug(
                "child.state", child=self._spec.name, was=before.value, now=self.state.value
            )
        return action

    def _note(self, event: LifecycleEvent) -> None:
        """Add a change to the history."""
        problem = self.last_failure if event in FAILURES else None
        seconds = self._start_s if event in STARTS else -1.0
        text = problem.message if problem is not None else ""
        self.history.append(ChildEvent(time.time(), event.value, self.state.value, text, seconds))

    @property
    def health(self) -> Health:
        """The current health, after counting the latest answers."""
        self.review()
        return HEALTH[self.state]

    @property
    def retry_after_ms(self) -> int:
        """Milliseconds until a call that would be rejected now may be retried; 0 if none would be."""
        left_s = self.retry_at - self._context.loop.time()
        return max(0, round(left_s * 1000)) if self.state not in (State.READY, State.IDLE) else 0

    def on_call(self) -> Action:
        """Apply the arrival of a call and return what to do with it."""
        self.review()
        too_early = self.state not in RUNNING and self.retry_at > self._context.loop.time()
        return self.apply(LifecycleEvent.CALL_TOO_EARLY if too_early else LifecycleEvent.CALL)

    def begin_run(self, peer: Peer) -> None:
        """Count answers from here on; the handshake is done."""
        self._peer = peer
        self._answers_at_start = peer.response_count

    def mark_started(self, seconds: float = -1.0) -> None:
        """Apply a completed start; after failures this is a restart, which begins on probation."""
        self._start_s = seconds
        self.apply(LifecycleEvent.RESTARTED if self.failures else LifecycleEvent.STARTED)

    def end_run(self) -> None:
        """Forget the connection of the run that is over."""
        self._peer = None

    def discount_answer(self) -> None:
        """Do not count the next answer towards trust: it belongs to a request of our own, not to a call."""
        self._answers_at_start += 1

    def fail(self, problem: Failure) -> None:
        """Apply a failed start or a crash: set the time of the next permitted restart, or quarantine the child."""
        self.last_failure = problem
        if problem.code in LASTING_FAULTS and self.state is State.STARTING:
            decision = RestartDecision(LifecycleEvent.FAULT, FAULT_RECHECK_S)
        else:
            decision = decide_restart(self.failures, self.rules)
        self.retry_at = self._context.loop.time() + decision.wait_s
        self.apply(decision.event)
        quarantined = self.state is State.QUARANTINED
        self._context.audit_child(self._spec.name, "quarantined" if quarantined else problem.code)

    def on_call_timeout(self) -> Action:
        """Apply the timeout of a call: slow work, or a child that no longer answers. Return PROBE to find out."""
        action = self.apply(LifecycleEvent.CALL_TIMEOUT)
        if action is Action.PROBE and self.state is State.UNHEALTHY:
            self.retry_at = self._context.loop.time() + self.rules.probe_s
            self.last_failure = self._probe_failure()
        return action

    def on_probe_ok(self) -> bool:
        """Apply an answered probe. Return True to probe again."""
        if self.state is State.UNHEALTHY and self._peer is not None:
            self._answers_at_start = (
                self._peer.response_count
            )  # a first sign of life; trust is counted from here
        again = self.apply(LifecycleEvent.PROBE_OK) is Action.PROBE
        self.review()
        return again and self.state is State.PROBATION

    def on_probe_failed(self) -> Failure | None:
        """Count an unanswered probe. Return the failure if the child has reached its limit and must be stopped."""
        self.failures += 1
        problem = self._probe_failure()
        log, name = self._log, self._spec.name
        if decide_restart(self.failures, self.rules).event is LifecycleEvent.CRASH_LIMIT:
            log.warning("child.quarantined", child=name, problem=problem.message)
            return problem
        log.warning("child.unhealthy", child=name, problem=problem.message)
        self._context.audit_child(name, "unhealthy")
        self.last_failure = problem
        self.retry_at = self._context.loop.time() + self.rules.probe_s
        self.apply(LifecycleEvent.PROBE_FAILED)
        return None

    def review(self) -> None:
        """End the probation of a child that has answered often enough since its restart."""
        if self.state is not State.PROBATION or self._peer is None:
            return
        if self._peer.response_count - self._answers_at_start >= self.rules.successes:
            self.failures = 0
            self.apply(LifecycleEvent.TRUSTED)
            self._context.audit_child(self._spec.name, "healthy")

    def rejection(self) -> Failure:
        """Return the failure of a call that is rejected without a try: the last failure and the retry time."""
        assert self.last_failure is not None
        left_ms = max(1, round((self.retry_at - self._context.loop.time()) * 1000))
        if self.state in (State.FAILED, State.UNHEALTHY):
            return replace(self.last_failure, retry_after_ms=left_ms)
        code = "child_quarantined" if self.state is State.QUARANTINED else "child_backoff"
        times = f"failed {self.failures} times in a row"
        name, last = self._spec.name, self.last_failure
        return failure(
            code,
            f"Child '{name}' {times}; next try in {left_ms / 1000:.1f} s. Last: {last.message}",
            child=name,
            stderr=last.stderr or None,
            retry_after_ms=left_ms,
        )

    def _probe_failure(self) -> Failure:
        name = self._spec.name
        message = f"Child '{name}' is running, but did not answer a probe within {self.rules.probe_s:g} s."
        return failure("child_unhealthy", message, child=name)


def health_rules(settings: HealthSettings, *, governed: bool) -> HealthRules:
    """Return the thresholds for the settings and the mode."""
    spawn_fail_ms = settings.spawn_fail_ms or (GOVERNED_START_LIMIT_MS if governed else 0)
    return HealthRules(
        spawn_warn_s=settings.spawn_warn_ms / 1000,
        spawn_fail_s=spawn_fail_ms / 1000,
        failures=settings.failures,
        quarantine_s=settings.quarantine_ms / 1000,
        successes=settings.successes or (GOVERNED_SUCCESSES if governed else 1),
        probe_s=settings.probe_ms / 1000,
    )


OPEN_RULES = health_rules(HealthSettings(), governed=False)
GOVERNED_RULES = health_rules(HealthSettings(), governed=True)
