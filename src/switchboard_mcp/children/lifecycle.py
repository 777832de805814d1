"""The life of a child, as a table, and its health, which is a column of it.

Rules:
1. Nothing changes state but a row of TRANSITIONS. An event without a row in a state is a fault in Switchboard.
2. A row names the next state and what is to be done; `children` does it.
3. HEALTH says of every state what a person calls it. Calls reach a child only while it is healthy or on probation.

Also here, since they are decisions too: how long to back off after the n-th failure in a row, when to give up for a
while (quarantine), and how long a start may take. No clock: times are passed in.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class State(Enum):
    """Where a child is in its life."""

    CONFIGURED = "configured"
    STARTING = "starting"
    READY = "ready"
    IDLE = "idle"
    PROBATION = "probation"  # it runs and serves after failures, which are not forgotten yet
    UNHEALTHY = "unhealthy"  # it runs and does not answer; no call is sent to it
    STOPPING = "stopping"
    STOPPED = "stopped"
    BACKOFF = "backoff"
    FAILED = "failed"
    QUARANTINED = "quarantined"


class Health(Enum):
    """What a child is good for."""

    UNTRIED = "untried"
    STARTING = "starting"
    HEALTHY = "healthy"
    PROBATION = "probation"
    UNHEALTHY = "unhealthy"
    QUARANTINED = "quarantined"


HEALTH: dict[State, Health] = {
    State.CONFIGURED: Health.UNTRIED,
    State.STARTING: Health.STARTING,
    State.READY: Health.HEALTHY,
    State.IDLE: Health.HEALTHY,
    State.PROBATION: Health.PROBATION,
    State.UNHEALTHY: Health.UNHEALTHY,
    State.STOPPING: Health.HEALTHY,
    State.STOPPED: Health.HEALTHY,
    State.BACKOFF: Health.UNHEALTHY,
    State.FAILED: Health.UNHEALTHY,
    State.QUARANTINED: Health.QUARANTINED,
}


class LifecycleEvent(Enum):
    """What can happen to a child."""

    NEED = "need"  # a call arrives, and a start is permitted
    EARLY = "early"  # a call arrives before the time to retry
    UP = "up"  # handshake done
    UP_AGAIN = "up again"  # handshake done, after failures
    FAULT = "fault"  # the start failed in a way that will repeat: binary missing, config wrong
    CRASH = "crash"  # the start failed otherwise, or a running child ended
    CRASHED_OUT = "crashed out"  # the same, once too often
    TOLD = "told"  # another server behind the same address has it in quarantine
    DOUBT = "doubt"  # a call was not answered in time
    ALIVE = "alive"  # a probe was answered
    SILENT = "silent"  # a probe was not answered
    TRUSTED = "trusted"  # as many answers on probation as make up for the failures
    QUIET = "quiet"  # no call under way for a while
    EXPIRE = "expire"  # idle for too long
    GONE = "gone"  # a stop has finished


class Action(Enum):
    """What the owner of the child does about it."""

    START = "start"  # keep the call, start the process
    WAIT = "wait"  # keep the call
    SEND = "send"  # forward the call now
    REJECT = "reject"  # refuse the call with the last failure and the time to retry
    RELEASE = "release"  # forward all kept calls
    ABANDON = "abandon"  # fail all kept and running calls
    PROBE = "probe"  # ask whether it is there, now or after a while
    STOP = "stop"  # walk the stop ladder
    RESUME = "resume"  # start again if calls were kept meanwhile
    NOTHING = "nothing"


S, E, A = State, LifecycleEvent, Action
TRANSITIONS: dict[tuple[State, LifecycleEvent], tuple[State, Action]] = {
    (S.CONFIGURED, E.NEED): (S.STARTING, A.START),
    (S.STARTING, E.NEED): (S.STARTING, A.WAIT),
    (S.STARTING, E.UP): (S.READY, A.RELEASE),
    (S.STARTING, E.UP_AGAIN): (S.PROBATION, A.RELEASE),
    (S.STARTING, E.FAULT): (S.FAILED, A.ABANDON),
    (S.STARTING, E.CRASH): (S.BACKOFF, A.ABANDON),
    (S.STARTING, E.CRASHED_OUT): (S.QUARANTINED, A.ABANDON),
    (S.STARTING, E.TOLD): (S.QUARANTINED, A.ABANDON),
    (S.READY, E.NEED): (S.READY, A.SEND),
    (S.READY, E.DOUBT): (S.READY, A.PROBE),
    (S.READY, E.ALIVE): (S.READY, A.NOTHING),
    (S.READY, E.SILENT): (S.UNHEALTHY, A.PROBE),
    (S.READY, E.QUIET): (S.IDLE, A.NOTHING),
    (S.READY, E.CRASH): (S.BACKOFF, A.ABANDON),
    (S.READY, E.CRASHED_OUT): (S.QUARANTINED, A.ABANDON),
    (S.IDLE, E.NEED): (S.READY, A.SEND),
    (S.IDLE, E.EXPIRE): (S.STOPPING, A.STOP),
    (S.IDLE, E.CRASH): (S.BACKOFF, A.ABANDON),
    (S.IDLE, E.CRASHED_OUT): (S.QUARANTINED, A.ABANDON),
    (S.PROBATION, E.NEED): (S.PROBATION, A.SEND),
    (S.PROBATION, E.TRUSTED): (S.READY, A.NOTHING),
    (S.PROBATION, E.ALIVE): (S.PROBATION, A.PROBE),
    (S.PROBATION, E.DOUBT): (S.UNHEALTHY, A.PROBE),
    (S.PROBATION, E.SILENT): (S.UNHEALTHY, A.PROBE),
    (S.PROBATION, E.EXPIRE): (S.STOPPING, A.STOP),
    (S.PROBATION, E.CRASH): (S.BACKOFF, A.ABANDON),
    (S.PROBATION, E.CRASHED_OUT): (S.QUARANTINED, A.ABANDON),
    (S.UNHEALTHY, E.NEED): (S.UNHEALTHY, A.REJECT),
    (S.UNHEALTHY, E.DOUBT): (S.UNHEALTHY, A.NOTHING),
    (S.UNHEALTHY, E.ALIVE): (S.PROBATION, A.PROBE),
    (S.UNHEALTHY, E.SILENT): (S.UNHEALTHY, A.PROBE),
    (S.UNHEALTHY, E.CRASH): (S.BACKOFF, A.ABANDON),
    (S.UNHEALTHY, E.CRASHED_OUT): (S.QUARANTINED, A.ABANDON),
    (S.STOPPING, E.NEED): (S.STOPPING, A.WAIT),
    (S.STOPPING, E.GONE): (S.STOPPED, A.RESUME),
    (S.STOPPED, E.NEED): (S.STARTING, A.START),
    (S.BACKOFF, E.NEED): (S.STARTING, A.START),
    (S.BACKOFF, E.EARLY): (S.BACKOFF, A.REJECT),
    (S.FAILED, E.NEED): (S.STARTING, A.START),
    (S.FAILED, E.EARLY): (S.FAILED, A.REJECT),
    (S.QUARANTINED, E.NEED): (S.STARTING, A.START),
    (S.QUARANTINED, E.EARLY): (S.QUARANTINED, A.REJECT),
}

# The first restart is free: one crash is an accident. Then the wait doubles, so that a broken child costs little.
FIRST_BACKOFF_S = 1.0
# Five failures without recovery in between are no accident.
FAILURES_TO_QUARANTINE = 5
QUARANTINE_S = 60.0
# From this on a start is worth a line in the log; the governed standard ends it at GATE_S.
SLOW_START_S = 2.0
GATE_S = 5.0
# Answers that make up for failures: in open mode one forgives all, a governed child has to earn it.
SUCCESSES, GOVERNED_SUCCESSES = 1, 3
# A server that is there answers a ping at once, unless the machine is very busy.
PROBE_S = 5.0
# A missing binary will still be missing; look again only after a person could have mended it.
FAULT_RECHECK_S = 2.0

PACKAGE_RUNNERS = frozenset(
    {"npx", "bunx", "uvx", "pipx", "docker", "podman", "pnpm", "yarn", "bun", "uv", "deno"}
)


class HealthRules(Struct, frozen=True):
    """The measures of health. `spawn_fail_s` is 0 where only the limits of a start count."""

    spawn_warn_s: float = SLOW_START_S
    spawn_fail_s: float = 0.0
    failures: int = FAILURES_TO_QUARANTINE
    quarantine_s: float = QUARANTINE_S
    successes: int = SUCCESSES
    probe_s: float = PROBE_S


OPEN_RULES = HealthRules()
GOVERNED_RULES = HealthRules(spawn_fail_s=GATE_S, successes=GOVERNED_SUCCESSES)


class FailureDecision(Struct, frozen=True):
    """What a failure in a row means: the event, and how long until a start is permitted."""

    event: LifecycleEvent
    wait_s: float


def setback(failures: int, rules: HealthRules = OPEN_RULES) -> FailureDecision:
    """Judge the `failures`-th failure in a row (counting from 1)."""
    if failures >= rules.failures:
        return FailureDecision(LifecycleEvent.CRASHED_OUT, rules.quarantine_s)
    if failures <= 1:
        return FailureDecision(LifecycleEvent.CRASH, 0.0)
    return FailureDecision(LifecycleEvent.CRASH, FIRST_BACKOFF_S * 2 ** (failures - 2))


def start_limit_ms(command: str, known: bool, child_spawn_ms: int, rpc_ms: int) -> int:
    """How long a start may take: a package runner, or a child never seen, may have to download first."""
    runner = command.replace("\\", "/").rpartition("/")[2].removesuffix(".cmd").removesuffix(".exe")
    if known and runner not in PACKAGE_RUNNERS:
        return child_spawn_ms
    return max(child_spawn_ms, rpc_ms)
