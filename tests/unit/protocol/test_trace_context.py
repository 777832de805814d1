from __future__ import annotations

import json

from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from switchboard_mcp.protocol.trace_context import trace_headers
from tests.cases import each_case

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def message(params: object) -> RpcMessage:
    found = jsonrpc.parse(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "m", "params": params}).encode())
    assert isinstance(found, RpcMessage)
    return found


def test_the_trace_of_a_request_is_repeated_in_headers() -> None:
    meta = {"traceparent": PARENT, "tracestate": "a=1,b=2", "baggage": "user=al", "other": "x"}
    result = trace_headers(message({"name": "echo", "_meta": meta}))
    assert result == {"traceparent": PARENT, "tracestate": "a=1,b=2", "baggage": "user=al"}


@each_case(
    "params",
    [
        {},
        {"_meta": {}},
        {"_meta": {"traceparent": "nonsense"}},
        {"_meta": {"traceparent": PARENT + "\r\nx-evil: 1"}},
        {"_meta": {"traceparent": 5}},
        {"_meta": "traceparent"},
        {"arguments": {"traceparent": PARENT}},
        {"_meta": {"tracestate": "a=1"}},
    ],
)
def test_an_invalid_trace_makes_no_header(params: object) -> None:
    assert trace_headers(message(params)) == {}


@each_case("state", ["a=1\nx: y", "ä=1", "x" * 8193])
def test_a_state_that_no_header_can_carry_is_left_out(state: str) -> None:
    assert trace_headers(message({"_meta": {"traceparent": PARENT, "tracestate": state}})) == {
        "traceparent": PARENT
    }
