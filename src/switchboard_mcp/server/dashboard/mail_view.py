"""All mail of a workspace as a person reads it: whoever it is to, newest first, page by page.

What there is, is told by the names of files; only what is shown is read. Names are kept while somebody looks, and a
folder is listed again when it has changed: so a page of a hundred thousand messages costs what a page costs. Reads
only, in a thread of its own. Searching reads messages from the newest on, some thousand at a time.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from heapq import merge

from msgspec import Struct

from switchboard_mcp.mail.messages import StoredMessage
from switchboard_mcp.mail.store import file_operations, message_lookup, signing
from switchboard_mcp.mail.store.clocks import system_clocks
from switchboard_mcp.mail.store.directory import StoreDirectory, Transaction
from switchboard_mcp.mail.store.filenames import MessageFile, Place
from switchboard_mcp.mail.store.worker import StoreWorker

SHOWN_PLACES: tuple[Place, ...] = ("inbox", "claimed", "archive", "deadletter")
# So many messages are read for one page of a search; then the asker decides whether to go on.
MOST_READ = 4_000
# Of a message in a list so much is shown.
EXCERPT_CHARS = 240
MOST_THREAD = 100


class MessageFilter(Struct, frozen=True, kw_only=True):
    """Which messages; an empty text means any. `before` is the order of the oldest one seen so far."""

    query: str = ""
    agent: str = ""
    sender: str = ""
    action: str = ""
    place: str = ""
    before: int = 0
    limit: int = 50


class MessagePage(Struct, kw_only=True, rename="camel"):
    """Some messages, newest first. `next` goes on from here, 0 where there is no more."""

    letters: list[tuple[str, StoredMessage]]
    total: int
    next: int = 0
    read: int = 0


class MailView:
    """See the module."""

    def __init__(self, workspace: str) -> None:
        self._tree = StoreDirectory(workspace, system_clocks())
        self._thread = StoreWorker(self._tree, "switchboard-dashboard")
        self._known: dict[tuple[Place, str], tuple[int, list[MessageFile]]] = {}

    async def close(self) -> None:
        """Nobody looks any more."""
        await self._thread.close()

    async def page(self, wanted: MessageFilter) -> MessagePage:
        """One page."""
        return await self._thread.run(lambda visit: self._page(visit, wanted))

    async def message(
        self, agent: str, id: str
    ) -> tuple[StoredMessage, list[tuple[str, StoredMessage]]] | None:
        """One message, and the thread it stands in, oldest first."""
        return await self._thread.run(lambda visit: self._with_thread(visit, agent, id))

    async def counts(self) -> dict[str, int]:
        """How many messages there are in each place."""

        def look(visit: Transaction) -> dict[str, int]:
            found = dict.fromkeys(SHOWN_PLACES, 0)
            for (place, _), entries in self._folders(visit, "", ""):
                found[place] += len(entries)
            return {str(place): count for place, count in found.items()}

        return await self._thread.run(look)

    def _page(self, visit: Transaction, wanted: MessageFilter) -> MessagePage:
        folders = list(self._folders(visit, wanted.agent, wanted.place))
        page = MessagePage(letters=[], total=sum(len(entries) for _, entries in folders))
        needle = wanted.query.casefold()
        last = wanted.before
        looking = bool(needle or wanted.sender or wanted.action)
        for agent, entry in self._newest(folders, wanted.before):
            if len(page.letters) >= wanted.limit or page.read >= MOST_READ:
                page.next = last
                break
            last = entry.stem.order
            page.read += 1
            letter = message_lookup.letter(visit, agent, entry)
            if letter is not None and (not looking or _fits(letter, wanted, needle)):
                page.letters.append((agent, letter))
        return page

    def _newest(
        self, folders: list[tuple[tuple[Place, str], list[MessageFile]]], before: int
    ) -> Iterator[tuple[str, MessageFile]]:
        streams = [_backwards(agent, entries, before) for (_, agent), entries in folders]
        for _, agent, entry in merge(*streams):
            yield agent, entry

    def _folders(
        self, visit: Transaction, agent: str, place: str
    ) -> Iterator[tuple[tuple[Place, str], list[MessageFile]]]:
        names = [agent] if agent else visit.agents()
        for kind in SHOWN_PLACES:
            if place in ("", kind):
                for name in names:
                    if visit.has(kind, name):
                        yield (kind, name), self._entries(visit, kind, name)

    def _entries(self, visit: Transaction, place: Place, agent: str) -> list[MessageFile]:
        """What is in a folder, oldest first; listed again only where it has changed."""
        changed = os.fstat(visit.folder(place, agent)).st_mtime_ns
        known = self._known.get((place, agent))
        if known is None or known[0] != changed:
            known = self._known[place, agent] = (changed, message_lookup.entries(visit, place, agent))
        return known[1]

    def _find(self, visit: Transaction, agent: str, id: str) -> StoredMessage | None:
        for _, entries in self._folders(visit, agent, ""):
            for entry in entries:
                if entry.stem.id == id:
                    return message_lookup.letter(visit, agent, entry)
        return None

    def _with_thread(
        self, visit: Transaction, agent: str, id: str
    ) -> tuple[StoredMessage, list[tuple[str, StoredMessage]]] | None:
        letter = self._find(visit, agent, id)
        if letter is None:
            return None
        thread = {id: (agent, letter)}
        # Upwards: a reply was sent by whoever got what it answers.
        above = letter
        while above.message.reply_to and above.message.reply_to not in thread and len(thread) < MOST_THREAD:
            to = above.message.sender
            earlier = self._find(visit, to, above.message.reply_to) or self._find(
                visit, above.message.recipient, above.message.reply_to
            )
            if earlier is None:
                break
            thread[earlier.message.id] = (earlier.message.recipient, earlier)
            above = earlier
        self._add_replies(visit, thread, above.order)
        return letter, sorted(thread.values(), key=lambda pair: pair[1].order)

    def _add_replies(
        self, visit: Transaction, thread: dict[str, tuple[str, StoredMessage]], since: int
    ) -> None:
        """Downwards: what was written later between those who take part, and answers something of it."""
        people = {
            name for _, each in thread.values() for name in (each.message.sender, each.message.recipient)
        }
        later = sorted(
            (entry.stem.order, name, entry)
            for name in people
            for _, entries in self._folders(visit, name, "")
            for entry in entries
            if entry.stem.order > since and entry.stem.id not in thread
        )
        for _, name, entry in later[:MOST_READ]:
            if len(thread) >= MOST_THREAD:
                return
            found = file_operations.read(visit.folder(entry.place, name), entry.name, signing.MOST_FILE_BYTES)
            if isinstance(found, file_operations.RejectedFile) or b'"replyTo"' not in found.data:
                continue
            letter = message_lookup.letter(visit, name, entry)
            if letter is not None and letter.message.reply_to in thread:
                thread[letter.message.id] = (name, letter)


def _backwards(agent: str, entries: list[MessageFile], before: int) -> Iterator[tuple[int, str, MessageFile]]:
    end = bisect_left(entries, before, key=lambda entry: entry.stem.order) if before else len(entries)
    return ((-entries[place].stem.order, agent, entries[place]) for place in range(end - 1, -1, -1))


def _fits(letter: StoredMessage, wanted: MessageFilter, needle: str) -> bool:
    message = letter.message
    if wanted.sender not in ("", message.sender) or wanted.action not in ("", message.action):
        return False
    if not needle:
        return True
    return needle in f"{message.sender} {message.recipient} {message.action} {message.payload}".casefold()
