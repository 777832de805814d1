"""Brings folders and database together: imports what was dropped, settles what was moved, shows what waits.

One process at a time does this for a workspace: whoever holds `locks/files`, for as long as it lives. A pass makes the
folders of an agent equal to the database; what a kill leaves half done, the next pass finds.
"""

from __future__ import annotations

import os
import time
from asyncio import Event, Lock, TimerHandle, create_task, gather, get_running_loop, timeout
from asyncio import Task as AsyncTask
from collections.abc import Callable, Collection, Coroutine, Iterator
from typing import TypeVar

import msgspec

from switchboard_mcp.config.agent_names import is_agent_name
from switchboard_mcp.database.file_lock import FileLock
from switchboard_mcp.database.transactions import Transaction, placeholders
from switchboard_mcp.errors import SwitchboardError, failure
from switchboard_mcp.mail.store import leases, rows, state_documents
from switchboard_mcp.mail.store.rows import MessageRow
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.store.surface import dropped
from switchboard_mcp.mail.store.surface.dropped import DroppedFile
from switchboard_mcp.mail.store.surface.folders import SHOWN, MailFolders, orders_of, settled_name
from switchboard_mcp.system import inotify
from switchboard_mcp.system.atomic_write import write_atomically
from switchboard_mcp.system.file_watch import ChangeSource

T = TypeVar("T")
POLL_S = 0.5
# Changes are shown this much later: a message that is claimed at once is never written.
SHOW_S = 0.08
# What a short command waits for the process that imports.
ANSWER_S = 1.0
RETRY_S = 1.0
# Receipts of changes that are older than this at a start were exported by whoever was there then.
EXPORTED_S = 3_600.0
# Dropped files that are read at a time, and rows that are exported.
PIECE = 300
# A shown file that was removed this often, and not moved, is a dead letter: its reader would do the task for ever.
MAX_REMOVALS = 5
RING, ANSWER = "files", "files.passed"
_FOLDERS = inotify.CREATE | inotify.MOVED_TO | inotify.ONLY_FOLDERS | inotify.NO_LINKS
_FILES = _FOLDERS | inotify.CLOSE_WRITE | inotify.MOVED_FROM | inotify.DELETE


class FileSurface:
    """The file surface of a workspace, in one process."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._folders = MailFolders(store.path)
        self._loop = get_running_loop()
        self._folders.make()
        self._lock = FileLock(os.path.join(store.path, "locks", "files"))
        self._pass = Lock()
        self._is_holder = False
        self._source = ChangeSource(self._loop, POLL_S, self._on_events, self._on_poll)
        self._watched: dict[int, str] = {}
        self._due: set[str] = set()
        self._timer: TimerHandle | None = None
        self._task: AsyncTask[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None
        start_us = int((time.time() - EXPORTED_S) * 1e6)
        # Until where messages and settlements were exported.
        self._sent_to, self._settled_to = start_us, start_us // 1_000
        self._settled_last: set[tuple[int | None, int]] = set()
        # Names and fences of what was shown: with another fence it was claimed meanwhile, and not removed.
        self._shown: dict[str, dict[str, int]] = {}
        self._removals: dict[tuple[str, str], int] = {}

    async def start(self) -> None:
        """Import, show and watch from now on, once no other process does."""
        self._unsubscribe = self._store.database.listen(self._hear)
        await self._try(self._try_to_hold)

    async def _try_to_hold(self) -> None:
        self._is_holder = self._is_holder or self._lock.try_acquire()
        if not self._is_holder:
            self._timer = self._loop.call_later(RETRY_S, self._begin, self._try_to_hold)
            return
        await self._run(self._recover)
        self._watch()
        await self.pass_all()

    async def close(self) -> None:
        """Stop; another process takes over."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await gather(self._task, return_exceptions=True)
        self._source.close()
        self._lock.close()

    async def sync(self) -> None:
        """Do one pass, or have the process that holds the lock do one: for a command, before it reads."""
        if self._is_holder or self._lock.try_acquire():
            try:
                if not self._is_holder:
                    await self._run(self._recover)
                await self.pass_all()
            finally:
                if not self._is_holder:
                    self._lock.release()
            return
        answered = Event()
        stop = self._store.database.listen(lambda _: answered.set(), [ANSWER])
        try:
            async with timeout(ANSWER_S):
                await self._store.write(lambda tx: tx.topics.add(RING), durable=False)
                await answered.wait()
        except TimeoutError:
            pass
        finally:
            stop()

    def _recover(self) -> None:
        """Bring back what a killed process was doing."""
        self._folders.make()
        self._folders.remove_drafts()
        for agent in self._folders.agents():
            self._folders.return_taken(agent)

    # What has changed

    def _hear(self, topic: str) -> None:
        kind, _, agent = topic.partition(".")
        if topic == RING or not topic:
            self._note("")
        elif kind in ("inbox", "outbox", "state", "agents"):
            self._note(agent if kind == "inbox" else "*")

    def _note(self, agent: str) -> None:
        """Plan a pass for an agent; for all if empty, and for none but the exports if `*`."""
        self._due.add(agent)
        if self._is_holder and self._timer is None:
            self._timer = self._loop.call_later(SHOW_S, self._begin, self._pass_due)

    def _begin(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._timer = None
        self._task = create_task(self._try(work))

    async def _try(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do something; if the database or a folder cannot be used now, look at everything a little later."""
        try:
            await work()
        except (SwitchboardError, OSError):
            self._due.add("")
            retry = self._pass_due if self._is_holder else self._try_to_hold
            self._timer = self._timer or self._loop.call_later(RETRY_S, self._begin, retry)

    async def _pass_due(self) -> None:
        due, self._due = self._due, set()
        await self.pass_all(None if "" in due else due - {"*"})

    def _watch(self) -> None:
        if not self._source.open():
            self._source.start_polling()
            return
        for place in ("inbox", "archive"):
            self._add_watch(self._folders.folder(place), "", _FOLDERS)

    def _add_watch(self, path: str, agent: str, mask: int) -> None:
        number = self._source.add_watch(path, mask)
        if number >= 0:
            self._watched[number] = agent

    def _watch_agent(self, agent: str) -> None:
        if self._source.is_open and agent not in self._watched.values():
            for place in ("inbox", "archive"):
                self._add_watch(self._folders.folder(place, agent), agent, _FILES)

    def _on_events(self, events: Iterator[inotify.Event]) -> None:
        for number, mask, name in events:
            if mask & inotify.OVERFLOW:
                self._note("")
            elif mask & inotify.IGNORED:
                self._watched.pop(number, None)
                self._note("")
            elif number in self._watched and not name.startswith("."):
                self._note(self._watched[number])

    def _on_poll(self) -> None:
        self._note("")

    # One pass

    async def pass_all(self, only: Collection[str] | None = None) -> None:
        """Make the folders of all agents, or of some, equal to the database."""
        async with self._pass:
            await self._run(self._folders.collect_misplaced)
            names = set(await self._run(self._folders.agents))
            registered = set(await self._store.agents())
            for agent in names - registered:
                await self._store.register(agent)
            agents = names | registered
            for agent in sorted(agents if only is None else agents & set(only)):
                await self._pass_agent(agent)
            await self._export()
            await self._store.write(lambda tx: tx.topics.add(ANSWER), durable=False)

    async def _pass_agent(self, agent: str) -> None:
        await self._run(lambda: self._folders.make(agent))
        self._watch_agent(agent)
        names = await self._run(
            lambda: [name for name in self._folders.names("inbox", agent) if _is_file(name)]
        )
        places = await self._store.read_rows(lambda tx: _places(tx, agent, orders_of(names)))
        unknown = [name for name in names if name not in places]
        for first in range(0, len(unknown), PIECE):
            await self._import(agent, unknown[first : first + PIECE])
        await self._settle_moved(agent)
        for name, place in places.items():
            if place != "inbox":
                await self._run(lambda name=name: self._folders.remove("inbox", agent, name))  # type: ignore[misc]
        await self._clear_claimed(agent)
        await self._show(agent, set(places))

    async def _import(self, agent: str, names: list[str]) -> None:
        """Accept or refuse dropped files; those of a piece share commits."""
        files = await self._run(
            lambda: [file for name in names if (file := dropped.read_dropped(self._folders, agent, name))]
        )
        if len(files) < len(names):
            self._loop.call_later(dropped.SETTLE_S, self._note, agent)

        async def accept(file: DroppedFile) -> None:
            delivery, order = await self._store.write(
                dropped.importer(file, self._store.policy, self._write_reason)
            )
            if order:
                await self._run(lambda: dropped.move_to_dead_letters(self._folders, file, order))
            else:
                await self._run(lambda: dropped.take_away(self._folders, file))
            self._store.report([delivery])

        await gather(*(accept(file) for file in files))

    def _write_reason(self, file: DroppedFile, order: int) -> None:
        """Write why a file was refused, before that is committed; called in the writer thread."""
        problem = file.problem or failure("mail_message_invalid", "")
        self._publish_reason(
            file.agent, f"{rows.FOREIGN}{order:016d}", file.name, problem.code, problem.message
        )

    def _publish_reason(self, agent: str, stem: str, name: str, code: str, reason: str) -> None:
        content = {"file": name.encode("utf-8", "replace").decode(), "code": code, "reason": reason}
        self._folders.publish(
            "deadletter", agent, f"{stem}.reason.json", msgspec.json.encode(content) + b"\n"
        )

    async def _settle_moved(self, agent: str) -> None:
        """Settle the waiting messages whose files are in the archive."""
        moved = orders_of(await self._run(lambda: self._folders.names("archive", agent)))
        places = await self._store.read_rows(lambda tx: _places(tx, agent, moved))
        waiting = [order for order, name in moved.items() if places.get(name) == "inbox"]

        def settle(tx: Transaction) -> None:
            for order in waiting:
                row = tx.row(f"SELECT {rows.COLUMNS} FROM message WHERE ord = ? AND place = 'inbox'", order)
                if row is not None:
                    leases.settle_by_file(tx, rows.row_of(row))

        if waiting:
            await self._store.write(settle)

    async def _clear_claimed(self, agent: str) -> None:
        names = orders_of(await self._run(lambda: self._folders.names("claimed", agent)))
        places = await self._store.read_rows(lambda tx: _places(tx, agent, names))
        for name in names.values():
            if places.get(name) != "claimed":
                await self._run(lambda name=name: self._folders.remove("claimed", agent, name))  # type: ignore[misc]

    async def _show(self, agent: str, present: set[str]) -> None:
        """Show the first messages that wait."""
        first = await self._store.read_rows(
            lambda tx: tx.rows(
                "SELECT ord, id, fence FROM message WHERE recipient = ? AND place = 'inbox' ORDER BY ord LIMIT ?",
                agent,
                SHOWN,
            )
        )
        waiting = {rows.file_name(order, message_id): order for order, message_id, _ in first}
        fences = {rows.file_name(order, message_id): fence for order, message_id, fence in first}
        await self._count_removals(agent, waiting, fences, present)
        missing = [name for name in waiting if name not in present]
        drafts: dict[str, str] = {}
        if missing:
            bodies = await self._store.read_rows(lambda tx: _bodies(tx, [waiting[name] for name in missing]))
            for name in missing:
                if waiting[name] in bodies:
                    data = f"{bodies[waiting[name]]}\n".encode()
                    drafts[name] = await self._run(lambda data=data: self._folders.write_draft(data))  # type: ignore[misc]

        def publish(tx: Transaction) -> None:
            # Under the lock of the writer, so that no claim comes between the look and the rename.
            still = _places(tx, agent, {waiting[name]: name for name in drafts})
            for name, draft in drafts.items():
                if still.get(name) == "inbox":
                    self._folders.show(draft, agent, name)

        if drafts:
            await self._store.write(publish, durable=False)
            for draft in drafts.values():
                await self._run(lambda draft=draft: self._folders.remove("tmp", "", os.path.basename(draft)))  # type: ignore[misc]
        self._shown[agent] = fences

    async def _count_removals(
        self, agent: str, waiting: dict[str, int], fences: dict[str, int], present: set[str]
    ) -> None:
        """Dead-letter what a reader removes again and again instead of moving it."""
        for name, fence in self._shown.get(agent, {}).items():
            if name in present or fences.get(name) != fence:
                continue
            count = self._removals[agent, name] = self._removals.get((agent, name), 0) + 1
            if count < MAX_REMOVALS:
                continue
            del self._removals[agent, name]

            def work(tx: Transaction, order: int = waiting[name]) -> None:
                row = tx.row(f"SELECT {rows.COLUMNS} FROM message WHERE ord = ? AND place = 'inbox'", order)
                if row is not None:
                    text = f"Its file was removed {MAX_REMOVALS} times. Move it to archive/ to settle it."
                    leases.dead_letter(tx, rows.row_of(row), "failed", failure("mail_message_invalid", text))

            await self._store.write(work)

    # Exports

    async def _export(self) -> None:
        """Write receipts, settled messages and the state, of what has changed since the last pass."""
        document = await self._store.read_rows(state_documents.load)
        await self._run(lambda: self._write_state(document))
        touched: set[tuple[str, str]] = set()
        while sent := await self._store.read_rows(
            lambda tx: tx.rows(
                f"SELECT {rows.COLUMNS} FROM message WHERE ord > ? ORDER BY ord LIMIT ?", self._sent_to, PIECE
            )
        ):
            changed = [rows.row_of(row) for row in sent]
            await self._run(lambda: self._write_receipts(changed, touched))  # noqa: B023 - awaited at once
            self._sent_to = changed[-1].order
        await self._export_settled(touched)
        await self._run(lambda: self._trim(touched))

    async def _export_settled(self, touched: set[tuple[str, str]]) -> None:
        # Settlements of one millisecond may come in several commits, so the last one is read again.
        since, last = self._settled_to - 1, 0
        while settled := await self._store.read_rows(
            lambda tx: tx.rows(
                f"SELECT {rows.COLUMNS}, body FROM message LEFT JOIN body USING (ord)"
                " WHERE settled_at IS NOT NULL AND (settled_at > ? OR (settled_at = ? AND ord > ?))"
                " ORDER BY settled_at, ord LIMIT ?",
                since,  # noqa: B023 - awaited at once
                since,  # noqa: B023
                last,  # noqa: B023
                PIECE,
            )
        ):
            pairs = [(rows.row_of(row[:-1]), row[-1]) for row in settled]
            new = [pair for pair in pairs if (pair[0].settled_at, pair[0].order) not in self._settled_last]
            await self._run(lambda: self._write_settled(new, touched))  # noqa: B023
            since, last = pairs[-1][0].settled_at or 0, pairs[-1][0].order
            if since > self._settled_to:
                self._settled_to = since
                self._settled_last = {item for item in self._settled_last if item[0] == since}
            self._settled_last |= {(row.settled_at, row.order) for row, _ in new if row.settled_at == since}

    def _trim(self, touched: set[tuple[str, str]]) -> None:
        for place, agent in touched:
            self._folders.trim(place, agent)

    def _write_state(self, document: state_documents.State) -> None:
        path = os.path.join(self._store.path, "state.json")
        data = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
        try:
            with open(path, "rb") as file:
                if file.read() == data:
                    return
        except OSError:
            pass
        write_atomically(path, data, sync=False)

    def _write_receipts(self, changed: list[MessageRow], touched: set[tuple[str, str]]) -> None:
        for row in changed:
            if not is_agent_name(row.sender):
                continue
            touched.add(("outbox", row.sender))
            for receipt in rows.receipts_of(row):
                outcome = "" if receipt.status in ("delivered", "refused") else f".{receipt.status}"
                name = f"receipt_{receipt.in_reply_to}{outcome}.json"
                if not self._folders.has("outbox", row.sender, name):
                    self._folders.publish("outbox", row.sender, name, msgspec.json.encode(receipt) + b"\n")

    def _write_settled(
        self, settled: list[tuple[MessageRow, str | None]], touched: set[tuple[str, str]]
    ) -> None:
        self._write_receipts([row for row, _ in settled], touched)
        for row, body in settled:
            if row.outcome in (None, "refused") or body is None or row.place not in ("archive", "deadletter"):
                continue
            touched.add((row.place, row.recipient))
            shown = rows.file_name(row.order, row.id)
            name = settled_name(shown, row.fence, row.outcome)
            if self._folders.has(row.place, row.recipient, name):
                continue
            if row.place == "deadletter":
                stem = shown.removesuffix(".json")
                self._publish_reason(row.recipient, stem, name, "mail_message_invalid", row.summary or "")
            self._folders.publish(row.place, row.recipient, name, f"{body}\n".encode())

    async def _run(self, work: Callable[[], T]) -> T:
        """Run what touches the disk off the event loop."""
        return await self._loop.run_in_executor(None, work)


def unknown_names(tx: Transaction, agent: str, names: Collection[str]) -> list[str]:
    """Return the names in an inbox that are not those of messages: files that were dropped."""
    files = [name for name in names if _is_file(name)]
    known = _places(tx, agent, orders_of(files))
    return [name for name in files if name not in known]


def _is_file(name: str) -> bool:
    """Return True unless a name is that of a temporary file of another program."""
    return not name.startswith(".") and not name.endswith(".tmp")


def _places(tx: Transaction, agent: str, names: dict[int, str]) -> dict[str, str]:
    """Return the places of the messages whose names these are; other names are left out."""
    places: dict[str, str] = {}
    orders = list(names)
    for first in range(0, len(orders), 500):
        some = orders[first : first + 500]
        for order, message_id, place in tx.rows(
            f"SELECT ord, id, place FROM message WHERE ord IN {placeholders(some)} AND recipient = ?",
            *some,
            agent,
        ):
            if rows.file_name(order, message_id) == names[order]:
                places[names[order]] = place
    return places


def _bodies(tx: Transaction, orders: list[int]) -> dict[int, str]:
    return {
        row[0]: row[1]
        for row in tx.rows(f"SELECT ord, body FROM body WHERE ord IN {placeholders(orders)}", *orders)
    }
