"""The tables of mail, and the columns that most queries read.

A message is one row, whose `place` says where it is. Its text has a table of its own: a change of `place` would write
it again. `ord` grows in the order of the commits. `fence` grows with every claim of the workspace. Times are
milliseconds of the wall clock but `lease_ends`, which is in the clock that is not set back.
"""

from __future__ import annotations

from switchboard_mcp.database.table_versions import Part
from switchboard_mcp.database.transactions import Connection

RANKS = {"low": -1, "normal": 0, "high": 1, "urgent": 2}
# Kept in `usage` under this name: all messages that are stored.
WORKSPACE = "*"

_TABLES = (
    """
    CREATE TABLE message (
      ord INTEGER PRIMARY KEY, id TEXT NOT NULL, sender TEXT NOT NULL, recipient TEXT NOT NULL,
      rank INTEGER NOT NULL DEFAULT 0, place TEXT NOT NULL DEFAULT 'inbox', fence INTEGER NOT NULL DEFAULT 0,
      lease_ends INTEGER, lease_until INTEGER, returns INTEGER NOT NULL DEFAULT 0,
      outcome TEXT, summary TEXT, sent_at INTEGER NOT NULL, settled_at INTEGER,
      dedup TEXT, thread TEXT NOT NULL, ack_by INTEGER, verified INTEGER NOT NULL,
      by_file INTEGER NOT NULL DEFAULT 0, size INTEGER NOT NULL, sum BLOB NOT NULL)
    """,
    "CREATE TABLE body (ord INTEGER PRIMARY KEY, body TEXT NOT NULL)",
    "CREATE UNIQUE INDEX by_id ON message(recipient, id)",
    "CREATE UNIQUE INDEX once ON message(recipient, sender, dedup) WHERE dedup IS NOT NULL",
    "CREATE INDEX waiting ON message(recipient, rank DESC, ord) WHERE place = 'inbox'",
    "CREATE INDEX oldest ON message(recipient, sender, ord) WHERE place = 'inbox'",
    "CREATE INDEX in_order ON message(recipient, ord) WHERE place = 'inbox'",
    "CREATE INDEX held ON message(recipient, ord) WHERE place = 'claimed'",
    "CREATE INDEX leased ON message(lease_ends) WHERE place = 'claimed'",
    "CREATE INDEX dead ON message(recipient, ord) WHERE place = 'deadletter'",
    "CREATE INDEX due ON message(ack_by) WHERE ack_by IS NOT NULL AND place IN ('inbox', 'claimed')",
    "CREATE INDEX settled ON message(settled_at) WHERE settled_at IS NOT NULL",
    "CREATE INDEX settled_of ON message(recipient, settled_at) WHERE settled_at IS NOT NULL",
    "CREATE INDEX sent ON message(sender, ord)",
    "CREATE INDEX received ON message(recipient, ord)",
    "CREATE INDEX from_sender ON message(recipient, sender, ord)",
    "CREATE INDEX dropped ON message(id) WHERE by_file = 1",
    "CREATE INDEX by_thread ON message(thread, ord)",
    "CREATE TABLE agent (name TEXT PRIMARY KEY, since INTEGER NOT NULL)",
    "CREATE TABLE usage (name TEXT PRIMARY KEY, messages INTEGER NOT NULL, bytes INTEGER NOT NULL)",
    "CREATE TABLE document (kind TEXT, name TEXT, body TEXT NOT NULL, PRIMARY KEY (kind, name))",
    "CREATE TABLE attached (sha TEXT, ord INTEGER, PRIMARY KEY (sha, ord))",
    "CREATE INDEX attached_to ON attached(ord)",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
)


def _create(connection: Connection) -> None:
    for statement in _TABLES:
        connection.define(statement)
    if connection.dialect == "postgresql":
        connection.define(
            "CREATE TABLE attachment (sha TEXT, piece INTEGER, data BLOB, PRIMARY KEY (sha, piece))"
        )
        connection.define("ALTER TABLE body ADD COLUMN words tsvector")
        connection.define("CREATE INDEX words ON body USING gin (words)")
    elif has_words(connection):
        connection.define("CREATE VIRTUAL TABLE words USING fts5(recipient, text, content='')")


def has_words(connection: Connection) -> bool:
    """Return True if this SQLite can index words."""
    return bool(connection.rows("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'"))


MAIL = Part("mail", (_create,))
