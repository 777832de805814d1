"""A full-text index of the messages of one agent, for searches in large mailboxes.

Filled when a search needs it, with the messages that it does not hold yet, in pieces. It may be deleted at any time.
Hits are only candidates: the files say whether a message is still there. Not aware of folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from switchboard_mcp.mail.store.index.inbox_index import FOLDER, database_errors, is_busy, open_database

if TYPE_CHECKING:
    import sqlite3

_SCHEMA = """
CREATE TABLE IF NOT EXISTS messages (ord INTEGER PRIMARY KEY, id TEXT UNIQUE, sender TEXT, action TEXT);
CREATE TABLE IF NOT EXISTS segments (name TEXT PRIMARY KEY, bytes INTEGER);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, content='', columnsize=0, prefix='2 3 4 5 6');
"""
# Up to which order the inbox was read. Databases from before it was noted have none.
_POSITION = "CREATE TABLE IF NOT EXISTS inbox (position INTEGER);"
# A database of another version is written again.
_VERSION = 2
_WORD = re.compile(r"\w+")
MAX_WORDS = 32
# Beginnings of 2 to 6 letters have an index of their own. Longer ones are merged from their words, which are few.
_SHORTEST_BEGINNING = 2


class IndexedMessage(Struct, frozen=True):
    """One message for the index."""

    order: int
    id: str
    sender: str
    action: str
    text: str


class WordIndex:
    """The open index of one agent."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def has(self, message_id: str) -> bool:
        """Return True if this message is indexed."""
        query = "SELECT 1 FROM messages WHERE id = ?"
        return self._connection.execute(query, (message_id,)).fetchone() is not None

    def ids_between(self, first: int, last: int) -> set[str]:
        """Return the ids of the indexed messages in a range of orders."""
        query = "SELECT id FROM messages WHERE ord BETWEEN ? AND ?"
        return {id for (id,) in self._connection.execute(query, (first, last))}

    def position(self) -> int:
        """Return the order up to which the messages of the inbox are indexed."""
        row = self._connection.execute("SELECT position FROM inbox").fetchone()
        return int(row[0]) if row else 0

    def segment_bytes(self, segment: str) -> int:
        """Return up to where a segment of the archive is indexed."""
        query = "SELECT bytes FROM segments WHERE name = ?"
        row = self._connection.execute(query, (segment,)).fetchone()
        return int(row[0]) if row else 0

    def add(self, messages: Iterable[IndexedMessage], position: int | None = None) -> None:
        """Add messages and record the position in the inbox, in one transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        for each in messages:
            self._insert(each)
        if position is not None:
            self._connection.execute("DELETE FROM inbox")
            self._connection.execute("INSERT INTO inbox VALUES (?)", (position,))
        self._connection.execute("COMMIT")

    def add_segment(self, segment: str, lines: Iterable[tuple[int, IndexedMessage | None]]) -> None:
        """Add the messages in some lines of a segment and record where the last one ends, in one transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        end = 0
        for position, message in lines:
            end = position
            if message is not None:
                self._insert(message)
        self._connection.execute("INSERT OR REPLACE INTO segments VALUES (?, ?)", (segment, end))
        self._connection.execute("COMMIT")

    def _insert(self, message: IndexedMessage) -> None:
        row = (message.order, message.id, message.sender, message.action)
        added = self._connection.execute("INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?)", row)
        if added.rowcount == 1:  # else another process was quicker
            values = (message.order, message.text)
            self._connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", values)

    def search(self, query: str, sender: str | None, action: str | None, limit: int) -> list[tuple[int, str]]:
        """Return order and id of messages with these words, newest first: with all of them, then with any.

        Whole words come before words that begin alike. Without words, the newest messages. Every part is read from the
        newest message on and ends with the limit, so the number of messages does not matter.
        """
        filters = [_phrase(each) for each in (sender, action) if each]
        words = _WORD.findall(query)[:MAX_WORDS]
        found: dict[str, int] = {}
        for match in _matches(words, filters):
            for order, id in self._select(match, sender, action, limit):
                found.setdefault(id, order)
            if len(found) >= limit:
                break
        return [(order, id) for id, order in found.items()]

    def _select(
        self, match: str, sender: str | None, action: str | None, limit: int
    ) -> Iterator[tuple[int, str]]:
        if not match:
            query = "SELECT ord, id FROM messages ORDER BY ord DESC LIMIT ?"
            return self._connection.execute(query, (limit,))
        return self._connection.execute(
            "SELECT ord, id FROM words JOIN messages ON ord = words.rowid WHERE words MATCH ?4 "
            "AND (?1 IS NULL OR sender = ?1) AND (?2 IS NULL OR action = ?2) ORDER BY words.rowid DESC LIMIT ?3",
            (sender, action, limit, match),
        )


def _phrase(text: str) -> str:
    """Return the query for this text, as it is in every message it applies to."""
    escaped = text.replace('"', '""')
    return f'"{escaped}"'


def _matches(words: Sequence[str], filters: Sequence[str]) -> Iterator[str]:
    """Yield the queries for these words, best first."""
    if not words:
        yield " AND ".join(filters)
        return
    whole = [_phrase(word) for word in words]
    beginning = [f"{_phrase(word)}*" if len(word) >= _SHORTEST_BEGINNING else _phrase(word) for word in words]
    joined = (f" {how} ".join(some) for how in ("AND", "OR") for some in (whole, beginning))
    yield from dict.fromkeys(" AND ".join([*filters, f"({each})"]) for each in joined)


@contextmanager
def opened(path: str, agent: str) -> Iterator[WordIndex | None]:
    """Open the index of an agent, creating it; None if that fails. One that cannot be used is removed."""
    file = os.path.join(path, FOLDER, f"{agent}.words.db")
    try:
        connection = _open(file)
    except database_errors() as problem:
        if not is_busy(problem):
            _remove(file)
        yield None
        return
    try:
        yield WordIndex(connection)
    except database_errors() as problem:
        if not is_busy(problem):
            _remove(file)
        raise
    finally:
        connection.close()


def _open(file: str) -> sqlite3.Connection:
    if os.path.exists(file):
        connection = open_database(file, _POSITION, durable=True)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == _VERSION:
            return connection
        connection.close()
        _remove(file)
    return open_database(file, f"{_SCHEMA} {_POSITION} PRAGMA user_version = {_VERSION};", durable=True)


def _remove(file: str) -> None:
    for name in (file, f"{file}-journal"):
        try:
            os.unlink(name)
        except OSError:
            continue
