"""The work of time: deadlines, retention, and what a person does to dead letters and agents."""

from __future__ import annotations

from msgspec import Struct

from switchboard_mcp.database.transactions import Row, Transaction, placeholders
from switchboard_mcp.errors import failure, refused
from switchboard_mcp.mail.messages import StoredMessage
from switchboard_mcp.mail.store import rows
from switchboard_mcp.mail.store.leases import dead_letter
from switchboard_mcp.mail.store.reading import set_meta, text_to_index, unread_problem
from switchboard_mcp.mail.store.usage import count_removed, count_waiting

# Messages that are removed in one commit.
PIECE = 500


class Overdue(Struct, frozen=True):
    """A message that was not settled by its deadline."""

    message: StoredMessage
    due_ms: int


def overdue(tx: Transaction, limit: int = 100) -> list[Overdue]:
    """Return unsettled messages whose deadline has passed, the most overdue first."""
    due = tx.rows(
        "SELECT ord, ack_by FROM message WHERE ack_by IS NOT NULL AND place IN ('inbox', 'claimed')"
        " AND ack_by <= ? ORDER BY ack_by LIMIT ?",
        rows.now_ms(tx),
        limit,
    )
    times: dict[int, int] = dict(due)
    return [Overdue(item, times[item.order]) for item in rows.load(tx, list(times))]


def clear_deadline(tx: Transaction, order: int) -> None:
    """Note that the deadline of a message was handled."""
    tx.run("UPDATE message SET ack_by = NULL WHERE ord = ?", order)


def next_deadline(tx: Transaction) -> int | None:
    """Return when the next deadline passes, in milliseconds."""
    row = tx.row(
        "SELECT ack_by FROM message WHERE ack_by IS NOT NULL AND place IN ('inbox', 'claimed')"
        " ORDER BY ack_by LIMIT 1"
    )
    return row[0] if row else None


def next_expiry(tx: Transaction) -> int | None:
    """Return in how many milliseconds the next lease ends."""
    row = tx.row("SELECT lease_ends FROM message WHERE place = 'claimed' ORDER BY lease_ends LIMIT 1")
    return None if row is None else max(0, row[0] - tx.clock.lease_ms())


def prune(tx: Transaction, before_ms: int) -> int:
    """Remove some messages that were settled before a time; returns how many, so call it again until it is 0."""
    old = tx.rows(
        "SELECT ord, size FROM message WHERE settled_at IS NOT NULL AND settled_at < ? ORDER BY settled_at LIMIT ?",
        before_ms,
        PIECE,
    )
    _remove(tx, old)
    return len(old)


def _remove(tx: Transaction, old: list[Row]) -> None:
    orders = [row[0] for row in old]
    if not orders:
        return
    within = placeholders(orders)
    if tx.dialect == "sqlite" and tx.rows("SELECT 1 FROM sqlite_master WHERE name = 'words'"):
        last = tx.row("SELECT value FROM meta WHERE name = 'words_to'")
        for order, body in tx.rows(f"SELECT ord, body FROM body WHERE ord IN {within}", *orders):
            text = text_to_index(body)
            if last is not None and order <= int(last[0]) and text is not None:
                # An index without content needs to hear what it forgets.
                tx.run(
                    "INSERT INTO words (words, rowid, recipient, text) VALUES ('delete', ?, ?, ?)",
                    order,
                    *text,
                )
    for table in ("body", "attached", "message"):
        tx.run(f"DELETE FROM {table} WHERE ord IN {within}", *orders)
    count_removed(tx, len(old), sum(row[1] for row in old))


def requeue(tx: Transaction, agent: str, dead_id: str) -> None:
    """Return a dead letter to the inbox, as if it had never been claimed. Raises `mail_not_found`."""
    row = rows.find(tx, agent, dead_id)
    if row is None or row.place != "deadletter" or row.outcome == "refused":
        raise unread_problem(agent, dead_id)
    (dead,) = rows.load(tx, [row.order])
    if dead.message.action == "execute":
        text = f"Message '{dead_id}' was to be typed into a terminal, so it cannot be requeued."
        raise refused("mail_forbidden", text, hint="Send it again.")
    tx.run(
        "UPDATE message SET place = 'inbox', outcome = NULL, summary = NULL, settled_at = NULL, returns = 0"
        " WHERE ord = ?",
        row.order,
    )
    count_waiting(tx, agent, 1, row.size)
    tx.topics.add(f"inbox.{agent}")


def remove_agent(tx: Transaction, agent: str, *, force: bool) -> int:
    """Remove an agent; its unsettled messages become dead letters. Returns how many.

    Raises `mail_forbidden`, unless `force`, if there are any.
    """
    rows.require_agent(tx, agent)
    open_rows = tx.rows(
        f"SELECT {rows.COLUMNS} FROM message WHERE recipient = ? AND place = 'inbox'"
        f" UNION ALL SELECT {rows.COLUMNS} FROM message WHERE recipient = ? AND place = 'claimed'",
        agent,
        agent,
    )
    if open_rows and not force:
        text = f"'{agent}' has {len(open_rows)} messages that are not settled."
        raise refused("mail_forbidden", text, hint="Settle them, or remove it with force.")
    problem = failure("mail_recipient_unknown", f"Agent '{agent}' was removed.")
    for row in open_rows:
        dead_letter(tx, rows.row_of(row), "rejected", problem)
    tx.run("DELETE FROM agent WHERE name = ?", agent)
    tx.memo.pop(f"mail.agent {agent}", None)
    tx.topics.add("agents")
    return len(open_rows)


def begin_boot(tx: Transaction, boot: str) -> None:
    """After a start of the machine, put the ends of leases on its new uptime clock."""
    row = tx.row("SELECT value FROM meta WHERE name = 'boot'")
    if tx.dialect != "sqlite" or (row is not None and row[0] == boot):
        return
    uptime, now = tx.clock.lease_ms(), rows.now_ms(tx)
    for order, until in tx.rows("SELECT ord, lease_until FROM message WHERE place = 'claimed'"):
        tx.run("UPDATE message SET lease_ends = ? WHERE ord = ?", uptime + max(0, until - now), order)
    set_meta(tx, "boot", boot)
