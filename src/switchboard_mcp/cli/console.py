"""Writes text for people: colour, tables and wrapped lines on a terminal, plain text to a pipe or file.

Removes what must never reach a terminal, such as a child's escape sequences. It does not know what is being shown.
"""

from __future__ import annotations

import os
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

import msgspec

from switchboard_mcp.errors import Failure, as_text

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
ELLIPSIS = "…"
# Prose wider than this is hard to read, however wide the terminal is.
PROSE_WIDTH = 100
COLUMN_GAP = 2
# A narrower column is unreadable.
NARROWEST_COLUMN = 12

# Tab and newline are text; a terminal interprets every other control character.
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if code not in (9, 10)} | {13: ""}
# JSON may contain these unescaped, and some terminals interpret them.
_JSON_CONTROLS = {code: f"\\u{code:04x}" for code in range(127, 160)}


class Styled(msgspec.Struct, frozen=True):
    """A text and its style on a terminal."""

    text: str
    style: str = ""


Cell = str | Styled


def use_colour(is_terminal: bool, environ: Mapping[str, str]) -> bool:
    """Return True on a terminal, unless `NO_COLOR`, `CLICOLOR_FORCE` or `TERM` says otherwise."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    return is_terminal and environ.get("TERM") != "dumb"


def one_line(text: str) -> str:
    """Return the text on one line, without control characters."""
    return " ".join(text.split()).translate(_CONTROLS)


def plural(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun, in the singular or plural."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def visible_width(text: str) -> int:
    """Return the number of terminal columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def truncate(text: str, width: int) -> str:
    """Shorten the text to at most `width` columns."""
    if visible_width(text) <= width:
        return text
    taken, room = "", width - 1
    for character in text:
        room -= _columns(character)
        if room < 0:
            break
        taken += character
    return taken.rstrip() + ELLIPSIS


def format_duration(seconds: float) -> str:
    """Format a time span in one or two units.

    >>> format_duration(5), format_duration(150), format_duration(7500), format_duration(200000)
    ('5 s', '2 min', '2 h 05', '2 d 7 h')
    """
    minutes, left = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours} h {minutes:02d}" if hours else f"{minutes} min" if minutes else f"{left} s"


def format_table(
    rows: Sequence[Sequence[Styled]],
    paint: Callable[[str, str], str],
    *,
    width: int | None = None,
    align: str = "",
    strict: bool = False,
) -> list[str]:
    """Return the rows as lines of aligned columns.

    With a `width`, the last column is cut to fit but keeps at least `NARROWEST_COLUMN`; with `strict`, no line is ever
    wider than `width`, even if whole columns are lost.
    """
    if not rows:
        return []
    last = len(rows[0]) - 1
    widths = [max(visible_width(row[index].text) for row in rows) for index in range(last + 1)]
    lines = []
    for row in rows:
        parts, room = [], width
        for index, cell in enumerate(row):
            column, text = widths[index], cell.text
            if room is not None and (strict or index == last):
                most = room if strict else max(room, NARROWEST_COLUMN)
                column = min(column, max(most, 0))
                text = truncate(text, column) if column else ""
            padding = " " * (column - visible_width(text))
            painted = paint(text, cell.style)
            parts.append(padding + painted if align[index : index + 1] == "r" else painted + padding)
            if room is not None:
                room -= widths[index] + COLUMN_GAP
        lines.append((" " * COLUMN_GAP).join(parts).rstrip())
    return lines


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in "\u200b\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class Screen:
    """One output stream: a terminal, or a pipe or file that gets plain text."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self.stream = stream
        self.is_terminal = stream.isatty()
        self.has_colour = use_colour(self.is_terminal, environ)
        self._columns = environ.get("COLUMNS", "")

    def size(self) -> os.terminal_size | None:
        """Return the size of the terminal; None if the stream is not one."""
        if not self.is_terminal:
            return None
        try:
            size = os.get_terminal_size(self.stream.fileno())
        except (OSError, ValueError):
            size = os.terminal_size((80, 24))
        columns = int(self._columns) if self._columns.isdecimal() else size.columns
        return os.terminal_size((columns or 80, size.lines or 24))

    def paint(self, text: str, style: str) -> str:
        """Return the text in a style; unchanged if the stream has no colour."""
        if not self.has_colour or not style or not text:
            return text
        codes = ";".join(STYLES[name] for name in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m"

    def line(self, text: str = "", style: str = "") -> None:
        """Write one line."""
        self.stream.write(self.paint(text, style) + "\n")

    def text(self, text: str, style: str = "") -> None:
        """Write text from elsewhere: unchanged to a pipe, without control characters to a terminal."""
        self.line(self.sanitize(text), style)

    def sanitize(self, text: str) -> str:
        """Remove control characters if the stream is a terminal."""
        return text.translate(_CONTROLS) if self.is_terminal else text

    def prose(self, text: str, indent: str = "", style: str = "") -> None:
        """Write a text of one or more lines, wrapped to the terminal."""
        size = self.size()
        width = min(size.columns, PROSE_WIDTH) - len(indent) if size else 0
        for line in text.translate(_CONTROLS).split("\n"):
            for piece in (
                textwrap.wrap(line, max(width, 20), break_on_hyphens=False) or [""] if width else [line]
            ):
                self.line(f"{indent}{self.paint(piece, style)}" if piece else "")

    def entry(self, name: str, rest: str, style: str, indent: str = "") -> None:
        """Write a name and its details; continuation lines are indented."""
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
        """Write aligned columns, right-aligned where `align` has an `r`. The last one is cut to fit the terminal."""
        styled = [[_styled(cell) for cell in row] for row in rows]
        if header:
            styled.insert(0, [Styled(name, "dim") for name in header])
        size = self.size()
        width = size.columns - indent if size else None
        for line in format_table(styled, self.paint, width=width, align=align):
            self.line((" " * indent + line).rstrip())

    def json(self, value: object) -> None:
        """Write a value as JSON: indented on a terminal, else on one line. Bytes are taken as encoded JSON."""
        data = value if isinstance(value, bytes) else msgspec.json.encode(value)
        if self.is_terminal:
            self.line(msgspec.json.format(data, indent=2).decode().translate(_JSON_CONTROLS))
            return
        buffer = getattr(self.stream, "buffer", None)
        if buffer is None:
            self.stream.write(data.decode() + "\n")
        else:  # JSON is UTF-8, whatever the locale is
            self.stream.flush()
            buffer.write(data + b"\n")


class Console:
    """The two streams of a command: results go to `out`, everything else to `err`."""

    def __init__(self, out: TextIO, err: TextIO, environ: Mapping[str, str]) -> None:
        self.out = Screen(out, environ)
        self.err = Screen(err, environ)

    @classmethod
    def of_process(cls) -> Console:
        """Return the console of this process. Characters the locale cannot encode are replaced, never fatal."""
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        return cls(sys.stdout, sys.stderr, os.environ)

    def show_failure(self, problem: Failure) -> None:
        """Print a failure and its hint."""
        first, *rest = as_text(problem).split("\n")
        self.err.line(f"{self.err.paint('switchboard:', 'bold red')} {self.err.sanitize(first)}")
        for line in rest:
            self.err.text(line)

    def warn(self, message: str) -> None:
        """Print a warning."""
        self.err.line(f"{self.err.paint('warning:', 'yellow')} {one_line(message)}")

    def flush(self) -> None:
        """Flush both streams; raises BrokenPipeError if the reader is gone."""
        self.out.stream.flush()
        self.err.stream.flush()


def _styled(cell: Cell) -> Styled:
    return Styled(one_line(cell)) if isinstance(cell, str) else Styled(one_line(cell.text), cell.style)
