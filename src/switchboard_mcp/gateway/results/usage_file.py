"""Keeps the counts of results between runs: one file for a workspace in the user's state folder, for `tokens`.

Each line has what a server counted in a few seconds. The file is only appended to, so several servers can share it. It
contains names of children and numbers, nothing of results, and may be lost without harm.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop
from functools import partial

import msgspec
from msgspec import Struct, structs

from switchboard_mcp.suites.results.counts import ResultCounts
from switchboard_mcp.system import work_thread
from switchboard_mcp.system.atomic_write import write_atomically

FILE = "counts.jsonl"
# Counts are written this long after the first that is not written yet.
WRITE_S = 2.0
# A larger file is summed up to a line for each child.
MAX_BYTES = 256 * 1024
MAX_READ_BYTES = 4 * MAX_BYTES
_APPEND_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class _Line(Struct):
    child: str
    counts: ResultCounts


class CountKeeper:
    """Writes the counts of one suite. Without a folder it only counts."""

    def __init__(self, folder: str, child: str, loop: AbstractEventLoop) -> None:
        self.counts = ResultCounts()
        self._written = ResultCounts()
        self._folder = folder
        self._child = child
        self._loop = loop
        self._scheduled = False

    def changed(self) -> None:
        """Write the counts soon."""
        if self._folder and not self._scheduled:
            self._scheduled = True
            self._loop.call_later(WRITE_S, self._write)

    def _write(self) -> None:
        self._scheduled = False
        fresh = ResultCounts(
            **{
                name: value - getattr(self._written, name)
                for name, value in structs.asdict(self.counts).items()
            }
        )
        self._written = structs.replace(self.counts)
        work_thread.submit(
            work_thread.OWN, partial(append, self._folder, self._child, fresh), lambda outcome: None
        )


def append(folder: str, child: str, counts: ResultCounts) -> None:
    """Add counts of a child to the file. Raises `OSError`."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, FILE)
    descriptor = os.open(path, _APPEND_FLAGS, 0o600)
    try:
        # Begins with a line break, so that a line which a crash left unfinished spoils no other.
        os.write(descriptor, b"\n" + msgspec.json.encode(_Line(child, counts)))
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    if size > MAX_BYTES:
        lines = [_Line(name, summed) for name, summed in read(folder).items()]
        write_atomically(path, b"\n".join(map(msgspec.json.encode, lines)), sync=False)


def read(folder: str) -> dict[str, ResultCounts]:
    """Return the counts of each child, without lines that cannot be read."""
    try:
        with open(os.path.join(folder, FILE), "rb") as file:
            lines = file.read(MAX_READ_BYTES).splitlines()
    except OSError:
        return {}
    counts: dict[str, ResultCounts] = {}
    for line in lines:
        try:
            entry = msgspec.json.decode(line, type=_Line)
        except msgspec.MsgspecError:
            continue
        counts.setdefault(entry.child, ResultCounts()).add(entry.counts)
    return counts
