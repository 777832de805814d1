"""The normal form of a tool, and its hash: what a tool is, whatever way it was written down this time.

Servers shuffle keys and lists that are sets, wrap their texts differently, and put the time or a free port into the
defaults of a schema. None of that makes another tool. A single other word in a description does: that is how tools get
poisoned. Owns what counts; it does not know where pins are kept, nor what is done about a difference.

Two forms come from one walk. The one that is kept (`normal`) has the lines of its texts; the one that is hashed has
them without, and the branches of a choice in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256

import msgspec
from msgspec import Raw

from switchboard_mcp.suites.schema import MAPS, MAX_DEPTH, ONE

# What of a tool is pinned. Icons, `_meta` and the like are for programs: no model reads them.
MEMBERS = ("title", "description", "inputSchema", "outputSchema", "annotations")
PROMPT_MEMBERS = ("title", "description", "arguments")
UNREADABLE = "unreadable"
PROSE = frozenset({"title", "description", "$comment"})
# Lists whose order says nothing.
SETS = frozenset({"required", "enum", "type"})
CHOICES = frozenset({"anyOf", "oneOf", "allOf"})
SEQUENCES = frozenset({"items", "prefixItems"})
# Values that suggest, and bind nobody: the only place where something volatile is no change.
SUGGESTIONS = frozenset({"default", "example", "examples"})

_DATE = r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_TIME = r"[0-2]\d:[0-5]\d(?::[0-6]\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?"
_VOLATILE = {
    "time": rf"\b{_DATE}(?:[T ]{_TIME})?(?!\w)",
    "uuid": r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b",
    # As operating systems and runtimes name them; no spaces, so that no sentence hides in one.
    "path": r"(?<![\w/.])(?:/private)?(?:/var)?/(?:tmp|folders)/[\w.+/-]{1,200}|/dev/shm/[\w.+/-]{1,200}"
    r"|[A-Za-z]:\\Users\\[\w.+-]{1,100}\\AppData\\Local\\Temp\\[\w.+\\-]{1,200}",
    # The ports that an operating system gives to whoever does not care, on this machine.
    "port": r"(?<=localhost:|127\.0\.0\.1:)(?:3276[89]|327[7-9]\d|32[89]\d\d|3[3-9]\d{3}|[45]\d{4}|6[0-5]\d{3})(?!\d)",
}
# Seconds and milliseconds from 2017 to 2036. A limit of that size is round, or a power of two.
_EPOCHS = ((1_500_000_000, 2_100_000_000), (1_500_000_000_000, 2_100_000_000_000))
_ROUND = 1_000_000
# Whole numbers up to here are the same as a fraction of nothing.
_EXACT = 2**53

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def normal(raw: Raw | bytes, names: tuple[str, ...] = MEMBERS) -> dict[str, object]:
    """The pinned members of a tool as it came, in the form that is kept. What cannot be read stands as its hash."""
    members: dict[str, object] = {}
    try:
        found = _decode_members(raw)
        for name in names:
            if name in found:
                members[name] = msgspec.json.decode(found[name])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {UNREADABLE: _hash(bytes(raw))}
    return _members(members, kept_lines, flat=False)


def digest(name: str, members: Mapping[str, object]) -> str:
    """The hash of a tool in normal form, as `sha256:…`."""
    flat = {"name": name, **_members(members, one_line, flat=True)}
    return _hash(_encoded(flat))


def text_digest(text: str) -> str:
    """The hash of a text that stands alone, such as a server's instructions."""
    return _hash(one_line(text).encode("utf-8", "surrogatepass"))


def value_digest(value: object) -> str:
    """The hash of any plain value, whatever the order of its keys."""
    return _hash(_encoded(value))


def one_line(text: str) -> str:
    """The text with every run of white space made one space."""
    return " ".join(text.split())


def kept_lines(text: str) -> str:
    """The text with its lines, without white space at their ends."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip() if "\n" in text else text.strip()


def _hash(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def _encoded(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _members(members: Mapping[str, object], prose: Callable[[str], str], *, flat: bool) -> dict[str, object]:
    form = _Form(prose, flat)
    done: dict[str, object] = {}
    for name, given in members.items():
        value = given
        if name in ("inputSchema", "outputSchema"):
            value = form.schema(given, 0)
        elif isinstance(given, str):
            value = prose(given)
        elif name == "annotations" and isinstance(given, dict):
            value = {key: _plain(one) for key, one in given.items() if one is not None}
        elif name == "arguments":
            value = _plain(given) or None
        # To say nothing, and not to say anything, is the same.
        if value is not None and value != "" and (value != {} or name.endswith("Schema")):
            done[name] = value
    return done


class _Form:
    """One walk over a schema. `flat` is the form that is hashed."""

    def __init__(self, prose: Callable[[str], str], flat: bool) -> None:
        self.prose = prose
        self.flat = flat

    def schema(self, node: object, depth: int) -> object:
        """A schema, or whatever stands in the place of one."""
        if not isinstance(node, dict) or depth > MAX_DEPTH:
            return _plain(node, depth)
        done = {key: self.member(key, value, depth) for key, value in node.items()}
        return {
            key: value for key, value in done.items() if not (value is _NOTHING or _says_nothing(key, value))
        }

    def member(self, key: str, value: object, depth: int) -> object:
        """What stands under one keyword."""
        if key in SUGGESTIONS:
            return _settled(value, depth)
        if key in PROSE and isinstance(value, str):
            return self.prose(value)
        if key in MAPS and isinstance(value, dict):
            return {name: self.schema(one, depth + 1) for name, one in value.items()}
        if isinstance(value, list):
            return self.sequence(key, value, depth)
        return self.schema(value, depth + 1) if key in ONE else _plain(value, depth)

    def sequence(self, key: str, values: list[object], depth: int) -> object:
        """A list under a keyword."""
        if key in SETS:
            return _sorted([_plain(one, depth) for one in values])
        if key in CHOICES:
            branches = [self.schema(one, depth + 1) for one in values]
            return _sorted(branches) if self.flat else branches
        if key in SEQUENCES:
            return [self.schema(one, depth + 1) for one in values]
        return _plain(values, depth)


class _Nothing:
    """Stands for a value that is left out."""


_NOTHING = _Nothing()


def _says_nothing(key: str, value: object) -> bool:
    return (key == "required" and value == []) or (key in PROSE and value == "")


def _sorted(values: list[object]) -> list[object]:
    """As a set: each value once, in an order that hangs on nothing else."""
    unique = {_encoded(value): value for value in values}
    return [unique[key] for key in sorted(unique)]


def _plain(value: object, depth: int = 0) -> object:
    """Data as it is, with numbers that are equal written the same."""
    if isinstance(value, dict) and depth < 4 * MAX_DEPTH:
        return {key: _plain(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list) and depth < 4 * MAX_DEPTH:
        return [_plain(one, depth + 1) for one in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value)
    return value


def _settled(value: object, depth: int) -> object:
    """A suggested value without what is another each time; nothing, where nothing else is left."""
    if isinstance(value, str):
        return _without_volatile(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and _is_epoch(value):
        return _NOTHING
    if isinstance(value, list) and depth < MAX_DEPTH:
        left = [_settled(one, depth + 1) for one in value]
        return [one for one in left if one is not _NOTHING]
    if isinstance(value, dict) and depth < MAX_DEPTH:
        kept = {key: _settled(one, depth + 1) for key, one in value.items()}
        return {key: one for key, one in kept.items() if one is not _NOTHING}
    return _plain(value, depth)


def _without_volatile(text: str) -> object:
    if not any(character.isdigit() for character in text) and "/" not in text and "\\" not in text:
        return text
    rest = _volatile().sub(lambda found: f"<{found.lastgroup}>", text)
    return _NOTHING if re.fullmatch(r"<(?:time|uuid|path)>", rest) and rest != text else rest


@lru_cache(maxsize=1)
def _volatile() -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _VOLATILE.items()))


def _is_epoch(value: float) -> bool:
    return any(first <= value < last for first, last in _EPOCHS) and value % _ROUND != 0
