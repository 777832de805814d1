"""What a person does with a child: start it now, stop it, see how it differs from its lock, and take it as it is.

Uses the rows of `children.lifecycle` as the child itself does. Loaded only where somebody has something to do it with.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from hashlib import sha256

from msgspec.json import encode

from switchboard_mcp.children.child import Child
from switchboard_mcp.children.lifecycle import LifecycleEvent, State
from switchboard_mcp.children.lock import find_tampering, lock_child, lock_path, merge, read_lock, write_lock
from switchboard_mcp.children.waiter import ReadyWaiter
from switchboard_mcp.config.lockfile import LockFile
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.policy.drift import ToolChange

IDLE = frozenset({State.IDLE, State.PROBATION})


class AdminWaiter(ReadyWaiter):
    """Somebody who only wants it to run."""

    __slots__ = ("outcome",)

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.outcome: Future[Failure | None] = loop.create_future()

    def on_ready(self, child: Child) -> None:
        """It runs."""
        if not self.outcome.done():
            self.outcome.set_result(None)

    def on_failed(self, problem: Failure) -> None:
        """It does not."""
        if not self.outcome.done():
            self.outcome.set_result(problem)


async def start(child: Child) -> Failure | None:
    """Start it, whatever it was waiting for; why it did not, if so."""
    caller = AdminWaiter(child._context.loop)
    child._retry_at, child._insists = 0.0, True  # a person may have mended it
    child.lookups += 1  # this is no call
    child.acquire(caller)
    problem = await caller.outcome
    child._insists = False
    return child.redact(problem) if problem is not None else None


async def stop(child: Child, who: str) -> Failure | None:
    """Stop it; calls under way fail, and the next call starts it anew."""
    if child.state is State.STARTING:
        return failure("child_busy", f"Child '{child.name}' is just starting.", child=child.name)
    told = f"Child '{child.name}' was stopped by hand."
    problem = failure("child_crashed", told, child=child.name)
    if child.state is State.READY:
        child._apply(LifecycleEvent.QUIET)
    if child.state in IDLE:
        child._apply(LifecycleEvent.EXPIRE)
        child._context.log.info("child.stopped", child=child.name, by=who)
        child._note("stopped")
        await child._drop_connection(problem)
        child._apply(LifecycleEvent.GONE)
        for visitor in child._waiting.empty():
            child.acquire(visitor)
    elif child.state is State.UNHEALTHY:
        connection = child._connection
        child._fall_back(problem)
        if connection is not None:
            await connection.stop(problem)
    return None


def drift(child: Child) -> list[ToolChange]:
    """How what it offers in this run differs from its lock, which may be another by now."""
    offer = child.inventory
    if offer._pin is None or not offer._pin.changes:
        return []
    offer.reload_lock()
    return list(offer._pin.changes)


def mark(changes: list[ToolChange]) -> str:
    """Tells one set of differences from another, so that what is taken is what was seen."""
    return sha256(encode(changes)).hexdigest()[:32]


def accept(child: Child, seen: str) -> Failure | None:
    """Take what the running child offers as its lock, if that is still what was seen."""
    context, offer = child._context, child.inventory
    snapshot = offer._snapshot
    changes = drift(child)
    if snapshot is None or not changes:
        told = f"Child '{child.name}' does not run, or is as it was locked: there is nothing to accept."
        return failure("lock_invalid", told, child=child.name, hint="Start it, then look again.")
    if mark(changes) != seen:
        told = f"Child '{child.name}' offers something else by now than what was looked at."
        return failure("tool_drifted", told, child=child.name, hint="Look at the differences again.")
    path = lock_path(context.workspace)
    lock = read_lock(path) or LockFile(schema_version=1)
    kept = lock.children.get(child.name)
    sound = kept is not None and find_tampering(path, child.name, kept) is None
    entry = lock_child(child.spec, context.workspace, snapshot)
    lock.children[child.name] = merge(kept if sound else None, entry)
    write_lock(path, lock)
    offer.reload_lock()
    return None
