"""Watches the mail folders and reports changes: one source of events per process.

Only mailboxes that somebody in this process waits for are watched, so a message wakes its recipient and not every
process of the workspace. Uses inotify if available, else polls modification times twice a second. Not aware of file
contents.
"""

from __future__ import annotations

import errno
import os
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator

from msgspec import Struct

from switchboard_mcp.config.agent_names import is_agent_name
from switchboard_mcp.system import inotify
from switchboard_mcp.system.file_watch import ChangeSource

POLL_S = 0.5
PLACES = ("inbox", "outbox")
_FOLDERS = inotify.CREATE | inotify.MOVED_TO | inotify.ONLY_FOLDERS | inotify.NO_LINKS
_FILES = _FOLDERS | inotify.CLOSE_WRITE | inotify.MOVED_FROM | inotify.DELETE


class MailboxChange(Struct, frozen=True):
    """A change in a folder of an agent or in the state."""

    kind: str
    """`inbox`, `outbox` or `state`."""
    agent: str = ""
    """Name of the agent; empty for `state`, and for `inbox` if events were lost and any inbox may have changed."""
    file: str = ""
    """Name of the file, if known."""


class WatchedMailboxes(Struct, frozen=True):
    """The mailboxes to watch: those of some agents, all inboxes, or everything."""

    agents: frozenset[str] = frozenset()
    inboxes: bool = False
    everything: bool = False

    def has(self, place: str, name: str) -> bool:
        """Return True if this folder is to be watched."""
        if not _is_watched(place, name):
            return False
        return self.everything or (self.inboxes and place == "inbox") or name in self.agents


class Watcher:
    """Calls `notify` on the event loop for every change of a watched mailbox, and of the state."""

    def __init__(self, path: str, loop: AbstractEventLoop, notify: Callable[[MailboxChange], None]) -> None:
        self._path = path
        self._notify = notify
        self._wanted = WatchedMailboxes()
        self._source = ChangeSource(loop, POLL_S, self._on_events, self._on_poll)
        self._watched: dict[int, tuple[str, str]] = {}
        self._times: dict[tuple[str, str], int] = {}

    def start(self) -> None:
        """Start watching."""
        if not self._source.open() or not self._watch_all():
            self._start_polling()

    def watch(self, wanted: WatchedMailboxes) -> None:
        """Watch these mailboxes from now on."""
        if wanted == self._wanted:
            return
        self._wanted = wanted
        if not self._source.is_open:
            self._times = self._scan()
            return
        for watch, (place, agent) in list(self._watched.items()):
            if agent and not wanted.has(place, agent):
                del self._watched[watch]
                self._source.remove_watch(watch)
        if not self._watch_mailboxes():
            self._start_polling()

    def _start_polling(self) -> None:
        """Fall back to polling: no inotify, no more watches available, or a folder was replaced."""
        self._watched.clear()
        self._times = self._scan()
        self._source.start_polling()

    def stop(self) -> None:
        """Stop watching."""
        self._source.close()
        self._watched.clear()

    def _watch_all(self) -> bool:
        if not self._watch("", "", _FOLDERS):
            return False
        return all(self._watch(place, "", _FOLDERS) for place in PLACES) and self._watch_mailboxes()

    def _watch_mailboxes(self) -> bool:
        present = set(self._watched.values())
        return all(
            self._watch_agent(place, name)
            for place in PLACES
            for name in self._candidates(place)
            if (place, name) not in present
        )

    def _candidates(self, place: str) -> list[str]:
        """Return the names of folders that may be watched; without listing if only some agents are."""
        if self._wanted.everything or (self._wanted.inboxes and place == "inbox"):
            try:
                return os.listdir(os.path.join(self._path, place))
            except OSError:
                return []
        return sorted(self._wanted.agents)

    def _watch_agent(self, place: str, name: str) -> bool:
        """Watch a folder, also a misnamed inbox; returns False if no more watches are available. Files need none."""
        return (
            not self._wanted.has(place, name)
            or self._watch(place, name, _FILES)
            or inotify.last_error() != errno.ENOSPC
        )

    def _watch(self, place: str, agent: str, mask: int) -> bool:
        watch = self._source.add_watch(os.path.join(self._path, place, agent), mask)
        if watch >= 0:
            self._watched[watch] = (place, agent)
        return watch >= 0

    def _on_events(self, events: Iterator[inotify.Event]) -> None:
        changes: dict[MailboxChange, None] = {}
        blind = False
        for watch, mask, name in events:
            if mask & inotify.OVERFLOW:
                changes[MailboxChange("inbox")] = None
            elif watch in self._watched:
                place, agent = self._watched[watch]
                if mask & inotify.IGNORED:
                    del self._watched[watch]
                    blind = blind or not agent
                else:
                    blind = not self._record(place, agent, name, changes) or blind
        if blind:
            self._start_polling()
        for change in changes:
            self._notify(change)

    def _record(self, place: str, agent: str, name: str, changes: dict[MailboxChange, None]) -> bool:
        """Record a change; returns False if a new folder cannot be watched."""
        seen = True
        if agent:
            if not name.startswith("."):
                changes[MailboxChange(place, agent, name)] = None
        elif place:
            seen = self._watch_agent(place, name)
            # Files created before the watch existed produce no event.
            changes[MailboxChange(place, name)] = None
        elif name == "state.json":
            changes[MailboxChange("state")] = None
        return seen

    def _on_poll(self) -> None:
        seen = self._scan()
        for key, changed in seen.items():
            if self._times.get(key) != changed:
                self._notify(MailboxChange(*key))
        self._times = seen

    def _scan(self) -> dict[tuple[str, str], int]:
        """Read the folders' modification times: a few `stat` calls on the event loop."""
        times: dict[tuple[str, str], int] = {}
        for place in PLACES:
            for name in self._candidates(place):
                if self._wanted.has(place, name):
                    _stamp(times, (place, name), os.path.join(self._path, place, name))
        _stamp(times, ("state", ""), os.path.join(self._path, "state.json"))
        return times


def _is_watched(place: str, name: str) -> bool:
    return is_agent_name(name) or (place == "inbox" and not name.startswith("."))


def _stamp(times: dict[tuple[str, str], int], key: tuple[str, str], path: str) -> None:
    try:
        times[key] = os.stat(path, follow_symlinks=False).st_mtime_ns
    except OSError:
        pass
