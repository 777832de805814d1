"""The protocol as a host without an SDK meets it: versions, requests, notifications, errors, batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cases import each_case
from tests.e2e.host import LATEST, Host, Json, switchboard
from tests.e2e.workspaces import MOCK_CHILD, add_child

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ECHO = {"action": "call", "subtool": "echo", "args": {"message": "hello"}}


def request(id: Any, method: str, params: Any = ...) -> Json:
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    return message if params is ... else {**message, "params": params}


def suite_call(id: Any, **more: Any) -> Json:
    return request(id, "tools/call", {"name": "mock_suite", "arguments": ECHO, **more})


# --- opening -------------------------------------------------------------------------------------------


@each_case("version", VERSIONS)
def test_every_version_of_the_handshake_is_negotiated(mock: Host, version: str) -> None:
    assert mock.initialize(version)["protocolVersion"] == version


@each_case("version", ["2026-07-28", "2023-01-01", "1.0", ""])
def test_an_unknown_version_is_answered_with_the_latest(mock: Host, version: str) -> None:
    assert mock.initialize(version)["protocolVersion"] == LATEST


def test_initialize_names_the_server_and_what_it_offers(mock: Host) -> None:
    result = mock.initialize()
    assert result["serverInfo"]["name"] == "switchboard"
    assert result["serverInfo"]["version"]
    assert result["capabilities"]["tools"] == {"listChanged": True}
    assert result["capabilities"]["logging"] == {}
    assert '"action":"introspect"' in result["instructions"]


def test_initialize_without_params_is_answered(mock: Host) -> None:
    assert mock.result("initialize")["protocolVersion"] == LATEST


def test_requests_before_initialize_are_served(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    with switchboard(workspace) as host:
        assert host.result("ping") == {}
        assert host.tool_names() == ["mock_suite"]
        assert host.call("mock_suite", "echo", message="early")["content"][0]["text"] == "early"


def test_a_probe_for_the_next_era_is_refused_and_initialize_follows(workspace: Path) -> None:
    with switchboard(workspace) as host:
        assert host.error("server/discover", {"_meta": {}})["code"] == -32601
        assert host.initialize()["protocolVersion"] == LATEST


# --- requests and notifications --------------------------------------------------------------------------


def test_ping_is_answered_with_exactly_an_empty_object(mock: Host) -> None:
    mock.send(request("p", "ping"))
    assert mock.next_message().body == b'{"jsonrpc":"2.0","id":"p","result":{}}'


def test_notifications_get_no_answer(mock: Host) -> None:
    mock.notify("notifications/initialized")
    mock.notify("notifications/cancelled", {"requestId": 99, "reason": "never asked"})
    mock.notify("notifications/cancelled", {"no": "id"})
    mock.notify("notifications/cancelled")
    mock.notify("notifications/roots/list_changed")
    mock.notify("tools/list")
    mock.send(request("last", "ping"))
    assert mock.next_message().json["id"] == "last"


def test_answers_to_nothing_are_ignored(mock: Host) -> None:
    mock.send({"jsonrpc": "2.0", "id": 1, "result": {}})
    mock.send({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}})
    mock.send(request("last", "ping"))
    assert mock.next_message().json["id"] == "last"


def test_ids_may_be_numbers_or_texts_and_stay_apart(mock: Host) -> None:
    for id in (1, "1", 0, -5, "", "a b"):
        mock.send(suite_call(id))
    answered = [mock.next_message().json["id"] for _ in range(6)]
    assert sorted(map(repr, answered)) == sorted(map(repr, (1, "1", 0, -5, "", "a b")))


def test_an_id_under_way_is_not_taken_twice(mock: Host) -> None:
    slow = {"action": "call", "subtool": "slow", "args": {"seconds": 3600, "steps": 1}}
    mock.ask("tools/call", {"name": "mock_suite", "arguments": slow}, id="twice")
    mock.send(suite_call("twice"))
    assert mock.answer("twice")["error"]["code"] == -32600
    mock.notify("notifications/cancelled", {"requestId": "twice"})
    mock.send(suite_call("twice"))
    assert mock.answer("twice")["result"]["content"][0]["text"] == "hello"


# --- errors of the protocol ------------------------------------------------------------------------------


@each_case("method", ["no/such", "resources/lists", "", "Tools/List"])
def test_an_unknown_method_is_32601_and_named(mock: Host, method: str) -> None:
    error = mock.error(method, {})
    assert error["code"] == -32601
    assert error["message"] == f"Method not found: {method}"


def test_an_unknown_tool_is_32602_with_the_nearest(mock: Host) -> None:
    error = mock.error("tools/call", {"name": "mok_suite", "arguments": {"action": "introspect"}})
    assert error["code"] == -32602
    assert "'mok_suite'" in error["message"]
    assert "mock_suite" in error["message"]


def test_a_tool_of_a_child_is_not_a_tool_here(mock: Host) -> None:
    mock.introspect("mock_suite")
    assert mock.error("tools/call", {"name": "echo", "arguments": {"message": "x"}})["code"] == -32602


@each_case(
    ("method", "params"),
    [
        ("tools/call", ...),
        ("tools/call", None),
        ("tools/call", []),
        ("tools/call", {}),
        ("tools/call", {"name": 7}),
        ("tools/call", {"name": None, "arguments": {}}),
        ("tools/call", {"name": "mock_suite", "arguments": ECHO, "_meta": []}),
        ("logging/setLevel", {}),
        ("logging/setLevel", {"level": 3}),
        ("logging/setLevel", {"level": "loud"}),
        ("initialize", {"protocolVersion": 2025}),
    ],
)
def test_malformed_params_are_32602(mock: Host, method: str, params: Any) -> None:
    mock.send(request("bad", method, params))
    answer = mock.answer("bad")
    assert answer["error"]["code"] == -32602
    assert answer["error"]["message"]


@each_case(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"method":}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}}',
        b'{"jsonrpc":"2.0" "id":1}',
    ],
)
def test_json_that_cannot_be_read_is_32700_and_the_stream_lives_on(mock: Host, line: bytes) -> None:
    mock.send(line)
    mock.send(request("next", "ping"))
    refused = mock.next_message().json
    assert refused["id"] is None
    assert refused["error"]["code"] == -32700
    assert mock.next_message().json["id"] == "next"


@each_case(
    ("line", "id"),
    [
        (b'{"id":1,"method":"ping"}', 1),
        (b'{"jsonrpc":"2.0","id":2,"method":7}', 2),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}', None),
    ],
)
def test_what_is_no_request_is_32600(mock: Host, line: bytes, id: int | None) -> None:
    mock.send(line)
    refused = mock.next_message().json
    assert refused["id"] == id
    assert refused["error"]["code"] == -32600


@each_case("id", [None, True, [1]])
def test_a_suite_call_needs_an_id_too(mock: Host, id: Any) -> None:
    mock.send(suite_call(id))
    refused = mock.next_message().json
    assert (refused["id"], refused["error"]["code"]) == (None, -32600)


def test_a_message_nested_without_end_is_refused_alone(mock: Host) -> None:
    deep = b"[" * 50_000 + b"]" * 50_000
    mock.send(
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mock_suite","arguments":'
        b'{"action":"call","subtool":"echo","args":{"message":%b}}}}' % deep
    )
    mock.send(request("next", "ping"))
    assert mock.next_message().json["error"]["code"] == -32700
    assert mock.next_message().json["id"] == "next"


# --- batches ---------------------------------------------------------------------------------------------


def test_a_batch_is_answered_where_the_version_has_batches(mock: Host) -> None:
    mock.initialize("2025-03-26")
    mock.send([request("a", "ping"), {"jsonrpc": "2.0", "method": "notifications/x"}, suite_call("b")])
    assert mock.answer("a")["result"] == {}
    assert mock.answer("b")["result"]["content"][0]["text"] == "hello"
    mock.send([request("c", "no/such"), request("d", "ping")])
    assert mock.answer("c")["error"]["code"] == -32601
    assert mock.answer("d")["result"] == {}


@each_case("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_a_batch_is_refused_where_the_version_has_none(mock: Host, version: str) -> None:
    mock.initialize(version)
    mock.send([request("a", "ping"), request("b", "ping")])
    refused = mock.next_message().json
    assert (refused["id"], refused["error"]["code"]) == (None, -32600)
