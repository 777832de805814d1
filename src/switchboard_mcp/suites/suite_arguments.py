"""Normalizes the arguments of a suite tool.

A call of the built-in subtool `switchboard_result` reads a kept result, or calls another subtool and selects from its
result. `parse` accepts the variants that hosts and models send in practice (`op`, `args` as a JSON string, `arguments`,
null for missing values, a call wrapped twice) and returns one form, or a failure that says what to send. Pure; not
aware of which suites or subtools exist.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.protocol.jsonrpc import decode_members, replace_lone_surrogates

ACTIONS = {
    "introspect": "introspect",
    "call": "call",
    "result": "result",
    "list_subtools": "introspect",
}
ADVERTISED = frozenset({"introspect", "call", "result"})
# A built-in subtool of every suite. A child's own subtool of this name can be called as direct tool only.
RESULT_SUBTOOL = "switchboard_result"
NO_ARGS = Raw(b"{}")
OPENING_BRACE = 0x7B
MAX_WRAPPERS = 4


class SuiteCall(Struct, gc=False):
    """A suite call as sent by a host. Once normalized, `action` is as advertised and `args` is an object."""

    action: str = ""
    subtool: str = ""
    args: Raw | UnsetType = UNSET
    op: str = ""
    arguments: Raw | UnsetType = UNSET
    query: str = ""
    verbosity: str = ""
    cursor: str = ""
    select: str = ""
    handle: str = ""
    find: str = ""
    page: int | str = 1


class ResultArguments(Struct, gc=False):
    """Arguments of `switchboard_result`: a `handle` to read, or a subtool to call. Both take `select` and `find`."""

    handle: str = ""
    subtool: str = ""
    args: Raw = NO_ARGS
    select: str = ""
    find: str = ""
    page: int | str = 1


_decode = msgspec.json.Decoder(SuiteCall).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_result_arguments = msgspec.json.Decoder(ResultArguments).decode


def parse(arguments: Raw | UnsetType, child: str) -> SuiteCall | Failure:
    """Decode and normalize the arguments of a suite call."""
    if arguments is UNSET:
        return _no_action(child)
    call = _decode_call(bytes(arguments), child)
    return call if isinstance(call, Failure) else normalize(call, child)


def normalize(call: SuiteCall, child: str) -> SuiteCall | Failure:
    """Normalize decoded arguments in place. Most calls need no change."""
    if call.action not in ADVERTISED:
        action = ACTIONS.get(call.action or call.op)
        if action is None:
            return _unwrap_call(call, child)
        call.action = action
    if call.args is UNSET:
        call.args = NO_ARGS if call.arguments is UNSET else call.arguments
    args = bytes(call.args)
    if args[0] != OPENING_BRACE:
        if args == b"null" and call.arguments is not UNSET:
            args = bytes(call.arguments)
        repaired = _repair_args(args, child, call.subtool)
        if isinstance(repaired, Failure):
            return repaired
        call.args = Raw(repaired)
    if call.subtool == RESULT_SUBTOOL and call.action == "call":
        return _read_result_call(call, child)
    if not call.subtool and call.action == "call":
        return failure("subtool_missing", f"A call to child '{child}' names no subtool.", child=child)
    return call


def _read_result_call(call: SuiteCall, child: str) -> SuiteCall | Failure:
    """Return the request that a call of `switchboard_result` stands for."""
    try:
        wanted = _decode_result_arguments(unwrap(bytes(call.args or NO_ARGS), frozenset({"args"})))
    except (msgspec.DecodeError, RecursionError) as problem:
        return _bad_result_arguments(child, f"Arguments of '{RESULT_SUBTOOL}': {problem}.")
    call.handle = wanted.handle or call.handle
    call.select = wanted.select or call.select
    call.find = wanted.find or call.find
    if call.handle:
        call.action, call.subtool, call.args = "result", "", NO_ARGS
        call.page = wanted.page
        return call
    if not wanted.subtool or wanted.subtool == RESULT_SUBTOOL:
        return _bad_result_arguments(
            child,
            f"'{RESULT_SUBTOOL}' needs the `handle` of a result, or the `subtool` to call with `select`.",
        )
    call.subtool, call.args = wanted.subtool, wanted.args
    args = bytes(call.args)
    if args[0] != OPENING_BRACE:
        repaired = _repair_args(args, child, call.subtool)
        if isinstance(repaired, Failure):
            return repaired
        call.args = Raw(repaired)
    return call


def _bad_result_arguments(child: str, message: str) -> Failure:
    return failure("bad_arguments", message, child=child, subtool=RESULT_SUBTOOL)


def unwrap(args: bytes, properties: frozenset[str]) -> bytes:
    """Return the inner arguments if `args` only wraps them and the subtool has no parameter of that name."""
    # Each layer is decoded once more, so their number is limited; nobody wraps more than twice.
    for _ in range(MAX_WRAPPERS):
        members = decode_members(args)
        if len(members) != 1:
            return args
        ((name, inner),) = members.items()
        if name not in ("args", "arguments") or name in properties or bytes(inner)[:1] != b"{":
            return args
        args = bytes(inner)
    return args


def _decode_call(arguments: bytes, child: str) -> SuiteCall | Failure:
    try:
        return _decode(arguments)
    except (msgspec.DecodeError, RecursionError) as problem:
        reason = str(problem)
    try:  # hosts that must send every field send null for missing ones
        members = decode_members(arguments)
        return _decode(
            msgspec.json.encode({name: raw for name, raw in members.items() if bytes(raw) != b"null"})
        )
    except (msgspec.DecodeError, RecursionError):
        return failure("bad_arguments", f"Arguments for child '{child}': {reason}.", child=child)


def _repair_args(args: bytes, child: str, subtool: str) -> bytes | Failure:
    """Return `args` as an object: a JSON string that contains one is decoded, null is empty, the rest is refused."""
    first = args[:1]
    if first == b"{":
        return args
    if first == b"n":
        return b"{}"
    if first == b'"':
        args_object = _object_in(args)
        if args_object:
            return args_object
    what = {b'"': "a string", b"[": "an array", b"t": "a boolean", b"f": "a boolean"}.get(first, "a number")
    return failure(
        "bad_arguments",
        f"`args` for child '{child}', subtool '{subtool}' must be a JSON object, not {what}.",
        child=child,
        subtool=subtool or UNSET,
    )


def _object_in(string: bytes) -> bytes:
    """Return the JSON object in a JSON string: `{}` if blank, empty if it contains anything else."""
    try:
        text_object = replace_lone_surrogates(_decode_text(string).strip().encode()) or b"{}"
        decode_members(text_object)
    except (msgspec.DecodeError, RecursionError):
        return b""
    # Newlines here can only be white space between tokens; replacing them puts the object on one line, as stdio
    # requires.
    return text_object.replace(b"\n", b" ").replace(b"\r", b" ")


def _unwrap_call(call: SuiteCall, child: str) -> SuiteCall | Failure:
    """Handle an unknown action. The whole call may be wrapped, as in {"arguments": {"action": …}}."""
    word = call.action or call.op
    if word:
        shown = msgspec.json.encode(word).decode()
        return failure(
            "bad_arguments",
            f'`action` for child \'{child}\' must be "introspect" or "call", not {shown}.',
            child=child,
        )
    inner = bytes((call.arguments if call.arguments is not UNSET else call.args) or b"{}")
    if inner[:1] == b'"':
        inner = _object_in(inner)
    if inner[:1] == b"{" and not call.subtool:
        whole = _decode_call(inner, child)
        if isinstance(whole, SuiteCall) and (whole.action or whole.op):
            return normalize(whole, child)
    return _no_action(child)


def _no_action(child: str) -> Failure:
    return failure(
        "bad_arguments", f'A call to child \'{child}\' needs `action`: "introspect" or "call".', child=child
    )
