"""The history of calls over 30 days, in a small SQLite file in the user's state folder.

Once a minute the counts since the last time are written, in a thread: for all children together per minute, and per
child for each quarter of an hour. Rows become coarser with age, and the oldest are dropped if the file grows too
large. A row belongs to one run of one server, which replaces it as it grows, so servers of one workspace share the
file. Only numbers and names of children are stored. If the file cannot be used, there is no history.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from switchboard_mcp.observability.timeline import BOUNDS, Span, percentile
from switchboard_mcp.system import work_thread

if TYPE_CHECKING:
    import sqlite3

    from switchboard_mcp.observability.log import Log
    from switchboard_mcp.server.dashboard.call_log import CallLog
    from switchboard_mcp.server.dashboard.savings_history import SavingsHistory

FLUSH_S = 60.0
MINUTE_S, QUARTER_S, DAY_S = 60, 900, 86_400
# Minutes are kept this long, then quarters of an hour.
FINE_S = 2 * DAY_S
KEEP_S = 30 * DAY_S
THIN_EVERY_S = 3_600.0
# Deleted at a time if the file is too large.
DROPPED_PART = 0.1
# Seconds that a range shows, and the width of its points: a chart has some hundred of them.
RANGES = {
    "5m": (300, 5),
    "1h": (3_600, MINUTE_S),
    "6h": (21_600, MINUTE_S),
    "24h": (DAY_S, 300),
    "7d": (7 * DAY_S, 1_800),
    "30d": (30 * DAY_S, 7_200),
}
SCHEMA = """
PRAGMA auto_vacuum = INCREMENTAL;
CREATE TABLE IF NOT EXISTS spans (
  at INTEGER NOT NULL, width INTEGER NOT NULL, child TEXT NOT NULL, run TEXT NOT NULL,
  calls INTEGER NOT NULL, errors INTEGER NOT NULL, saved INTEGER NOT NULL, bins BLOB NOT NULL,
  PRIMARY KEY (at, width, child, run)
) WITHOUT ROWID;
"""


BUSY_S = 5.0


def database_errors() -> tuple[type[Exception], ...]:
    """Return what a database that cannot be used may raise."""
    from sqlite3 import Error

    return OSError, Error


def open_database(path: str, schema: str) -> sqlite3.Connection:
    """Open a database, creating it and its folder. Raises one of `database_errors`."""
    from sqlite3 import connect

    folder = os.path.dirname(path)
    os.makedirs(folder, 0o700, exist_ok=True)
    info = os.stat(folder, follow_symlinks=False)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
        raise OSError(errno.EINVAL, "is not a folder of ours", folder)
    try:
        info = os.stat(path, follow_symlinks=False)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise OSError(errno.EINVAL, "is not a file of ours", path)
    except FileNotFoundError:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    connection = connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    # Not WAL: its shared memory is mapped, so a program that truncates the file would end this process.
    connection.execute("PRAGMA journal_mode=PERSIST")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.executescript(f"BEGIN; {schema} COMMIT;")
    return connection


class HistoryRow(Struct):
    """The calls of one span: of all children if `child` is empty. `bins` counts durations; `saved` are tokens."""

    at: int
    width: int
    child: str
    calls: int = 0
    errors: int = 0
    saved: int = 0
    bins: dict[int, int] = {}

    def add(self, other: HistoryRow) -> None:
        """Add the counts of another row."""
        self.calls += other.calls
        self.errors += other.errors
        self.saved += other.saved
        for index, count in other.bins.items():
            self.bins[index] = self.bins.get(index, 0) + count


class HistoryPoint(Struct, array_like=True, frozen=True):
    """One span: start (ms), width (s), calls, errors, percentiles of the duration (ms), and tokens saved in it."""

    at: int
    seconds: int
    calls: int
    errors: int
    p50: float
    p95: float
    saved: int = 0


def to_point(row: HistoryRow) -> HistoryPoint:
    """Return a row as a point."""
    bins = [row.bins.get(index, 0) for index in range(len(BOUNDS) + 1)]
    p50, p95 = percentile(bins, 0.5), percentile(bins, 0.95)
    return HistoryPoint(row.at * 1000, row.width, row.calls, row.errors, p50, p95, row.saved)


class HistoryFile:
    """The file. All methods block."""

    def __init__(self, path: str, most_bytes: int, run: str) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._run = run
        self._thinned_at = 0.0

    def write(self, rows: list[HistoryRow], now: float) -> None:
        """Write rows of this run, each in place of its earlier version; thin out the rest now and then."""
        connection = open_database(self._path, SCHEMA)
        try:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(
                    "INSERT OR REPLACE INTO spans VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    [self._values(row, self._run) for row in rows],
                )
            if now - self._thinned_at >= THIN_EVERY_S:
                self._thinned_at = now
                self._thin(connection, int(now))
                self._shrink(connection)
        finally:
            connection.close()

    def read(self, since: int, width: int, child: str) -> list[HistoryPoint]:
        """Return the points since a time, merged to at least this width, oldest first."""
        if not os.path.exists(self._path):
            return []
        connection = open_database(self._path, SCHEMA)
        try:
            rows = connection.execute(
                "SELECT at, width, child, calls, errors, saved, bins FROM spans WHERE at >= ? AND child = ?",
                (since - width, child),
            )
            merged: dict[int, HistoryRow] = {}
            for values in rows:
                row = _row(values)
                wide = max(width, row.width)
                begin = row.at // wide * wide
                merged.setdefault(begin, HistoryRow(begin, wide, child)).add(row)
        finally:
            connection.close()
        return [to_point(merged[at]) for at in sorted(merged) if at + merged[at].width > since]

    def _thin(self, connection: sqlite3.Connection, now: int) -> None:
        """Merge old minutes into quarters of an hour, and drop what is too old."""
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM spans WHERE at < ?", (now - KEEP_S,))
            fine = "FROM spans WHERE width = ? AND child = '' AND at < ?"
            limits = (MINUTE_S, (now - FINE_S) // QUARTER_S * QUARTER_S)
            merged: dict[int, HistoryRow] = {}
            for values in connection.execute(
                f"SELECT at, width, child, calls, errors, saved, bins {fine}", limits
            ):
                row = _row(values)
                begin = row.at // QUARTER_S * QUARTER_S
                merged.setdefault(begin, HistoryRow(begin, QUARTER_S, "")).add(row)
            connection.execute(f"DELETE {fine}", limits)
            connection.executemany(
                "INSERT OR REPLACE INTO spans VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [self._values(row, "merged") for row in merged.values()],
            )

    def _shrink(self, connection: sqlite3.Connection) -> None:
        """Drop the oldest rows while the file is too large."""
        while True:
            (pages,), (free,), (size,) = (
                connection.execute(f"PRAGMA {name}").fetchone()
                for name in ("page_count", "freelist_count", "page_size")
            )
            if (pages - free) * size <= self._most_bytes:
                break
            (rows,) = connection.execute("SELECT count(*) FROM spans").fetchone()
            if not rows:
                break
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                (limit,) = connection.execute(
                    "SELECT at FROM spans ORDER BY at LIMIT 1 OFFSET ?", (int(rows * DROPPED_PART),)
                ).fetchone()
                connection.execute("DELETE FROM spans WHERE at <= ?", (limit,))
        connection.execute("PRAGMA incremental_vacuum").fetchall()

    @staticmethod
    def _values(row: HistoryRow, run: str) -> tuple[object, ...]:
        bins = msgspec.msgpack.encode(row.bins)
        return (row.at, row.width, row.child, run, row.calls, row.errors, row.saved, bins)


class HistoryRecorder:
    """Collects what has to be written, and writes it once a minute. It reads counters only: calls pay nothing."""

    def __init__(self, file: HistoryFile, calls: CallLog, savings: SavingsHistory, log: Log) -> None:
        self._file = file
        self._calls = calls
        self._savings = savings
        self._log = log
        self._rows: dict[
            tuple[int, str], HistoryRow
        ] = {}  # those that may still grow, or are not written yet
        self._seen: dict[str, tuple[int, int]] = {}  # calls and errors of each child that were counted
        self._saved = 0
        self._seq = 0
        self._lock = asyncio.Lock()
        self.is_broken = False
        calls.timeline.on_minute = self._add_minute

    async def run(self) -> None:
        """Write once a minute until cancelled, and once more then."""
        try:
            while not self.is_broken:
                await asyncio.sleep(FLUSH_S)
                await self.flush()
        finally:
            if not self.is_broken and not self._is_written():
                with suppress(OSError, *database_errors()):
                    self.write_now()

    async def flush(self) -> None:
        """Write what has happened since the last time."""
        async with self._lock:
            if self.is_broken or self._is_written():
                return
            self._seq = self._calls.seq
            now = self._calls.clock()
            rows = self._collect(now)
            try:
                await work_thread.run_alone(lambda: self._file.write(rows, now))
            except database_errors() as problem:
                self.is_broken = True
                self._log.warning("dashboard.history", problem=str(problem), hint="There is no history.")

    def _is_written(self) -> bool:
        """Return True if nothing has changed. Tokens are counted some seconds after the calls that save them."""
        return self._calls.seq == self._seq and self._savings.points[-1].saved == self._saved

    def write_now(self) -> None:
        """Write what has happened since the last time. Blocks."""
        self._seq, now = self._calls.seq, self._calls.clock()
        self._file.write(self._collect(now), now)

    async def points(self, name: str, child: str) -> list[HistoryPoint]:
        """Return the points of a range. Raises an error of the database."""
        await self.flush()
        seconds, width = RANGES[name]
        since = int(self._calls.clock()) - seconds
        return await work_thread.run_alone(
            lambda: self._file.read(since, max(width, QUARTER_S) if child else width, child)
        )

    def _collect(self, now: float) -> list[HistoryRow]:
        minute = int(now) // MINUTE_S * MINUTE_S
        for span in self._calls.timeline.open_minutes():
            self._rows[span.at, ""] = _of_span(span, self._rows.get((span.at, "")))
        saved = self._savings.points[-1].saved
        if saved != self._saved:
            row = self._rows.setdefault((minute, ""), HistoryRow(minute, MINUTE_S, "", bins={}))
            row.saved += saved - self._saved
            self._saved = saved
        quarter = int(now) // QUARTER_S * QUARTER_S
        for child, timeline in self._calls.timelines.items():
            calls, errors = self._seen.get(child, (0, 0))
            if timeline.calls != calls:
                row = self._rows.setdefault((quarter, child), HistoryRow(quarter, QUARTER_S, child, bins={}))
                row.calls += timeline.calls - calls
                row.errors += timeline.errors - errors
                row.bins = timeline.bins()
                self._seen[child] = (timeline.calls, timeline.errors)
        rows = list(self._rows.values())
        # A minute that is over does not grow any more.
        keep = min(minute - MINUTE_S, quarter)
        self._rows = {key: row for key, row in self._rows.items() if row.at >= keep}
        return rows

    def _add_minute(self, span: Span) -> None:
        self._rows[span.at, ""] = _of_span(span, self._rows.get((span.at, "")))


def _of_span(span: Span, row: HistoryRow | None) -> HistoryRow:
    bins = {index: count for index, count in enumerate(span.bins) if count}
    saved = row.saved if row is not None else 0
    return HistoryRow(span.at, MINUTE_S, "", span.calls, span.errors, saved, bins)


def _row(values: tuple[int, int, str, int, int, int, bytes]) -> HistoryRow:
    at, width, child, calls, errors, saved, bins = values
    try:
        counts: Mapping[int, int] = msgspec.msgpack.decode(bins, type=dict[int, int])
    except (msgspec.MsgspecError, TypeError):
        counts = {}
    return HistoryRow(at, width, child, calls, errors, saved, dict(counts))
