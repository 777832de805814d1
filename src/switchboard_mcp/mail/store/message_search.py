"""Searches messages by content. Read-only; tokenizing and scoring come from `suites.fuzzy`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from switchboard_mcp.mail.messages import StoredMessage
from switchboard_mcp.mail.store import message_lookup
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import PLACES, Place
from switchboard_mcp.suites.fuzzy import rank

# Older messages are skipped: reading everything would take minutes in an old workspace.
MAX_SEARCHED = 5_000


class SearchQuery(Struct, kw_only=True):
    """Search criteria."""

    query: str
    sender: str | None
    action: str | None
    places: Sequence[str]
    limit: int


def search(tx: Transaction, agent: str, criteria: SearchQuery) -> list[StoredMessage]:
    """Return the matching messages, best first; without a query, newest first."""
    places: list[Place] = [place for place in PLACES if place in criteria.places]
    files = [entry for place in places for entry in message_lookup.entries(tx, place, agent)]
    files.sort(key=lambda entry: -entry.stem.order)
    messages = [
        message
        for message in message_lookup.load_all(tx, agent, files[:MAX_SEARCHED])
        if criteria.sender in (None, message.message.sender)
        and criteria.action in (None, message.message.action)
    ]
    if criteria.query.strip():
        texts = [(f"{each.message.sender} {each.message.action}", each.message.payload) for each in messages]
        messages = [messages[place] for place in rank(criteria.query, texts)]
    return messages[: max(0, criteria.limit)]
