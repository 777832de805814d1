"""Searches messages by content. Read-only; tokenizing and scoring come from `suites.fuzzy`.

A small mailbox is read as a whole. In a large one an index of words finds the candidates among all messages; what is
missing in it is added in pieces, between which other jobs run.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from msgspec import Struct

from switchboard_mcp.mail.messages import MailMessage, StoredMessage
from switchboard_mcp.mail.store import (
    dropped_files,
    message_lookup,
    signing,
)
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.disk import day_segments
from switchboard_mcp.mail.store.disk.day_segments import SegmentLine
from switchboard_mcp.mail.store.filenames import PLACES, MessageFile, Place, parse
from switchboard_mcp.mail.store.index import inbox_index, word_index
from switchboard_mcp.mail.store.index.word_index import IndexedMessage, WordIndex
from switchboard_mcp.suites.fuzzy import rank

# Messages that are read and ranked for one search; in a larger mailbox the index chooses some.
MAX_RANKED = 1_000
MAX_CANDIDATES = 200
# A larger archive is searched with the index.
MAX_SEGMENT_BYTES = 1_048_576
# Messages that are indexed in one transaction, which costs three syncs: about 0.3 s.
BATCH = 2_000
# A message may get its name this long after its order number, in microseconds.
OVERLAP_US = 120_000_000


class SearchQuery(Struct, kw_only=True):
    """Search criteria."""

    query: str
    sender: str | None
    action: str | None
    places: Sequence[str]
    limit: int
    thread: str | None = None


def search(tx: Transaction, agent: str, criteria: SearchQuery) -> list[StoredMessage] | None:
    """Return the matching messages, best first; without a query, newest first.

    Returns None after adding a piece to the index of words: call it again.
    """
    places: list[Place] = [place for place in PLACES if place in criteria.places]
    files = None if _is_large(tx, agent, places) else _list(tx, agent, places)
    if files is not None and criteria.thread is not None:
        # The messages of a conversation are later than its first one.
        first = parse("inbox", f"{criteria.thread}.json")
        files = [entry for entry in files if first is None or entry.stem.order >= first.stem.order]
    if files is None or len(files) > MAX_RANKED:
        try:
            files = _candidates(tx, agent, places, criteria)
            if files is None:
                return None
        except inbox_index.database_errors():
            files = _list(tx, agent, places)
    messages = [
        message
        for message in message_lookup.load_all(tx, agent, files)
        if criteria.sender in (None, message.message.sender)
        and criteria.action in (None, message.message.action)
        and criteria.thread in (None, message.message.thread)
    ]
    if criteria.query.strip():
        texts = [(f"{each.message.sender} {each.message.action}", each.message.payload) for each in messages]
        messages = [messages[place] for place in rank(criteria.query, texts)]
    return messages[: max(0, criteria.limit)]


def _is_large(tx: Transaction, agent: str, places: Sequence[Place]) -> bool:
    """Return True if a mailbox has too much to read all of it, without listing it."""
    if "inbox" in places and tx.has("inbox", agent):
        dropped_files.begin_large(tx, agent)
    view = message_lookup.inbox_view(tx, agent) if "inbox" in places else None
    if view is not None and (view.partial or view.count() > MAX_RANKED):
        return True
    return "archive" in places and day_segments.total_bytes(tx, "archive", agent) > MAX_SEGMENT_BYTES


def _list(tx: Transaction, agent: str, places: Sequence[Place]) -> list[MessageFile]:
    """Return all messages, newest first."""
    files = [entry for place in places for entry in message_lookup.entries(tx, place, agent)]
    return sorted(files, key=lambda entry: -entry.stem.order)


def _candidates(
    tx: Transaction, agent: str, places: Sequence[Place], criteria: SearchQuery
) -> list[MessageFile] | None:
    """Return the files that may match, newest first; None if the index lacks some.

    Raises one of `database_errors` if there can be no index.
    """
    # Few messages are claimed, dead or settled within the last hour: the others are in the inbox or in segments.
    few = {
        entry.stem.id: entry
        for place in PLACES
        if place != "inbox"
        for name in tx.names(place, agent)
        if (entry := parse(place, name)) is not None
    }
    with word_index.opened(tx.directory.path, agent) as index:
        if index is None:
            raise OSError(errno.EIO, "the index cannot be opened")
        if _index_files(tx, agent, index, list(few.values())) or _index_segments(tx, agent, index):
            return None
        if "archive" in places and day_segments.index_piece(tx, "archive", agent):
            return None
        wanted = max(MAX_CANDIDATES, criteria.limit)
        words = f"{criteria.query} {criteria.thread or ''}"
        found = index.search(words, criteria.sender, criteria.action, wanted)
        if len(found) < criteria.limit and criteria.thread is None:
            # A word with a typing error is in no index; the newest messages are compared letter by letter.
            found += index.search("", criteria.sender, criteria.action, wanted)
    entries = {}
    for order, message_id in dict.fromkeys(found):
        entry = few.get(message_id)
        if entry is None or entry.place not in places:
            entry = message_lookup.locate(tx, agent, order, message_id, places)
        if entry is not None:
            entries[message_id] = entry
    return sorted(entries.values(), key=lambda entry: -entry.stem.order)


def _index_files(tx: Transaction, agent: str, index: WordIndex, others: list[MessageFile]) -> bool:
    """Index some files that are new; returns True if there are more."""
    view = message_lookup.inbox_view(tx, agent)
    if view is not None and view.partial:
        # Its messages are not all known yet. The next ones are read now, or by the process that sweeps.
        dropped_files.scan(tx, agent)
        return True
    position = index.position()
    names = view.since(position, BATCH) if view is not None else tx.names("inbox", agent)
    waiting = [entry for name in names if (entry := parse("inbox", name)) is not None]
    if view is not None and len(names) == BATCH:
        _add_files(tx, agent, index, waiting, waiting[-1].stem.order)
        return True
    last = max((entry.stem.order for entry in waiting), default=position)
    # Messages that get their name from now on have a number of the last minutes.
    position = min(last, max(last, tx.clocks.microseconds()) - OVERLAP_US)
    _add_files(tx, agent, index, [*waiting, *others], position)
    return False


def _add_files(
    tx: Transaction, agent: str, index: WordIndex, entries: Sequence[MessageFile], position: int
) -> None:
    orders = [entry.stem.order for entry in entries if entry.place == "inbox"]
    known = index.ids_between(min(orders), max(orders)) if orders else set()
    missing = (entry for entry in entries if not (entry.stem.id in known or index.has(entry.stem.id)))
    while batch := list(islice(missing, BATCH)):
        index.add(_indexed(each.order, each.message) for each in message_lookup.load_all(tx, agent, batch))
    if position != index.position():
        index.add((), position)


def _index_segments(tx: Transaction, agent: str, index: WordIndex) -> bool:
    """Index some of what was appended to the archive; returns True if there may be more."""
    for segment, _, rows in day_segments.appended(tx, "archive", agent, index.segment_bytes):
        # One line after the other: payloads can be large.
        if first := next(rows, None):
            index.add_segment(segment, _settled(chain([first], islice(rows, BATCH - 1))))
            return True
    return False


def _settled(rows: Iterable[tuple[int, int, SegmentLine]]) -> Iterator[tuple[int, IndexedMessage | None]]:
    """Yield where each line ends, and its message if it has one."""
    for offset, length, line in rows:
        entry, message = parse("archive", line.name), signing.decode(bytes(line.content))
        found = _indexed(entry.stem.order, message) if entry is not None and message is not None else None
        yield offset + length, found


def _indexed(order: int, message: MailMessage) -> IndexedMessage:
    text = f"{message.sender} {message.action} {message.thread} {message.payload}"
    return IndexedMessage(order, message.id, message.sender, message.action, text)
