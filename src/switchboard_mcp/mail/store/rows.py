"""Messages as rows: encoding, reading back with a check of the content, receipts, and names of files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import msgspec

from switchboard_mcp.config.agent_names import RESERVED_FOR, agent_name
from switchboard_mcp.database.machine_clocks import iso_time
from switchboard_mcp.database.transactions import Row, Transaction, placeholders
from switchboard_mcp.errors import refused
from switchboard_mcp.mail.messages import MailMessage, Receipt, StoredMessage
from switchboard_mcp.mail.store.filenames import ORDER_DIGITS, is_store_id
from switchboard_mcp.suites.fuzzy import nearest

COLUMNS = (
    "ord, id, sender, recipient, place, fence, returns, outcome, summary,"
    " sent_at, settled_at, verified, size, sum, thread"
)
MAX_SUMMARY_CHARS = 2_000
# How the id of a file that never was a message begins.
FOREIGN = "foreign_"
# Names that are offered for an unknown one, and compared with it.
SUGGESTED, COMPARED = 20, 1_000
_DAMAGED = "Its content in the database is damaged. Run `switchboard mail verify`."
_decode = msgspec.json.Decoder(MailMessage).decode


class MessageRow(msgspec.Struct, array_like=True):
    """A row of `message`, in the order of COLUMNS."""

    order: int
    id: str
    sender: str
    recipient: str
    place: Any
    fence: int
    returns: int
    outcome: Any
    summary: str | None
    sent_at: int
    settled_at: int | None
    verified: int
    size: int
    sum: bytes
    thread: str


def row_of(row: Row) -> MessageRow:
    """Return a row with its columns named."""
    return MessageRow(*row)


def checksum(body: str) -> bytes:
    """Return what is compared when a body is read: SQLite notices no flipped bit."""
    return blake2b(body.encode(), digest_size=8).digest()


def encode(message: MailMessage) -> str:
    """Return the text of a message, as its file shows it."""
    return msgspec.json.encode(message).decode()


def decode(body: str, total: bytes) -> MailMessage | None:
    """Return a message; None if its text was damaged."""
    if checksum(body) != total:
        return None
    try:
        return _decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None


def stored(row: MessageRow, body: str | None) -> StoredMessage:
    """Return a message with its place. One that cannot be read has its reason instead of content."""
    message = None if body is None else decode(body, row.sum)
    reason = row.summary if row.place == "deadletter" else None
    if message is None:
        reason = reason or _DAMAGED
        message = MailMessage(
            id=row.id,
            action="status_update",
            sender=row.sender,
            recipient=row.recipient,
            payload="",
            created_at=iso_time(row.sent_at),
        )
    return StoredMessage(
        message=message,
        place=row.place,
        order=row.order,
        verified=bool(row.verified),
        outcome=row.outcome if row.outcome != "refused" else None,
        reason=reason,
    )


def load(tx: Transaction, orders: Sequence[int]) -> list[StoredMessage]:
    """Return the messages with these orders, in this order."""
    loaded: dict[int, StoredMessage] = {}
    for first in range(0, len(orders), 500):
        some = orders[first : first + 500]
        rows = tx.rows(
            f"SELECT {COLUMNS}, body FROM message LEFT JOIN body USING (ord) WHERE ord IN {placeholders(some)}",
            *some,
        )
        loaded |= {row[0]: stored(row_of(row[:-1]), row[-1]) for row in rows}
    return [loaded[order] for order in orders if order in loaded]


def find(tx: Transaction, agent: str, message_id: str) -> MessageRow | None:
    """Return the row of a message to an agent."""
    row = tx.row(f"SELECT {COLUMNS} FROM message WHERE recipient = ? AND id = ?", agent, message_id)
    return None if row is None else row_of(row)


def require(tx: Transaction, agent: str, message_id: str) -> MessageRow:
    """Return the row of a message. Raises `mail_not_found`."""
    row = find(tx, agent, message_id)
    if row is None:
        raise refused("mail_not_found", f"Agent '{agent}' has no message '{message_id[:150]}'.")
    return row


def parse_name(written: str) -> str:
    """Return the normalized agent name. Raises `mail_name_invalid`."""
    name = agent_name(written)
    if name is None:
        shown = written if len(written) < 80 else written[:79] + "…"
        raise refused("mail_name_invalid", f"{shown!r} is not a valid agent name.")
    return name


def require_unreserved(name: str) -> str:
    """Return the name. Raises `mail_identity` if no agent may use it."""
    if name in RESERVED_FOR:
        raise refused(
            "mail_identity", f"'{name}' is reserved for {RESERVED_FOR[name]}.", hint="Use another name."
        )
    return name


def has_agent(tx: Transaction, name: str) -> bool:
    """Return True if an agent has an inbox; asked once per group."""
    key = f"mail.agent {name}"
    if not tx.memo.get(key):
        tx.memo[key] = tx.row("SELECT 1 FROM agent WHERE name = ?", name) is not None
    return bool(tx.memo[key])


def require_agent(tx: Transaction, name: str) -> str:
    """Return the name of an agent that has an inbox. Raises `mail_recipient_unknown` with the nearest names."""
    if not has_agent(tx, name):
        names = [row[0] for row in tx.rows("SELECT name FROM agent ORDER BY name LIMIT ?", COMPARED)]
        message = f"There is no agent '{name}' here."
        message += (
            f" Known agents: {', '.join(names[:SUGGESTED])}." if names else " No agent has registered yet."
        )
        raise refused("mail_recipient_unknown", message, nearest=nearest(name, names))
    return name


def add_agent(tx: Transaction, name: str) -> str:
    """Give an agent an inbox."""
    if not has_agent(tx, name):
        tx.run("INSERT INTO agent (name, since) VALUES (?, ?) ON CONFLICT DO NOTHING", name, now_ms(tx))
        tx.memo[f"mail.agent {name}"] = True
        tx.topics.add("agents")
    return name


def now_ms(tx: Transaction) -> int:
    """Return the wall clock in milliseconds."""
    return tx.clock.wall_us() // 1_000


def next_order(tx: Transaction) -> int:
    """Return the order of a new message: greater than every earlier one, and a time, so that none is used again."""
    last = tx.memo.get("mail.order")
    if last is None:
        row = tx.row("SELECT max(ord) FROM message")
        last = row[0] if row and row[0] else 0
    order = tx.memo["mail.order"] = max(last + 1, tx.clock.wall_us())
    return int(order)


def next_fence(tx: Transaction, last: int) -> int:
    """Return the fence of a claim: greater than that of every earlier one."""
    fence = max(tx.memo.get("mail.fence", 0) + 1, last + 1, tx.clock.wall_us())
    tx.memo["mail.fence"] = fence
    return int(fence)


def file_name(order: int, message_id: str) -> str:
    """Return the name under which a message is shown in a folder; names sort in the order of acceptance."""
    if is_store_id(message_id) and message_id[4 : 4 + ORDER_DIGITS] == f"{order:0{ORDER_DIGITS}d}":
        return f"{message_id}.json"
    return f"msg_{order:0{ORDER_DIGITS}d}_file-{message_id.removeprefix('msg_')}.json"


def clean(text: str) -> str:
    """Return a text that every engine can store."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def time_ms(text: str) -> int:
    """Return a valid ISO 8601 time in milliseconds; times far outside of the calendar count as long ago."""
    at = datetime.fromisoformat(text)
    try:
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (OverflowError, ValueError):
        return 0


def receipts_of(row: MessageRow) -> Iterable[Receipt]:
    """Yield the receipts of a message, the first one first."""
    first = delivered_receipt(row)
    if row.outcome != "refused":
        yield first
        if row.outcome is not None:
            yield final_receipt(row)
    elif row.sender and not row.thread.startswith(FOREIGN):
        # A file that was refused; its thread is the id that it claims.
        yield msgspec.structs.replace(
            first,
            id=f"receipt_{row.thread}",
            in_reply_to=row.thread,
            status="refused",
            summary=f"Message to '{row.recipient}' was not delivered",
            error=row.summary,
        )


def delivered_receipt(row: MessageRow) -> Receipt:
    """Return the receipt of a message that was stored."""
    return Receipt(
        id=f"receipt_{row.id}",
        in_reply_to=row.id,
        status="delivered",
        summary=f"Message delivered to '{row.recipient}' inbox",
        processed_at=iso_time(row.sent_at),
        recipient=row.recipient,
    )


def final_receipt(row: MessageRow) -> Receipt:
    """Return the receipt with the outcome of a settled message."""
    default = {
        "done": f"'{row.recipient}' completed it",
        "failed": f"'{row.recipient}' could not do it",
        "rejected": f"'{row.recipient}' rejected it",
        "recalled": f"'{row.sender}' recalled it",
        "reassigned": f"It was taken from '{row.recipient}'",
    }
    summary = (row.summary or "")[:MAX_SUMMARY_CHARS] or default[row.outcome]
    return Receipt(
        id=f"receipt_{row.id}",
        in_reply_to=row.id,
        status=row.outcome,
        summary=summary,
        processed_at=iso_time(row.settled_at or 0),
        error=summary if row.outcome in ("failed", "rejected") else None,
        recipient=row.recipient,
    )
