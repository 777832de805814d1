"""Edits the entries of one top-level block of a YAML document and leaves every other byte unchanged.

The block is a map (`name:` with a value) or a list of maps that each have a `name`. PyYAML parses the document; its
marks tell where entries begin and end. The text is changed only by splicing whole lines. Constructs that cannot be
edited safely, such as anchors in the block, are refused with `UnsafeEditError`. Every edit is verified by parsing the
result.

Hosts read YAML 1.2, PyYAML reads YAML 1.1. A plain value that the two understand differently is refused as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from msgspec import Struct

from switchboard_mcp.setup.edit.text_edit import TextEdit, UnsafeEditError, apply_edits, newline_of

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
# Plain words with a meaning of their own in some version of YAML.
_RESERVED = frozenset("true false null yes no on off y n".split())
_TAG = "tag:yaml.org,2002:"
# The values of each type that YAML 1.1 and 1.2 have in common.
_COMMON = {
    f"{_TAG}null": re.compile(r"|~|null|Null|NULL"),
    f"{_TAG}bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    f"{_TAG}int": re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+"),
    f"{_TAG}float": re.compile(r"[-+]?(?:0|[1-9][0-9]*)?\.[0-9]+(?:[eE][-+][0-9]+)?|[-+]?(?:0|[1-9][0-9]*)\.|"
                               r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"),
}  # fmt: skip
# Text in YAML 1.1, a number in YAML 1.2.
_NUMBER_1_2 = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|0o[0-7]+")


class _Loader(yaml.SafeLoader):
    """Loads one document and notes where it uses anchors, aliases and explicit tags."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.special: list[yaml.Mark] = []

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "anchor", None) is not None or getattr(event, "tag", None) is not None:
            self.special.append(event.start_mark)
        return super().compose_node(parent, index)


class _Entry(Struct):
    """One entry of the block, in the lines `text[start:end]`."""

    name: str
    value: object
    start: int
    end: int


class _Document(Struct):
    """A parsed document: its root, and the key and value of the block if it has one."""

    text: str
    root: yaml.MappingNode | None
    key: yaml.Node | None
    value: yaml.Node | None
    entries: list[_Entry]

    def others(self) -> list[str]:
        """Return the source of everything at the top level except the block."""
        pairs = self.root.value if self.root is not None else []
        return [
            self.text[key.start_mark.index : _end_of(value)] for key, value in pairs if key is not self.key
        ]


def read(text: str, key: Sequence[str], *, listed: bool) -> object:
    """Return the entries by name, or None if the document has no such block."""
    document = _parse(text, key, listed)
    return None if document.key is None else {entry.name: entry.value for entry in document.entries}


def entry_texts(text: str, key: Sequence[str], names: Sequence[str], *, listed: bool) -> dict[str, str]:
    """Return the lines of the named entries."""
    entries = _parse(text, key, listed).entries
    return {entry.name: text[entry.start : entry.end] for entry in entries if entry.name in set(names)}


def replace_entries(
    text: str,
    key: Sequence[str],
    remove: Sequence[str],
    put: Mapping[str, Mapping[str, object]],
    *,
    listed: bool,
) -> str:
    """Remove entries from the block and add others. Existing entries with the same name are kept."""
    document = _parse(text, key, listed)
    newline = newline_of(text)
    indent = _entry_indent(document)
    texts = {name: _render(name, value, indent, newline, listed) for name, value in put.items()}
    values = {name: {"name": name, **value} if listed else value for name, value in put.items()}
    return _apply(document, key, remove, texts, values, listed)


def restore_entries(
    text: str, key: Sequence[str], remove: Sequence[str], texts: Mapping[str, str], *, listed: bool
) -> str:
    """Remove entries and put back others as they were written. Existing entries with the same name are kept."""
    values: dict[str, object] = {}
    for name, written in texts.items():
        block = read(f"{key[0]}:\n{written}", key, listed=listed)
        values[name] = block.get(name) if isinstance(block, dict) else None
    return _apply(_parse(text, key, listed), key, remove, texts, values, listed)


def _apply(
    document: _Document,
    key: Sequence[str],
    remove: Sequence[str],
    texts: Mapping[str, str],
    values: Mapping[str, object],
    listed: bool,
) -> str:
    entries, text = document.entries, document.text
    leaving = [entry for entry in entries if entry.name in set(remove)]
    kept = {entry.name: entry.value for entry in entries if entry not in leaving}
    added = {name: written for name, written in texts.items() if name not in kept}
    if not added and not leaving:
        return text
    expected = kept | {name: values[name] for name in added}
    fresh = "".join(_ended_line(written, newline_of(text)) for written in added.values())
    if document.key is None:
        after = _ended_line(text, newline_of(text)) + f"{key[0]}:{newline_of(text)}{fresh}"
    else:
        head = _head_edits(document, bool(expected), listed)
        after = apply_edits(text, [*head, *_line_edits(document, leaving, fresh)])
    try:
        result = _parse(after, key, listed)
    except UnsafeEditError:
        result = None
    # A mistake of ours must not reach a file: the block must read as intended, and the rest must be as before.
    if (
        result is None
        or {entry.name: _as_json(entry.value) for entry in result.entries}
        != {name: _as_json(value) for name, value in expected.items()}
        or result.others() != document.others()
    ):
        raise UnsafeEditError("is written in a way that cannot be changed safely.")
    return after


def _line_edits(document: _Document, leaving: Sequence[_Entry], fresh: str) -> Iterator[TextEdit]:
    """Remove the lines of entries. New lines replace the first of them, or follow the last entry."""
    text, newline = document.text, newline_of(document.text)
    for number, entry in enumerate(leaving):
        yield TextEdit(entry.start, entry.end, fresh if number == 0 else "")
    if fresh and not leaving:
        assert document.key is not None
        at = document.entries[-1].end if document.entries else _next_line(text, _end_of_head(document))
        missing = newline if at > 0 and text[at - 1] != "\n" else ""
        yield TextEdit(at, at, missing + fresh)


def _end_of_head(document: _Document) -> int:
    """Return the end of the key of an empty block, and of its `{}`, `[]` or null."""
    assert document.key is not None
    assert document.value is not None
    return max(document.key.end_mark.index, document.value.end_mark.index)


def _head_edits(document: _Document, filled: bool, listed: bool) -> Iterator[TextEdit]:
    """Write an empty block as `{}` or `[]`, since a missing value would be null; remove that once it has entries."""
    key, value, text = document.key, document.value, document.text
    assert key is not None
    assert value is not None
    colon = text.index(":", key.end_mark.index) + 1
    if document.entries:
        if not filled:
            yield TextEdit(colon, colon, " []" if listed else " {}")
    elif filled:
        yield TextEdit(colon, max(colon, value.end_mark.index))


def _parse(text: str, key: Sequence[str], listed: bool) -> _Document:
    if len(key) != 1:
        raise AssertionError("only top-level blocks can be edited")
    loader = None
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None or _is_null(root):
            return _Document(text, None, None, None, [])
        if not isinstance(root, yaml.MappingNode) or root.flow_style:
            raise UnsafeEditError("is not a map with one setting per line.")
        pairs = [pair for pair in root.value if pair[0].tag == f"{_TAG}str" and pair[0].value == key[0]]
        if len(pairs) > 1:
            raise UnsafeEditError(f"has `{key[0]}` twice. Remove one of them.")
        if not pairs:
            return _Document(text, root, None, None, [])
        name, value = pairs[0]
        document = _Document(text, root, name, value, [])
        document.entries = _read_entries(document, loader, key[0], listed)
        return document
    except yaml.MarkedYAMLError as problem:
        if isinstance(problem, yaml.composer.ComposerError) and "single document" in str(problem.context):
            raise UnsafeEditError("holds several documents. Keep one document per file.") from None
        where = f" at {_position(problem.problem_mark)}" if problem.problem_mark is not None else ""
        raise UnsafeEditError(f"is not valid YAML: {problem.problem}{where}.") from None
    except yaml.YAMLError:
        raise UnsafeEditError("is not valid YAML: it contains characters that are not allowed.") from None
    except RecursionError:
        raise UnsafeEditError("is nested too deeply.") from None
    except ValueError:
        # PyYAML resolves by pattern and converts later: 2024-99-99 looks like a date.
        raise UnsafeEditError("contains a date or number that cannot be read. Put it in quotes.") from None
    finally:
        if loader is not None:
            loader.dispose()


def _read_entries(document: _Document, loader: _Loader, key: str, listed: bool) -> list[_Entry]:
    value = document.value
    assert value is not None
    if _is_null(value) or (isinstance(value, yaml.CollectionNode) and not value.value):
        return []
    start, end = value.start_mark.index, value.end_mark.index
    for mark in loader.special:
        if start <= mark.index < end:
            raise UnsafeEditError(
                f"has an anchor, alias or tag at {_position(mark)}. Write the value out, without it."
            )
    if isinstance(value, yaml.CollectionNode) and value.flow_style:
        raise UnsafeEditError(f"has `{key}` on one line. Write each entry on lines of its own.")
    if not isinstance(value, yaml.SequenceNode if listed else yaml.MappingNode):
        raise UnsafeEditError("has servers in a form that is not known.")
    _require_unambiguous(value)
    content: dict[object, object] | list[object] = loader.construct_document(value)
    entries: list[_Entry] = []
    if isinstance(content, dict):
        for (name_node, value_node), (name, item) in zip(value.value, content.items(), strict=True):
            if not isinstance(name, str):
                raise UnsafeEditError(
                    f"has a name that is not text at {_position(name_node.start_mark)}. Quote it."
                )
            entries.append(_entry(document, name, item, name_node.start_mark.index, value_node))
    elif isinstance(value, yaml.SequenceNode):
        for node, item in zip(value.value, content, strict=True):
            name = str(item.get("name", "")) if isinstance(item, dict) else ""
            entries.append(_entry(document, name, item, _dash_before(document, value, node), node))
    names = [entry.name for entry in entries]
    if len(set(names)) != len(names):
        raise UnsafeEditError("has the same name twice. Rename one of them.")
    return entries


def _require_unambiguous(node: yaml.Node) -> None:
    """Refuse what PyYAML and a host might understand differently: duplicate keys, merge keys, YAML 1.1 values."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _require_unambiguous(item)
    elif isinstance(node, yaml.MappingNode):
        seen: set[tuple[str, str]] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == f"{_TAG}merge":
                raise UnsafeEditError(f"has a complex key at {_position(key.start_mark)}. Use a plain name.")
            if (key.tag, key.value) in seen:
                raise UnsafeEditError(
                    f"has `{key.value}` twice at {_position(key.start_mark)}. Remove one of them."
                )
            seen.add((key.tag, key.value))
            _require_unambiguous(key)
            _require_unambiguous(value)
    elif isinstance(node, yaml.ScalarNode) and node.style is None:
        common = _COMMON.get(node.tag)
        if node.tag == f"{_TAG}str":
            ambiguous = _NUMBER_1_2.fullmatch(node.value) is not None
        else:
            ambiguous = common is None or common.fullmatch(node.value) is None
        if ambiguous:
            raise UnsafeEditError(
                f"has `{node.value[:40]}` at {_position(node.start_mark)}, which versions of YAML read differently."
                " Put it in quotes."
            )


def _entry(document: _Document, name: str, value: object, start: int, node: yaml.Node) -> _Entry:
    text = document.text
    line = text.rfind("\n", 0, start) + 1
    if text[line:start].strip(" \ufeff"):
        raise UnsafeEditError("is written in a way that cannot be edited line by line.")
    return _Entry(name, value, line, _end_of_lines(text, _end_of(node), start - line))


def _dash_before(document: _Document, sequence: yaml.SequenceNode, item: yaml.Node) -> int:
    """Return the position of the dash that begins an item."""
    text, column, at = document.text, sequence.start_mark.column, item.start_mark.index
    while at >= sequence.start_mark.index:
        line = text.rfind("\n", 0, at) + 1
        if text[line + column : line + column + 1] == "-" and not text[line : line + column].strip(" \ufeff"):
            return line + column
        at = line - 1
    raise UnsafeEditError("is written in a way that cannot be edited line by line.")


def _end_of(node: yaml.Node) -> int:
    """Return where the text of a node ends. The end mark of a block collection is that of the next token."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return max(_end_of(part) for part in last) if isinstance(last, tuple) else _end_of(last)
    end: int = node.end_mark.index
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return _end_of_block_scalar(node, end)
    return end


def _end_of_block_scalar(node: yaml.ScalarNode, end: int) -> int:
    """Leave out empty lines at the end, unless the header says to keep them (`|+`)."""
    text, start = node.start_mark.buffer, node.start_mark.index
    assert text is not None
    if "+" in text[start : text.find("\n", start)].partition("#")[0]:
        return end
    while text[start:end].endswith(("\n\n", "\n\r\n")):
        end -= 2 if text[end - 2] == "\r" else 1
    return end


def _end_of_lines(text: str, end: int, indent: int) -> int:
    """Return the end of an entry's lines: comments that are indented deeper than the entry belong to it."""
    if end == 0 or text[end - 1] != "\n":
        end = _next_line(text, end)
    at = end
    while at < len(text):
        following = _next_line(text, at)
        line = text[at:following].rstrip("\r\n")
        stripped = line.lstrip(" ")
        if stripped and not (stripped.startswith("#") and len(line) - len(stripped) > indent):
            break
        at = following
        if stripped:
            end = at
    return end


def _next_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}null"


def _position(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1} column {mark.column + 1}"


def _entry_indent(document: _Document) -> str:
    if document.entries:
        start = document.entries[0].start
        line = document.text[start : _next_line(document.text, start)]
        return line[: len(line) - len(line.lstrip(" "))]
    return "  "


def _render(name: str, value: Mapping[str, object], indent: str, newline: str, listed: bool) -> str:
    inner = indent + "  "
    if not listed:
        return newline.join([f"{indent}{_scalar(name)}:", *_members(value, inner)]) + newline
    lines = _members({"name": name, **value}, inner)
    lines[0] = f"{indent}- {lines[0][len(inner) :]}"
    return newline.join(lines) + newline


def _members(value: Mapping[str, object], indent: str) -> list[str]:
    lines: list[str] = []
    for name, item in value.items():
        if isinstance(item, dict) and item:
            lines += [f"{indent}{_scalar(name)}:", *_members(item, indent + "  ")]
        elif isinstance(item, list) and item:
            lines += [f"{indent}{_scalar(name)}:", *(f"{indent}  - {_scalar(element)}" for element in item)]
        else:
            lines.append(f"{indent}{_scalar(name)}: {_scalar(item)}")
    return lines


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    # JSON is a subset of YAML. Beyond ASCII it is escaped, since YAML does not allow some characters unescaped.
    return json.dumps(value, ensure_ascii=not (isinstance(value, str) and value.isprintable()))


def _as_json(value: object) -> object:
    return json.loads(json.dumps(value))


def _ended_line(line: str, newline: str) -> str:
    return line if not line or line.endswith("\n") else line + newline
