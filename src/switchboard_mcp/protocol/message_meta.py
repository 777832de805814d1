"""The two eras of MCP on one message: what `_meta` must say, and what a result must look like.

From 2026-07-28 on every request carries version, capabilities and log level in `_meta`, and every result its
`resultType`. Between a host of one era and a child of the other these are put on and taken off here. Pure; knows no
sessions, no transports.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp import __version__
from switchboard_mcp.protocol.jsonrpc import parse_error
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

IDENTITY = Raw(msgspec.json.encode({"name": "switchboard", "version": __version__}))
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

INVALID_PARAMS, INTERNAL_ERROR = -32602, -32603
RESOURCE_NOT_FOUND = -32002  # of the handshake era
# Codes that only the protocol gives a meaning in the modern era.
RESERVED = range(-32099, -32019)
# What describes the hop between us and a child is not for the host.
HOP_ERRORS = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.encode
COMPLETE = b'{"resultType":"complete"'
CACHE_HINTS = b',"ttlMs":0,"cacheScope":"private"'
STATELESS_MEMBERS = ("resultType", "ttlMs", "cacheScope")


class MetaError(Struct, frozen=True):
    """Why an envelope is refused."""

    code: int
    message: str
    data: Raw | UnsetType = UNSET


def is_stateless(meta: Meta | UnsetType) -> bool:
    """Whether a request is of the era without handshakes."""
    return meta is not UNSET and VERSION in meta


def client_capabilities(meta: Meta | UnsetType, greeted: bytes) -> bytes:
    """What a client can do: as its request says, else as it said in its greeting."""
    return bytes(meta[CAPABILITIES]) if meta is not UNSET and CAPABILITIES in meta else greeted


def validate(meta: Meta) -> MetaError | None:
    """What is wrong with the envelope of a modern request."""
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
    """A JSON string as text, or None where it is none."""
    try:
        return None if raw is None else _decode_text(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_object(raw: Raw) -> bool:
    """Whether raw JSON is an object."""
    return bytes(raw)[:1] == b"{"


def child_meta(
    meta: Meta | UnsetType, id: bytes, *, stateless: bool, capabilities: bytes = b"{}", level: str = ""
) -> bytes | None:
    """`_meta` for the hop to a child; None where there is nothing to say.

    What describes the hop is taken off or put on; trace and vendor keys stay. A progress token becomes our own, since
    tokens of two hosts may be equal.
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
    """A result as a host of the modern era wants it; `native` where it comes from a server of that era.

    What is no object stays as it is: nothing can be said in it.
    """
    if result[:1] != b"{":
        return result
    hints = CACHE_HINTS if cacheable else b""
    if b'"resultType"' in result or (cacheable and b'"ttlMs"' in result):
        members = _decode_object(result)
        if "resultType" in members:
            if from_stateless:
                return result
            del members["resultType"]  # of no meaning in the handshake era
            result = _encode(members)
        if "ttlMs" in members:
            hints = b""
    rest = result[1:].lstrip()
    return COMPLETE + hints + (rest if rest[:1] == b"}" else b"," + rest)


def to_legacy_result(result: Raw | bytes) -> bytes:
    """A modern child's result as a host of the handshake era knows it."""
    if bytes(result)[:1] != b"{":
        return bytes(result)
    members = _decode_object(result)
    for name in STATELESS_MEMBERS:
        members.pop(name, None)
    if "_meta" in members and is_object(members["_meta"]):
        meta = strip_protocol_keys(_decode_object(members["_meta"]))
        if meta:
            members["_meta"] = Raw(_encode(meta))
        else:
            del members["_meta"]
    structured = members.get("structuredContent")
    if structured is not None and not is_object(structured):
        del members["structuredContent"]  # handshake-era hosts know objects only; the text says the same
    return _encode(members)


def translate_error(error: Raw, *, stateless: bool, same_family: bool, uri: str = "") -> Raw | bytes:
    """A child's error as its host may see it; `native` where the child is of the host's era.

    Codes that describe the hop to the child, or mean something else in the host's era, are told as a fault of the
    child, with what it said. `uri` is the resource the host asked for, where it did.
    """
    if same_family and not stateless:
        return error
    told = parse_error(error)
    if stateless and not same_family and told.code == RESOURCE_NOT_FOUND:
        data = {"uri": uri} if uri else told.data
        return _encode({"code": INVALID_PARAMS, "message": told.message, "data": data})
    if told.code in (RESERVED if stateless else HOP_ERRORS):
        return _encode({"code": INTERNAL_ERROR, "message": "The child refused the request.", "data": error})
    return error


def result_type(result: Raw | bytes) -> str:
    """The kind of a modern result; what says nothing is complete."""
    data = bytes(result)
    if b'"resultType"' not in data or data[:1] != b"{":
        return "complete"
    return _decode_kind(data).result_type


def strip_protocol_keys(meta: Meta) -> Meta:
    """`_meta` without the keys that are the protocol's own."""
    return {key: value for key, value in meta.items() if not key.startswith(PREFIX)}


def translate_tool(tool: Raw, *, stateless: bool, same_family: bool) -> Raw:
    """A child's tool as a host of either era may see it; `native` where the child is of the host's era."""
    if same_family or (
        b'"execution"' not in bytes(tool) if stateless else b'"outputSchema"' not in bytes(tool)
    ):
        return tool
    members = _decode_object(tool)
    if stateless:
        members.pop("execution", None)  # tasks of the handshake era
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


class _Schema(Struct):
    type: str = ""


_decode_kind = msgspec.json.Decoder(_Kind).decode
_decode_schema = msgspec.json.Decoder(_Schema).decode


class InputRequired(Struct, rename="camel"):
    """A modern result that asks for more before it can be complete."""

    result_type: str = ""
    input_requests: dict[str, Raw] = {}
    request_state: Raw | UnsetType = UNSET


_decode_input = msgspec.json.Decoder(InputRequired).decode


def parse_input_required(result: Raw | bytes) -> InputRequired | None:
    """What a modern result asks for, where it asks."""
    data = bytes(result)
    if b'"input_required"' not in data or data[:1] != b"{":
        return None
    asked = _decode_input(data)
    return asked if asked.result_type == "input_required" else None


def input_required_result(requests: dict[str, dict[str, object]], state: str) -> bytes:
    """The result that asks a modern host for input."""
    return _encode({"resultType": "input_required", "inputRequests": requests, "requestState": state})
