"""Cutting a byte stream into server-sent events.

The format of `text/event-stream`, with the data of an event left as bytes. Lines end in LF, CR LF or CR; comments and
unknown fields are skipped. An event beyond the limit comes out as `Oversized` and the stream lives on. Any chunking
gives the same events, at a cost linear in the bytes. What the stream leaves unfinished at its end is no event.

Owns the format only: it does not know what events mean, nor how a lost stream is taken up again.
"""

from __future__ import annotations

from typing import final

from msgspec import Struct

from switchboard_mcp.protocol.framing import (
    BOM,
    MAX_MESSAGE_BYTES,
    MAX_NUMBER_CHARS,
    OVERSIZED_EXCERPT_BYTES,
    Oversized,
)


@final
class ServerSentEvent(Struct, frozen=True):
    """One event. Its data is empty where the event only carried an id or a time to wait."""

    name: str
    data: bytes


class EventStream:
    """One stream of events.

    `last_id` is where to take the stream up again, empty while nothing has named a place; `retry_ms` is how long the
    other side wants to be left alone before that, None while it has not said.
    """

    __slots__ = (
        "_after_cr",
        "_data",
        "_fresh",
        "_head",
        "_id",
        "_line",
        "_name",
        "_seen",
        "_size",
        "_tail",
        "last_id",
        "limit",
        "retry_ms",
    )

    def __init__(self, limit: int = MAX_MESSAGE_BYTES) -> None:
        self.limit = limit
        self.last_id = ""
        self.retry_ms: int | None = None
        self.restart()

    def restart(self) -> None:
        """Go on with another stream from the same place: what the one before left unfinished is forgotten."""
        self._id = self.last_id
        self._name = ""
        self._data: list[bytes] = []
        self._line: list[bytes] = []  # parts of the unfinished line
        self._size = 0  # bytes of the event so far, its unfinished line included
        self._seen = False  # whether the event has any field
        self._head = b""  # the ends of what is being thrown away
        self._tail = b""
        self._after_cr = False
        self._fresh = True  # nothing has come yet

    def feed(self, data: bytes) -> list[ServerSentEvent | Oversized]:
        """All events that `data` completes."""
        if not data:
            return []
        out: list[ServerSentEvent | Oversized] = []
        *lines, rest = self._unify(data).split(b"\n")
        for line in lines:
            self._keep(line)
            self._end_line(out)
        self._keep(rest)
        return out

    def _unify(self, data: bytes) -> bytes:
        """The same with LF at the end of every line. A CR LF may be cut in two by the chunking."""
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
        self._after_cr = data[-1:] == b"\r"
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _keep(self, part: bytes) -> None:
        if not part:
            return
        self._line.append(part)
        self._size += len(part)
        if self._size > self.limit:
            self._let_go(part)

    def _let_go(self, part: bytes) -> None:
        """Forget what has come of this event, but for its ends."""
        if not self._head:
            whole = b"\n".join((*self._data, _value(b"".join(self._line))))
            self._head, self._tail = whole[:OVERSIZED_EXCERPT_BYTES], whole[-OVERSIZED_EXCERPT_BYTES:]
        else:
            self._tail = (self._tail + part[-OVERSIZED_EXCERPT_BYTES:])[-OVERSIZED_EXCERPT_BYTES:]
        self._data.clear()
        self._line = [b":"]  # so that the end of this line is not taken for a blank one

    def _end_line(self, out: list[ServerSentEvent | Oversized]) -> None:
        line = self._line[0] if len(self._line) == 1 else b"".join(self._line)
        self._line.clear()
        if self._fresh:
            self._fresh = False
            line = line.removeprefix(BOM)
        if not line:
            self._end_event(out)
        elif self._size <= self.limit:
            self._field(line)

    def _field(self, line: bytes) -> None:
        name, _, _ = line.partition(b":")
        value = _value(line)
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")
        elif name == b"id":
            if b"\0" in value:
                return
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry":
            if not value.isdigit() or len(value) >= MAX_NUMBER_CHARS:
                return
            self.retry_ms = int(value)
        else:
            self._size -= len(line)  # comments keep a quiet stream alive for hours: they are part of no event
            return
        self._seen = True

    def _end_event(self, out: list[ServerSentEvent | Oversized]) -> None:
        self.last_id = self._id
        if self._size > self.limit:
            out.append(Oversized(self._size, self._head, self._tail))
        elif self._seen:
            out.append(ServerSentEvent(self._name or "message", b"\n".join(self._data)))
        self._name = ""
        self._data.clear()
        self._size = 0
        self._seen = False
        self._head = self._tail = b""


def _value(line: bytes) -> bytes:
    return line.partition(b":")[2].removeprefix(b" ")
