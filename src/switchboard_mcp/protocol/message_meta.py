"""Translates single messages between the two protocol families: `_meta`, results, errors and tools.

From 2026-07-28 on every request carries version, capabilities and log level in `_meta`, and every result a
`resultType`. Between a host of one family and a child of the other these are added and removed here. Pure; not aware
of sessions or transports.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp import __version__
from switchboard_mcp.protocol.jsonrpc import decode_members, parse_error
from switchboard_mcp.protocol.versions import (
    HEADER_MISMATCH,
    LATEST_STATELESS,
    MISSING_CAPABILITY,
    PREFIX,
    STATELESS_VERSIONS,
    UNSUPPORTED_VERSION,
)

Meta = dict[str, Raw]

VERSION = PREFIX + "protocolVersion"
CAPABILITIES = PREFIX + "clientCapabilities"
CLIENT = PREFIX + "clientInfo"
LEVEL = PREFIX + "logLevel"
SERVER = PREFIX + "serverInfo"
SUBSCRIPTION = PREFIX + "subscriptionId"
RELATED_TASK = PREFIX + "related-task"

IDENTITY = Raw(msgspec.json.encode({"name": "switchboard", "version": __version__}))
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

INVALID_PARAMS, INTERNAL_ERROR = -32602, -32603
RESOURCE_NOT_FOUND = -32002  # legacy family only
# Codes reserved for the protocol in the stateless family.
RESERVED = range(-32099, -32019)
# Errors about the hop between us and a child, which the host must not see as its own.
HOP_ERRORS = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})

_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.encode
COMPLETE = b'{"resultType":"complete"'
CACHE_HINTS = b',"ttlMs":0,"cacheScope":"private"'
# Real names are short.
MAX_CLIENT_CHARS = 100
STATELESS_MEMBERS = ("resultType", "ttlMs", "cacheScope")


class MetaError(Struct, frozen=True):
    """The JSON-RPC error for an invalid `_meta`."""

    code: int
    message: str
    data: Raw | UnsetType = UNSET


def is_stateless(meta: Meta | UnsetType) -> bool:
    """Return True if a request is of the stateless family."""
    return meta is not UNSET and VERSION in meta


def client_capabilities(meta: Meta | UnsetType, declared: bytes) -> bytes:
    """Return the capabilities from the request's `_meta`, or those of the `initialize` handshake."""
    return bytes(meta[CAPABILITIES]) if meta is not UNSET and CAPABILITIES in meta else declared


def client_name(info: Raw | UnsetType | None) -> str:
    """Return the name in a `clientInfo`; empty if there is none. The client chose it, so it may be anything."""
    if info is UNSET or info is None:
        return ""
    try:
        return _decode_client(info).name[:MAX_CLIENT_CHARS]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def client_version(info: Raw | UnsetType | None) -> str:
    """Return the version in a `clientInfo`; empty if there is none."""
    if info is UNSET or info is None:
        return ""
    try:
        return _decode_version(info).version[:MAX_CLIENT_CHARS]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def validate(meta: Meta) -> MetaError | None:
    """Return the error for the `_meta` of a stateless request, or None if it is valid."""
    version = decode_text(meta.get(VERSION))
    if version is None:
        return MetaError(INVALID_PARAMS, f"_meta: {VERSION} must be a string.")
    if version not in STATELESS_VERSIONS:
        data = Raw(_encode({"supported": list(STATELESS_VERSIONS), "requested": version}))
        return MetaError(UNSUPPORTED_VERSION, f"Unsupported protocol version '{version}'.", data)
    capabilities = meta.get(CAPABILITIES)
    if capabilities is None or not is_object(capabilities):
        return MetaError(INVALID_PARAMS, f"_meta: {CAPABILITIES} must be an object.")
    if LEVEL in meta and decode_text(meta[LEVEL]) not in LEVELS:
        return MetaError(INVALID_PARAMS, f"_meta: {LEVEL} must be one of {', '.join(LEVELS)}.")
    return None


def decode_text(raw: Raw | None) -> str | None:
    """Decode a JSON string, or return None if it is not one."""
    try:
        return None if raw is None else _decode_text(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_object(raw: Raw) -> bool:
    """Return True if raw JSON is an object."""
    return bytes(raw)[:1] == b"{"


def child_meta(
    meta: Meta | UnsetType, id: bytes, *, stateless: bool, capabilities: bytes = b"{}", level: str = ""
) -> bytes | None:
    """Return `_meta` for a request to a child, or None if there is nothing to send.

    Protocol keys are those of this hop; trace context and vendor keys are kept. A progress token is replaced by our
    own, since two hosts may use the same one.
    """
    members: Meta = {}
    if meta is not UNSET:
        members = strip_protocol_keys(meta)
        if "progressToken" in members:
            members["progressToken"] = Raw(id)
    if stateless:
        members[VERSION] = Raw(_encode(LATEST_STATELESS))
        members[CAPABILITIES] = Raw(capabilities)
        members[CLIENT] = IDENTITY
        if level:
            members[LEVEL] = Raw(_encode(level))
    return _encode(members) if members or meta is not UNSET else None


def to_stateless_result(result: bytes, *, cacheable: bool = False, from_stateless: bool = True) -> bytes:
    """Convert a result for a stateless host; `from_stateless` if it comes from a stateless server.

    A result that is not an object is returned unchanged.
    """
    if result[:1] != b"{":
        return result
    hints = CACHE_HINTS if cacheable else b""
    if b'"resultType"' in result or (cacheable and b'"ttlMs"' in result):
        members = decode_members(result)
        if "resultType" in members:
            if from_stateless:
                return result
            del members["resultType"]  # has no meaning in the legacy family
            result = _encode(members)
        if "ttlMs" in members:
            hints = b""
    rest = result[1:].lstrip()
    return COMPLETE + hints + (rest if rest[:1] == b"}" else b"," + rest)


def to_legacy_result(result: Raw | bytes) -> bytes:
    """Convert the result of a stateless child for a legacy host."""
    if bytes(result)[:1] != b"{":
        return bytes(result)
    members = decode_members(result)
    for name in STATELESS_MEMBERS:
        members.pop(name, None)
    if "_meta" in members and is_object(members["_meta"]):
        meta = strip_protocol_keys(decode_members(members["_meta"]))
        if meta:
            members["_meta"] = Raw(_encode(meta))
        else:
            del members["_meta"]
    structured = members.get("structuredContent")
    if structured is not None and not is_object(structured):
        del members[
            "structuredContent"
        ]  # legacy hosts accept objects only; the text content has the same data
    return _encode(members)


def translate_error(error: Raw, *, stateless: bool, same_family: bool, uri: str = "") -> Raw | bytes:
    """Convert a child's error for its host; `same_family` if both are of the same family.

    Codes that describe the hop to the child, or that mean something else in the host's family, become an internal error
    with the original as its data. `uri` is the resource the host requested, if it requested one.
    """
    if same_family and not stateless:
        return error
    decoded = parse_error(error)
    if stateless and not same_family and decoded.code == RESOURCE_NOT_FOUND:
        body: dict[str, object] = {"code": INVALID_PARAMS, "message": decoded.message}
        if uri or decoded.data is not UNSET:
            body["data"] = {"uri": uri} if uri else decoded.data
        return _encode(body)
    if decoded.code in (RESERVED if stateless else HOP_ERRORS):
        return _encode({"code": INTERNAL_ERROR, "message": "The child refused the request.", "data": error})
    return error


def result_type(result: Raw | bytes) -> str:
    """Return the `resultType` of a stateless result; it defaults to `complete`."""
    data = bytes(result)
    if b'"resultType"' not in data or data[:1] != b"{":
        return "complete"
    return _decode_kind(data).result_type


def strip_protocol_keys(meta: Meta) -> Meta:
    """Return `_meta` without the keys reserved for the protocol."""
    return {key: value for key, value in meta.items() if not key.startswith(PREFIX)}


def translate_tool(tool: Raw, *, stateless: bool, same_family: bool) -> Raw:
    """Convert a child's tool for a host of either family; `same_family` if both are of the same family."""
    if same_family or (
        b'"execution"' not in bytes(tool) if stateless else b'"outputSchema"' not in bytes(tool)
    ):
        return tool
    members = decode_members(tool)
    if stateless:
        members.pop("execution", None)  # legacy tasks
    elif not _describes_objects(members.get("outputSchema")):
        members.pop("outputSchema", None)
    return Raw(_encode(members))


def _describes_objects(schema: Raw | None) -> bool:
    try:
        return schema is not None and _decode_schema(schema).type == "object"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


class _Kind(Struct, rename="camel"):
    result_type: str = "complete"


class _Client(Struct):
    name: str = ""


class _Version(Struct):
    version: str = ""


class _Schema(Struct):
    type: str = ""


_decode_kind = msgspec.json.Decoder(_Kind).decode
_decode_client = msgspec.json.Decoder(_Client).decode
_decode_version = msgspec.json.Decoder(_Version).decode
_decode_schema = msgspec.json.Decoder(_Schema).decode


class InputRequired(Struct, rename="camel"):
    """A stateless result that requests input before it can be complete."""

    result_type: str = ""
    input_requests: dict[str, Raw] = {}
    request_state: Raw | UnsetType = UNSET


_decode_input = msgspec.json.Decoder(InputRequired).decode


def parse_input_required(result: Raw | bytes) -> InputRequired | None:
    """Return the input that a stateless result requests, or None if it is complete."""
    data = bytes(result)
    if b'"input_required"' not in data or data[:1] != b"{":
        return None
    decoded = _decode_input(data)
    return decoded if decoded.result_type == "input_required" else None


def input_required_result(requests: dict[str, dict[str, object]], state: str) -> bytes:
    """Encode a result that requests input from a stateless host."""
    return _encode({"resultType": "input_required", "inputRequests": requests, "requestState": state})
