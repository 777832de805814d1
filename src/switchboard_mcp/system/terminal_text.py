"""Cleans text from elsewhere of what a terminal interprets: escape sequences, other controls, text direction. Pure."""

from __future__ import annotations

from typing import Any, Protocol

# Characters that change the direction of the text around them, and so what a person reads.
_DIRECTION = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_C1 = range(127, 160)
# Tab and newline are text; a terminal interprets every other control character.
_CONTROLS = {code: "\ufffd" for code in (*range(32), *_C1, *_DIRECTION) if code not in (9, 10)} | {13: ""}
# JSON may contain these unescaped.
_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in (*_C1, *_DIRECTION)}


class TextStream(Protocol):
    """The part of a text stream that is needed here."""

    def write(self, text: str, /) -> Any:
        """Write a text."""

    def isatty(self) -> bool:
        """Return True for a terminal."""


def clean(text: str) -> str:
    """Return the text without anything that a terminal interprets."""
    return text if text.isascii() and text.isprintable() else text.translate(_CONTROLS)


def escape_json(text: str) -> str:
    """Return JSON that means the same, without anything that a terminal interprets."""
    return text.translate(_JSON_ESCAPES)


def write_clean(stream: TextStream, text: str) -> None:
    """Write a text: cleaned to a terminal, unchanged to a pipe or file."""
    stream.write(clean(text) if stream.isatty() else text)
