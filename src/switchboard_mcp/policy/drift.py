"""Compares two versions of a tool and describes the differences for a person.

Works on the normal forms of `tool_hash`. It knows neither where they come from nor what a difference leads to. Texts of
a child are untrusted: `ToolChange.describe` limits how much of them is repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from switchboard_mcp.policy.tool_hash import SETS, UNREADABLE, one_line
from switchboard_mcp.suites.sanitize import clean
from switchboard_mcp.suites.schema_compaction import DEFS, MAPS, MAX_DEPTH

Kind = Literal["added", "removed", "changed"]
Members = Mapping[str, object]
# For a person: everything, up to a length that no honest description needs.
FOR_PEOPLE = 2_000
# For a model: what was changed, but not a whole paragraph of injected instructions.
FOR_MODELS = 60
CONTEXT_WORDS = 3
# Comparing words takes quadratic time, and a model or a person reads no more of a change.
MAX_WORDS = 500
MAX_DIFF_CHARS = 20_000
# Larger normal forms are reported as changed, without the differences: finding them takes too long.
MAX_COMPARED_BYTES = 64 * 1024
PROSE_PARTS = frozenset({"description", "title", "$comment"})
# The texts of an entry, and the words for each.
TEXTS = {"displayName": "name", "title": "title", "description": "description", "mimeType": "MIME type"}
# Members that are compared as a whole, and the words for each.
PLAIN = {
    "arguments": "arguments",
    "frontmatter": "frontmatter",
    "resources": "files",
    "ui": "user interface",
    "digest": "content",
}
_WORD = re.compile(r"[^\W_]+")
ROOTS = {"inputSchema": "parameter", "outputSchema": "result"}


class ToolChange(Struct, frozen=True, omit_defaults=True):
    """One difference. `tool` is empty if it concerns the whole child."""

    tool: str
    part: str
    kind: Kind
    before: str = ""
    after: str = ""
    prose: bool = False

    @property
    def is_reordered(self) -> bool:
        """True if both sides have the same words in another order, as programs write that print sets."""
        if self.kind != "changed" or max(len(self.before), len(self.after)) > MAX_DIFF_CHARS:
            return False
        before, after = _WORD.findall(clean(self.before)), _WORD.findall(clean(self.after))
        return before != after and sorted(before) == sorted(after)

    def describe(self, max_chars: int = FOR_PEOPLE) -> str:
        """Describe the difference, with at most `max_chars` characters of either side."""
        before, after = _short(self.before, max_chars), _short(self.after, max_chars)
        if self.kind == "added":
            return f"{self.part} added{f': {after}' if after else ''}"
        if self.kind == "removed":
            return f"{self.part} removed{f': {before}' if before else ''}"
        if self.prose or self.is_reordered:
            # The order of words may change their meaning, so the difference is shown all the same.
            what = "differs in the order of its words only" if self.is_reordered else "changed"
            return f"{self.part} {what}: {word_diff(self.before, self.after, max_chars)}"
        if not (before or after):
            return self.part
        return f"{self.part} changed: {before or 'nothing'} → {after or 'nothing'}"


def compare_tools(
    before: Mapping[str, Members], after: Mapping[str, Members], noun: str = "tool"
) -> Iterator[ToolChange]:
    """Yield all differences between two sets of tools, or of other things that `noun` names."""
    for name in sorted({*before, *after}):
        shown = name if noun == "tool" else f"{noun} {name}"
        if name not in after:
            yield ToolChange(shown, noun, "removed")
        elif name not in before:
            described = after[name].get("description")
            yield ToolChange(shown, noun, "added", after=str(described or ""))
        else:
            yield from compare(shown, before[name], after[name])


def compare(tool: str, before: Members, after: Members) -> Iterator[ToolChange]:
    """Yield all differences between two normal forms of one tool."""
    if UNREADABLE in before or UNREADABLE in after:
        if dict(before) != dict(after):
            yield ToolChange(
                tool, "its definition, a part of which cannot be decoded, has changed", "changed"
            )
        return
    for name, part in TEXTS.items():
        yield from _text(tool, part, before.get(name), after.get(name))
    for name, noun in ROOTS.items():
        old, new = _json(before.get(name)), _json(after.get(name))
        if old != new and max(len(old), len(new)) > MAX_COMPARED_BYTES:
            sizes = f"{len(old):,} → {len(new):,} characters"
            yield ToolChange(
                tool, f"the {noun} schema, too large to compare ({sizes}), has changed", "changed"
            )
            continue
        yield from _Schemas(tool, noun).compare(before.get(name), after.get(name), "", 0)
    yield from _members(tool, "annotation", before.get("annotations"), after.get("annotations"))
    for name, part in PLAIN.items():
        old, new = _json(before.get(name)), _json(after.get(name))
        if old != new:
            yield ToolChange(tool, part, "changed", old, new)


def compare_text(part: str, before: str, after: str) -> Iterator[ToolChange]:
    """Yield the difference between two texts of the child itself, such as its instructions."""
    yield from _text("", part, before, after)


def word_diff(before: str, after: str, max_chars: int = FOR_PEOPLE) -> str:
    """Return a word diff of two texts: `[-removed-]`, `{+added+}`, with a few words of context."""
    from difflib import SequenceMatcher  # Loaded only if something has changed.

    brief = f"{_short(before, max_chars)} → {_short(after, max_chars)}"
    if max(len(before), len(after)) > MAX_DIFF_CHARS:
        return brief
    old, new = clean(before).split(), clean(after).split()
    if max(len(old), len(new)) > MAX_WORDS:
        return brief
    parts: list[str] = []
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    blocks = matcher.get_opcodes()
    for index, (kind, i1, i2, j1, j2) in enumerate(blocks):
        if kind == "equal":
            parts.append(_context(old[i1:i2], first=index == 0, last=index == len(blocks) - 1))
            continue
        if i2 > i1:
            parts.append(f"[-{_short(' '.join(old[i1:i2]), max_chars)}-]")
        if j2 > j1:
            parts.append(f"{{+{_short(' '.join(new[j1:j2]), max_chars)}+}}")
    if before != after and old == new:
        return "invisible characters"
    return " ".join(parts)


def _context(words: list[str], *, first: bool, last: bool) -> str:
    """Shorten unchanged text to the words next to a change."""
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
    """Compares two schemas of one tool; `noun` names their properties."""

    def __init__(self, tool: str, noun: str) -> None:
        self.tool = tool
        self.noun = noun

    def compare(self, before: object, after: object, path: str, depth: int) -> Iterator[ToolChange]:
        if _same(before, after):
            return
        if not (isinstance(before, dict) and isinstance(after, dict)) or depth > MAX_DEPTH:
            yield self._changed(self._place(path) if path else f"{self.noun} schema", before, after)
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
                yield ToolChange(
                    self.tool,
                    self._of(key, path),
                    "changed",
                    _only_in_first(old, new),
                    _only_in_first(new, old),
                )
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
        had, has = _object(before.get("properties")).keys(), _object(after.get("properties")).keys()
        required = _names(new)
        for name in sorted(_names(old) ^ required):
            # A property that was added or removed is reported as such.
            if (name in had) == (name in has):
                now = "is required now" if name in required else "is no longer required"
                yield ToolChange(self.tool, f"{self._place(_join(path, name))} {now}", "changed")

    def _changed(self, part: str, old: object, new: object) -> ToolChange:
        if new is None:
            return ToolChange(self.tool, part, "removed", before=_json(old))
        if old is None:
            return ToolChange(self.tool, part, "added", after=_json(new))
        return ToolChange(self.tool, part, "changed", _json(old), _json(new))

    def _place(self, path: str) -> str:
        return f"{self.noun} '{path}'"

    def _of(self, key: str, path: str) -> str:
        return f"{key} of {self._place(path)}" if path else f"{key} of the {self.noun} schema"


def _text(tool: str, part: str, before: object, after: object) -> Iterator[ToolChange]:
    old, new = before if before is not None else "", after if after is not None else ""
    if not (isinstance(old, str) and isinstance(new, str)):
        if old != new:
            yield ToolChange(tool, part, "changed", _json(old), _json(new))
    elif one_line(old) != one_line(new):
        kind: Kind = "added" if not old.strip() else "removed" if not new.strip() else "changed"
        yield ToolChange(tool, part, kind, old, new, prose=True)


def _members(tool: str, noun: str, before: object, after: object) -> Iterator[ToolChange]:
    old, new = _object(before), _object(after)
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield from (
                _text(tool, f"{noun} {name}", old.get(name), new.get(name))
                if isinstance(old.get(name), str) and isinstance(new.get(name), str)
                else [
                    ToolChange(tool, f"{noun} {name}", "changed", _json(old.get(name)), _json(new.get(name)))
                ]
            )


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _names(value: object) -> set[str]:
    return {name for name in value if isinstance(name, str)} if isinstance(value, list) else set()


def _only_in_first(one: Iterable[object], other: list[object]) -> str:
    """Return the values that are only in the first list."""
    others = set(map(_json, other))
    return ", ".join(text for text in map(_json, one) if text not in others)


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


def _short(text: str, max_chars: int) -> str:
    # Four times as much is cleaned as shown: white space and hidden characters go. All of it may be megabytes.
    whole = len(text)
    text = one_line(clean(text[: 4 * max_chars]))
    if len(text) <= max_chars and whole <= 4 * max_chars:
        return text
    return f"{text[:max_chars].rstrip()}… ({whole:,} characters)"
