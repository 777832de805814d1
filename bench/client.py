"""The load generator: one MCP client over pipes, cheap enough not to be what is measured.

Requests are encoded before the clock runs and answers are checked after it has stopped; in between there is
only os.write, poll and os.read. Owns one started process. It does not know what the figures mean.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType

from bench.contestants import Contestant, environment
from bench.processes import descendants

PATIENCE_MS = 60_000
PROTOCOL = "2025-11-25"
now = time.perf_counter_ns


class BenchError(Exception):
    """The contestant did not do what the scenario needs, so its figures would be meaningless."""


class Text(Struct, gc=False):
    """A content block of the echo."""

    text: str = ""


class Result(Struct, gc=False, rename="camel"):
    """The members of a tool result that are checked."""

    content: list[Text] = []
    is_error: bool = False


class Answer(Struct, gc=False):
    """A message from the server: an answer if it has an id and no method."""

    id: int | None = None
    method: str | None = None
    result: Result | UnsetType = UNSET


decode_answer = msgspec.json.Decoder(Answer).decode


def expected(number: int) -> str:
    """Return the message of call `number`: unique, so that a crossed answer is noticed, and of common length."""
    return f"message {number:08d} for the echo, padded to the length of a short sentence"


class Client:
    """A started contestant and the pipes to it."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `stop`)
        self.started = now()
        self.process = subprocess.Popen(
            contestant.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=contestant.cwd,
            env={**environment(), **contestant.env},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.to, self.back = self.process.stdin.fileno(), self.process.stdout.fileno()
        self.poll = select.poll()
        self.poll.register(self.back, select.POLLIN | select.POLLHUP)
        self.last = 0  # id of the last request
        self.done = 0  # calls of the last block
        self.buffer = b""

    # --- one at a time ---------------------------------------------------------------------------

    def handshake(self) -> int:
        """Initialize and list the tools; return the nanoseconds since the start of the process."""
        hello: dict[str, object] = {
            "protocolVersion": PROTOCOL,
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        self.request("initialize", hello)
        self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        listed = self.request("tools/list", {})
        elapsed_ns = now() - self.started
        tool = self.contestant.tool.encode()
        if b'"%b"' % tool not in listed:
            raise BenchError(
                f"{self.contestant.title} does not list {self.contestant.tool}: {listed[:500]!r}"
            )
        return elapsed_ns

    def request(self, method: str, params: dict[str, object]) -> bytes:
        self.last += 1
        message = {"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}
        self.write(msgspec.json.encode(message) + b"\n")
        while True:
            for line in self.lines(self.read()):
                head = msgspec.json.decode(line, type=Head)
                if head.id == self.last and head.method is None:
                    if head.error is not UNSET:
                        raise BenchError(f"{self.contestant.title}: {method} failed: {line[:500]!r}")
                    return line

    def sequential(self, count: int, limit_s: float) -> list[int]:
        """Make up to `count` calls one by one; return the nanoseconds of each."""
        first, requests = self.prepare(count)
        deadline = now() + int(limit_s * 1e9)
        times: list[int] = []
        answers: list[bytes] = []
        for request in requests:
            begin = now()
            os.write(self.to, request)
            chunk = self.read()
            end = now()
            while not self.answered(chunk, first + len(times)):
                chunk += self.read()
                end = now()
            times.append(end - begin)
            answers.append(chunk)
            if end > deadline:
                break
        self.check(b"".join(answers), first, len(times))
        return times

    def answered(self, chunk: bytes, number: int) -> bool:
        """Return True if the chunk is complete and holds this answer, and not only notifications."""
        return chunk.endswith(b"\n") and (b'"id":%d' % number in chunk or b'"id": %d' % number in chunk)

    # --- many at a time --------------------------------------------------------------------------

    def in_flight(self, count: int, width: int, limit_s: float) -> float:
        """Make up to `count` calls with `width` in flight; return calls per second."""
        first, requests = self.prepare(count)
        answers: list[bytes] = []
        begin = now()
        deadline = begin + int(limit_s * 1e9)
        sent, done = min(width, count), 0
        self.write(b"".join(requests[:sent]))
        while done < sent:
            chunk = self.read()
            answers.append(chunk)
            fresh = chunk.count(b"\n")
            done += fresh
            if sent < count and now() < deadline:
                self.write(b"".join(requests[sent : sent + fresh]))
                sent = min(sent + fresh, count)
        end = now()
        data = b"".join(answers)
        while data.count(b"\n") - data.count(b'"method":') < sent:  # notifications were counted as answers
            data += self.read()
            end = now()
        self.check(data, first, sent)
        self.done = sent
        return sent / ((end - begin) / 1e9)

    # --- beneath ---------------------------------------------------------------------------------

    def prepare(self, count: int) -> tuple[int, list[bytes]]:
        first = self.last + 1
        self.last += count
        return first, [
            self.contestant.call(number, expected(number)) for number in range(first, first + count)
        ]

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.to, data) :]

    def read(self) -> bytes:
        if not self.poll.poll(PATIENCE_MS):
            raise BenchError(f"{self.contestant.title} has not answered for {PATIENCE_MS / 1000:.0f} s")
        chunk = os.read(self.back, 65536)
        if not chunk:
            self.errors.seek(0)
            tail = self.errors.read()[-2000:].decode(errors="replace")
            raise BenchError(f"{self.contestant.title} ended early:\n{tail}")
        return chunk

    def lines(self, chunk: bytes) -> Sequence[bytes]:
        *whole, self.buffer = (self.buffer + chunk).split(b"\n")
        return whole

    def check(self, data: bytes, first: int, count: int) -> None:
        """Check that every request has exactly one answer, and the right one."""
        open_calls = set(range(first, first + count))
        for line in data.splitlines():
            answer = decode_answer(line)
            if answer.method is not None:
                continue
            result = answer.result
            if answer.id not in open_calls or result is UNSET or result.is_error:
                raise BenchError(f"{self.contestant.title}: unexpected answer {line[:500]!r}")
            if [block.text for block in result.content] != [expected(answer.id)]:
                raise BenchError(f"{self.contestant.title}: answer of another request: {line[:500]!r}")
            open_calls.remove(answer.id)
        if open_calls:
            raise BenchError(f"{self.contestant.title}: {len(open_calls)} calls were not answered")

    def stop(self) -> None:
        """Close its input and wait; kill what is left after five seconds."""
        started = descendants(self.process.pid)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            for process in started:
                process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


class Head(Struct, gc=False):
    """Enough of a message to know whether it answers a request."""

    id: int | str | None = None
    method: str | None = None
    error: msgspec.Raw | UnsetType = UNSET
