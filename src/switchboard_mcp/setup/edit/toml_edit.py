"""Edits the tables of one map in a TOML document and leaves every other character unchanged.

A scanner finds the span and key of each statement; only whole statements are changed. Every edit is verified with the
standard library's parser. tomlkit is not used: it drops the comment above the next table when a table is removed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, time
from typing import Any, Literal

from msgspec import Struct

from switchboard_mcp.setup.edit.text_edit import (
    TextEdit,
    UnsafeEditError,
    amend_value,
    apply_edits,
    newline_of,
    position,
)

_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_STRING = re.compile(r'"""(?:[^\\]|\\[\s\S])*?"{3,5}|\'\'\'[\s\S]*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'')
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Statement(Struct):
    """A header or a key/value pair with its lines. `path` is the full key, starting at the root."""

    kind: Literal["header", "array", "pair"]
    path: tuple[str, ...]
    start: int
    end: int


def read(text: str, key: Sequence[str]) -> object:
    """Return the plain value at a key, or None."""
    value: object = _parse(text)
    for name in key:
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return value


def entry_texts(text: str, key: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the source text of the named entries."""
    statements = scan(text)
    texts: dict[str, str] = {}
    for name in names:
        spans = _spans(text, statements, (*key, name))
        if spans:
            texts[name] = "".join(_ended_line(text[span.start : span.end]) for span in spans)
    return texts


def replace_tables(
    text: str, key: Sequence[str], remove: Sequence[str], put: Mapping[str, Mapping[str, object]]
) -> str:
    """Remove tables from a map and add others. Existing tables with the same name are kept."""
    present = read(text, key)
    put = {name: value for name, value in put.items() if name in remove or not _has(present, name)}
    texts = {name: _render_table((*key, name), value, newline_of(text)) for name, value in put.items()}
    return _apply(text, key, remove, texts, put)


def restore_tables(text: str, key: Sequence[str], remove: Sequence[str], texts: Mapping[str, str]) -> str:
    """Remove tables and put back others as they were written. Existing tables with the same name are kept."""
    present = read(text, key)
    back = {name: written for name, written in texts.items() if name in remove or not _has(present, name)}
    if any(not written.lstrip().startswith("[") for written in back.values()):
        # Pairs are relative to the table that contained them; on their own they must be rendered again as a full table.
        back = {name: _as_table(written, (*key, name), newline_of(text)) for name, written in back.items()}
    values = {name: _dict(read(written, (*key, name))) for name, written in back.items()}
    return _apply(text, key, remove, back, values)


def scan(text: str) -> list[Statement]:
    """Return all statements of a valid document."""
    _parse(text)
    statements: list[Statement] = []
    table: tuple[str, ...] = ()
    first = at = 1 if text.startswith("\ufeff") else 0
    while True:
        at = _skip_blank(text, at)
        if at >= len(text):
            return statements
        start = max(text.rfind("\n", 0, at) + 1, first)
        if text[at] == "[":
            double = text.startswith("[[", at)
            table, after = _key(text, at + (2 if double else 1))
            after = text.index("]", after) + (2 if double else 1)
            kind: Literal["header", "array", "pair"] = "array" if double else "header"
            path = table
        else:
            name, after = _key(text, at)
            after = _value_end(text, text.index("=", after) + 1)
            kind, path = "pair", (*table, *name)
        at = _next_line(text, after)
        statements.append(Statement(kind, path, start, at))


def _apply(
    text: str,
    key: Sequence[str],
    remove: Sequence[str],
    texts: Mapping[str, str],
    values: Mapping[str, Mapping[str, object]],
) -> str:
    statements = scan(text)
    _require_tables(statements, tuple(key))
    splices: list[TextEdit] = []
    place = -1
    for name in remove:
        spans = _spans(text, statements, (*key, name))
        if spans and place < 0 and text[spans[0].start :].lstrip(" \t").startswith("["):
            place = spans[0].start
        splices += spans
    end = newline_of(text)
    together = end.join(_ended_line(written) for written in texts.values())
    if together and place >= 0:
        first = next(splice for splice in splices if splice.start == place)
        gone = text[first.start : first.end]
        gap = end if gone.endswith((end + end, "\n\n")) else ""
        splices[splices.index(first)] = TextEdit(first.start, first.end, together + gap)
    elif together:
        tail = "" if not text or text.endswith("\n") else end
        gap = end if text.strip() else ""
        splices.append(TextEdit(len(text), len(text), tail + gap + together))
    return _verified(text, apply_edits(text, splices), key, remove, values)


def _spans(text: str, statements: Sequence[Statement], path: tuple[str, ...]) -> list[TextEdit]:
    """Return the spans of a key: adjacent statements as one, with comments between and blank lines after them."""
    spans: list[TextEdit] = []
    ours = [statement.path[: len(path)] == path for statement in statements]
    index = 0
    while index < len(statements):
        if not ours[index]:
            index += 1
            continue
        last = index
        while last + 1 < len(statements) and ours[last + 1]:
            last += 1
        end = statements[last].end
        if statements[index].kind != "pair":
            blank = re.compile(r"(?:[ \t]*\r?\n)*").match(text, end)
            end = blank.end() if blank else end
        spans.append(TextEdit(statements[index].start, end))
        index = last + 1
    return spans


def _require_tables(statements: Sequence[Statement], key: tuple[str, ...]) -> None:
    for statement in statements:
        if statement.path == key and statement.kind != "header":
            raise UnsafeEditError(
                f"has `{'.'.join(key)}` on one line. Write it as tables, [{'.'.join(key)}.NAME]."
            )


def _as_table(written: str, path: tuple[str, ...], end: str) -> str:
    """Return the statements of a key as one table."""
    if written.lstrip().startswith("["):
        return written
    value = _dict(_parse(written))
    for name in path:
        inner = value.get(name)
        value = inner if isinstance(inner, dict) else value
    return _render_table(path, value, end)


def _render_table(path: Sequence[str], value: Mapping[str, object], end: str) -> str:
    lines = [f"[{_dotted(path)}]"]
    lines += [f"{_dotted([name])} = {_literal(item)}" for name, item in value.items() if item is not None]
    return end.join(lines) + end


def _dotted(path: Sequence[str]) -> str:
    return ".".join(name if _BARE.fullmatch(name) else _literal(name) for name in path)


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return '"' + "".join(_escaped(character) for character in value) + '"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{_dotted([name])} = {_literal(item)}" for name, item in value.items()) + " }"
        )
    if isinstance(value, date | time):
        return value.isoformat()
    raise AssertionError(f"{type(value).__name__} cannot be written to a settings file")


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() or character == " " else f"\\U{ord(character):08x}"


def _key(text: str, at: int) -> tuple[tuple[str, ...], int]:
    """Return a dotted key and its end."""
    names: list[str] = []
    while True:
        at = _skip_space(text, at)
        match = _KEY.match(text, at)
        if match is None:
            raise UnsafeEditError(f"has an invalid key at {position(text, at)}.")
        names.append(_name(match[0]))
        after = _skip_space(text, match.end())
        if text[after : after + 1] != ".":
            return tuple(names), match.end()
        at = after + 1


def _name(written: str) -> str:
    if written[0] == "'":
        return written[1:-1]
    return str(tomllib.loads(f"key = {written}")["key"]) if written[0] == '"' else written


def _value_end(text: str, at: int) -> int:
    """Return the end of a value: the end of its line, or its closing bracket."""
    depth = 0
    while at < len(text):
        character = text[at]
        if character in "\"'":
            match = _STRING.match(text, at)
            if match is None:
                raise UnsafeEditError(f"has a string that is never closed at {position(text, at)}.")
            at = match.end()
            continue
        if character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "#":
            if depth == 0:
                return at
            at = _next_line(text, at)
            continue
        elif character == "\n" and depth == 0:
            return at
        at += 1
    return at


def _next_line(text: str, at: int) -> int:
    """Return the beginning of the next line. Only a comment may precede it."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _skip_space(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t"):
        at += 1
    return at


def _skip_blank(text: str, at: int) -> int:
    while at < len(text):
        if text[at] == "#":
            at = _next_line(text, at)
        elif text[at] in " \t\r\n":
            at += 1
        else:
            break
    return at


def _ended_line(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _has(value: object, name: str) -> bool:
    return isinstance(value, dict) and name in value


def _dict(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as problem:
        raise UnsafeEditError(f"is not valid TOML: {problem}.") from None
    except RecursionError:
        raise UnsafeEditError("is nested too deeply.") from None


def _verified(
    before: str,
    after: str,
    key: Sequence[str],
    remove: Sequence[str],
    put: Mapping[str, Mapping[str, object]],
) -> str:
    expected = _parse(before)
    added = {name: {k: v for k, v in members.items() if v is not None} for name, members in put.items()}
    amend_value(expected, key, remove, added)
    try:
        actual = _parse(after)
    except UnsafeEditError:
        actual = {}
    amend_value(actual, key, (), {})
    if actual != expected:
        raise UnsafeEditError("is written in a way that cannot be changed safely.")
    return after
