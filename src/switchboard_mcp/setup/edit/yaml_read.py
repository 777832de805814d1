"""Reading the plain part of YAML: maps, lists, texts, numbers; flow forms on one line; texts of several lines.

Owns a reader for what hosts write into their own settings. Anchors, tags, texts that run on over lines and the like are
refused: an editor that does not understand a block must not touch it.
"""

from __future__ import annotations

import json
import re

from msgspec import Struct

from switchboard_mcp.setup.edit.text_edit import UnsafeEditError

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_KEY = re.compile(
    r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s#\[\]{},&*!|>%@`'"-][^#\n]*?|-[^\s#][^#\n]*?)\s*:(?:\s+|$)"""
)
_QUOTED = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')""")
_WORDS: dict[str, object] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


class Line(Struct):
    """One line that says something."""

    number: int
    indent: int
    text: str


def significant(lines: list[str], start: int, end: int) -> list[Line]:
    """The lines that are neither blank nor comment."""
    found: list[Line] = []
    for number in range(start, end):
        text = lines[number].rstrip("\r\n")
        stripped = text.strip(" ")
        if not stripped or stripped.startswith("#"):
            continue
        indent = len(text) - len(text.lstrip(" "))
        if text[indent] == "\t":
            raise _beyond(number, "a tab")
        found.append(Line(number, indent, text[indent:].rstrip()))
    return found


def parse(lines: list[str], start: int, end: int) -> object:
    """The value of a block of lines."""
    found = significant(lines, start, end)
    if not found:
        return None
    reader = _Reader(lines, end, found)
    value = reader.block(found[0].indent)
    if reader.at < len(found):
        raise _beyond(found[reader.at].number, "indentation that does not fit")
    return value


class _Reader:
    def __init__(self, raw: list[str], end: int, lines: list[Line]) -> None:
        self.raw = raw
        self.end = end
        self.lines = lines
        self.at = 0

    def block(self, indent: int) -> object:
        line = self.lines[self.at]
        if line.text == "-" or line.text.startswith("- "):
            return self._list(indent)
        if _KEY.match(line.text):
            return self._map(indent)
        self.at += 1
        return scalar(line.text, line.number)

    def _list(self, indent: int) -> list[object]:
        items: list[object] = []
        while (line := self._here(indent)) and (line.text == "-" or line.text.startswith("- ")):
            rest = line.text[1:].lstrip(" ")
            if not rest or rest.startswith("#"):
                self.at += 1
                items.append(self._nested(indent, lists=False))
                continue
            inner = indent + len(line.text) - len(rest)
            # What stands after the dash is the first line of the item, as if it stood alone.
            self.lines[self.at] = Line(line.number, inner, rest)
            items.append(self.block(inner))
        return items

    def _map(self, indent: int) -> dict[str, object]:
        members: dict[str, object] = {}
        while line := self._here(indent):
            found = _KEY.match(line.text)
            if found is None:
                raise _beyond(line.number, "a line that is no `key: value`")
            name = str(scalar(found[1], line.number))
            if name in members:
                raise _beyond(line.number, f"`{name}` twice")
            rest = line.text[found.end() :]
            self.at += 1
            if not rest or rest.startswith("#"):
                members[name] = self._nested(indent, lists=True)
            elif rest[0] in "|>":
                members[name] = self._text(line, rest, indent)
            else:
                members[name] = scalar(rest, line.number)
        return members

    def _here(self, indent: int) -> Line | None:
        """The next line, where it belongs to the block with this indentation."""
        if self.at >= len(self.lines) or self.lines[self.at].indent < indent:
            return None
        line = self.lines[self.at]
        if line.indent > indent:
            raise _beyond(line.number, "a text that runs on, or indentation that does not fit")
        return line

    def _nested(self, indent: int, *, lists: bool) -> object:
        if self.at >= len(self.lines):
            return None
        line = self.lines[self.at]
        same = lists and line.indent == indent and (line.text == "-" or line.text.startswith("- "))
        return self.block(line.indent) if line.indent > indent or same else None

    def _text(self, line: Line, sign: str, indent: int) -> str:
        """A text of several lines, `|` as it is, `>` folded."""
        taken: list[str] = []
        number = line.number + 1
        while number < self.end:
            text = self.raw[number].rstrip("\r\n")
            if text.strip() and len(text) - len(text.lstrip(" ")) <= indent:
                break
            taken.append(text)
            number += 1
        while self.at < len(self.lines) and self.lines[self.at].number < number:
            self.at += 1
        margin = min((len(text) - len(text.lstrip(" ")) for text in taken if text.strip()), default=0)
        body = [text[margin:] for text in taken]
        while body and not body[-1].strip():
            body.pop()
        whole = "\n".join(body) if sign[0] == "|" else " ".join(body)
        return whole if "-" in sign.split("#")[0] else whole + "\n"


def scalar(text: str, number: int) -> object:
    """The value of what stands on one line."""
    text = text.strip()
    if quoted := _QUOTED.fullmatch(_without_comment(text)):
        return _unquoted(quoted[1], number)
    text = _without_comment(text)
    if text[:1] in ("[", "{"):
        value, rest = _flow(text, number)
        if rest.strip():
            raise _beyond(number, "something after a closing bracket")
        return value
    if text[:1] in ("&", "*", "!", "|", ">", "%", "@", "`", '"', "'"):
        raise _beyond(number, f"`{text[:1]}` at the beginning of a value")
    return _plain(text)


def _plain(text: str) -> object:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _without_comment(text: str) -> str:
    at = 0
    while at < len(text):
        if text[at] in "\"'" and (quoted := _QUOTED.match(text, at)) and (at == 0 or text[at - 1] in " [{,:"):
            at = quoted.end()
        elif text[at] == "#" and (at == 0 or text[at - 1] in " \t"):
            return text[:at].rstrip()
        else:
            at += 1
    return text.rstrip()


def _flow(text: str, number: int) -> tuple[object, str]:
    """A value in brackets, or a part of one; and what comes after it."""
    text = text.lstrip()
    if text.startswith("["):
        items: list[object] = []
        rest = text[1:].lstrip()
        while not rest.startswith("]"):
            item, rest = _flow(rest, number)
            items.append(item)
            rest = _comma(rest, "]", number)
        return items, rest[1:]
    if text.startswith("{"):
        members: dict[str, object] = {}
        rest = text[1:].lstrip()
        while not rest.startswith("}"):
            name, colon, rest = _flow_key(rest, number)
            value, rest = _flow(rest, number) if colon else (None, rest)
            members[name] = value
            rest = _comma(rest, "}", number)
        return members, rest[1:]
    if quoted := _QUOTED.match(text):
        return _unquoted(quoted[1], number), text[quoted.end() :].lstrip()
    end = next((at for at, character in enumerate(text) if character in ",]}"), -1)
    if end < 0 or text[:1] in ("&", "*", "!"):
        raise _beyond(number, "brackets that do not close on the same line")
    return _plain(text[:end].strip()), text[end:]


def _flow_key(text: str, number: int) -> tuple[str, bool, str]:
    if quoted := _QUOTED.match(text):
        name, rest = _unquoted(quoted[1], number), text[quoted.end() :].lstrip()
    else:
        end = next((at for at, character in enumerate(text) if character in ":,}"), -1)
        if end < 0:
            raise _beyond(number, "brackets that do not close on the same line")
        name, rest = text[:end].strip(), text[end:]
    return name, rest.startswith(":"), rest[1:].lstrip() if rest.startswith(":") else rest


def _comma(rest: str, closing: str, number: int) -> str:
    rest = rest.lstrip()
    if rest.startswith(","):
        return rest[1:].lstrip()
    if not rest.startswith(closing):
        raise _beyond(number, "brackets that do not close on the same line")
    return rest


def _unquoted(text: str, number: int) -> str:
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    try:
        return str(json.loads(text))
    except json.JSONDecodeError:
        raise _beyond(number, "an escape that is not known") from None


def _beyond(number: int, what: str) -> UnsafeEditError:
    return UnsafeEditError(f"has {what} at line {number + 1}, which is beyond this small YAML editor.")
