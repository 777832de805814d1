"""All ways in which a server may read the arguments of a call."""

from __future__ import annotations

import json

import msgspec
from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.policy.gate.conditions import UNREADABLE
from switchboard_mcp.policy.gate.spellings import BLANK
from switchboard_mcp.suites.suite_arguments import unwrap

# Arguments are not unwrapped from a name that is a parameter of the subtool.
WRAPPERS = ("args", "arguments")
WRAPPER_PARAMETERS = (frozenset[str](), frozenset({"args"}), frozenset({"arguments"}))
# As numbers: they are found in bytes four times faster than as bytes.
BACKSLASH, BRACKET = b"\\["


class AmbiguousArgumentsError(Exception):
    """Servers may read the arguments in different ways. The text says why."""


def readings(args: bytes, schema: Raw | UnsetType = UNSET) -> list[object]:
    """Return the decoded arguments, and what is in them if they are wrapped once more, or hold JSON as text.

    Servers decode the text of an argument that is not a string in their `schema`. What begins as JSON and cannot be
    decoded here may be decoded there: then `UNREADABLE` is among the readings. Raises `AmbiguousArgumentsError` if a
    name occurs twice, or if they are not an object or cannot be decoded.
    """
    try:
        if (flat := _decode_flat(args)) is not None:
            return [flat]
        decoded = _decode(args)
        if decoded is None:
            return [None]
        if type(decoded) is not dict:
            raise AmbiguousArgumentsError("they are not an object")
        is_wrapped = len(decoded) == 1 and not decoded.keys().isdisjoint(WRAPPERS)
        if not is_wrapped and not _may_hold_json(decoded):
            return [decoded]
        decodings: list[object] = [decoded]
        if is_wrapped:
            decodings += [_decode(unwrap(args, parameters)) for parameters in WRAPPER_PARAMETERS]
        held = [_with_held_json(reading, schema) for reading in decodings if _may_hold_json(reading)]
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise AmbiguousArgumentsError(f"they cannot be decoded ({problem})") from None
    return decodings + [reading for further in held for reading in further]


def _decode_flat(args: bytes) -> dict[str, object] | None:
    """Return the arguments if they are one object without others, lists and escapes, and no name occurs twice.

    That is the most frequent kind, and there is a short proof: each quote is one end of a text, so a name that was lost
    would leave more quotes than the decoded texts have.
    """
    if BACKSLASH in args or BRACKET in args or args.count(b"{") != 1:
        return None
    decoded = msgspec.json.decode(args)
    if type(decoded) is not dict:
        return None
    texts = len(decoded)
    for value in decoded.values():
        if type(value) is str:
            texts += 1
    return decoded if args.count(b'"') == 2 * texts else None


def _may_hold_json(arguments: object) -> bool:
    """Return False if no text can hold an object or a list."""
    if type(arguments) is dict:
        for value in arguments.values():
            if type(value) is str and ("{" in value or "[" in value):
                return True
    return False


def _with_held_json(arguments: object, schema: Raw | UnsetType) -> list[object]:
    """Return the arguments with objects and lists in place of the texts that hold them, if there are any."""
    if not isinstance(arguments, dict):
        return []
    texts = {
        name: value
        for name, value in arguments.items()
        if isinstance(value, str) and value.lstrip(BLANK)[:1] in ("{", "[")
    }
    decoded: dict[str, object] = {}
    is_readable = True
    for name in texts.keys() - (_text_parameters(schema) if texts else ()):
        try:
            decoded[name] = _decode(texts[name].encode())
        except (msgspec.MsgspecError, ValueError, RecursionError):
            # Others decode more than JSON: NaN, halves of surrogate pairs, numbers without bounds, comments.
            is_readable = False
    found: list[object] = [{**arguments, **decoded}] if decoded else []
    return found if is_readable else [*found, UNREADABLE]


def _text_parameters(schema: Raw | UnsetType) -> frozenset[str]:
    """Return the names of the parameters that are text and nothing else, at the top of a schema."""
    try:
        decoded = msgspec.json.decode(schema) if schema is not UNSET else None
    except (msgspec.MsgspecError, RecursionError):
        return frozenset()
    properties = decoded.get("properties") if isinstance(decoded, dict) else None
    if not isinstance(properties, dict):
        return frozenset()
    return frozenset(name for name, property in properties.items() if _is_text(property))


def _is_text(property: object) -> bool:
    if not isinstance(property, dict):
        return False
    type = property.get("type")
    types = type if isinstance(type, list) else [type]
    choices = property.get("anyOf")
    if isinstance(choices, list) and "type" not in property:
        types = [choice.get("type") if isinstance(choice, dict) else None for choice in choices]
    return "string" in types and all(name in ("string", "null") for name in types)


def _decode(args: bytes) -> object:
    decoded = msgspec.json.decode(args)
    # Equal texts mean that nothing was lost. Numbers and escapes may be spelled differently: only then look closely.
    # Equal lengths would not do: `1e9` becomes longer, and so hides that a member was lost.
    encoded = msgspec.json.encode(decoded)
    if encoded != args and encoded != msgspec.json.format(args, indent=-1):
        json.loads(args, object_pairs_hook=_refuse_duplicates)
    return decoded


def _refuse_duplicates(pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise AmbiguousArgumentsError(f"'{name[:100]}' occurs twice")
        seen.add(name)
