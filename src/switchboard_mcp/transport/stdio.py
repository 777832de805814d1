"""Transport over two file descriptors: our own stdin and stdout, or a child's.

Input is read in chunks of 64 KiB from the event loop's readiness callback. Output is written immediately if the pipe
has room, else as soon as it has. While a chunk of input is handled, output to all transports is collected and written
together (`Cork`): with many calls in flight this decides the throughput. If several hosts are served, transports with
little input have their turn between the messages of one with much (`Turns`).
"""

from __future__ import annotations

import os
import select
import stat
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Protocol

from switchboard_mcp.protocol.framing import MAX_MESSAGE_BYTES, Frame, FrameDecoder
from switchboard_mcp.transport.base import OnClosed, OnCongestion, OnInvalid, OnMessage

READ_BYTES = 65_536  # the default pipe size; larger reads measured slower
# Congestion is reported above HIGH_WATER, and its end below LOW_WATER.
HIGH_WATER = 4 * 1024 * 1024
LOW_WATER = 1024 * 1024
# Messages of one transport that are handled before others have a turn, and the most that these read in it. Handling a
# message takes 5 to 10 µs, and seeing that no other has input less than one.
TURN_MESSAGES = 4
TURN_BYTES = 2048
# Transports that have a turn before the one with much input goes on.
TURNS_AT_ONCE = 16


class Turns:
    """Gives transports with little input their turn while one that has much is being read.

    A transport whose last read brought more than `TURN_MESSAGES` has much: it waits for the event loop. So a host with
    a thousand requests in flight, and its children, delay the others by a few messages only.
    """

    def __init__(self) -> None:
        if sys.platform == "linux":
            self._input = select.epoll()
        self._transports: dict[int, PipeTransport] = {}
        self._hosts: set[PipeTransport] = set()  # that are connected
        self._is_serving = False
        # With one host there is nobody to wait for, and a descriptor in a second epoll set costs every message.
        self.needed = False

    def add_host(self, host: PipeTransport) -> None:
        """Add the transport to a host. From the second one on, turns are needed."""
        self._hosts.add(host)
        self._count_hosts()

    def remove_host(self, host: PipeTransport) -> None:
        """Remove a host that has disconnected."""
        self._hosts.discard(host)
        self._count_hosts()

    def _count_hosts(self) -> None:
        needed = len(self._hosts) > 1
        if needed != self.needed:
            self.needed = needed
            for fd in list(self._transports):
                if needed:
                    self._watch(fd)
                else:
                    self._unwatch(fd)

    def add(self, fd: int, transport: PipeTransport) -> None:
        """Add a transport that has little input, or none."""
        if fd not in self._transports:
            self._transports[fd] = transport
            if self.needed:
                self._watch(fd)

    def discard(self, fd: int) -> None:
        """Remove a transport, before its descriptor is closed."""
        if self._transports.pop(fd, None) is not None and self.needed:
            self._unwatch(fd)

    def _watch(self, fd: int) -> None:
        if sys.platform == "linux":
            # Beyond the system's limit, it is read by the event loop alone.
            with suppress(OSError):
                self._input.register(fd, select.EPOLLIN)

    def _unwatch(self, fd: int) -> None:
        if sys.platform == "linux":
            with suppress(OSError):
                self._input.unregister(fd)

    def serve(self) -> bool:
        """Read the transports that have input. Return False if none has."""
        if sys.platform != "linux" or self._is_serving or not (ready := self._input.poll(0, 1)):
            return False
        self._is_serving = True
        try:
            for _ in range(TURNS_AT_ONCE):
                self._transports[ready[0][0]].take_turn()
                # One at a time: to serve it may have closed another one, whose descriptor may be in use again.
                if not (ready := self._input.poll(0, 1)):
                    break
        finally:
            self._is_serving = False
        return True


class Cork:
    """Collects writes during one read callback, for all transports that share it (like `TCP_CORK`)."""

    __slots__ = ("dirty", "on", "turns")

    def __init__(self, turns: Turns | None = None) -> None:
        self.on = False
        self.dirty: list[PipeTransport] = []
        self.turns = turns  # if several hosts are served

    def release(self) -> None:
        """Write what was collected."""
        self.on = False
        dirty = self.dirty
        while dirty:
            dirty.pop().flush()


class Pipes(Protocol):
    """Reads and writes in place of `os.read` and `os.write`. The rest of an earlier write comes as a memoryview."""

    def read(self, source: int, size: int) -> bytes:
        """Read up to `size` bytes."""
        ...

    def write(self, target: int, data: bytes | memoryview) -> int:
        """Write, and return how many bytes were accepted."""
        ...


class PipeTransport:
    """A transport over pipes, see `MessageTransport`.

    With `mirror`, messages are sent with the framing the other side used last; otherwise one per line.
    `on_congestion` is called when the other side starts and stops lagging behind, `on_broken` when it has closed or
    has left more than `max_backlog` bytes unread. Not to be subclassed: a second class that runs the same methods
    would cost every call some microseconds, since the interpreter caches attributes by class.
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
        pipes: Pipes | None = None,
        max_backlog: int = sys.maxsize,
        on_congestion: OnCongestion | None = None,
        on_broken: OnClosed | None = None,
        on_error: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._cork = cork
        self._read = os.read if pipes is None else pipes.read
        self._write = os.write if pipes is None else pipes.write
        self._max_backlog = max_backlog
        self._mirror = mirror
        self._on_congestion = on_congestion
        self._on_broken = on_broken
        self._on_error = on_error
        self._decoder = FrameDecoder(limit)
        self._frames: list[Frame] = []  # being delivered
        self._out: list[bytes] = []  # queued, with their framing
        self._unsent: memoryview | None = None  # the part of the last write that the pipe did not accept
        self._dirty = False
        self._writing = False
        self._congestion_reported = False
        self._had_turn = False  # since the event loop called last
        self._has_much_input = False
        self._is_delivering = False  # in turns: others are served in between
        self.ended = False
        self.has_given_up = False  # the other side has left more unread than `max_backlog`
        self.paused = False
        self._closing_write = False
        self._pollable = _pollable(read_fd)
        # uvloop reports an error only once, even if more can be read: a socket that was closed with data unread.
        self._hang_ups = _hang_ups(read_fd) if stat.S_ISSOCK(os.fstat(read_fd).st_mode) else None
        self.write_buffer_size = 0
        self._on_message: OnMessage
        self._on_closed: OnClosed
        self._on_invalid: OnInvalid
        if stat.S_ISFIFO(os.fstat(write_fd).st_mode) or stat.S_ISSOCK(os.fstat(write_fd).st_mode):
            os.set_blocking(write_fd, False)

    def start(self, on_message: OnMessage, on_closed: OnClosed, on_invalid: OnInvalid) -> None:
        """Start delivering."""
        self._on_message, self._on_closed, self._on_invalid = on_message, on_closed, on_invalid
        if self._mirror and self._cork.turns is not None:  # it is a host
            self._cork.turns.add_host(self)
        self._listen()

    def _listen(self) -> None:
        if self._read_fd < 0 or self.paused:
            return
        if self._pollable:
            self._loop.add_reader(self._read_fd, self._readable)
            self._enter_turns()
        else:
            self._loop.call_soon(self._read_file)

    def _enter_turns(self) -> None:
        """Take part in turns, unless messages of ours are being delivered: they come first."""
        turns = self._cork.turns
        if turns is not None and self._read_fd >= 0 and not self.paused and not self._is_delivering:
            self._has_much_input = False
            turns.add(self._read_fd, self)

    def _leave_turns(self) -> None:
        if self._cork.turns is not None:
            self._cork.turns.discard(self._read_fd)

    def _readable(self) -> None:
        if self._had_turn:
            self._had_turn = False
            if not _has_input(self._read_fd):  # the event loop has noticed what was read in that turn
                return
        self._receive(READ_BYTES)

    def take_turn(self) -> None:
        """Read and handle some input while another transport is being served."""
        self._had_turn = True
        self._receive(TURN_BYTES)

    def _receive(self, size: int) -> None:
        read = self._read
        try:
            data = read(self._read_fd, size)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # EIO: the terminal has gone
            data = b""
        self.ended = not data
        self._frames = frames = self._decoder.feed(data) if data else self._decoder.close()
        cork = self._cork
        cork.on = True
        try:
            if len(frames) > TURN_MESSAGES and cork.turns is not None and cork.turns.needed:
                self._deliver_in_turns(frames, cork.turns)
            else:
                self._deliver(frames)
        finally:
            cork.release()
        if self._has_much_input and len(frames) <= TURN_MESSAGES:
            self._enter_turns()
        if not data and self._read_fd >= 0 and not self.paused:
            self._end_reading()
        elif data and self._hang_ups is not None and self._hang_ups.poll(0):
            self._loop.call_soon(self._read_rest)

    def _deliver(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            try:
                if isinstance(frame, bytes):
                    self._on_message(frame)
                else:
                    self._on_invalid(frame)
            except Exception as problem:  # noqa: BLE001 - one message must not take its chunk with it
                self._on_error(problem)

    def _deliver_in_turns(self, frames: list[Frame], turns: Turns) -> None:
        """Deliver many messages, and let others have their turn in between."""
        if not self._has_much_input:
            self._has_much_input = True
            turns.discard(self._read_fd)
        self._is_delivering = True
        rest, cork = iter(frames), self._cork
        try:
            for _ in range(0, len(frames), TURN_MESSAGES):
                self._deliver(islice(rest, TURN_MESSAGES))
                if turns.serve():
                    cork.on = True
        finally:
            self._is_delivering = False

    def _read_rest(self) -> None:
        """Read on from a socket that has ended."""
        if self._read_fd >= 0 and not self.paused:
            self._readable()

    def _read_file(self) -> None:
        """Read a regular file, which is always readable, without starving other callbacks."""
        if self._read_fd >= 0 and not self.paused:
            self._readable()
            self._listen()

    def send(self, message: bytes) -> None:
        """Queue one message and write it as soon as possible."""
        if self._write_fd < 0:
            return
        if self._mirror and self._decoder.uses_headers:
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
                self._after_write()

    answer = send  # responses and requests are sent alike on a pipe

    @property
    def backlog(self) -> int:
        """Bytes that are left over because the pipe is full."""
        return self.write_buffer_size if self._writing else 0

    def flush(self) -> None:
        """Write all queued messages together, as far as the pipe has room."""
        self._dirty = False
        data: bytes | memoryview
        if self._unsent is None:
            data = b"".join(self._out)
            self._out.clear()
            self.write_buffer_size = len(data)
        else:
            data = self._unsent
        write = self._write
        try:
            written = write(self._write_fd, data)
        except (BlockingIOError, InterruptedError):
            written = 0
        except OSError:  # EPIPE: the other side has closed
            self._fail_writing()
            return
        self.write_buffer_size -= written
        if self.write_buffer_size or self._writing or self._closing_write:
            self._unsent = memoryview(data)[written:] if written < len(data) else None
            self._after_write()

    def _fail_writing(self) -> None:
        """Report that the other side has closed, and drop the output."""
        if self._on_broken is not None and self._write_fd >= 0:
            self._loop.call_soon(self._on_broken)
        self._drop_output()

    def _after_write(self) -> None:
        """Wait for writability if output is left, report congestion, and close if requested."""
        if self.write_buffer_size > self._max_backlog:
            self.has_given_up = True
            self._fail_writing()
            return
        if self.write_buffer_size and not self._writing:
            self._writing = True
            self._loop.add_writer(self._write_fd, self.flush)
        elif self._writing and not self.write_buffer_size:
            self._writing = False
            self._loop.remove_writer(self._write_fd)
        if self._closing_write and not self.write_buffer_size:
            self._close_write()
        if self._on_congestion is not None:
            self._report_congestion(self._on_congestion)

    def _report_congestion(self, on_congestion: OnCongestion) -> None:
        is_congested = self.write_buffer_size > (LOW_WATER if self._congestion_reported else HIGH_WATER)
        if is_congested != self._congestion_reported:
            self._congestion_reported = is_congested
            on_congestion(is_congested)

    def _drop_output(self) -> None:
        self._out.clear()
        self._unsent = None
        self.write_buffer_size = 0
        self._close_write()
        if self._on_congestion is not None:
            self._report_congestion(self._on_congestion)  # this transport holds back nobody any more

    def restore(self, unfinished: bytes, unsent: bytes, *, uses_headers: bool) -> None:
        """Continue after an earlier process, in the middle of a message that it has read or sent."""
        self._decoder.feed(unfinished)
        if uses_headers:
            self._decoder.expect_headers()
        if unsent:
            self._unsent = memoryview(unsent)
            self.write_buffer_size = len(unsent)
            self._after_write()  # it is written once the pipe has room

    @property
    def unfinished(self) -> int | None:
        """Bytes of an unfinished line that were read last; None inside headers or a body."""
        return self._decoder.unfinished

    @property
    def uses_headers(self) -> bool:
        """True if the last message that was read had headers."""
        return self._decoder.uses_headers

    @property
    def is_settled(self) -> bool:
        """True if all messages that were read are delivered, and all that were sent have been given to `write`."""
        return not self._out and not self._cork.on and not self._is_delivering

    def pause(self) -> None:
        """Stop delivering."""
        if not self.paused:
            self.paused = True
            if self._pollable and self._read_fd >= 0:
                self._loop.remove_reader(self._read_fd)
                self._leave_turns()

    def resume(self) -> None:
        """Deliver again."""
        if self.paused:
            self.paused = False
            self._listen()

    @property
    def other_side_gone(self) -> bool:
        """True if nobody reads what we write."""
        if self._write_fd < 0:
            return True
        return _hung_up(self._write_fd)

    @property
    def source_ended(self) -> bool:
        """True if nobody writes to our input any more. There may still be data to read."""
        return self._read_fd < 0 or _hung_up(self._read_fd)

    def close_sending(self) -> None:
        """Close the write side once the queue is empty."""
        self._closing_write = True
        if not self.write_buffer_size:
            self._close_write()

    def close(self) -> None:
        """Close both descriptors. `on_closed` is not called."""
        self._frames.clear()
        self._stop_reading()
        self._drop_output()

    def _end_reading(self) -> None:
        self._stop_reading()
        self._on_closed()

    def _stop_reading(self) -> None:
        if self._read_fd >= 0:
            if self._pollable:
                self._loop.remove_reader(self._read_fd)
                self._leave_turns()
            if self._cork.turns is not None:
                self._cork.turns.remove_host(self)
            os.close(self._read_fd)
            self._read_fd = -1

    def _close_write(self) -> None:
        if self._write_fd >= 0:
            if self._writing:
                self._writing = False
                self._loop.remove_writer(self._write_fd)
            os.close(self._write_fd)
            self._write_fd = -1


def _hang_ups(fd: int) -> select.poll:
    """Return an object whose `poll` reports errors and hang-ups only."""
    poll = select.poll()
    poll.register(fd, 0)
    return poll


def _hung_up(fd: int) -> bool:
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in _hang_ups(fd).poll(0))


def _has_input(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _pollable(fd: int) -> bool:
    """Return False for regular files and /dev/null: they are always ready, and epoll rejects them."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)
