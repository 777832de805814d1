"""The load generator over HTTP: many kept connections on one poll, cheap enough not to be what is measured.

Requests are built before the clock runs and answers are checked after it has stopped. Owns sockets and as much of HTTP
as servers of MCP answer with: a body of known length, or chunks. It does not know what the figures mean.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Mapping, Sequence

from bench.client import PATIENCE_MS, BenchError, decode_answer, expected

now = time.perf_counter_ns
HEAD_END = b"\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def build(path: str, headers: Mapping[str, str], body: bytes, method: str = "POST") -> bytes:
    """Return a complete request."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def whole(data: bytes) -> bool:
    """Return True if a response is complete."""
    head, end, body = data.partition(HEAD_END)
    if not end:
        return False
    length = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
    return len(body) >= int(length[1]) if length else body.endswith(LAST_CHUNK)


def message_of(data: bytes) -> bytes:
    """Return the JSON-RPC message of a response, from its body or its event."""
    body: bytes
    head, _, body = data.partition(HEAD_END)
    if b" 200 " not in head.partition(b"\r\n")[0]:
        raise BenchError(f"unexpected answer: {data[:500]!r}")
    if b"text/event-stream" not in head:
        return body
    if b"chunked" in head.lower():
        body = unchunk(body)
    events: list[bytes] = [
        line[5:].strip() for line in re.split(rb"\r?\n", body) if line.startswith(b"data:")
    ]
    return next(event for event in reversed(events) if b'"result"' in event)


def unchunk(body: bytes) -> bytes:
    parts = []
    while body:
        size, _, remainder = body.partition(b"\r\n")
        length = int(size, 16)
        parts.append(remainder[:length])
        body = remainder[length + 2 :]
    return b"".join(parts)


class Connections:
    """A connection for each call in flight, with one call at a time on each."""

    def __init__(self, address: tuple[str, int], width: int) -> None:
        self._address = address
        self._width = width
        self._sockets: list[socket.socket] = []
        self.renew()

    def renew(self) -> None:
        """Reconnect all, since some servers close connections that are idle for a few seconds."""
        self.close()
        self._sockets = [socket.create_connection(self._address, timeout=60) for _ in range(self._width)]
        for connection in self._sockets:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def sockets(self) -> list[socket.socket]:
        """The connections."""
        return self._sockets

    def close(self) -> None:
        for connection in self._sockets:
            connection.close()

    def one(self, request: bytes) -> tuple[bytes, int]:
        """Make one call; return the response and the nanoseconds it took."""
        connection = self._sockets[0]
        begin = now()
        connection.sendall(request)
        data = connection.recv(65536)
        end = now()
        while not whole(data):
            more = connection.recv(65536)
            if not more:
                raise BenchError(f"the connection has ended: {data[:500]!r}")
            data += more
            end = now()
        return data, end - begin

    def many(self, requests: Sequence[bytes], limit_s: float) -> tuple[list[bytes], list[int], float]:
        """Make calls on all connections; return the responses in order, their nanoseconds, and calls per second."""
        poll = select.epoll()
        by_fd = {connection.fileno(): connection for connection in self._sockets}
        under_way: dict[int, tuple[int, int]] = {}
        data: dict[int, bytes] = dict.fromkeys(by_fd, b"")
        answers: list[bytes] = [b""] * len(requests)
        times: list[int] = [0] * len(requests)
        sent = done = 0
        begin = now()
        deadline = begin + int(limit_s * 1e9)
        for fd, connection in by_fd.items():
            poll.register(fd, select.EPOLLIN)
            if sent < len(requests):
                under_way[fd] = sent, now()
                connection.sendall(requests[sent])
                sent += 1
        while done < sent:
            ready = poll.poll(PATIENCE_MS / 1000)
            if not ready:
                raise BenchError("no answer for a minute")
            for fd, _ in ready:
                chunk = by_fd[fd].recv(65536)
                if not chunk:
                    raise BenchError(f"a connection has ended: {data[fd][:500]!r}")
                data[fd] += chunk
                if not whole(data[fd]):
                    continue
                place, started = under_way[fd]
                arrived = now()
                answers[place], times[place], data[fd] = data[fd], arrived - started, b""
                done += 1
                if sent < len(requests) and arrived < deadline:
                    under_way[fd] = sent, arrived
                    by_fd[fd].sendall(requests[sent])
                    sent += 1
        seconds = (now() - begin) / 1e9
        poll.close()
        return answers[:sent], times[:sent], sent / seconds


def check(answers: Sequence[bytes], first: int) -> None:
    """Check that each call has its own answer."""
    for number, data in enumerate(answers, first):
        answer = decode_answer(message_of(data))
        result = answer.result
        if answer.id != number or not hasattr(result, "content"):
            raise BenchError(f"unexpected answer: {data[:500]!r}")
        if [block.text for block in result.content] != [expected(number)]:
            raise BenchError(f"answer of another request: {data[:500]!r}")
