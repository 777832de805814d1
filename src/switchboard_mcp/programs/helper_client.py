"""The client of one helper process of programs, on the gateway's side.

Helpers are not trusted: their answers are decoded by type and limited in size.
"""

from __future__ import annotations

import asyncio
import os

import msgspec

from switchboard_mcp.programs.engine import Suspension
from switchboard_mcp.programs.helper import frames
from switchboard_mcp.transport.process.launcher import ChildProcess

# From the start to the first answer: 0.1 s on a quiet machine.
START_TIMEOUT_S = 60.0
# A pipe holds no more.
READ_BYTES = 64 * 1024


class HelperLostError(Exception):
    """A helper has died, or sent what is no answer."""


class HelperTimeoutError(Exception):
    """A helper did not answer in time."""


class HelperProcess:
    """A running helper: sends a request and waits for its answer, one at a time."""

    def __init__(self, process: ChildProcess, max_frame_bytes: int) -> None:
        self._process = process
        self._max_frame_bytes = max_frame_bytes
        self._loop = asyncio.get_running_loop()
        self._input = bytearray()
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._output = memoryview(b"")
        self._is_writing = False
        self._answer: asyncio.Future[frames.Answer] | None = None
        self.is_lost = False
        self.pid = process.pid
        self.worker = 0
        self.parts: list[str] = []
        self.requests = 0
        # The program that waits in the helper's memory.
        self.held: Suspension | None = None
        self._stderr = b""
        for fd in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(fd, False)
        self._loop.add_reader(process.stdout, self._read)
        self._loop.add_reader(process.stderr, self._read_stderr)

    async def ready(self) -> None:
        """Wait for the helper to be confined. Raises `HelperLostError` or `HelperTimeoutError`."""
        body = (await self._wait(START_TIMEOUT_S)).body
        if not isinstance(body, frames.Ready):
            raise HelperLostError("sent no greeting")
        self.parts, self.worker = body.parts, body.worker

    async def request(self, frame: bytes, timeout: float) -> frames.Answer:
        """Send a request and return its answer. Raises `HelperLostError` or `HelperTimeoutError`."""
        if self.is_lost:
            raise HelperLostError(self.last_words())
        self.requests += 1
        self._output = memoryview(frame)
        self._answer = self._loop.create_future()
        self._write()
        return await self._wait(timeout)

    async def _wait(self, timeout: float) -> frames.Answer:
        if self._answer is None:
            self._answer = self._loop.create_future()
            self._deliver()
        answer = self._answer
        deadline = self._loop.call_later(timeout, _expire, answer)
        try:
            return await answer
        finally:
            deadline.cancel()
            self._answer = None

    def _write(self) -> None:
        try:
            while self._output:
                self._output = self._output[os.write(self._process.stdin, self._output) :]
        except BlockingIOError:
            self._loop.add_writer(self._process.stdin, self._write)
            self._is_writing = True
            return
        except OSError:
            self._lose()
        if self._is_writing:
            self._loop.remove_writer(self._process.stdin)
            self._is_writing = False

    def _read(self) -> None:
        try:
            count = os.readv(self._process.stdout, [self._buffer])
        except BlockingIOError:
            return
        except OSError:
            count = 0
        self._input += self._buffer[:count]
        if not count or not self._deliver():
            self._lose()

    def _read_stderr(self) -> None:
        try:
            data = os.read(self._process.stderr, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._stderr = (self._stderr + data)[-4096:]
        if not data:
            self._loop.remove_reader(self._process.stderr)

    def _deliver(self) -> bool:
        """Hand a whole answer to the request that waits. Return False if the helper does not keep to the protocol."""
        if len(self._input) < frames.HEADER_BYTES:
            return True
        size = int.from_bytes(self._input[: frames.HEADER_BYTES], "big")
        if size > self._max_frame_bytes:
            return False
        end = frames.HEADER_BYTES + size
        if len(self._input) < end or self._answer is None:
            return len(self._input) <= end
        body = bytes(memoryview(self._input)[frames.HEADER_BYTES : end])
        del self._input[:end]
        try:
            answer = frames.decode_answer(body)
        except msgspec.MsgspecError:
            return False
        if not self._answer.done():
            self._answer.set_result(answer)
        return not self._input

    def _lose(self) -> None:
        self.is_lost = True
        self._loop.remove_reader(self._process.stdout)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(HelperLostError(self.last_words()))

    def last_words(self) -> str:
        """Return the last line that the helper wrote to its standard error."""
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else "it ended without a word"

    def memory(self) -> int:
        """Return the resident bytes of helper and worker, 0 where they cannot be read."""
        pages = 0
        for pid in (self.pid, self.worker):
            try:
                with open(f"/proc/{pid}/statm", "rb") as file:
                    pages += int(file.read().split()[1])
            except (OSError, IndexError, ValueError):
                return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> None:
        """End helper and worker, and release their descriptors."""
        self.is_lost = True
        if self._process.stdin < 0:
            return
        self._loop.remove_writer(self._process.stdin)
        self._loop.remove_reader(self._process.stdout)
        self._loop.remove_reader(self._process.stderr)
        for fd in (self._process.stdin, self._process.stdout, self._process.stderr):
            os.close(fd)
        self._process.stdin = -1
        self._process.end()

    async def exited(self) -> None:
        """Wait for the end of helper and worker."""
        await self._process.exited


def _expire(answer: asyncio.Future[frames.Answer]) -> None:
    if not answer.done():
        answer.set_exception(HelperTimeoutError())
