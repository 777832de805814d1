"""What a process does for everybody while it is there: deliver dropped files, give back what was claimed for too long.

Any number of processes may do so at once. Owns when; what is done is done in the writer's thread.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable, Sequence

from switchboard_mcp.mail.messages import Delivery, Gate
from switchboard_mcp.mail.store import claims, dropped_files
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import parse
from switchboard_mcp.mail.store.watcher import MailboxChange, Watcher
from switchboard_mcp.mail.store.worker import StoreWorker

# How often leases that are over are given back, and files that were still being written looked at again.
TICK_S = 1.0
Swept = tuple[list[Delivery], set[str]]


class Sweeper:
    """Watches the tree; `tell` hears of deliveries, `hear` of every change."""

    def __init__(
        self,
        path: str,
        writer: StoreWorker,
        gates: Sequence[Gate],
        tell: Callable[[Sequence[Delivery]], None],
        hear: Callable[[MailboxChange], None],
    ) -> None:
        self._loop = get_running_loop()
        self._watcher = Watcher(path, self._loop, self._changed)
        self._writer = writer
        self._gates = gates
        self._tell = tell
        self._hear = hear
        self._timer: TimerHandle | None = None
        # Whose inbox has to be looked at; an empty name is everybody's.
        self._due = {""}
        self._busy = False

    def start(self) -> None:
        """Begin."""
        self._watcher.start()
        self._tick()

    def stop(self) -> None:
        """End."""
        self._watcher.stop()
        if self._timer is not None:
            self._timer.cancel()

    def _changed(self, change: MailboxChange) -> None:
        # The desk's own messages need no delivery; one that only looks so waits for the next look into the inbox.
        if change.kind == "inbox" and (not change.file or parse("inbox", change.file) is None):
            self._due.add(change.agent)
            self._sweep(expired=False)
        self._hear(change)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self._sweep(expired=True)

    def _sweep(self, *, expired: bool) -> None:
        if self._busy or not (self._due or expired):
            return
        due, self._due = self._due, set()
        self._busy = True

        def work(visit: Transaction) -> Swept:
            told: list[Delivery] = []
            settling: set[str] = set()
            for agent in visit.agents() if "" in due else sorted(due):
                inbox, some = dropped_files.deliver(visit, agent, self._gates)
                told += some
                settling |= {agent} if inbox.settling else set()
            for agent in visit.agents("claimed") if expired else ():
                told += claims.give_back_expired(visit, agent)[1]
            return told, settling

        def done(swept: Swept | None) -> None:
            self._busy = False
            # What failed, or is still being written, is looked at again with the next tick.
            told, settling = swept or ([], due)
            again = bool(self._due)
            self._due |= settling
            self._tell(told)
            if again:
                self._sweep(expired=False)

        self._writer.start(work, done)
