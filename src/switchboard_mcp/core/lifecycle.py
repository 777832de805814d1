"""The life of a child, as a table.

Rules:
1. Nothing changes state but a row of TRANSITIONS. An event without a row in a state is a fault in Switchboard.
2. A row names the next state and what is to be done; `children` does it.

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
    STOPPING = "stopping"
    STOPPED = "stopped"
    BACKOFF = "backoff"
    FAILED = "failed"
    QUARANTINED = "quarantined"


class Event(Enum):
    """What can happen to a child."""

    NEED = "need"  # a call arrives, and a start is permitted
    EARLY = "early"  # a call arrives before the time to retry
    UP = "up"  # handshake done
    FAULT = "fault"  # the start failed in a way that will repeat: binary missing, config wrong
    CRASH = "crash"  # the start failed otherwise, or a running child ended
    CRASHED_OUT = "crashed out"  # the same, once too often
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
    STOP = "stop"  # walk the stop ladder
    RESUME = "resume"  # start again if calls were kept meanwhile
    NOTHING = "nothing"


S, E, A = State, Event, Action
TRANSITIONS: dict[tuple[State, Event], tuple[State, Action]] = {
    (S.CONFIGURED, E.NEED): (S.STARTING, A.START),
    (S.STARTING, E.NEED): (S.STARTING, A.WAIT),
    (S.STARTING, E.UP): (S.READY, A.RELEASE),
    (S.STARTING, E.FAULT): (S.FAILED, A.ABANDON),
    (S.STARTING, E.CRASH): (S.BACKOFF, A.ABANDON),
    (S.STARTING, E.CRASHED_OUT): (S.QUARANTINED, A.ABANDON),
    (S.READY, E.NEED): (S.READY, A.SEND),
    (S.READY, E.QUIET): (S.IDLE, A.NOTHING),
    (S.READY, E.CRASH): (S.BACKOFF, A.ABANDON),
    (S.READY, E.CRASHED_OUT): (S.QUARANTINED, A.ABANDON),
    (S.IDLE, E.NEED): (S.READY, A.SEND),
    (S.IDLE, E.EXPIRE): (S.STOPPING, A.STOP),
    (S.IDLE, E.CRASH): (S.BACKOFF, A.ABANDON),
    (S.IDLE, E.CRASHED_OUT): (S.QUARANTINED, A.ABANDON),
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
# Five failures without one answered call in between are no accident.
FAILURES_TO_QUARANTINE = 5
QUARANTINE_S = 60.0
# A missing binary will still be missing; look again only after a person could have mended it.
FAULT_RECHECK_S = 2.0

PACKAGE_RUNNERS = frozenset(
    {"npx", "bunx", "uvx", "pipx", "docker", "podman", "pnpm", "yarn", "bun", "uv", "deno"}
)


class Setback(Struct, frozen=True):
    """What a failure in a row means: the event, and how long until a start is permitted."""

    event: Event
    wait_s: float


def setback(failures: int) -> Setback:
    """Judge the `failures`-th failure in a row (counting from 1)."""
    if failures >= FAILURES_TO_QUARANTINE:
        return Setback(Event.CRASHED_OUT, QUARANTINE_S)
    if failures <= 1:
        return Setback(Event.CRASH, 0.0)
    return Setback(Event.CRASH, FIRST_BACKOFF_S * 2 ** (failures - 2))


def start_limit_ms(command: str, known: bool, child_spawn_ms: int, rpc_ms: int) -> int:
    """How long a start may take: a package runner, or a child never seen, may have to download first."""
    runner = command.replace("\\", "/").rpartition("/")[2].removesuffix(".cmd").removesuffix(".exe")
    if known and runner not in PACKAGE_RUNNERS:
        return child_spawn_ms
    return max(child_spawn_ms, rpc_ms)
