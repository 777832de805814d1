"""What a host means by the arguments of a suite tool.

`read` accepts every spelling the design names (`op`, `args` as a JSON string, `arguments`, a call wrapped once more) and
gives one form, or a refusal that says what to send. Pure; it does not know which suites or subtools exist.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..errors import Failure, failure

ACTIONS = {
    "introspect": "introspect",
    "call": "call",
    "list_subtools": "introspect",
}
ADVERTISED = frozenset({"introspect", "call"})
NO_ARGS = Raw(b"{}")
OPENING_BRACE = 0x7B


class SuiteCall(Struct, gc=False):
    """A suite call as hosts send it and, once settled, in its one form: `action` as advertised, `args` an object."""

    action: str = ""
    subtool: str = ""
    args: Raw | UnsetType = UNSET
    op: str = ""
    arguments: Raw | UnsetType = UNSET
    query: str = ""
    verbosity: str = ""
    cursor: str = ""


_decode = msgspec.json.Decoder(SuiteCall).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_any = msgspec.json.Decoder().decode


def read(arguments: Raw | UnsetType, child: str) -> SuiteCall | Failure:
    """The call a host means."""
    if arguments is UNSET:
        return _no_action(child)
    try:
        given = _decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        return failure("bad_arguments", f"Arguments for child '{child}': {problem}.", child=child)
    return settle(given, child)


def settle(given: SuiteCall, child: str) -> SuiteCall | Failure:
    """The call a host means by arguments that are read already. Changes `given`, which in the ordinary case is right."""
    if given.action not in ADVERTISED:
        action = ACTIONS.get(given.action or given.op)
        if action is None:
            return _unwrap_whole(given, child)
        given.action = action
    if given.args is UNSET:
        given.args = NO_ARGS if given.arguments is UNSET else given.arguments
    args = bytes(given.args)
    if args[0] != OPENING_BRACE:
        repaired = _repair_args(args, child, given.subtool)
        if isinstance(repaired, Failure):
            return repaired
        given.args = Raw(repaired)
    if not given.subtool and given.action == "call":
        return failure("subtool_missing", f"A call to child '{child}' names no subtool.", child=child)
    return given


def unwrap(args: bytes, properties: frozenset[str]) -> bytes:
    """The inner arguments where `args` only wraps them and the subtool has no parameter of that name."""
    while True:
        members = _decode_object(args)
        if len(members) != 1:
            return args
        ((name, inner),) = members.items()
        if name not in ("args", "arguments") or name in properties or bytes(inner)[:1] != b"{":
            return args
        args = bytes(inner)


def _repair_args(args: bytes, child: str, subtool: str) -> bytes | Failure:
    """`args` that are no object: a JSON string that holds one is taken, null means none, the rest is refused."""
    value = _decode_any(args)
    if value is None or value == "":
        return b"{}"
    if isinstance(value, str):
        # White space between tokens may hold newlines; without them the object fits on one line.
        text = value.strip().replace("\n", " ").replace("\r", " ")
        try:
            if isinstance(_decode_any(text.encode()), dict):
                return text.encode()
        except (msgspec.DecodeError, UnicodeEncodeError):
            pass
    found = {str: "a string", list: "an array", bool: "a boolean", int: "a number", float: "a number"}
    return failure(
        "bad_arguments",
        f"`args` for child '{child}', subtool '{subtool}' must be a JSON object, not {found[type(value)]}.",
        child=child,
        subtool=subtool or UNSET,
    )


def _unwrap_whole(given: SuiteCall, child: str) -> SuiteCall | Failure:
    """No known action: perhaps the whole call is wrapped once more, as in {"arguments": {"action": …}}."""
    word = given.action or given.op
    if word:
        return failure(
            "bad_arguments",
            f"`action` for child '{child}' must be \"introspect\" or \"call\", not {msgspec.json.encode(word).decode()}.",
            child=child,
        )
    inner = given.arguments if given.arguments is not UNSET else given.args
    if inner is not UNSET and bytes(inner)[:1] == b"{":
        members = _decode_object(inner)
        if ("action" in members or "op" in members) and not given.subtool:
            return read(inner, child)
    return _no_action(child)


def _no_action(child: str) -> Failure:
    return failure("bad_arguments", f"A call to child '{child}' needs `action`: \"introspect\" or \"call\".", child=child)

