from __future__ import annotations

import json
from typing import Any

from msgspec import UNSET, Raw

from switchboard_mcp.protocol import client_requests
from switchboard_mcp.protocol.client_requests import TASKS, ClientRequest
from tests.cases import each_case

Json = dict[str, Any]
URL = {"mode": "url", "message": "m", "url": "https://x"}


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


@each_case(
    ("capabilities", "method", "params", "expected"),
    [
        ({"sampling": {}}, "sampling/createMessage", {}, None),
        ({}, "sampling/createMessage", {}, {"sampling": {}}),
        ({"roots": {"listChanged": True}}, "roots/list", {}, None),
        ({}, "roots/list", {}, {"roots": {}}),
        ({}, "vendor/ask", {}, None),
        ({}, "elicitation/create", {}, {"elicitation": {"form": {}}}),
        ({}, "elicitation/create", URL, {"elicitation": {"url": {}}}),
        ({"elicitation": {}}, "elicitation/create", {}, None),
        ({"elicitation": {}}, "elicitation/create", {"mode": "form"}, None),
        ({"elicitation": {}}, "elicitation/create", URL, {"elicitation": {"url": {}}}),
        ({"elicitation": {"form": {}}}, "elicitation/create", {}, None),
        ({"elicitation": {"form": {}}}, "elicitation/create", URL, {"elicitation": {"url": {}}}),
        ({"elicitation": {"url": {}}}, "elicitation/create", URL, None),
        ({"elicitation": {"url": {}}}, "elicitation/create", {}, {"elicitation": {"form": {}}}),
        ({"elicitation": {"form": {}, "url": {}}}, "elicitation/create", URL, None),
        ({"elicitation": {"vendor": 1}}, "elicitation/create", {}, None),
        ({"elicitation": None}, "elicitation/create", {}, None),
        ([], "roots/list", {}, {"roots": {}}),
    ],
)
def test_a_client_is_asked_only_what_it_declared(
    capabilities: object, method: str, params: Json, expected: Json | None
) -> None:
    assert client_requests.missing_capability(raw(capabilities), method, raw(params)) == expected


def test_a_question_without_params_is_one_for_a_form() -> None:
    assert client_requests.missing_capability(b'{"elicitation":{}}', "elicitation/create", UNSET) is None
    assert client_requests.missing_capability(b'{"elicitation":{}}', "elicitation/create", Raw(b"[]")) is None


@each_case(
    ("params", "expected"),
    [
        ({}, {}),
        ({**URL, "elicitationId": "e"}, URL),
        ({"message": "m", "task": {"ttl": 1}, "vendor": [1]}, {"message": "m", "vendor": [1]}),
        ({"_meta": {"progressToken": 1}}, {}),
        ({"_meta": {"io.modelcontextprotocol/related-task": {}, "a.b/c": 2}}, {"_meta": {"a.b/c": 2}}),
        ({"_meta": 7}, {}),
    ],
)
def test_a_handshake_era_question_loses_what_only_that_era_knows(params: Json, expected: Json) -> None:
    request = client_requests.to_input_request("elicitation/create", raw(params))
    assert json.loads(client_requests._encode(request)) == {
        "method": "elicitation/create",
        "params": expected,
    }


def test_a_question_without_params_stays_without() -> None:
    assert client_requests.to_input_request("roots/list", UNSET) == {"method": "roots/list"}


@each_case(
    ("method", "params", "expected"),
    [
        ("elicitation/create", URL, {**URL, "elicitationId": "id"}),
        (
            "elicitation/create",
            {"message": "m", "requestedSchema": {}},
            {"message": "m", "requestedSchema": {}},
        ),
        ("sampling/createMessage", {"mode": "url"}, {"mode": "url"}),
    ],
)
def test_a_modern_question_gets_what_the_handshake_era_needs(
    method: str, params: Json, expected: Json
) -> None:
    assert json.loads(client_requests.to_legacy_params(ClientRequest(method, raw(params)), "id")) == expected


def test_a_modern_question_without_params_gets_empty_ones() -> None:
    assert client_requests.to_legacy_params(ClientRequest("roots/list"), "id") == b"{}"


def test_urls_that_an_error_wants_visited_become_questions() -> None:
    data = {
        "elicitations": [
            {"mode": "url", "elicitationId": "1", "url": "https://a", "message": "A"},
            {"url": "https://b"},
        ]
    }
    assert client_requests.url_input_requests(raw(data)) == {
        "url1": {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "A", "url": "https://a"},
        },
        "url2": {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "", "url": "https://b"},
        },
    }


@each_case("data", [UNSET, raw(None), raw({}), raw({"elicitations": [1]}), raw([])])
def test_an_error_that_names_no_urls_asks_nothing(data: Raw) -> None:
    assert client_requests.url_input_requests(data) == {}


def test_a_question_is_marked_with_our_token_and_theirs_is_kept() -> None:
    params = b'{"a":1.0,"_meta":{"progressToken":"t","x":1}}'
    result, theirs = client_requests.replace_progress_token(params, b"9")
    assert result == b'{"a":1.0,"_meta":{"progressToken":9,"x":1}}'
    assert theirs == Raw(b'"t"')


@each_case("params", [b"{}", b'{"a":"progressToken"}', b'{"progressToken":1}', b'{"_meta":{}}'])
def test_a_question_without_a_token_stays_as_it_is(params: bytes) -> None:
    assert client_requests.replace_progress_token(params, b"9") == (params, None)


@each_case(
    ("capabilities", "native", "tasks", "expected"),
    [
        ({"sampling": {"tools": {}}, "roots": {}}, True, False, {"sampling": {"tools": {}}, "roots": {}}),
        ({"extensions": {TASKS: {}, "v/x": {}}}, True, True, {"extensions": {TASKS: {}, "v/x": {}}}),
        ({"extensions": {TASKS: {}, "v/x": {}}}, True, False, {"extensions": {"v/x": {}}}),
        (
            {
                "tasks": {"list": {}},
                "roots": {"listChanged": True},
                "elicitation": {"url": {}},
                "extensions": {"v/x": {}},
            },
            False,
            False,
            {"roots": {}, "elicitation": {"url": {}}},
        ),
        # Switchboard awaits the tasks of a host with a handshake.
        ({"roots": {}, "extensions": {"v/x": {}}}, False, True, {"roots": {}, "extensions": {TASKS: {}}}),
        ({}, False, False, {}),
    ],
)
def test_a_modern_child_hears_of_what_can_be_driven(
    capabilities: Json, native: bool, tasks: bool, expected: Json
) -> None:
    result = client_requests.capabilities_for_stateless(
        bytes(raw(capabilities)), stateless_host=native, tasks=tasks
    )
    assert json.loads(result) == expected


@each_case(
    ("capabilities", "needed", "expected"),
    [
        ({}, {"sampling": {}}, {"sampling": {}}),
        ({"sampling": {}}, {"sampling": {}}, None),
        ({"sampling": {}}, {"sampling": {"tools": {}}}, {"sampling": {"tools": {}}}),
        ({"extensions": {TASKS: {}}}, {"extensions": {TASKS: {}}}, None),
        (
            {"extensions": {}},
            {"extensions": {TASKS: {}}, "roots": {}},
            {"extensions": {TASKS: {}}, "roots": {}},
        ),
        ({}, {}, None),
        ({}, {"sampling": 1}, None),
    ],
)
def test_a_client_lacks_only_what_it_did_not_declare(
    capabilities: Json, needed: Json, expected: Json | None
) -> None:
    data = raw({"requiredCapabilities": needed})
    assert client_requests.undeclared_capabilities(bytes(raw(capabilities)), data) == expected
    assert client_requests.undeclared_capabilities(b"{}", UNSET) is None
