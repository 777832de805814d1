"""HTTP headers of a stateless request (2026-07-28), derived from its body.

A server of that family may route by headers alone, so each header repeats a part of the body: version, method, the
name of the tool, prompt or resource, and the arguments that a tool's schema marks with `x-mcp-header`. This module
encodes and decodes such values and validates the marks. It does not know HTTP or where schemas come from.
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Iterator, Mapping
from typing import Any, final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.protocol.method_traits import traits_of

VERSION, METHOD, NAME, PARAM = "mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-"
HEADER_KEYWORD = "x-mcp-header"
HEADER_TYPES = ("string", "integer", "boolean")
# Arguments nested deeper than this have no headers: the path of each would have to be kept.
MAX_DEPTH = 64
# HTTP servers accept about a hundred headers.
MAX_MIRRORS = 64
_PREFIX, _SUFFIX = "=?base64?", "?="
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
# Keywords that contain schemas. A mark below any of them, except `properties`, cannot be resolved to an argument.
_SCHEMA_KEYWORDS = frozenset(
    """
    items contains unevaluatedItems additionalProperties propertyNames unevaluatedProperties not if then else
    contentSchema
    """.split()
)
_SCHEMA_LIST_KEYWORDS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMA_MAP_KEYWORDS = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})


@final
class HeaderMirror(Struct, frozen=True):
    """An argument that is repeated in a header: its path in the arguments, and the header's name."""

    path: tuple[str, ...]
    header: str


@final
class InvalidMirror(Struct, frozen=True):
    """The reason why a schema's `x-mcp-header` marks are invalid. Such a tool must not be offered over HTTP."""

    reason: str


class _Envelope(Struct):
    version: str = msgspec.field(name="io.modelcontextprotocol/protocolVersion", default="")


class _Params(Struct):
    """The members of params that headers repeat."""

    meta: _Envelope | UnsetType = msgspec.field(name="_meta", default=UNSET)
    name: Raw | UnsetType = UNSET
    uri: Raw | UnsetType = UNSET
    task_id: Raw | UnsetType = msgspec.field(name="taskId", default=UNSET)
    arguments: Raw | UnsetType = UNSET


# Attributes by the name of the param.
_FIELDS = dict(zip(_Params.__struct_encode_fields__, _Params.__struct_fields__, strict=True))
_decode_params = msgspec.json.Decoder(_Params).decode
_decode = msgspec.json.Decoder().decode


def request_headers(message: RpcMessage, mirrors: Mapping[str, tuple[HeaderMirror, ...]]) -> dict[str, str]:
    """Return the headers for a request; empty if its body names no version (legacy family).

    `mirrors` maps tool names to their marked arguments.
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
    item_param = traits_of(message.method).item_param
    if not item_param:
        return headers
    name = _decode_text(getattr(params, _FIELDS[item_param]))
    if name is None:
        return headers
    headers[NAME] = encode_value(name)
    marked = mirrors.get(name, ()) if message.method == "tools/call" else ()
    if marked and params.arguments is not UNSET:
        headers.update(argument_headers(_decode(params.arguments), marked))
    return headers


def argument_headers(arguments: object, marked: tuple[HeaderMirror, ...]) -> dict[str, str]:
    """Return the headers for the marked arguments of a call. Missing and null arguments have none."""
    headers = {}
    for mirror in marked:
        value = to_text(_get_path(arguments, mirror.path))
        if value is not None:
            headers[PARAM + mirror.header.lower()] = encode_value(value)
    return headers


def to_text(value: object) -> str | None:
    """Return an argument as header text, or None if its type cannot be in a header."""
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
    """Encode a text for a header: as it is if it is plain ASCII, else as base64 between markers."""
    plain = text.isascii() and (text.isprintable() and text == text.strip())
    if plain and not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)):
        return text
    return _PREFIX + b2a_base64(text.encode("utf-8", "replace"), newline=False).decode() + _SUFFIX


def decode_value(value: str) -> str | None:
    """Decode a header value; None if the text between the markers is not base64 of UTF-8."""
    if len(value) < len(_PREFIX + _SUFFIX) or not (value.startswith(_PREFIX) and value.endswith(_SUFFIX)):
        return value
    inner = value[len(_PREFIX) : -len(_SUFFIX)]
    try:
        data = a2b_base64(inner, strict_mode=True) if inner else b""
        # Several spellings decode to the same bytes; only the canonical one is accepted.
        return data.decode() if b2a_base64(data, newline=False).decode() == inner else None
    except (Error, ValueError):
        return None


def find_mirrors(schema: bytes | Raw) -> tuple[HeaderMirror, ...] | InvalidMirror:
    """Return the marked arguments of an input schema, or the reason why its marks are invalid."""
    if HEADER_KEYWORD.encode() not in bytes(schema):
        return ()
    try:
        root = _decode(schema)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    mirrors: dict[str, HeaderMirror] = {}
    for path, node in _positions(root):
        if HEADER_KEYWORD not in node:
            continue
        name = node[HEADER_KEYWORD]
        where = ".".join(path) if path else "the schema"
        if not path:
            return InvalidMirror(f"{HEADER_KEYWORD} is at a place that no argument corresponds to")
        if not isinstance(name, str) or not re.fullmatch(_TOKEN, name):
            return InvalidMirror(f"{HEADER_KEYWORD} of {where} is not a valid header name")
        if node.get("type") not in HEADER_TYPES:
            return InvalidMirror(f"{HEADER_KEYWORD} of {where} needs the type string, integer or boolean")
        if name.lower() in mirrors:
            return InvalidMirror(f"{HEADER_KEYWORD} of {where} is used by another argument too")
        if len(mirrors) == MAX_MIRRORS:
            return InvalidMirror(f"more than {MAX_MIRRORS} arguments have an {HEADER_KEYWORD}")
        mirrors[name.lower()] = HeaderMirror(path, name)
    return tuple(mirrors.values())


def _positions(root: object) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Yield every schema within a schema with the path of the argument it describes, or None if there is none."""
    todo: list[tuple[tuple[str, ...] | None, object]] = [((), root)]
    while todo:
        path, node = todo.pop()
        if not isinstance(node, dict):
            continue
        yield path, node
        if path is not None and len(path) >= MAX_DEPTH:
            path = None
        for keyword, value in node.items():
            if keyword == "properties" and isinstance(value, dict):
                todo += [((*path, name) if path is not None else None, part) for name, part in value.items()]
            elif keyword in _SCHEMA_KEYWORDS:
                todo.append((None, value))
            elif keyword in _SCHEMA_LIST_KEYWORDS and isinstance(value, list):
                todo += [(None, part) for part in value]
            elif keyword in _SCHEMA_MAP_KEYWORDS and isinstance(value, dict):
                todo += [(None, part) for part in value.values()]


def _get_path(value: object, path: tuple[str, ...]) -> object:
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _decode_text(raw: Raw | UnsetType) -> str | None:
    value = _decode(raw) if raw is not UNSET else None
    return value if isinstance(value, str) else None
