"""The headers of a request over HTTP in the era without a handshake (2026-07-28), worked out from its body.

A server of that era may route by headers alone, so each repeats a part of the body: the version, the method, the name
of what is asked for, and those arguments that a tool's schema marks with `x-mcp-header`. Owns how such values are
written and read, and which marks are valid. Does not know HTTP, nor where schemas come from.
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Iterator, Mapping
from typing import Any, final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.protocol.jsonrpc import RpcMessage

VERSION, METHOD, NAME, PARAM = "mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-"
MARK = "x-mcp-header"
MARKABLE = ("string", "integer", "boolean")
_PREFIX, _SUFFIX = "=?base64?", "?="
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
# Where a schema holds schemas. `properties` apart, a mark in any of them names no argument that can be found.
_ONE = frozenset(
    """
    items contains unevaluatedItems additionalProperties propertyNames unevaluatedProperties not if then else
    contentSchema
    """.split()
)
_LIST = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAP = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})


@final
class HeaderMirror(Struct, frozen=True):
    """An argument that is repeated in a header: the way to it, and the header's name."""

    path: tuple[str, ...]
    header: str


@final
class InvalidMirror(Struct, frozen=True):
    """Why the marks of a schema are invalid. Such a tool must not be offered over HTTP."""

    reason: str


class _Envelope(Struct):
    version: str = msgspec.field(name="io.modelcontextprotocol/protocolVersion", default="")


class _Params(Struct):
    """The parts of params that headers repeat."""

    meta: _Envelope | UnsetType = msgspec.field(name="_meta", default=UNSET)
    name: Raw | UnsetType = UNSET
    uri: Raw | UnsetType = UNSET
    task_id: Raw | UnsetType = msgspec.field(name="taskId", default=UNSET)
    arguments: Raw | UnsetType = UNSET


_NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "task_id",
    "tasks/update": "task_id",
    "tasks/cancel": "task_id",
}
_decode_params = msgspec.json.Decoder(_Params).decode
_decode = msgspec.json.Decoder().decode


def request_headers(message: RpcMessage, mirrors: Mapping[str, tuple[HeaderMirror, ...]]) -> dict[str, str]:
    """The headers that go with a request, none where its body does not name its version (the handshake era).

    `mirrors` has the marked arguments by tool.
    """
    if message.params is UNSET or not isinstance(message.method, str):
        return {}
    try:
        params = _decode_params(message.params)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    if params.meta is UNSET or not params.meta.version:
        return {}
    headers = {VERSION: params.meta.version, METHOD: message.method}
    named_by = _NAMED_BY.get(message.method)
    if named_by is None:
        return headers
    name = _text(getattr(params, named_by))
    if name is None:
        return headers
    headers[NAME] = encode_value(name)
    marked = mirrors.get(name, ()) if message.method == "tools/call" else ()
    if marked and params.arguments is not UNSET:
        headers.update(argument_headers(_decode(params.arguments), marked))
    return headers


def argument_headers(arguments: object, marked: tuple[HeaderMirror, ...]) -> dict[str, str]:
    """The headers that repeat the marked ones of a call's arguments. What is not there, or null, has none."""
    headers = {}
    for mirror in marked:
        value = to_text(_find(arguments, mirror.path))
        if value is not None:
            headers[PARAM + mirror.header.lower()] = encode_value(value)
    return headers


def to_text(value: object) -> str | None:
    """An argument as it stands in a header; None where it has no form there."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        try:
            return str(value)
        except ValueError:  # thousands of digits
            return None
    return None


def encode_value(text: str) -> str:
    """A text as a header can carry it: in base64 between marks, unless it is plain and cannot be taken for that."""
    plain = text.isascii() and (text.isprintable() and text == text.strip())
    if plain and not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)):
        return text
    return _PREFIX + b2a_base64(text.encode("utf-8", "replace"), newline=False).decode() + _SUFFIX


def decode_value(value: str) -> str | None:
    """The text that a header carries; None where what stands between the marks is no base64 of a text."""
    if len(value) < len(_PREFIX + _SUFFIX) or not (value.startswith(_PREFIX) and value.endswith(_SUFFIX)):
        return value
    inner = value[len(_PREFIX) : -len(_SUFFIX)]
    try:
        data = a2b_base64(inner, strict_mode=True) if inner else b""
        # A few spellings decode to the same bytes; only one is what an encoder writes.
        return data.decode() if b2a_base64(data, newline=False).decode() == inner else None
    except (Error, ValueError):
        return None


def find_mirrors(schema: bytes | Raw) -> tuple[HeaderMirror, ...] | InvalidMirror:
    """The marked arguments of an input schema, or why its marks are invalid."""
    if MARK.encode() not in bytes(schema):
        return ()
    try:
        root = _decode(schema)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    found: dict[str, HeaderMirror] = {}
    for path, node in _positions(root):
        if MARK not in node:
            continue
        name = node[MARK]
        where = ".".join(path) if path else "the schema"
        if not path:
            return InvalidMirror(f"{MARK} stands where no argument can be found for it")
        if not isinstance(name, str) or not re.fullmatch(_TOKEN, name):
            return InvalidMirror(f"{MARK} of {where} is no name for a header")
        if node.get("type") not in MARKABLE:
            return InvalidMirror(f"{MARK} of {where} needs the type string, integer or boolean")
        if name.lower() in found:
            return InvalidMirror(f"{MARK} of {where} is the same as that of another argument")
        found[name.lower()] = HeaderMirror(path, name)
    return tuple(found.values())


def _positions(root: object) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Every schema within a schema, with the way to the argument it describes; None where there is no such way."""
    todo: list[tuple[tuple[str, ...] | None, object]] = [((), root)]
    while todo:
        path, node = todo.pop()
        if not isinstance(node, dict):
            continue
        yield path, node
        for keyword, value in node.items():
            if keyword == "properties" and isinstance(value, dict):
                todo += [((*path, name) if path is not None else None, part) for name, part in value.items()]
            elif keyword in _ONE:
                todo.append((None, value))
            elif keyword in _LIST and isinstance(value, list):
                todo += [(None, part) for part in value]
            elif keyword in _MAP and isinstance(value, dict):
                todo += [(None, part) for part in value.values()]


def _find(value: object, path: tuple[str, ...]) -> object:
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _text(raw: Raw | UnsetType) -> str | None:
    value = _decode(raw) if raw is not UNSET else None
    return value if isinstance(value, str) else None
