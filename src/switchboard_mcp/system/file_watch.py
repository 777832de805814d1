"""Watches files for changes, using inotify where available and polling otherwise.

`ChangeSource` is the shared mechanism: inotify events, or a timer for polling if there is no inotify or no room for
another watch. `FileWatcher` uses it for names in folders and waits for the end of a burst of changes; the mail store
has a filter of its own. Not aware of file contents.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Iterator, Mapping

from switchboard_mcp.system import inotify
from switchboard_mcp.system.globs import matches

# Folders and, for each, the names or one-part patterns that matter in it.
Places = Mapping[str, frozenset[str]]
POLL_S = 2.0
# An editor writes, renames and removes in one go; a file that was only created may still be being written.
SOON_S, LATER_S = 0.1, 0.5
# More folders than this, as under `**`, are not worth a watch each.
MAX_WATCHES = 2_000
_MASK = (
    inotify.CLOSE_WRITE
    | inotify.MOVED_FROM
    | inotify.MOVED_TO
    | inotify.CREATE
    | inotify.DELETE
    | inotify.DELETE_SELF
    | inotify.MOVE_SELF
    | inotify.ONLY_FOLDERS
)
_SETTLED = inotify.CLOSE_WRITE | inotify.MOVED_FROM | inotify.MOVED_TO | inotify.DELETE
Snapshot = dict[str, tuple[int, int, int]]


class ChangeSource:
    """Calls `on_events` with inotify events, or `on_poll` every `poll_s` seconds while polling."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        poll_s: float,
        on_events: Callable[[Iterator[inotify.Event]], None],
        on_poll: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._poll_s = poll_s
        self._on_events = on_events
        self._on_poll = on_poll
        self._descriptor = -1
        self._timer: TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """True while inotify is used."""
        return self._descriptor >= 0

    def open(self) -> bool:
        """Start using inotify, if it is not used yet; return False if there is none."""
        if self._descriptor < 0:
            self._descriptor = inotify.open_inotify()
            if self._descriptor < 0:
                return False
            self._loop.add_reader(self._descriptor, self._read)
        return True

    def add_watch(self, path: str, mask: int) -> int:
        """Watch a path; negative on failure, see `inotify.last_error`."""
        return inotify.add_watch(self._descriptor, path, mask)

    def remove_watch(self, watch: int) -> None:
        """Remove a watch."""
        inotify.remove_watch(self._descriptor, watch)

    def start_polling(self) -> None:
        """Stop using inotify and poll instead."""
        self._close_inotify()
        if self._timer is None:
            self._timer = self._loop.call_later(self._poll_s, self._poll)

    def stop_polling(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Handle what has happened until now."""
        if self._descriptor >= 0:
            self._read()
        else:
            self._on_poll()

    def close(self) -> None:
        """Stop both."""
        self.stop_polling()
        self._close_inotify()

    def _close_inotify(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = -1

    def _read(self) -> None:
        self._on_events(inotify.read_events(self._descriptor))

    def _poll(self) -> None:
        self._timer = self._loop.call_later(self._poll_s, self._poll)
        self._on_poll()


class FileWatcher:
    """Calls `on_change` on the event loop, once per burst of changes."""

    def __init__(self, loop: AbstractEventLoop, on_change: Callable[[], None]) -> None:
        self._loop = loop
        self._on_change = on_change
        self._source = ChangeSource(loop, POLL_S, self._on_events, self._on_poll)
        self._watched: dict[int, str] = {}
        self._places: dict[str, frozenset[str]] = {}
        self._snapshot: Snapshot = {}
        self._due: TimerHandle | None = None

    @property
    def is_polling(self) -> bool:
        """True if inotify is not used."""
        return not self._source.is_open

    def watch(self, places: Places, *, poll: bool = False) -> None:
        """Watch these places from now on, and no others."""
        self._places = dict(places)
        if not poll and len(places) <= MAX_WATCHES and self._watch_all():
            self._source.stop_polling()
            return
        self._watched.clear()
        self._snapshot = snapshot(self._places)
        self._source.start_polling()

    def look(self) -> bool:
        """Return True if there were changes until now that `on_change` was not called for. It will not be."""
        self._source.look()
        if self._due is None:
            return False
        self._due.cancel()
        self._due = None
        return True

    def stop(self) -> None:
        """Stop watching."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._source.close()
        self._watched.clear()

    def _watch_all(self) -> bool:
        if not self._source.open():
            return False
        watched: dict[int, str] = {}
        for folder in self._places:
            watch = self._source.add_watch(folder, _MASK)
            if watch >= 0:
                watched[watch] = folder
            elif os.path.isdir(folder):  # there is no room for another watch
                return False
        if not watched:  # no folder exists, so no event would report that one is created
            return False
        for gone in self._watched.keys() - watched.keys():
            self._source.remove_watch(gone)
        self._watched = watched
        return True

    def _on_events(self, events: Iterator[inotify.Event]) -> None:
        wait_s: float | None = None
        for watch, mask, name in events:
            if mask & inotify.IGNORED:
                continue
            folder = self._watched.get(watch, "")
            names = self._places.get(folder, frozenset())
            whole = mask & (inotify.OVERFLOW | inotify.DELETE_SELF | inotify.MOVE_SELF)
            if not whole and not any(matches(name, part) for part in names):
                continue
            settled = whole or mask & (_SETTLED | inotify.IS_FOLDER)
            wait_s = SOON_S if settled else wait_s or LATER_S
        if wait_s is not None:
            self._report_in(wait_s)

    def _on_poll(self) -> None:
        current = snapshot(self._places)
        if current != self._snapshot:
            self._snapshot = current
            self._report_in(SOON_S)

    def _report_in(self, wait_s: float) -> None:
        if self._due is not None:
            self._due.cancel()
        self._due = self._loop.call_later(wait_s, self._report)

    def _report(self) -> None:
        self._due = None
        self._on_change()


def snapshot(places: Places) -> Snapshot:
    """Return modification time, size and inode of all matching files: a few `stat` calls."""
    files: Snapshot = {}
    for folder, names in places.items():
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            if any(matches(entry.name, part) for part in names):
                try:
                    status = entry.stat()
                except OSError:
                    continue
                files[entry.path] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return files
