"""Whether files that somebody cares for may be others now.

Told by the kernel where it can, else by looking now and then. Owns the watching of folders and the wait until a burst
of changes is over; what is in the files is for others.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Mapping

from switchboard_mcp.system import inotify
from switchboard_mcp.system.globs import matches

# Folders and, for each, which names in it matter: names or patterns of one part.
Places = Mapping[str, frozenset[str]]
POLL_S = 2.0
# An editor writes, renames and removes in one go; what only has been made may still be being written.
SOON_S, LATER_S = 0.1, 0.5
# More folders than this, as under `**`, are not worth a watch each.
MOST_WATCHES = 2_000
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


class FileWatcher:
    """Calls `tell` on the event loop, once for each burst of changes."""

    def __init__(self, loop: AbstractEventLoop, on_change: Callable[[], None]) -> None:
        self._loop = loop
        self._tell = on_change
        self._descriptor = -1
        self._watched: dict[int, str] = {}
        self._places: dict[str, frozenset[str]] = {}
        self._stamp: Snapshot = {}
        self._polling: TimerHandle | None = None
        self._due: TimerHandle | None = None

    @property
    def is_polling(self) -> bool:
        """Whether it has to look for itself."""
        return self._descriptor < 0

    def watch(self, places: Places, *, poll: bool = False) -> None:
        """Watch these from now on, and nothing else."""
        self._places = dict(places)
        if not poll and len(places) <= MOST_WATCHES and self._watch_all():
            return
        self._close()
        self._stamp = snapshot(self._places)
        if self._polling is None:
            self._polling = self._loop.call_later(POLL_S, self._poll)

    def stop(self) -> None:
        """End."""
        for timer in (self._polling, self._due):
            if timer is not None:
                timer.cancel()
        self._polling = self._due = None
        self._close()

    def _watch_all(self) -> bool:
        if self._descriptor < 0:
            self._descriptor = inotify.open_inotify()
            if self._descriptor < 0:
                return False
            self._loop.add_reader(self._descriptor, self._read)
        watched: dict[int, str] = {}
        for folder in self._places:
            watch = inotify.add_watch(self._descriptor, folder, _MASK)
            if watch >= 0:
                watched[watch] = folder
            elif os.path.isdir(folder):  # there is no room for another watch
                return False
        if not watched:  # all of it is gone, and nobody would tell when it is back
            return False
        for gone in self._watched.keys() - watched.keys():
            inotify.remove_watch(self._descriptor, gone)
        self._watched = watched
        if self._polling is not None:
            self._polling.cancel()
            self._polling = None
        return True

    def _close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = -1
        self._watched.clear()

    def _read(self) -> None:
        wait_s: float | None = None
        for watch, mask, name in inotify.read_events(self._descriptor):
            if mask & inotify.IGNORED:
                continue
            folder = self._watched.get(watch, "")
            wanted = self._places.get(folder, frozenset())
            whole = mask & (inotify.OVERFLOW | inotify.DELETE_SELF | inotify.MOVE_SELF)
            if not whole and not any(matches(name, part) for part in wanted):
                continue
            settled = whole or mask & (_SETTLED | inotify.IS_FOLDER)
            wait_s = SOON_S if settled else wait_s or LATER_S
        if wait_s is not None:
            self._soon(wait_s)

    def _soon(self, wait_s: float) -> None:
        if self._due is not None:
            self._due.cancel()
        self._due = self._loop.call_later(wait_s, self._is_due)

    def _is_due(self) -> None:
        self._due = None
        self._tell()

    def _poll(self) -> None:
        self._polling = self._loop.call_later(POLL_S, self._poll)
        seen = snapshot(self._places)
        if seen != self._stamp:
            self._stamp = seen
            self._soon(SOON_S)


def snapshot(places: Places) -> Snapshot:
    """What can be told of these without reading them. A few `stat`s: there is nothing better where nothing tells."""
    found: Snapshot = {}
    for folder, wanted in places.items():
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            if any(matches(entry.name, part) for part in wanted):
                try:
                    seen = entry.stat()
                except OSError:
                    continue
                found[entry.path] = (seen.st_mtime_ns, seen.st_size, seen.st_ino)
    return found
