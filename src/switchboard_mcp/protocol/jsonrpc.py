"""JSON-RPC envelopes with their bodies left undecoded.

`parse` reads the outer object and nothing else: `id`, `params`, `result` and `error` stay raw bytes, so that what
passes through is equal to what came. Ids keep their exact text: `1` and `"1"` differ. Knows nothing of MCP.
"""

from __future__ import annotations

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
    """A message that cannot be read, and why. `parsed` tells bad JSON from JSON of the wrong shape."""

    reason: str
    is_json: bool
    id: bytes = b"null"


# The bare reading of an envelope, which raises what `parse` makes a value of.
decode = msgspec.json.Decoder(RpcMessage).decode
_decode_batch = msgspec.json.Decoder(list[Raw]).decode
_decode_error = msgspec.json.Decoder(RpcError).decode
encode = msgspec.json.encode
NO_RESULT = Raw(b'{"code":-32603,"message":"No result."}')


def parse(data: bytes) -> RpcMessage | Malformed:
    """Read one envelope."""
    try:
        return decode(data)
    except msgspec.ValidationError as problem:
        return Malformed(str(problem), is_json=True, id=find_id(data[:1024], data[-1024:]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        mended = replace_lone_surrogates(data)
        return parse(mended) if mended != data else Malformed(str(problem), is_json=False)


def split_batch(data: bytes) -> list[bytes] | Malformed:
    """The members of a JSON-RPC batch."""
    try:
        return [bytes(member) for member in _decode_batch(replace_lone_surrogates(data))]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        return Malformed(str(problem), is_json=False)


def parse_error(error: Raw) -> RpcError:
    """Read an `error` member, however poor it is."""
    try:
        return _decode_error(error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return RpcError(message=bytes(error)[:200].decode("utf-8", "replace"))


def get_error(answer: RpcMessage) -> Raw | None:
    """The error of a response, however it is put; None where there is a result."""
    if answer.error is not UNSET and bytes(answer.error) != b"null":
        return answer.error
    return NO_RESULT if answer.result is UNSET else None


def canonicalize(body: Raw | bytes) -> bytes:
    """The same for bodies that differ only in how they are written; as it came where it cannot be read."""
    try:
        return msgspec.json.encode(msgspec.json.decode(body), order="sorted")
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError):
        return bytes(body)


def replace_invalid_utf8(data: bytes) -> bytes:
    """The same bytes where they are UTF-8; otherwise with each bad sequence replaced."""
    if data.isascii():
        return data
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace").encode()
    return data


def replace_lone_surrogates(data: bytes) -> bytes:
    """The same JSON, with each half of a surrogate pair that stands alone replaced.

    Programs that count in UTF-16 cut emojis in two and write the half as an escape, which decoders refuse.
    """
    if b"\\ud" not in data and b"\\uD" not in data:
        return data
    import re

    high, low = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    escapes = rb"(" + high + low + rb")|" + high + rb"|" + low + rb"|(\\.)"
    return re.sub(escapes, lambda found: found[1] or found[2] or rb"\ufffd", data)


def find_id(head: bytes, tail: bytes) -> bytes:
    """The id of an envelope of which only the first and last bytes are at hand; `null` where it cannot be told.

    Looks only where the envelope's own id can stand, since a body may hold ids too.
    """
    import re

    found = re.match(_START + rb"(?:" + _VERSION + rb",\s*)?" + _ID + rb"[,}]", head)
    found = found or re.search(rb"[{,]\s*" + _ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*\Z", tail)
    return found[1] if found else b"null"


def starts_like_response(head: bytes) -> bool:
    """Whether an envelope of which only the first bytes are at hand is a response and no request."""
    import re

    few = rb"(?:(?:" + _VERSION + rb"|" + _ID + rb"),\s*){0,2}"
    return re.match(_START + few + rb'"(?:result|error)"\s*:', head) is not None


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
    """Encode a response whose `error` member is at hand."""
    return b"".join((b'{"jsonrpc":"2.0","id":', id, b',"error":', body, b"}"))
