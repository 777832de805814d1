"""What is another in a tool than when it was pinned, in words a person can judge.

Owns the comparison of two normal forms (see `pins`) and how a difference reads. It does not know where either comes
from, nor what a difference leads to. What a child wrote is untrusted: `Change.told` bounds how much of it is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from switchboard_mcp.policy.tool_hash import SETS, UNREADABLE, one_line
from switchboard_mcp.suites.sanitize import clean
from switchboard_mcp.suites.schema import DEFS, MAPS, MAX_DEPTH

Kind = Literal["added", "removed", "changed"]
Members = Mapping[str, object]
# A person at a terminal reads all of it, up to what no honest description needs.
FOR_PEOPLE = 2_000
# A model reads what was changed, but not a whole paragraph of somebody's orders to it.
FOR_MODELS = 60
CONTEXT_WORDS = 3
# Comparing words takes time by the square of their number.
MOST_WORDS = 2_000
PROSE_PARTS = frozenset({"description", "title", "$comment"})
ROOTS = {"inputSchema": "parameter", "outputSchema": "result"}


class ToolChange(Struct, frozen=True, omit_defaults=True):
    """One difference. `tool` is empty where it is about the whole child."""

    tool: str
    part: str
    kind: Kind
    before: str = ""
    after: str = ""
    prose: bool = False

    def told(self, most: int = FOR_PEOPLE) -> str:
        """The difference in words, with at most so many characters of either side."""
        before, after = _short(self.before, most), _short(self.after, most)
        if self.kind == "added":
            return f"{self.part} added{f': {after}' if after else ''}"
        if self.kind == "removed":
            return f"{self.part} removed{f': {before}' if before else ''}"
        if self.prose:
            return f"{self.part} changed: {words(self.before, self.after, most)}"
        if not (before or after):
            return self.part
        return f"{self.part} changed: {before or 'nothing'} → {after or 'nothing'}"


def compare_tools(
    before: Mapping[str, Members], after: Mapping[str, Members], what: str = "tool"
) -> Iterator[ToolChange]:
    """All differences between two lists of tools, or of `what` else, by name."""
    for name in sorted({*before, *after}):
        shown = name if what == "tool" else f"{what} {name}"
        if name not in after:
            yield ToolChange(shown, what, "removed")
        elif name not in before:
            described = after[name].get("description")
            yield ToolChange(shown, what, "added", after=str(described or ""))
        else:
            yield from compare(shown, before[name], after[name])


def compare(tool: str, before: Members, after: Members) -> Iterator[ToolChange]:
    """All differences between two normal forms of one tool."""
    if UNREADABLE in before or UNREADABLE in after:
        if dict(before) != dict(after):
            yield ToolChange(tool, "its definition, of which a part cannot be read, has changed", "changed")
        return
    for name in ("title", "description"):
        yield from _text(tool, name, before.get(name), after.get(name))
    for name, what in ROOTS.items():
        yield from _Schemas(tool, what).compare(before.get(name), after.get(name), "", 0)
    yield from _members(tool, "annotation", before.get("annotations"), after.get("annotations"))
    old, new = _json(before.get("arguments")), _json(after.get("arguments"))
    if old != new:
        yield ToolChange(tool, "arguments", "changed", old, new)


def compare_text(part: str, before: str, after: str) -> Iterator[ToolChange]:
    """The difference between two texts of the child itself, such as its instructions."""
    yield from _text("", part, before, after)


def words(before: str, after: str, most: int = FOR_PEOPLE) -> str:
    """Both texts in one: `[-gone-]`, `{+new+}`, and a few words around each."""
    from difflib import SequenceMatcher  # Only where something has changed.

    old, new = clean(before).split(), clean(after).split()
    if max(len(old), len(new)) > MOST_WORDS:
        return f"{_short(before, most)} → {_short(after, most)}"
    parts: list[str] = []
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    blocks = matcher.get_opcodes()
    for place, (kind, i1, i2, j1, j2) in enumerate(blocks):
        if kind == "equal":
            parts.append(_around(old[i1:i2], first=place == 0, last=place == len(blocks) - 1))
            continue
        if i2 > i1:
            parts.append(f"[-{_short(' '.join(old[i1:i2]), most)}-]")
        if j2 > j1:
            parts.append(f"{{+{_short(' '.join(new[j1:j2]), most)}+}}")
    if before != after and old == new:
        return "characters that cannot be seen"
    return " ".join(parts)


def _around(words: list[str], *, first: bool, last: bool) -> str:
    """What did not change, cut to the words next to what did."""
    if first:
        kept = words[-CONTEXT_WORDS:]
        return " ".join(kept if len(kept) == len(words) else ["…", *kept])
    if last:
        kept = words[:CONTEXT_WORDS]
        return " ".join(kept if len(kept) == len(words) else [*kept, "…"])
    if len(words) <= 2 * CONTEXT_WORDS:
        return " ".join(words)
    return " ".join([*words[:CONTEXT_WORDS], "…", *words[-CONTEXT_WORDS:]])


class _Schemas:
    """Compares two schemas of one tool; `what` is the noun for their properties."""

    def __init__(self, tool: str, what: str) -> None:
        self.tool = tool
        self.what = what

    def compare(self, before: object, after: object, path: str, depth: int) -> Iterator[ToolChange]:
        if _same(before, after):
            return
        if not (isinstance(before, dict) and isinstance(after, dict)) or depth > MAX_DEPTH:
            yield self._changed(self._place(path) if path else f"{self.what} schema", before, after)
            return
        for key in sorted({*before, *after}):
            old, new = before.get(key), after.get(key)
            if _same(old, new):
                continue
            if key == "properties" and isinstance(old or {}, dict) and isinstance(new or {}, dict):
                yield from self._properties(old or {}, new or {}, before, after, path, depth)
            elif key == "required":
                yield from self._required(old, new, before, after, path)
            elif key in MAPS and isinstance(old or {}, dict) and isinstance(new or {}, dict):
                for name in sorted({*(old or {}), *(new or {})}):
                    step = f"{name}" if key in DEFS else f"{key}.{name}"
                    yield from self.compare(
                        (old or {}).get(name), (new or {}).get(name), _join(path, step), depth + 1
                    )
            elif key == "items" and isinstance(old, dict) and isinstance(new, dict):
                yield from self.compare(old, new, f"{path}[]", depth + 1)
            elif key in PROSE_PARTS:
                yield from _text(self.tool, self._of(key, path), old, new)
            elif key in SETS and isinstance(old, list) and isinstance(new, list):
                yield ToolChange(self.tool, self._of(key, path), "changed", _less(old, new), _less(new, old))
            else:
                yield self._changed(self._of(key, path), old, new)

    def _properties(
        self, old: Members, new: Members, before: Members, after: Members, path: str, depth: int
    ) -> Iterator[ToolChange]:
        for name in sorted({*old, *new}):
            place = _join(path, name)
            if name not in new:
                yield ToolChange(self.tool, self._place(place), "removed")
            elif name not in old:
                needed = ", required" if name in _names(after.get("required")) else ""
                yield ToolChange(self.tool, self._place(place), "added", after=f"{_kind(new[name])}{needed}")
            else:
                yield from self.compare(old[name], new[name], place, depth + 1)

    def _required(
        self, old: object, new: object, before: Members, after: Members, path: str
    ) -> Iterator[ToolChange]:
        known = _names(list(_object(before.get("properties")))) & _names(
            list(_object(after.get("properties")))
        )
        for name in sorted(_names(old) ^ _names(new)):
            if name in known or name not in {
                **_object(before.get("properties")),
                **_object(after.get("properties")),
            }:
                now = "is required now" if name in _names(new) else "is no longer required"
                yield ToolChange(self.tool, f"{self._place(_join(path, name))} {now}", "changed")

    def _changed(self, part: str, old: object, new: object) -> ToolChange:
        if new is None:
            return ToolChange(self.tool, part, "removed", before=_json(old))
        if old is None:
            return ToolChange(self.tool, part, "added", after=_json(new))
        return ToolChange(self.tool, part, "changed", _json(old), _json(new))

    def _place(self, path: str) -> str:
        return f"{self.what} '{path}'"

    def _of(self, key: str, path: str) -> str:
        return f"{key} of {self._place(path)}" if path else f"{key} of the {self.what} schema"


def _text(tool: str, part: str, before: object, after: object) -> Iterator[ToolChange]:
    old, new = before if before is not None else "", after if after is not None else ""
    if not (isinstance(old, str) and isinstance(new, str)):
        if old != new:
            yield ToolChange(tool, part, "changed", _json(old), _json(new))
    elif one_line(old) != one_line(new):
        kind: Kind = "added" if not old.strip() else "removed" if not new.strip() else "changed"
        yield ToolChange(tool, part, kind, old, new, prose=True)


def _members(tool: str, what: str, before: object, after: object) -> Iterator[ToolChange]:
    old, new = _object(before), _object(after)
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield from (
                _text(tool, f"{what} {name}", old.get(name), new.get(name))
                if isinstance(old.get(name), str) and isinstance(new.get(name), str)
                else [
                    ToolChange(tool, f"{what} {name}", "changed", _json(old.get(name)), _json(new.get(name)))
                ]
            )


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _names(value: object) -> set[str]:
    return {one for one in value if isinstance(one, str)} if isinstance(value, list) else set()


def _less(one: Iterable[object], other: list[object]) -> str:
    """What is only in the first."""
    return ", ".join(_json(value) for value in one if value not in other)


def _kind(schema: object) -> str:
    kind = _object(schema).get("type")
    if isinstance(kind, list):
        return " or ".join(map(str, kind))
    return str(kind) if kind else "any"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _same(one: object, other: object) -> bool:
    return one is other or (type(one) is type(other) and _json(one) == _json(other))


def _json(value: object) -> str:
    if value is None:
        return ""
    return msgspec.json.encode(value, order="sorted").decode()


def _short(text: str, most: int) -> str:
    text = one_line(clean(text))
    return text if len(text) <= most else f"{text[:most].rstrip()}… ({len(text):,} characters)"
