"""Stores which subtools were called after which searches: a file per principal in the user's state folder.

A file has one line per choice and is only appended to, so a crash loses at most the line being written, and several
servers of a workspace can share it. Files are read and written in the work thread. They have words of queries and names
of subtools, never arguments or results. Not aware of how choices change a ranking.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256

import msgspec
from msgspec import Struct

from switchboard_mcp.suites.learned_choices import (
    MAX_CHOICES,
    Choice,
    LearnedChoices,
    ToolKey,
    words_to_keep,
)
from switchboard_mcp.system import work_thread
from switchboard_mcp.system.atomic_write import write_atomically
from switchboard_mcp.system.user_folders import workspace_state_folder

# A call later than this has little to do with the search.
RELATED_S = 600.0
# A file beyond this size keeps its latest choices only.
MAX_BYTES = 512 * 1024
# Principals whose last search or choices are kept in memory.
MAX_PRINCIPALS = 100
_APPEND_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class _Search(Struct):
    """The last search of a principal: its words, and the subtools that it returned and were not called yet."""

    at: float
    words: tuple[str, ...]
    shown: set[ToolKey]


class _Loaded(Struct):
    """The choices of a principal, and the size and time of the file that they were read from."""

    stamp: tuple[int, int]
    choices: LearnedChoices


class FindMemory:
    """Remembers the choices of each principal of a workspace. `now` is a clock in seconds."""

    def __init__(self, folder: str, now: Callable[[], float]) -> None:
        self._folder = folder
        self._now = now
        self._searches: dict[str, _Search] = {}
        self._loaded: dict[str, _Loaded] = {}

    async def shares(self, principal: str, words: Sequence[str]) -> dict[ToolKey, float]:
        """Return by how much to raise each subtool for the words of a query."""
        choices = await work_thread.run(work_thread.OWN, partial(self.choices, principal))
        return choices.shares(words_to_keep(words))

    def note_search(self, principal: str, words: Sequence[str], shown: Sequence[ToolKey]) -> None:
        """Remember the last search of a principal."""
        self._searches.pop(principal, None)
        while len(self._searches) >= MAX_PRINCIPALS:
            del self._searches[next(iter(self._searches))]
        kept = words_to_keep(words)
        if kept and shown:
            self._searches[principal] = _Search(self._now(), kept, set(shown))

    def note_call(self, principal: str, suite: str, subtool: str) -> None:
        """Learn from a call, if it is one of a subtool that the last search returned."""
        search = self._searches.get(principal)
        if search is None or (suite, subtool) not in search.shown:
            return
        if self._now() - search.at > RELATED_S:
            del self._searches[principal]
            return
        search.shown.discard((suite, subtool))
        choice = Choice(suite, subtool, search.words)
        work_thread.submit(work_thread.OWN, partial(self.append, principal, choice), lambda outcome: None)

    def choices(self, principal: str) -> LearnedChoices:
        """Return the choices of a principal; the file is read again only if it has changed."""
        path = self._path(principal)
        try:
            status = os.stat(path)
        except OSError:
            self._loaded.pop(principal, None)
            return LearnedChoices()
        stamp = (status.st_size, status.st_mtime_ns)
        cached = self._loaded.get(principal)
        if cached is None or cached.stamp != stamp:
            if len(self._loaded) >= MAX_PRINCIPALS:
                self._loaded.clear()
            cached = self._loaded[principal] = _Loaded(stamp, LearnedChoices(_read(path)))
        return cached.choices

    def append(self, principal: str, choice: Choice) -> None:
        """Store a choice."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        path = self._path(principal)
        descriptor = os.open(path, _APPEND_FLAGS, 0o600)
        try:
            # Begins with a line break, so that a line which a crash left unfinished spoils no other.
            os.write(descriptor, b"\n" + msgspec.json.encode(choice))
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if size > MAX_BYTES:
            latest = _read(path)[-MAX_CHOICES // 2 :]
            write_atomically(path, b"\n".join(map(msgspec.json.encode, latest)), sync=False)

    def _path(self, principal: str) -> str:
        return os.path.join(self._folder, sha256(principal.encode()).hexdigest()[:32] + ".jsonl")


def memory_folder(environ: Mapping[str, str], workspace: str) -> str:
    """Return the folder for the choices of a workspace; empty if there is no home folder."""
    return workspace_state_folder(environ, "find", workspace)


def forget(folder: str) -> int:
    """Delete the choices of all principals and return the number of files."""
    count = 0
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return 0
    for name in names:
        os.unlink(os.path.join(folder, name))
        count += 1
    return count


def _read(path: str) -> list[Choice]:
    """Return the choices in a file, without lines that cannot be read."""
    with open(path, "rb") as file:
        lines = file.read(4 * MAX_BYTES).splitlines()
    choices = []
    for line in lines:
        try:
            choices.append(msgspec.json.decode(line, type=Choice))
        except msgspec.DecodeError:
            continue
    return choices
