"""What may be typed into somebody's terminal, and what is known of it from the bytes that pass.

Text from elsewhere is typed only if it is nothing but text: no control characters, no escape sequences, nothing that
hides what it is. Several lines go only to a program that takes pasted text as such (bracketed paste), so that no line
break becomes an Enter; the one Enter at the end is ours. Pure: bytes in, decisions out.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque

# A terminal's line buffer holds 4,096 bytes; what is beyond would be lost without a word.
MAX_TYPED_BYTES = 4_000
PASTE_BEGINS, PASTE_ENDS, ENTER = b"\x1b[200~", b"\x1b[201~", b"\r"
# Controls, what reorders or hides text, halves of characters, private meanings, and line breaks of other kinds.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})

_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI
    rb"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC
    rb"|[PX^_][^\x1b]*\x1b\\"  # DCS and its kin
    rb"|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"  # the short ones
)
_MODES = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")
_ALTERNATE = frozenset({b"47", b"1047", b"1049"})
_PASTE = b"2004"
# A title is short; what a program hands to the clipboard is not.
_MAX_PENDING = 131_072
_MAX_TAIL = 4_096
# In a prompt these move nothing away from its line: colours, modes, erasing, steps along the line, titles.
_HARMLESS = re.compile(rb"\x1b(?:\[[0-9;?]*[mhlKJCD]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[=>]|[()][0-9A-Za-z])")


def to_keystrokes(payload: str, *, bracketed: bool) -> bytes | str:
    """The bytes of a text, without the Enter that ends it; or why it may not be typed.

    >>> typed("make test\\n", bracketed=False)
    b'make test'
    >>> typed("ls\\x1b[201~", bracketed=True)
    'it holds the control character U+001B'
    """
    text = payload.replace("\r\n", "\n").rstrip("\n")
    if not text.strip():
        return "there is nothing to type"
    for character in text:
        if character in "\n\t":
            continue
        if unicodedata.category(character) in _HIDDEN:
            return f"it holds the control character U+{ord(character):04X}"
    if not bracketed and "\n" in text:
        return "it has several lines, and the program in the terminal does not take pasted lines now"
    if not bracketed and "\t" in text:
        return "it holds a tab, which the program in the terminal would take for a key"
    data = text.encode()
    if len(data) > MAX_TYPED_BYTES:
        return f"it has {len(data)} bytes; at most {MAX_TYPED_BYTES} are typed at once"
    return PASTE_BEGINS + data.replace(b"\n", b"\r") + PASTE_ENDS if bracketed else data


class ScreenState:
    """A screen, by what the program writes to it."""

    def __init__(self) -> None:
        self.alternate = False
        self.bracketed = False
        self.tail = b""
        """What was written since the last line break."""
        self._pending = b""

    def feed(self, data: bytes) -> None:
        """The program has written this, in whatever pieces."""
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
        """Whether something written now stands between what the program writes, not in the middle of it."""
        return not self._pending

    def prompt(self, columns: int) -> bytes | None:
        """The line the cursor is on, where it can be written again as it is; None where nobody can be sure."""
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
    """The beginning of a UTF-8 character at the end, if there is one."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return b""
        if byte >= 0xC0:
            wanted = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[-back:] if back < wanted else b""
    return b""


class Keyboard:
    """Whether somebody is in the middle of typing a line."""

    # A line nobody went on with for so long is no longer being typed; a key that was an answer looks like one.
    FORGOTTEN_S = 120.0
    QUIET_S = 1.5

    def __init__(self) -> None:
        self._begun = False
        self._at = float("-inf")

    def feed(self, data: bytes, now: float) -> None:
        """These keys were pressed."""
        plain = _SEQUENCE.sub(b"", data)
        if not plain:
            return  # arrows, or what the terminal itself has to tell
        self._at = now
        for byte in plain:
            if byte in b"\r\n\x03\x04\x15":
                self._begun = False
            elif byte >= 32 and byte != 127:
                self._begun = True

    def is_free(self, now: float) -> bool:
        """Whether something may be typed in between."""
        quiet = now - self._at
        return quiet >= (self.FORGOTTEN_S if self._begun else self.QUIET_S)


class InputRateLimit:
    """So many in so long, and not one more."""

    def __init__(self, most: int, within_s: float) -> None:
        self.most = most
        self.within_s = within_s
        self._times: deque[float] = deque()

    def take(self, now: float) -> bool:
        """Whether one more is within it."""
        while self._times and now - self._times[0] >= self.within_s:
            self._times.popleft()
        if len(self._times) >= self.most:
            return False
        self._times.append(now)
        return True
