"""A full-text index of the messages of one agent, for searches in large mailboxes.

Filled when a search needs it, with the messages that it does not hold yet, in pieces. It may be deleted at any time.
Hits are only candidates: the files say whether a message is still there. Not aware of folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from switchboard_mcp.mail.store.index.inbox_index import FOLDER, database_errors, is_busy, open_database

if TYPE_CHECKING:
    import sqlite3

_SCHEMA = """
CREATE TABLE IF NOT EXISTS messages (ord INTEGER PRIMARY KEY, id TEXT UNIQUE, sender TEXT, action TEXT);
CREATE TABLE IF NOT EXISTS segments (name TEXT PRIMARY KEY, bytes INTEGER);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, content='', columnsize=0);
"""
_WORD = re.compile(r"\w+")
MAX_WORDS = 32


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

    def newest(self) -> int:
        """Return the highest order number; 0 if there is no message."""
        return int(self._connection.execute("SELECT MAX(ord) FROM messages").fetchone()[0] or 0)

    def segment_bytes(self, segment: str) -> int:
        """Return up to where a segment of the archive is indexed."""
        query = "SELECT bytes FROM segments WHERE name = ?"
        row = self._connection.execute(query, (segment,)).fetchone()
        return int(row[0]) if row else 0

    def add(self, messages: Iterable[IndexedMessage]) -> None:
        """Add messages, in one transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        for each in messages:
            self._insert(each)
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

        Without words, the newest messages.
        """
        words = [f'"{word}"*' for word in _WORD.findall(query)[:MAX_WORDS]]
        filters = "(?1 IS NULL OR sender = ?1) AND (?2 IS NULL OR action = ?2)"
        if not words:
            rows = self._connection.execute(
                f"SELECT ord, id FROM messages WHERE {filters} ORDER BY ord DESC LIMIT ?3",
                (sender, action, limit),
            )
            return list(rows)
        found: dict[str, int] = {}
        for match in dict.fromkeys((" AND ".join(words), " OR ".join(words))):
            rows = self._connection.execute(
                f"SELECT ord, id FROM words JOIN messages ON ord = words.rowid WHERE words MATCH ?4 AND {filters} "
                "ORDER BY words.rowid DESC LIMIT ?3",
                (sender, action, limit, match),
            )
            found |= {id: order for order, id in rows}
            if len(found) >= limit:
                break
        return [(order, id) for id, order in found.items()]


@contextmanager
def opened(path: str, agent: str) -> Iterator[WordIndex | None]:
    """Open the index of an agent, creating it; None if that fails. One that cannot be used is removed."""
    file = os.path.join(path, FOLDER, f"{agent}.words.db")
    try:
        connection = open_database(file, _SCHEMA, durable=True)
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


def _remove(file: str) -> None:
    for name in (file, f"{file}-journal"):
        try:
            os.unlink(name)
        except OSError:
            continue
