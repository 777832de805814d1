"""Writes text for people: colour, tables and wrapped lines on a terminal, plain text to a pipe or file.

A terminal gets no escape sequence, control or direction character that was not painted here: `OutputStream`, through
which everything passes, cleans the rest. It does not know what is being shown.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import msgspec

from switchboard_mcp.errors import Failure, as_text
from switchboard_mcp.system.terminal_text import clean, escape_json

STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
ELLIPSIS = "…"
# Prose wider than this is hard to read, however wide the terminal is.
PROSE_WIDTH = 100
COLUMN_GAP = 2
# A column of text narrower than the first is tiring to read, one narrower than the second unreadable.
COMFORTABLE_COLUMN = 24
NARROWEST_COLUMN = 12
# Longer cells are cut.
CELL_LINES = 4
# Examples in a help text are indented by less than this, the second column of a table by more.
MOST_EXAMPLE_INDENT = 8

# Marks the beginning of a style until the text is written. It is random, so that no other text contains it.
_MARK = f"\x1b{secrets.token_hex(8)}["
_STYLE = re.compile(re.escape(_MARK) + r"[0-9;]*m")


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
    return clean(" ".join(text.split()))


def plural(count: int, singular: str, many: str = "") -> str:
    """Return a number with its noun, in the singular or plural."""
    return f"{count:,} {singular if count == 1 else many or singular + 's'}"


def visible_width(text: str) -> int:
    """Return the number of terminal columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def truncate(text: str, width: int) -> str:
    """Shorten the text to at most `width` columns."""
    if visible_width(text) <= width:
        return text
    kept, room = "", width - 1
    for character in text:
        room -= _columns(character)
        if room < 0:
            break
        kept += character
    return kept.rstrip() + ELLIPSIS


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


def wrap(text: str, width: int, lines: int) -> list[str]:
    """Wrap one line of text at words to `width` columns, and cut it after a number of lines."""
    wrapped = [""]
    for word in text.split(" "):
        joined = f"{wrapped[-1]} {word}" if wrapped[-1] else word
        if visible_width(joined) <= width:
            wrapped[-1] = joined
            continue
        rest = word
        if not wrapped[-1]:
            wrapped.pop()
        while visible_width(rest) > width and len(wrapped) < lines:
            piece = _fitting(rest, width) or rest[0]
            wrapped.append(piece)
            rest = rest[len(piece) :]
        wrapped.append(rest)
        if len(wrapped) > lines:
            return [*wrapped[: lines - 1], _fitting(wrapped[lines - 1], width - 1).rstrip() + ELLIPSIS]
    return wrapped


def wrap_line(line: str, width: int, hang: int = COLUMN_GAP) -> list[str]:
    """Wrap a line that may be painted at its words.

    Further lines are indented by `hang` more than the first, or like its second column. A word that is too long is
    left for the terminal to break, so that it can be copied.
    """
    if visible_width(_STYLE.sub("", line)) <= width:
        return [line]
    plain = _STYLE.sub("", line)
    columns = re.match(r"\s*\S+(?: \S+)*\s{2,}(?=\S)", plain)
    margin = columns.end() if columns else len(plain) - len(plain.lstrip()) + hang
    if margin > width // 2:
        margin = min(len(plain) - len(plain.lstrip()) + COLUMN_GAP, width // 2)
    lines = [""]
    for gap, word in re.findall(r"(\s*)(\S+)", line):
        joined = f"{lines[-1]}{gap}{word}"
        if lines[-1].strip() and visible_width(_STYLE.sub("", joined)) > width:
            lines.append(" " * margin + word)
        else:
            lines[-1] = joined
    return lines


def _wrap_prose(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, break_on_hyphens=False, break_long_words=False) or [""]


def _join_paragraphs(text: str) -> str:
    """Join lines of prose, which begin at the margin, so they can be wrapped again."""
    return re.sub(r"(?<=[^\s:])\n(?=[a-zA-Z(`])(?!usage:|exit codes:|examples?:)", " ", text)


def fit_columns(widths: Sequence[int], width: int, fixed: str, optional: Sequence[int]) -> dict[int, int]:
    """Return the columns that fit into `width`, with the width of each.

    Columns in `optional` are left out, the first one first, until the others are comfortable to read. Those are then
    made narrower, the widest first; columns for which `fixed` has an `r` last.
    """
    kept = {column: min(natural, width) for column, natural in enumerate(widths)}

    def is_fixed(column: int) -> bool:
        return fixed[column : column + 1] == "r"

    def excess(most: int) -> int:
        needed = (size if is_fixed(column) else min(size, most) for column, size in kept.items())
        return sum(needed) + COLUMN_GAP * (len(kept) - 1) - width

    for column in optional:
        if excess(COMFORTABLE_COLUMN) > 0:
            del kept[column]
    for least, may_shrink in ((NARROWEST_COLUMN, False), (2, False), (2, True)):
        while excess(width) > 0:
            candidates = [
                index for index in kept if kept[index] > least and (may_shrink or not is_fixed(index))
            ]
            if not candidates:
                break
            kept[max(candidates, key=kept.__getitem__)] -= 1
    while excess(width) > 0 and len(kept) > 1:
        kept.popitem()
    return kept


def format_table(
    rows: Sequence[Sequence[Styled]],
    paint: Callable[[str, str], str],
    *,
    width: int | None = None,
    align: str = "",
    optional: Sequence[int] = (),
    cell_lines: int = CELL_LINES,
) -> list[str]:
    """Return the rows as lines of aligned columns, right-aligned where `align` has an `r`.

    With a `width`, no line is wider: columns in `optional` are left out, the least useful first, and cells are wrapped
    to at most `cell_lines`, then cut.
    """
    if not rows:
        return []
    widths = [max(visible_width(row[column].text) for row in rows) for column in range(len(rows[0]))]
    kept = dict(enumerate(widths)) if width is None else fit_columns(widths, width, align, optional)
    lines = []
    for row in rows:
        cells = {
            column: wrap(row[column].text, size, cell_lines) if width is not None else [row[column].text]
            for column, size in kept.items()
        }
        for number in range(max(map(len, cells.values()))):
            parts = []
            for column, texts in cells.items():
                text = texts[number] if number < len(texts) else ""
                padding = " " * (kept[column] - visible_width(text))
                painted = paint(text, row[column].style)
                parts.append(padding + painted if align[column : column + 1] == "r" else painted + padding)
            lines.append((" " * COLUMN_GAP).join(parts).rstrip())
    return lines


def _fitting(text: str, width: int) -> str:
    """Return the first characters, as many as fit into `width` columns."""
    used = 0
    for character in text:
        width -= _columns(character)
        if width < 0:
            break
        used += 1
    return text[:used]


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in "\u200b\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def render(text: str, is_terminal: bool) -> str:
    """Return painted text as it is written. For a terminal, everything that was not painted is cleaned."""
    parts = text.split(_MARK)
    return "\x1b[".join(map(clean, parts) if is_terminal else parts)


class OutputStream:
    """A text stream that renders what is written to it. The other members are those of the stream behind it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        """Write text."""
        self._stream.write(render(text, self._is_terminal))

    def write_sequence(self, sequence: str) -> None:
        """Write escape sequences of our own. Text within must have been rendered."""
        self._stream.write(sequence)


class Screen:
    """One output stream: a terminal, or a pipe or file that gets plain text."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self.stream = OutputStream(stream)
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
        return f"{_MARK}{codes}m{text}{_MARK}0m"

    def line(self, text: str = "", style: str = "") -> None:
        """Write one line, wrapped at words if the terminal is too narrow for it."""
        size, painted = self.size(), self.paint(text, style)
        for piece in wrap_line(painted, size.columns) if size else [painted]:
            self.stream.write(piece + "\n")

    def text(self, text: str, style: str = "") -> None:
        """Write text without wrapping it."""
        self.stream.write(self.paint(text, style) + "\n")

    def help(self, text: str) -> None:
        """Write a help text; on a terminal, its paragraphs are wrapped to the width."""
        size = self.size()
        if size is None:
            self.stream.write(text)
            return
        for line in _join_paragraphs(text).splitlines():
            # A command hangs, in examples too; a paragraph and the second column of a table do not.
            is_command = line.startswith("usage:") or 0 < len(line) - len(line.lstrip()) < MOST_EXAMPLE_INDENT
            for piece in wrap_line(line, size.columns, COLUMN_GAP if is_command else 0):
                self.stream.write(piece + "\n")

    def render(self, text: str) -> str:
        """Return painted text for use between escape sequences of our own."""
        return render(text, self.is_terminal)

    def prose(self, text: str, indent: str = "", style: str = "") -> None:
        """Write a text of one or more lines, wrapped to the terminal."""
        size = self.size()
        width = min(size.columns, PROSE_WIDTH) - len(indent) if size else 0
        for line in clean(text).split("\n"):
            for piece in _wrap_prose(line, max(width, 20)) if width else [line]:
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
        self,
        rows: Sequence[Sequence[Cell]],
        header: Sequence[str] = (),
        indent: int = 0,
        align: str = "",
        optional: Sequence[int] = (),
        cell_lines: int = CELL_LINES,
    ) -> None:
        """Write aligned columns, right-aligned where `align` has an `r`.

        On a terminal that is too narrow, cells are wrapped to at most `cell_lines`, and the columns in `optional` are
        left out, the least useful first.
        """
        styled = [[_styled(cell) for cell in row] for row in rows]
        if header:
            styled.insert(0, [Styled(name, "dim") for name in header])
        size = self.size()
        width = max(size.columns - indent, NARROWEST_COLUMN) if size else None
        for line in format_table(
            styled, self.paint, width=width, align=align, optional=optional, cell_lines=cell_lines
        ):
            self.stream.write((" " * indent + line).rstrip() + "\n")

    def json(self, value: object) -> None:
        """Write a value as JSON: indented on a terminal, else on one line. Bytes are taken as encoded JSON."""
        data = value if isinstance(value, bytes) else msgspec.json.encode(value)
        if self.is_terminal:
            self.line(escape_json(msgspec.json.format(data, indent=2).decode()))
            return
        buffer = getattr(self.stream, "buffer", None)
        if buffer is None:
            self.stream.write(data.decode() + "\n")
        else:  # JSON is UTF-8, whatever the locale is
            self.stream.flush()
            buffer.write(data + b"\n")

    def json_line(self, value: object) -> None:
        """Write a value as JSON on one line, also on a terminal."""
        if self.is_terminal:
            self.stream.write(escape_json(msgspec.json.encode(value).decode()) + "\n")
        else:
            self.json(value)


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
        self.err.line(f"{self.err.paint('switchboard:', 'bold red')} {first}")
        for line in rest:
            self.err.line(line)

    def warn(self, message: str) -> None:
        """Print a warning."""
        self.err.line(f"{self.err.paint('warning:', 'yellow')} {one_line(message)}")

    def flush(self) -> None:
        """Flush both streams; raises BrokenPipeError if the reader is gone."""
        self.out.stream.flush()
        self.err.stream.flush()


def _styled(cell: Cell) -> Styled:
    return Styled(one_line(cell)) if isinstance(cell, str) else Styled(one_line(cell.text), cell.style)
