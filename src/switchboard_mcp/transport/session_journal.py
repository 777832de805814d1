"""A journal of one session in shared memory, so that another process can continue the session after a crash.

The journal is an anonymous file (memfd) that the host's own process holds open. Nothing is counted after the fact,
because a process that is killed never learns the result of its last system call. Instead, the kernel keeps the counts:

- Input is read from the pipe right into the mapped file. All bytes behind it are zero, and a message has no zero byte:
  the first one marks the end of what was read.
- Output is stored in the mapped file and goes from there to the pipe by `splice` (or `sendfile` to a socket). The
  kernel advances the file's position in the same call: the position is the number of bytes that the host's pipe took.

The input area has two halves. To drop messages that are done, the rest is copied to the other half, and one store
makes that half the active one. Layout: header, half 0, half 1, output. A call costs no system call more than it does
without a journal, and about a microsecond.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from io import FileIO

from msgspec import Struct

from switchboard_mcp.protocol.framing import MAX_MESSAGE_BYTES, Frame, FrameDecoder
from switchboard_mcp.protocol.session_record import (
    ReceivedRequest,
    SessionRecord,
    find_requests,
    read_session,
)
from switchboard_mcp.transport.base import OnClosed, OnCongestion
from switchboard_mcp.transport.stdio import READ_BYTES, Cork, PipeTransport

# Looked up once: every answer passes here. `splice` is missing on other systems, which have no journals.
splice: Callable[..., int] = getattr(os, "splice", os.sendfile)
sendfile: Callable[..., int] = os.sendfile
# Missing in the standard library's module until Python 3.12.
SPLICE_F_NONBLOCK = 2
HEADER_BYTES = 4096
# The largest message and as much again as is read before it is noticed. Memory is allocated as it is used.
HALF_BYTES = MAX_MESSAGE_BYTES + 64 * 1024 * 1024
OUTPUT = HEADER_BYTES + 2 * HALF_BYTES
# Format 1 of the journal. It changes with the layout, since a newer Switchboard may continue an older one's session.
MAGIC = 0x5357_424A_0001
# Fields of the header, 8 bytes each.
FORMAT, ACTIVE, END, LOST, HEADERS, BASE, KEPT = 0, 1, 2, 3, 4, 5, 7
# Input after which open requests are copied, and output after which the file is rewound: this much, or several times
# what was copied last, so that a session with many open requests does not pay for all of them again and again.
COMPACT_BYTES = 262_144
REWIND_BYTES = 131_072
FACTOR = 8
MAX_INPUT_BYTES = 4 * 1024 * 1024
# More memory than this is given back to the system. To allocate a page again takes as long as to clear a hundred.
RETAINED_BYTES = 1024 * 1024
# Output up to here is stored in the map; more, for a host that does not read, is written to the file.
WINDOW_BYTES = 1024 * 1024
WINDOW_END = OUTPUT + WINDOW_BYTES
REWIND_AT = OUTPUT + REWIND_BYTES
LAST_REWIND_AT = WINDOW_END - REWIND_BYTES
# A host that leaves this much unread is not going to read it, and its session ends.
MAX_BACKLOG_BYTES = 512 * 1024 * 1024
# In place of a zero byte of the host's, which is as invalid in JSON.
CONTROL_CHARACTER = b"\x01"
# Not made anew each time: in memory that was just allocated, every page would have to be entered by the kernel.
ZEROS = memoryview(bytes(READ_BYTES))


class JournalError(Exception):
    """The journal cannot be continued: its format is unknown, or it was too small for a message."""


class ContinuedSession(Struct, frozen=True):
    """A session as its journal has it: its record, the begin of a message that has not come, and output to be sent."""

    record: SessionRecord
    unfinished: bytes
    uses_headers: bool
    unsent: bytes


class OpenRequests(Struct):
    """Requests without an answer in the output, by id, each with the object that serves it.

    `established` is what the other messages of the host have established. While it is equal, none of them matters.
    """

    requests: Mapping[bytes, object]
    established: object


class Journal:
    """The journal of one session. Has no buffer of its own: its state is in the file."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        if os.fstat(descriptor).st_size < WINDOW_END:
            os.ftruncate(descriptor, WINDOW_END)
        self._map = mmap.mmap(descriptor, WINDOW_END)
        self._bytes = memoryview(self._map)
        self._header = self._bytes[:HEADER_BYTES].cast("Q")
        self.is_new = self._header[FORMAT] == 0
        if self.is_new:
            os.lseek(descriptor, OUTPUT, os.SEEK_SET)
            self._header[END] = self._header[BASE] = self._header[BASE + 1] = OUTPUT
            self._header[FORMAT] = MAGIC
        elif self._header[FORMAT] != MAGIC or self._header[LOST]:
            self.close()
            raise JournalError("The journal of the session cannot be continued.")
        self._finish_rewind()
        self._start = self._half(self._header[ACTIVE])
        self.position = self._start if self.is_new else self._map.find(b"\0", self._start)
        self._prepared = self.position  # bytes before it are allocated
        self._allocated = [0, 0]  # the same of both halves: what was allocated once is used again
        self._compact_at = self.position + COMPACT_BYTES
        self._look_at = 0  # a read from here on must look after its memory first
        self._rewind_at = REWIND_AT
        # Open requests that the last compaction has kept, by id: the object that serves them, and the message.
        self._carried: dict[bytes, tuple[object, ReceivedRequest]] = {}
        self._established: object = None
        self.sent = os.lseek(descriptor, 0, os.SEEK_CUR)
        self.end: int = self._header[END]
        if not self.is_new:
            self._clear(1 - self._header[ACTIVE], HALF_BYTES)
        self._source = self._target = -1
        self._read_into: Callable[[memoryview], int | None]
        self._is_pipe = False
        self._compactor: Compactor | None = None

    def close(self) -> None:
        """Release the memory and the file."""
        self._header.release()
        self._bytes.release()
        self._map.close()
        os.close(self.descriptor)

    # Input

    def read(self, source: int, size: int = READ_BYTES) -> bytes:
        """Read up to `size` bytes, at most `READ_BYTES`, from a pipe, and return what came. Every call passes here."""
        if self.position >= self._look_at or source != self._source:
            self._make_room(source)
        start = self.position
        count = self._read_into(self._bytes[start : start + size])
        if count is None:
            raise BlockingIOError(errno.EAGAIN, "The pipe is empty")
        self.position = end = start + count
        data = self._map[start:end]
        if 0 in data:
            data = self._bytes[start:end] = data.replace(b"\0", CONTROL_CHARACTER)
        return data

    def _make_room(self, source: int) -> None:
        """Compact if it is worth it, and allocate the memory of the next reads."""
        if source != self._source:
            # `readinto` takes half the time of `os.readv`, which takes a list of buffers.
            self._source, self._read_into = source, FileIO(source, closefd=False).readinto
        if self._compactor is not None and self.position >= self._compact_at:
            self._compactor.compact_input()
        if self.position + READ_BYTES > self._prepared:
            self._prepare()
        self._look_at = min(self._compact_at, self._prepared - READ_BYTES + 1)

    def _prepare(self) -> None:
        """Allocate memory. A page fault could end a read half way, with the bytes in both places."""
        if self.position + READ_BYTES > self._start + HALF_BYTES:
            self._give_up()
        end = min(self.position + READ_BYTES, self._start + HALF_BYTES)
        if end > self._allocated[self._header[ACTIVE]]:
            end = min(end + READ_BYTES, self._start + HALF_BYTES)
            self._set_zero(self._prepared, end)
            self._allocated[self._header[ACTIVE]] = end
        self._prepared = self._allocated[self._header[ACTIVE]]

    def compact_by(self, compactor: Compactor) -> None:
        """Ask this object from now on to drop what is done with."""
        self._compactor = compactor

    def needs_compaction(self, unfinished: int) -> bool:
        """Return True if enough of the input is done with. A large message that is coming is not copied often."""
        return self.position >= self._compact_at and 2 * unfinished <= self.position - self._start

    def compact(self, unfinished: int, *, uses_headers: bool, open: OpenRequests | None = None) -> bool:
        """Keep only the messages that a process which continues the session needs. Return False if they do not fit.

        Without `open`, the requests that have no answer are found by comparing the input with the output, which takes
        longer.
        """
        requests = None
        if open is not None and not uses_headers and open.established == self._established:
            requests = self._find_open(self.position - unfinished, open.requests)
        if requests is None:
            record = self._record(unfinished)
            kept = b"".join([line + b"\n" for line in record.kept])
            requests = [request.shortened() for request in record.open]
        else:
            kept = bytes(self._bytes[self._start : self._start + self._header[KEPT + self._header[ACTIVE]]])
        carried = b"".join([request.line + b"\n" for request in requests])
        rest = carried + self._bytes[self.position - unfinished : self.position]
        if len(kept) + len(rest) + 2 * READ_BYTES > HALF_BYTES:
            self._compact_at = self.position + COMPACT_BYTES
            return False
        active = self._header[ACTIVE]
        other = 1 - active
        start = self._half(other)
        end = start + len(kept) + len(rest)
        self._bytes[start:end] = kept + rest
        self._header[KEPT + other] = len(kept)
        self._header[BASE + other] = self._header[END]
        self._header[HEADERS] = uses_headers
        self._header[ACTIVE] = other
        self._clear(active, self.position - self._start)
        self._start, self.position, self._prepared = start, end, end
        several = FACTOR * len(carried)
        self._compact_at = end + max(COMPACT_BYTES, len(rest), min(several, MAX_INPUT_BYTES))
        self._rewind_at = max(REWIND_AT, min(OUTPUT + several, LAST_REWIND_AT))
        self._look_at = 0
        if open is not None:
            self._established = open.established
            self._carried = {one.id: (open.requests.get(one.id), one) for one in requests}
        return True

    def _find_open(self, end: int, requests: Mapping[bytes, object]) -> list[ReceivedRequest] | None:
        """Return the messages of requests without reading all input; None if one is not found."""
        known, unknown = [], set()
        for id, request in requests.items():
            carried = self._carried.get(id)
            if carried is not None and carried[0] is request:
                known.append(carried[1])
            else:
                unknown.add(id)
        if unknown:
            start = self._start + self._header[KEPT + self._header[ACTIVE]]
            found = find_requests(self._map, start, end, unknown)
            return None if found is None else known + [request.shortened() for request in found]
        return known

    def continued(self) -> ContinuedSession:
        """Return the session that an earlier process has served."""
        received, decoder = self._received(), FrameDecoder()
        decoder.feed(received)
        size = decoder.unfinished
        if size is None:
            size = len(received) - _last_header(received)
        headers = bool(self._header[HEADERS]) or decoder.uses_headers
        unsent = os.pread(self.descriptor, self.unsent, self.sent)
        return ContinuedSession(self._record(size), received[len(received) - size :], headers, unsent)

    def _record(self, unfinished: int) -> SessionRecord:
        kept = self._header[KEPT + self._header[ACTIVE]]
        received = self._received()
        lines = received[: len(received) - unfinished]
        base, end = self._header[BASE + self._header[ACTIVE]], self._header[END]
        return read_session(
            _frames(bytes(self._bytes[self._start : self._start + kept])),
            _frames(lines),
            _frames(os.pread(self.descriptor, end - base, base)),
        )

    def _received(self) -> bytes:
        kept = self._header[KEPT + self._header[ACTIVE]]
        return bytes(self._bytes[self._start + kept : self.position])

    def _half(self, number: int) -> int:
        return HEADER_BYTES + number * HALF_BYTES

    def _clear(self, half: int, used: int) -> None:
        """Set a half to zero. Large ones are given back to the system."""
        if sys.platform != "linux":
            raise OSError("This needs Linux.")
        start = self._half(half)
        if used <= RETAINED_BYTES:
            self._set_zero(start, start + used)
        else:
            self._map.madvise(mmap.MADV_REMOVE, start, HALF_BYTES)
            self._allocated[half] = start

    def _set_zero(self, start: int, end: int) -> None:
        for place in range(start, end, READ_BYTES):
            size = min(READ_BYTES, end - place)
            self._bytes[place : place + size] = ZEROS[:size]

    def _give_up(self) -> None:
        """Continue without a journal of the input, after a message that is larger than any that is accepted."""
        self._header[LOST] = 1
        self._clear(self._header[ACTIVE], HALF_BYTES)
        self.position = self._prepared = self._start
        self._compact_at = self._start + HALF_BYTES

    # Output

    @property
    def unsent(self) -> int:
        """Bytes that were appended and that the host's pipe has not taken."""
        return self.end - self.sent

    def append(self, data: bytes) -> None:
        """Add output. It counts from the store of `END` on."""
        start = self.end
        end = start + len(data)
        if end <= WINDOW_END:
            self._bytes[start:end] = data
        elif os.pwrite(self.descriptor, data, start) < len(data):
            raise OSError(errno.ENOSPC, "The journal cannot grow")
        self.end = self._header[END] = end

    def write(self, target: int, data: bytes | memoryview) -> int:
        """Append output unless it is the rest of an earlier write, and send what the host takes.

        Every answer passes here. Returns how many bytes the host has taken. Raises OSError if it has closed its end.
        """
        if type(data) is bytes:
            end = self.end + len(data)
            if end <= WINDOW_END:
                self._bytes[self.end : end] = data
                self.end = self._header[END] = end
            else:
                self.append(data)
        if target != self._target:
            self._target, self._is_pipe = target, stat.S_ISFIFO(os.fstat(target).st_mode)
        before = sent = self.sent
        end = self.end
        try:
            while sent < end:
                if self._is_pipe:
                    sent += splice(self.descriptor, target, end - sent, None, None, SPLICE_F_NONBLOCK)
                else:
                    sent += sendfile(target, self.descriptor, None, end - sent)
        except (BlockingIOError, InterruptedError):
            pass
        finally:
            self.sent = sent
        if sent >= self._rewind_at and sent == end and self._compactor is not None:
            self._compactor.rewind_output()
        return sent - before

    def rewind(self) -> None:
        """Start the output over. The input was compacted before, so no answer in the file is needed any more."""
        self._header[END] = OUTPUT
        self._truncate()

    def _truncate(self) -> None:
        if sys.platform != "linux":
            raise OSError("This needs Linux.")
        os.lseek(self.descriptor, OUTPUT, os.SEEK_SET)
        # Pages in the pipe must not be written again: removing them from the file gives them to the pipe for good.
        self._map.madvise(mmap.MADV_REMOVE, OUTPUT, WINDOW_BYTES)
        os.ftruncate(self.descriptor, WINDOW_END)
        self._header[BASE + self._header[ACTIVE]] = OUTPUT
        self.sent = self.end = OUTPUT

    def _finish_rewind(self) -> None:
        """Finish a rewind during which the earlier process ended."""
        base, end = self._header[BASE + self._header[ACTIVE]], self._header[END]
        if base > end or os.lseek(self.descriptor, 0, os.SEEK_CUR) > end:
            self._header[END] = OUTPUT
            self._truncate()


def _frames(data: bytes) -> list[Frame]:
    return FrameDecoder().feed(data)


def _last_header(data: bytes) -> int:
    """Return the place where the last message with headers begins, which is not complete."""
    place = len(data)
    while place > 0:
        place = data.lower().rfind(b"content-length:", 0, place)
        decoder = FrameDecoder()
        decoder.feed(data[:place] if place > 0 else b"")
        if decoder.unfinished == 0:
            return place
    return 0


class Compactor:
    """Drops from the journal of a transport what is done with."""

    def __init__(
        self,
        journal: Journal,
        link: PipeTransport,
        open_requests: Callable[[], OpenRequests | None] | None,
    ) -> None:
        self._journal = journal
        self._link = link
        self._open_requests = open_requests

    def compact_input(self) -> None:
        """Drop messages if that is possible now and worth it."""
        unfinished = self._link.unfinished
        if unfinished is not None and self._journal.needs_compaction(unfinished):
            self._compact(unfinished)

    def rewind_output(self) -> None:
        """Start the output over, all of which was sent, if that is possible now."""
        unfinished = self._link.unfinished
        if unfinished is not None and self._compact(unfinished):
            self._journal.rewind()

    def _compact(self, unfinished: int) -> bool:
        link = self._link
        # A response that is only queued is not in the journal, so its request must stay there.
        known = self._open_requests() if self._open_requests is not None and link.is_settled else None
        return self._journal.compact(unfinished, uses_headers=link.uses_headers, open=known)


def open_journaled(
    loop: AbstractEventLoop,
    descriptors: tuple[int, int],
    cork: Cork,
    journal: Journal,
    *,
    on_congestion: OnCongestion,
    on_broken: OnClosed,
    on_error: Callable[[Exception], None],
    open_requests: Callable[[], OpenRequests | None] | None = None,
) -> PipeTransport:
    """Open a transport to a host, over pipes or sockets, whose messages are in a journal."""
    link = PipeTransport(
        loop,
        *descriptors,
        cork,
        mirror=True,
        pipes=journal,
        max_backlog=MAX_BACKLOG_BYTES,
        on_congestion=on_congestion,
        on_broken=on_broken,
        on_error=on_error,
    )
    journal.compact_by(Compactor(journal, link, open_requests))
    return link
