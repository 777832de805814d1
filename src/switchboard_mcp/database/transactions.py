"""What a database engine provides, and the transaction that jobs work in.

SQL is written once, with `?` for values, in what SQLite 3.34 and PostgreSQL 13 have in common. This module is not
aware of threads or of how an engine locks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

Row = tuple[Any, ...]


class StorageError(Exception):
    """The database cannot do what was asked.

    `text` names what failed, `hint` says what to do. `uncertain` means that the change may have been stored, `is_lost`
    that the connection ended, so that the same job may succeed on another one.
    """

    def __init__(self, text: str, hint: str = "", *, uncertain: bool = False, is_lost: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint
        self.uncertain = uncertain
        self.is_lost = is_lost


class Connection(Protocol):
    """Runs SQL."""

    dialect: str
    """`sqlite` or `postgresql`, for the few statements that differ."""

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Return the rows of a query."""

    def run(self, sql: str, *values: object) -> None:
        """Run a statement that returns nothing; with PostgreSQL its error may surface at a later one."""

    def define(self, sql: str) -> None:
        """Run a statement that creates or changes a table, written with the types of SQLite."""


class EngineClock(Protocol):
    """Times of a transaction: those of this machine, or of the server that several share."""

    def wall_us(self) -> int:
        """Return the wall clock in microseconds."""

    def lease_ms(self) -> int:
        """Return the clock in which leases end, in milliseconds; it is not set back."""


class Transaction:
    """One group of jobs that is committed as a whole, or the view of a reader."""

    def __init__(self, connection: Connection, clock: EngineClock) -> None:
        self._connection = connection
        self.dialect = connection.dialect
        self.clock = clock
        # Topics whose listeners are woken after the commit; each can be a file name.
        self.topics: set[str] = set()
        # What features keep for the length of the group, such as counts that are written once at its end.
        self.memo: dict[str, Any] = {}
        self.has_changed = False
        # True if an earlier attempt may have been committed although no answer came.
        self.is_repeated = False
        self._at_end: list[Callable[[], None]] = []

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Return the rows of a query."""
        return self._connection.rows(sql, *values)

    def row(self, sql: str, *values: object) -> Row | None:
        """Return the first row of a query; None without one."""
        rows = self._connection.rows(sql, *values)
        return rows[0] if rows else None

    def run(self, sql: str, *values: object) -> None:
        """Change something."""
        self.has_changed = True
        self._connection.run(sql, *values)

    def at_end(self, work: Callable[[], None]) -> None:
        """Call `work` once after the jobs of the group and before its commit."""
        self._at_end.append(work)

    def finish(self) -> None:
        """Do what was left for the end of the group."""
        for work in self._at_end:
            work()
        self._at_end.clear()


class Engine(Protocol):
    """Opens connections and commits groups. Each method but `interrupt` is called by one thread at a time."""

    dialect: str

    def open(self) -> None:
        """Create or open the database and bring its tables up to date."""

    def begin(self, *, durable: bool) -> Transaction:
        """Wait for the turn to write, and begin."""

    def commit(self, tx: Transaction, *, durable: bool) -> None:
        """Commit, and wake the listeners of the transaction's topics."""

    def roll_back(self) -> None:
        """End the transaction without a change; never raises."""

    def reader(self) -> Transaction:
        """Begin to read; `end_read` follows."""

    def end_read(self) -> None:
        """End the reading."""

    def change_mark(self) -> object:
        """Return a value that differs after another process has committed; called by the reading thread."""

    def writer_description(self) -> str:
        """Describe who is writing now, for an error; empty if unknown."""

    def close_writer(self) -> None:
        """Close the writing connection."""

    def close_reader(self) -> None:
        """Close the reading connection."""


def placeholders(values: Collection[object]) -> str:
    """Return a list of places for these values, as it stands after IN.

    >>> placeholders("abc")
    '(?,?,?)'
    """
    return f"({','.join('?' * len(values))})"
