"""Searches messages by content. Read-only; tokenizing and scoring come from `suites.fuzzy`.

A small mailbox is read as a whole. In a large one an index of words finds the candidates among all messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from switchboard_mcp.mail.messages import StoredMessage
from switchboard_mcp.mail.store import message_lookup
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.filenames import PLACES, MessageFile, Place
from switchboard_mcp.mail.store.index import inbox_index, word_index
from switchboard_mcp.mail.store.index.word_index import IndexedMessage
from switchboard_mcp.suites.fuzzy import rank

# Messages that are read and ranked for one search; in a larger mailbox the index chooses them.
MAX_RANKED = 5_000
# Messages that are indexed in one transaction.
BATCH = 500


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
    if len(files) > MAX_RANKED:
        files = _candidates(tx, agent, files, criteria)
    messages = [
        message
        for message in message_lookup.load_all(tx, agent, files)
        if criteria.sender in (None, message.message.sender)
        and criteria.action in (None, message.message.action)
    ]
    if criteria.query.strip():
        texts = [(f"{each.message.sender} {each.message.action}", each.message.payload) for each in messages]
        messages = [messages[place] for place in rank(criteria.query, texts)]
    return messages[: max(0, criteria.limit)]


def _candidates(
    tx: Transaction, agent: str, files: list[MessageFile], criteria: SearchQuery
) -> list[MessageFile]:
    """Return the files that may match, newest first; all of them if there can be no index."""
    by_id = {entry.stem.id: entry for entry in files}
    try:
        with word_index.opened(tx.directory.path, agent) as index:
            if index is None:
                return files
            missing = iter([by_id[id] for id in index.missing(by_id)])
            while batch := list(islice(missing, BATCH)):
                index.add(
                    IndexedMessage(
                        each.order,
                        each.message.id,
                        each.message.sender,
                        each.message.action,
                        f"{each.message.sender} {each.message.action} {each.message.payload}",
                    )
                    for each in message_lookup.load_all(tx, agent, batch)
                )
            found = index.search(criteria.query, criteria.sender, criteria.action, MAX_RANKED)
    except inbox_index.database_errors():
        return files
    hits = [by_id[id] for id in found if id in by_id]
    # A word with a typing error is in no index; the newest messages are compared letter by letter.
    known = {entry.stem.id for entry in hits}
    extra = [] if len(hits) >= criteria.limit else [e for e in files[:MAX_RANKED] if e.stem.id not in known]
    return sorted([*hits, *extra], key=lambda entry: -entry.stem.order)
