"""The value that a program gets of a tool result: its structured content, else its JSON text, else its text. Pure.

JSON is passed on undecoded. A result that reports an error is an exception for the program.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.errors import Failure
from switchboard_mcp.programs.engine import Raised, Settled

MAX_MESSAGE_CHARS = 1_000
UNREADABLE = "The result cannot be read."
# Failures for which Python has a name that models know; all others are a RuntimeError.
_RAISED: dict[str, Raised] = {
    "arguments_invalid": "TypeError",
    "child_timeout": "TimeoutError",
    "gate_declined": "PermissionError",
    "gate_denied": "PermissionError",
    "subtool_denied": "PermissionError",
}


class _Block(Struct):
    type: str = ""
    text: str | None = None


class _Error(Struct):
    code: str = ""
    message: str = ""
    hint: str = ""


class _RpcError(Struct):
    message: str = UNREADABLE


class _Failed(Struct):
    error: _Error


class _Result(Struct, rename="camel"):
    content: list[Raw] = []
    structured_content: Raw | UnsetType = UNSET
    is_error: bool = False


class _Response(Struct):
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_decode_response = msgspec.json.Decoder(_Response).decode
_decode_result = msgspec.json.Decoder(_Result).decode
_decode_block = msgspec.json.Decoder(_Block).decode
_decode_failed = msgspec.json.Decoder(_Failed).decode
_decode_error = msgspec.json.Decoder(_RpcError).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def settle_response(response: bytes) -> Settled:
    """Return the value or the exception in the JSON-RPC response to a suite call."""
    try:
        decoded = _decode_response(response)
        if decoded.result is UNSET:
            message = _decode_error(decoded.error).message if decoded.error is not UNSET else UNREADABLE
            return Settled(raised="RuntimeError", message=_clip(message))
        return settle_result(bytes(decoded.result))
    except _UNREADABLE:
        return Settled(raised="RuntimeError", message=UNREADABLE)


def settle_result(result: bytes) -> Settled:
    """Return the value of a tool result, or the exception that it reports.

    >>> settle_result(b'{"content":[{"type":"text","text":"[1]"}]}').value
    b'[1]'
    >>> settle_result(b'{"content":[{"type":"text","text":"done"}]}').text
    'done'
    """
    try:
        decoded = _decode_result(result)
        blocks = [_decode_block(raw) for raw in decoded.content]
    except _UNREADABLE:
        return Settled(raised="RuntimeError", message=UNREADABLE)
    structured = b"" if decoded.structured_content is UNSET else bytes(decoded.structured_content)
    texts = [block.text for block in blocks if block.type == "text" and block.text is not None]
    if decoded.is_error:
        return _raised(structured, "\n".join(texts))
    if structured and structured != b"null":
        return Settled(value=structured)
    if len(texts) < len(blocks):  # images, links: nothing of it is lost
        return Settled(value=msgspec.json.encode(decoded.content))
    if texts and all(map(_is_json, texts)):
        joined = texts[0] if len(texts) == 1 else f"[{','.join(texts)}]"
        return Settled(value=joined.encode("utf-8", "replace"))
    return Settled(text="\n".join(texts))


def settle_failure(problem: Failure) -> Settled:
    """Return the exception for a failure of Switchboard itself."""
    hint = f" {problem.hint}" if problem.hint else ""
    return Settled(raised=_RAISED.get(problem.code, "RuntimeError"), message=_clip(problem.message + hint))


def _raised(structured: bytes, text: str) -> Settled:
    """Return the exception for a result with `isError`; a failure of ours has a code and a hint."""
    try:
        error = _decode_failed(structured).error if structured else None
    except _UNREADABLE:
        error = None
    if error is None or not error.message:
        return Settled(raised="RuntimeError", message=_clip(text or "The call failed."))
    hint = f" {error.hint}" if error.hint else ""
    return Settled(raised=_RAISED.get(error.code, "RuntimeError"), message=_clip(error.message + hint))


def _is_json(text: str) -> bool:
    """Return True for a JSON object or list. Numbers and words in a text stay text."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        msgspec.json.decode(text.encode("utf-8", "replace"), type=Raw)
    except _UNREADABLE:
        return False
    return True


def _clip(text: str) -> str:
    shown = text.encode("utf-8", "replace").decode()
    return shown if len(shown) <= MAX_MESSAGE_CHARS else f"{shown[:MAX_MESSAGE_CHARS]}…"
