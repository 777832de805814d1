"""SQLite: one file in write-ahead mode, for processes on one machine.

    group:  flock → is it still our file? → BEGIN IMMEDIATE → versions → jobs → COMMIT → unlock → sync the log → wake

Writers queue at the lock, not at SQLite's busy handler, which is unfair. The log (`-wal`) is synced after the lock is
released: it is sequential, so one sync covers the earlier commits of everybody, and the syncs of several processes run
side by side. Groups that need not survive a power cut are not synced.
This module never opens the database file by other means: closing that would drop SQLite's locks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import sys
import time
from collections.abc import Sequence

from switchboard_mcp.database import table_versions
from switchboard_mcp.database.file_lock import FileLock
from switchboard_mcp.database.machine_clocks import MachineClocks
from switchboard_mcp.database.table_versions import Part
from switchboard_mcp.database.transactions import Row, StorageError, Transaction

OLDEST = (3, 34, 0)
# Only checkpoints of other processes are waited for with this; writers queue at the lock.
BUSY_S = 10.0
# A log that a long reader let grow is cut to nothing again.
LARGE_WAL_BYTES = 16 * 1_048_576
# The log needs memory shared by all processes, which these do not have.
NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "fuse", "virtiofs", "ceph", "afs", "glusterfs", "lustre")
USE_POSTGRESQL = "Put the workspace on a local disk, or name a PostgreSQL server in `database`."


class SqliteConnection:
    """Runs SQL on one connection and turns SQLite's errors into ours."""

    dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self.connection = connection
        self._path = path
        self._execute = connection.execute

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Return the rows of a query."""
        try:
            return self._execute(sql, values).fetchall()
        except sqlite3.Error as problem:
            raise storage_error(problem, self._path) from problem

    def run(self, sql: str, *values: object) -> None:
        """Run a statement."""
        try:
            self._execute(sql, values)
        except sqlite3.Error as problem:
            raise storage_error(problem, self._path) from problem

    def define(self, sql: str) -> None:
        """Run a statement that creates or changes a table."""
        self.run(sql)


class LocalClock:
    """The clocks of this machine; leases end by uptime."""

    def __init__(self, clocks: MachineClocks) -> None:
        self.wall_us = clocks.wall_us
        self.lease_ms = clocks.uptime_ms


class SqliteEngine:
    """The database of a workspace in one file."""

    dialect = "sqlite"

    def __init__(self, path: str, parts: Sequence[Part], clocks: MachineClocks) -> None:
        self.path = path
        self.read_only = False
        self.wake_folder = f"{path}.wake"
        self._parts = parts
        self._clocks = clocks
        self._clock = LocalClock(clocks)
        self._inode = (0, 0)
        self._lock: FileLock | None = None
        self._writer: SqliteConnection | None = None
        self._reader: SqliteConnection | None = None
        self._wal = -1
        self._wake_files: dict[str, int] = {}
        self._holds = False
        self._commits = 0

    def open(self) -> None:
        """Create or open the file."""
        if sqlite3.sqlite_version_info < OLDEST:
            text = f"Python was built with SQLite {sqlite3.sqlite_version}; 3.34 or newer is needed."
            raise StorageError(text, "Use a newer Python.")
        _refuse_network_file_system(os.path.dirname(self.path))
        try:
            self._create()
            self._lock = FileLock(f"{self.path}.lock")
        except OSError as problem:
            if not _is_read_only(problem) or not os.path.exists(self.path):
                raise StorageError(f"{self.path} cannot be created: {problem.strerror}.") from problem
            self.read_only = True
            return
        self._lock.acquire()
        try:
            self._inode = self._identity()
            self._writer = self._connect(f"file:{_uri(self.path)}")
            self._writer.rows("PRAGMA journal_mode=WAL")
            self._writer.run("PRAGMA synchronous=NORMAL")
            self._upgrade(self._writer)
        finally:
            self._lock.release()

    def _create(self) -> None:
        try:
            # Made here, so that the log and its index get the same mode.
            os.close(
                os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            )
        except FileExistsError:
            if not os.access(self.path, os.W_OK):
                raise PermissionError(errno.EACCES, "it cannot be written", self.path) from None
        os.makedirs(self.wake_folder, 0o700, exist_ok=True)

    def _upgrade(self, connection: SqliteConnection) -> None:
        has_tables = connection.rows("SELECT 1 FROM sqlite_master WHERE name = 'schema_version'")
        versions = connection.rows(table_versions.READ_VERSIONS) if has_tables else []
        table_versions.check(self._parts, versions)
        if not table_versions.is_current(self._parts, versions):
            if has_tables:
                self._save_copy(connection)
            connection.run("BEGIN IMMEDIATE")
            try:
                table_versions.upgrade(connection, self._parts)
                connection.run("COMMIT")
            except BaseException:
                connection.rows("ROLLBACK")
                raise
            os.fsync(self._open_wal())

    def _save_copy(self, connection: SqliteConnection) -> None:
        connection.run("VACUUM INTO ?", f"{self.path}.before.{time.time_ns()}")

    def _connect(self, uri: str) -> SqliteConnection:
        try:
            raw = sqlite3.connect(
                uri,
                uri=True,
                timeout=BUSY_S,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
        except sqlite3.Error as problem:
            raise storage_error(problem, self.path) from problem
        return SqliteConnection(raw, self.path)

    def _identity(self) -> tuple[int, int]:
        info = os.stat(self.path, follow_symlinks=False)
        return info.st_dev, info.st_ino

    def begin(self, *, durable: bool) -> Transaction:
        """Wait for the lock and begin."""
        if self._writer is None or self._lock is None:
            raise StorageError(f"{self.path} cannot be written.", "Make its folder writable.")
        self._lock.acquire()
        self._holds = True
        self._require_our_file()
        self._writer.run("BEGIN IMMEDIATE")
        table_versions.check(self._parts, self._writer.rows(table_versions.READ_VERSIONS))
        return Transaction(self._writer, self._clock)

    def _require_our_file(self) -> None:
        try:
            is_ours = self._identity() == self._inode
        except OSError:
            is_ours = False
        if not is_ours:
            # SQLite would write into the removed file, which nobody else sees.
            text = f"{self.path} was removed or replaced while it was open."
            raise StorageError(text, "This process alone can still copy it; then restart.")

    def commit(self, tx: Transaction, *, durable: bool) -> None:
        """Commit under the lock, sync after it, wake listeners."""
        assert self._writer is not None
        assert self._lock is not None
        self._writer.run("COMMIT")
        self._release()
        if durable:
            try:
                sync_data(self._open_wal())
            except OSError as problem:
                text = f"The log of {self.path} could not be synced: {problem.strerror}."
                raise StorageError(text, uncertain=True) from problem
        for topic in tx.topics:
            self._wake(topic)
        self._shorten_log(self._writer)

    def _open_wal(self) -> int:
        if self._wal < 0:
            self._wal = os.open(f"{self.path}-wal", os.O_RDWR | os.O_CLOEXEC)
        return self._wal

    def _release(self) -> None:
        if self._holds and self._lock is not None:
            self._holds = False
            self._lock.release()

    def roll_back(self) -> None:
        """End the transaction."""
        if self._writer is not None and self._writer.connection.in_transaction:
            try:
                self._writer.rows("ROLLBACK")
            except StorageError:
                pass  # SQLite has rolled it back itself, as after a full disk.
        self._release()

    def wake_file(self, topic: str) -> str:
        """Return the path of the file that is touched for a topic."""
        return os.path.join(self.wake_folder, topic)

    def _wake(self, topic: str) -> None:
        try:
            descriptor = self._wake_files.get(topic)
            if descriptor is None or os.fstat(descriptor).st_nlink == 0:
                if len(self._wake_files) >= 256:
                    self._close_wake_files()
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = self._wake_files[topic] = os.open(self.wake_file(topic), flags, 0o600)
            os.utime(descriptor)
        except OSError:
            pass  # Listeners look once a second too.

    def _close_wake_files(self) -> None:
        for descriptor in self._wake_files.values():
            os.close(descriptor)
        self._wake_files.clear()

    def reader(self) -> Transaction:
        """Begin to read; waits for no writer."""
        if self._reader is None:
            self._reader = self._open_reader()
        self._reader.run("BEGIN")
        return Transaction(self._reader, self._clock)

    def _open_reader(self) -> SqliteConnection:
        if not self.read_only:
            return self._readable(f"file:{_uri(self.path)}")
        try:
            return self._readable(f"file:{_uri(self.path)}?mode=ro")
        except StorageError:
            # Beside a log this would show what was there before it.
            if os.path.exists(f"{self.path}-wal"):
                raise
            return self._readable(f"file:{_uri(self.path)}?immutable=1")

    def _readable(self, uri: str) -> SqliteConnection:
        connection = self._connect(uri)
        connection.run("PRAGMA query_only=1")
        connection.rows("SELECT count(*) FROM sqlite_master")
        return connection

    def end_read(self) -> None:
        """End the reading: a view that stays open makes the log grow."""
        if self._reader is not None and self._reader.connection.in_transaction:
            self._reader.connection.rollback()

    def change_mark(self) -> object:
        """Return SQLite's count of the commits of others."""
        if self._reader is None:
            self._reader = self._open_reader()
        return self._reader.rows("PRAGMA data_version")[0][0]

    def writer_description(self) -> str:
        """Describe the process that holds the lock."""
        return self._lock.holder() if self._lock is not None else ""

    def _shorten_log(self, connection: SqliteConnection) -> None:
        """Cut a log that a long reader let grow."""
        self._commits += 1
        try:
            if self._commits % 256 == 0 and os.stat(f"{self.path}-wal").st_size > LARGE_WAL_BYTES:
                connection.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        except (OSError, StorageError):
            pass  # Somebody reads; the next time comes soon.

    def save_to(self, path: str) -> None:
        """Write a whole copy while others go on; from the open file if its name was removed.

        `VACUUM INTO` reads one view; the backup of SQLite's own API begins again at each write of another process.
        """
        own = self._writer
        try:
            if own is None or self._identity() == self._inode:
                own = None
        except OSError:
            pass
        connection = own or self._connect(f"file:{_uri(self.path)}")
        try:
            connection.run("VACUUM INTO ?", path)
        finally:
            if own is None:
                connection.connection.close()
        os.chmod(path, 0o600)

    def damage(self) -> list[str]:
        """Return what SQLite finds wrong in its pages; empty if nothing."""
        connection = self._reader or self._open_reader()
        self._reader = connection
        problems = [str(row[0]) for row in connection.rows("PRAGMA quick_check(20)")]
        return [] if problems == ["ok"] else problems

    def close_writer(self) -> None:
        """Close the writing connection, the lock and the wake files."""
        if self._writer is not None:
            self._writer.connection.close()
            self._writer = None
        if self._wal >= 0:
            os.close(self._wal)
            self._wal = -1
        self._close_wake_files()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def close_reader(self) -> None:
        """Close the reading connection."""
        if self._reader is not None:
            self._reader.connection.close()
            self._reader = None


def sync_data(descriptor: int) -> None:
    """Sync the content of a file to the disk."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # `fsync` leaves it in the cache of the disk.
    else:
        os.fdatasync(descriptor)


def storage_error(problem: sqlite3.Error, path: str) -> StorageError:
    """Return our error for one of SQLite's."""
    code = (getattr(problem, "sqlite_errorcode", None) or 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StorageError("The disk is full.", "Make room, then try again.")
    if code == sqlite3.SQLITE_READONLY:
        return StorageError(f"{path} cannot be written.", "Make its folder writable.")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StorageError(
            f"{path} is damaged: {problem}.",
            "Stop all programs that use it, then salvage it or restore a backup.",
        )
    if code == sqlite3.SQLITE_BUSY:
        return StorageError(f"{path} is locked by another program.", "Close that program, then try again.")
    return StorageError(f"{path}: {problem}.")


def _is_read_only(problem: OSError) -> bool:
    return problem.errno in (errno.EROFS, errno.EACCES, errno.EPERM)


def _uri(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _refuse_network_file_system(folder: str) -> None:
    kind = file_system_of(folder)
    if kind.startswith(NETWORK_FILE_SYSTEMS):
        text = f"{folder} is on a file system of the kind {kind}, on which SQLite is not safe."
        raise StorageError(text, USE_POSTGRESQL)


def file_system_of(folder: str, mounts: str = "/proc/self/mountinfo") -> str:
    """Return the kind of the file system of a folder; empty if unknown."""
    try:
        device = os.stat(folder).st_dev
        with open(mounts, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
    except OSError:
        return ""
    number = f"{os.major(device)}:{os.minor(device)}"
    kinds = [line.partition(" - ")[2].split()[0] for line in lines if line.split()[2] == number]
    return kinds[-1] if kinds else ""
