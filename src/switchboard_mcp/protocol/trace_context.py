"""The trace that a request is part of, as MCP carries it in `_meta` and HTTP in headers (W3C Trace Context, Baggage).

Pure; what traces are for is not known here.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET, Struct, UnsetType

from switchboard_mcp.protocol.jsonrpc import RpcMessage

KEYS = ("traceparent", "tracestate", "baggage")
_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
# What may stand in a header, and how much of it others are sure to take.
_TEXT = re.compile(r"[ -~]{1,8192}")


class _Meta(Struct):
    traceparent: str = ""
    tracestate: str = ""
    baggage: str = ""


class _Params(Struct):
    meta: _Meta | UnsetType = msgspec.field(name="_meta", default=UNSET)


_decode_params = msgspec.json.Decoder(_Params).decode


def trace_headers(message: RpcMessage) -> dict[str, str]:
    """The headers that repeat the trace of a request; none where it names no trace, or not in the form of one."""
    if message.params is UNSET or b'"traceparent"' not in bytes(message.params):
        return {}
    try:
        meta = _decode_params(message.params).meta
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    if meta is UNSET or not _PARENT.fullmatch(meta.traceparent):
        return {}
    found = {"traceparent": meta.traceparent, "tracestate": meta.tracestate, "baggage": meta.baggage}
    return {name: text for name, text in found.items() if _TEXT.fullmatch(text)}
