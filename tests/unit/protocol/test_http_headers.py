from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound

from switchboard_mcp.protocol import http_headers, jsonrpc
from switchboard_mcp.protocol.http_headers import HeaderMirror, InvalidMirror
from switchboard_mcp.protocol.jsonrpc import RpcMessage
from tests.cases import each_case

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


def request(method: str, **params: object) -> RpcMessage:
    data = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    message = jsonrpc.parse(data)
    assert isinstance(message, RpcMessage)
    return message


def marked(**properties: object) -> bytes:
    return json.dumps({"type": "object", "properties": properties}).encode()


class TestHeadersOfARequest:
    def test_a_request_of_the_handshake_era_has_none(self) -> None:
        assert (
            http_headers.request_headers(request("tools/call", name="x", _meta={"progressToken": 1}), {})
            == {}
        )
        assert http_headers.request_headers(request("tools/list"), {}) == {}

    def test_version_and_method_are_repeated(self) -> None:
        assert http_headers.request_headers(request("tools/list", _meta=META), {}) == {
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/list",
        }

    @each_case(
        ("method", "key"),
        [
            ("tools/call", "name"),
            ("prompts/get", "name"),
            ("resources/read", "uri"),
            ("tasks/get", "taskId"),
            ("tasks/update", "taskId"),
            ("tasks/cancel", "taskId"),
        ],
    )
    def test_the_name_of_what_is_asked_for_is_repeated(self, method: str, key: str) -> None:
        message = request(method, _meta=META, **{key: "Zürich"})
        assert http_headers.request_headers(message, {})["mcp-name"] == "=?base64?WsO8cmljaA==?="

    def test_other_methods_name_nothing(self) -> None:
        assert "mcp-name" not in http_headers.request_headers(
            request("completion/complete", _meta=META, name="x"), {}
        )

    @each_case("name", [None, 7, ["x"], {"x": 1}])
    def test_a_name_that_is_no_text_is_left_to_the_server(self, name: object) -> None:
        assert "mcp-name" not in http_headers.request_headers(
            request("tools/call", _meta=META, name=name), {}
        )

    @each_case("meta", [None, [], 1, {}, {"io.modelcontextprotocol/protocolVersion": 5}])
    def test_an_envelope_of_the_wrong_shape_is_none(self, meta: object) -> None:
        assert http_headers.request_headers(request("tools/list", _meta=meta), {}) == {}

    def test_marked_arguments_are_repeated(self) -> None:
        mirrors = {"query": (HeaderMirror(("region",), "Region"), HeaderMirror(("deep", "dry"), "Dry-Run"))}
        message = request(
            "tools/call", _meta=META, name="query", arguments={"region": "eu west", "deep": {"dry": True}}
        )
        assert http_headers.request_headers(message, mirrors) == {
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "query",
            "mcp-param-region": "eu west",
            "mcp-param-dry-run": "true",
        }

    @each_case(
        "arguments", [{}, {"region": None}, {"region": {}}, {"region": [1]}, {"deep": 5}, [], None, "text"]
    )
    def test_arguments_that_are_not_there_or_have_no_text_have_no_header(self, arguments: object) -> None:
        mirrors = {"query": (HeaderMirror(("region",), "Region"), HeaderMirror(("deep", "dry"), "Dry-Run"))}
        message = request("tools/call", _meta=META, name="query", arguments=arguments)
        assert not [
            name for name in http_headers.request_headers(message, mirrors) if name.startswith("mcp-param-")
        ]

    @each_case(
        ("value", "text"),
        [("", ""), (0, "0"), (-7, "-7"), (2**53 - 1, "9007199254740991"), (False, "false"), (True, "true")],
    )
    def test_values_are_written_plainly(self, value: object, text: str) -> None:
        assert http_headers.argument_headers({"a": value}, (HeaderMirror(("a",), "A"),)) == {
            "mcp-param-a": text
        }

    def test_a_number_of_ten_thousand_digits_has_no_header(self) -> None:
        assert http_headers.to_text(10**10_000) is None


class TestValues:
    @each_case("text", ["plain", "two words", "a=?base64?b?=", "=?base64?x", "x?=", "", "!~"])
    def test_plain_text_stays_unchanged(self, text: str) -> None:
        assert http_headers.encode_value(text) == text

    @each_case(
        "text", [" edge", "edge ", "\ttab", "a\nb", "a\0", "Zürich", "=?base64?WA==?=", "=?base64??=", "\x7f"]
    )
    def test_a_value_that_a_header_cannot_carry_is_encoded(self, text: str) -> None:
        wrapped = http_headers.encode_value(text)
        assert wrapped.startswith("=?base64?")
        assert wrapped.isascii()
        assert http_headers.decode_value(wrapped) == text

    @given(st.text(st.characters(exclude_categories=["Cs"])))
    def test_every_text_comes_back_and_the_official_reader_agrees(self, text: str) -> None:
        wrapped = http_headers.encode_value(text)
        assert http_headers.decode_value(wrapped) == text
        assert inbound.decode_header_value(wrapped) == text
        assert wrapped == inbound.encode_header_value(text)

    @each_case(
        "value",
        ["=?base64?WA=?=", "=?base64?W A==?=", "=?base64?_-==?=", "=?base64?/w==?=", "=?base64?WB==?="],
    )
    def test_data_that_is_no_base64_of_a_text_is_refused(self, value: str) -> None:
        assert http_headers.decode_value(value) is None

    @each_case("value", ["=?BASE64?WA==?=", "=?base64?=", "=?base64?WA==", "WA==?="])
    def test_half_a_mark_is_no_mark(self, value: str) -> None:
        assert http_headers.decode_value(value) == value


class TestMarks:
    def test_a_schema_without_marks_has_none(self) -> None:
        assert http_headers.find_mirrors(marked(a={"type": "string"})) == ()

    def test_marks_are_found_at_any_depth_of_properties(self) -> None:
        inner = {"type": "object", "properties": {"b": {"type": "integer", "x-mcp-header": "B"}}}
        schema = marked(a=inner, c={"type": "boolean", "x-mcp-header": "C"})
        found = http_headers.find_mirrors(schema)
        assert isinstance(found, tuple)
        assert set(found) == {HeaderMirror(("a", "b"), "B"), HeaderMirror(("c",), "C")}

    def test_an_argument_that_is_called_like_the_mark_is_no_mark(self) -> None:
        assert http_headers.find_mirrors(marked(**{"x-mcp-header": {"type": "string"}})) == ()

    def test_a_mark_in_data_is_no_mark(self) -> None:
        assert http_headers.find_mirrors(marked(a={"type": "object", "default": {"x-mcp-header": "A"}})) == ()

    MARKED: dict[str, Any] = {"type": "string", "x-mcp-header": "A"}  # noqa: RUF012

    @each_case(
        "schema",
        [
            MARKED,
            {"properties": {"a": {"type": "array", "items": MARKED}}},
            {"anyOf": [{"properties": {"a": MARKED}}]},
            {"if": {"properties": {"a": MARKED}}},
            {"$defs": {"a": MARKED}},
            {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
            {"properties": {"a": {"type": ["string", "null"], "x-mcp-header": "A"}}},
            {"properties": {"a": {"x-mcp-header": "A"}}},
            {"properties": {"a": {"type": "string", "x-mcp-header": ""}}},
            {"properties": {"a": {"type": "string", "x-mcp-header": "two words"}}},
            {"properties": {"a": {"type": "string", "x-mcp-header": "a\n"}}},
            {"properties": {"a": {"type": "string", "x-mcp-header": 7}}},
            {"properties": {"a": MARKED, "b": {"type": "string", "x-mcp-header": "a"}}},
        ],
    )
    def test_invalid_marks_are_reported_and_the_official_reader_agrees(self, schema: dict[str, Any]) -> None:
        assert isinstance(http_headers.find_mirrors(json.dumps(schema).encode()), InvalidMirror)
        assert inbound.find_invalid_x_mcp_header(schema) is not None

    def test_a_schema_that_cannot_be_read_has_no_marks(self) -> None:
        assert http_headers.find_mirrors(b'{"x-mcp-header"') == ()
        assert http_headers.find_mirrors(b'["x-mcp-header"]') == ()
