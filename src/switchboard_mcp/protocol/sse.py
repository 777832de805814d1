"""Parser for server-sent events (`text/event-stream`).

The data of an event stays undecoded. Lines may end in LF, CR LF or CR; comments and unknown fields are skipped. An
event beyond the size limit is returned as `Oversized` and the stream continues. Any chunking of the input gives the
same events, at a cost linear in the bytes. An event that is unfinished when the stream ends is dropped.

The parser does not know what events mean or how a lost stream is resumed.
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
    """An event. `data` is empty if it carried only an id or a retry time."""

    name: str
    data: bytes


class EventStream:
    """Parses one stream of events.

    `last_id` is the position to resume from, empty until an event had an id. `retry_ms` is the reconnection time the
    server asked for, or None.
    """

    __slots__ = (
        "_after_cr",
        "_at_start",
        "_data",
        "_has_fields",
        "_head",
        "_id",
        "_line",
        "_name",
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
        """Continue with a new stream from `last_id`, dropping the unfinished event of the previous one."""
        self._id = self.last_id
        self._name = ""
        # Bytes that grow: a list of millions of short lines would take ten times as much memory.
        self._data = bytearray()  # each line with a line end
        self._line = bytearray()  # the unfinished line
        self._size = 0  # bytes of the event so far, its unfinished line included
        self._has_fields = False  # the event has at least one field
        self._head = b""  # first and last bytes of an event that is being dropped
        self._tail = b""
        self._after_cr = False
        self._at_start = True  # no data yet: a byte order mark may follow

    @property
    def unfinished(self) -> int:
        """Bytes of the event that is not complete."""
        return len(self._data) + len(self._line)

    def feed(self, data: bytes) -> list[ServerSentEvent | Oversized]:
        """Return all events that `data` completes."""
        if not data:
            return []
        out: list[ServerSentEvent | Oversized] = []
        *lines, rest = self._normalize_newlines(data).split(b"\n")
        for line in lines:
            self._buffer(line)
            self._finish_line(out)
        self._buffer(rest)
        return out

    def _normalize_newlines(self, data: bytes) -> bytes:
        """Return `data` with LF line endings. A CR LF may be split between two chunks."""
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
        self._after_cr = data[-1:] == b"\r"
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _buffer(self, part: bytes) -> None:
        if not part:
            return
        self._line += part
        self._size += len(part)
        if self._size > self.limit:
            self._discard(part)

    def _discard(self, part: bytes) -> None:
        """Drop what has been buffered of this event, except its first and last bytes."""
        if not self._head:
            whole = bytes(self._data) + _value(bytes(self._line))
            self._head, self._tail = whole[:OVERSIZED_EXCERPT_BYTES], whole[-OVERSIZED_EXCERPT_BYTES:]
        else:
            self._tail = (self._tail + part[-OVERSIZED_EXCERPT_BYTES:])[-OVERSIZED_EXCERPT_BYTES:]
        self._data.clear()
        self._line = bytearray(b":")  # keeps the end of this line from reading as a blank one

    def _finish_line(self, out: list[ServerSentEvent | Oversized]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(BOM)
        if not line:
            self._finish_event(out)
        elif self._size <= self.limit:
            self._parse_field(line)

    def _parse_field(self, line: bytes) -> None:
        name, _, _ = line.partition(b":")
        value = _value(line)
        if name == b"data":
            self._data += value
            self._data += b"\n"
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
            self._size -= len(line)  # keep-alive comments may go on for hours and belong to no event
            return
        self._has_fields = True

    def _finish_event(self, out: list[ServerSentEvent | Oversized]) -> None:
        self.last_id = self._id
        if self._size > self.limit:
            out.append(Oversized(self._size, self._head, self._tail))
        elif self._has_fields:
            out.append(ServerSentEvent(self._name or "message", bytes(memoryview(self._data)[:-1])))
        self._name = ""
        self._data.clear()
        self._size = 0
        self._has_fields = False
        self._head = self._tail = b""


def _value(line: bytes) -> bytes:
    return line.partition(b":")[2].removeprefix(b" ")
