"""PostgreSQL: one schema per workspace, for processes on several machines.

    group:  BEGIN → lock of the workspace → versions and clock → jobs → pg_notify → COMMIT

One client writes at a time, as with SQLite, so that order numbers grow in the order of the commits. Statements are
sent in a pipeline: only a query waits for the server. Every commit is durable, also that of a claim: a server that is
killed forgets unsynced commits while its clients go on.
PgBouncer in transaction mode does not carry the settings, notifications and prepared statements used here.
"""

from __future__ import annotations

import re
import select
import threading
from asyncio import get_running_loop
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import lru_cache
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qsl, urlencode

import psycopg

from switchboard_mcp.database import table_versions
from switchboard_mcp.database.machine_clocks import MachineClocks
from switchboard_mcp.database.table_versions import Part
from switchboard_mcp.database.transactions import Row, StorageError, Transaction

OLDEST = 130_000
DEFAULT_SCHEMA = "switchboard"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,40}")
_TYPES = {"INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "BLOB": "BYTEA"}
_TYPE = re.compile(r"\b(INTEGER|REAL|BLOB)\b")
# A machine that disappears is noticed after this long, and its lock is free again.
GONE_S = 30
_ENDED = (psycopg.errors.AdminShutdown, psycopg.errors.CrashShutdown, psycopg.errors.CannotConnectNow)
# Rows that a search for words considers; without it, a common word means reading all of its messages.
SEARCH_LIMIT = 5_000
# The listening thread looks this often whether it is to stop or to listen to something else.
LISTEN_S = 0.5


@lru_cache(maxsize=512)
def postgres_sql(sql: str) -> str:
    """Return a statement with the placeholders of psycopg."""
    return sql.replace("%", "%%").replace("?", "%s")


class PostgresConnection:
    """Runs SQL on one connection and turns errors into ours."""

    dialect = "postgresql"

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self.connection = connection

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Return the rows of a query; waits for the server."""
        try:
            return self.connection.execute(postgres_sql(sql), values).fetchall()
        except psycopg.Error as problem:
            raise storage_error(problem, self.connection) from problem

    def run(self, sql: str, *values: object) -> None:
        """Send a statement."""
        try:
            self.connection.execute(postgres_sql(sql), values)
        except psycopg.Error as problem:
            raise storage_error(problem, self.connection) from problem

    def define(self, sql: str) -> None:
        """Run a statement that creates or changes a table, with the types of PostgreSQL."""
        self.run(_TYPE.sub(lambda match: _TYPES[match[0]], sql))


class ServerClock:
    """The server's clock, read once per transaction: clocks of clients differ."""

    def __init__(self, wall_us: int) -> None:
        self._wall_us = wall_us

    def wall_us(self) -> int:
        """Return the server's time."""
        return self._wall_us

    def lease_ms(self) -> int:
        """Return the server's time."""
        return self._wall_us // 1_000


class _GivenClock:
    """Clocks that a test passed in."""

    def __init__(self, clocks: MachineClocks) -> None:
        self.wall_us = clocks.wall_us
        self.lease_ms = clocks.uptime_ms


class PostgresEngine:
    """The database of a workspace in a schema of a server."""

    dialect = "postgresql"

    def __init__(self, url: str, parts: Sequence[Part], clocks: MachineClocks | None = None) -> None:
        self.url, self.schema = split_schema(url)
        self._parts = parts
        self._given = _GivenClock(clocks) if clocks is not None else None
        digest = blake2b(self.schema.encode(), digest_size=8).digest()
        self._lock_key = int.from_bytes(digest, "big", signed=True)
        self._writer: PostgresConnection | None = None
        self._reader: PostgresConnection | None = None
        self._pipeline = ExitStack()

    def connect(self, name: str) -> psycopg.Connection[Row]:
        """Open a connection with the schema of the workspace."""
        options = f"-c search_path={self.schema} -c idle_in_transaction_session_timeout={GONE_S}s"
        try:
            return psycopg.connect(
                self.url,
                autocommit=True,
                options=f"{options} -c gin_fuzzy_search_limit={SEARCH_LIMIT} -c synchronous_commit=on",
                application_name=f"switchboard {name}",
                connect_timeout=10,
                keepalives_idle=GONE_S // 3,
                keepalives_interval=5,
                keepalives_count=3,
                tcp_user_timeout=GONE_S * 1_000,
            )
        except psycopg.Error as problem:
            raise storage_error(problem, None) from problem

    def open(self) -> None:
        """Create the schema and its tables."""
        connection = self._writer = PostgresConnection(self.connect("writer"))
        if connection.connection.info.server_version < OLDEST:
            release = connection.connection.info.server_version // 10_000
            raise StorageError(
                f"The server is PostgreSQL {release}; 13 or newer is needed.", "Use a newer server."
            )
        connection.run("BEGIN")
        try:
            connection.rows("SELECT pg_advisory_xact_lock(?)", self._lock_key)
            connection.run(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
            table_versions.upgrade(connection, self._parts)
            connection.run("COMMIT")
        except BaseException:
            self.roll_back()
            raise

    def begin(self, *, durable: bool) -> Transaction:
        """Wait for the lock of the workspace."""
        if self._writer is None:
            self._writer = PostgresConnection(self.connect("writer"))
        connection = self._writer
        try:
            self._pipeline.enter_context(connection.connection.pipeline())
        except psycopg.Error as problem:
            raise storage_error(problem, connection.connection) from problem
        connection.run("BEGIN")
        connection.run("SELECT pg_advisory_xact_lock(?)", self._lock_key)
        # A statement of its own: its view of the tables begins after the lock was taken.
        rows = connection.rows(
            "SELECT part, major, version, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
            " FROM schema_version"
        )
        table_versions.check(self._parts, [row[:3] for row in rows])
        return Transaction(connection, self._given or ServerClock(rows[0][3]))

    def commit(self, tx: Transaction, *, durable: bool) -> None:
        """Commit; listeners are notified by the server."""
        assert self._writer is not None
        for topic in tx.topics:
            self._writer.run("SELECT pg_notify(?, '')", self.channel(topic))
        self._writer.run("COMMIT")
        try:
            self._pipeline.close()
        except psycopg.Error as problem:
            raise storage_error(problem, self._writer.connection) from problem

    def roll_back(self) -> None:
        """End the transaction; a connection that cannot is closed."""
        connection, self._writer = self._writer, None
        if connection is None:
            return
        try:
            self._pipeline.close()
        except (psycopg.Error, StorageError):
            pass  # The error of the group, a second time.
        self._pipeline = ExitStack()
        try:
            connection.connection.rollback()
            self._writer = connection
        except psycopg.Error:
            connection.connection.close()

    def reader(self) -> Transaction:
        """Read; each query has a view of its own."""
        if self._reader is None or self._reader.connection.closed:
            self._reader = PostgresConnection(self.connect("reader"))
        return Transaction(self._reader, self._given or _ReaderClock(self._reader))

    def end_read(self) -> None:
        """Nothing is open between queries."""
        if self._reader is not None and self._reader.connection.broken:
            self._reader.connection.close()

    def change_mark(self) -> object:
        """Return the number of the next transaction of the server."""
        self.reader()
        assert self._reader is not None
        return self._reader.rows("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")[0][0]

    def writer_description(self) -> str:
        """Describe a writer on any machine."""
        return "another client of the PostgreSQL server"

    def channel(self, topic: str) -> str:
        """Return the notification channel of a topic: channels are shared by all schemas of a database."""
        return f"switchboard_{blake2b(f'{self.schema} {topic}'.encode(), digest_size=10).hexdigest()}"

    def close_writer(self) -> None:
        """Close the writing connection."""
        if self._writer is not None:
            self._writer.connection.close()
            self._writer = None

    def close_reader(self) -> None:
        """Close the reading connection."""
        if self._reader is not None:
            self._reader.connection.close()
            self._reader = None


class _ReaderClock:
    """Asks the server for the time when it is needed."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def wall_us(self) -> int:
        """Return the server's time."""
        sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        return int(self._connection.rows(sql)[0][0])

    def lease_ms(self) -> int:
        """Return the server's time."""
        return self.wall_us() // 1_000


class PostgresWakeUps:
    """Listens to the channels of topics, on a connection and a thread of its own.

    For all commits there is no channel: a process would wake for the mail of others. The look once a second serves it.
    """

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine
        self._loop = get_running_loop()
        self._topics: frozenset[str] = frozenset()
        self._hear: Callable[[str], None] = lambda _: None
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, topics: frozenset[str], hear: Callable[[str], None], *, everything: bool) -> None:
        """Listen to these topics from now on."""
        self._topics, self._hear = topics, hear
        if topics and self._thread is None:
            self._thread = threading.Thread(
                target=self._listen, name="switchboard-database-listener", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Stop; the thread ends within a moment."""
        self._is_closing.set()
        if self._thread is not None:
            self._thread.join(LISTEN_S * 4)

    def _listen(self) -> None:
        while not self._is_closing.is_set():
            try:
                with self._engine.connect("listener") as connection:
                    self._follow(connection)
            except (psycopg.Error, StorageError):
                self._is_closing.wait(LISTEN_S)  # The look once a second goes on meanwhile.

    def _follow(self, connection: psycopg.Connection[Any]) -> None:
        heard: dict[str, str] = {}
        while not self._is_closing.is_set():
            wanted = {self._engine.channel(topic): topic for topic in self._topics}
            for channel in heard.keys() - wanted.keys():
                connection.execute(f"UNLISTEN {channel}")
            for channel in wanted.keys() - heard.keys():
                connection.execute(f"LISTEN {channel}")
                self._tell(wanted[channel])  # What was committed before it.
            heard = wanted
            select.select([connection.fileno()], [], [], LISTEN_S)
            for notify in connection.notifies(timeout=0):
                if notify.channel in heard:
                    self._tell(heard[notify.channel])

    def _tell(self, topic: str) -> None:
        try:
            self._loop.call_soon_threadsafe(self._hear, topic)
        except RuntimeError:
            self._is_closing.set()


def split_schema(url: str) -> tuple[str, str]:
    """Split a URL into that of the server and the schema in its query.

    >>> split_schema("postgresql://db/mail?sslmode=require&schema=team")
    ('postgresql://db/mail?sslmode=require', 'team')
    """
    server, _, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    name = dict(options).get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(name):
        raise StorageError(f"'{name}' is not a valid schema.", "Use small letters, digits and _.")
    rest = urlencode([(key, value) for key, value in options if key != "schema"])
    return f"{server}?{rest}" if rest else server, name


def storage_error(problem: psycopg.Error, connection: psycopg.Connection[Any] | None) -> StorageError:
    """Return our error for one of psycopg's."""
    lines = str(problem).strip().splitlines()
    text = f"PostgreSQL: {lines[0] if lines else type(problem).__name__}"
    is_lost = isinstance(problem, psycopg.OperationalError) and (connection is None or connection.closed)
    if connection is not None and isinstance(problem, _ENDED):
        # The server has said that it ends this connection, which psycopg does not count as closed yet.
        connection.close()
        is_lost = True
    if isinstance(problem, psycopg.errors.DiskFull):
        return StorageError("The disk of the PostgreSQL server is full.", "Make room there, then try again.")
    if is_lost:
        hint = "Check that the server runs, then repeat it with the same idempotencyKey."
        return StorageError(text, hint, is_lost=True)
    return StorageError(text)
