"""Cleans texts of children before a model reads them: removes hidden characters and limits lengths.

Descriptions are untrusted. Characters that a person would not see (control, zero-width, tag and bidirectional
characters) are removed, and very long texts are truncated. The wording is not judged, and values that programs use
(names, enums, defaults, patterns) are never changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec
from msgspec import Raw

from switchboard_mcp.suites.schema_compaction import MANY, MAPS, MAX_DEPTH, ONE

# Of 1,915 tools of published servers only 3 exceed this; 2,000 tokens for one tool are enough for any manual.
DESCRIPTION_CHARS = 8_000
# For tools that are always listed: hosts truncate there anyway.
LISTED_CHARS = 2_000
# One parameter. Some contain a small grammar or a table; of 15,821 only 4 are longer.
DOC_CHARS = 2_000
TITLE_CHARS = 200
IDENTIFIER_CHARS = 8_000
# A child's instructions. The introspect result gives them a share of its budget, far below this.
INSTRUCTIONS_CHARS = 8_000
UNREADABLE = Raw(b'{"type":"object"}')
# A larger schema is not decoded, since that alone would take too long: twice the largest of 4,315 published tools.
MAX_SCHEMA_BYTES = 256 * 1024
ELLIPSIS = " …"
# A boundary further back than this share of the text would throw away more than it tidies.
BOUNDARY_SHARE = 0.8

# Invisible characters, by their Unicode names.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and newline
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners, fillers, Mongolian selectors
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f"  # zero width, direction, invisible operators
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"  # fillers, variation selectors, byte order mark, annotations
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # musical formatting; tags and more variation selectors
    "\ud800-\udfff"
)
# Legitimate uses of joiners: they combine several pictures into one, or join letters of some scripts.
_PICTURES = "\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_SCRIPTS = "\u0600-\u06ff\u0750-\u077f\u08a0-\u0dff"  # Arabic, and those of India
_JOINERS = (
    f"(?:(?<=[{_PICTURES}])|(?<=[{_PICTURES}]\ufe0f))\u200d(?=[{_PICTURES}])|(?<=[{_PICTURES}])\ufe0f"
    f"|(?<=[{_SCRIPTS}])[\u200c\u200d](?=[{_SCRIPTS}])"
)
_ORDERS = "\x1b\\[[0-9;:?]{0,32}[@-~]|\x1b\\][^\x07\x1b]{0,256}(?:\x07|\x1b\\\\)?"  # complete terminal escape sequences
_BREAKS = "\r\n?|[\u2028\u2029\x0b\x0c\x85]"
# White space that pushes the text after it out of sight.
_VOID = "\n{4,}|[ \t\u00a0\u2000-\u200a\u3000]{40,}"
_SPACES, _LINES = b" " * 40, b"\\n" * 4
_PROSE = {
    "description": DOC_CHARS,
    "title": TITLE_CHARS,
    "$comment": DOC_CHARS,
}

_WHOLE_PROSE = dict.fromkeys(_PROSE, MAX_SCHEMA_BYTES)


def clean(text: str) -> str:
    """Return the text without hidden characters."""
    if text.isascii() and (text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable()):
        return _without_void(text) if len(text) >= 40 and ("\n\n\n\n" in text or " " * 40 in text) else text
    text = _compiled(_BREAKS).sub("\n", _compiled(_ORDERS).sub("", text))
    return _without_void(_compiled(f"({_JOINERS})|[{_HIDDEN}]").sub(r"\1", text))


def for_model(text: str, limit: int = DESCRIPTION_CHARS) -> str:
    """Return the text for a model: cleaned, and truncated with `…` to `limit` characters."""
    whole = len(text) <= 4 * limit
    text = clean(text if whole else text[: 4 * limit])  # the part beyond is truncated anyway
    if whole and len(text) <= limit:
        return text
    room = limit - len(ELLIPSIS)
    cut = text[:room]
    ends = (cut.rfind("\n"), cut.rfind(". ") + 1, cut.rfind(" "))
    end = next((end for end in ends if end >= room * BOUNDARY_SHARE), room)
    return cut[:end].rstrip() + ELLIPSIS


def escape_hidden(text: str) -> str:
    """Write hidden characters in JSON as escapes: the same for a program, but visible to a person."""
    return _compiled(f"[{_HIDDEN}]").sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character < " ":  # only between values: inside strings JSON has them as escapes already
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def is_plain(raw: Raw) -> bool:
    """Return True if JSON certainly needs no cleaning. True for nearly all, and much faster than decoding it."""
    data = bytes(raw)
    if len(data) > MAX_SCHEMA_BYTES:
        return False
    quoted = 0
    if b"\\" in data:
        quoted = data.count(b'\\"')
        # Every backslash must belong to a newline or a quotation mark, without too many newlines in a row.
        if data.count(b"\\") != data.count(b"\\n") + quoted or _LINES in data:
            return False
    if b"\x7f" in data or _SPACES in data:
        return False
    if not data.isascii() and _compiled(f"[{_HIDDEN}\u2028\u2029]").search(data.decode("utf-8", "replace")):
        return False
    titled = b'"title"' in data
    if len(data) <= (TITLE_CHARS if titled else DOC_CHARS):
        return True
    return not quoted and max(map(len, data.split(b'"'))) <= (TITLE_CHARS if titled else DOC_CHARS)


def clean_schema(raw: Raw, *, whole: bool = False) -> Raw:
    """Clean all descriptions in a schema, and truncate them unless `whole` is set.

    Returns the same object if nothing changes. A schema that cannot be decoded, or is too large to be, is replaced by
    one that accepts any object.
    """
    data = bytes(raw)
    if len(data) > MAX_SCHEMA_BYTES:
        return UNREADABLE
    if is_plain(raw):
        return raw
    try:
        before = msgspec.json.decode(data)
        after = _clean_node(before, 0, _WHOLE_PROSE if whole else _PROSE)
        return raw if after is before else Raw(msgspec.json.encode(after))
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError):
        return UNREADABLE  # otherwise one broken character would bypass all of this


def clean_tool(raw: Raw) -> Raw:
    """Clean a whole tool that is always listed."""
    return _clean_entry(raw, {"title": TITLE_CHARS, "description": LISTED_CHARS})


def clean_listed(raw: Raw, key: str) -> Raw | None:
    """Clean a whole prompt, resource or template that `key` identifies.

    None if it cannot be decoded, or if its identifier, which is never changed, is too long or has hidden characters.
    """
    texts = {"title": TITLE_CHARS, "description": LISTED_CHARS, "mimeType": TITLE_CHARS}
    done = _clean_entry(raw, texts if key == "name" else {"name": TITLE_CHARS, **texts})
    try:
        identifier = msgspec.json.decode(msgspec.json.decode(done, type=dict[str, Raw])[key])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError):
        return None
    if not isinstance(identifier, str) or len(identifier) > IDENTIFIER_CHARS:
        return None
    return done if clean(identifier) == identifier else None


def _clean_entry(raw: Raw, texts: dict[str, int]) -> Raw:
    """Clean the texts of an entry, each with its limit, and everything else in it that a model reads."""
    try:
        members = msgspec.json.decode(raw, type=dict[str, Raw])
        for name, limit in texts.items():
            if name in members:
                text = msgspec.json.decode(members[name])
                if isinstance(text, str):
                    members[name] = Raw(msgspec.json.encode(for_model(text, limit)))
        if "arguments" in members:
            arguments = msgspec.json.decode(members["arguments"])
            members["arguments"] = Raw(msgspec.json.encode(_clean_arguments(arguments)))
        for name in ("inputSchema", "outputSchema"):
            if name in members:
                members[name] = clean_schema(members[name])
        if "annotations" in members:
            members["annotations"] = _annotations(members["annotations"])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return raw
    return Raw(msgspec.json.encode(members))


def _clean_arguments(arguments: object) -> object:
    """Clean the titles and descriptions of a prompt's arguments."""
    if not isinstance(arguments, list):
        return arguments
    return [_clean_node(argument, 0, _PROSE) for argument in arguments]


def _annotations(raw: Raw) -> Raw:
    hints = msgspec.json.decode(raw)
    if isinstance(hints, dict) and isinstance(hints.get("title"), str):
        return Raw(msgspec.json.encode({**hints, "title": for_model(hints["title"], TITLE_CHARS)}))
    return raw


def _clean_node(node: object, depth: int, limits: Mapping[str, int]) -> object:
    """Clean a part of a schema, each text to its limit. Returns the same object if nothing changes."""
    if not isinstance(node, dict) or depth > MAX_DEPTH:
        return node
    changed: dict[str, object] = {}
    for key, value in node.items():
        done = value
        if isinstance(value, str):
            limit = limits.get(key)
            if limit is not None:
                done = for_model(value, limit)
        elif isinstance(value, dict):
            done = (
                _clean_map(value, depth, limits)
                if key in MAPS
                else _clean_node(value, depth + 1, limits)
                if key in ONE
                else value
            )
        elif isinstance(value, list) and key in MANY:
            parts = [_clean_node(item, depth + 1, limits) for item in value]
            done = value if all(item is other for item, other in zip(parts, value, strict=True)) else parts
        if done is not value:
            changed[key] = done
    return {**node, **changed} if changed else node


def _clean_map(members: dict[str, object], depth: int, limits: Mapping[str, int]) -> object:
    done = {name: _clean_node(item, depth + 1, limits) for name, item in members.items()}
    return members if all(done[name] is item for name, item in members.items()) else done


def _without_void(text: str) -> str:
    return _compiled(_VOID).sub(lambda match: "\n\n" if match[0][0] == "\n" else " ", text)


@lru_cache(maxsize=8)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
