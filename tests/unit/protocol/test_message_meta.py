from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.protocol import message_meta
from switchboard_mcp.protocol.message_meta import (
    CAPABILITIES,
    CLIENT,
    LEVEL,
    SERVER,
    SUBSCRIPTION,
    VERSION,
    Meta,
)
from tests.cases import each_case

Json = dict[str, Any]
MODERN = {VERSION: "2026-07-28", CAPABILITIES: {}}


def raw(members: Json) -> Meta:
    return {name: Raw(json.dumps(value).encode()) for name, value in members.items()}


def dumped(value: object) -> bytes:
    return json.dumps(value).encode()


def loaded(data: Raw | bytes) -> Any:
    return json.loads(bytes(data))


# --- the envelope of a request ---------------------------------------------------------------------------


@each_case(
    ("meta", "modern"),
    [
        (UNSET, False),
        ({}, False),
        ({"progressToken": 1}, False),
        ({CAPABILITIES: {}}, False),
        (MODERN, True),
        ({VERSION: None}, True),
    ],
)
def test_a_request_is_modern_where_it_names_its_version(meta: Json | UnsetType, modern: bool) -> None:
    assert message_meta.is_stateless(UNSET if isinstance(meta, UnsetType) else raw(meta)) is modern


@each_case(
    "meta",
    [
        MODERN,
        {**MODERN, CLIENT: {"name": "h"}, LEVEL: "debug"},
        {**MODERN, "progressToken": "t", "traceparent": "00-ab", "example.com/x": [1]},
        {**MODERN, CAPABILITIES: {"sampling": {}, "extensions": {"a/b": {}}}},
    ],
)
def test_an_envelope_in_order_is_taken(meta: Json) -> None:
    assert message_meta.validate(raw(meta)) is None


@each_case(
    ("meta", "code", "part"),
    [
        ({VERSION: 1, CAPABILITIES: {}}, -32602, "protocolVersion"),
        ({VERSION: None, CAPABILITIES: {}}, -32602, "protocolVersion"),
        ({VERSION: "2031-01-01", CAPABILITIES: {}}, -32022, "2031-01-01"),
        ({VERSION: "2025-11-25", CAPABILITIES: {}}, -32022, "2025-11-25"),
        ({VERSION: "2031-01-01"}, -32022, "2031-01-01"),
        ({VERSION: "2026-07-28"}, -32602, "clientCapabilities"),
        ({VERSION: "2026-07-28", CAPABILITIES: []}, -32602, "clientCapabilities"),
        ({VERSION: "2026-07-28", CAPABILITIES: None}, -32602, "clientCapabilities"),
        ({**MODERN, LEVEL: "loud"}, -32602, "logLevel"),
        ({**MODERN, LEVEL: 3}, -32602, "logLevel"),
    ],
)
def test_an_envelope_out_of_order_is_refused_by_what_is_wrong(meta: Json, code: int, part: str) -> None:
    problem = message_meta.validate(raw(meta))
    assert problem is not None
    assert problem.code == code
    assert part in problem.message


def test_an_unknown_version_is_answered_with_those_that_are_served() -> None:
    problem = message_meta.validate(raw({VERSION: "2031-01-01", CAPABILITIES: {}}))
    assert problem is not None
    assert problem.data is not UNSET
    assert loaded(problem.data) == {"supported": ["2026-07-28"], "requested": "2031-01-01"}


@each_case(
    ("text", "expected"), [(b'"a"', "a"), (b"1", None), (b"null", None), (b'"\xff"', None), (b"{", None)]
)
def test_a_text_is_read_only_from_a_string(text: bytes, expected: str | None) -> None:
    assert message_meta.decode_text(Raw(text)) == expected
    assert message_meta.decode_text(None) is None


# --- `_meta` for a child -----------------------------------------------------------------------------------


def for_child(meta: Json | None, **more: Any) -> Json | None:
    output = message_meta.child_meta(UNSET if meta is None else raw(meta), b"17", **more)
    return None if output is None else dict(loaded(output))


def test_a_handshake_era_child_is_told_nothing_of_the_hop() -> None:
    assert for_child(None, stateless=False) is None
    assert for_child(MODERN, stateless=False) == {}
    assert for_child({**MODERN, CLIENT: {"name": "h"}, LEVEL: "info", "a.b/c": 1}, stateless=False) == {
        "a.b/c": 1
    }


def test_a_modern_child_is_told_version_client_capabilities_and_level() -> None:
    output = for_child(None, stateless=True, capabilities=b'{"roots":{}}', level="warning")
    assert output is not None
    assert output.pop(CLIENT)["name"] == "switchboard"
    assert output == {VERSION: "2026-07-28", CAPABILITIES: {"roots": {}}, LEVEL: "warning"}


def test_the_hosts_own_description_of_the_hop_is_replaced() -> None:
    output = for_child(
        {**MODERN, CLIENT: {"name": "h"}, LEVEL: "debug", CAPABILITIES: {"x": {}}}, stateless=True
    )
    assert output is not None
    assert output[CLIENT]["name"] == "switchboard"
    assert output[CAPABILITIES] == {}
    assert LEVEL not in output


@each_case("modern", [False, True])
def test_trace_and_vendor_keys_go_on_and_the_token_becomes_ours(modern: bool) -> None:
    output = for_child(
        {"progressToken": "host's", "traceparent": "00-ab", "v.com/n": 12.50}, stateless=modern
    )
    assert output is not None
    assert (output["progressToken"], output["traceparent"], output["v.com/n"]) == (17, "00-ab", 12.50)


def test_vendor_values_keep_their_bytes() -> None:
    meta = {"v.com/n": Raw(b"123456789012345678901234567890"), "v.com/f": Raw(b"1.0")}
    output = message_meta.child_meta(meta, b"1", stateless=False)
    assert output == b'{"v.com/n":123456789012345678901234567890,"v.com/f":1.0}'


# --- results -----------------------------------------------------------------------------------------------


@each_case(
    ("result", "expected"),
    [
        (b"{}", {"resultType": "complete"}),
        (b"{ }", {"resultType": "complete"}),
        (b"{\t\n}", {"resultType": "complete"}),
        (b'{ "a":1}', {"resultType": "complete", "a": 1}),
        (b'{"content":[]}', {"resultType": "complete", "content": []}),
        (b'{"a":{"resultType":"x"}}', {"resultType": "complete", "a": {"resultType": "x"}}),
        (b'{"resultType":"input_required"}', {"resultType": "input_required"}),
        (b'{"a":1,"resultType":"task"}', {"a": 1, "resultType": "task"}),
    ],
)
def test_a_result_for_a_modern_host_says_of_what_type_it_is(result: bytes, expected: Json) -> None:
    assert loaded(message_meta.to_stateless_result(result)) == expected


@each_case("result", [b"null", b"[]", b'"text"', b"1", b"true"])
def test_a_value_that_is_no_object_stays_unchanged(result: bytes) -> None:
    assert message_meta.to_stateless_result(result, cacheable=True) == result
    assert message_meta.to_legacy_result(result) == result
    assert message_meta.result_type(result) == "complete"
    assert message_meta.parse_input_required(result) is None


def test_the_body_of_a_result_keeps_its_bytes() -> None:
    body = b'"n":123456789012345678901234567890,"f":1.0,"s" : [ ],"e":"\\u00e9"}'
    assert message_meta.to_stateless_result(b"{" + body) == b'{"resultType":"complete",' + body


def test_a_member_that_only_looks_like_a_type_is_replaced_where_the_child_knows_no_types() -> None:
    result = b'{"resultType":"input_required","content":[]}'
    assert loaded(message_meta.to_stateless_result(result, from_stateless=False)) == {
        "resultType": "complete",
        "content": [],
    }


@each_case(
    ("result", "ttl"),
    [
        (b"{}", 0),
        (b'{"contents":[{"text":"ttlMs","ttlMs":5}]}', 0),
        (b'{"ttlMs":7,"cacheScope":"public"}', 7),
    ],
)
def test_a_cacheable_result_has_hints_of_its_own_or_ours(result: bytes, ttl: int) -> None:
    output = loaded(message_meta.to_stateless_result(result, cacheable=True))
    assert output["resultType"] == "complete"
    assert output["ttlMs"] == ttl
    assert output["cacheScope"] == ("public" if ttl else "private")


@each_case(
    ("result", "expected"),
    [
        ({"resultType": "complete"}, {}),
        ({"resultType": "complete", "ttlMs": 1, "cacheScope": "private", "tools": []}, {"tools": []}),
        ({"_meta": {SERVER: {"name": "s"}}}, {}),
        ({"_meta": {SERVER: {"name": "s"}, SUBSCRIPTION: 1, "a.b/c": 1}}, {"_meta": {"a.b/c": 1}}),
        ({"_meta": "odd"}, {"_meta": "odd"}),
        ({"structuredContent": {"a": 1}}, {"structuredContent": {"a": 1}}),
        ({"structuredContent": [1], "content": []}, {"content": []}),
        ({"structuredContent": 3}, {}),
        ({"vendor": {"resultType": "kept"}}, {"vendor": {"resultType": "kept"}}),
    ],
)
def test_a_result_for_a_handshake_era_host_has_nothing_of_the_other_era(result: Json, expected: Json) -> None:
    assert loaded(message_meta.to_legacy_result(dumped(result))) == expected


@given(
    st.dictionaries(
        st.text('xyz é"', max_size=5), st.none() | st.integers(-9, 9) | st.text(max_size=5), max_size=4
    ),
    st.booleans(),
)
def test_a_result_survives_the_way_through_both_eras(body: Json, cacheable: bool) -> None:
    there = message_meta.to_stateless_result(dumped(body), cacheable=cacheable)
    assert loaded(there)["resultType"] == "complete"
    assert loaded(message_meta.to_legacy_result(there)) == body


@each_case(
    ("result", "expected"),
    [
        ({}, "complete"),
        ({"a": "resultType"}, "complete"),
        ({"a": {"resultType": "task"}}, "complete"),
        ({"resultType": "complete"}, "complete"),
        ({"resultType": "task"}, "task"),
    ],
)
def test_the_type_of_a_result_is_its_own(result: Json, expected: str) -> None:
    assert message_meta.result_type(dumped(result)) == expected


# --- input -------------------------------------------------------------------------------------------------


def test_a_result_that_asks_is_read_with_its_questions_and_its_state() -> None:
    request = message_meta.parse_input_required(
        b'{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}},"requestState":"\\u0061"}'
    )
    assert request is not None
    assert {key: loaded(value) for key, value in request.input_requests.items()} == {
        "k": {"method": "roots/list"}
    }
    assert request.request_state is not UNSET
    assert bytes(request.request_state) == b'"\\u0061"'


@each_case(
    "result",
    [
        {},
        {"resultType": "complete"},
        {"content": [{"text": "input_required"}]},
        {"a": {"resultType": "input_required"}},
    ],
)
def test_other_results_ask_nothing(result: Json) -> None:
    assert message_meta.parse_input_required(dumped(result)) is None


def test_a_result_may_have_only_questions_or_only_a_state() -> None:
    only_state = message_meta.parse_input_required(b'{"resultType":"input_required","requestState":"s"}')
    only_questions = message_meta.parse_input_required(
        b'{"resultType":"input_required","inputRequests":{"a":{}}}'
    )
    assert only_state is not None
    assert only_state.input_requests == {}
    assert only_questions is not None
    assert only_questions.request_state is UNSET


def test_our_own_requests_are_recognised() -> None:
    request = message_meta.parse_input_required(
        message_meta.input_required_result({"q1": {"method": "roots/list"}}, "state")
    )
    assert request is not None
    assert list(request.input_requests) == ["q1"]
    assert request.request_state is not UNSET
    assert loaded(request.request_state) == "state"


# --- tools -------------------------------------------------------------------------------------------------

TOOL = {
    "name": "t",
    "execution": {"taskSupport": "optional"},
    "outputSchema": {"type": "array"},
    "vendor": 1,
}


@each_case(
    ("modern", "native", "gone"),
    [
        (True, True, set()),
        (False, True, set()),
        (True, False, {"execution"}),
        (False, False, {"outputSchema"}),
    ],
)
def test_a_tool_of_the_other_era_is_shown_without_what_the_host_cannot_use(
    modern: bool, native: bool, gone: set[str]
) -> None:
    shown = loaded(message_meta.translate_tool(Raw(dumped(TOOL)), stateless=modern, same_family=native))
    assert TOOL.keys() - shown.keys() == gone


@each_case("schema", [{"type": "object"}, {"type": "object", "properties": {}}])
def test_a_schema_of_objects_is_shown_in_either_era(schema: Json) -> None:
    tool = Raw(dumped({"name": "t", "outputSchema": schema}))
    assert (
        loaded(message_meta.translate_tool(tool, stateless=False, same_family=False))["outputSchema"]
        == schema
    )


@each_case("schema", [True, {"type": ["object", "null"]}, {"anyOf": []}, 3, None])
def test_another_schema_is_hidden_from_the_handshake_era(schema: object) -> None:
    tool = Raw(dumped({"name": "t", "outputSchema": schema}))
    assert loaded(message_meta.translate_tool(tool, stateless=False, same_family=False)) == {"name": "t"}


# --- errors ------------------------------------------------------------------------------------------------


@each_case(
    ("modern", "native", "code", "expected"),
    [
        (False, True, -32602, -32602),
        (False, True, -32002, -32002),
        (False, True, -32021, -32021),
        (False, True, -32042, -32042),
        (False, False, -32602, -32602),
        (False, False, -32020, -32603),
        (False, False, -32021, -32603),
        (False, False, -32022, -32603),
        (True, False, -32002, -32602),
        (True, False, -32001, -32001),
        (True, False, -32020, -32603),
        (True, False, -32042, -32603),
        (True, False, -32099, -32603),
        (True, False, -32100, -32100),
        (True, False, 7, 7),
        (True, True, -32602, -32602),
        (True, True, -32019, -32019),
        (True, True, -32022, -32603),
        (True, True, -32050, -32603),
    ],
)
def test_the_code_of_an_error_means_the_same_to_the_host(
    modern: bool, native: bool, code: int, expected: int
) -> None:
    error = Raw(dumped({"code": code, "message": "why", "data": {"a": 1}, "vendor": 1}))
    output = loaded(message_meta.translate_error(error, stateless=modern, same_family=native))
    assert output["code"] == expected
    if expected == -32603:
        assert output["data"] == {"code": code, "message": "why", "data": {"a": 1}, "vendor": 1}
    elif code == expected:
        assert output["vendor"] == 1
    else:
        assert output == {"code": expected, "message": "why", "data": {"a": 1}}


def test_a_resource_that_is_not_found_is_named_as_the_host_knows_it() -> None:
    error = Raw(dumped({"code": -32002, "message": "gone", "data": {"uri": "child's"}}))
    output = loaded(message_meta.translate_error(error, stateless=True, same_family=False, uri="host's"))
    assert output == {"code": -32602, "message": "gone", "data": {"uri": "host's"}}


def test_an_error_that_cannot_be_read_goes_on_as_it_is() -> None:
    assert message_meta.translate_error(Raw(b'"odd"'), stateless=True, same_family=True) == Raw(b'"odd"')
