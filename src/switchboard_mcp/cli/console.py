"""Writing for people: colour, tables, lines that fit a terminal. Plain text where nobody looks.

Owns what a terminal needs and what must never reach one, such as a child's escape sequences. It does not know what is
being shown.
"""

from __future__ import annotations

import os
import sys
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TextIO

import msgspec

from switchboard_mcp.errors import Failure, as_text

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
ELLIPSIS = "…"
# Prose wider than this is hard to read, however wide the terminal is.
PROSE_WIDTH = 100
COLUMN_GAP = 2
# Below this a column says nothing.
NARROWEST_COLUMN = 12

# Tab and newline are text; every other control character is an order to a terminal.
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if code not in (9, 10)} | {13: ""}
# JSON may hold these unescaped, and some terminals obey them.
_JSON_CONTROLS = {code: f"\\u{code:04x}" for code in range(127, 160)}


class Styled(msgspec.Struct, frozen=True):
    """A text and how it looks on a terminal."""

    text: str
    style: str = ""


Cell = str | Styled


def use_colour(is_terminal: bool, environ: Mapping[str, str]) -> bool:
    """Colour on a terminal, unless the user said otherwise in one of the usual ways."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    return is_terminal and environ.get("TERM") != "dumb"


def one_line(text: str) -> str:
    """The text on one line, without anything a terminal would obey."""
    return " ".join(text.split()).translate(_CONTROLS)


def plural(count: int, one: str, many: str = "") -> str:
    """A number and its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def visible_width(text: str) -> int:
    """How many columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def truncate(text: str, width: int) -> str:
    """The text in at most `width` columns."""
    if visible_width(text) <= width:
        return text
    taken, room = "", width - 1
    for character in text:
        room -= _columns(character)
        if room < 0:
            break
        taken += character
    return taken.rstrip() + ELLIPSIS


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in "\u200b\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class Screen:
    """One stream: a terminal, or a pipe or file that gets plain text."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self.stream = stream
        self.is_terminal = stream.isatty()
        self.has_colour = use_colour(self.is_terminal, environ)
        self._columns = environ.get("COLUMNS", "")

    def size(self) -> os.terminal_size | None:
        """Columns and rows of the terminal; None where there is none."""
        if not self.is_terminal:
            return None
        try:
            size = os.get_terminal_size(self.stream.fileno())
        except (OSError, ValueError):
            size = os.terminal_size((80, 24))
        columns = int(self._columns) if self._columns.isdecimal() else size.columns
        return os.terminal_size((columns or 80, size.lines or 24))

    def paint(self, text: str, style: str) -> str:
        """The text in a style, or as it is."""
        if not self.has_colour or not style or not text:
            return text
        codes = ";".join(STYLES[name] for name in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m"

    def line(self, text: str = "", style: str = "") -> None:
        """Write one line."""
        self.stream.write(self.paint(text, style) + "\n")

    def text(self, text: str, style: str = "") -> None:
        """Write what somebody else said: all of it to a pipe, nothing that gives orders to a terminal."""
        self.line(self.sanitize(text), style)

    def sanitize(self, text: str) -> str:
        """The text without what a terminal would obey; a pipe gets it as it is."""
        return text.translate(_CONTROLS) if self.is_terminal else text

    def prose(self, text: str, indent: str = "", style: str = "") -> None:
        """Write a text of one or more lines, wrapped where the terminal is too narrow."""
        size = self.size()
        width = min(size.columns, PROSE_WIDTH) - len(indent) if size else 0
        for line in text.translate(_CONTROLS).split("\n"):
            for piece in (
                textwrap.wrap(line, max(width, 20), break_on_hyphens=False) or [""] if width else [line]
            ):
                self.line(f"{indent}{self.paint(piece, style)}" if piece else "")

    def entry(self, name: str, rest: str, style: str, indent: str = "") -> None:
        """Write a name and what belongs to it; further lines stand further in."""
        size = self.size()
        text = one_line(name + rest)
        lines = (
            textwrap.wrap(text, size.columns, initial_indent=indent, subsequent_indent=f"{indent}    ")
            if size
            else []
        )
        first, *others = lines or [indent + text]
        head = indent + one_line(name)
        painted = (
            indent + self.paint(head[len(indent) :], style) + first[len(head) :]
            if first.startswith(head)
            else first
        )
        self.line(painted)
        for line in others:
            self.line(line)

    def table(
        self, rows: Sequence[Sequence[Cell]], header: Sequence[str] = (), indent: int = 0, align: str = ""
    ) -> None:
        """Write columns that line up, those with an `r` in `align` at the right. The last one is cut where it must."""
        styled = [[_styled(cell) for cell in row] for row in rows]
        if header:
            styled.insert(0, [Styled(name, "dim") for name in header])
        if not styled:
            return
        columns = len(styled[0]) - 1
        widths = [max(visible_width(row[index].text) for row in styled) for index in range(columns)]
        size = self.size()
        room = size.columns - indent - sum(widths) - COLUMN_GAP * columns if size else None
        for row in styled:
            parts = [" " * indent]
            for index, (cell, width) in enumerate(zip(row, widths, strict=False)):
                padding, gap = " " * (width - visible_width(cell.text)), " " * COLUMN_GAP
                text = self.paint(cell.text, cell.style)
                parts.append((padding + text if align[index : index + 1] == "r" else text + padding) + gap)
            last = row[-1].text if room is None else truncate(row[-1].text, max(room, NARROWEST_COLUMN))
            self.line("".join((*parts, self.paint(last, row[-1].style))).rstrip())

    def json(self, value: object) -> None:
        """Write a value for programs: one line, or indented where a person looks. Bytes are JSON already."""
        data = value if isinstance(value, bytes) else msgspec.json.encode(value)
        if self.is_terminal:
            self.line(msgspec.json.format(data, indent=2).decode().translate(_JSON_CONTROLS))
            return
        buffer = getattr(self.stream, "buffer", None)
        if buffer is None:
            self.stream.write(data.decode() + "\n")
        else:  # JSON is UTF-8, whatever the locale says
            self.stream.flush()
            buffer.write(data + b"\n")


class Console:
    """Where a command writes: answers to `out`, everything else to `err`."""

    def __init__(self, out: TextIO, err: TextIO, environ: Mapping[str, str]) -> None:
        self.out = Screen(out, environ)
        self.err = Screen(err, environ)

    @classmethod
    def of_process(cls) -> Console:
        """The process's own stdout and stderr. A character the locale cannot write must not end a command."""
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        return cls(sys.stdout, sys.stderr, os.environ)

    def show_failure(self, problem: Failure) -> None:
        """Say what went wrong and what to do about it."""
        first, *rest = as_text(problem).split("\n")
        self.err.line(f"{self.err.paint('switchboard:', 'bold red')} {self.err.sanitize(first)}")
        for line in rest:
            self.err.text(line)

    def warn(self, message: str) -> None:
        """Say what looks wrong and does not stop the rest."""
        self.err.line(f"{self.err.paint('warning:', 'yellow')} {one_line(message)}")

    def flush(self) -> None:
        """Push everything out, so that a reader who has gone is noticed here."""
        self.out.stream.flush()
        self.err.stream.flush()


def _styled(cell: Cell) -> Styled:
    return Styled(one_line(cell)) if isinstance(cell, str) else Styled(one_line(cell.text), cell.style)
