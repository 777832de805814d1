"""JSON-RPC envelopes with undecoded bodies.

`parse` decodes the outer object only: `id`, `params`, `result` and `error` stay raw bytes, so relayed content is
byte-for-byte equal to what arrived. Ids keep their exact text: `1` and `"1"` differ. This module is not MCP-aware.
"""

from __future__ import annotations

import re
from typing import final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType


class RpcMessage(Struct, gc=False):
    """A request, a notification or a response."""

    id: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class RpcError(Struct, gc=False):
    """The `error` member of a response."""

    code: int = 0
    message: str = ""
    data: Raw | UnsetType = UNSET


@final
class Malformed(Struct, frozen=True):
    """A message that could not be decoded. `is_json` is True if it is JSON of the wrong shape."""

    reason: str
    is_json: bool
    id: bytes = b"null"


MAX_BATCH = 1000
# Larger messages are not repaired character by character: that takes 40 ms for this much, in one step.
MAX_REPAIRED_BYTES = 1024 * 1024
_ASCII_ONLY = bytes(range(128)) + b"?" * 128
# Decodes an envelope; raises where `parse` returns `Malformed`.
decode = msgspec.json.Decoder(RpcMessage).decode
# Decodes the members of an object without decoding their values.
decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_batch = msgspec.json.Decoder(list[Raw]).decode
_decode_error = msgspec.json.Decoder(RpcError).decode
encode = msgspec.json.encode
MISSING_RESULT_ERROR = Raw(b'{"code":-32603,"message":"No result."}')


def parse(data: bytes) -> RpcMessage | Malformed:
    """Decode one envelope."""
    try:
        return decode(data)
    except msgspec.ValidationError as problem:
        return Malformed(str(problem), is_json=True, id=find_id(data[:1024], data[-1024:]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        repaired = replace_lone_surrogates(data)
        return parse(repaired) if repaired != data else Malformed(str(problem), is_json=False)


def split_batch(data: bytes) -> list[bytes] | Malformed:
    """Return the members of a JSON-RPC batch. One with too many members is malformed, since each takes its time."""
    try:
        members = _decode_batch(replace_lone_surrogates(data))
        if len(members) > MAX_BATCH:
            return Malformed(f"A batch has at most {MAX_BATCH} messages.", is_json=True)
        return [bytes(member) for member in members]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        return Malformed(str(problem), is_json=False)


def parse_error(error: Raw) -> RpcError:
    """Decode an `error` member. Falls back to its text if it has no valid shape."""
    try:
        return _decode_error(error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return RpcError(message=bytes(error)[:200].decode("utf-8", "replace"))


def without_data(error: Raw | bytes, max_chars: int) -> bytes:
    """Return an `error` member without its data, and with at most `max_chars` of its message."""
    decoded = parse_error(Raw(error))
    return encode({"code": decoded.code, "message": decoded.message[:max_chars]})


def get_error(answer: RpcMessage) -> Raw | None:
    """Return the error of a response, or None if it carries a result."""
    if answer.error is not UNSET and bytes(answer.error) != b"null":
        return answer.error
    return MISSING_RESULT_ERROR if answer.result is UNSET else None


def canonicalize(body: Raw | bytes) -> bytes:
    """Return the same bytes for bodies that differ only in formatting; undecodable bodies are returned as they are."""
    try:
        return msgspec.json.encode(msgspec.json.decode(body), order="sorted")
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError):
        return bytes(body)


def replace_invalid_utf8(data: bytes) -> bytes:
    """Return `data` with invalid UTF-8 sequences replaced; valid data is returned unchanged.

    Of large invalid data, all bytes beyond ASCII are replaced, which is a hundred times as fast.
    """
    if data.isascii():
        return data
    try:
        data.decode()
    except UnicodeDecodeError:
        if len(data) > MAX_REPAIRED_BYTES:
            return data.translate(_ASCII_ONLY)
        return data.decode("utf-8", "replace").encode()
    return data


def replace_lone_surrogates(data: bytes) -> bytes:
    """Return the same JSON with every unpaired surrogate escape replaced.

    Programs that count in UTF-16 cut emojis in half and write the half as an escape, which decoders reject. Large data
    is returned as it is.
    """
    if len(data) > MAX_REPAIRED_BYTES:
        return data
    if b"\\ud" not in data and b"\\uD" not in data:
        return data
    if b"\0" in data:  # not valid JSON anyway
        return data
    # Without escaped backslashes, every other one begins an escape. Two plain replacements are ten times as fast as one
    # that calls back into Python for each escape.
    data = data.replace(rb"\\", b"\0\0")
    data = re.sub(_HIGH + rb"(?!" + _LOW + rb")", rb"\\ufffd", data)
    data = re.sub(rb"(?<!" + _HIGH + rb")" + _LOW, rb"\\ufffd", data)
    return data.replace(b"\0\0", rb"\\")


def find_id(head: bytes, tail: bytes) -> bytes:
    """Return the id of an envelope of which only the first and last bytes are known, or `null`.

    Only the positions where the envelope's own id can be are searched, since the body may contain ids too.
    """
    match = re.match(_START + rb"(?:" + _VERSION + rb",\s*)?" + _ID + rb"[,}]", head)
    match = match or re.search(rb"[{,]\s*" + _ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*\Z", tail)
    return match[1] if match else b"null"


def starts_like_response(head: bytes) -> bool:
    """Return True if an envelope of which only the first bytes are known is a response."""
    leading_members = rb"(?:(?:" + _VERSION + rb"|" + _ID + rb"),\s*){0,2}"
    return re.match(_START + leading_members + rb'"(?:result|error)"\s*:', head) is not None


_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_START = rb"(?:\xef\xbb\xbf)?\s*\{\s*"
_ID = rb'"id"\s*:\s*(-?\d[\d.eE+-]*|"(?:[^"\\]|\\.)*")\s*'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'


def request(id: bytes, method: str, params: bytes | Raw = b"{}") -> bytes:
    """Encode a request."""
    return b"".join(
        (b'{"jsonrpc":"2.0","id":', id, b',"method":', encode(method), b',"params":', params, b"}")
    )


def notification(method: str, params: bytes | Raw | None = None) -> bytes:
    """Encode a notification."""
    if params is None:
        return b'{"jsonrpc":"2.0","method":' + encode(method) + b"}"
    return b"".join((b'{"jsonrpc":"2.0","method":', encode(method), b',"params":', params, b"}"))


def result(id: bytes | Raw, body: bytes | Raw) -> bytes:
    """Encode a response that carries a result."""
    return b"".join((b'{"jsonrpc":"2.0","id":', id, b',"result":', body, b"}"))


def error(id: bytes | Raw, code: int, message: str, data: bytes | None = None) -> bytes:
    """Encode a response that carries an error."""
    body: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        body["data"] = Raw(data)
    return error_body(id, encode(body))


def error_body(id: bytes | Raw, body: bytes | Raw) -> bytes:
    """Encode a response with an already encoded `error` member."""
    return b"".join((b'{"jsonrpc":"2.0","id":', id, b',"error":', body, b"}"))
