"""The files of the audit log: `audit-000001.jsonl` and so on; the last one is being written.

Any number of processes append, one batch at a time, under a file lock that the system releases if its holder dies.
Owns finding the end of the chain, moving aside lines that a crash left incomplete, rotation, and undoing a batch that
could not be written. It is not aware of what is recorded.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from switchboard_mcp.observability.audit import hash_chain
from switchboard_mcp.observability.audit.hash_chain import ChainHead
from switchboard_mcp.system.atomic_write import sync_folder

LOCK = "lock"
# The last line is searched for in this much of the end of a file; lines are far shorter.
TAIL_BYTES = 65_536
# Formats the lines of a batch as a continuation of the chain; returns them and the new head.
FormatBatch = Callable[[ChainHead], tuple[bytes, ChainHead]]
_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class FileTail(Struct):
    """The end of a file: the size up to its last whole line, the chain head there, and the torn rest."""

    size: int
    head: ChainHead
    torn: bytes = b""


def segment_name(number: int) -> str:
    """Return the name of a file of the audit log."""
    return f"audit-{number:06d}.jsonl"


def segment_numbers(folder: str) -> list[int]:
    """Return the numbers of the files in a folder, oldest first."""
    numbers = []
    for name in os.listdir(folder):
        middle = name.removeprefix("audit-").removesuffix(".jsonl")
        if middle.isdecimal() and name == segment_name(int(middle)):
            numbers.append(int(middle))
    return sorted(numbers)


def last_seq(folder: str) -> int:
    """Return the number of the last line in a folder, unverified; 0 if there is none."""
    try:
        for number in reversed(segment_numbers(folder)):
            seq = _read_tail_of(os.path.join(folder, segment_name(number))).head.seq
            if seq:
                return seq
    except OSError:
        pass
    return 0


@contextmanager
def folder_lock(folder: str, mode: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold the lock of an audit folder."""
    descriptor = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, mode)
        yield
    finally:
        os.close(descriptor)


class AuditFiles:
    """Appends to the audit log in one folder."""

    def __init__(self, folder: str, max_bytes: int, keep: int, clock: Callable[[], int]) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._keep = keep
        self._clock = clock
        self._descriptor = -1
        self._number = 0
        self._size = 0
        self._head = ChainHead()

    def open(self) -> None:
        """Create the folder and check that it is writable. Raises OSError if it is not."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        with folder_lock(self._folder):
            self._catch_up()

    def append(self, format_batch: FormatBatch) -> None:
        """Append one batch. Raises OSError if that fails; then nothing of it has been written."""
        with folder_lock(self._folder):
            self._catch_up()
            data, head = format_batch(self._head)
            self._write(data, head)
            if self._size >= self._max_bytes:
                self._begin_file(self._number + 1)
                self._prune()

    def sync(self) -> None:
        """Flush appended lines to the disk."""
        if self._descriptor >= 0:
            _sync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, segment_name(number))

    def _catch_up(self) -> None:
        """Seek to the end of the chain, which another process may have extended."""
        if self._descriptor >= 0:
            status = os.fstat(self._descriptor)
            newer = os.path.lexists(self._path(self._number + 1))
            if status.st_size == self._size and status.st_nlink and not newer:
                return
            self.close()
        numbers = segment_numbers(self._folder)
        if not numbers:
            self._head = ChainHead()
            self._begin_file(1)
            return
        self._number = numbers[-1]
        self._descriptor = _open(self._path(self._number))
        tail = _read_tail(self._descriptor)
        self._size, self._head = tail.size, tail.head
        if tail.size == 0 and len(numbers) > 1:  # created by a process that died before writing to it
            self._head = _read_tail_of(self._path(numbers[-2])).head
        if tail.torn or tail.size == 0:
            self._repair(tail)

    def _repair(self, tail: FileTail) -> None:
        """Move a torn line to a file of its own, and record that with a marker."""
        if tail.torn:
            aside = f"{self._path(self._number)}.torn-{self._head.seq + 1}"
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                _write_all(descriptor, tail.torn)
            finally:
                os.close(descriptor)
            os.ftruncate(self._descriptor, tail.size)
        if tail.size == 0:
            self._write(*self._begin_line())
        if tail.torn:
            seq = self._head.seq + 1
            body = hash_chain.marker_body("torn", seq, self._clock(), pid=os.getpid(), count=len(tail.torn))
            line, digest = hash_chain.seal(body, self._head.digest)
            self._write(line, ChainHead(seq, digest))

    def _begin_file(self, number: int) -> None:
        self.sync()
        self.close()
        self._number, self._size = number, 0
        self._descriptor = _open(self._path(number))
        self._write(*self._begin_line())
        sync_folder(self._folder)

    def _begin_line(self) -> tuple[bytes, ChainHead]:
        seq, prev = self._head.seq + 1, self._head.digest
        body = hash_chain.marker_body(
            "begin",
            seq,
            self._clock(),
            pid=os.getpid(),
            schema=hash_chain.SCHEMA_VERSION,
            prev=prev.hex(),
            keep=self._keep,  # explains to `verify` why older files are gone
        )
        line, digest = hash_chain.seal(body, prev)
        return line, ChainHead(seq, digest)

    def _write(self, data: bytes, head: ChainHead) -> None:
        try:
            _write_all(self._descriptor, data)
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)
        self._head = head

    def _prune(self) -> None:
        if self._keep:
            for number in segment_numbers(self._folder)[: -self._keep]:
                os.unlink(self._path(number))


def _open(path: str) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)


def _read_tail_of(path: str) -> FileTail:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return _read_tail(descriptor)
    finally:
        os.close(descriptor)


def _read_tail(descriptor: int) -> FileTail:
    """Find the end of the last whole line. Everything after it, and lines that are not records, are torn."""
    size = os.fstat(descriptor).st_size
    start = max(0, size - TAIL_BYTES)
    tail = os.pread(descriptor, size - start, start)
    end = len(tail)
    while end > 0:
        end = tail.rfind(b"\n", 0, end) + 1
        if end == 0:
            break
        begin = tail.rfind(b"\n", 0, end - 1) + 1
        head = hash_chain.head_of(tail[begin : end - 1])
        if head is not None:
            return FileTail(start + end, head, tail[end:])
        end = begin
    if start > 0:
        raise OSError(errno.EBADMSG, "no record at its end")
    return FileTail(0, ChainHead(), tail)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
