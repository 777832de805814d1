"""Splits a byte stream into JSON-RPC messages.

Both stdio framings of MCP are accepted and may alternate: newline-delimited JSON, and bodies with `Content-Length`
headers. Output that is not a message (log lines, plain or JSON) is returned as `NonMessage`; a message beyond the size
limit is returned as `Oversized` and the stream continues. Any chunking of the input gives the same frames, at a cost
linear in the bytes.

The decoder handles bytes and boundaries only. It does not decode JSON, except for looking for the `"jsonrpc"` key.
"""

from __future__ import annotations

from msgspec import Struct

# Twice the largest message we promise to carry, to leave room for a 64 MiB body in base64.
MAX_MESSAGE_BYTES = 128 * 1024 * 1024
# Enough of an oversized message to find its id, which servers write first or last.
OVERSIZED_EXCERPT_BYTES = 1024
# A Content-Length beyond this many times the limit is bogus; skipping that much would swallow the stream for good.
MAX_SKIP_FACTOR = 8
MAX_NUMBER_CHARS = 20  # Python refuses to parse thousands of digits
CLOSING_BRACE = 0x7D
# The key that identifies a message. Most begin with it and many end with it, so searching from the end is fast.
# `rfind` takes half the time of `in`: for bytes, CPython first tries the needle as an integer and formats an error.
JSONRPC_KEY = b'"jsonrpc"'
USUAL_START = b"{" + JSONRPC_KEY
BOM = b"\xef\xbb\xbf"


class NonMessage(Struct, frozen=True):
    """A line that is not a message, such as log output."""

    line: bytes


class Oversized(Struct, frozen=True):
    """A message that was dropped because of its size. Its first and last bytes are kept."""

    size: int
    head: bytes
    tail: bytes


Frame = bytes | NonMessage | Oversized


class FrameDecoder:
    """Decodes one direction of a stream. `uses_headers` is True if the last message had `Content-Length`."""

    __slots__ = (
        "_at_line_start",
        "_head",
        "_length",
        "_missing",
        "_parts",
        "_size",
        "_tail",
        "limit",
        "uses_headers",
    )

    def __init__(self, limit: int = MAX_MESSAGE_BYTES) -> None:
        self.limit = limit
        self.uses_headers = False
        self._parts: list[bytes] = []  # of the unfinished line or body; empty while it is being dropped
        self._at_line_start = True  # at the start of a line, and the peer does not use headers
        self._size = 0  # bytes of the unfinished line or body so far
        self._missing = -1  # bytes missing from the current body; -1 while reading lines
        self._length = -1  # from a Content-Length header whose blank line has not come yet
        self._head = b""  # first and last bytes of what is being dropped
        self._tail = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Return all frames that `data` completes."""
        if self._at_line_start and len(data) <= self.limit:
            # Fast path for the usual cases: the chunk is one complete message line, or several.
            if data.find(b"\n") == len(data) - 1:
                if data[-2:] == b"}\n" and (
                    data[:10] == USUAL_START or (data[:1] == b"{" and data.rfind(JSONRPC_KEY) > 0)
                ):
                    return [data[:-1]]
            else:
                lines = data.split(b"\n")
                rest = lines.pop()
                messages: list[Frame] = [
                    line
                    for line in lines
                    if (line[:10] == USUAL_START or (line[:1] == b"{" and line.rfind(JSONRPC_KEY) > 0))
                    and line[-1] == CLOSING_BRACE
                ]
                if len(messages) == len(lines):
                    if rest:
                        self._buffer(rest)
                        self._at_line_start = False
                    return messages
        out: list[Frame] = []
        start = 0
        while start < len(data):
            if self._missing >= 0:
                start = self._add_body(data, start, out)
                continue
            end = data.find(b"\n", start)
            if end < 0:
                self._buffer(data[start:])
                break
            line = data[start:end]
            start = end + 1
            if self._size:
                self._buffer(line)
                self._finish_line(out)
            else:
                self._add_line(line, out)
        self._at_line_start = (
            self._size == 0 and self._missing < 0 and self._length < 0 and not self.uses_headers
        )
        return out

    @property
    def unfinished(self) -> int | None:
        """Bytes at the end of the input that are an unfinished line; None inside headers or a body."""
        return None if self._missing >= 0 or self._length >= 0 else self._size

    def expect_headers(self) -> None:
        """Continue a stream whose last message had headers."""
        self.uses_headers, self._at_line_start = True, False

    def close(self) -> list[Frame]:
        """Return what is left at the end of the stream: a last line without newline, or the start of a body."""
        out: list[Frame] = []
        if self._size and self._missing < 0:
            self._finish_line(out)
        elif self._size:
            self._discard()
            out.append(NonMessage(self._head))
        self._parts.clear()
        self._head = self._tail = b""
        self._size = 0
        self._missing = self._length = -1
        self._at_line_start = not self.uses_headers
        return out

    def _finish_line(self, out: list[Frame]) -> None:
        whole = self._take_buffer()
        if type(whole) is bytes:
            self._add_line(whole, out)
        else:
            out.append(whole)

    def _add_line(self, raw: bytes, out: list[Frame]) -> None:
        if len(raw) > self.limit:
            out.append(Oversized(len(raw), raw[:OVERSIZED_EXCERPT_BYTES], raw[-OVERSIZED_EXCERPT_BYTES:]))
            return
        line = raw.strip()
        if line[:1] == b"{" and JSONRPC_KEY in line:
            self._length = -1
            self.uses_headers = False
            out.append(line)
        elif line.startswith(BOM):
            self._add_line(line[len(BOM) :], out)
        else:
            self._add_other_line(line, out)

    def _add_other_line(self, line: bytes, out: list[Frame]) -> None:
        if not line:
            if self._length >= 0:
                self._missing, self._length = self._length or -1, -1
            return
        name, colon, value = line.partition(b":")
        name = name.lower()
        if name == b"content-length" and value.strip().isdigit() and len(value) < MAX_NUMBER_CHARS:
            length = int(value)
            if length <= self.limit * MAX_SKIP_FACTOR:
                self._length = length
                return
        if self._length >= 0 and colon and name[:1] not in b"{[":
            return  # a further header
        self._length = -1
        if line[:1] == b"[" and JSONRPC_KEY in line:
            self.uses_headers = False
            out.append(line)  # a batch
        elif name != b"content-type":
            out.append(NonMessage(line))

    def _add_body(self, data: bytes, start: int, out: list[Frame]) -> int:
        part = data[start : start + self._missing]
        self._buffer(part)
        self._missing -= len(part)
        if self._missing == 0:
            self._missing = -1
            self.uses_headers = True
            whole = self._take_buffer()
            if type(whole) is bytes:
                # Raw newlines in JSON are only whitespace between tokens; without them the body fits on one line.
                if b"\n" in whole or b"\r" in whole:
                    whole = whole.translate(_NEWLINES_TO_SPACES).strip()
                whole = whole.removeprefix(BOM)
            out.append(whole)
        return start + len(part)

    def _buffer(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > self.limit:
            self._discard()

    def _discard(self) -> None:
        """Drop what has been buffered, except its first and last bytes."""
        for part in self._parts:
            if len(self._head) < OVERSIZED_EXCERPT_BYTES:
                self._head = (self._head + part[:OVERSIZED_EXCERPT_BYTES])[:OVERSIZED_EXCERPT_BYTES]
            self._tail = (self._tail + part[-OVERSIZED_EXCERPT_BYTES:])[-OVERSIZED_EXCERPT_BYTES:]
        self._parts.clear()

    def _take_buffer(self) -> bytes | Oversized:
        size, self._size = self._size, 0
        if size > self.limit:
            piece = Oversized(size, self._head, self._tail)
            self._head = self._tail = b""
            return piece
        whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        return whole


_NEWLINES_TO_SPACES = bytes(32 if code in (10, 13) else code for code in range(256))
