"""A program gets the value that a result carries, and an exception for one that failed."""

from __future__ import annotations

import json
from typing import Any

from switchboard_mcp.errors import failure, tool_result
from switchboard_mcp.programs.result_values import (
    MAX_MESSAGE_CHARS,
    settle_failure,
    settle_response,
    settle_result,
)
from tests.cases import each_case


def text(*texts: str, **more: Any) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": one} for one in texts], **more}).encode()


@each_case(
    ("result", "value"),
    [
        (text("shown", structuredContent={"a": 1}), {"a": 1}),
        (text("shown", structuredContent=None), "shown"),
        (text('{"a": [1.5]}'), {"a": [1.5]}),
        (text(' [1, "x"]\n'), [1, "x"]),
        (text("42"), "42"),
        (text("true"), "true"),
        (text("[1, 2"), "[1, 2"),
        (text("one", "two"), "one\ntwo"),
        (text('{"a": 1}', '{"a": 2}'), [{"a": 1}, {"a": 2}]),
        (text('{"a": 1}', "and a note"), '{"a": 1}\nand a note'),
        (text(""), ""),
        (b'{"content":[]}', ""),
        (b"{}", ""),
        (
            b'{"content":[{"type":"text","text":"see"},{"type":"image","data":"aa","mimeType":"image/png"}]}',
            [{"type": "text", "text": "see"}, {"type": "image", "data": "aa", "mimeType": "image/png"}],
        ),
    ],
)
def test_a_value_is_structured_content_else_json_else_text(result: bytes, value: object) -> None:
    settled = settle_result(result)
    assert settled.raised is None
    assert (json.loads(settled.value) if settled.text is None else settled.text) == value


@each_case(
    ("result", "raised", "words"),
    [
        (text("no such issue", isError=True), "RuntimeError", "no such issue"),
        (text(isError=True), "RuntimeError", "failed"),
        (text("x" * 5_000, isError=True), "RuntimeError", "x…"),
        (tool_result(failure("gate_denied", "Not here.")), "PermissionError", "Not here. Do not try"),
        (tool_result(failure("child_timeout", "Too slow.")), "TimeoutError", "Too slow."),
        (text("odd", isError=True, structuredContent={"error": "flat"}), "RuntimeError", "odd"),
        (b"[]", "RuntimeError", "cannot be read"),
        (b'{"content":[3]}', "RuntimeError", "cannot be read"),
    ],
)
def test_an_error_is_an_exception_with_what_to_do(result: bytes, raised: str, words: str) -> None:
    settled = settle_result(result)
    assert settled.raised == raised
    assert words in settled.message
    assert len(settled.message) <= MAX_MESSAGE_CHARS + 1


def test_a_response_without_a_result_is_an_exception() -> None:
    refused = settle_response(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown tool."}}')
    assert (refused.raised, refused.message) == ("RuntimeError", "Unknown tool.")
    assert settle_response(b"nonsense").raised == "RuntimeError"
    assert settle_response(b'{"id":1}').raised == "RuntimeError"


def test_a_failure_of_the_gateway_says_what_to_do() -> None:
    settled = settle_failure(failure("subtool_denied", "The subtool is denied."))
    assert settled.raised == "PermissionError"
    assert "Introspect the suite" in settled.message
