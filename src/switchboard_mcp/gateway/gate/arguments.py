"""The arguments of a call, as any server may read them."""

from __future__ import annotations

import json

import msgspec

from switchboard_mcp.suites.suite_arguments import unwrap

# Arguments are not unwrapped from a name that is a parameter of the subtool.
WRAPPER_PARAMETERS = (frozenset[str](), frozenset({"args"}), frozenset({"arguments"}))


class AmbiguousArgumentsError(Exception):
    """Servers may read the arguments in different ways. The text says why."""


def readings(args: bytes) -> list[object]:
    """Return the decoded arguments, and what is in them if they are wrapped once more.

    Raises `AmbiguousArgumentsError` if a name occurs twice, or if they cannot be decoded.
    """
    try:
        found = [_decode(args)]
        if b'"arg' in args[:24]:
            found += [_decode(unwrap(args, parameters)) for parameters in WRAPPER_PARAMETERS]
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise AmbiguousArgumentsError(f"they cannot be decoded ({problem})") from None
    return found


def _decode(args: bytes) -> object:
    decoded = msgspec.json.decode(args)
    # Equal texts mean that nothing was lost. Numbers and escapes may be spelled differently: only then look closely.
    # Equal lengths would not do: `1e9` becomes longer, and so hides that a member was lost.
    if msgspec.json.encode(decoded) != msgspec.json.format(args, indent=-1):
        json.loads(args, object_pairs_hook=_refuse_duplicates)
    return decoded


def _refuse_duplicates(pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise AmbiguousArgumentsError(f"'{name[:100]}' occurs twice")
        seen.add(name)
