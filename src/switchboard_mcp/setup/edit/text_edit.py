"""Changing a text in a few places, and leaving every other character as it is.

Owns the splice and what every editor needs to know of a text: its line ends and its indentation. Does not know any
format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

DEFAULT_INDENT = "  "


class TextEdit(Struct, frozen=True):
    """`text[start:end]` becomes `put`."""

    start: int
    end: int
    replacement: str = ""


class UnsafeEditError(Exception):
    """The text cannot be changed safely; says why, in words that follow a file name."""


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """The text with all splices made. They may not overlap."""
    parts: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda each: (each.start, each.end)):
        if edit.start < at:
            raise AssertionError("splices overlap")
        parts += (text[at : edit.start], edit.replacement)
        at = edit.end
    parts.append(text[at:])
    return "".join(parts)


def amend_value(
    document: object, path: Iterable[str], remove: Iterable[str], put: Mapping[str, object]
) -> None:
    """Do to a plain value what an editor has done to its text, so that the two can be compared."""
    for name in path:
        if isinstance(document, dict):
            document = document.setdefault(name, {})
    if isinstance(document, dict):
        for name in remove:
            document.pop(name, None)
        document.update(put)


def newline_of(text: str) -> str:
    """How its lines end: as the first one does."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def indent_unit(text: str) -> str:
    """What one level of indentation is: as the first line that has some."""
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found[1] if found else DEFAULT_INDENT


def line_indent(text: str, at: int) -> str:
    """The white space that the line of this place begins with."""
    start = text.rfind("\n", 0, at) + 1
    found = re.match(r"[ \t]*", text[start:at])
    return found[0] if found else ""


def position(text: str, at: int) -> str:
    """A place, as people name it."""
    return f"line {text.count(chr(10), 0, at) + 1} column {at - text.rfind(chr(10), 0, at)}"
