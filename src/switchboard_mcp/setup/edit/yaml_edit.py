"""Changing the entries of one block at the top of a YAML document, line by line, and no other line.

Owns where an entry begins and ends: a map has `name:` lines, a list has items with a `name`. Whatever the block holds
is read before and after; what cannot be read is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from switchboard_mcp.setup.edit.text_edit import UnsafeEditError, newline_of
from switchboard_mcp.setup.edit.yaml_read import parse, significant

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_WORDS = frozenset("true false null yes no on off y n".split())
_EMPTY = ("", "{}", "[]", "null", "~")


class _Block(Struct):
    """The lines of the block: `head` is the line of the key (-1 where there is none), the rest is `[start, end)`."""

    head: int
    start: int
    end: int


class _Entry(Struct):
    name: str
    value: object
    start: int
    end: int


def read(text: str, key: Sequence[str], *, listed: bool) -> object:
    """The entries by name; None where there are none."""
    lines = text.splitlines(keepends=True)
    block = _find(lines, key[0])
    return {entry.name: entry.value for entry in _entries(lines, block, listed)} if block.head >= 0 else None


def entry_texts(text: str, key: Sequence[str], names: Sequence[str], *, listed: bool) -> dict[str, str]:
    """The lines of entries, as they are written."""
    lines = text.splitlines(keepends=True)
    entries = _entries(lines, _find(lines, key[0]), listed)
    return {
        entry.name: "".join(lines[entry.start : entry.end]) for entry in entries if entry.name in set(names)
    }


def swap(
    text: str,
    key: Sequence[str],
    remove: Sequence[str],
    put: Mapping[str, Mapping[str, object]],
    *,
    listed: bool,
) -> str:
    """Take entries out of the block, and put others in."""
    lines = text.splitlines(keepends=True)
    end = newline_of(text)
    indent = _indent(lines, _find(lines, key[0]))
    texts = {name: _written(name, value, indent, end, listed) for name, value in put.items()}
    values = {name: {"name": name, **value} if listed else value for name, value in put.items()}
    return _changed(text, key, remove, texts, values, listed)


def restore(
    text: str, key: Sequence[str], remove: Sequence[str], texts: Mapping[str, str], *, listed: bool
) -> str:
    """Take entries out and put back others as they were written. Names that are there already are left alone."""
    values: dict[str, Mapping[str, object]] = {}
    for name, written in texts.items():
        whole = read(f"{key[0]}:\n{written}", key, listed=listed)
        value = whole.get(name) if isinstance(whole, dict) else None
        values[name] = value if isinstance(value, dict) else {}
    return _changed(text, key, remove, texts, values, listed)


def _changed(
    text: str,
    key: Sequence[str],
    remove: Sequence[str],
    texts: Mapping[str, str],
    values: Mapping[str, Mapping[str, object]],
    listed: bool,
) -> str:
    if len(key) != 1:
        raise AssertionError("blocks stand at the top")
    lines = text.splitlines(keepends=True)
    block = _find(lines, key[0])
    entries = _entries(lines, block, listed)
    leaving = [entry for entry in entries if entry.name in set(remove)]
    kept = {entry.name for entry in entries} - set(remove)
    fresh = [_whole(written) for name, written in texts.items() if name not in kept]
    wanted = {entry.name: entry.value for entry in entries if entry.name in kept}
    wanted.update({name: _plain(value) for name, value in values.items() if name not in kept})
    gone = {number for entry in leaving for number in range(entry.start, entry.end)}
    end = newline_of(text)
    if not fresh and not gone:
        return text
    place = leaving[0].start if leaving else entries[-1].end if entries else block.start
    out: list[str] = []
    for number in range(len(lines) + 1):
        if number == place:
            out += fresh
        if number < len(lines) and number not in gone:
            out.append(_head(lines[number], bool(wanted), listed) if number == block.head else lines[number])
    if block.head < 0:
        out = [*(_whole(line, end) for line in lines), f"{key[0]}:{end}", *fresh]
    elif place == len(lines) and len(lines) > 0 and not lines[-1].endswith("\n"):
        out = [*(_whole(line, end) for line in out[: -len(fresh)]), *fresh] if fresh else out
    after = "".join(out)
    if read(after, key, listed=listed) != wanted:
        raise UnsafeEditError("is written in a way that cannot be changed safely.")
    return after


def _find(lines: list[str], key: str) -> _Block:
    heads = [number for number, line in enumerate(lines) if _is_head(line, key)]
    if any(line.startswith("---") for line in lines[1:] if line.strip() == "---"):
        raise UnsafeEditError("holds several documents, which is beyond this small YAML editor.")
    if len(heads) > 1:
        raise UnsafeEditError(f"has `{key}` twice. Remove one of them.")
    if not heads:
        return _Block(-1, len(lines), len(lines))
    head = heads[0]
    rest = lines[head].partition(":")[2].partition("#")[0].strip()
    if rest not in _EMPTY:
        raise UnsafeEditError(f"has `{key}` on one line. Write each entry on lines of its own.")
    end = head + 1
    last = end
    while end < len(lines):
        line = lines[end].rstrip("\r\n")
        if line.startswith("\t"):
            raise UnsafeEditError(f"has a tab at line {end + 1}, which is beyond this small YAML editor.")
        if (line and line[0] not in " #-") or line.startswith("---"):
            break
        end += 1
        if line.strip() and not line.startswith("#"):
            last = end
    return _Block(head, head + 1, last)


def _is_head(line: str, key: str) -> bool:
    return bool(
        re.match(rf"""(?:{re.escape(key)}|"{re.escape(key)}"|'{re.escape(key)}')\s*:(?:\s|$)""", line)
    )


def _head(line: str, filled: bool, listed: bool) -> str:
    """An empty block says so, since nothing at all would mean something else."""
    before, colon, rest = line.partition(":")
    body, sign, comment = rest.partition("#")
    ending = rest[len(rest.rstrip("\r\n")) :]
    told = "" if filled else (" []" if listed else " {}")
    if body.strip() == told.strip():
        return line
    return f"{before}{colon}{told}" + (f" {sign}{comment}" if sign else ending)


def _entries(lines: list[str], block: _Block, listed: bool) -> list[_Entry]:
    found = significant(lines, block.start, block.end)
    if not found:
        return []
    outer = found[0].indent
    starts = [line for line in found if line.indent == outer and (line.text.startswith("-") or not listed)]
    whole = parse(lines, block.start, block.end)
    if not isinstance(whole, list if listed else dict):
        raise UnsafeEditError("has servers in a form that is not known.")
    named = list(whole.items()) if isinstance(whole, dict) else [(_name(each), each) for each in _list(whole)]
    if len(named) != len(starts):
        raise UnsafeEditError("is written in a way that cannot be read line by line.")
    entries: list[_Entry] = []
    for index, (line, (name, value)) in enumerate(zip(starts, named, strict=True)):
        following = starts[index + 1].number if index + 1 < len(starts) else block.end
        last = max(each.number for each in found if line.number <= each.number < following)
        entries.append(_Entry(name, value, line.number, _text_end(lines, last + 1, following, outer)))
    names = [entry.name for entry in entries]
    if len(set(names)) != len(names):
        raise UnsafeEditError("has the same name twice. Rename one of them.")
    return entries


def _text_end(lines: list[str], at: int, following: int, outer: int) -> int:
    """Lines that are indented belong to the entry, comments too; those at its own level to what follows."""
    end = at
    while at < following:
        text = lines[at].rstrip("\r\n")
        if text.strip() and len(text) - len(text.lstrip(" ")) <= outer:
            break
        at += 1
        if text.strip():
            end = at
    return end


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _name(value: object) -> str:
    return str(value.get("name", "")) if isinstance(value, dict) else ""


def _indent(lines: list[str], block: _Block) -> str:
    found = significant(lines, block.start, block.end)
    return " " * found[0].indent if found else "  "


def _written(name: str, value: Mapping[str, object], indent: str, end: str, listed: bool) -> str:
    inner = indent + "  "
    if not listed:
        return end.join([f"{indent}{_scalar(name)}:", *_members(value, inner)]) + end
    lines = _members({"name": name, **value}, inner)
    lines[0] = f"{indent}- {lines[0][len(inner) :]}"
    return end.join(lines) + end


def _members(value: Mapping[str, object], indent: str) -> list[str]:
    lines: list[str] = []
    for name, item in value.items():
        if isinstance(item, dict) and item:
            lines += [f"{indent}{_scalar(name)}:", *_members(item, indent + "  ")]
        elif isinstance(item, list) and item:
            lines += [f"{indent}{_scalar(name)}:", *(f"{indent}  - {_scalar(each)}" for each in item)]
        else:
            lines.append(f"{indent}{_scalar(name)}: {_scalar(item)}")
    return lines


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Mapping[str, object]) -> object:
    return json.loads(json.dumps(value))


def _whole(line: str, end: str = "\n") -> str:
    return line if line.endswith("\n") else line + end
