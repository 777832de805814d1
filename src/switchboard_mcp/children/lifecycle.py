"""The lifecycle of a child: a table of states, events and actions.

Rules:
1. Only a row of TRANSITIONS changes the state. An event without a row for the current state is a bug in Switchboard.
2. A row names the next state and the action; `child.Child` performs the action.
3. HEALTH maps every state to the health shown to people. A child is called only while healthy or on probation.

When a failed child may be restarted, and after how many failures it is quarantined, is decided in
`children.restart_rules`. The module is pure: no clock, no I/O.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Lifecycle state of a child."""

    CONFIGURED = "configured"
    STARTING = "starting"
    READY = "ready"
    IDLE = "idle"
    PROBATION = "probation"  # restarted after failures; serves calls while it regains trust
    UNHEALTHY = "unhealthy"  # runs but does not answer; no call is sent to it
    STOPPING = "stopping"
    STOPPED = "stopped"
    BACKOFF = "backoff"
    FAILED = "failed"
    QUARANTINED = "quarantined"


class Health(Enum):
    """Health of a child, as shown to people."""

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
    """Events that drive the lifecycle."""

    CALL = "call"  # a call arrives, and a start is permitted
    CALL_TOO_EARLY = "call too early"  # a call arrives before the retry time
    STARTED = "started"  # handshake done
    RESTARTED = "restarted"  # handshake done, after failures
    FAULT = "fault"  # the start failed for a lasting reason: binary missing, config wrong
    CRASH = "crash"  # the start failed otherwise, or a running child exited
    CRASH_LIMIT = "crash limit"  # the same, once too often in a row
    CALL_TIMEOUT = "call timeout"  # a call was not answered in time
    PROBE_OK = "probe ok"  # a probe was answered
    PROBE_FAILED = "probe failed"  # a probe was not answered
    TRUSTED = "trusted"  # enough answers on probation to make up for the failures
    IDLE = "idle"  # no call in progress for a while
    IDLE_TIMEOUT = "idle timeout"  # idle for too long
    EXITED = "exited"  # a stop has finished


class Action(Enum):
    """Actions that the owner of the child performs."""

    START = "start"  # queue the call, start the process
    WAIT = "wait"  # queue the call
    SEND = "send"  # forward the call now
    REJECT = "reject"  # fail the call with the last failure and the retry time
    PROBE = "probe"  # probe the child, now or after the probe interval
    NOTHING = "nothing"  # the state alone has changed


S, E, A = State, LifecycleEvent, Action
TRANSITIONS: dict[tuple[State, LifecycleEvent], tuple[State, Action]] = {
    (S.CONFIGURED, E.CALL): (S.STARTING, A.START),
    (S.STARTING, E.CALL): (S.STARTING, A.WAIT),
    (S.STARTING, E.STARTED): (S.READY, A.NOTHING),
    (S.STARTING, E.RESTARTED): (S.PROBATION, A.NOTHING),
    (S.STARTING, E.FAULT): (S.FAILED, A.NOTHING),
    (S.STARTING, E.CRASH): (S.BACKOFF, A.NOTHING),
    (S.STARTING, E.CRASH_LIMIT): (S.QUARANTINED, A.NOTHING),
    (S.READY, E.CALL): (S.READY, A.SEND),
    (S.READY, E.CALL_TIMEOUT): (S.READY, A.PROBE),
    (S.READY, E.PROBE_OK): (S.READY, A.NOTHING),
    (S.READY, E.PROBE_FAILED): (S.UNHEALTHY, A.PROBE),
    (S.READY, E.IDLE): (S.IDLE, A.NOTHING),
    (S.READY, E.CRASH): (S.BACKOFF, A.NOTHING),
    (S.READY, E.CRASH_LIMIT): (S.QUARANTINED, A.NOTHING),
    (S.IDLE, E.CALL): (S.READY, A.SEND),
    (S.IDLE, E.IDLE_TIMEOUT): (S.STOPPING, A.NOTHING),
    (S.IDLE, E.CRASH): (S.BACKOFF, A.NOTHING),
    (S.IDLE, E.CRASH_LIMIT): (S.QUARANTINED, A.NOTHING),
    (S.PROBATION, E.CALL): (S.PROBATION, A.SEND),
    (S.PROBATION, E.TRUSTED): (S.READY, A.NOTHING),
    (S.PROBATION, E.PROBE_OK): (S.PROBATION, A.PROBE),
    (S.PROBATION, E.CALL_TIMEOUT): (S.UNHEALTHY, A.PROBE),
    (S.PROBATION, E.PROBE_FAILED): (S.UNHEALTHY, A.PROBE),
    (S.PROBATION, E.IDLE_TIMEOUT): (S.STOPPING, A.NOTHING),
    (S.PROBATION, E.CRASH): (S.BACKOFF, A.NOTHING),
    (S.PROBATION, E.CRASH_LIMIT): (S.QUARANTINED, A.NOTHING),
    (S.UNHEALTHY, E.CALL): (S.UNHEALTHY, A.REJECT),
    (S.UNHEALTHY, E.CALL_TIMEOUT): (S.UNHEALTHY, A.NOTHING),
    (S.UNHEALTHY, E.PROBE_OK): (S.PROBATION, A.PROBE),
    (S.UNHEALTHY, E.PROBE_FAILED): (S.UNHEALTHY, A.PROBE),
    (S.UNHEALTHY, E.CRASH): (S.BACKOFF, A.NOTHING),
    (S.UNHEALTHY, E.CRASH_LIMIT): (S.QUARANTINED, A.NOTHING),
    (S.STOPPING, E.CALL): (S.STOPPING, A.WAIT),
    (S.STOPPING, E.EXITED): (S.STOPPED, A.NOTHING),
    (S.STOPPED, E.CALL): (S.STARTING, A.START),
    (S.BACKOFF, E.CALL): (S.STARTING, A.START),
    (S.BACKOFF, E.CALL_TOO_EARLY): (S.BACKOFF, A.REJECT),
    (S.FAILED, E.CALL): (S.STARTING, A.START),
    (S.FAILED, E.CALL_TOO_EARLY): (S.FAILED, A.REJECT),
    (S.QUARANTINED, E.CALL): (S.STARTING, A.START),
    (S.QUARANTINED, E.CALL_TOO_EARLY): (S.QUARANTINED, A.REJECT),
}
