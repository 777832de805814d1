"""An index of each inbox: the waiting messages in claim order, without listing the folder.

The files are the truth; `verify` never looks here. An index is a small SQLite database per agent in
`.switchboard/index/`. It is updated under the mailbox lock together with the folder, and records the folder's
modification time: while both agree, nobody else has changed the folder. If they differ, or the database cannot be used,
the folder is listed and the index written again. It is never synced, so one from before a reboot is not used.
Most changes are lines of a log (`recent_changes`) until there are enough of them for a transaction. Every thread keeps
the state it has seen, and the next messages, so a claim reads no database.
An inbox with very many messages is not listed at once: its index begins with the first of them, is used from then on,
and gets the others in pieces.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.filenames import MessageFile, order_in, parse
from switchboard_mcp.mail.store.index.recent_changes import (
    MAX_BYTES,
    AddedMessage,
    ChangeLine,
    ChangeLog,
    RecentChanges,
)
from switchboard_mcp.mail.store.ordering import RANK

if TYPE_CHECKING:
    import sqlite3

FOLDER = "index"
# A folder is listed at least this often: a file dropped in the very moment of another change leaves no trace.
RELIST_S = 300.0
# An inbox with more messages is not listed by those who look at it, but compared with its index in the background.
LARGE = 20_000
# Open databases per thread.
MAX_OPEN = 32
_BUSY_S = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS folder (
  boot TEXT, stamp INTEGER, listed_at REAL, messages INTEGER, known_until INTEGER
);
CREATE TABLE IF NOT EXISTS waiting (
  name BLOB PRIMARY KEY, ord INTEGER, id TEXT, inode INTEGER, sender TEXT, rank INTEGER
) WITHOUT ROWID;
DROP INDEX IF EXISTS by_order;
DROP INDEX IF EXISTS by_sender;
DROP INDEX IF EXISTS by_rank;
CREATE INDEX IF NOT EXISTS by_id ON waiting (id);
CREATE INDEX IF NOT EXISTS normal_by_order ON waiting (ord) WHERE rank = 1;
CREATE INDEX IF NOT EXISTS normal_by_sender ON waiting (sender, ord) WHERE rank = 1;
CREATE INDEX IF NOT EXISTS others_by_order ON waiting (rank, ord) WHERE rank != 1;
CREATE INDEX IF NOT EXISTS others_by_sender ON waiting (rank, sender, ord) WHERE rank != 1;
"""
# The rank of a file that was dropped and is not delivered yet, and of one that was not read yet.
DROPPED = -1
UNREAD = -2
# The ranks of messages with another priority than normal.
SPECIAL = (0, 2, 3)
_NO_LIMIT = 2**63 - 1
# The name of a log ends so.
LOG_SUFFIX = ".changes"
# Messages that are read from the database at once.
READ_AHEAD = 256
# `known_until` of an index that has all names of a large inbox, of which some are not read yet; and a lower one.
LISTED = 10**16 + 1
HIGHEST_ORDER = 10**16
# The state of a folder before it was ever seen.
NEVER = -1
_START = (-1, "")


class IndexRow(Struct, frozen=True):
    """One file of an inbox: a message with its sender and priority, or a dropped file without a sender."""

    name: str
    inode: int
    sender: str = ""
    priority: str = ""
    unread: bool = False
    """True for a file that is named like a message and was not read yet."""


def _values(row: IndexRow) -> tuple[bytes, int, str, int, str, int]:
    if row.unread:
        return os.fsencode(row.name), order_in(row.name), "", row.inode, "", UNREAD
    entry = parse("inbox", row.name) if row.sender else None
    if entry is None:
        return os.fsencode(row.name), 0, "", row.inode, "", DROPPED
    rank = RANK.get(row.priority, 1)
    return os.fsencode(row.name), entry.stem.order, entry.stem.id, row.inode, row.sender, rank


_STATE = (
    "SELECT boot, stamp, listed_at, EXISTS (SELECT 1 FROM waiting INDEXED BY others_by_order WHERE rank != 1), "
    "messages, known_until "
    "FROM folder"
)
_ORDERED = (
    "SELECT ord, name FROM waiting INDEXED BY normal_by_order WHERE rank = 1 AND (ord, name) > (?, ?) "
    "ORDER BY ord, name LIMIT ?"
)
_FIRST_UNREAD = (
    "SELECT ord FROM waiting INDEXED BY others_by_order WHERE rank != 1 AND rank = -2 ORDER BY ord LIMIT 1"
)
_READ = "UPDATE waiting SET ord = ?, id = ?, inode = ?, sender = ?, rank = ? WHERE name = ? AND rank = -2"
_INSERT = "INSERT OR REPLACE INTO waiting VALUES (?, ?, ?, ?, ?, ?)"
_ADD = "INSERT OR IGNORE INTO waiting VALUES (?, ?, ?, ?, ?, ?)"


class OpenIndex:
    """An open database with its log, and their contents as far as they were read. Used by one thread."""

    def __init__(self, connection: sqlite3.Connection, inode: int, log: ChangeLog) -> None:
        self.connection = connection
        self.inode = inode
        self.log = log
        self.changes = RecentChanges()
        # The state of the database, and the one after the changes.
        self.base = self.stamp = NEVER
        self.listed_at = 0.0
        self.messages = 0
        # The order up to which all files are in the database; None if all are, and are read.
        self.known_until: int | None = None
        # True if all files are known, and are delivered messages of normal priority.
        self.plain = False
        # The first messages of the database by order; `_last` is where they end, None if there are no more.
        self._next: deque[tuple[int, str]] = deque()
        self._last: tuple[int, str] | None = _START

    def close(self) -> None:
        """Close the files."""
        self.connection.close()
        self.log.close()

    def forget(self) -> None:
        """Read everything again the next time."""
        self.base = self.stamp = NEVER
        self.changes = RecentChanges()
        self._next.clear()
        self._last = _START

    def load(self, boot: str) -> None:
        """Read the state of the database, and all of the log."""
        self.forget()
        self.log.rewind()
        row = self.connection.execute(_STATE).fetchone()
        if row is None or row[0] != boot:
            return
        _, self.base, self.listed_at, special, self.messages, self.known_until = row
        self.stamp, self.plain = self.base, not special and self.known_until is None
        self.read_log()

    @property
    def is_large(self) -> bool:
        """Return True if so many messages wait that the folder should not be listed."""
        return self.stamp != NEVER and (self.messages >= LARGE or self.known_until is not None)

    def read_log(self) -> None:
        """Apply the lines that follow the known state."""
        for line in self.log.read():
            if line.before == self.stamp:
                self.apply(line)

    def apply(self, line: ChangeLine) -> None:
        """Apply a change of the folder to what is known."""
        self.changes.apply(line.removed, line.added)
        self.messages += len(line.added) - len(line.removed)
        self.stamp = line.after

    def reaches(self, stamp: int, boot: str) -> bool:
        """Return True if this state of the folder is known, after reading what is new."""
        if self.stamp == stamp and self.plain:
            return True
        if self.plain:
            self.read_log()
        # Without it, files may have been read since.
        if self.stamp != stamp or not self.plain:
            self.load(boot)
        return self.stamp == stamp

    def ordered(self, after: int = -1) -> Iterator[tuple[int, str]]:
        """Return the orders and names of the messages of normal priority with a higher order, sorted."""
        hidden = self.changes.hidden
        added = self.changes.after(after)
        stored = (each for each in self._stored(after) if each[1] not in hidden)
        return merge(stored, added) if added else stored

    def _stored(self, after: int) -> Iterator[tuple[int, str]]:
        hidden = self.changes.hidden
        while self._next and self._next[0][1] in hidden:
            self._next.popleft()
        if not self._next and self._last is not None:
            found = [(order, os.fsdecode(name)) for order, name in self._rows(self._last, READ_AHEAD)]
            self._next.extend(found)
            self._last = found[-1] if len(found) == READ_AHEAD else None
        known = list(self._next)
        yield from (each for each in known if each[0] > after) if after >= 0 else known
        if self._last is not None:
            for order, name in self._rows(max(self._last, (after + 1, "")), -1):
                yield order, os.fsdecode(name)

    def _rows(self, start: tuple[int, str], limit: int) -> sqlite3.Cursor:
        return self.connection.execute(_ORDERED, (start[0], os.fsencode(start[1]), limit))


class _Bounds(Struct, frozen=True):
    """Up to which order the messages of a sender are as urgent as this, because of a later one; 0 if none is."""

    urgent: int
    high: int
    normal: int


def _of(rank: int) -> str:
    """Return the index of the messages of a rank by sender, and the condition that chooses them."""
    if rank == 1:
        return "normal_by_sender WHERE rank = 1"
    return f"others_by_sender WHERE rank != 1 AND rank = {rank}"


class InboxView:
    """The contents of an inbox at one moment, read from its index.

    While files are unread, or not all are known, it shows the messages before the first of them, so that the order is
    kept.
    """

    def __init__(self, opened: OpenIndex) -> None:
        self._index = opened
        self._connection = opened.connection
        self._plain = opened.plain
        self._changes = opened.changes
        unread = None if self._plain else self._rows(_FIRST_UNREAD).fetchone()
        self.known_until = opened.known_until
        self.partial = unread is not None or self.known_until is not None
        self._first_unread: int = unread[0] if unread is not None else _NO_LIMIT
        unknown = _NO_LIMIT if self.known_until is None else self.known_until + 1
        self._before = min(self._first_unread, unknown)

    @property
    def is_listed(self) -> bool:
        """Return True if the index was compared with the folder since it was begun."""
        return self.known_until in (None, LISTED)

    def lacks_first(self) -> bool:
        """Return True if the messages that come first are not known yet."""
        if self.known_until is None or self._first_unread <= self.known_until:
            return False
        return next(self.ordered(), None) is None

    def has_first(self, count: int) -> bool:
        """Return True if more messages than this are shown."""
        return next(islice(self.ordered(), count, None), None) is not None

    def unread(self, limit: int) -> list[tuple[str, int]]:
        """Return the name and inode of the first files that were not read yet."""
        query = (
            "SELECT name, inode FROM waiting INDEXED BY others_by_order WHERE rank != 1 AND rank = -2 "
            "ORDER BY ord LIMIT ?"
        )
        return [(os.fsdecode(name), inode) for name, inode in self._rows(query, (limit,))]

    def dropped(self) -> list[str]:
        """Return the names of dropped files."""
        if self._plain:
            return []
        query = "SELECT name FROM waiting INDEXED BY others_by_order WHERE rank != 1 AND rank = -1"
        return list(self._names(query))

    def count(self) -> int:
        """Return the number of messages."""
        return self._index.messages

    def newest(self) -> int:
        """Return the highest order number; 0 if there is no message."""
        if self._plain:
            return self._newest_plain()
        newest = "SELECT MAX(ord) FROM waiting INDEXED BY normal_by_order WHERE rank = 1 AND ord < ?"
        found = [self._rows(newest, (self._before,)).fetchone()[0] or 0]
        for rank in SPECIAL:
            newest = "SELECT MAX(ord) FROM waiting INDEXED BY others_by_order WHERE rank != 1 AND rank = ? AND ord < ?"
            found.append(self._rows(newest, (rank, self._before)).fetchone()[0] or 0)
        return int(max(found))

    def _newest_plain(self) -> int:
        stored = self._rows(
            "SELECT ord, name FROM waiting INDEXED BY normal_by_order WHERE rank = 1 ORDER BY ord DESC"
        )
        left = next((order for order, name in stored if os.fsdecode(name) not in self._changes.hidden), 0)
        return max(left, *(each.order for each in self._changes.added()), 0)

    def ordered(self, after: int = 0) -> Iterator[str]:
        """Yield the names of the messages in claim order, without those up to an order.

        Reads no more than is asked for, however many messages wait: each part of the order is one range of an index.
        """
        if self._plain:
            yield from (name for _, name in self._index.ordered(after))
            return
        bounds = self._bounds()
        ranges = [(sender, after, each.urgent) for sender, each in bounds.items()]
        yield from self._in_order(self._of_sender(*each) for each in ranges)
        ranges = [(sender, max(after, each.urgent), each.high) for sender, each in bounds.items()]
        yield from self._in_order(self._of_sender(*each) for each in ranges)
        # A message of low priority goes with a later one of normal priority from its sender.
        raised = [
            self._of_rank(0, sender, max(after, each.high), each.normal)
            for sender, each in bounds.items()
            if each.normal > each.high
        ]
        yield from self._in_order([self._normal(after, bounds), *raised])
        yield from self._in_order(
            self._of_rank(0, sender, max(after, each.normal), self._before - 1)
            for sender, each in bounds.items()
        )

    def _bounds(self) -> dict[str, _Bounds]:
        """Return up to which order the messages of a sender have which priority, for senders with other than normal."""
        found = {}
        for sender in {sender for rank in SPECIAL for sender in self._senders(rank)}:
            urgent = self._last(3, sender)
            high = max(urgent, self._last(2, sender))
            found[sender] = _Bounds(urgent, high, max(high, self._last(1, sender)))
        return found

    def _senders(self, rank: int) -> Iterator[str]:
        query = (
            "SELECT MIN(sender) FROM waiting INDEXED BY others_by_sender "
            "WHERE rank != 1 AND rank = ? AND sender > ?"
        )
        sender = ""
        while (sender := self._rows(query, (rank, sender)).fetchone()[0]) is not None:
            yield sender

    def _last(self, rank: int, sender: str) -> int:
        query = f"SELECT MAX(ord) FROM waiting INDEXED BY {_of(rank)} AND sender = ? AND ord < ?"
        return int(self._rows(query, (sender, self._before)).fetchone()[0] or 0)

    def _of_sender(self, sender: str, after: int, until: int) -> Iterator[tuple[int, bytes]]:
        """Yield the messages of a sender in a range of orders."""
        if until <= after:
            return iter(())
        return merge(*(self._of_rank(rank, sender, after, until) for rank in (*SPECIAL, 1)))

    def _of_rank(self, rank: int, sender: str, after: int, until: int) -> Iterator[tuple[int, bytes]]:
        query = (
            f"SELECT ord, name FROM waiting INDEXED BY {_of(rank)} AND sender = ? AND ord > ? AND ord <= ? "
            "ORDER BY ord"
        )
        return self._rows(query, (sender, after, until))

    def _normal(self, after: int, bounds: dict[str, _Bounds]) -> Iterator[tuple[int, bytes]]:
        """Yield the messages of normal priority that no later one has raised."""
        query = (
            "SELECT ord, name, sender FROM waiting INDEXED BY normal_by_order "
            "WHERE rank = 1 AND ord > ? AND ord < ? ORDER BY ord"
        )
        for order, name, sender in self._rows(query, (after, self._before)):
            if sender not in bounds or order > bounds[sender].high:
                yield order, name

    @staticmethod
    def _in_order(ranges: Iterable[Iterator[tuple[int, bytes]]]) -> Iterator[str]:
        return (os.fsdecode(name) for _, name in merge(*ranges))

    def since(self, order: int, limit: int) -> list[str]:
        """Return the names of the first messages with a higher order number, by order."""
        if self._plain:
            return [name for _, name in islice(self._index.ordered(order), limit)]
        query = (
            "SELECT ord, name FROM waiting INDEXED BY normal_by_order WHERE rank = 1 AND ord > ? ORDER BY ord"
        )
        ranges: list[Iterator[tuple[int, bytes]]] = [self._rows(query, (order,))]
        for rank in SPECIAL:
            query = (
                "SELECT ord, name FROM waiting INDEXED BY others_by_order WHERE rank != 1 AND rank = ? AND ord > ? "
                "ORDER BY ord"
            )
            ranges.append(self._rows(query, (rank, order)))
        return list(islice(self._in_order(ranges), limit))

    def with_ids(self, ids: Iterable[str]) -> list[str]:
        """Return the names of the messages with these ids."""
        wanted = set(ids)
        names = [message.name for message in self._changes.added() if message.id in wanted]
        for each in wanted:
            names += self._visible(
                self._names("SELECT name FROM waiting WHERE id = ? AND rank >= 0", (each,))
            )
        return names

    def rows(self) -> dict[str, IndexRow]:
        """Return everything, by name."""
        priorities = {rank: priority for priority, rank in RANK.items()}
        rows = {
            (text := os.fsdecode(name)): IndexRow(
                text, inode, sender, priorities.get(rank, ""), unread=rank == UNREAD
            )
            for name, inode, sender, rank in self._rows("SELECT name, inode, sender, rank FROM waiting")
        }
        for name in self._changes.hidden:
            rows.pop(name, None)
        return rows | {
            each.name: IndexRow(each.name, each.inode, each.sender, "normal")
            for each in self._changes.added()
        }

    def inodes(self, names: Iterable[str]) -> dict[str, int]:
        """Return the inodes of these files, as far as they are known; 0 for a file that is not a message."""
        added = {each.name: each.inode for each in self._changes.added()}
        found = {}
        # In one transaction: without, every query would lock the file and look for changes.
        self._connection.execute("BEGIN")
        try:
            for name in names:
                if name in added:
                    found[name] = added[name]
                elif name not in self._changes.hidden:
                    query = "SELECT inode FROM waiting WHERE name = ?"
                    row = self._rows(query, (os.fsencode(name),)).fetchone()
                    if row is not None:
                        found[name] = row[0]
        finally:
            self._connection.rollback()
        return found

    def names_after(self, name: str, limit: int) -> list[str]:
        """Return the next names that are known, sorted; without those of the log."""
        query = "SELECT name FROM waiting WHERE name > ? ORDER BY name LIMIT ?"
        return list(self._names(query, (os.fsencode(name), limit)))

    @property
    def listed_at(self) -> float:
        """Return when the folder was last compared, in seconds."""
        return self._index.listed_at

    def oldest(self) -> str | None:
        """Return the name of the first message by order."""
        if self._plain:
            return next(self.ordered(), None)
        query = "SELECT ord, name FROM waiting INDEXED BY normal_by_order WHERE rank = 1 ORDER BY ord LIMIT 1"
        found: list[tuple[int, bytes]] = self._rows(query).fetchall()
        for rank in SPECIAL:
            query = (
                "SELECT ord, name FROM waiting INDEXED BY others_by_order WHERE rank != 1 AND rank = ? "
                "ORDER BY ord LIMIT 1"
            )
            found += self._rows(query, (rank,))
        return os.fsdecode(min(found)[1]) if found else None

    def _visible(self, names: Iterable[str]) -> Iterator[str]:
        return (name for name in names if name not in self._changes.hidden)

    def _names(self, query: str, values: tuple[object, ...] = ()) -> Iterator[str]:
        return (os.fsdecode(name) for (name,) in self._rows(query, values))

    def _rows(self, query: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        return self._connection.execute(query, values)


def _inode(path: str) -> int:
    """Return the inode of a database; 0 if there is none. Raises OSError for a file that none of our processes made."""
    try:
        info = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return 0
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise OSError(errno.EINVAL, "is not a file of ours", path)
    return info.st_ino


def _require_own_folder(path: str) -> None:
    info = os.stat(path, follow_symlinks=False)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
        raise OSError(errno.EINVAL, "is not a folder of ours", path)


def open_database(path: str, schema: str, *, durable: bool = False) -> sqlite3.Connection:
    """Open a database, creating it and its folder. Raises one of `database_errors`."""
    from sqlite3 import connect  # small mailboxes have no index

    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    _require_own_folder(os.path.dirname(path))
    if not _inode(path):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    connection = connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    # Not WAL: its shared memory is mapped, so a program that truncates the file would end this process.
    connection.execute("PRAGMA journal_mode=PERSIST")
    connection.execute(f"PRAGMA synchronous={'NORMAL' if durable else 'OFF'}")
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.executescript(f"BEGIN; {schema} COMMIT;")
    return connection


class InboxIndex:
    """The indexes of one workspace, as used by one process. Every error makes it useless, not the store."""

    def __init__(self, path: str, boot: str) -> None:
        self._path = os.path.join(path, FOLDER)
        self._boot = boot
        self._open = threading.local()
        self.usable = True
        # True once the folders' times were found to be exact; only then an index is created.
        self.exact = False

    def view(
        self, agent: str, stamp: int, *, now: float | None = None, partial: bool = False
    ) -> InboxView | None:
        """Return the contents if the index was written for this state of the folder; else None.

        One that still has unread files is returned only if it may be `partial`.
        """
        opened = self._opened(agent)
        if opened is None:
            return None
        try:
            if not self._is_right(opened, stamp, time.time() if now is None else now):
                return None
            view = InboxView(opened)
        except database_errors() as problem:
            self.discard(agent, problem)
            return None
        return view if partial or not view.partial else None

    def _is_right(self, opened: OpenIndex, stamp: int, now: float) -> bool:
        if not opened.reaches(stamp, self._boot):
            return False
        if opened.messages < LARGE and abs(now - opened.listed_at) > RELIST_S:
            opened.load(self._boot)  # Another process may have listed the folder.
            if opened.stamp != stamp or abs(now - opened.listed_at) > RELIST_S:
                return False
        # The log is read in the order of numbers alone.
        if opened.changes and not opened.plain:
            return self._write_changes(opened, stamp) and opened.reaches(stamp, self._boot)
        return True

    def has(self, agent: str) -> bool:
        """Return True if there is an index of this inbox, right or not."""
        return self.usable and self._opened(agent) is not None

    def latest(self, agent: str) -> InboxView | None:
        """Return the contents of a large index, which may lack what other programs have changed; None if it is small.

        Changes by this store are always in it.
        """
        opened = self._opened(agent)
        if opened is None:
            return None
        try:
            opened.load(self._boot)
            if not opened.is_large:
                return None
            if opened.changes and not opened.plain:
                # Else another process has done so.
                self._write_changes(opened, opened.stamp)
                opened.load(self._boot)
            return InboxView(opened)
        except database_errors() as problem:
            self.discard(agent, problem)
            return None

    def is_large(self, agent: str) -> bool:
        """Return True if so many messages wait that the folder should not be listed."""
        opened = self._opened(agent)
        if opened is None:
            return False
        try:
            if opened.stamp == NEVER:
                opened.load(self._boot)
        except database_errors() as problem:
            self.discard(agent, problem)
            return False
        return opened.is_large

    def known(self, agent: str) -> dict[str, IndexRow]:
        """Return the rows of an index that may be out of date: a file of the same name and inode needs no reading."""
        opened = self._opened(agent)
        if opened is None:
            return {}
        try:
            opened.load(self._boot)
            return InboxView(opened).rows() if opened.stamp != NEVER else {}
        except database_errors() as problem:
            self.discard(agent, problem)
            return {}

    def begin(self, agent: str) -> None:
        """Begin an index of an inbox with very many files; the mailbox lock must be held.

        From now on every change by this store is in it, and `extend` and a comparison with the folder add the rest.
        """
        self.write(agent, _unknown_stamp(), (), known_until=-1)

    def extend(self, agent: str, known_until: int, listed_at: float) -> None:
        """Record that all files up to this order are in the index that was begun at this time."""
        opened = self._opened(agent)
        if opened is None:
            return
        try:
            query = (
                "UPDATE folder SET known_until = max(known_until, ?) "
                "WHERE known_until IS NOT NULL AND listed_at = ?"
            )
            opened.connection.execute(query, (known_until, listed_at))
            opened.forget()
        except database_errors() as problem:
            self.discard(agent, problem)

    def write(
        self, agent: str, stamp: int, rows: Iterable[IndexRow], *, known_until: int | None = None
    ) -> None:
        """Replace the index with the contents of the folder in this state, as far as they are known."""
        opened = self._opened(agent, make=True)
        if opened is None:
            return
        try:
            opened.forget()
            with _transaction(opened.connection) as connection:
                connection.execute("DELETE FROM waiting")
                connection.executemany(_INSERT, map(_values, rows))
                (count,) = connection.execute("SELECT COUNT(*) FROM waiting WHERE rank >= 0").fetchone()
                connection.execute("DELETE FROM folder")
                # Unlike that of any listing, so that only one that has begun since completes it.
                listed_at = time.time() if known_until is None else -time.time()
                values = (self._boot, stamp, listed_at, count, known_until)
                connection.execute("INSERT INTO folder VALUES (?, ?, ?, ?, ?)", values)
        except database_errors() as problem:
            self.discard(agent, problem)

    def update(
        self, agent: str, before: int, stamp: int, added: Collection[IndexRow], removed: Collection[str]
    ) -> None:
        """Apply the changes between two states of the folder; the mailbox lock must be held.

        Does nothing if the index does not have the state before them.
        """
        # Without looking at the file: the same transaction has done so, and lines that nobody reads do no harm.
        known: dict[str, OpenIndex] = getattr(self._open, "indexes", {})
        opened = known.get(agent) or self._opened(agent)
        if opened is None:
            return
        try:
            if opened.stamp != before and not opened.reaches(before, self._boot):
                return
            line = _line(before, stamp, added, removed) if opened.plain and before >= 0 else None
            if line is not None and opened.log.append(line) < MAX_BYTES:
                opened.apply(line)
            elif self._write_changes(opened, stamp, added, removed):
                opened.log.clear()
        except database_errors() as problem:
            self.discard(agent, problem)

    def correct(
        self, agent: str, stamp: int | None, added: Collection[IndexRow], removed: Collection[str]
    ) -> bool:
        """Apply changes whatever the state of the index; the mailbox lock must be held. Returns True if that was done.

        With a `stamp`, the index is right for this state of the folder. Without, it stays one that may lack changes by
        other programs.
        """
        opened = self._opened(agent)
        if opened is None:
            return False
        try:
            # A reader may write the changes of the log between the two.
            for _ in range(3):
                opened.load(self._boot)
                if opened.stamp == NEVER:
                    return False
                if self._write_changes(opened, _unknown_stamp() if stamp is None else stamp, added, removed):
                    opened.log.clear()
                    return True
        except database_errors() as problem:
            self.discard(agent, problem)
        return False

    def mark_listed(self, agent: str, before: float) -> None:
        """Record that the folder was compared with the index, since which it was listed `before`."""
        opened = self._opened(agent)
        if opened is None:
            return
        try:
            query = (
                "UPDATE folder SET listed_at = ?, known_until = CASE WHEN known_until IS NOT NULL THEN ? END "
                "WHERE listed_at = ?"
            )
            opened.connection.execute(query, (time.time(), LISTED, before))
            opened.forget()
        except database_errors() as problem:
            self.discard(agent, problem)

    def _write_changes(
        self, opened: OpenIndex, stamp: int, added: Iterable[IndexRow] = (), removed: Iterable[str] = ()
    ) -> bool:
        """Write the changes of the log and these to the database, unless that has changed meanwhile.

        Changes of the log are the same for every process, so they may be written without the mailbox lock.
        """
        changes = opened.changes
        with _transaction(opened.connection) as connection:
            if connection.execute("SELECT boot, stamp FROM folder").fetchone() != (self._boot, opened.base):
                opened.forget()
                return False
            count = 0
            for name in (*changes.hidden, *removed):
                count -= _delete(connection, os.fsencode(name))
            rows = [(os.fsencode(e.name), e.order, e.id, e.inode, e.sender, 1) for e in changes.added()]
            gone = {os.fsencode(name) for name in removed}
            for row in (*(row for row in rows if row[0] not in gone), *map(_values, added)):
                if not connection.execute(_ADD, row).rowcount:
                    count -= _delete(connection, row[0])
                    connection.execute(_INSERT, row)
                count += row[-1] >= 0
            connection.execute("UPDATE folder SET stamp = ?, messages = messages + ?", (stamp, count))
        opened.forget()
        return True

    def mark_read(self, agent: str, rows: Iterable[IndexRow]) -> None:
        """Record unread files that were read. Right for any state of the folder, so it needs no lock."""
        opened = self._opened(agent)
        if opened is None:
            return
        try:
            with _transaction(opened.connection) as connection:
                found = 0
                for name, *values in map(_values, rows):
                    changed = connection.execute(_READ, (*values, name)).rowcount
                    found += changed if values[-1] != DROPPED else 0
                connection.execute("UPDATE folder SET messages = messages + ?", (found,))
                if connection.execute(_FIRST_UNREAD).fetchone() is None:
                    query = "UPDATE folder SET known_until = NULL WHERE known_until = ?"
                    connection.execute(query, (LISTED,))
        except database_errors() as problem:
            self.discard(agent, problem)

    def _opened(self, agent: str, *, make: bool = False) -> OpenIndex | None:
        if not self.usable:
            return None
        known: OrderedDict[str, OpenIndex] | None = getattr(self._open, "indexes", None)
        if known is None:
            known = self._open.indexes = OrderedDict()
        path = os.path.join(self._path, f"{agent}.db")
        try:
            inode = _inode(path)
            opened = known.get(agent)
            if opened is not None:
                if opened.inode == inode:
                    known.move_to_end(agent)
                    return opened
                # Another process has discarded it.
                del known[agent]
                opened.close()
            if not inode and not make:
                return None
            connection = open_database(path, _SCHEMA)
            known[agent] = OpenIndex(connection, _inode(path), ChangeLog(f"{self._path}/{agent}{LOG_SUFFIX}"))
        except database_errors() as problem:
            self.discard(agent, problem)
            return None
        if len(known) > MAX_OPEN:
            known.popitem(last=False)[1].close()
        return known[agent]

    def discard(self, agent: str, problem: Exception) -> None:
        """Remove an index that cannot be used; if that fails too, use none any more. A locked one is only closed."""
        broken = (getattr(self._open, "indexes", None) or {}).pop(agent, None)
        try:
            if broken is not None:
                broken.close()
            for suffix in () if is_busy(problem) else (".db", ".db-journal", LOG_SUFFIX):
                path = os.path.join(self._path, f"{agent}{suffix}")
                if os.path.lexists(path):
                    os.unlink(path)
        except database_errors():
            self.usable = False

    def close_thread(self) -> None:
        """Close the databases of this thread."""
        for each in (getattr(self._open, "indexes", None) or {}).values():
            each.close()
        self._open.indexes = OrderedDict()


def database_errors() -> tuple[type[Exception], ...]:
    """Return what a database that cannot be used may raise."""
    from sqlite3 import Error

    return OSError, Error


def is_busy(problem: Exception) -> bool:
    """Return True if another process has locked the database, which is no reason to remove it."""
    from sqlite3 import SQLITE_BUSY

    return getattr(problem, "sqlite_errorcode", 0) & 0xFF == SQLITE_BUSY


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Write all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        connection.rollback()
        raise
    connection.execute("COMMIT")


def _line(
    before: int, after: int, added: Collection[IndexRow], removed: Collection[str]
) -> ChangeLine | None:
    """Return the changes as a line of the log; None if they are not of messages of normal priority."""
    messages = []
    for row in added:
        entry = (
            parse("inbox", row.name) if row.sender and row.priority == "normal" and not row.unread else None
        )
        if entry is None:
            return None
        messages.append(AddedMessage(entry.stem.order, row.name, entry.stem.id, row.inode, row.sender))
    return ChangeLine(before, after, list(removed), messages)


def _unknown_stamp() -> int:
    """Return a state that no folder has, and that no other process writes."""
    return -2 - int.from_bytes(os.urandom(7), "big")


def _delete(connection: sqlite3.Connection, name: bytes) -> int:
    """Delete a row; return 1 if it was a message."""
    row = connection.execute("DELETE FROM waiting WHERE name = ? RETURNING rank", (name,)).fetchone()
    return int(row is not None and row[0] >= 0)


def count_waiting(path: str, boot: str, agent: str) -> tuple[int, str] | None:
    """Return how many messages wait and the name of the oldest, from the index; None if that does not fit.

    For callers without a store: opens and closes the database.
    """
    index = InboxIndex(path, boot)
    try:
        stamp = os.stat(os.path.join(path, "inbox", agent)).st_mtime_ns
        view = index.view(agent, stamp) or index.latest(agent)
        return None if view is None else (view.count(), view.oldest() or "")
    except database_errors():
        return None
    finally:
        index.close_thread()


def stamp_of(folder: int) -> int:
    """Return the time at which a folder was last changed, in nanoseconds."""
    return os.fstat(folder).st_mtime_ns


def has_exact_stamps(folder: int, name: str) -> bool:
    """Return True if every change of a folder gets a time of its own (Linux 6.13 and later, most file systems).

    Older kernels give all changes within a few milliseconds the same time, so a second one could not be seen.
    """
    seen = set()
    for number in range(8):
        os.close(file_operations.create(folder, f"{name}.{number}", b""))
        seen.add(stamp_of(folder))
        file_operations.remove(folder, f"{name}.{number}")
        seen.add(stamp_of(folder))
    return len(seen) == 16


def first_names(
    view: InboxView, limit: int, after: int = 0, exclude: Iterable[str] = ()
) -> list[MessageFile]:
    """Return the first messages in claim order, without those up to an order or with these ids."""
    if limit == 1 and not after and not exclude:  # A claim of the next message: three generators less.
        name = next(view.ordered(), None)
        entry = parse("inbox", name) if name is not None else None
        if name is None or entry is not None:
            return [entry] if entry is not None else []
    skipped = set(exclude)
    entries = (entry for name in view.ordered(after) if (entry := parse("inbox", name)) is not None)
    wanted = (entry for entry in entries if entry.stem.id not in skipped)
    return list(islice(wanted, max(0, limit)))
