"""Edits one object of a JSON document and leaves every other character unchanged.

New members take commas, line endings and indentation from their neighbours. Comments stay, also those next to a removed
member. Every edit is verified by parsing the result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from switchboard_mcp.setup.edit.jsonc_tree import Item, JsonNode, Member, parse, trivia
from switchboard_mcp.setup.edit.text_edit import (
    TextEdit,
    UnsafeEditError,
    amend_value,
    apply_edits,
    indent_unit,
    line_indent,
    newline_of,
)

Path = Sequence[str]


def find_node(text: str, root: JsonNode, path: Path) -> JsonNode | None:
    """Return the node at a path, or None. Refuses duplicate names, since it is unclear which one the host uses."""
    node = root
    for name in path:
        if node.kind != "object":
            return None
        matches = [member for member in node.members if member.name == name]
        if len(matches) > 1:
            raise UnsafeEditError(f"has `{name}` twice. Remove one of them.")
        if not matches:
            return None
        node = matches[0].value
    return node


def read(text: str, path: Path) -> object:
    """Return the plain value at a path, or None."""
    root = parse(text)
    node = find_node(text, root, path)
    return None if node is None else node.value


def member_texts(text: str, path: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the source text of members, name and value."""
    node = find_node(text, parse(text), path)
    if node is None:
        return {}
    return {
        member.name: text[member.start : member.end] for member in node.members if member.name in set(names)
    }


def replace_members(text: str, path: Path, remove: Sequence[str], put: Mapping[str, object]) -> str:
    """Remove members from the object at a path and add others, in the place of the first removed one."""
    root = parse(text) if text.strip("\ufeff \t\r\n") else None
    if root is None:
        text = _empty_document(text)
        root = parse(text)
    node = find_node(text, root, path)
    if node is None or node.kind != "object":
        if not put:
            return text
        if node is not None:
            raise UnsafeEditError(f"has something at `{'.'.join(path)}` that is not a map of servers.")
        return _verified(text, _create_path(text, root, path, dict(put)), path, remove, put)
    leaving = [member for member in node.members if member.name in set(remove)]
    put = {name: value for name, value in put.items() if name not in _kept(node, leaving)}
    written = {name: _render_member(text, node, name, value) for name, value in put.items()}
    return _apply_safely(text, node, leaving, list(written.values()), path, remove, put)


def restore_members(text: str, path: Path, remove: Sequence[str], texts: Mapping[str, str]) -> str:
    """Remove members and put back others as they were written. Existing members with the same name are kept."""
    root = parse(text)
    node = find_node(text, root, path)
    values = {name: parse(whole).value for name, whole in _as_objects(texts).items()}
    plain = {name: dict(value)[name] for name, value in values.items() if isinstance(value, dict)}
    if node is None or node.kind != "object":
        return replace_members(text, path, remove, plain)
    leaving = [member for member in node.members if member.name in set(remove)]
    kept = _kept(node, leaving)
    back = {name: written for name, written in texts.items() if name not in kept}
    put = {name: plain[name] for name in back}
    return _apply_safely(text, node, leaving, list(back.values()), path, remove, put)


def add_item(text: str, path: Path, value: str) -> str:
    """Append a string to the array at a path, unless there is no array or it is already in it."""
    node = find_node(text, parse(text), path)
    if node is None or node.kind != "array" or value in _texts(text, node):
        return text
    if not node.items:
        return apply_edits(text, [TextEdit(node.start + 1, node.start + 1, json.dumps(value))])
    last = node.items[-1]
    lead = _leading_space(text, node.start + 1 if len(node.items) == 1 else node.items[-2].end, last.start)
    before = [] if last.comma >= 0 else [TextEdit(last.end, last.end, ",")]
    at = last.comma + 1 if last.comma >= 0 else last.end
    return apply_edits(text, [*before, TextEdit(at, at, lead + json.dumps(value))])


def remove_item(text: str, path: Path, value: str) -> str:
    """Remove a string from the array at a path."""
    node = find_node(text, parse(text), path)
    if node is None or node.kind != "array":
        return text
    leaving = [
        item for item, item_text in zip(node.items, _texts(text, node), strict=True) if item_text == value
    ]
    return apply_edits(text, _removals(text, leaving, node.items, sure=True))


def _texts(text: str, node: JsonNode) -> list[object]:
    return [item.value.value for item in node.items]


def _as_objects(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: f"{{{written}}}" for name, written in texts.items()}


def _kept(node: JsonNode, leaving: Sequence[Member]) -> set[str]:
    return {member.name for member in node.members if member not in leaving}


def _apply_safely(
    text: str,
    node: JsonNode,
    leaving: Sequence[Member],
    written: Sequence[str],
    path: Path,
    remove: Sequence[str],
    put: Mapping[str, object],
) -> str:
    """Apply the edit as it looks best. If that would put a member into a comment, add line endings."""
    try:
        return _verified(text, _replaced(text, node, leaving, written), path, remove, put)
    except UnsafeEditError:
        return _verified(text, _replaced(text, node, leaving, written, sure=True), path, remove, put)


def _replaced(
    text: str, node: JsonNode, leaving: Sequence[Member], written: Sequence[str], *, sure: bool = False
) -> str:
    """Remove members, and put new ones in the place of the first of them, or at the end."""
    if not written:
        return apply_edits(text, _removals(text, leaving, node.members, sure))
    if not leaving:
        return apply_edits(text, _insertions(text, node, written))
    first = leaving[0]
    lead = _leading_space(text, _end_of_previous(node, first), first.start)
    together = f",{lead}".join(written)
    rest = _removals(text, leaving[1:], node.members, sure)
    return apply_edits(text, [TextEdit(first.start, first.end, together), *rest])


def _insertions(text: str, node: JsonNode, written: Sequence[str]) -> list[TextEdit]:
    if node.members:
        last = node.members[-1]
        lead = _leading_space(text, _end_of_previous(node, last), last.start)
        at = _end_of_line_comments(text, last.end if last.comma < 0 else last.comma + 1)
        if "//" in text[last.end : at] and "\n" not in lead:
            lead = newline_of(text)
        together = f",{lead}".join(written)
        comma = [TextEdit(last.end, last.end, ",")] if last.comma < 0 else []
        return [*comma, TextEdit(at, at, lead + together + ("" if last.comma < 0 else ","))]
    outer = line_indent(text, node.start)
    end, lead = newline_of(text), newline_of(text) + outer + indent_unit(text)
    together = f",{lead}".join(written)
    inner = text[node.start + 1 : node.end - 1]
    if not inner.strip():
        return [TextEdit(node.start + 1, node.end - 1, f"{lead}{together}{end}{outer}")]
    # Only comments: new members follow them, on lines of their own.
    at = node.start + 1 + len(inner.rstrip())
    return [TextEdit(at, node.end - 1, f"{lead}{together}{end}{outer}")]


def _end_of_line_comments(text: str, at: int) -> int:
    """Return the end of comments on the same line: they belong to the member before them."""
    for start, end in trivia(text, at):
        if text[start] == "/":
            at = end
        elif "\n" in text[start:end]:
            break
    return at


def _removals(
    text: str, leaving: Sequence[Member | Item], all_of_them: Sequence[Member | Item], sure: bool
) -> list[TextEdit]:
    """Remove each with the white space before and the comma after it; for the last one, the comma before it."""
    splices: list[TextEdit] = []
    places = [index for index, entry in enumerate(all_of_them) if any(entry is gone for gone in leaving)]
    for index in places:
        entry = all_of_them[index]
        start, end = _blank_before(text, entry.start), entry.end
        splices.append(TextEdit(start, end, _kept_line(text, start, end, entry.comma, sure)))
        if entry.comma >= 0:
            splices.append(TextEdit(entry.comma, entry.comma + 1))
    stays = [index for index in range(len(all_of_them)) if index not in places]
    if places and stays and all_of_them[-1].comma < 0 and stays[-1] < len(all_of_them) - 1:
        # The last members are removed from a document without trailing commas; it must not get one.
        comma = all_of_them[stays[-1]].comma
        splices.append(TextEdit(comma, comma + 1))
    return splices


def _blank_before(text: str, at: int) -> int:
    while at > 0 and text[at - 1] in " \t\r\n":
        at -= 1
    return at


def _kept_line(text: str, start: int, end: int, comma: int, sure: bool) -> str:
    """Return a line ending if a line comment would otherwise swallow the text that follows."""
    begun = text.rfind("\n", 0, start) + 1
    following = text[(comma + 1 if comma >= 0 else end) :].lstrip(" \t")
    if following[:1] in ("", "\n", "\r") and not sure:
        return ""
    return newline_of(text) + line_indent(text, end) if "//" in text[begun:start] else ""


def _end_of_previous(node: JsonNode, member: Member) -> int:
    """Return the end of the text before a member, including its comma."""
    index = next(place for place, other in enumerate(node.members) if other is member)
    if index == 0:
        return node.start + 1
    before = node.members[index - 1]
    return before.comma + 1


def _leading_space(text: str, start: int, at: int) -> str:
    """Return the white space before a member: a line ending with indentation, or a space."""
    between = "".join(text[begin:end] for begin, end in trivia(text, start) if end <= at)
    if "\n" in between:
        return newline_of(text) + line_indent(text, at)
    return " "


def _render_member(text: str, node: JsonNode, name: str, value: object) -> str:
    """Render a member like its neighbours: on one line, or on lines of its own."""
    one_line = "\n" not in text[node.start : node.end] and bool(node.members)
    if one_line:
        return f"{_dump(name)}: {_dump(value)}"
    unit = indent_unit(text)
    outer = line_indent(text, node.members[0].start) if node.members else line_indent(text, node.start) + unit
    return f"{_dump(name)}: " + _pretty(value, unit, newline_of(text) + outer)


def _pretty(value: object, unit: str, lead: str) -> str:
    """Render objects over several lines and lists on one, as people write such entries."""
    if not isinstance(value, dict) or not value:
        return _dump(value)
    inner = lead + unit
    members = (f"{inner}{_dump(name)}: {_pretty(item, unit, inner)}" for name, item in value.items())
    return "{" + ",".join(members) + lead + "}"


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _create_path(text: str, root: JsonNode, path: Path, value: Mapping[str, object]) -> str:
    """Add the missing part of a path to the deepest object that exists."""
    node, depth = root, 0
    while depth < len(path) and (inner := find_node(text, node, path[depth : depth + 1])) is not None:
        node, depth = inner, depth + 1
    if node.kind != "object":
        raise UnsafeEditError(f"has something at `{'.'.join(path[:depth])}` that is not an object.")
    whole: object = dict(value)
    for name in reversed(path[depth + 1 :]):
        whole = {name: whole}
    return apply_edits(text, _insertions(text, node, [_render_member(text, node, path[depth], whole)]))


def _empty_document(text: str) -> str:
    """Return an empty object as the content of an empty file."""
    return (
        ("\ufeff" if text.startswith("\ufeff") else "") + "{}" + (newline_of(text) if "\n" in text else "\n")
    )


def _verified(before: str, after: str, path: Path, remove: Sequence[str], put: Mapping[str, object]) -> str:
    """Return the new text if it has the expected value. A mistake of ours must not reach a file."""
    expected = parse(before).value
    amend_value(expected, path, remove, put)
    try:
        actual = parse(after).value
    except UnsafeEditError:
        actual = None
    if actual != expected:
        raise UnsafeEditError("is written in a way that cannot be changed safely.")
    return after
