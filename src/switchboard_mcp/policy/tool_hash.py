"""The normal form of a tool and its hash.

Servers shuffle keys and lists that are sets, wrap their texts differently, and put the time or a free port into the
defaults of a schema. None of that changes the hash. A single changed word in a description does: that is how tools get
poisoned. The module knows neither where hashes are kept nor what a difference leads to.

One walk yields two forms. `normalize` keeps the line breaks of texts, for the lock file; the form that is hashed drops
them and sorts the branches of a choice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256

import msgspec
from msgspec import Raw

from switchboard_mcp.protocol.jsonrpc import decode_members
from switchboard_mcp.suites.schema_compaction import MAPS, MAX_DEPTH, ONE

# The members that are locked. Icons, `_meta` and the like are for programs: no model reads them. But `ui` in `_meta` is
# locked: it says whether a model may see the tool at all.
MEMBERS = ("title", "description", "inputSchema", "outputSchema", "annotations")
PROMPT_MEMBERS = ("title", "description", "arguments")
RESOURCE_MEMBERS = ("name", "title", "description", "mimeType")
SKILL_MEMBERS = ("frontmatter", "resources")
PAGE_MEMBERS = ("mimeType", "digest", "size", "ui")
UNREADABLE = "unreadable"
UI = "ui"
# Decoding more takes too long: five times the largest of 4,315 published tools.
MAX_TOOL_BYTES = 512 * 1024
PROSE = frozenset({"title", "description", "$comment"})
# Lists whose order has no meaning.
SETS = frozenset({"required", "enum", "type"})
CHOICES = frozenset({"anyOf", "oneOf", "allOf"})
SEQUENCES = frozenset({"items", "prefixItems"})
# Suggested values, which bind nobody: only here may volatile parts be ignored.
SUGGESTIONS = frozenset({"default", "example", "examples"})

_DATE = r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_TIME = r"[0-2]\d:[0-5]\d(?::[0-6]\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?"
_VOLATILE = {
    "time": rf"\b{_DATE}(?:[T ]{_TIME})?(?!\w)",
    "uuid": r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b",
    # As operating systems and runtimes name them; without spaces, so no sentence hides in one.
    "path": r"(?<![\w/.])(?:/private)?(?:/var)?/(?:tmp|folders)/[\w.+/-]{1,200}|/dev/shm/[\w.+/-]{1,200}"
    r"|[A-Za-z]:\\Users\\[\w.+-]{1,100}\\AppData\\Local\\Temp\\[\w.+\\-]{1,200}",
    # Ephemeral ports on this machine.
    "port": r"(?<=localhost:|127\.0\.0\.1:)(?:3276[89]|327[7-9]\d|32[89]\d\d|3[3-9]\d{3}|[45]\d{4}|6[0-5]\d{3})(?!\d)",
}
# Seconds and milliseconds from 2017 to 2036. A limit of that size would be round, or a power of two.
_EPOCHS = ((1_500_000_000, 2_100_000_000), (1_500_000_000_000, 2_100_000_000_000))
_ROUND = 1_000_000
# Integers up to here are exact as floats.
_EXACT = 2**53


def normalize(raw: Raw | bytes, names: tuple[str, ...] = MEMBERS) -> dict[str, object]:
    """Return the locked members of a raw tool in normal form.

    A tool that cannot be decoded, or is too large to be, is kept as its hash.
    """
    members: dict[str, object] = {}
    if len(memoryview(raw)) > MAX_TOOL_BYTES:
        return {UNREADABLE: _hash(bytes(raw))}
    try:
        decoded = decode_members(raw)
        for name in names:
            if name in decoded:
                members[name] = msgspec.json.decode(decoded[name])
        if names is MEMBERS and "_meta" in decoded and "ui" in (meta := decode_members(decoded["_meta"])):
            members[UI] = msgspec.json.decode(meta["ui"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {UNREADABLE: _hash(bytes(raw))}
    return _members(members, kept_lines, flat=False)


def digest(name: str, members: Mapping[str, object]) -> str:
    """Return the hash of a tool in normal form, as `sha256:…`."""
    flat = {"name": name, **_members(members, one_line, flat=True)}
    return _hash(_encoded(flat))


def text_digest(text: str) -> str:
    """Return the hash of a text such as a server's instructions."""
    return _hash(one_line(text).encode("utf-8", "surrogatepass"))


def value_digest(value: object) -> str:
    """Return the hash of any plain value, independent of the order of keys."""
    return _hash(_encoded(value))


def one_line(text: str) -> str:
    """Collapse every run of white space into one space."""
    return " ".join(text.split())


def kept_lines(text: str) -> str:
    """Strip trailing white space from every line."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip() if "\n" in text else text.strip()


def _hash(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def _encoded(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _members(members: Mapping[str, object], prose: Callable[[str], str], *, flat: bool) -> dict[str, object]:
    form = _Form(prose, flat)
    done: dict[str, object] = {}
    for name, member in members.items():
        value = member
        if name in ("inputSchema", "outputSchema"):
            value = form.schema(member, 0)
        elif isinstance(member, str):
            value = prose(member)
        elif name == "annotations" and isinstance(member, dict):
            value = {key: _plain(item) for key, item in member.items() if item is not None}
        elif name in ("arguments", UI):
            value = _plain(member) or None
        # An empty member equals a missing one.
        if value is not None and value != "" and (value != {} or name.endswith("Schema")):
            done[name] = value
    return done


class _Form:
    """Normalizes a schema; `flat` for the form that is hashed."""

    def __init__(self, prose: Callable[[str], str], flat: bool) -> None:
        self.prose = prose
        self.flat = flat

    def schema(self, node: object, depth: int) -> object:
        """Normalize a schema, or whatever is in its place."""
        if not isinstance(node, dict) or depth > MAX_DEPTH:
            return _plain(node, depth)
        done = {key: self.member(key, value, depth) for key, value in node.items()}
        return {
            key: value for key, value in done.items() if not (value is _NOTHING or _says_nothing(key, value))
        }

    def member(self, key: str, value: object, depth: int) -> object:
        """Normalize the value of one keyword."""
        if key in SUGGESTIONS:
            return _without_volatile_parts(value, depth)
        if key in PROSE and isinstance(value, str):
            return self.prose(value)
        if key in MAPS and isinstance(value, dict):
            return {name: self.schema(item, depth + 1) for name, item in value.items()}
        if isinstance(value, list):
            return self.sequence(key, value, depth)
        return self.schema(value, depth + 1) if key in ONE else _plain(value, depth)

    def sequence(self, key: str, values: list[object], depth: int) -> object:
        """Normalize a list under a keyword."""
        if key in SETS:
            return _sorted([_plain(item, depth) for item in values])
        if key in CHOICES:
            branches = [self.schema(item, depth + 1) for item in values]
            return _sorted(branches) if self.flat else branches
        if key in SEQUENCES:
            return [self.schema(item, depth + 1) for item in values]
        return _plain(values, depth)


class _Nothing:
    """Marks a value that is left out."""


_NOTHING = _Nothing()


def _says_nothing(key: str, value: object) -> bool:
    return (key == "required" and value == []) or (key in PROSE and value == "")


def _sorted(values: list[object]) -> list[object]:
    """Return the distinct values in a canonical order."""
    unique = {_encoded(value): value for value in values}
    return [unique[key] for key in sorted(unique)]


def _plain(value: object, depth: int = 0) -> object:
    """Return data as it is, with equal numbers written the same way."""
    if isinstance(value, dict) and depth < 4 * MAX_DEPTH:
        return {key: _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list) and depth < 4 * MAX_DEPTH:
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value)
    return value


def _without_volatile_parts(value: object, depth: int) -> object:
    """Return a suggested value without volatile parts, or _NOTHING if nothing else is left."""
    if isinstance(value, str):
        return _without_volatile(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and _is_epoch(value):
        return _NOTHING
    if isinstance(value, list) and depth < MAX_DEPTH:
        left = [_without_volatile_parts(item, depth + 1) for item in value]
        return [item for item in left if item is not _NOTHING]
    if isinstance(value, dict) and depth < MAX_DEPTH:
        kept = {key: _without_volatile_parts(item, depth + 1) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item is not _NOTHING}
    return _plain(value, depth)


def _without_volatile(text: str) -> object:
    if not any(character.isdigit() for character in text) and "/" not in text and "\\" not in text:
        return text
    rest = _volatile().sub(lambda match: f"<{match.lastgroup}>", text)
    return _NOTHING if re.fullmatch(r"<(?:time|uuid|path)>", rest) and rest != text else rest


@lru_cache(maxsize=1)
def _volatile() -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _VOLATILE.items()))


def _is_epoch(value: float) -> bool:
    return any(first <= value < last for first, last in _EPOCHS) and value % _ROUND != 0
