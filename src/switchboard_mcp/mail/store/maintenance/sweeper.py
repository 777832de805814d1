"""Periodic maintenance in every process: delivers dropped files and returns expired claims.

Any number of processes may do so concurrently. Schedules the work, which runs in the writer thread.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable, Sequence

from switchboard_mcp.config.agent_names import is_agent_name
from switchboard_mcp.mail.messages import Delivery, DeliveryRule
from switchboard_mcp.mail.store import claims, dropped_files
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import parse
from switchboard_mcp.mail.store.watcher import MailboxChange, Watcher
from switchboard_mcp.mail.store.worker import StoreWorker

# Interval for returning expired leases and for retrying files that were still being written.
TICK_S = 1.0
SweepResult = tuple[list[Delivery], set[str]]


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
        # Agents whose inbox must be scanned; an empty name means all.
        self._due = {""}
        self._busy = False

    def start(self) -> None:
        """Start watching and the timer."""
        self._watcher.start()
        self._tick()

    def stop(self) -> None:
        """Stop watching and the timer."""
        self._watcher.stop()
        if self._timer is not None:
            self._timer.cancel()

    def _on_change(self, change: MailboxChange) -> None:
        # The store's own messages need no delivery; a forged name is detected on the next scan.
        if change.kind == "inbox" and (not change.file or parse("inbox", change.file) is None):
            self._due.add(change.agent)
            self._sweep(expired=False)
        self._notify_change(change)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self._sweep(expired=True)

    def _sweep(self, *, expired: bool) -> None:
        if self._busy or not (self._due or expired):
            return
        due, self._due = self._due, set()
        self._busy = True

        def work(tx: Transaction) -> SweepResult:
            deliveries: list[Delivery] = []
            settling: set[str] = set()
            named = {agent for agent in due if is_agent_name(agent)}
            if due != named:
                moved, refused = dropped_files.collect_misplaced(tx)
                named |= moved
                deliveries += refused
            for agent in tx.agents() if "" in due else sorted(named):
                try:
                    inbox, delivered = dropped_files.deliver(tx, agent, self._rules)
                except Exception as problem:  # noqa: BLE001 - one inbox must not stop the delivery of the others
                    deliveries += dropped_files.report_once(tx, agent, f"inbox/{agent}", problem)
                    settling.add(agent)
                    continue
                deliveries += delivered
                settling |= {agent} if inbox.retry_soon else set()
            for agent in tx.agents("claimed") if expired else ():
                try:
                    deliveries += claims.return_expired(tx, agent)[1]
                except Exception as problem:  # noqa: BLE001 - as above
                    deliveries += dropped_files.report_once(tx, agent, f"claimed/{agent}", problem)
            return deliveries, settling

        def done(swept: SweepResult | None) -> None:
            self._busy = False
            # Retry failed or incomplete files with the next tick.
            deliveries, settling = swept or ([], due)
            again = bool(self._due)
            self._due |= settling
            self._notify_deliveries(deliveries)
            if again:
                self._sweep(expired=False)

        self._writer.start(work, done)
