"""Reads the logs that events are published from: the audit log, or the event log that is kept without one.

Both have the format of the audit log. The cursor records how far they were published; lines that were deleted before
they were read are counted. Not aware of Redis.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from msgspec import Struct

from switchboard_mcp.bus import node as nodes
from switchboard_mcp.config.sections import EVENT_LOG
from switchboard_mcp.observability.audit import hash_chain
from switchboard_mcp.observability.audit.entry import AuditEntry
from switchboard_mcp.observability.audit.segments import last_seq, segment_name, segment_numbers

READ_BYTES = 1_048_576
CURSOR_FILE = "events.json"


class LogPosition(Struct):
    """The position up to which a log was read: its file, the offset there, and the number of the last line."""

    file: int = 0
    offset: int = 0
    seq: int = 0


class Cursor(Struct):
    """Progress of publishing, per source."""

    logs: dict[str, LogPosition] = {}
    """By name: `audit`, and `events` for the event log."""
    file: int = 0
    """The position in the audit log, as earlier releases saved it; removed in the next release."""
    offset: int = 0
    sent_to: int = 0
    """The order of the last message whose first receipt was published."""
    settled_to: int = 0
    """The time of the last settlement that was published, in milliseconds."""
    settled_last: list[int] = []
    """The messages that were settled at this time and published."""
    phases: dict[str, str] = {}


class LogLine(Struct):
    """One line of a log, and the number of lines before it that were deleted unread."""

    entry: AuditEntry
    lost: int = 0


def read_lines(folder: str, position: LogPosition, limit: int) -> Iterator[LogLine]:
    """Yield at most `limit` lines after the position, and advance it. Lines that are not records are skipped."""
    count = 0
    for number in _numbers(folder):
        if number < position.file:
            continue
        if number > position.file:
            position.file, position.offset = number, 0
        while count < limit and (data := _read(folder, position)):
            for line in data.splitlines(keepends=True):
                if count >= limit:
                    return
                position.offset += len(line)
                count += 1
                entry = hash_chain.parse_line(line.rstrip(b"\n"))
                if entry is None:
                    continue
                # A lower number begins a new chain, in an emptied folder.
                lost = max(0, entry.seq - position.seq - 1) if position.seq else 0
                position.seq = entry.seq
                yield LogLine(entry, lost)


def _read(folder: str, position: LogPosition) -> bytes:
    """Return whole lines at the position; a block without a line end is not a log, and is returned unchanged."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(os.path.join(folder, segment_name(position.file)), flags)
    except OSError:
        return b""
    try:
        data = os.pread(descriptor, READ_BYTES, position.offset)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    end = data.rfind(b"\n") + 1
    return data if not end and len(data) == READ_BYTES else data[:end]


def count_unread(folder: str, position: LogPosition) -> int:
    """Return the number of lines after the position."""
    return max(0, last_seq(folder) - position.seq)


def remove_read(folder: str, position: LogPosition) -> None:
    """Delete the files before the position."""
    for number in _numbers(folder):
        if number < position.file:
            try:
                os.unlink(os.path.join(folder, segment_name(number)))
            except OSError:
                return


def _numbers(folder: str) -> list[int]:
    try:
        return segment_numbers(folder)
    except OSError:
        return []


def log_folders(path: str, audit: str) -> dict[str, str]:
    """Return the folders of the logs by name. `path` is that of `.switchboard`."""
    return {"events": os.path.join(os.path.dirname(path), EVENT_LOG.path)} | (
        {"audit": audit} if audit else {}
    )


def load_cursor(path: str) -> Cursor:
    """Return the saved progress of publishing. `path` is that of `.switchboard`."""
    cursor = nodes.load(path, CURSOR_FILE, Cursor) or Cursor()
    for name in ("audit", "events"):
        cursor.logs.setdefault(name, LogPosition())
    if not cursor.logs["audit"].file:
        cursor.logs["audit"] = LogPosition(cursor.file, cursor.offset)
    return cursor


def read_waiting(workspace: str, audit: str) -> int:
    """Return the number of events of a workspace that were not published yet, whether or not a publisher runs there."""
    path = os.path.join(workspace, ".switchboard")
    return count_waiting(load_cursor(path), log_folders(path, audit))


def count_waiting(cursor: Cursor, logs: Mapping[str, str]) -> int:
    """Return the number of lines in these logs that were not published yet."""
    return sum(count_unread(folder, cursor.logs[name]) for name, folder in logs.items())
