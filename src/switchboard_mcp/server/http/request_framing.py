"""Finds the end of each HTTP/1.1 request in the bytes of a connection, and limits what is not its body. Pure.

The HTTP parser behind it neither stops at the end of a request nor limits heads, chunk extensions and trailers. Not
aware of what a request contains, apart from the two headers that give its length.
"""

from __future__ import annotations

import re
from enum import Enum, auto

# Ordinary request heads have one or two kilobytes.
MAX_HEAD_BYTES = 32_768
# Allowance for size lines, extensions and trailers of a chunked body. Each chunk restores a share of its size, so
# the number of tiny chunks is limited too: one read of them would hold up the event loop for 50 ms.
MAX_CHUNK_OVERHEAD_BYTES = 16_384
OVERHEAD_SHARE = 8
# More than a body may ever have.
MAX_LENGTH_DIGITS = 18

_LENGTH_HEADERS = re.compile(
    rb"\r\n(?:(content-length|transfer-encoding)[ \t]*:[ \t]*([^\r\n]*?)[ \t]*(?=\r\n)|[ \t])", re.IGNORECASE
)
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]+")


class FramingState(Enum):
    """The part of a request that comes next."""

    HEAD = auto()
    BODY = auto()
    CHUNK_SIZE = auto()
    CHUNK = auto()
    TRAILERS = auto()
    END = auto()
    TOO_LARGE = auto()
    MALFORMED = auto()


FAILED = (FramingState.TOO_LARGE, FramingState.MALFORMED)


class RequestFraming:
    """The position within one request. Create a new one, or call `reset`, for the next request."""

    __slots__ = ("_allowance", "_partial", "_remaining", "begun", "state")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start with the next request."""
        self.state = FramingState.HEAD
        self.begun = False  # something other than empty lines has arrived
        self._allowance = MAX_HEAD_BYTES
        self._partial = b""  # of the head or a line
        self._remaining = 0  # of the body or a chunk

    def feed(self, data: bytes | bytearray) -> int:
        """Return how many bytes of `data` belong to this request. Look at `state` afterwards."""
        position = 0
        while position < len(data):
            match self.state:
                case FramingState.HEAD:
                    position = self._head(data, position)
                case FramingState.BODY | FramingState.CHUNK:
                    position = self._skip(data, position)
                case FramingState.CHUNK_SIZE:
                    position = self._chunk_size(data, position)
                case FramingState.TRAILERS:
                    position = self._trailer(data, position)
                case _:
                    break
        return position

    def _head(self, data: bytes | bytearray, position: int) -> int:
        if not self.begun:
            position = self._skip_empty_lines(data, position)
            if not self.begun:
                return position
        # Searched without a copy of what is behind the head: many requests may wait there.
        limit = position + self._allowance + 4
        if self._partial:
            head = self._partial + data[position:limit]
            end = head.find(b"\r\n\r\n", max(0, len(self._partial) - 3))
        else:
            end = data.find(b"\r\n\r\n", position, limit)
            end = end - position if end >= 0 else end
            head = bytes(data[position : position + end + 2] if end >= 0 else data[position:limit])
        if end < 0 or end > self._allowance:
            self._partial = head
            if len(head) > self._allowance:
                self.state = FramingState.TOO_LARGE
            return len(data)
        position += end + 4 - len(self._partial)
        self._partial = b""
        self._begin_body(head[: end + 2])
        return position

    def _skip_empty_lines(self, data: bytes | bytearray, position: int) -> int:
        """Skip empty lines before a request (RFC 9112, 2.2)."""
        start = position
        while position < len(data) and position - start <= self._allowance and data[position] in b"\r\n":
            position += 1
        self._allowance -= position - start
        self._require_allowance()
        self.begun = position < len(data)
        return position

    def _begin_body(self, head: bytes) -> None:
        """Read the length of the body from the head."""
        lengths, encodings, folded = [], [], False
        for name, value in _LENGTH_HEADERS.findall(head):
            if not name:
                folded = True
            elif name[0] in b"cC":
                lengths.append(value)
            else:
                encodings.append(value.lower())
        # The parser behind may take a bare CR or LF, or a folded line, for something else: one reading only.
        lines = head.count(b"\r\n")
        if (
            folded
            or head.count(b"\n") != lines
            or head.count(b"\r") != lines
            or len(lengths) + len(encodings) > 1
        ):
            self.state = FramingState.MALFORMED
        elif encodings:
            self._allowance = MAX_CHUNK_OVERHEAD_BYTES
            self.state = FramingState.CHUNK_SIZE if encodings == [b"chunked"] else FramingState.MALFORMED
        elif not lengths:
            self.state = FramingState.END
        elif not lengths[0].isdigit() or len(lengths[0]) > MAX_LENGTH_DIGITS:
            self.state = FramingState.MALFORMED
        else:
            self._remaining = int(lengths[0])
            self.state = FramingState.BODY if self._remaining else FramingState.END

    def _skip(self, data: bytes | bytearray, position: int) -> int:
        size = min(self._remaining, len(data) - position)
        self._remaining -= size
        if not self._remaining:
            self.state = FramingState.END if self.state is FramingState.BODY else FramingState.CHUNK_SIZE
        return position + size

    def _line(self, data: bytes | bytearray, position: int) -> tuple[bytes | None, int]:
        """Return a complete line with its end, or None, and the position behind it."""
        end = data.find(b"\n", position) + 1
        stop = end or len(data)
        self._allowance -= stop - position
        line = self._partial + data[position:stop] if self._allowance >= 0 else b""
        self._partial = b"" if end else line
        self._require_allowance()
        return (line if end and self._allowance >= 0 else None), stop

    def _chunk_size(self, data: bytes | bytearray, position: int) -> int:
        line, position = self._line(data, position)
        if line is None:
            return position
        digits = _CHUNK_SIZE.match(line)
        if digits is None or digits.end() > MAX_LENGTH_DIGITS - 3 or not line.endswith(b"\r\n"):
            self.state = FramingState.MALFORMED
            return position
        size = int(digits.group(), 16)
        self._allowance = min(MAX_CHUNK_OVERHEAD_BYTES, self._allowance + size // OVERHEAD_SHARE)
        self._remaining = size + 2  # with the line end behind it
        self.state = FramingState.CHUNK if size else FramingState.TRAILERS
        return position

    def _trailer(self, data: bytes | bytearray, position: int) -> int:
        line, position = self._line(data, position)
        if line == b"\r\n":
            self.state = FramingState.END
        return position

    def _require_allowance(self) -> None:
        if self._allowance < 0:
            self.state = FramingState.TOO_LARGE
