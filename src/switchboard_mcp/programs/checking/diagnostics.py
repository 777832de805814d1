"""Decides which messages of the type checker refuse a program.

The checker is exact about literal arguments and strict about everything else: it refuses valid programs whose arguments
were built in steps, or that read an optional field. A message about a value that may be right is a warning, since the
arguments are validated once more when they are sent. Its texts are matched by pattern, so its version is pinned and
`tests/fixtures/programs` holds what it says. Pure.
"""

from __future__ import annotations

import re
from typing import Literal

from switchboard_mcp.programs.engine import Diagnostic

Weight = Literal["error", "warning", "none"]

# Never about a call or its result: the program may still be right.
STYLE = frozenset(
    "redundant-condition redundant-cast redundant-final-classvar deprecated unused-ignore-comment undefined-reveal "
    "unused-type-ignore-comment possibly-unresolved-reference possibly-unbound-import possibly-unbound "
    "possibly-missing-attribute possibly-missing-import possibly-missing-implicit-call possibly-unbound-implicit-call "
    "unsupported-base mismatched-type-name division-by-zero invalid-return-type invalid-assignment "
    "invalid-parameter-default empty-body invalid-type-form "
    "ambiguous-protocol-member unreachable redundant-annotation".split()
)
# The checker does not know a type, or knows one of several.
_UNCERTAIN = re.compile(r"in union|object of type `?None|`None`|`[^`]*\bUnknown\b[^`]*`")
# Messages about what is certain, whatever types they mention.
CERTAIN = frozenset(
    "unresolved-import unresolved-reference unknown-argument missing-argument too-many-positional-arguments "
    "missing-typed-dict-key invalid-syntax unused-awaitable".split()
)
MAX_TYPE_CHARS = 2_000
MAX_DEPTH = 12
_MISMATCH = re.compile(r"Expected `(.+)`, found `(.+)`$", re.DOTALL)
_KEY_MISMATCH = re.compile(r"with declared type `(.+)` on TypedDict .*: value of type `(.+)`$", re.DOTALL)
_UNION_OPERAND = re.compile(r"`[^`]* \| [^`]*`")
LISTS = frozenset({"list", "Sequence", "tuple", "Iterable"})
MAPS = frozenset({"dict", "Mapping", "defaultdict", "Counter", "MutableMapping"})
ANYTHING = frozenset({"Any", "Unknown", "object", "Never", "Todo", "Divergent"})
# Types that JSON has no value for, or that are not a value yet.
NEVER_RIGHT = frozenset(
    "CoroutineType Coroutine Awaitable set frozenset bytes dict_keys dict_values dict_items Module Generator "
    "GeneratorType function".split()
)
PLAIN = frozenset({"str", "int", "float", "bool", "None", "Literal"})
NUMBERS = {"float": frozenset({"int", "float", "bool"}), "int": frozenset({"int", "bool"})}
Type = tuple[str, tuple[str, ...]]


def weight(diagnostic: Diagnostic, line: str) -> Weight:
    """Return what a message means for the program. `line` is the line of the source that it is about."""
    if diagnostic.code in STYLE:
        return "none" if diagnostic.code.startswith("redundant") else "warning"
    if diagnostic.code in CERTAIN:
        return "error"
    if diagnostic.code == "invalid-argument-type" and "CoroutineType" not in diagnostic.message:
        return _argument(diagnostic, line)
    if _UNCERTAIN.search(diagnostic.message) and "CoroutineType" not in diagnostic.message:
        return "warning"
    if diagnostic.code == "no-matching-overload" and "bound method" in diagnostic.message:
        return "warning"
    if diagnostic.code == "unsupported-operator" and _UNION_OPERAND.search(diagnostic.message):
        return "warning"
    return "error"


def _argument(diagnostic: Diagnostic, line: str) -> Weight:
    """Return what a mismatch of an argument means: an error if its value cannot be right."""
    if line[diagnostic.column - 1 :].startswith("**"):
        return "warning"  # the checker takes every value of the dict for every parameter
    match = _MISMATCH.search(diagnostic.message) or _KEY_MISMATCH.search(diagnostic.message)
    if match is None:
        return "warning" if _UNCERTAIN.search(diagnostic.message) else "error"
    expected, value = match[1], match[2]
    if len(expected) + len(value) > MAX_TYPE_CHARS:
        return "warning"
    return "warning" if could_be(value, expected) else "error"


def could_be(value: str, expected: str, depth: int = 0) -> bool:
    """Return True if a value of one type, as the checker writes it, may be right where another is expected."""
    if depth > MAX_DEPTH:
        return True
    return any(
        _fits(_parts(member), _parts(other), depth)
        for member in _members(value)
        for other in _members(expected)
    )


def _fits(value: Type, expected: Type, depth: int) -> bool:
    name, args = value
    wanted, wanted_args = expected
    if name in NEVER_RIGHT:
        return False
    if name in ANYTHING or wanted in ANYTHING:
        return True
    if wanted == "Literal":
        # A text that is not known may be one of the values; a known one is not, or there were no message.
        return name != "Literal" and any(_kind(argument) == name for argument in wanted_args)
    if name == "Literal":
        kinds = {_kind(argument) for argument in args}
        return any(kind == wanted or kind in NUMBERS.get(wanted, ()) for kind in kinds)
    if wanted in PLAIN or name in PLAIN:
        return name == wanted or name in NUMBERS.get(wanted, ())
    if wanted in LISTS:
        if name not in LISTS or not args or not wanted_args:
            return name in LISTS
        return any(could_be(arg, wanted_args[0], depth + 1) for arg in args if arg != "...")
    if wanted in MAPS:
        if name not in MAPS or len(args) < 2 or len(wanted_args) < 2:
            return name not in LISTS  # a record is a dict
        return could_be(args[1], wanted_args[1], depth + 1)
    return name not in LISTS  # a record: a dict, or another record, may have its keys


def _kind(literal: str) -> str:
    """Return the type of a value in a Literal."""
    if literal[:1] in "\"'":
        return "str"
    if literal in ("True", "False"):
        return "bool"
    return "None" if literal == "None" else "int"


def _members(text: str) -> list[str]:
    """Return the members of a union."""
    return _split(text, " | ")


def _parts(text: str) -> Type:
    """Return the name of a type and its arguments."""
    name, bracket, rest = text.strip().partition("[")
    if not bracket or not rest.endswith("]"):
        return name, ()
    return name, tuple(_split(rest[:-1], ", "))


def _split(text: str, separator: str) -> list[str]:
    """Split a text at a separator that is in no brackets and no quotes."""
    parts, depth, quote, start, place = [], 0, "", 0, 0
    while place < len(text):
        sign = text[place]
        if quote:
            place += sign == "\\"
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in "[(":
            depth += 1
        elif sign in "])":
            depth -= 1
        elif depth == 0 and text.startswith(separator, place):
            parts.append(text[start:place])
            place += len(separator)
            start = place
            continue
        place += 1
    return [*parts, text[start:]]
