"""Cutting a byte stream into JSON-RPC messages.

Both framings of MCP over stdio are understood and may alternate: one JSON object a line, and `Content-Length` headers
with a body. What is no message (log lines as text or JSON) comes out as `Noise`; a message beyond the limit comes out
as `Oversized` and the stream lives on. Any chunking gives the same pieces, at a cost linear in the bytes.

Owns bytes and boundaries only: it does not decode JSON, beyond looking for the word that marks a message.
"""

from __future__ import annotations

from msgspec import Struct

# Twice the largest message we promise to carry, so that base64 growth of a 64 MiB body still passes.
MAX_MESSAGE_BYTES = 128 * 1024 * 1024
# Enough of an oversized message to find its id, which servers write first or last.
OVERSIZED_EXCERPT_BYTES = 1024
# A Content-Length beyond this many times the limit is a lie; to believe it would swallow the stream for good.
MOST_SKIPPED = 8
MAX_NUMBER_CHARS = 20  # characters; Python refuses to read thousands of digits
CLOSING_BRACE = 0x7D
# What marks a message. Most begin with it, many have it last, so that looking from the end is quick.
# `in` would do the same at twice the time: CPython tries first whether the word is a number, and words an error.
MARK = b'"jsonrpc"'
USUAL_START = b"{" + MARK
BOM = b"\xef\xbb\xbf"


class NonMessage(Struct, frozen=True):
    """Bytes between messages: a log line."""

    line: bytes


class Oversized(Struct, frozen=True):
    """A message that was thrown away because of its size; its first and last bytes are kept."""

    size: int
    head: bytes
    tail: bytes


Frame = bytes | NonMessage | Oversized


class FrameDecoder:
    """One direction of one stream. `headers` tells whether the last message came with `Content-Length`."""

    __slots__ = ("_fresh", "_head", "_length", "_need", "_parts", "_size", "_tail", "limit", "uses_headers")

    def __init__(self, limit: int = MAX_MESSAGE_BYTES) -> None:
        self.limit = limit
        self.uses_headers = False
        self._parts: list[bytes] = []  # the unfinished line or body; empty while it is being thrown away
        self._fresh = True  # at the start of a line, and no header in sight
        self._size = 0  # bytes of the unfinished line or body so far
        self._need = -1  # bytes the current body still lacks; -1 while reading lines
        self._length = -1  # Content-Length seen, blank line not yet
        self._head = b""  # the ends of what is being thrown away
        self._tail = b""

    def feed(self, data: bytes) -> list[Frame]:
        """All pieces that `data` completes."""
        if self._fresh and len(data) <= self.limit:
            # The ordinary cases, cut in one go: one whole line, or several, and each a message.
            if data.find(b"\n") == len(data) - 1:
                if data[-2:] == b"}\n" and (
                    data[:10] == USUAL_START or (data[:1] == b"{" and data.rfind(MARK) > 0)
                ):
                    return [data[:-1]]
            else:
                lines = data.split(b"\n")
                rest = lines.pop()
                messages: list[Frame] = [
                    line
                    for line in lines
                    if (line[:10] == USUAL_START or (line[:1] == b"{" and line.rfind(MARK) > 0))
                    and line[-1] == CLOSING_BRACE
                ]
                if len(messages) == len(lines):
                    if rest:
                        self._keep(rest)
                        self._fresh = False
                    return messages
        out: list[Frame] = []
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
                self._finish_line(out)
            else:
                self._take_line(line, out)
        self._fresh = self._size == 0 and self._need < 0 and self._length < 0 and not self.uses_headers
        return out

    def close(self) -> list[Frame]:
        """What the end of the stream leaves: a last line without its newline, or the start of a body."""
        out: list[Frame] = []
        if self._size and self._need < 0:
            self._finish_line(out)
        elif self._size:
            self._let_go()
            out.append(NonMessage(self._head))
        self._parts.clear()
        self._head = self._tail = b""
        self._size = 0
        self._need = self._length = -1
        self._fresh = not self.uses_headers
        return out

    def _finish_line(self, out: list[Frame]) -> None:
        whole = self._finish()
        if type(whole) is bytes:
            self._take_line(whole, out)
        else:
            out.append(whole)

    def _take_line(self, raw: bytes, out: list[Frame]) -> None:
        if len(raw) > self.limit:
            out.append(Oversized(len(raw), raw[:OVERSIZED_EXCERPT_BYTES], raw[-OVERSIZED_EXCERPT_BYTES:]))
            return
        line = raw.strip()
        if line[:1] == b"{" and MARK in line:
            self._length = -1
            self.uses_headers = False
            out.append(line)
        elif line.startswith(BOM):
            self._take_line(line[len(BOM) :], out)
        else:
            self._take_odd_line(line, out)

    def _take_odd_line(self, line: bytes, out: list[Frame]) -> None:
        if not line:
            if self._length >= 0:
                self._need, self._length = self._length or -1, -1
            return
        name, colon, value = line.partition(b":")
        name = name.lower()
        if name == b"content-length" and value.strip().isdigit() and len(value) < MAX_NUMBER_CHARS:
            length = int(value)
            if length <= self.limit * MOST_SKIPPED:
                self._length = length
                return
        if self._length >= 0 and colon and name[:1] not in b"{[":
            return  # a further header
        self._length = -1
        if line[:1] == b"[" and MARK in line:
            self.uses_headers = False
            out.append(line)  # a batch
        elif name != b"content-type":
            out.append(NonMessage(line))

    def _take_body(self, data: bytes, start: int, out: list[Frame]) -> int:
        part = data[start : start + self._need]
        self._keep(part)
        self._need -= len(part)
        if self._need == 0:
            self._need = -1
            self.uses_headers = True
            whole = self._finish()
            if type(whole) is bytes:
                # Raw newlines can only be white space between tokens; without them a body fits on one line.
                if b"\n" in whole or b"\r" in whole:
                    whole = whole.translate(_SPACED).strip()
                whole = whole.removeprefix(BOM)
            out.append(whole)
        return start + len(part)

    def _keep(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > self.limit:
            self._let_go()

    def _let_go(self) -> None:
        """Forget what has come, but for its ends."""
        for part in self._parts:
            if len(self._head) < OVERSIZED_EXCERPT_BYTES:
                self._head = (self._head + part[:OVERSIZED_EXCERPT_BYTES])[:OVERSIZED_EXCERPT_BYTES]
            self._tail = (self._tail + part[-OVERSIZED_EXCERPT_BYTES:])[-OVERSIZED_EXCERPT_BYTES:]
        self._parts.clear()

    def _finish(self) -> bytes | Oversized:
        size, self._size = self._size, 0
        if size > self.limit:
            piece = Oversized(size, self._head, self._tail)
            self._head = self._tail = b""
            return piece
        whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        return whole


_SPACED = bytes(32 if code in (10, 13) else code for code in range(256))
