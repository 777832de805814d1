"""Validates a POST before it is served, and decides which protocol version family serves it. Pure.

Since 2026-07-28, headers mirror parts of the body so that proxies can route by them; they must match it. Checks run in
the order of the specification, and the first that fails is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from switchboard_mcp.protocol import http_headers, jsonrpc, message_meta, versions
from switchboard_mcp.protocol.http_headers import HeaderMirror
from switchboard_mcp.protocol.jsonrpc import RpcMessage

VERSION, METHOD, NAME = (
    http_headers.VERSION.encode(),
    http_headers.METHOD.encode(),
    http_headers.NAME.encode(),
)
SESSION = b"mcp-session-id"
META_VERSION_KEY = message_meta.VERSION.encode()
ID_FIRST_BYTES = frozenset(b'"-0123456789')
# Errors about the request itself have their own HTTP status; an error while serving it is a 200.
STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    METHOD_NOT_FOUND: 404,
    versions.HEADER_MISMATCH: 400,
    versions.MISSING_CAPABILITY: 400,
    versions.UNSUPPORTED_VERSION: 400,
}


class MessageHead(Struct, gc=False):
    """The envelope of one message; its parts stay undecoded."""

    jsonrpc: str = ""
    id: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET

    @property
    def is_request(self) -> bool:
        """True if it expects a response."""
        return self.method is not UNSET and self.id is not UNSET


@final
class Refusal(Struct, frozen=True):
    """A response that rejects a request."""

    status: int
    body: bytes


class _Meta(Struct):
    meta: dict[str, Raw] | UnsetType = msgspec.field(name="_meta", default=UNSET)


class _Arguments(Struct):
    arguments: object = None


_decode = msgspec.json.Decoder(MessageHead).decode
_decode_arguments = msgspec.json.Decoder(_Arguments).decode
_decode_meta = msgspec.json.Decoder(_Meta).decode


def refusal(
    status: int, code: int, message: str, id: Raw | bytes = b"null", data: bytes | None = None
) -> Refusal:
    """Create a refusal with a JSON-RPC error as its body."""
    return Refusal(status, jsonrpc.error(id, code, message, data))


def read(body: bytes) -> MessageHead | Refusal:
    """Decode and validate the envelope of one message."""
    try:
        posted = _decode(body)
    except msgspec.ValidationError as problem:
        id = jsonrpc.find_id(body[:1024], body[-1024:])
        return refusal(400, INVALID_REQUEST, f"Invalid request: {problem}", id)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        repaired = jsonrpc.replace_lone_surrogates(jsonrpc.replace_invalid_utf8(body))
        if repaired != body:
            return read(repaired)
        return refusal(400, PARSE_ERROR, f"Parse error: {problem}")
    if posted.jsonrpc != "2.0":
        message = 'Invalid request: "jsonrpc":"2.0" is missing.'
        return refusal(400, INVALID_REQUEST, message, _id(posted))
    if posted.id is not UNSET and not _is_id(bytes(posted.id)):
        message = "Invalid request: the id must be a string or an integer."
        return refusal(400, INVALID_REQUEST, message)
    if posted.method is UNSET and (posted.id is UNSET or (posted.result is UNSET) == (posted.error is UNSET)):
        message = "Invalid request: not a request, a notification or a response."
        return refusal(400, INVALID_REQUEST, message, _id(posted))
    return posted


def is_stateless(version: bytes | None, posted: MessageHead, body: bytes) -> bool:
    """Return True for the stateless protocol: `_meta` says so, or the version header is not a legacy version."""
    if version is not None and version.strip().decode("latin-1") not in versions.LEGACY_VERSIONS:
        return True
    if META_VERSION_KEY not in body or posted.method is UNSET:
        return False
    return message_meta.is_stateless(_meta_of(posted))


def check(
    posted: MessageHead,
    headers: Mapping[bytes, bytes],
    pairs: Iterable[tuple[bytes, bytes]],
    mirrors: tuple[HeaderMirror, ...] = (),
) -> Refusal | None:
    """Validate a stateless request. `mirrors` are the arguments of its tool that headers mirror."""
    assert posted.id is not UNSET
    if _repeated(pairs):
        return _mismatch(posted, "An Mcp header occurs more than once.")
    meta = _meta_of(posted)
    if meta is UNSET:
        return refusal(400, INVALID_PARAMS, "params._meta is missing.", posted.id)
    version = message_meta.decode_text(meta.get(message_meta.VERSION))
    capabilities = meta.get(message_meta.CAPABILITIES)
    if version is None or capabilities is None or not message_meta.is_object(capabilities):
        message = f"_meta needs {message_meta.VERSION}, a string, and {message_meta.CAPABILITIES}, an object."
        return refusal(400, INVALID_PARAMS, message, posted.id)
    problem = _compare_headers(posted, headers)
    if problem:
        return _mismatch(posted, problem)
    meta_problem = message_meta.validate(meta)
    if meta_problem is not None:
        data = None if meta_problem.data is UNSET else bytes(meta_problem.data)
        return refusal(400, meta_problem.code, meta_problem.message, posted.id, data)
    problem = _compare_arguments(posted, headers, mirrors) if mirrors else ""
    return _mismatch(posted, problem) if problem else None


def status_of(answer: bytes, id: Raw | bytes) -> int:
    """Return the HTTP status for the response to a stateless request."""
    head = b'{"jsonrpc":"2.0","id":' + id + b',"error":'
    if not answer.startswith(head):
        return 200
    return STATUS.get(jsonrpc.parse_error(Raw(answer[len(head) : -1])).code, 200)


def tool_of(posted: MessageHead) -> str:
    """Return the name of the tool that a request calls, empty if it calls none."""
    if posted.method != "tools/call":
        return ""
    value = http_headers.request_headers(_message(posted), {}).get(http_headers.NAME, "")
    return http_headers.decode_value(value) or ""


def _id(posted: MessageHead) -> bytes:
    return bytes(posted.id) if posted.id is not UNSET and _is_id(bytes(posted.id)) else b"null"


def _is_id(id: bytes) -> bool:
    return id[0] in ID_FIRST_BYTES and (id[:1] == b'"' or not (b"." in id or b"e" in id or b"E" in id))


def _meta_of(posted: MessageHead) -> dict[str, Raw] | UnsetType:
    if posted.params is UNSET:
        return UNSET
    try:
        return _decode_meta(posted.params).meta
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNSET


def _message(posted: MessageHead) -> RpcMessage:
    return RpcMessage(id=posted.id, method=posted.method, params=posted.params)


def _mismatch(posted: MessageHead, message: str) -> Refusal:
    assert posted.id is not UNSET
    return refusal(400, versions.HEADER_MISMATCH, message, posted.id)


def _repeated(pairs: Iterable[tuple[bytes, bytes]]) -> bool:
    seen = set()
    for name, _value in pairs:
        if name.startswith(b"mcp-"):
            if name in seen and name != SESSION:
                return True
            seen.add(name)
    return False


def _compare_headers(posted: MessageHead, headers: Mapping[bytes, bytes]) -> str:
    """Return how version, method and name in the headers differ from the body, empty if they match."""
    expected = http_headers.request_headers(_message(posted), {})
    for name, value in expected.items():
        header = headers.get(name.encode())
        if header is None:
            return f"The header {name} is missing."
        text = header.strip().decode("latin-1")
        decoded = http_headers.decode_value(text) if name == http_headers.NAME else text
        if decoded is None or decoded != (
            http_headers.decode_value(value) if name == http_headers.NAME else value
        ):
            return f"The header {name} does not match the body."
    return ""


def _compare_arguments(
    posted: MessageHead, headers: Mapping[bytes, bytes], mirrors: tuple[HeaderMirror, ...]
) -> str:
    """Return how the headers that mirror arguments differ from them, empty if they match."""
    assert posted.params is not UNSET
    arguments = _decode_arguments(posted.params).arguments
    for mirror in mirrors:
        name = http_headers.PARAM + mirror.header.lower()
        header = headers.get(name.encode())
        value = _value_at(arguments, mirror.path)
        if header is None and value is None:
            continue
        if header is None:
            return f"The header {name} is missing."
        decoded = http_headers.decode_value(header.strip().decode("latin-1"))
        if decoded is None or not _is_same(decoded, value):
            return f"The header {name} does not match the argument."
    return ""


def _value_at(value: object, path: tuple[str, ...]) -> object:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _is_same(text: str, value: object) -> bool:
    if text == http_headers.to_text(value):
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:  # 42.0 equals 42
        return float(text) == value
    except ValueError:
        return False
