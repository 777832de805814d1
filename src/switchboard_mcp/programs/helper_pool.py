"""The helper processes of programs: a few, started when needed, replaced when they end, shared by all programs.

A helper holds the program that waited last in its memory. If another program needs the helper, the snapshot of the
first is taken before, so that programs that wait hold no process.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from contextvars import ContextVar
from importlib.util import find_spec

from switchboard_mcp.programs.engine import Failed, Suspension
from switchboard_mcp.programs.helper import frames
from switchboard_mcp.programs.helper_client import HelperLostError, HelperProcess, HelperTimeoutError
from switchboard_mcp.transport.process.launcher import Launcher

HELPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper", "helper_process.py")
PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

MAX_HELPERS = 3
# Of one client, so that its programs leave a helper to others.
MAX_PER_CLIENT = 2
# The client whose program the current task runs.
CLIENT: ContextVar[object] = ContextVar("client", default=None)
# A second helper that has had nothing to do for this long ends.
IDLE_S = 30.0
# Helper and worker have 60 MiB after small programs. Memory that a large one used is given back by a new helper.
RECYCLE_BYTES = 160 * 1024 * 1024
RECYCLE_CHECK_EVERY = 16
# Taking the largest snapshot takes 0.5 s on a quiet machine.
DUMP_TIMEOUT_S = 30.0
DUMP = frames.encode(frames.DumpRequest())


class HelperPool:
    """Lends helpers, each for one request at a time."""

    def __init__(self, launcher: Launcher, memory_mb: int) -> None:
        self._launcher = launcher
        self._memory_mb = memory_mb
        self._idle: list[HelperProcess] = []
        self._all: set[HelperProcess] = set()
        self._starting = 0
        # By client, in the order in which they have their turn.
        self._waiters: dict[object, list[asyncio.Future[None]]] = {}
        self._lent: dict[HelperProcess, object] = {}
        self._acquiring: Counter[object] = Counter()
        self._dumping: dict[Suspension, asyncio.Event] = {}
        self._trimming: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def helpers(self) -> list[HelperProcess]:
        """The helpers that run."""
        return list(self._all)

    @property
    def is_contended(self) -> bool:
        """True if a request waits for a helper."""
        return bool(self._waiters)

    async def acquire(self, suspension: Suspension | None = None) -> HelperProcess:
        """Return a helper for one request. It holds the suspension, or no program at all.

        Raises `SpawnError`, `OSError`, `HelperLostError` or `HelperTimeoutError`.
        """
        if suspension is not None and suspension in self._dumping:
            await self._dumping[suspension].wait()
        client = CLIENT.get()
        while True:
            if self._closed:
                raise OSError("Switchboard is stopping.")
            self._forget_lost()
            if self._share(client) >= MAX_PER_CLIENT:
                await self._wait_for_release(client)
                continue
            self._acquiring[client] += 1
            try:
                helper = await self._acquire_now(suspension)
            finally:
                self._acquiring[client] -= 1
            if helper is not None:
                self._lent[helper] = client
                return helper
            await self._wait_for_release(client)

    def _share(self, client: object) -> int:
        """Return how many helpers a client has, or is about to get."""
        return sum(other == client for other in self._lent.values()) + self._acquiring[client]

    async def _acquire_now(self, suspension: Suspension | None) -> HelperProcess | None:
        """Return an idle helper or a new one; None if all are in use."""
        while True:
            if self._idle:
                chosen = self._choose(suspension)
                self._idle.remove(chosen)
                if chosen.held is None or chosen.held is suspension or await self._dump(chosen):
                    return chosen
            elif len(self._all) + self._starting < MAX_HELPERS:
                return await self._start()
            else:
                return None

    async def take_snapshot(self, suspension: Suspension) -> None:
        """Take the snapshot of a program if a helper holds it. Raises nothing: without success it has none."""
        helper = next(
            (candidate for candidate in self._idle if candidate.held is suspension and not candidate.is_lost),
            None,
        )
        if helper is not None and not suspension.snapshot:
            self._idle.remove(helper)
            if await self._dump(helper):
                self.release(helper, usable=True)

    def release(self, helper: HelperProcess, *, usable: bool) -> None:
        """Take a helper back. One that is not usable any more, or has grown too large, is ended."""
        self._lent.pop(helper, None)
        is_due = usable and helper.held is None and helper.requests % RECYCLE_CHECK_EVERY == 0
        too_large = is_due and helper.memory() > RECYCLE_BYTES
        if usable and not too_large and not helper.is_lost and not self._closed:
            self._idle.append(helper)
            if len(self._idle) > 1 and self._trimming is None:
                self._trimming = asyncio.get_running_loop().call_later(IDLE_S, self._trim)
        else:
            self._end(helper)
        self._wake_next()

    async def close(self) -> None:
        """End all helpers."""
        self._closed = True
        if self._trimming is not None:
            self._trimming.cancel()
        while self._waiters:
            self._wake_next()
        ending = list(self._all)
        self._all.clear()
        self._idle.clear()
        for helper in ending:
            helper.end()
        for helper in ending:
            await helper.exited()

    def _choose(self, suspension: Suspension | None) -> HelperProcess:
        """Return the idle helper that holds the program, else one that holds none, else one with a snapshot."""

        def cost(helper: HelperProcess) -> int:
            if helper.held is None:
                return 1
            if helper.held is suspension:
                return 0
            return 2 if helper.held.snapshot else 3

        return min(reversed(self._idle), key=cost)

    async def _dump(self, helper: HelperProcess) -> bool:
        """Let a helper give up the program that it holds. Return False if the helper was lost; it is then ended."""
        suspension, helper.held = helper.held, None
        if suspension is None or suspension.snapshot:
            return True
        done = self._dumping[suspension] = asyncio.Event()
        answer: frames.Answer | None = None
        try:
            answer = await helper.request(DUMP, DUMP_TIMEOUT_S)
        except (HelperLostError, HelperTimeoutError):
            return False
        finally:
            del self._dumping[suspension]
            done.set()
            if answer is None or answer.retires or not isinstance(answer.body, frames.Dumped):
                self._end(helper)
                self._wake_next()
        if isinstance(answer.body, frames.Dumped):
            suspension.snapshot, suspension.failure = answer.body.snapshot, _own_failure(answer.body.failed)
        return not helper.is_lost

    async def _wait_for_release(self, client: object) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(client, []).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake_next()
            raise

    def _wake_next(self) -> None:
        """Wake the next client that may have a helper. Clients take turns."""
        for client in list(self._waiters):
            if self._share(client) >= MAX_PER_CLIENT and not self._closed:
                continue
            waiting = [waiter for waiter in self._waiters.pop(client) if not waiter.done()]
            if not waiting:
                continue
            waiting.pop(0).set_result(None)
            if waiting:
                self._waiters[client] = waiting  # behind all others
            return

    def _trim(self) -> None:
        """End idle helpers but one, unless they hold a program."""
        self._trimming = None
        for helper in [candidate for candidate in self._idle if candidate.held is None][
            : len(self._idle) - 1
        ]:
            self._idle.remove(helper)
            self._end(helper)
        if len(self._idle) > 1:
            self._trimming = asyncio.get_running_loop().call_later(IDLE_S, self._trim)

    def _forget_lost(self) -> None:
        for helper in [candidate for candidate in self._idle if candidate.is_lost]:
            self._idle.remove(helper)
            self._end(helper)

    def _end(self, helper: HelperProcess) -> None:
        self._all.discard(helper)
        self._lent.pop(helper, None)
        helper.end()

    async def _start(self) -> HelperProcess:
        """Start a helper."""
        self._starting += 1
        helper: HelperProcess | None = None
        try:
            process = await self._launcher.spawn(_argv(self._memory_mb), {}, "/")
            helper = HelperProcess(process, frames.max_frame_bytes(self._memory_mb))
            await helper.ready()
        except BaseException:
            if helper is not None:
                helper.end()
            self._wake_next()
            raise
        finally:
            self._starting -= 1
        self._all.add(helper)
        if self._closed:
            self.release(helper, usable=False)
            raise OSError("Switchboard is stopping.")
        return helper


def _own_failure(failed: Failed | None) -> Failed | None:
    """Return the failure of a program that cannot be kept; None if its helper did not hold it any more."""
    return None if failed is None or failed.kind in ("crash", "lost") else failed


def _argv(memory_mb: int) -> list[str]:
    folders = [PACKAGE_ROOT]
    for name in ("msgspec", "pydantic_monty", "typing_extensions"):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise OSError(f"The Python package {name} is not installed. Install the extra programs.")
        folder = os.path.dirname(spec.origin)
        folders.append(folder if spec.submodule_search_locations is None else os.path.dirname(folder))
    # -P and -s with -E: like -I, but a helper finds packages where the gateway did.
    return [sys.executable, "-I", "-X", "utf8", HELPER, str(memory_mb), *dict.fromkeys(folders)]
