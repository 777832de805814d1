"""Applies edits to a text by span, and detects its line endings and indentation.

Not aware of any file format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

DEFAULT_INDENT = "  "


class TextEdit(Struct, frozen=True):
    """Replaces `text[start:end]`."""

    start: int
    end: int
    replacement: str = ""


class UnsafeEditError(Exception):
    """A file cannot be edited safely. The message follows the file name in a sentence."""


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """Return the text with all edits applied. They must not overlap."""
    parts: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda change: (change.start, change.end)):
        if edit.start < at:
            raise AssertionError("edits overlap")
        parts += (text[at : edit.start], edit.replacement)
        at = edit.end
    parts.append(text[at:])
    return "".join(parts)


def amend_value(
    document: object, path: Iterable[str], remove: Iterable[str], put: Mapping[str, object]
) -> None:
    """Apply the same change to a plain value, to compare it with the edited text."""
    for name in path:
        if isinstance(document, dict):
            document = document.setdefault(name, {})
    if isinstance(document, dict):
        for name in remove:
            document.pop(name, None)
        document.update(put)


def newline_of(text: str) -> str:
    """Return the line ending of the first line."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def indent_unit(text: str) -> str:
    """Return one level of indentation: that of the first indented line."""
    match = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return match[1] if match else DEFAULT_INDENT


def line_indent(text: str, at: int) -> str:
    """Return the white space at the beginning of the line that contains a position."""
    start = text.rfind("\n", 0, at) + 1
    match = re.match(r"[ \t]*", text[start:at])
    return match[0] if match else ""


def position(text: str, at: int) -> str:
    """Return the line and column of a position, counted from 1."""
    return f"line {text.count(chr(10), 0, at) + 1} column {at - text.rfind(chr(10), 0, at)}"
