"""A link over two file descriptors: our own stdin and stdout, or a child's.

Reads of 64 KiB straight from the event loop's readiness callback; writes at once where the pipe has room, else when it
has. While one chunk of input is being handled, output to all links is gathered and written together (`Cork`): with many
calls in flight that is what decides calls per second.
"""

from __future__ import annotations

import os
import select
import stat
from asyncio import AbstractEventLoop
from collections.abc import Callable

from switchboard_mcp.protocol.framing import MAX_MESSAGE_BYTES, Frame, FrameDecoder
from switchboard_mcp.transport.base import OnClosed, OnCongestion, OnInvalid, OnMessage

READ_BYTES = 65_536  # one default pipe; larger reads were measured to be slower
# Above HIGH the other side does not keep up and is told so; at LOW it is told that it does again.
HIGH_WATER = 4 * 1024 * 1024
LOW_WATER = 1024 * 1024


class Cork:
    """Gathers writes during one read callback, for every link that shares it."""

    __slots__ = ("dirty", "on")

    def __init__(self) -> None:
        self.on = False
        self.dirty: list[PipeTransport] = []

    def release(self) -> None:
        """Write what was gathered."""
        self.on = False
        dirty = self.dirty
        while dirty:
            dirty.pop().flush()


class PipeTransport:
    """See `link.Link`. `mirror` answers in the framing the other side used last; otherwise newlines are sent.

    `congested` tells when the other side begins and ends to lag behind; `broken`, that it will read no more.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        read_fd: int,
        write_fd: int,
        cork: Cork,
        *,
        mirror: bool = False,
        limit: int = MAX_MESSAGE_BYTES,
        congested: OnCongestion | None = None,
        broken: OnClosed | None = None,
        on_error: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._cork = cork
        self._mirror = mirror
        self._congested = congested
        self._broken = broken
        self._on_error = on_error
        self._splitter = FrameDecoder(limit)
        self._pieces: list[Frame] = []  # being delivered
        self._out: list[bytes] = []  # queued, with their framing
        self._unsent: memoryview | None = None  # what the pipe did not take of the last write
        self._dirty = False
        self._writing = False
        self._slow = False
        self.ended = False
        self.paused = False
        self._ending = False
        self._pollable = _pollable(read_fd)
        self.write_buffer_size = 0
        self._receive: OnMessage
        self._closed: OnClosed
        self._odd: OnInvalid
        if stat.S_ISFIFO(os.fstat(write_fd).st_mode) or stat.S_ISSOCK(os.fstat(write_fd).st_mode):
            os.set_blocking(write_fd, False)

    def start(self, receive: OnMessage, closed: OnClosed, odd: OnInvalid) -> None:
        """Begin to deliver."""
        self._receive, self._closed, self._odd = receive, closed, odd
        self._listen()

    def _listen(self) -> None:
        if self._read_fd < 0 or self.paused:
            return
        if self._pollable:
            self._loop.add_reader(self._read_fd, self._readable)
        else:
            self._loop.call_soon(self._read_file)

    def _readable(self) -> None:
        try:
            data = os.read(self._read_fd, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # EIO: the terminal has gone
            data = b""
        self.ended = not data
        self._pieces = pieces = self._splitter.feed(data) if data else self._splitter.close()
        cork = self._cork
        cork.on = True
        try:
            for piece in pieces:
                try:
                    if isinstance(piece, bytes):
                        self._receive(piece)
                    else:
                        self._odd(piece)
                except Exception as problem:  # noqa: BLE001 - one message must not take its chunk with it
                    self._on_error(problem)
        finally:
            cork.release()
        if not data and self._read_fd >= 0 and not self.paused:
            self._end_reading()

    def _read_file(self) -> None:
        """A regular file is always ready, so that reading it must make room for others by itself."""
        if self._read_fd >= 0 and not self.paused:
            self._readable()
            self._listen()

    def send(self, message: bytes) -> None:
        """Queue one message and write it as soon as may be."""
        if self._write_fd < 0:
            return
        if self._mirror and self._splitter.uses_headers:
            self._out += (b"Content-Length: %d\r\n\r\n" % len(message), message)
        else:
            self._out += (message, b"\n")
        self.write_buffer_size += len(message)
        if not self._dirty:
            cork = self._cork
            if cork.on:
                self._dirty = True
                cork.dirty.append(self)
            elif not self._writing:
                self.flush()
            else:
                self._mind_the_rest()

    answer = send  # on a pipe every message takes the same road

    def flush(self) -> None:
        """Write what the pipe takes now, all queued messages together."""
        self._dirty = False
        data: bytes | memoryview
        if self._unsent is None:
            data = b"".join(self._out)
            self._out.clear()
            self.write_buffer_size = len(data)
        else:
            data = self._unsent
        try:
            written = os.write(self._write_fd, data)
        except (BlockingIOError, InterruptedError):
            written = 0
        except OSError:  # EPIPE: nobody reads any more
            if self._broken is not None and self._write_fd >= 0:
                self._loop.call_soon(self._broken)
            self._drop_output()
            return
        self.write_buffer_size -= written
        if self.write_buffer_size or self._writing or self._ending:
            self._unsent = memoryview(data)[written:] if written < len(data) else None
            self._mind_the_rest()

    def _mind_the_rest(self) -> None:
        """Write on when the pipe has room, tell of congestion, close where that was asked for."""
        if self.write_buffer_size and not self._writing:
            self._writing = True
            self._loop.add_writer(self._write_fd, self.flush)
        elif self._writing and not self.write_buffer_size:
            self._writing = False
            self._loop.remove_writer(self._write_fd)
        if self._ending and not self.write_buffer_size:
            self._close_write()
        if self._congested is not None:
            self._report_congestion(self._congested)

    def _report_congestion(self, congested: OnCongestion) -> None:
        slow = self.write_buffer_size > (LOW_WATER if self._slow else HIGH_WATER)
        if slow != self._slow:
            self._slow = slow
            congested(slow)

    def _drop_output(self) -> None:
        self._out.clear()
        self._unsent = None
        self.write_buffer_size = 0
        self._close_write()
        if self._congested is not None:
            self._report_congestion(self._congested)  # nobody has to wait for this link any more

    def pause(self) -> None:
        """Stop delivering."""
        if not self.paused:
            self.paused = True
            if self._pollable and self._read_fd >= 0:
                self._loop.remove_reader(self._read_fd)

    def resume(self) -> None:
        """Deliver again."""
        if self.paused:
            self.paused = False
            self._listen()

    @property
    def other_side_gone(self) -> bool:
        """Whether nobody can read what we write."""
        if self._write_fd < 0:
            return True
        return _hung_up(self._write_fd)

    @property
    def source_ended(self) -> bool:
        """Whether nobody writes any more what we read. There may still be something to read."""
        return self._read_fd < 0 or _hung_up(self._read_fd)

    def close_sending(self) -> None:
        """Close the write side when the queue is empty."""
        self._ending = True
        if not self.write_buffer_size:
            self._close_write()

    def close(self) -> None:
        """Close both descriptors. `closed` is not called."""
        self._pieces.clear()
        self._stop_reading()
        self._drop_output()

    def _end_reading(self) -> None:
        self._stop_reading()
        self._closed()

    def _stop_reading(self) -> None:
        if self._read_fd >= 0:
            if self._pollable:
                self._loop.remove_reader(self._read_fd)
            os.close(self._read_fd)
            self._read_fd = -1

    def _close_write(self) -> None:
        if self._write_fd >= 0:
            if self._writing:
                self._writing = False
                self._loop.remove_writer(self._write_fd)
            os.close(self._write_fd)
            self._write_fd = -1


def _hung_up(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _pollable(fd: int) -> bool:
    """Regular files and /dev/null are always ready, and epoll refuses them."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)
