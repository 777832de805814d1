"""How well a child is: its state, its failures in a row, and the way back to trust.

Applies the rows of `children.lifecycle` and keeps what they need: when a start is permitted again, the last error,
how many answers count. Starting, stopping and serving are in `child`, which builds on this; the questions that are put
to a child in doubt are in `probing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.lifecycle import (
    GOVERNED_RULES,
    HEALTH,
    OPEN_RULES,
    TRANSITIONS,
    Action,
    Health,
    HealthRules,
    LifecycleEvent,
    State,
    setback,
)
from switchboard_mcp.children.probe import Probe
from switchboard_mcp.config.models import ChildSpec, Config
from switchboard_mcp.config.sections import HealthSettings
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.transport.rpc import Peer

if TYPE_CHECKING:
    from switchboard_mcp.children.replica_types import RemoteQuarantine, Replicas

RUNNING = frozenset({State.READY, State.IDLE, State.PROBATION, State.UNHEALTHY})
ALIVE = RUNNING | {State.STARTING, State.STOPPING}


class HealthTracker:
    """See the module. `failures` counts those in a row; `last_failure` is what refusals tell."""

    def __init__(self, spec: ChildSpec, config: Config, context: ChildContext) -> None:
        self.spec = spec
        self.state = State.CONFIGURED
        self.failures = 0
        self.last_failure: Failure | None = None
        self.peer: Peer | None = None
        self._context = context
        self._retry_at = 0.0
        self._answers_at_start = 0  # what the child has answered beyond this counts for trust
        self._rules = health_rules(config.health, governed=config.governance.mode != "open")
        self._probing = Probe(self, context, self._rules.probe_s)
        # Only what all hosts share is the same child everywhere.
        suite = config.suites.get(spec.name)
        alone = spec.kind == "builtin" or (suite is not None and suite.isolation != "shared")
        self._replicas: Replicas | None = None if alone else context.replicas
        self._told: RemoteQuarantine | None = (
            None  # why it was not started: another replica has it in quarantine
        )
        self._insists = False  # whether the next start is tried whatever another replica has said

    @property
    def name(self) -> str:
        """The child's name."""
        return self.spec.name

    @property
    def is_stateless(self) -> bool:
        """Whether this run of it is spoken to in the era without handshakes."""
        raise NotImplementedError

    @property
    def health(self) -> Health:
        """What it is good for at the moment."""
        self._review()
        return HEALTH[self.state]

    @property
    def retry_after_ms(self) -> int:
        """How long until a call may be tried again that would be refused now; 0 where none would be."""
        left_s = self._retry_at - self._context.loop.time()
        return max(0, round(left_s * 1000)) if self.state not in (State.READY, State.IDLE) else 0

    def on_call_timeout(self) -> None:
        """A call was not answered in time: slow work, or nobody there any more. Ask."""
        if (
            self.peer is not None
            and self.state in RUNNING
            and self._apply(LifecycleEvent.DOUBT) is Action.PROBE
        ):
            if self.state is State.UNHEALTHY:
                self._retry_at = self._context.loop.time() + self._rules.probe_s
                self.last_failure = self._silence()
            self._probing.begin(self.peer)

    def on_probe_result(self, *, alive: bool) -> bool:
        """A probe of this run is over; whether another is wanted."""
        if self.state not in RUNNING or self.peer is None:
            return False
        if alive:
            if self.state is State.UNHEALTHY:  # a first sign; what counts for trust comes after it
                self._answers_at_start = self.peer.response_count
            again = self._apply(LifecycleEvent.ALIVE) is Action.PROBE
            self._review()
            return again and self.state is State.PROBATION
        self.failures += 1
        problem = self._silence()
        if setback(self.failures, self._rules).event is LifecycleEvent.CRASHED_OUT:
            self._context.log.warning("child.given_up", child=self.name, problem=problem.message)
            self._give_up(problem)
            return False
        self._context.log.warning("child.unhealthy", child=self.name, problem=problem.message)
        self._note("unhealthy")
        self.last_failure = problem
        self._retry_at = self._context.loop.time() + self._rules.probe_s
        return self._apply(LifecycleEvent.SILENT) is Action.PROBE

    def _give_up(self, problem: Failure) -> None:
        """It was silent once too often: stop it."""
        raise NotImplementedError

    def _review(self) -> None:
        """Whether a child on probation has made up for its failures by now."""
        if self.state is not State.PROBATION or self.peer is None:
            return
        if self.peer.response_count - self._answers_at_start >= self._rules.successes:
            self.failures = 0
            self._apply(LifecycleEvent.TRUSTED)
            if self._replicas is not None:
                self._replicas.trusts(self.spec)
            self._note("healthy")

    async def _is_given_up_elsewhere(self, replicas: Replicas) -> bool:
        """Before a start: whether another replica has it in quarantine, and that counts here.

        When the time they told is over, one try comes before their word counts again: a replica on which it never
        starts must not keep it from all the others.
        """
        loop, told, insists = self._context.loop, self._told, self._insists
        self._told, self._insists = None, False
        if insists or (told is not None and self._retry_at <= loop.time()):
            return False
        verdict = self._told = await replicas.verdict(self.spec)
        if verdict is None:
            return False
        self._retry_at = loop.time() + verdict.left_s
        problem = f"On replica '{verdict.replica}': {verdict.problem}"
        self.last_failure = failure("child_quarantined", problem, child=self.name)
        return True

    def _apply(self, event: LifecycleEvent) -> Action:
        before = self.state
        self.state, action = TRANSITIONS[before, event]
        if self.state is not before:
            self._context.log.debug("child.state", child=self.name, was=before.value, now=self.state.value)
        return action

    def _note(self, outcome: str, seconds: float = -1.0) -> None:
        """Write down what became of it, where anything is written down."""
        if self._context.audit is not None:
            self._context.audit.record("child", child=self.name, outcome=outcome, seconds=seconds)

    def _silence(self) -> Failure:
        limit = f"{self._rules.probe_s:g} s"
        told = f"Child '{self.name}' runs and did not answer a probe within {limit}."
        return failure("child_unhealthy", told, child=self.name)

    def _rejection(self) -> Failure:
        """Why a call is refused without a try: the last failure, and when to come back."""
        assert self.last_failure is not None
        left_ms = max(1, round((self._retry_at - self._context.loop.time()) * 1000))
        if self.state in (State.FAILED, State.UNHEALTHY):
            return replace(self.last_failure, retry_after_ms=left_ms)
        code = "child_quarantined" if self.state is State.QUARANTINED else "child_backoff"
        times = f"failed {(self._told or self).failures} times in a row"
        return failure(
            code,
            f"Child '{self.name}' {times}; next try in {left_ms / 1000:.1f} s. Last: {self.last_failure.message}",
            child=self.name,
            stderr=self.last_failure.stderr or None,
            retry_after_ms=left_ms,
        )


def health_rules(settings: HealthSettings, *, governed: bool) -> HealthRules:
    """The measures that follow from the settings and the mode."""
    given = GOVERNED_RULES if governed else OPEN_RULES
    return HealthRules(
        spawn_warn_s=settings.spawn_warn_ms / 1000,
        spawn_fail_s=settings.spawn_fail_ms / 1000 if settings.spawn_fail_ms else given.spawn_fail_s,
        failures=settings.failures,
        quarantine_s=settings.quarantine_ms / 1000,
        successes=settings.successes or given.successes,
        probe_s=settings.probe_ms / 1000,
    )
