"""Reads mail without changing it: what waits, one message, receipts, dead letters, searches."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

import msgspec
from msgspec import Struct

from switchboard_mcp.database.machine_clocks import iso_time
from switchboard_mcp.database.transactions import Transaction, placeholders
from switchboard_mcp.errors import refused
from switchboard_mcp.mail.messages import DeadLetter, MailMessage, Receipt, StoredMessage
from switchboard_mcp.mail.store import rows
from switchboard_mcp.mail.store.accepting import recipient_word, searched_text
from switchboard_mcp.mail.store.filenames import ORDER_DIGITS, is_store_id
from switchboard_mcp.suites.fuzzy import rank

# Waiting messages that are read in one go, to be put in the order in which they are claimed.
PAGE = 500
# Messages that are ranked for one search; in a larger mailbox the words choose the newest of those that match.
MAX_RANKED, MAX_CANDIDATES = 1_000, 200
# Messages whose words are indexed at a time: about 0.3 s.
PIECE = 2_000
_WORD = re.compile(r"\w+")
MAX_WORDS = 16
# Messages among which a person names one by a part of its id.
MAX_IDS = 100_000


def waiting_orders(tx: Transaction, agent: str) -> Iterator[tuple[int, str]]:
    """Yield orders and ids of waiting messages in the order in which they are claimed."""
    has_ranks = tx.row(
        "SELECT 1 FROM message WHERE recipient = ? AND place = 'inbox' AND rank > 0 LIMIT 1", agent
    ) or tx.row("SELECT 1 FROM message WHERE recipient = ? AND place = 'inbox' AND rank < 0 LIMIT 1", agent)
    if not has_ranks:
        yield from _by_order(tx, agent, 0)
        return
    # Until where the messages of each sender were listed: they keep their order.
    listed: dict[str, int] = {}
    for order, sender in _by_rank(tx, agent):
        until = listed.get(sender, -1)
        if order <= until:
            continue
        listed[sender] = order
        yield from (
            (row[0], row[1])
            for row in tx.rows(
                "SELECT ord, id FROM message WHERE recipient = ? AND sender = ? AND place = 'inbox'"
                " AND ord > ? AND ord <= ? ORDER BY ord",
                agent,
                sender,
                until,
                order,
            )
        )


def _by_order(tx: Transaction, agent: str, after: int) -> Iterator[tuple[int, str]]:
    while page := tx.rows(
        "SELECT ord, id FROM message WHERE recipient = ? AND place = 'inbox' AND ord > ? ORDER BY ord LIMIT ?",
        agent,
        after,
        PAGE,
    ):
        yield from ((row[0], row[1]) for row in page)
        after = page[-1][0]


def _by_rank(tx: Transaction, agent: str) -> Iterator[tuple[int, str]]:
    for level in (2, 1, 0, -1):
        after = -1
        while page := tx.rows(
            "SELECT ord, sender FROM message WHERE recipient = ? AND place = 'inbox' AND rank = ? AND ord > ?"
            " ORDER BY ord LIMIT ?",
            agent,
            level,
            after,
            PAGE,
        ):
            yield from ((row[0], row[1]) for row in page)
            after = page[-1][0]


class Waiting(Struct, frozen=True):
    """What waits for an agent: its number, when the oldest came in seconds, and the order of the newest."""

    count: int = 0
    oldest_s: float = 0.0
    newest: int = 0


def waiting(tx: Transaction) -> dict[str, Waiting]:
    """Return what waits for each agent for whom something waits."""
    return {
        agent: Waiting(count, oldest / 1e6, newest)
        for agent, count, oldest, newest in tx.rows(
            "SELECT recipient, count(*), min(ord), max(ord) FROM message WHERE place = 'inbox' GROUP BY recipient"
        )
    }


def waiting_for(tx: Transaction, agent: str) -> Waiting:
    """Return what waits for one agent."""
    ((count, oldest, newest),) = tx.rows(
        "SELECT count(*), min(ord), max(ord) FROM message WHERE recipient = ? AND place = 'inbox'", agent
    )
    return Waiting(count, oldest / 1e6, newest) if count else Waiting()


def ids(tx: Transaction, agent: str, places: Sequence[str]) -> list[str]:
    """List ids of messages to an agent, the newest first."""
    found = tx.rows(
        f"SELECT id FROM message WHERE recipient = ? AND place IN {placeholders(places)} ORDER BY ord DESC LIMIT ?",
        agent,
        *places,
        MAX_IDS,
    )
    return [row[0] for row in found]


def sent_ids(tx: Transaction, agent: str) -> list[str]:
    """List ids of messages that an agent has sent, the newest first."""
    found = tx.rows("SELECT id FROM message WHERE sender = ? ORDER BY ord DESC LIMIT ?", agent, MAX_IDS)
    return [row[0] for row in found]


def peek(
    tx: Transaction, agent: str, limit: int, after: int, exclude: Collection[str]
) -> list[StoredMessage]:
    """Return waiting messages in the order in which they are claimed."""
    rows.require_agent(tx, agent)
    orders: list[int] = []
    if limit > 0:
        for order, message_id in waiting_orders(tx, agent):
            if order > after and message_id not in exclude:
                orders.append(order)
                if len(orders) == limit:
                    break
    return rows.load(tx, orders)


def read(tx: Transaction, agent: str, message_id: str) -> StoredMessage:
    """Return one message, in any place. Raises `mail_not_found`."""
    rows.require_agent(tx, agent)
    row = rows.require(tx, agent, message_id)
    return rows.load(tx, [row.order])[0]


def receipts(tx: Transaction, sender: str, ids: Sequence[str] | None, limit: int) -> list[Receipt]:
    """Return the latest receipt of each message of a sender, newest message first; with ids, in their order."""
    if ids is None:
        matches = tx.rows(
            f"SELECT {rows.COLUMNS} FROM message WHERE sender = ? ORDER BY ord DESC LIMIT ?",
            sender,
            max(0, limit),
        )
        receipts_of = [list(rows.receipts_of(rows.row_of(row))) for row in matches]
        return [item[-1] for item in receipts_of if item]
    receipts = []
    for message_id in ids[: max(0, limit)]:
        for row in _sent_rows(tx, sender, message_id):
            receipts.append(list(rows.receipts_of(row))[-1])
    return receipts


def _sent_rows(tx: Transaction, sender: str, message_id: str) -> list[rows.MessageRow]:
    by_order = []
    if is_store_id(message_id):
        order = int(message_id[4 : 4 + ORDER_DIGITS])
        by_order = tx.rows(
            f"SELECT {rows.COLUMNS} FROM message WHERE ord = ? AND id = ? AND sender = ?",
            order,
            message_id,
            sender,
        )
    matches = by_order or tx.rows(
        f"SELECT {rows.COLUMNS} FROM message WHERE id = ? AND by_file = 1 AND sender = ?", message_id, sender
    )
    matches = matches or tx.rows(
        f"SELECT {rows.COLUMNS} FROM message WHERE thread = ? AND outcome = 'refused' AND sender = ?",
        message_id,
        sender,
    )
    return [rows.row_of(row) for row in matches]


def dead_letters(tx: Transaction, agent: str) -> list[DeadLetter]:
    """Return the dead letters of an agent, oldest first."""
    dead = tx.rows(
        f"SELECT {rows.COLUMNS}, body FROM message LEFT JOIN body USING (ord)"
        " WHERE recipient = ? AND place = 'deadletter' ORDER BY ord",
        agent,
    )
    letters = []
    for row, body in ((rows.row_of(row[:-1]), row[-1]) for row in dead):
        message = None if body is None else rows.decode(body, row.sum)
        letters.append(
            DeadLetter(
                agent=agent,
                id=row.id,
                file=f"deadletter/{agent}/{dead_letter_name(row)}",
                reason=row.summary or "",
                at=iso_time(row.settled_at or 0),
                message=message,
            )
        )
    return letters


def dead_letter_name(row: rows.MessageRow) -> str:
    """Return the file name of a dead letter: a refused file keeps its own, after a number."""
    return row.id if row.id.startswith(rows.FOREIGN) else rows.file_name(row.order, row.id)


class SearchCriteria(Struct, frozen=True, kw_only=True):
    """What to search for."""

    query: str = ""
    sender: str | None = None
    action: str | None = None
    places: Sequence[str] = ("inbox", "claimed", "archive")
    limit: int = 50
    thread: str | None = None


def search(tx: Transaction, agent: str, criteria: SearchCriteria) -> list[StoredMessage]:
    """Return the matching messages, best first; without a query, newest first."""
    if not criteria.places:
        return []
    orders = _matching_words(tx, agent, criteria)
    most = MAX_RANKED if criteria.query.strip() else max(0, criteria.limit)
    if orders is None:
        orders = list(islice(_newest(tx, agent, criteria), most if _is_exact(criteria) else None))
    messages: list[StoredMessage] = []
    for first in range(0, len(orders), PAGE):
        messages += (item for item in rows.load(tx, orders[first : first + PAGE]) if _fits(item, criteria))
        if len(messages) >= most:
            break
    if criteria.query.strip():
        texts = [(f"{item.message.sender} {item.message.action}", item.message.payload) for item in messages]
        messages = [messages[place] for place in rank(criteria.query, texts)]
    return messages[: max(0, criteria.limit)]


def _is_exact(criteria: SearchCriteria) -> bool:
    """Return True if every message that the tables find fits."""
    return criteria.action is None and (criteria.thread is None or criteria.sender is None)


def _fits(message: StoredMessage, criteria: SearchCriteria) -> bool:
    return (
        message.place in criteria.places
        and criteria.sender in (None, message.message.sender)
        and criteria.action in (None, message.message.action)
        and criteria.thread in (None, message.message.thread)
    )


def _newest(tx: Transaction, agent: str, criteria: SearchCriteria) -> Iterator[int]:
    """Yield messages to the agent, newest first, by the index that fits."""
    where: str = "recipient = ?"
    values: tuple[str, ...] = (agent,)
    if criteria.thread is not None:
        where, values = "thread = ? AND recipient = ?", (criteria.thread, agent)
    elif criteria.sender is not None:
        where, values = "sender = ? AND recipient = ?", (criteria.sender, agent)
    before = 1 << 62
    while page := tx.rows(
        f"SELECT ord FROM message WHERE {where} AND ord < ? AND place IN {placeholders(criteria.places)}"
        " ORDER BY ord DESC LIMIT ?",
        *values,
        before,
        *criteria.places,
        PAGE,
    ):
        yield from (row[0] for row in page)
        before = page[-1][0]


def _matching_words(tx: Transaction, agent: str, criteria: SearchCriteria) -> list[int] | None:
    """Return the newest messages with one of the words; None if the mailbox is small enough to rank all of it."""
    words = list(dict.fromkeys(_WORD.findall(criteria.query.lower())))[:MAX_WORDS]
    if not words or criteria.thread is not None:
        return None
    count = tx.rows(
        "SELECT count(*) FROM (SELECT 1 FROM message WHERE recipient = ? LIMIT ?) AS counted",
        agent,
        MAX_RANKED + 1,
    )
    if count[0][0] <= MAX_RANKED:
        return None
    if tx.dialect == "postgresql":
        query = f"{recipient_word(agent)} & ({' | '.join(f'{word}:*' for word in words)})"
        matches = tx.rows(
            "SELECT ord FROM body WHERE words @@ to_tsquery('simple', ?) ORDER BY ord DESC LIMIT ?",
            query,
            MAX_CANDIDATES,
        )
    elif not tx.rows("SELECT 1 FROM sqlite_master WHERE name = 'words'"):
        return None
    else:
        query = f"recipient:{recipient_word(agent)} AND ({' OR '.join(f'text:{word}*' for word in words)})"
        matches = tx.rows(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?", query, MAX_CANDIDATES
        )
    return [row[0] for row in matches]


def index_words(tx: Transaction) -> bool:
    """Add a piece to SQLite's index of words; returns True if there is more."""
    if tx.dialect != "sqlite" or not tx.rows("SELECT 1 FROM sqlite_master WHERE name = 'words'"):
        return False
    last = tx.row("SELECT value FROM meta WHERE name = 'words_to'")
    after = int(last[0]) if last else 0
    bodies = tx.rows("SELECT ord, body FROM body WHERE ord > ? ORDER BY ord LIMIT ?", after, PIECE)
    for order, body in bodies:
        text = text_to_index(body)
        if text is not None:
            tx.run("INSERT INTO words (rowid, recipient, text) VALUES (?, ?, ?)", order, *text)
    if bodies:
        set_meta(tx, "words_to", str(bodies[-1][0]))
    return len(bodies) == PIECE


def text_to_index(body: str) -> tuple[str, str] | None:
    """Return the recipient and the text of a message as they are indexed; None if it cannot be read."""
    try:
        message = msgspec.json.decode(body, type=MailMessage)
    except (msgspec.DecodeError, RecursionError):
        return None
    recipient, _, text = searched_text(message).partition(" ")
    return recipient, text


def set_meta(tx: Transaction, name: str, value: str) -> None:
    """Store a value of the workspace."""
    tx.run(
        "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        name,
        value,
    )


def unread_problem(agent: str, name: str) -> Exception:
    """Return the error for a dead letter that is not there."""
    return refused("mail_not_found", f"Agent '{agent}' has no dead letter '{name[:150]}'.")
