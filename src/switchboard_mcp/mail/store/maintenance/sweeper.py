"""Periodic maintenance: delivers dropped files and returns expired claims, in one process of the workspace.

The process that holds the lock `sweeper` does the work, and watches all inboxes; the others take over when it ends or
stalls, and watch the mailboxes that their own callers wait for. Schedules the work, which runs in the writer thread.
"""

from __future__ import annotations

import os
import time
from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from switchboard_mcp.config.agent_names import is_agent_name
from switchboard_mcp.mail.messages import Delivery, DeliveryRule
from switchboard_mcp.mail.store import claims, dropped_files, file_operations
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import parse
from switchboard_mcp.mail.store.maintenance import lease_record, packing
from switchboard_mcp.mail.store.maintenance.indexing import IndexingPass
from switchboard_mcp.mail.store.maintenance.packing import PackingPass
from switchboard_mcp.mail.store.watcher import MailboxChange, WatchedMailboxes, Watcher
from switchboard_mcp.mail.store.worker import StoreWorker

# Interval for returning expired leases and for retrying files that were still being written.
TICK_S = 1.0
LOCK = dropped_files.SWEEPER_LOCK
STALLED_S = dropped_files.STALLED_S
# Changed files of one inbox that are remembered; with more, all files are looked at.
MAX_CHANGED = 10_000
# The holder of the lock touches it this often.
BEAT_S = 5.0
# Settled messages are packed this long after a process was elected, and then this often.
FIRST_PACK_S = 30.0
PACK_S = 600.0
SweepResult = tuple[list[Delivery], set[str]]


class SweeperLock:
    """The lock of the one process that sweeps this workspace."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._beat_at = 0.0

    def acquire(self, tx: Transaction) -> tuple[bool, bool]:
        """Return whether this process is to sweep, and whether that is new."""
        now = time.monotonic()
        if self._descriptor >= 0 and file_operations.is_file(tx.folder("locks"), LOCK, self._descriptor):
            if now - self._beat_at >= BEAT_S:
                self._beat(now)
            return True, False
        self.release()
        descriptor = file_operations.open_lock(tx.folder("locks"), LOCK)
        try:
            if file_operations.try_lock(descriptor):
                self._descriptor, descriptor = descriptor, -1
                self._beat(now)
                return True, True
            stalled = abs(time.time() - os.fstat(descriptor).st_mtime) >= STALLED_S
            return stalled, stalled
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _beat(self, now: float) -> None:
        os.utime(self._descriptor)
        self._beat_at = now

    def release(self) -> None:
        """Let another process sweep."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Sweeper:
    """Watches the store; reports deliveries to `notify_deliveries` and every change to `notify_change`."""

    def __init__(
        self,
        path: str,
        writer: StoreWorker,
        rules: Sequence[DeliveryRule],
        notify_deliveries: Callable[[Sequence[Delivery]], None],
        notify_change: Callable[[MailboxChange], None],
    ) -> None:
        self._loop = get_running_loop()
        self._watcher = Watcher(path, self._loop, self._on_change)
        self._writer = writer
        self._rules = rules
        self._notify_deliveries = notify_deliveries
        self._notify_change = notify_change
        self._timer: TimerHandle | None = None
        self._lock = SweeperLock()
        self.elected = False  # True while this process sweeps
        self._wanted = WatchedMailboxes()
        # Agents whose inbox must be scanned; an empty name means all.
        self._due = {""}
        # Files that have changed in inboxes, by agent; None if some are unknown.
        self._changed: dict[str, set[str] | None] = {}
        # Agents with a large inbox: files of the store are noted for them too, since others may use its names.
        self._large: set[str] = set()
        self._busy = False
        self._pack_at = self._loop.time() + FIRST_PACK_S
        # The state of each folder in which there was nothing to pack.
        self._packed: dict[tuple[str, str], int] = {}

    def start(self) -> None:
        """Start watching and the timer."""
        self._watcher.start()
        self._tick()

    def watch(self, wanted: WatchedMailboxes) -> None:
        """Report changes of these mailboxes."""
        self._wanted = wanted
        self._watcher.watch(replace(wanted, inboxes=self.elected))

    def stop(self) -> None:
        """Stop watching and the timer."""
        self._watcher.stop()
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Let another process sweep; the writer has stopped."""
        self._lock.release()

    def _on_change(self, change: MailboxChange) -> None:
        if self.elected and change.kind == "inbox":
            # The store's own messages need no delivery; a forged name is detected on the next scan.
            is_ours = bool(change.file) and parse("inbox", change.file) is not None
            if not is_ours or change.agent in self._large:
                self._note_change(change)
            if not is_ours:
                self._due.add(change.agent)
                self._sweep(expired=False)
        self._notify_change(change)

    def _note_change(self, change: MailboxChange) -> None:
        names = self._changed.setdefault(change.agent, set())
        if names is not None and change.file and len(names) < MAX_CHANGED:
            names.add(change.file)
        else:
            self._changed[change.agent] = None

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self._due |= self._changed.keys()
        self._sweep(expired=True)
        if self.elected and self._loop.time() >= self._pack_at:
            self._pack_at = self._loop.time() + PACK_S
            self._pack(None)

    def _pack(self, current: PackingPass | None) -> None:
        """Pack a piece of the settled messages; other jobs run before the next one."""

        def work(tx: Transaction) -> PackingPass | None:
            key = (current.place, current.agent) if current is not None else ("", "")
            if current is not None:
                if current.pack(tx, self._packed.get(key)):
                    return current
                self._packed[key] = current.quiet
            following = packing.next_agent(tx, key)
            return None if following is None else PackingPass(*following)

        def done(following: PackingPass | None) -> None:
            if following is not None:
                self._pack(following)
            else:
                self._index(IndexingPass())

        self._writer.start(work, done)

    def _index(self, current: IndexingPass) -> None:
        """Index a piece of what was packed; other jobs run before the next one."""

        def done(has_more: bool | None) -> None:
            if has_more and self.elected:
                self._index(current)

        self._writer.start(current.advance, done)

    def _sweep(self, *, expired: bool) -> None:
        if self._busy or not (self._due or expired):
            return
        due, self._due = self._due | self._changed.keys(), set()
        changed, self._changed = self._changed, {}
        self._busy = True

        def work(tx: Transaction) -> SweepResult:
            self.elected, new = self._lock.acquire(tx)
            if not self.elected:
                return [], set()
            return self._run(tx, {""} if new else due, changed, expired=expired)

        before = self.elected

        def done(swept: SweepResult | None) -> None:
            self._busy = False
            if self.elected != before:
                self.watch(self._wanted)
                if self.elected:
                    self._index(IndexingPass())
                # What came before the watch produced no event.
                self._due |= {""} if self.elected else set()
            # Retry failed or incomplete files with the next tick.
            deliveries, settling = swept or ([], due)
            self._changed |= dict.fromkeys(due) if swept is None else {}
            again = bool(self._due)
            self._due |= settling
            self._notify_deliveries(deliveries)
            if again:
                self._sweep(expired=False)

        self._writer.start(work, done)

    def _run(
        self, tx: Transaction, due: set[str], changed: Mapping[str, set[str] | None], *, expired: bool
    ) -> SweepResult:
        """Deliver the dropped files of these agents; one that cannot be handled does not stop the others."""
        deliveries: list[Delivery] = []
        settling: set[str] = set()
        named = {agent for agent in due if is_agent_name(agent)}
        if due != named:
            moved, refused = dropped_files.collect_misplaced(tx)
            named |= moved
            deliveries += refused
        for agent in tx.agents() if "" in due else sorted(named):
            # Those of an inbox that was not watched before are unknown.
            files = None if "" in due else changed.get(agent, set())
            try:
                inbox, delivered = dropped_files.deliver(
                    tx, agent, self._rules, wait_s=0.0, listing=True, changed=files
                )
                if tx.directory.index.is_large(agent):
                    self._large.add(agent)
            except Exception as problem:  # noqa: BLE001 - as the docstring says
                deliveries += dropped_files.report_once(tx, agent, f"inbox/{agent}", problem)
                settling.add(agent)
                self._changed[agent] = None
                continue
            deliveries += delivered
            settling |= {agent} if inbox.retry_soon else set()
            if inbox.partial:
                # The next piece follows at once; other jobs run before it.
                self._due.add(agent)
        if expired and lease_record.is_due(tx):
            deliveries += claims.return_all_expired(tx)
        return deliveries, settling
