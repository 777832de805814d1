"""Cutting a byte stream into JSON-RPC messages, and wrapping messages for the wire.

Both framings of MCP over stdio are understood and may alternate: one JSON object a line, and `Content-Length` headers
with a body. What is no message (log lines as text or JSON) comes out as `Noise`; a message beyond the limit comes out as
`Oversized` and the stream lives on. Any chunking gives the same pieces, at a cost linear in the bytes.

Owns bytes and boundaries only: it does not decode JSON, beyond looking for the word that marks a message.
"""

from __future__ import annotations

from msgspec import Struct

# Twice the largest message we promise to carry, so that base64 growth of a 64 MiB body still passes.
MAX_MESSAGE_BYTES = 128 * 1024 * 1024
# Enough of an oversized message to find its id, which servers write first or last.
KEPT_OF_OVERSIZED = 1024
OPENING_BRACE = 0x7B
BOM = b"\xef\xbb\xbf"


class Noise(Struct, frozen=True):
    """Bytes between messages: a log line."""

    line: bytes


class Oversized(Struct, frozen=True):
    """A message that was thrown away because of its size; its first and last bytes are kept."""

    size: int
    head: bytes
    tail: bytes


Piece = bytes | Noise | Oversized


class Splitter:
    """One direction of one stream. `headers` tells whether the last message came with `Content-Length`."""

    __slots__ = ("_head", "_length", "_need", "_parts", "_size", "_tail", "headers", "limit")

    def __init__(self, limit: int = MAX_MESSAGE_BYTES) -> None:
        self.limit = limit
        self.headers = False
        self._parts: list[bytes] = []  # the unfinished line or body; empty while it is being thrown away
        self._size = 0  # bytes of the unfinished line or body so far
        self._need = -1  # bytes the current body still lacks; -1 while reading lines
        self._length = -1  # Content-Length seen, blank line not yet
        self._head = b""
        self._tail = b""

    def feed(self, data: bytes) -> list[Piece]:
        """All pieces that `data` completes."""
        if self._size == 0 and self._need < 0 and self._length < 0 and len(data) <= self.limit and b"ontent-" not in data:
            # The ordinary case, whole lines without headers, cut in one go.
            lines = data.split(b"\n")
            rest = lines.pop()
            whole = [line for line in lines if b'"jsonrpc"' in line and line[0] == OPENING_BRACE]
            if len(whole) == len(lines):
                self.headers = False
                if rest:
                    self._keep(rest)
                return whole  # type: ignore[return-value]
        out: list[Piece] = []
        start = 0
        while start < len(data):
            if self._need >= 0:
                start = self._take_body(data, start, out)
                continue
            end = data.find(b"\n", start)
            if end < 0:
                self._keep(data[start:])
                break
            line = data[start:end]
            start = end + 1
            if self._size:
                self._keep(line)
                whole = self._finish()
                if type(whole) is bytes:
                    self._take_line(whole, out)
                else:
                    out.append(whole)
            else:
                self._take_line(line, out)
        return out

    def close(self) -> list[Piece]:
        """What the end of the stream leaves: a last line without its newline."""
        out: list[Piece] = []
        if self._size and self._need < 0:
            whole = self._finish()
            if type(whole) is bytes:
                self._take_line(whole, out)
            else:
                out.append(whole)
        elif self._size:
            out.append(Noise(b"".join(self._parts)[:KEPT_OF_OVERSIZED]))
        self._parts.clear()
        self._size = 0
        self._need = self._length = -1
        return out

    def _take_line(self, raw: bytes, out: list[Piece]) -> None:
        line = raw.strip()
        if len(line) > self.limit:
            out.append(Oversized(len(line), line[:KEPT_OF_OVERSIZED], line[-KEPT_OF_OVERSIZED:]))
        elif line[:1] == b"{" and b'"jsonrpc"' in line:
            self._length = -1
            self.headers = False
            out.append(line)
        else:
            self._take_odd_line(line, out)

    def _take_odd_line(self, line: bytes, out: list[Piece]) -> None:
        if self._length >= 0:
            if not line:
                self._need, self._length = self._length, -1
                if self._need == 0:
                    self._need = -1
                return
            if line[:1] not in b"{[" and b":" in line:
                return  # a further header, such as Content-Type
            self._length = -1
        if line.startswith(BOM):
            self._take_line(line[len(BOM) :], out)
        elif line[:15].lower() == b"content-length:" and line[15:].strip().isdigit():
            self._length = int(line[15:])
        elif line[:1] == b"[" and b'"jsonrpc"' in line:
            self.headers = False
            out.append(line)  # a batch
        elif line:
            out.append(Noise(line))

    def _take_body(self, data: bytes, start: int, out: list[Piece]) -> int:
        part = data[start : start + self._need]
        self._keep(part)
        self._need -= len(part)
        if self._need == 0:
            self._need = -1
            whole = self._finish()
            if type(whole) is bytes:
                self.headers = True
                # Raw newlines can only be white space between tokens; without them a body fits on one line.
                out.append(whole.translate(_SPACED).strip() if b"\n" in whole or b"\r" in whole else whole)
            else:
                out.append(whole)
        return start + len(part)

    def _keep(self, part: bytes) -> None:
        if not part:
            return
        if self._size == 0:
            self._head = part[:KEPT_OF_OVERSIZED]
        self._size += len(part)
        if self._size > self.limit:
            if self._parts:
                self._tail = b"".join(self._parts[-1:])
                self._parts.clear()
            self._tail = (self._tail + part)[-KEPT_OF_OVERSIZED:]
        else:
            self._parts.append(part)

    def _finish(self) -> bytes | Oversized:
        size, self._size = self._size, 0
        if size > self.limit:
            return Oversized(size, self._head, self._tail)
        whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        return whole


_SPACED = bytes(32 if code in (10, 13) else code for code in range(256))


def frame(message: bytes, headers: bool) -> bytes:
    """One message as it goes on the wire."""
    if headers:
        return b"Content-Length: %d\r\n\r\n%b" % (len(message), message)
    return message + b"\n"
