"""What a person needs when something may be wrong: verify, salvage, export."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from switchboard_mcp.database.machine_clocks import MachineClocks, iso_time
from switchboard_mcp.database.sqlite import SqliteEngine
from switchboard_mcp.database.transactions import StorageError, Transaction
from switchboard_mcp.mail.store import rows
from switchboard_mcp.mail.store.mail_tables import MAIL, WORKSPACE

PIECE = 1_000
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
# Tables that hold everything but indexes; the words are indexed again.
TABLES = ("message", "body", "agent", "usage", "document", "attached")


class MailVerdict(Struct, kw_only=True):
    """What `verify` found."""

    messages: int = 0
    problems: list[str] = []

    @property
    def is_sound(self) -> bool:
        """Return True if nothing is wrong."""
        return not self.problems


def verify(tx: Transaction) -> MailVerdict:
    """Read every message, compare its checksum, and compare the counts."""
    verdict = MailVerdict()
    counts: dict[str, list[int]] = {}
    after = -1
    while page := tx.rows(
        f"SELECT {rows.COLUMNS}, body FROM message LEFT JOIN body USING (ord) WHERE ord > ? ORDER BY ord LIMIT ?",
        after,
        PIECE,
    ):
        after = page[-1][0]
        verdict.messages += len(page)
        for row, body in ((rows.row_of(item[:-1]), item[-1]) for item in page):
            if row.outcome != "refused" and (body is None or rows.decode(body, row.sum) is None):
                verdict.problems.append(f"The content of '{row.id}' to '{row.recipient}' is damaged.")
            for name in (WORKSPACE, row.recipient) if row.place in ("inbox", "claimed") else (WORKSPACE,):
                count = counts.setdefault(name, [0, 0])
                count[0] += 1
                count[1] += row.size
    for name, messages, size in tx.rows("SELECT name, messages, bytes FROM usage ORDER BY name"):
        if counts.get(name, [0, 0]) != [messages, size]:
            verdict.problems.append(f"The counts of '{name}' are wrong. Count them again.")
    return verdict


def recount(tx: Transaction) -> None:
    """Count all messages again."""
    tx.run("DELETE FROM usage")
    insert = "INSERT INTO usage (name, messages, bytes)"
    tx.run(f"{insert} SELECT ?, count(*), coalesce(sum(size), 0) FROM message", WORKSPACE)
    tx.run(
        f"{insert} SELECT recipient, count(*), sum(size) FROM message WHERE place IN ('inbox', 'claimed')"
        " GROUP BY recipient"
    )


def export(tx: Transaction, day: str = "") -> Iterator[str]:
    """Yield every message as a line of JSON, with its place and receipts; `day` is the begin of its time."""
    after = -1
    while page := tx.rows(
        f"SELECT {rows.COLUMNS}, body FROM message LEFT JOIN body USING (ord) WHERE ord > ? ORDER BY ord LIMIT ?",
        after,
        PIECE,
    ):
        after = page[-1][0]
        for row, body in ((rows.row_of(item[:-1]), item[-1]) for item in page):
            if iso_time(row.sent_at).startswith(day):
                yield msgspec.json.encode(
                    {
                        "place": row.place,
                        "name": rows.file_name(row.order, row.id),
                        "message": msgspec.Raw((body or "null").encode()),
                        "receipts": list(rows.receipts_of(row)),
                    }
                ).decode()


class Salvaged(Struct, kw_only=True):
    """What was read from a damaged database."""

    moved_to: str
    messages: int
    lost: list[int]
    """Orders of messages of which nothing or only a part could be read."""


def salvage(path: str, clocks: MachineClocks) -> Salvaged:
    """Move a damaged database of SQLite aside and read what can be read into a new one, row by row.

    No process may have it open. Text that is lost may be in a backup, or in the files in `inbox/`.
    """
    new = f"{path}.salvaged"
    for suffix in ("", "-wal", "-shm", ".lock"):
        if os.path.exists(new + suffix):
            os.unlink(new + suffix)
    old = SqliteEngine(path, [MAIL], clocks)
    target = SqliteEngine(new, [MAIL], clocks)
    target.open()
    lost: set[int] = set()
    try:
        source, tx = old.reader(), target.begin(durable=True)
        for table in TABLES:
            lost |= _copy(source, tx, table)
        missing = tx.rows(
            "SELECT ord FROM message WHERE ord NOT IN (SELECT ord FROM body) AND outcome <> 'refused'"
        )
        lost |= {row[0] for row in missing}
        recount(tx)
        (messages,) = tx.rows("SELECT count(*) FROM message")
        target.commit(tx, durable=True)
    finally:
        old.close_reader()
        target.close_writer()
    moved_to = _move_aside(path, "damaged")
    os.rename(new, path)
    return Salvaged(moved_to=moved_to, messages=messages[0], lost=sorted(lost))


def restore(source: str, path: str, clocks: MachineClocks) -> str:
    """Put a backup in the place of the database; returns where that was moved. No process may have it open."""
    new = f"{path}.restored"
    with open(source, "rb") as backup, open(os.open(new, _NEW, 0o600), "wb") as copy:
        while part := backup.read(1 << 20):
            copy.write(part)
        copy.flush()
        os.fsync(copy.fileno())
    engine = SqliteEngine(new, [MAIL], clocks)
    engine.open()  # Refuses what is no database of mail, or one of a newer version.
    engine.close_writer()
    moved_to = _move_aside(path, "replaced") if os.path.exists(path) else ""
    os.rename(new, path)
    return moved_to


def _move_aside(path: str, why: str) -> str:
    moved_to = f"{path}.{why}.{time.strftime('%Y%m%d-%H%M%S')}"
    os.rename(path, moved_to)
    for suffix in ("-wal", "-shm"):
        if os.path.exists(path + suffix):
            os.rename(path + suffix, moved_to + suffix)
    return moved_to


def _copy(source: Transaction, tx: Transaction, table: str) -> set[int]:
    """Copy the rows of a table in pieces, and those of a piece that cannot be read one by one."""
    columns = ", ".join(row[1] for row in tx.rows(f"PRAGMA table_info({table})"))
    places = ", ".join("?" * (columns.count(",") + 1))
    insert = f"INSERT INTO {table} ({columns}) VALUES ({places}) ON CONFLICT DO NOTHING"
    lost: set[int] = set()
    first, last = _bounds(source, table)
    todo = [(first, last)] if last >= first else []
    while todo:
        first, last = todo.pop()
        try:
            for row in source.rows(f"SELECT {columns} FROM {table} WHERE rowid BETWEEN ? AND ?", first, last):
                tx.run(insert, *row)
        except StorageError:
            if first == last:
                lost |= {first} if table in ("message", "body") else set()
                continue
            middle = (first + last) // 2
            todo += [(first, middle), (middle + 1, last)]
    return lost


def _bounds(source: Transaction, table: str) -> tuple[int, int]:
    try:
        row = source.row(f"SELECT min(rowid), max(rowid) FROM {table}")
    except StorageError:
        return 0, 1 << 51  # Beyond every order, which is a time in microseconds.
    return (row[0], row[1]) if row and row[0] is not None else (1, 0)
