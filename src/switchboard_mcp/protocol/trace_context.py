"""Converts the trace context of a request from MCP's `_meta` to HTTP headers (W3C Trace Context and Baggage).

Pure. It only validates and copies the values.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET, Struct, UnsetType

from switchboard_mcp.protocol.jsonrpc import RpcMessage

KEYS = ("traceparent", "tracestate", "baggage")
_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
# Printable ASCII, and the length that other implementations must accept.
_TEXT = re.compile(r"[ -~]{1,8192}")


class _Meta(Struct):
    traceparent: str = ""
    tracestate: str = ""
    baggage: str = ""


class _Params(Struct):
    meta: _Meta | UnsetType = msgspec.field(name="_meta", default=UNSET)


_decode_params = msgspec.json.Decoder(_Params).decode


def trace_headers(message: RpcMessage) -> dict[str, str]:
    """Return the headers for the trace context of a request; empty if it has none or it is malformed."""
    if message.params is UNSET or b'"traceparent"' not in bytes(message.params):
        return {}
    try:
        meta = _decode_params(message.params).meta
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    if meta is UNSET or not _PARENT.fullmatch(meta.traceparent):
        return {}
    headers = {"traceparent": meta.traceparent, "tracestate": meta.tracestate, "baggage": meta.baggage}
    return {name: text for name, text in headers.items() if _TEXT.fullmatch(text)}
