"""Segments: settled messages and old receipts in one file per agent and day, instead of a file each.

`archive/<agent>/days/<day>.jsonl` and `outbox/<agent>/days/<day>.jsonl` are append-only text: each line has the name
that a file had and its content. Files are packed some time after they were settled: they are appended and synced, and
only then removed, so that a crash leaves both; a file counts more than a line. An index in `.switchboard/index/` finds
a line by name or id; it may be deleted at any time, and is brought up to date in pieces by reading what was appended
since. What it does not have yet is searched in the segments themselves. Not aware of who packs, or of what the files
mean.
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
from switchboard_mcp.mail.store.filenames import name_patterns, parse, parse_receipt_name
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
# Lines that are indexed in one transaction, which costs three syncs: about 0.1 s. A lookup indexes no more than that.
_BATCH = 10_000
# Lookups in one transaction that search what is not indexed yet: about 1 s for a gigabyte. With more, all is indexed.
MAX_SEARCHES = 4
# Bytes of a segment that are read at once.
_CHUNK = 4 * 1_048_576
_TAIL = 262_144
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


class SegmentsNotIndexedError(Exception):
    """Many lookups are needed, and the segments are not indexed yet. Index a piece, and try again."""


class SegmentIndex:
    """An open index, and from where on each segment is not in it yet."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.unindexed: dict[str, int] = {}
        self.searches = 0

    def close(self) -> None:
        """Close the database."""
        self.connection.close()


def has_index(tx: Transaction, place: str, agent: str) -> bool:
    """Return True if these segments were indexed before."""
    return os.path.exists(_index_file(tx, place, agent))


def index_piece(tx: Transaction, place: str, agent: str) -> bool:
    """Index some lines that were appended; returns True if there are more."""
    if not tx.has(place, agent, DAYS):
        return False
    forget_index(tx, place, agent)
    try:
        return bool(_index(tx, place, agent, tx.folder(place, agent, DAYS)).unindexed)
    except database_errors() as problem:
        forget_index(tx, place, agent, remove=not is_busy(problem))
        return False


def _select(tx: Transaction, place: str, agent: str, column: str, value: str) -> list[PackedFile]:
    """Find packed files by name or id: in the index, and by searching what is not in it."""
    if place not in PACKED_PLACES or not tx.has(place, agent, DAYS):
        return []
    folder = tx.folder(place, agent, DAYS)
    try:
        index = _index(tx, place, agent, folder)
        if index.unindexed and not tx.waits_for_segments:
            raise SegmentsNotIndexedError
        if index.unindexed and index.searches >= MAX_SEARCHES:
            index.unindexed = _catch_up(index.connection, folder, place, names_in(folder), None)
        query = f"SELECT name, segment, offset, length FROM lines WHERE {column} = ?"
        found = [PackedFile(*row) for row in index.connection.execute(query, (value,))]
        index.searches += 1
        unindexed = index.unindexed
    except database_errors() as problem:
        forget_index(tx, place, agent, remove=not is_busy(problem))
        found, unindexed = [], dict.fromkeys(names_in(folder), 0)
    for segment, start in unindexed.items():
        found += _search(folder, segment, start, place, column, value)
    return found


def _search(
    folder: int, segment: str, start: int, place: str, column: str, value: str
) -> Iterator[PackedFile]:
    """Find lines of a segment by name or id without an index: only lines that contain the text are decoded."""
    if column == "name":
        needles = [f'"{value}"'.encode()]
    elif place == "outbox":
        needles = [f'"receipt_{value}.'.encode()]
    else:
        needles = [(f"{text}" if at else f'"{text}').encode() for text, at in name_patterns(value)]
    for offset, line in _lines_with(folder, segment, start, needles):
        try:
            name = _decoder.decode(line).name
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if value == (name if column == "name" else id_of(place, name)):
            yield PackedFile(name, segment, offset, len(line))


def _lines_with(
    folder: int, segment: str, start: int, needles: Sequence[bytes]
) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and content of each whole line that contains one of these texts."""
    try:
        descriptor = os.open(segment, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return
    with open(descriptor, "rb", buffering=0) as file:
        file.seek(start)
        rest = b""
        while chunk := file.read(_CHUNK):
            data = rest + chunk
            end = data.rfind(b"\n") + 1
            begins = set()
            for needle in needles:
                place = data.find(needle, 0, end)
                while place >= 0:
                    begins.add(data.rfind(b"\n", 0, place) + 1)
                    place = data.find(needle, data.find(b"\n", place), end)
            for begin in sorted(begins):
                yield start + begin, data[begin : data.find(b"\n", begin) + 1]
            start += end
            rest = data[end:]


def newest(tx: Transaction, place: str, agent: str) -> Iterator[SegmentLine]:
    """Yield the packed files, those that were packed last first. Reads no more than is asked for."""
    if tx.has(place, agent, DAYS):
        folder = tx.folder(place, agent, DAYS)
        for segment in names_in(folder):
            yield from _from_the_end(folder, segment)


def _from_the_end(folder: int, segment: str) -> Iterator[SegmentLine]:
    try:
        descriptor = os.open(segment, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return
    with open(descriptor, "rb", buffering=0):
        position = os.fstat(descriptor).st_size
        begun = b""
        while position:
            length = min(_TAIL, position)
            position -= length
            begun, *whole = (os.pread(descriptor, length, position) + begun).split(b"\n")
            for line in reversed([begun, *whole] if not position else whole):
                try:
                    yield _decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    continue  # The end of the file, or torn by a crash.


def _index(tx: Transaction, place: str, agent: str, folder: int) -> SegmentIndex:
    """Return the index, opened and brought up to date by one piece. Raises one of `database_errors`."""
    known = tx.segment_indexes.get((place, agent))
    if known is None:
        known = SegmentIndex(open_database(_index_file(tx, place, agent), _SCHEMA, durable=True))
        tx.segment_indexes[place, agent] = known
        known.unindexed = _catch_up(known.connection, folder, place, names_in(folder), _BATCH)
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


def _catch_up(
    connection: sqlite3.Connection, folder: int, place: str, present: Sequence[str], most: int | None
) -> dict[str, int]:
    """Index what was appended since, at most so many lines; returns the segments with more, and from where on."""
    known = {
        name: (inode, size)
        for name, inode, size in connection.execute("SELECT name, inode, bytes FROM segments")
    }
    for segment in known.keys() - set(present):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM lines WHERE segment = ?", (segment,))
        connection.execute("DELETE FROM segments WHERE name = ?", (segment,))
        connection.execute("COMMIT")
    unindexed: dict[str, int] = {}
    for segment in reversed(present):
        inode, indexed = known.get(segment, (0, 0))
        size, now = file_operations.size(folder, segment), file_operations.inode(folder, segment)
        if (inode, indexed) == (now, size):
            continue
        start = indexed if inode == now and indexed <= size else 0
        rows: list[tuple[str, str | None, str, int, int]] = []
        for offset, length, line in lines(folder, segment, start) if most is None or most > 0 else ():
            rows.append((line.name, id_of(place, line.name), segment, offset, length))
            if len(rows) >= _BATCH or len(rows) == most:
                start = offset + length
                _add(connection, segment, now, start, rows)
                most = None if most is None else most - len(rows)
                rows = []
                if most == 0:
                    break
        if most == 0:
            unindexed |= {segment: start} if start < size else {}
            continue
        end = rows[-1][3] + rows[-1][4] if rows else size
        _add(connection, segment, now, max(end, start), rows)
        most = None if most is None else most - len(rows)
    return unindexed


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
