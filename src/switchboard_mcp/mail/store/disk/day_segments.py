"""Segments: settled messages and old receipts in one file per agent and day, instead of a file each.

`archive/<agent>/days/<day>.jsonl` and `outbox/<agent>/days/<day>.jsonl` are append-only text: each line has the name
that a file had and its content. Files are packed some time after they were settled: they are appended and synced, and
only then removed, so that a crash leaves both; a file counts more than a line. An index in `.switchboard/index/` finds
a line by name or id; it may be deleted at any time, and is brought up to date by reading what was appended since.
Not aware of who packs, or of what the files mean.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.filenames import parse, parse_receipt_name
from switchboard_mcp.mail.store.index.inbox_index import FOLDER as INDEX_FOLDER
from switchboard_mcp.mail.store.index.inbox_index import database_errors, is_busy, open_database
from switchboard_mcp.mail.store.signing import MAX_FILE_BYTES

if TYPE_CHECKING:
    import sqlite3

    from switchboard_mcp.mail.store.directory import Transaction

PACKED_PLACES = ("archive", "outbox")
DAYS = "days"
SEGMENT = re.compile(r"\d{4}-\d\d-\d\d\.jsonl")
DAY_S = 86_400.0
_MAX_LINE = MAX_FILE_BYTES + 1024
# Lines that are indexed in one transaction, which costs three syncs.
_BATCH = 20_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS segments (name TEXT PRIMARY KEY, inode INTEGER, bytes INTEGER);
CREATE TABLE IF NOT EXISTS lines (
  name TEXT PRIMARY KEY, id TEXT, segment TEXT, offset INTEGER, length INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_id ON lines (id);
"""


class SegmentLine(Struct):
    """One line: a file as it was, by name; `at` is when it was last changed, in seconds."""

    name: str
    at: int
    content: Raw


_decoder = msgspec.json.Decoder(SegmentLine)
_encoder = msgspec.json.Encoder()


class PackedFile(Struct, frozen=True):
    """Position of a packed file."""

    name: str
    segment: str
    offset: int
    length: int


def day_of(seconds: float) -> str:
    """Return the name of the segment for a time."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds)) + ".jsonl"


def ends_before(segment: str, until: float) -> bool:
    """Return True if every file in this segment was last changed before this time."""
    return segment < day_of(until)


def id_of(place: str, name: str) -> str | None:
    """Return the message id of a file that may be packed; None for any other file."""
    if place == "outbox":
        receipt = parse_receipt_name(name)
        return receipt[0] if receipt else None
    entry = parse("archive", name) if place == "archive" else None
    return entry.stem.id if entry is not None else None


def names_in(folder: int) -> list[str]:
    """List the segments in a folder, newest first."""
    return sorted((name for name in file_operations.names(folder) if SEGMENT.fullmatch(name)), reverse=True)


def pack(tx: Transaction, place: str, agent: str, days: Mapping[str, str]) -> int:
    """Append files to their segments, by name, and remove them; returns how many. The lock must be held.

    A file that is not JSON on one line stays as it is.
    """
    folder, target = tx.folder(place, agent), tx.folder(place, agent, DAYS, make=True)
    by_segment: dict[str, list[tuple[str, bytes]]] = {}
    for name, segment in days.items():
        content = file_operations.read(folder, name, MAX_FILE_BYTES)
        if isinstance(content, file_operations.RejectedFile) or content.links != 1:
            continue
        line = _line(name, content)
        if line is not None:
            by_segment.setdefault(segment, []).append((name, line))
    for segment, packed in by_segment.items():
        _append(target, segment, b"".join(line for _, line in packed))
    file_operations.sync(target)
    for packed in by_segment.values():
        for name, _ in packed:
            tx.remove(folder, name)
    forget_index(tx, place, agent)
    tx.sync_folders()
    return sum(map(len, by_segment.values()))


def remove_segments(tx: Transaction, place: str, agent: str, until: float) -> Iterator[tuple[str, bytes]]:
    """Remove the segments of the days before this time; yields the name and content of each file in them."""
    if not tx.has(place, agent, DAYS):
        return
    folder = tx.folder(place, agent, DAYS)
    for segment in names_in(folder):
        if ends_before(segment, until):
            for _, _, line in lines(folder, segment):
                yield line.name, bytes(line.content)
            tx.remove(folder, segment)
    forget_index(tx, place, agent)


def _line(name: str, content: file_operations.FileContent) -> bytes | None:
    data = content.data.strip()
    try:
        if b"\n" in data or msgspec.json.decode(data) is None:
            return None
        return _encoder.encode(SegmentLine(name, int(content.changed), Raw(data))) + b"\n"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _append(folder: int, segment: str, data: bytes) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(segment, flags, 0o600, dir_fd=folder)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            data = b"\n" + data  # A crash has torn the last line; its files are still there.
        file_operations.append(descriptor, data)
        file_operations.sync(descriptor)
    finally:
        os.close(descriptor)


def lines(folder: int, segment: str, start: int = 0) -> Iterator[tuple[int, int, SegmentLine]]:
    """Read a segment: yields the offset and length of each whole line, and the line."""
    try:
        descriptor = os.open(segment, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return
    with open(descriptor, "rb") as file:
        file.seek(start)
        offset = start
        while (line := file.readline(_MAX_LINE)).endswith(b"\n"):
            try:
                yield offset, len(line), _decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass
            offset += len(line)


def names(tx: Transaction, place: str, agent: str) -> Iterator[str]:
    """List the names of all packed files, oldest first. Reads every segment."""
    if place in PACKED_PLACES and tx.has(place, agent, DAYS):
        folder = tx.folder(place, agent, DAYS)
        for segment in reversed(names_in(folder)):
            yield from (line.name for _, _, line in lines(folder, segment))


def sizes(tx: Transaction, place: str, agent: str, *, until: float | None = None) -> Iterator[int]:
    """Return the size of each packed file, of the days before `until` if set. Reads the segments."""
    if tx.has(place, agent, DAYS):
        folder = tx.folder(place, agent, DAYS)
        for segment in names_in(folder):
            if until is None or ends_before(segment, until):
                yield from (length for _, length, _ in lines(folder, segment))


def total_bytes(tx: Transaction, place: str, agent: str) -> int:
    """Return the size of all segments."""
    if not tx.has(place, agent, DAYS):
        return 0
    folder = tx.folder(place, agent, DAYS)
    return sum(file_operations.size(folder, name) for name in names_in(folder))


def appended(
    tx: Transaction, place: str, agent: str, known: Callable[[str], int]
) -> Iterator[tuple[str, int, Iterator[tuple[int, int, SegmentLine]]]]:
    """Yield each segment that has grown beyond its `known` size, that size, and the lines since."""
    if tx.has(place, agent, DAYS):
        folder = tx.folder(place, agent, DAYS)
        for segment in reversed(names_in(folder)):
            start = known(segment)
            if file_operations.size(folder, segment) > start:
                yield segment, start, lines(folder, segment, start)


def find(tx: Transaction, place: str, agent: str, message_id: str) -> list[PackedFile]:
    """Return the packed files of a message."""
    return _select(tx, place, agent, "id", message_id)


def read(tx: Transaction, place: str, agent: str, name: str) -> file_operations.FileContent | None:
    """Return the content of a packed file, as it was; None if there is none."""
    for packed in _select(tx, place, agent, "name", name):
        line = _read_line(tx.folder(place, agent, DAYS), packed)
        if line is not None and line.name == name:
            return file_operations.FileContent(bytes(line.content) + b"\n", float(line.at), 0)
    return None


def _read_line(folder: int, packed: PackedFile) -> SegmentLine | None:
    try:
        descriptor = os.open(packed.segment, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        return _decoder.decode(os.pread(descriptor, packed.length, packed.offset))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    finally:
        os.close(descriptor)


def _select(tx: Transaction, place: str, agent: str, column: str, value: str) -> list[PackedFile]:
    """Find packed files by name or id: in the index, or by reading all segments if there can be none."""
    if place not in PACKED_PLACES or not tx.has(place, agent, DAYS):
        return []
    folder = tx.folder(place, agent, DAYS)
    try:
        connection = _index(tx, place, agent, folder)
        query = f"SELECT name, segment, offset, length FROM lines WHERE {column} = ?"
        return [PackedFile(*row) for row in connection.execute(query, (value,))]
    except database_errors() as problem:
        forget_index(tx, place, agent, remove=not is_busy(problem))
        return [
            PackedFile(line.name, segment, offset, length)
            for segment in names_in(folder)
            for offset, length, line in lines(folder, segment)
            if value == (line.name if column == "name" else id_of(place, line.name))
        ]


def _index(tx: Transaction, place: str, agent: str, folder: int) -> sqlite3.Connection:
    """Return the index, opened and brought up to date once in a transaction. Raises one of `database_errors`."""
    known = tx.segment_indexes.get((place, agent))
    if known is None:
        known = tx.segment_indexes[place, agent] = open_database(
            _index_file(tx, place, agent), _SCHEMA, durable=True
        )
        _catch_up(known, folder, place, names_in(folder))
    return known


def _index_file(tx: Transaction, place: str, agent: str) -> str:
    return os.path.join(tx.directory.path, INDEX_FOLDER, f"{agent}.{place}.db")


def forget_index(tx: Transaction, place: str, agent: str, *, remove: bool = False) -> None:
    """Close the index, because the segments have changed; remove it if it cannot be used."""
    known = tx.segment_indexes.pop((place, agent), None)
    if known is not None:
        known.close()
    for suffix in ("", "-journal") if remove else ():
        try:
            os.unlink(_index_file(tx, place, agent) + suffix)
        except OSError:
            continue


def _catch_up(connection: sqlite3.Connection, folder: int, place: str, present: Sequence[str]) -> None:
    """Index what was appended since, in pieces."""
    known = {
        name: (inode, size)
        for name, inode, size in connection.execute("SELECT name, inode, bytes FROM segments")
    }
    for segment in known.keys() - set(present):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM lines WHERE segment = ?", (segment,))
        connection.execute("DELETE FROM segments WHERE name = ?", (segment,))
        connection.execute("COMMIT")
    for segment in reversed(present):
        inode, indexed = known.get(segment, (0, 0))
        size, now = file_operations.size(folder, segment), file_operations.inode(folder, segment)
        if (inode, indexed) == (now, size):
            continue
        start = indexed if inode == now and indexed <= size else 0
        rows: list[tuple[str, str | None, str, int, int]] = []
        for offset, length, line in lines(folder, segment, start):
            rows.append((line.name, id_of(place, line.name), segment, offset, length))
            if len(rows) >= _BATCH:
                _add(connection, segment, now, offset + length, rows)
                rows = []
        end = rows[-1][3] + rows[-1][4] if rows else size
        _add(connection, segment, now, max(end, indexed if start else 0), rows)


def _add(
    connection: sqlite3.Connection,
    segment: str,
    inode: int,
    end: int,
    rows: Sequence[tuple[str, str | None, str, int, int]],
) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?, ?)", rows)
    connection.execute("INSERT OR REPLACE INTO segments VALUES (?, ?, ?)", (segment, inode, end))
    connection.execute("COMMIT")
