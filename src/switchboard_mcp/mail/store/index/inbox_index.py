"""An index of each inbox: the waiting messages in claim order, without listing the folder.

The files are the truth; `verify` never looks here. An index is a small SQLite database per agent in
`.switchboard/index/`. It is updated under the mailbox lock together with the folder, and records the folder's
modification time: while both agree, nobody else has changed the folder. If they differ, or the database cannot be used,
the folder is listed and the index written again. It is never synced, so one from before a reboot is not used.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.filenames import MessageFile, order_in, parse
from switchboard_mcp.mail.store.ordering import RANK

if TYPE_CHECKING:
    import sqlite3

FOLDER = "index"
# A folder is listed at least this often: a file dropped in the very moment of another change leaves no trace.
RELIST_S = 300.0
# Open databases per thread.
MAX_OPEN = 32
_BUSY_S = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS folder (boot TEXT, stamp INTEGER, listed_at REAL, messages INTEGER);
CREATE TABLE IF NOT EXISTS waiting (
  name BLOB PRIMARY KEY, ord INTEGER, id TEXT, inode INTEGER, sender TEXT, rank INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_order ON waiting (ord);
CREATE INDEX IF NOT EXISTS by_sender ON waiting (sender, ord);
CREATE INDEX IF NOT EXISTS by_rank ON waiting (rank) WHERE rank != 1;
CREATE INDEX IF NOT EXISTS by_id ON waiting (id);
"""
# The rank of a file that was dropped and is not delivered yet, and of one that was not read yet.
DROPPED = -1
UNREAD = -2
_NO_LIMIT = 2**63 - 1


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


_STATE = "SELECT boot, stamp, listed_at, EXISTS (SELECT 1 FROM waiting INDEXED BY by_rank WHERE rank != 1) FROM folder"
_FIRST_UNREAD = (
    "SELECT ord FROM waiting INDEXED BY by_rank WHERE rank != 1 AND rank = -2 ORDER BY name LIMIT 1"
)
_READ = "UPDATE waiting SET ord = ?, id = ?, inode = ?, sender = ?, rank = ? WHERE name = ? AND rank = -2"
_INSERT = "INSERT OR REPLACE INTO waiting VALUES (?, ?, ?, ?, ?, ?)"


class InboxView:
    """The contents of an inbox at one moment, read from its index.

    While files are unread, it shows the messages before the first of them, so that the order is kept.
    """

    def __init__(self, connection: sqlite3.Connection, *, plain: bool = False) -> None:
        """Initialize; `plain` if all files are delivered messages of normal priority."""
        self._connection = connection
        self._plain = plain
        unread = None if plain else self._rows(_FIRST_UNREAD).fetchone()
        self.partial = unread is not None
        self._before: int = unread[0] if unread is not None else _NO_LIMIT

    def unread(self, limit: int) -> list[tuple[str, int]]:
        """Return the name and inode of the first files that were not read yet."""
        query = (
            "SELECT name, inode FROM waiting INDEXED BY by_rank WHERE rank != 1 AND rank = -2 "
            "ORDER BY name LIMIT ?"
        )
        return [(os.fsdecode(name), inode) for name, inode in self._rows(query, (limit,))]

    def dropped(self) -> list[str]:
        """Return the names of dropped files."""
        if self._plain:
            return []
        return [
            os.fsdecode(name)
            for (name,) in self._rows(
                "SELECT name FROM waiting INDEXED BY by_rank WHERE rank != 1 AND rank = -1"
            )
        ]

    def has_special(self) -> bool:
        """Return True if a message has another priority than normal."""
        return not self._plain and bool(
            self._rows(
                "SELECT 1 FROM waiting INDEXED BY by_rank WHERE rank != 1 AND rank >= 0 AND ord < ? LIMIT 1",
                (self._before,),
            ).fetchone()
        )

    def count(self) -> int:
        """Return the number of messages."""
        return int(self._rows("SELECT messages FROM folder").fetchone()[0])

    def newest(self) -> int:
        """Return the highest order number; 0 if there is no message."""
        return int(
            self._rows("SELECT MAX(ord) FROM waiting WHERE ord < ?", (self._before,)).fetchone()[0] or 0
        )

    def ordered(self) -> Iterator[str]:
        """Return the names of the messages in claim order."""
        if not self.has_special():
            query = "SELECT name FROM waiting WHERE rank = 1 AND ord < ? ORDER BY ord"
            yield from self._names(query, (self._before,))
            return
        taken: set[str] = set()
        for rank in (3, 2):
            for name in self._raised(rank):
                if name not in taken:
                    taken.add(name)
                    yield name
        last = list(
            self._names(
                "SELECT name FROM waiting AS low INDEXED BY by_rank WHERE rank != 1 AND rank = 0 AND ord < ?1 "
                "AND NOT EXISTS (SELECT 1 FROM waiting AS later WHERE later.sender = low.sender "
                "AND later.ord > low.ord AND later.ord < ?1 AND later.rank >= 1) ORDER BY ord",
                (self._before,),
            )
        )
        skipped = {*taken, *last}
        query = "SELECT name FROM waiting WHERE rank >= 0 AND ord < ? ORDER BY ord"
        for name in self._names(query, (self._before,)):
            if name not in skipped:
                yield name
        yield from (name for name in last if name not in taken)

    def _raised(self, rank: int) -> list[str]:
        """Return the messages that go with one of this rank: it, and earlier ones from its sender."""
        # The two ranks by name, so that the partial index is used.
        ranks = "(3)" if rank == 3 else "(2, 3)"
        senders = self._rows(
            f"SELECT sender, MAX(ord) FROM waiting INDEXED BY by_rank WHERE rank != 1 AND rank IN {ranks} "
            "AND ord < ? GROUP BY sender",
            (self._before,),
        ).fetchall()
        found: list[tuple[int, bytes]] = []
        for sender, order in senders:
            found += self._rows(
                "SELECT ord, name FROM waiting WHERE sender = ? AND ord <= ?", (sender, order)
            )
        return [os.fsdecode(name) for _, name in sorted(found)]

    def since(self, order: int) -> list[str]:
        """Return the names of the messages with a higher order number."""
        return list(
            self._names("SELECT name FROM waiting WHERE ord > ? AND rank >= 0 ORDER BY ord", (order,))
        )

    def with_ids(self, ids: Iterable[str]) -> list[str]:
        """Return the names of the messages with these ids."""
        names: list[str] = []
        for each in ids:
            names += self._names("SELECT name FROM waiting WHERE id = ? AND rank >= 0", (each,))
        return names

    def rows(self) -> dict[str, IndexRow]:
        """Return everything, by name."""
        priorities = {rank: priority for priority, rank in RANK.items()}
        return {
            (text := os.fsdecode(name)): IndexRow(
                text, inode, sender, priorities.get(rank, ""), unread=rank == UNREAD
            )
            for name, inode, sender, rank in self._rows("SELECT name, inode, sender, rank FROM waiting")
        }

    def oldest(self) -> str | None:
        """Return the name of the first message by order."""
        return next(self._names("SELECT name FROM waiting WHERE rank >= 0 ORDER BY ord LIMIT 1"), None)

    def _names(self, query: str, values: tuple[object, ...] = ()) -> Iterator[str]:
        return (os.fsdecode(name) for (name,) in self._rows(query, values))

    def _rows(self, query: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        return self._connection.execute(query, values)


class OpenIndex:
    """An open database and the file it was opened from."""

    def __init__(self, connection: sqlite3.Connection, inode: int) -> None:
        self.connection = connection
        self.inode = inode


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
        connection = self._connection(agent)
        if connection is None:
            return None
        try:
            row = connection.execute(_STATE).fetchone()
            current = time.time() if now is None else now
            if row is None or row[:2] != (self._boot, stamp) or abs(current - row[2]) > RELIST_S:
                return None
            view = InboxView(connection, plain=not row[3])
        except database_errors() as problem:
            self.discard(agent, problem)
            return None
        return view if partial or not view.partial else None

    def has(self, agent: str) -> bool:
        """Return True if there is an index of this inbox, right or not."""
        return self.usable and self._connection(agent) is not None

    def known(self, agent: str) -> dict[str, IndexRow]:
        """Return the rows of an index that may be out of date: a file of the same name and inode needs no reading."""
        connection = self._connection(agent)
        if connection is None:
            return {}
        try:
            row = connection.execute("SELECT boot FROM folder").fetchone()
            return InboxView(connection).rows() if row is not None and row[0] == self._boot else {}
        except database_errors() as problem:
            self.discard(agent, problem)
            return {}

    def write(self, agent: str, stamp: int, rows: Iterable[IndexRow]) -> None:
        """Replace the index; the mailbox lock must be held."""
        self._change(agent, rows=rows, stamp=stamp)

    def update(self, agent: str, stamp: int, added: Iterable[IndexRow], removed: Iterable[str]) -> None:
        """Apply changes to an index that was trusted before them; the mailbox lock must be held."""
        self._change(agent, stamp=stamp, added=added, removed=removed)

    def mark_read(self, agent: str, rows: Iterable[IndexRow]) -> None:
        """Record unread files that were read. Right for any state of the folder, so it needs no lock."""
        connection = self._connection(agent)
        if connection is None:
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            found = 0
            for name, *values in map(_values, rows):
                changed = connection.execute(_READ, (*values, name)).rowcount
                found += changed if values[-1] != DROPPED else 0
            connection.execute("UPDATE folder SET messages = messages + ?", (found,))
            connection.execute("COMMIT")
        except database_errors() as problem:
            self.discard(agent, problem)

    def _change(
        self,
        agent: str,
        *,
        stamp: int,
        rows: Iterable[IndexRow] | None = None,
        added: Iterable[IndexRow] = (),
        removed: Iterable[str] = (),
    ) -> None:
        connection = self._connection(agent, make=True)
        if connection is None:
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            if rows is not None:
                connection.execute("DELETE FROM waiting")
                connection.executemany(_INSERT, map(_values, rows))
                (count,) = connection.execute("SELECT COUNT(*) FROM waiting WHERE rank >= 0").fetchone()
                connection.execute("DELETE FROM folder")
                values = (self._boot, stamp, time.time(), count)
                connection.execute("INSERT INTO folder VALUES (?, ?, ?, ?)", values)
            else:
                change = 0
                for name in removed:
                    change -= _delete(connection, os.fsencode(name))
                for row in map(_values, added):
                    change += (row[-1] >= 0) - _delete(connection, row[0])
                    connection.execute(_INSERT, row)
                connection.execute("UPDATE folder SET stamp = ?, messages = messages + ?", (stamp, change))
            connection.execute("COMMIT")
        except database_errors() as problem:
            self.discard(agent, problem)

    def _connection(self, agent: str, *, make: bool = False) -> sqlite3.Connection | None:
        if not self.usable:
            return None
        connections: OrderedDict[str, OpenIndex] | None = getattr(self._open, "connections", None)
        if connections is None:
            connections = self._open.connections = OrderedDict()
        path = os.path.join(self._path, f"{agent}.db")
        try:
            inode = _inode(path)
            known = connections.get(agent)
            if known is not None:
                if known.inode == inode:
                    connections.move_to_end(agent)
                    return known.connection
                # Another process has discarded it.
                known.connection.close()
                del connections[agent]
            if not inode and not make:
                return None
            connection = open_database(path, _SCHEMA)
        except database_errors() as problem:
            self.discard(agent, problem)
            return None
        connections[agent] = OpenIndex(connection, _inode(path))
        if len(connections) > MAX_OPEN:
            connections.popitem(last=False)[1].connection.close()
        return connection

    def discard(self, agent: str, problem: Exception) -> None:
        """Remove an index that cannot be used; if that fails too, use none any more. A locked one is only closed."""
        connections = getattr(self._open, "connections", None) or {}
        broken = connections.pop(agent, None)
        try:
            if broken is not None:
                broken.connection.close()
            for suffix in () if is_busy(problem) else ("", "-journal"):
                path = os.path.join(self._path, f"{agent}.db{suffix}")
                if os.path.lexists(path):
                    os.unlink(path)
        except database_errors():
            self.usable = False

    def close_thread(self) -> None:
        """Close the databases of this thread."""
        for each in (getattr(self._open, "connections", None) or {}).values():
            each.connection.close()
        self._open.connections = OrderedDict()


def database_errors() -> tuple[type[Exception], ...]:
    """Return what a database that cannot be used may raise."""
    from sqlite3 import Error

    return OSError, Error


def is_busy(problem: Exception) -> bool:
    """Return True if another process has locked the database, which is no reason to remove it."""
    from sqlite3 import SQLITE_BUSY

    return getattr(problem, "sqlite_errorcode", 0) & 0xFF == SQLITE_BUSY


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
        view = index.view(agent, os.stat(os.path.join(path, "inbox", agent)).st_mtime_ns)
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
    skipped = set(exclude)
    entries = (entry for name in view.ordered() if (entry := parse("inbox", name)) is not None)
    wanted = (entry for entry in entries if entry.stem.order > after and entry.stem.id not in skipped)
    return list(islice(wanted, max(0, limit)))
