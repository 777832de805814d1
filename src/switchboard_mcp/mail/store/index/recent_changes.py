"""The newest changes of an inbox, in a log beside its database: a line costs one write, a transaction about forty.

Every line says how the folder came from one state to the next, each named by the folder's modification time. So any
database and any part of the log fit together if their states do, and a line that is missing, torn or repeated is
noticed: the state at the end is not that of the folder. Lines have delivered messages of normal priority alone; all
else is written to the database. Not aware of the database.
"""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

# When the log has this much, its changes are written to the database.
MAX_BYTES = 64 * 1024
_LOG = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class AddedMessage(Struct, frozen=True, array_like=True):
    """A message of normal priority that came to an inbox."""

    order: int
    name: str
    id: str
    inode: int
    sender: str


class ChangeLine(Struct, frozen=True, array_like=True):
    """The changes between two states of a folder."""

    before: int
    after: int
    removed: list[str]
    added: list[AddedMessage]


_decoder = msgspec.json.Decoder(ChangeLine)


class RecentChanges:
    """What the log says on top of a database: names to leave out of it, and messages to add."""

    def __init__(self) -> None:
        self.hidden: set[str] = set()
        self._added: dict[str, AddedMessage] = {}
        # Their orders and names, sorted.
        self._sorted: list[tuple[int, str]] = []

    def __bool__(self) -> bool:
        return bool(self.hidden)

    def apply(self, removed: Iterable[str], added: Iterable[AddedMessage]) -> None:
        """Add changes to those before them."""
        for name in removed:
            self._remove(name)
        for message in added:
            self._remove(message.name)
            self._added[message.name] = message
            insort(self._sorted, (message.order, message.name))

    def _remove(self, name: str) -> None:
        self.hidden.add(name)
        known = self._added.pop(name, None)
        if known is not None:
            del self._sorted[bisect_left(self._sorted, (known.order, name))]

    def added(self) -> list[AddedMessage]:
        """Return the added messages."""
        return list(self._added.values())

    def after(self, order: int) -> list[tuple[int, str]]:
        """Return the orders and names of the added messages with a higher order number, sorted."""
        return self._sorted[bisect_left(self._sorted, (order + 1, "")) :]


class ChangeLog:
    """The log of one inbox, open in one thread. Every method may raise OSError."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, _LOG, 0o600)
        info = os.fstat(self._descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            os.close(self._descriptor)
            raise OSError(errno.EINVAL, "is not a file of ours", path)
        self._end = 0
        # The last line up to there. States are unique, so this shows that the log is the same up to there.
        self._last = b""

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def rewind(self) -> None:
        """Read from the start the next time."""
        self._end, self._last = 0, b""

    def read(self) -> Iterator[ChangeLine]:
        """Return the lines that came since; ends at one that is torn, and if the log was begun again."""
        data = self._read(self._end - len(self._last))
        if not data.startswith(self._last):
            return
        begin = len(self._last)
        while (end := data.find(b"\n", begin) + 1) > 0:
            try:
                line = _decoder.decode(data[begin:end])
            except (msgspec.DecodeError, UnicodeDecodeError):
                return
            self._end += end - begin
            self._last, begin = data[begin:end], end
            yield line

    def _read(self, offset: int) -> bytes:
        # One that is longer was not written by a process of ours; it ends the reading like a torn line.
        return os.pread(self._descriptor, 4 * MAX_BYTES, offset)

    def append(self, line: ChangeLine) -> int:
        """Write a line; the mailbox lock must be held. Returns the size of the log. Raises OSError if that is gone."""
        data = msgspec.json.encode(line) + b"\n"
        if os.write(self._descriptor, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        info = os.fstat(self._descriptor)
        if not info.st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._end, self._last = info.st_size, data
        return info.st_size

    def clear(self) -> None:
        """Begin again; the mailbox lock must be held, and the database be up to date."""
        os.ftruncate(self._descriptor, 0)
        self.rewind()
