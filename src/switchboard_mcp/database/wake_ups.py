"""Wake-ups between processes of a machine: a file per topic is touched after a commit, and watched with inotify.

Without inotify only the look once a second remains. Not aware of what a topic stands for.
"""

from __future__ import annotations

import os
from asyncio import get_running_loop
from collections.abc import Callable, Iterator
from typing import Protocol

from switchboard_mcp.system import inotify
from switchboard_mcp.system.file_watch import ChangeSource

_TOUCHED = inotify.ATTRIB | inotify.NO_LINKS
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
# Polling is the look at the database, once a second, which is not done here.
_NEVER_S = 86_400.0


class WakeUps(Protocol):
    """Hears that others have committed something about a topic."""

    def watch(self, topics: frozenset[str], hear: Callable[[str], None], *, everything: bool) -> None:
        """Call `hear` with these topics from now on, or with an empty one if anything may have changed."""

    def close(self) -> None:
        """Stop."""


class FileWakeUps:
    """Watches the files of topics."""

    def __init__(self, path_of: Callable[[str], str]) -> None:
        self._path_of = path_of
        self._source = ChangeSource(get_running_loop(), _NEVER_S, self._on_events, lambda: None)
        self._watches: dict[int, str] = {}
        self._hear: Callable[[str], None] = lambda _: None

    def watch(self, topics: frozenset[str], hear: Callable[[str], None], *, everything: bool) -> None:
        """Watch the files of these topics, and the folder of all if `everything`."""
        self._hear = hear
        wanted = topics | {""} if everything else topics
        if not wanted or not self._source.open():
            self.close()
            return
        for number, topic in list(self._watches.items()):
            if topic not in wanted:
                del self._watches[number]
                self._source.remove_watch(number)
        for topic in wanted.difference(self._watches.values()):
            self._add(topic)

    def _add(self, topic: str) -> None:
        path = self._path_of(topic)
        try:
            if topic:
                os.close(os.open(path, _FLAGS, 0o600))
            else:
                path = os.path.dirname(path)
        except OSError:
            return  # Read-only: nothing changes there.
        number = self._source.add_watch(path, _TOUCHED)
        if number >= 0:
            self._watches[number] = topic

    def _on_events(self, events: Iterator[inotify.Event]) -> None:
        topics: set[str] = set()
        for number, mask, name in events:
            if mask & inotify.OVERFLOW:
                topics.add("")
            elif mask & inotify.IGNORED:
                self._add(self._watches.pop(number, ""))
            elif number in self._watches:
                # The watch of the folder hears of every file in it.
                topics.add(self._watches[number] or name)
        for topic in topics:
            self._hear(topic)

    def close(self) -> None:
        """Stop watching."""
        self._watches.clear()
        self._source.close()
