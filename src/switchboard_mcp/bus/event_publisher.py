"""Publishes the workspace's events to a Redis stream that other programs can read.

An event is published only after its source is on disk. The sources are the audit log, or without one the event log
(children, drift, approvals, decisions, calls with hashed arguments), and with mail also receipts and the workflows in
the shared state; a cursor records how far each was published. After a crash an event may be repeated with the same
`id`, but none is lost. Not aware of readers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from switchboard_mcp.bus import event_log
from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus.event_log import (
    CURSOR_FILE,
    Cursor,
    LogLine,
    LogPosition,
    count_waiting,
    load_cursor,
    log_folders,
)
from switchboard_mcp.bus.node import BusNode
from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.mail.store import file_operations, receipts
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import parse_receipt_name
from switchboard_mcp.mail.store.store import MessageStore, State

VERSION = 1
STREAM = "events"
# Approximate length of the stream; a reader that falls further behind loses events.
MAX_EVENTS = 100_000
BATCH = 500
# Receipts published at once: reading more would keep the store from accepting messages meanwhile.
MAX_RECEIPTS = 1_000
# Without a reported change, the receipts of each agent are checked after this time; those of a few agents always.
CHECK_S_PER_AGENT, FEW_AGENTS = 0.01, 50
# A receipt may be renamed into place slightly after its timestamp.
OVERLAP_S = 2.0


class BusEvent(Struct, rename="camel", kw_only=True, omit_defaults=True):
    """One event, as encoded in the stream's `event` field together with the version."""

    id: str
    """Identical for every repetition of the same event."""
    node: str
    at: str
    """ISO 8601, by the clock of the machine where it happened."""
    kind: str
    """`child`, `drift`, `approval`, `decision`, `call`, `message`, `workflow`, or another kind of audit entry."""
    who: str = ""
    child: str = ""
    subtool: str = ""
    args: str = ""
    """The keyed hash of a call's arguments."""
    outcome: str = ""
    subject: str = ""
    """The id of the message or workflow."""
    phase: str = ""
    count: int = 0
    """`lost`: the number of events that were dropped before this one, because nothing published them in time."""


class EventBatch(Struct):
    """Encoded events, how many were dropped before they were read, and whether there may be more."""

    events: list[bytes] = []
    lost: int = 0
    full: bool = False


class EventPublisher:
    """Publishes the events of one workspace folder. `audit` is the folder of the audit log, if one is kept."""

    def __init__(
        self, store: MessageStore, client: BusClient, node: BusNode, audit: str, *, mail: bool = True
    ) -> None:
        self._store = store
        self._client = client
        self._node = node
        # The event log is read even if there is an audit log: it may hold events from before that was enabled.
        self._logs = log_folders(store.path, audit)
        self._mail = mail
        self._cursor: Cursor | None = None
        self.published = 0
        self.lost = 0
        # The times of receipts by agent, so that each needs one stat(): with thousands that would dominate each pass.
        self._receipt_times: dict[str, dict[str, float]] = {}
        self._mail_changed = True
        self._mail_check_at = 0.0

    def on_change(self) -> None:
        """Note that there may be a new receipt, or a change of the shared state."""
        self._mail_changed = True

    async def pump(self) -> bool:
        """Publish new events; return True if there may be more."""
        if self._cursor is None:
            self._cursor = await self._store.run(load_cursor)
        cursor = msgspec.json.decode(msgspec.json.encode(self._cursor), type=Cursor)
        mail = self._mail and (self._mail_changed or time.monotonic() >= self._mail_check_at)
        batch = await self._store.run(lambda tx: self._collect(tx, cursor, mail=mail))
        if mail:
            batch.events += map(_encode, self._workflow_events(await self._store.state(), cursor))
        if not batch.events and cursor == self._cursor:
            return False
        if batch.events:
            await self._client.publish(STREAM, batch.events, MAX_EVENTS)
        # Saved after the stream was written: a crash in between repeats events instead of losing them.
        await self._store.run(lambda tx: self._save(tx, cursor))
        self._cursor = cursor
        self.published += len(batch.events)
        self.lost += batch.lost
        return batch.full

    def _save(self, tx: Transaction, cursor: Cursor) -> None:
        nodes.save(tx, CURSOR_FILE, cursor, durable=True)
        event_log.remove_read(self._logs["events"], cursor.logs["events"])

    def count_waiting(self, tx: Transaction) -> int:
        """Return the number of events in the logs that were not published yet."""
        return count_waiting(self._cursor or load_cursor(tx), self._logs)

    def _collect(self, tx: Transaction, cursor: Cursor, *, mail: bool) -> EventBatch:
        """Read the sources. Events are encoded here, in the store's thread, to keep the event loop free."""
        batch = EventBatch()
        for name, folder in self._logs.items():
            position = cursor.logs.setdefault(name, LogPosition())
            lines = list(event_log.read_lines(folder, position, BATCH))
            batch.full = batch.full or len(lines) >= BATCH
            for line in lines:
                batch.lost += line.lost
                batch.events += map(_encode, self._log_events(tx, name, line))
        if mail:
            self._mail_changed = False  # A change that is reported from now on counts for the next time.
            published = list(map(_encode, self._mail_events(tx, cursor)))
            batch.events += published
            if len(published) >= MAX_RECEIPTS:
                batch.full = self._mail_changed = True
        return batch

    def _log_events(self, tx: Transaction, log: str, line: LogLine) -> Iterable[BusEvent]:
        """Yield the event of one line of a log, after one that reports dropped lines before it."""
        entry = line.entry
        try:
            at = tx.clocks.iso(entry.at)
        except (ValueError, OverflowError, OSError):
            return  # Not a time, so not written by us.
        id = f"{self._node.id}/{log}/{entry.hash[:32]}"
        if line.lost:
            yield BusEvent(id=f"{id}/lost", node=self._node.id, at=at, kind="lost", count=line.lost)
        if entry.kind not in ("begin", "torn"):
            yield BusEvent(
                id=id,
                node=self._node.id,
                at=at,
                kind=entry.kind,
                who=entry.principal,
                child=entry.child,
                subtool=entry.subtool,
                args=entry.args,
                outcome=entry.outcome,
                count=entry.count,
            )

    def _mail_events(self, tx: Transaction, cursor: Cursor) -> Iterable[BusEvent]:
        """Yield new receipts of local agents: one when a message is accepted, one when it is finished."""
        recent, now = set(cursor.recent), time.time()
        # The clock may have been set back: receipts of the future are known by name until it is there again.
        cursor.published_until = min(cursor.published_until, now)
        fresh = self._new_receipts(tx, cursor.published_until - OVERLAP_S)
        del fresh[MAX_RECEIPTS + len(recent) :]
        for changed, agent, name in fresh:
            cursor.published_until = max(cursor.published_until, min(changed, now))
            parsed = parse_receipt_name(name) if name not in recent else None
            receipt = receipts.read(tx, agent, *parsed) if parsed is not None else None
            if receipt is None:
                continue
            yield BusEvent(
                id=f"{self._node.id}/mail/{name.removesuffix('.json')}",
                node=self._node.id,
                at=receipt.processed_at,
                kind="message",
                who=agent,
                subject=receipt.in_reply_to,
                outcome=receipt.status,
            )
        cursor.recent = [name for changed, _, name in fresh if changed >= cursor.published_until - OVERLAP_S]

    def _new_receipts(self, tx: Transaction, since: float) -> list[tuple[float, str, str]]:
        """Return time, agent and name of the receipts since this time, in order."""
        agents = tx.agents("outbox")
        self._mail_check_at = time.monotonic() + max(0, len(agents) - FEW_AGENTS) * CHECK_S_PER_AGENT
        fresh = []
        for agent in agents:
            if tx.is_remote(agent):
                continue
            folder = tx.folder("outbox", agent)
            if os.fstat(folder).st_mtime < since:
                continue
            known_times = self._receipt_times.get(agent, {})
            times = self._receipt_times[agent] = {
                name: known_times.get(name) or file_operations.mtime(folder, name) or 0.0
                for name, _ in file_operations.entries(folder)
            }
            fresh += [
                (changed, agent, name)
                for name, changed in times.items()
                if changed >= since and parse_receipt_name(name) is not None
            ]
        return sorted(fresh)

    def _workflow_events(self, state: State, cursor: Cursor) -> list[BusEvent]:
        """Return every workflow step since the last call."""
        part = state.get("workflows")
        runs = part if isinstance(part, dict) else {}
        events: list[BusEvent] = []
        now: dict[str, str] = {}
        for id, run in runs.items():
            if not isinstance(run, dict):
                continue
            steps = _steps(run)
            now[id] = f"{len(steps)}/{run.get('phase', '')}/{run.get('status', 'running')}"
            before = cursor.phases.get(id, "")
            if before != now[id]:
                first = int(before.partition("/")[0]) + 1 if before else 0
                events += [
                    self._workflow_event(id, run, at) for at in range(min(first, len(steps)), len(steps) + 1)
                ]
        cursor.phases = now
        return events

    def _workflow_event(self, id: str, run: dict[str, Any], count: int) -> BusEvent:
        """Return the event for a workflow's position after `count` steps."""
        steps = _steps(run)
        is_last = count == len(steps)
        phase = run.get("phase", "") if is_last else steps[count].get("phase", "")
        status = run.get("status", "running") if is_last else "running"
        return BusEvent(
            # Every machine shares the workflow, so the same step has the same id whichever machine publishes it.
            id=f"workflow/{id}/{count}/{phase}/{status}",
            node=self._node.id,
            at=str(steps[count - 1].get("at", "") if count else run.get("startedAt", "")),
            kind="workflow",
            who=str(steps[count - 1].get("by", "") if count else run.get("startedBy", "")),
            subject=id,
            phase=str(phase),
            outcome=str(status),
        )


def _encode(event: BusEvent) -> bytes:
    return msgspec.json.encode({"v": VERSION, **msgspec.to_builtins(event)})


def _steps(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of a workflow, skipping invalid ones that other programs may have written."""
    steps = run.get("steps")
    return [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
