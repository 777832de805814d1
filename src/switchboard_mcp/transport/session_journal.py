"""A journal of one session in shared memory, so that another process can continue the session after a crash.

The journal is an anonymous file (memfd) that the host's own process holds open. Nothing is counted after the fact,
because a process that is killed never learns the result of its last system call. Instead, the kernel keeps the counts:

- Input is read from the pipe right into the mapped file. All bytes behind it are zero, and a message has no zero byte:
  the first one marks the end of what was read.
- Output is appended to the file and goes from there to the pipe by `splice` (or `sendfile` to a socket). The kernel
  advances the file's position in the same call: the position is the number of bytes that the host's pipe took.

The input area has two halves. To drop messages that are done, the rest is copied to the other half, and one store
makes that half the active one. Layout: header, half 0, half 1, output.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable

from msgspec import Struct

from switchboard_mcp.protocol.framing import MAX_MESSAGE_BYTES, Frame, FrameDecoder
from switchboard_mcp.protocol.session_record import SessionRecord, read_session
from switchboard_mcp.transport.base import OnClosed, OnCongestion
from switchboard_mcp.transport.stdio import READ_BYTES, Cork, PipeTransport

HEADER_BYTES = 4096
# The largest message and as much again as is read before it is noticed. Memory is allocated as it is used.
HALF_BYTES = MAX_MESSAGE_BYTES + 64 * 1024 * 1024
OUTPUT = HEADER_BYTES + 2 * HALF_BYTES
# Format 1 of the journal. It changes with the layout, since a newer Switchboard may continue an older one's session.
MAGIC = 0x5357_424A_0001
# Fields of the header, 8 bytes each.
FORMAT, ACTIVE, END, LOST, HEADERS, BASE, KEPT = 0, 1, 2, 3, 4, 5, 7
# Input beyond what is kept after which the rest is copied, and output after which the file is rewound.
COMPACT_BYTES = 65_536
REWIND_BYTES = 131_072
# A host that leaves this much unread is not going to read it, and its session ends.
MAX_BACKLOG_BYTES = 512 * 1024 * 1024
# In place of a zero byte of the host's, which is as invalid in JSON.
CONTROL_CHARACTER = b"\x01"


class JournalError(Exception):
    """The journal cannot be continued: its format is unknown, or it was too small for a message."""


class ContinuedSession(Struct, frozen=True):
    """A session as its journal has it: its record, and the begin of a message that has not come completely."""

    record: SessionRecord
    unfinished: bytes
    uses_headers: bool


class Journal:
    """The journal of one session. Has no buffer of its own: its state is in the file."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        if os.fstat(descriptor).st_size < OUTPUT:
            os.ftruncate(descriptor, OUTPUT)
        self._map = mmap.mmap(descriptor, OUTPUT)
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
        self._position = self._start if self.is_new else self._map.find(b"\0", self._start)
        self._prepared = self._position  # bytes before it are allocated
        self._compact_at = self._position + COMPACT_BYTES
        self._sent = os.lseek(descriptor, 0, os.SEEK_CUR)
        self._end: int = self._header[END]
        if not self.is_new:
            self._clear(1 - self._header[ACTIVE], HALF_BYTES)

    def close(self) -> None:
        """Release the memory and the file."""
        self._header.release()
        self._bytes.release()
        self._map.close()
        os.close(self.descriptor)

    # Input

    def read(self, source: int) -> bytes:
        """Read from a pipe, and return what came."""
        start = self._position
        if start + READ_BYTES > self._start + HALF_BYTES:
            start = self._give_up()
        if start + READ_BYTES > self._prepared:
            # A page fault during the read could end it half way, with the bytes in both places.
            end = min(start + 2 * READ_BYTES, self._start + HALF_BYTES)
            self._bytes[self._prepared : end] = bytes(end - self._prepared)
            self._prepared = end
        self._position = end = start + os.readv(source, [self._bytes[start : start + READ_BYTES]])
        data = self._map[start:end]
        if data.find(b"\0") >= 0:
            data = self._bytes[start:end] = data.replace(b"\0", CONTROL_CHARACTER)
        return data

    @property
    def is_full(self) -> bool:
        """True if so much was read that some of it may be dropped."""
        return self._position >= self._compact_at

    def needs_compaction(self, unfinished: int) -> bool:
        """Return True if enough of the input is done with. A large message that is coming is not copied often."""
        return self.is_full and 2 * unfinished <= self._position - self._start

    def compact(self, unfinished: int, *, uses_headers: bool) -> bool:
        """Keep only the messages that a process which continues the session needs. Return False if they do not fit."""
        record = self._record(unfinished)
        kept = b"".join([line + b"\n" for line in record.kept])
        requests = [request.shortened().line + b"\n" for request in record.open]
        rest = b"".join([*requests, bytes(self._bytes[self._position - unfinished : self._position])])
        if len(kept) + len(rest) + 2 * READ_BYTES > HALF_BYTES:
            self._compact_at = self._position + COMPACT_BYTES
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
        self._clear(active, self._prepared - self._start)
        self._start, self._position, self._prepared = start, end, end
        self._compact_at = end + COMPACT_BYTES
        return True

    def continued(self) -> ContinuedSession:
        """Return the session that an earlier process has served."""
        received, decoder = self._received(), FrameDecoder()
        decoder.feed(received)
        size = decoder.unfinished
        if size is None:
            size = len(received) - _last_header(received)
        headers = bool(self._header[HEADERS]) or decoder.uses_headers
        return ContinuedSession(self._record(size), received[len(received) - size :], headers)

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
        return bytes(self._bytes[self._start + kept : self._position])

    def _half(self, number: int) -> int:
        return HEADER_BYTES + number * HALF_BYTES

    def _clear(self, half: int, used: int) -> None:
        """Set a half to zero. Large ones are given back to the system."""
        if sys.platform != "linux":
            raise OSError("This needs Linux.")
        start = self._half(half)
        if used <= 4 * READ_BYTES:
            self._bytes[start : start + used] = bytes(used)
        else:
            self._map.madvise(mmap.MADV_REMOVE, start, HALF_BYTES)

    def _give_up(self) -> int:
        """Continue without a journal of the input, after a message that is larger than any that is accepted."""
        self._header[LOST] = 1
        self._clear(self._header[ACTIVE], HALF_BYTES)
        self._position = self._prepared = self._start
        self._compact_at = self._start + HALF_BYTES
        return self._position

    # Output

    @property
    def unsent(self) -> int:
        """Bytes that were appended and that the host's pipe has not taken."""
        return self._end - self._sent

    def append(self, data: bytes) -> None:
        """Add output. It counts from the store of `END` on."""
        end = self._end + os.pwrite(self.descriptor, data, self._end)
        if end < self._end + len(data):
            raise OSError(errno.ENOSPC, "The journal cannot grow")
        self._end = self._header[END] = end

    def send(self, target: int, *, is_pipe: bool) -> None:
        """Move output to the host, as much as it takes. Raises OSError if it has closed its end."""
        if sys.platform != "linux":
            raise OSError("This needs Linux.")
        end = self._end
        while self._sent < end:
            try:
                if is_pipe:
                    self._sent += os.splice(
                        self.descriptor, target, end - self._sent, flags=SPLICE_F_NONBLOCK
                    )
                else:
                    self._sent += os.sendfile(target, self.descriptor, None, end - self._sent)
            except (BlockingIOError, InterruptedError):
                return

    def needs_rewind(self) -> bool:
        """Return True if all output was sent and there was much."""
        return self._sent >= OUTPUT + REWIND_BYTES and self._sent == self._end

    def rewind(self) -> None:
        """Start the output over. The input was compacted before, so no answer in the file is needed any more."""
        self._header[END] = OUTPUT
        self._truncate()

    def _truncate(self) -> None:
        # Pages in the pipe must not be written again: truncating gives them to the pipe for good.
        os.lseek(self.descriptor, OUTPUT, os.SEEK_SET)
        os.ftruncate(self.descriptor, OUTPUT)
        self._header[BASE + self._header[ACTIVE]] = OUTPUT
        self._sent = self._end = OUTPUT

    def _finish_rewind(self) -> None:
        """Finish a rewind during which the earlier process ended."""
        base, end = self._header[BASE + self._header[ACTIVE]], self._header[END]
        if base > end or os.lseek(self.descriptor, 0, os.SEEK_CUR) > end:
            self._header[END] = OUTPUT
            self._truncate()


# Missing in the standard library's module until Python 3.12.
SPLICE_F_NONBLOCK = 2


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


class JournalTransport(PipeTransport):
    """A transport to a host over pipes or sockets whose messages are in a journal."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        read_fd: int,
        write_fd: int,
        cork: Cork,
        journal: Journal,
        *,
        on_congestion: OnCongestion,
        on_broken: OnClosed,
        on_error: Callable[[Exception], None],
    ) -> None:
        super().__init__(
            loop,
            read_fd,
            write_fd,
            cork,
            mirror=True,
            on_congestion=on_congestion,
            on_broken=on_broken,
            on_error=on_error,
        )
        self._journal = journal
        self._is_pipe = stat.S_ISFIFO(os.fstat(write_fd).st_mode)

    def restore(self, session: ContinuedSession) -> None:
        """Continue in the middle of a message that an earlier process has begun to read."""
        self._decoder.feed(session.unfinished)
        if session.uses_headers:
            self._decoder.expect_headers()
        self.flush()

    def _read(self, source: int, size: int) -> bytes:
        journal = self._journal
        if journal.is_full:
            unfinished = self._decoder.unfinished
            if unfinished is not None and journal.needs_compaction(unfinished):
                journal.compact(unfinished, uses_headers=self._decoder.uses_headers)
        return journal.read(source)

    def flush(self) -> None:
        """Append all queued messages to the journal, and send what the host takes."""
        self._dirty = False
        journal = self._journal
        try:
            if self._out:
                journal.append(b"".join(self._out))
                self._out.clear()
            if self._write_fd >= 0:
                journal.send(self._write_fd, is_pipe=self._is_pipe)
            if journal.unsent > MAX_BACKLOG_BYTES:
                raise OSError(errno.ENOBUFS, "The host does not read")
        except OSError:  # EPIPE: the other side has closed
            self._fail_writing()
            return
        self.write_buffer_size = journal.unsent
        if self.write_buffer_size or self._writing or self._closing_write:
            self._after_write()
        elif journal.needs_rewind():
            unfinished, uses_headers = self._decoder.unfinished, self._decoder.uses_headers
            if unfinished is not None and journal.compact(unfinished, uses_headers=uses_headers):
                journal.rewind()

    def close(self) -> None:
        """Close both descriptors and the journal. `on_closed` is not called."""
        super().close()
        self._journal.close()
