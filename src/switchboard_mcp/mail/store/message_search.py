"""Looking for messages by what is in them. Reads only.

Owns the search; the words and scores are those of `suites.fuzzy`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from switchboard_mcp.mail.messages import StoredMessage
from switchboard_mcp.mail.store import message_lookup
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import PLACES, Place
from switchboard_mcp.suites.fuzzy import rank

# Older ones are not looked at: a search that reads everything would take minutes in an old workspace.
MOST_SEARCHED = 5_000


class SearchQuery(Struct, kw_only=True):
    """What is searched for."""

    query: str
    sender: str | None
    action: str | None
    places: Sequence[str]
    limit: int


def search(visit: Transaction, agent: str, wanted: SearchQuery) -> list[StoredMessage]:
    """The messages that match, best first; without a query the newest first."""
    places: list[Place] = [place for place in PLACES if place in wanted.places]
    found = [entry for place in places for entry in message_lookup.entries(visit, place, agent)]
    found.sort(key=lambda entry: -entry.stem.order)
    letters = [
        letter
        for letter in message_lookup.letters(visit, agent, found[:MOST_SEARCHED])
        if wanted.sender in (None, letter.message.sender) and wanted.action in (None, letter.message.action)
    ]
    if wanted.query.strip():
        texts = [(f"{each.message.sender} {each.message.action}", each.message.payload) for each in letters]
        letters = [letters[place] for place in rank(wanted.query, texts)]
    return letters[: max(0, wanted.limit)]
