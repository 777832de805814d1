"""Publishes the workspace's events to a Redis stream that other programs can read.

An event is published only after its source is on disk. The sources are the audit log, or without one the event log
(children, drift, approvals, decisions, calls with hashed arguments), and with mail also receipts and the workflows in
the shared state; a cursor records how far each was published. After a crash an event may be repeated with the same
`id`, but none is lost. Not aware of readers.
"""

from __future__ import annotations

import asyncio
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
from switchboard_mcp.database.machine_clocks import iso_time
from switchboard_mcp.database.transactions import Transaction
from switchboard_mcp.mail.messages import Receipt
from switchboard_mcp.mail.store import rows
from switchboard_mcp.mail.store.rows import MessageRow
from switchboard_mcp.mail.store.store import MessageStore, State

VERSION = 1
STREAM = "events"
# Approximate length of the stream; a reader that falls further behind loses events.
MAX_EVENTS = 100_000
BATCH = 500
# Receipts published at once.
MAX_RECEIPTS = 1_000


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
    """Publishes the events of one workspace folder, with those of mail if there is a `store`.

    `path` is that of `.switchboard`, `audit` the folder of the audit log.
    """

    def __init__(
        self, path: str, client: BusClient, node: BusNode, audit: str, store: MessageStore | None = None
    ) -> None:
        self._path = path
        self._store = store
        self._client = client
        self._node = node
        # The event log is read even if there is an audit log: it may hold events from before that was enabled.
        self._logs = log_folders(path, audit)
        self._cursor: Cursor | None = None
        self.published = 0
        self.lost = 0

    async def pump(self) -> bool:
        """Publish new events; return True if there may be more."""
        if self._cursor is None:
            self._cursor = await asyncio.to_thread(load_cursor, self._path)
        cursor = msgspec.json.decode(msgspec.json.encode(self._cursor), type=Cursor)
        batch = await asyncio.to_thread(self._collect, cursor)
        if self._store is not None:
            mail, full = await self._store.read_rows(lambda tx: self._mail_events(tx, cursor))
            batch.full = batch.full or full
            batch.events += map(_encode, mail)
            batch.events += map(_encode, self._workflow_events(await self._store.state(), cursor))
        if not batch.events and cursor == self._cursor:
            return False
        if batch.events:
            await self._client.publish(STREAM, batch.events, MAX_EVENTS)
        # Saved after the stream was written: a crash in between repeats events instead of losing them.
        await asyncio.to_thread(self._save, cursor)
        self._cursor = cursor
        self.published += len(batch.events)
        self.lost += batch.lost
        return batch.full

    def _save(self, cursor: Cursor) -> None:
        nodes.save(self._path, CURSOR_FILE, cursor, durable=True)
        event_log.remove_read(self._logs["events"], cursor.logs["events"])

    def count_waiting(self) -> int:
        """Return the number of events in the logs that were not published yet. Blocking."""
        return count_waiting(self._cursor or load_cursor(self._path), self._logs)

    def _collect(self, cursor: Cursor) -> EventBatch:
        """Read the logs."""
        batch = EventBatch()
        for name, folder in self._logs.items():
            position = cursor.logs.setdefault(name, LogPosition())
            lines = list(event_log.read_lines(folder, position, BATCH))
            batch.full = batch.full or len(lines) >= BATCH
            for line in lines:
                batch.lost += line.lost
                batch.events += map(_encode, self._log_events(name, line))
        return batch

    def _log_events(self, log: str, line: LogLine) -> Iterable[BusEvent]:
        """Yield the event of one line of a log, after one that reports dropped lines before it."""
        entry = line.entry
        try:
            at = iso_time(entry.at)
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

    def _mail_events(self, tx: Transaction, cursor: Cursor) -> tuple[list[BusEvent], bool]:
        """Return new receipts, those of acceptance and of settlement; and True if there may be more."""
        sent = tx.rows(
            f"SELECT {rows.COLUMNS} FROM message WHERE ord > ? ORDER BY ord LIMIT ?",
            cursor.sent_to,
            MAX_RECEIPTS,
        )
        settled = tx.rows(
            f"SELECT {rows.COLUMNS} FROM message WHERE settled_at IS NOT NULL AND settled_at >= ?"
            " ORDER BY settled_at, ord LIMIT ?",
            cursor.settled_to,
            MAX_RECEIPTS + len(cursor.settled_last),
        )
        events: list[BusEvent] = []
        for row in map(rows.row_of, sent):
            cursor.sent_to = row.order
            events += (self._receipt_event(row, receipt) for receipt in list(rows.receipts_of(row))[:1])
        for row in map(rows.row_of, settled):
            at = row.settled_at or 0
            if row.order in cursor.settled_last and at == cursor.settled_to:
                continue
            if at > cursor.settled_to:
                cursor.settled_to, cursor.settled_last = at, []
            cursor.settled_last.append(row.order)
            events += (self._receipt_event(row, receipt) for receipt in list(rows.receipts_of(row))[1:])
        return events, len(sent) >= MAX_RECEIPTS or len(settled) >= MAX_RECEIPTS

    def _receipt_event(self, row: MessageRow, receipt: Receipt) -> BusEvent:
        final = "" if receipt.status in ("delivered", "refused") else f".{receipt.status}"
        return BusEvent(
            # Every machine of a workspace shares its mail, so a receipt has the same id whichever publishes it.
            id=f"mail/receipt_{receipt.in_reply_to}{final}",
            node=self._node.id,
            at=receipt.processed_at,
            kind="message",
            who=row.sender,
            subject=receipt.in_reply_to,
            outcome=receipt.status,
        )

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
