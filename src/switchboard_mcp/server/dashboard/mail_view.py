"""A read-only view of all mail of a workspace: newest first, in pages. A search reads some thousand messages a page."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from switchboard_mcp.database.transactions import Transaction, placeholders
from switchboard_mcp.mail.messages import StoredMessage
from switchboard_mcp.mail.server import MailServer
from switchboard_mcp.mail.store import rows

SHOWN_PLACES = ("inbox", "claimed", "archive", "deadletter")
# Messages read for one page of a search; then the viewer decides whether to continue.
MAX_READ = 4_000
PIECE = 200
# Shown of a message in a list.
EXCERPT_CHARS = 240
MAX_THREAD = 100


class MessageFilter(Struct, frozen=True, kw_only=True):
    """Selects messages; an empty text matches any. `before` is the order of the oldest one seen so far."""

    query: str = ""
    agent: str = ""
    sender: str = ""
    action: str = ""
    place: str = ""
    before: int = 0
    limit: int = 50


class MessagePage(Struct, kw_only=True, rename="camel"):
    """A page of messages, newest first. `next` continues from here, 0 if there are no more."""

    messages: list[tuple[str, StoredMessage]]
    total: int
    next: int = 0
    read: int = 0


class MailView:
    """Reads the mail of a workspace."""

    def __init__(self, server: MailServer, redact: Callable[[str], str]) -> None:
        """Create the view. `redact` masks secrets: a search must not tell of them either."""
        self._server = server
        self._redact = redact

    async def page(self, message_filter: MessageFilter) -> MessagePage:
        """Return one page."""
        store = await self._server.store()
        return await store.read_rows(lambda tx: self._page(tx, message_filter))

    async def message(
        self, agent: str, id: str
    ) -> tuple[StoredMessage, list[tuple[str, StoredMessage]]] | None:
        """Return a message and its thread, oldest first."""
        store = await self._server.store()
        return await store.read_rows(lambda tx: _with_thread(tx, agent, id))

    async def counts(self) -> dict[str, int]:
        """Return the number of messages in each place."""
        totals = dict.fromkeys(SHOWN_PLACES, 0)
        for load in (await self.loads()).values():
            for place, count in load.items():
                totals[place] += count
        return totals

    async def loads(self) -> dict[str, dict[str, int]]:
        """Return the number of messages in each place by agent."""
        store = await self._server.store()
        counted = await store.read_rows(
            lambda tx: tx.rows(
                "SELECT recipient, place, count(*) FROM message WHERE outcome IS NULL OR outcome <> 'refused'"
                " GROUP BY recipient, place"
            )
        )
        loads: dict[str, dict[str, int]] = {}
        for agent, place, count in counted:
            loads.setdefault(agent, dict.fromkeys(SHOWN_PLACES, 0))[place] = count
        return loads

    def _page(self, tx: Transaction, message_filter: MessageFilter) -> MessagePage:
        where, values = _conditions(message_filter)
        ((total,),) = tx.rows(f"SELECT count(*) FROM message WHERE {where}", *values)
        page = MessagePage(messages=[], total=total)
        needle = message_filter.query.casefold()
        before = message_filter.before or 1 << 62
        while orders := [
            row[0]
            for row in tx.rows(
                f"SELECT ord FROM message WHERE {where} AND ord < ? ORDER BY ord DESC LIMIT ?",
                *values,
                before,
                PIECE,
            )
        ]:
            for stored in rows.load(tx, orders):
                if len(page.messages) >= message_filter.limit or page.read >= MAX_READ:
                    page.next = before
                    return page
                before = stored.order
                page.read += 1
                if self._matches(stored, message_filter, needle):
                    page.messages.append((stored.message.recipient, stored))
        return page

    def _matches(self, stored: StoredMessage, message_filter: MessageFilter, needle: str) -> bool:
        message = stored.message
        if message_filter.action not in ("", message.action):
            return False
        if not needle:
            return True
        text = f"{message.sender} {message.recipient} {message.action} {message.payload}"
        return needle in text.casefold() and needle in self._redact(text).casefold()


def _conditions(message_filter: MessageFilter) -> tuple[str, list[str]]:
    where, values = ["(outcome IS NULL OR outcome <> 'refused')"], []
    for column, value in (
        ("recipient", message_filter.agent),
        ("place", message_filter.place),
        ("sender", message_filter.sender),
    ):
        if value:
            where.append(f"{column} = ?")
            values.append(value)
    return " AND ".join(where), values


def _with_thread(
    tx: Transaction, agent: str, id: str
) -> tuple[StoredMessage, list[tuple[str, StoredMessage]]] | None:
    row = rows.find(tx, agent, id)
    if row is None:
        return None
    (stored,) = rows.load(tx, [row.order])
    orders = {row.order}
    threads = {row.thread}
    if stored.message.reply_to:
        # A message may answer one of another thread.
        threads |= {
            found[0]
            for found in tx.rows(
                "SELECT thread FROM message WHERE recipient IN (?, ?) AND id = ?",
                stored.message.sender,
                agent,
                stored.message.reply_to,
            )
        }
    orders |= {
        found[0]
        for found in tx.rows(
            f"SELECT ord FROM message WHERE thread IN {placeholders(threads)} ORDER BY ord LIMIT ?",
            *threads,
            MAX_THREAD,
        )
    }
    thread = rows.load(tx, sorted(orders))
    return stored, [(item.message.recipient, item) for item in thread]
