"""A read-only view of all mail of a workspace: newest first, in pages.

Messages are listed by file name, and only those on the page are read. Names are cached while the dashboard is viewed,
and a folder is listed again when it has changed, so a page costs the same with a hundred thousand messages. Runs in
its own thread. A search reads messages from the newest on, some thousand at a time.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from heapq import merge

from msgspec import Struct

from switchboard_mcp.mail.messages import StoredMessage
from switchboard_mcp.mail.store import file_operations, message_lookup, signing
from switchboard_mcp.mail.store.clocks import system_clocks
from switchboard_mcp.mail.store.directory import StoreDirectory, Transaction
from switchboard_mcp.mail.store.filenames import MessageFile, Place
from switchboard_mcp.mail.store.worker import StoreWorker

SHOWN_PLACES: tuple[Place, ...] = ("inbox", "claimed", "archive", "deadletter")
# Messages read for one page of a search; then the viewer decides whether to continue.
MAX_READ = 4_000
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
    """Reads the mail of a workspace in its own thread."""

    def __init__(self, workspace: str, redact: Callable[[str], str]) -> None:
        """Create the view. `redact` masks secrets: a search must not tell of them either."""
        self._redact = redact
        self._directory = StoreDirectory(workspace, system_clocks())
        self._thread = StoreWorker(self._directory, "switchboard-dashboard")
        self._known: dict[tuple[Place, str], tuple[int, list[MessageFile]]] = {}

    async def close(self) -> None:
        """Stop the thread."""
        await self._thread.close()

    async def page(self, message_filter: MessageFilter) -> MessagePage:
        """Return one page."""
        return await self._thread.run(lambda visit: self._page(visit, message_filter))

    async def message(
        self, agent: str, id: str
    ) -> tuple[StoredMessage, list[tuple[str, StoredMessage]]] | None:
        """Return a message and its thread, oldest first."""
        return await self._thread.run(lambda visit: self._with_thread(visit, agent, id))

    async def counts(self) -> dict[str, int]:
        """Return the number of messages in each place."""

        def count_folders(transaction: Transaction) -> dict[str, int]:
            totals = dict.fromkeys(SHOWN_PLACES, 0)
            for (place, _), entries in self._folders(transaction, "", ""):
                totals[place] += len(entries)
            return {str(place): count for place, count in totals.items()}

        return await self._thread.run(count_folders)

    async def loads(self) -> dict[str, dict[str, int]]:
        """Return the number of messages in each place by agent."""

        def count_folders(transaction: Transaction) -> dict[str, dict[str, int]]:
            counts: dict[str, dict[str, int]] = {}
            for (place, agent), entries in self._folders(transaction, "", ""):
                counts.setdefault(agent, {})[place] = len(entries)
            return counts

        return await self._thread.run(count_folders)

    def _page(self, transaction: Transaction, message_filter: MessageFilter) -> MessagePage:
        folders = list(self._folders(transaction, message_filter.agent, message_filter.place))
        page = MessagePage(messages=[], total=sum(len(entries) for _, entries in folders))
        needle = message_filter.query.casefold()
        last = message_filter.before
        filtering = bool(needle or message_filter.sender or message_filter.action)
        for agent, entry in self._newest(folders, message_filter.before):
            if len(page.messages) >= message_filter.limit or page.read >= MAX_READ:
                page.next = last
                break
            last = entry.stem.order
            page.read += 1
            stored = message_lookup.load(transaction, agent, entry)
            if stored is not None and (not filtering or self._matches(stored, message_filter, needle)):
                page.messages.append((agent, stored))
        return page

    def _newest(
        self, folders: list[tuple[tuple[Place, str], list[MessageFile]]], before: int
    ) -> Iterator[tuple[str, MessageFile]]:
        streams = [_backwards(agent, entries, before) for (_, agent), entries in folders]
        for _, agent, entry in merge(*streams):
            yield agent, entry

    def _folders(
        self, transaction: Transaction, agent: str, place: str
    ) -> Iterator[tuple[tuple[Place, str], list[MessageFile]]]:
        names = [agent] if agent else transaction.agents()
        for kind in SHOWN_PLACES:
            if place in ("", kind):
                for name in names:
                    if transaction.has(kind, name):
                        yield (kind, name), self._entries(transaction, kind, name)

    def _entries(self, transaction: Transaction, place: Place, agent: str) -> list[MessageFile]:
        """Return the entries of a folder, oldest first, listed again only if it has changed."""
        changed = os.fstat(transaction.folder(place, agent)).st_mtime_ns
        cached = self._known.get((place, agent))
        if cached is None or cached[0] != changed:
            cached = self._known[place, agent] = (changed, message_lookup.entries(transaction, place, agent))
        return cached[1]

    def _find(self, transaction: Transaction, agent: str, id: str) -> StoredMessage | None:
        for _, entries in self._folders(transaction, agent, ""):
            for entry in entries:
                if entry.stem.id == id:
                    return message_lookup.load(transaction, agent, entry)
        return None

    def _with_thread(
        self, transaction: Transaction, agent: str, id: str
    ) -> tuple[StoredMessage, list[tuple[str, StoredMessage]]] | None:
        stored = self._find(transaction, agent, id)
        if stored is None:
            return None
        thread = {id: (agent, stored)}
        # Upwards: the sender of a reply is the recipient of what it answers.
        above = stored
        while above.message.reply_to and above.message.reply_to not in thread and len(thread) < MAX_THREAD:
            to = above.message.sender
            earlier = self._find(transaction, to, above.message.reply_to) or self._find(
                transaction, above.message.recipient, above.message.reply_to
            )
            if earlier is None:
                break
            thread[earlier.message.id] = (earlier.message.recipient, earlier)
            above = earlier
        self._add_replies(transaction, thread, above.order)
        return stored, sorted(thread.values(), key=lambda pair: pair[1].order)

    def _add_replies(
        self, transaction: Transaction, thread: dict[str, tuple[str, StoredMessage]], since: int
    ) -> None:
        """Add later messages between the participants that reply to something in the thread."""
        participants = {
            name
            for _, member in thread.values()
            for name in (member.message.sender, member.message.recipient)
        }
        later = sorted(
            (entry.stem.order, name, entry)
            for name in participants
            for _, entries in self._folders(transaction, name, "")
            for entry in entries
            if entry.stem.order > since and entry.stem.id not in thread
        )
        for _, name, entry in later[:MAX_READ]:
            if len(thread) >= MAX_THREAD:
                return
            content = file_operations.read(
                transaction.folder(entry.place, name), entry.name, signing.MAX_FILE_BYTES
            )
            if isinstance(content, file_operations.RejectedFile) or b'"replyTo"' not in content.data:
                continue
            stored = message_lookup.load(transaction, name, entry)
            if stored is not None and stored.message.reply_to in thread:
                thread[stored.message.id] = (name, stored)

    def _matches(self, stored: StoredMessage, message_filter: MessageFilter, needle: str) -> bool:
        message = stored.message
        if message_filter.sender not in ("", message.sender) or message_filter.action not in (
            "",
            message.action,
        ):
            return False
        if not needle:
            return True
        text = f"{message.sender} {message.recipient} {message.action} {message.payload}"
        return needle in text.casefold() and needle in self._redact(text).casefold()


def _backwards(agent: str, entries: list[MessageFile], before: int) -> Iterator[tuple[int, str, MessageFile]]:
    end = bisect_left(entries, before, key=lambda entry: entry.stem.order) if before else len(entries)
    return ((-entries[place].stem.order, agent, entries[place]) for place in range(end - 1, -1, -1))
