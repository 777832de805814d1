"""Decides which text may be typed into a terminal, and tracks screen and keyboard from the bytes that pass.

Text is typed only if it is plain: no control characters, no escape sequences, nothing hidden. Several lines are typed
only into a program with bracketed paste, so no line break acts as Enter; the final Enter is added by the caller. Pure.
"""

from __future__ import annotations

import re
from collections import deque

from switchboard_mcp.suites.invisible_characters import find_invisible

# A terminal's line buffer holds 4,096 bytes; the rest would be lost silently.
MAX_TYPED_BYTES = 4_000
PASTE_BEGINS, PASTE_ENDS, ENTER = b"\x1b[200~", b"\x1b[201~", b"\r"

_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI
    rb"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC
    rb"|[PX^_][^\x1b]*\x1b\\"  # DCS, SOS, PM, APC
    rb"|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"  # two- and three-byte sequences
)
_MODES = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")
_ALTERNATE = frozenset({b"47", b"1047", b"1049"})
_PASTE = b"2004"
# A title is short; clipboard data is not.
_MAX_PENDING = 131_072
_MAX_TAIL = 4_096
# Sequences that keep the cursor on the line of a prompt: colours, modes, erasing, horizontal moves, titles.
_HARMLESS = re.compile(rb"\x1b(?:\[[0-9;?]*[mhlKJCD]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[=>]|[()][0-9A-Za-z])")


def to_keystrokes(payload: str, *, bracketed: bool) -> bytes | str:
    """Return the bytes to type for a text, without the final Enter; or why it may not be typed.

    >>> to_keystrokes("make test\\n", bracketed=False)
    b'make test'
    >>> to_keystrokes("ls\\x1b[201~", bracketed=True)
    'it contains the invisible character U+001B'
    """
    text = payload.replace("\r\n", "\n").rstrip("\n")
    if not text.strip():
        return "there is nothing to type"
    invisible = find_invisible(text[: MAX_TYPED_BYTES + 1], allowed="\n\t")
    if invisible:
        return f"it contains the invisible character U+{ord(invisible):04X}"
    if not bracketed and "\n" in text:
        return "it has several lines, and the program in the terminal does not accept pasted lines now"
    if not bracketed and "\t" in text:
        return "it contains a tab, which the program in the terminal would take for a key"
    data = text.encode()
    if len(data) > MAX_TYPED_BYTES:
        return f"it has {len(data)} bytes; at most {MAX_TYPED_BYTES} can be typed at once"
    return PASTE_BEGINS + data.replace(b"\n", b"\r") + PASTE_ENDS if bracketed else data


class ScreenState:
    """State of a screen, derived from the program's output."""

    def __init__(self) -> None:
        self.alternate = False
        self.bracketed = False
        self.tail = b""
        """Output since the last line break."""
        self._pending = b""

    def feed(self, data: bytes) -> None:
        """Process output of the program, in pieces of any size."""
        self._note_line(data)
        if not self._pending and b"\x1b" not in data:
            self._pending = _half_character(data)
            return
        data = self._pending + data
        for mode, switch in _MODES.findall(data):
            for number in mode.split(b";"):
                if number in _ALTERNATE:
                    self.alternate = switch == b"h"
                elif number == _PASTE:
                    self.bracketed = switch == b"h"
        if b"\x1bc" in data:
            self.alternate = self.bracketed = False
        rest = _SEQUENCE.sub(b"", data)
        begins = rest.rfind(b"\x1b")
        pending = rest[begins:] if begins >= 0 else _half_character(rest)
        self._pending = pending if len(pending) <= _MAX_PENDING else b""

    def _note_line(self, data: bytes) -> None:
        _, broken, after = data.rpartition(b"\n")
        self.tail = after if broken else self.tail + data
        if len(self.tail) > _MAX_TAIL:
            self.tail = self.tail[-_MAX_TAIL - 1 :]

    @property
    def at_boundary(self) -> bool:
        """Return True if output can be inserted now without splitting a sequence of the program."""
        return not self._pending

    def prompt(self, columns: int) -> bytes | None:
        """Return the line of the cursor if it can be reprinted unchanged; None if uncertain."""
        if self.alternate or not self.at_boundary or len(self.tail) > _MAX_TAIL:
            return None
        visible = _HARMLESS.sub(b"", self.tail)
        if (
            any(byte < 32 and byte != 13 for byte in visible)
            or len(visible.decode("utf-8", "replace")) >= columns
        ):
            return None
        return self.tail


def _half_character(data: bytes) -> bytes:
    """Return an incomplete UTF-8 character at the end, if any."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return b""
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[-back:] if back < length else b""
    return b""


class Keyboard:
    """Tracks whether a person is typing a line."""

    # A line untouched for this long is abandoned; a single key that answered a prompt looks like one.
    FORGOTTEN_S = 120.0
    QUIET_S = 1.5

    def __init__(self) -> None:
        self._begun = False
        self._at = float("-inf")

    def feed(self, data: bytes, now: float) -> None:
        """Process pressed keys."""
        plain = _SEQUENCE.sub(b"", data)
        if not plain:
            return  # arrow keys, or reports of the terminal itself
        self._at = now
        for byte in plain:
            if byte in b"\r\n\x03\x04\x15":
                self._begun = False
            elif byte >= 32 and byte != 127:
                self._begun = True

    def is_free(self, now: float) -> bool:
        """Return True if text may be typed now."""
        quiet = now - self._at
        return quiet >= (self.FORGOTTEN_S if self._begun else self.QUIET_S)


class InputRateLimit:
    """Limits input to `most` messages per `within_s` seconds."""

    def __init__(self, most: int, within_s: float) -> None:
        self.most = most
        self.within_s = within_s
        self._times: deque[float] = deque()

    def take(self, now: float) -> bool:
        """Take one slot; returns False if the limit is reached."""
        while self._times and now - self._times[0] >= self.within_s:
            self._times.popleft()
        if len(self._times) >= self.most:
            return False
        self._times.append(now)
        return True
