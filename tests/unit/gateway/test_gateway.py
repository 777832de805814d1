"""Hosts and their messages: the two eras side by side, what is malformed, and the end."""

from __future__ import annotations

import pytest

from tests.cases import each_case
from tests.unit.gateway.board import EVERYTHING, NEW, OLD, PREFIX, Board, FakeChild, Json, Road, open_board

VERSION, CAPABILITIES = PREFIX + "protocolVersion", PREFIX + "clientCapabilities"


def new_kid(board: Board) -> FakeChild:
    return board.child()


kid = pytest.fixture(new_kid, name="kid")


# --- eras --------------------------------------------------------------------------------------------------


@each_case(
    "method",
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "no/such"],
    board=open_board,
    kid=new_kid,
)
def test_a_modern_request_for_what_that_era_does_not_have_is_unknown(
    board: Board, kid: FakeChild, method: str
) -> None:
    host = board.host(modern=True)
    assert host.error(host.ask(method, {}))["code"] == -32601


@each_case("method", ["server/discover", "subscriptions/listen", "no/such"], board=open_board, kid=new_kid)
def test_a_request_of_old_for_what_came_later_is_unknown(board: Board, kid: FakeChild, method: str) -> None:
    host = board.host()
    assert host.error(host.ask(method, {}))["code"] == -32601


def test_one_link_serves_both_eras(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    assert host.get("server/discover")["supportedVersions"] == [NEW]
    host.modern = False
    assert host.get("initialize", {"protocolVersion": OLD, "capabilities": {}})["protocolVersion"] == OLD
    old = host.call()
    kid.server.give(kid.server.last(), {"content": []})
    host.modern = True
    new = host.call()
    kid.server.give(kid.server.last(), {"content": []})
    assert host.result(old) == {"content": []}
    assert host.result(new) == {"resultType": "complete", "content": []}


@each_case(
    ("requested", "answered"),
    [("2024-11-05", "2024-11-05"), (OLD, OLD), (NEW, OLD), ("1999-01-01", OLD), (None, OLD)],
    board=open_board,
)
def test_a_handshake_is_answered_with_a_version_of_that_era(
    board: Board, requested: str | None, answered: str
) -> None:
    host = board.host()
    assert (
        host.get("initialize", {"protocolVersion": requested, "capabilities": {}})["protocolVersion"]
        == answered
    )


@each_case(
    ("meta", "code"),
    [
        ({VERSION: "2031-01-01", CAPABILITIES: {}}, -32022),
        ({VERSION: NEW}, -32602),
        ({VERSION: NEW, CAPABILITIES: [], "x": 1}, -32602),
        ({VERSION: 7, CAPABILITIES: {}}, -32602),
    ],
)
@each_case("method", ["server/discover", "tools/call", "ping"], board=open_board, kid=new_kid)
def test_an_envelope_out_of_order_is_refused_whatever_is_asked(
    board: Board, kid: FakeChild, meta: Json, code: int, method: str
) -> None:
    host = board.host()
    arguments = {"action": "call", "subtool": "echo"}
    host.send(
        {"id": 1, "method": method, "params": {"name": "kid_suite", "arguments": arguments, "_meta": meta}}
    )
    assert host.error(1)["code"] == code
    assert kid.runs == []


@each_case("params", [b"null", b'{"_meta":null}', b"{}"], board=open_board)
def test_null_for_nothing_is_taken(board: Board, params: bytes) -> None:
    host = board.host()
    host.send(b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":%b}' % params)
    assert host.result(1) == {"tools": []}


@each_case("params", [b"[]", b'"x"', b"3", b'{"_meta":[]}', b'{"_meta":3}'], board=open_board)
def test_params_of_the_wrong_shape_are_refused(board: Board, params: bytes) -> None:
    host = board.host()
    host.send(b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":%b}' % params)
    assert host.error(1)["code"] == -32602


@each_case("modern", [False, True], board=open_board, kid=new_kid)
def test_an_introspection_is_answered_in_the_era_of_the_host(
    board: Board, kid: FakeChild, modern: bool
) -> None:
    host = board.host(modern=modern)
    result = host.get("tools/call", {"name": "kid_suite", "arguments": {"action": "introspect"}})
    assert "echo" in result["content"][0]["text"]
    assert ("resultType" in result) is modern


@each_case("modern", [False, True])
@each_case("arguments", [{}, {"action": "call"}, {"action": "dance"}, "text"], board=open_board, kid=new_kid)
def test_a_suite_call_that_means_nothing_is_told_so_in_the_era_of_the_host(
    board: Board, kid: FakeChild, modern: bool, arguments: object
) -> None:
    host = board.host(modern=modern)
    result = host.get("tools/call", {"name": "kid_suite", "arguments": arguments})
    assert result["isError"] is True
    assert ("resultType" in result) is modern


# --- answers of children -----------------------------------------------------------------------------------


@each_case("modern", [False, True], board=open_board, kid=new_kid)
def test_null_beside_an_error_is_an_error(board: Board, kid: FakeChild, modern: bool) -> None:
    host = board.host(modern=modern)
    called = host.call()
    kid.server.send(
        {"id": kid.server.last()["id"], "result": None, "error": {"code": 5, "message": "broken"}}
    )
    error = host.result(called)["structuredContent"]["error"]
    assert (error["code"], "broken" in error["message"]) == ("child_error", True)


def test_null_for_no_error_is_none(board: Board, kid: FakeChild) -> None:
    host = board.host()
    called = host.call()
    kid.server.send({"id": kid.server.last()["id"], "result": {"content": []}, "error": None})
    assert host.result(called) == {"content": []}


@each_case("era", ["legacy", "modern"])
@each_case("modern", [False, True])
@each_case(
    "result",
    [None, 7, "text", [], [1], {}, {"resultType": 3}, {"_meta": 5}, {"content": None}],
    board=open_board,
)
def test_any_response_of_a_child_gives_its_host_one_valid_response(
    board: Board, era: str, modern: bool, result: object
) -> None:
    for exposure in ("suite", "direct"):
        kid = board.child(f"{exposure}_kid", era, exposure=exposure)
        del kid
    host = board.host(EVERYTHING, modern=modern)
    requested = {
        "suite_kid": host.call(suite="suite_kid_suite"),
        "direct_kid": host.ask("tools/call", {"name": "echo"}),
    }
    for name, id in requested.items():
        child = board.children[name]
        assert isinstance(child, FakeChild)
        child.server.give(child.server.last(), result)
        assert host.answer(id) is not None


def test_a_second_answer_is_nobodys(board: Board, kid: FakeChild) -> None:
    host = board.host()
    called = host.call()
    kid.server.give(kid.server.last(), {"content": [1]})
    kid.server.give(kid.server.last(), {"content": [2]})
    assert host.result(called) == {"content": [1]}


# --- ids ---------------------------------------------------------------------------------------------------


def test_an_id_under_way_is_not_taken_twice(board: Board, kid: FakeChild) -> None:
    host = board.host()
    host.call(id="x")
    host.call(id="x")
    assert host.error("x")["code"] == -32600
    kid.server.give(kid.server.requests("tools/call")[0], {"content": []})
    assert len(kid.server.requests("tools/call")) == 1


def test_an_id_can_be_used_again_after_a_cancellation(board: Board, kid: FakeChild) -> None:
    host = board.host()
    host.call(id="x")
    first = kid.server.last()
    host.cancel("x")
    host.call(id="x")
    kid.server.give(first, {"content": ["late"]})
    kid.server.give(kid.server.last(), {"content": ["right"]})
    assert host.result("x") == {"content": ["right"]}


@each_case("id", [b"null", b"true", b"[]", b"{}"], board=open_board, kid=new_kid)
def test_an_id_that_is_none_is_refused(board: Board, kid: FakeChild, id: bytes) -> None:
    host = board.host()
    host.send(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % id)
    assert host.road.heard[-1]["error"]["code"] == -32600


@each_case(
    "message",
    [
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":7}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
        b'{"jsonrpc":"2.0","method":"notifications/unheard-of","params":[1]}',
        b'{"jsonrpc":"2.0","id":"never asked","result":{}}',
        b'{"jsonrpc":"2.0","id":null,"error":{}}',
        b'{"jsonrpc":"2.0","result":{}}',
    ],
    board=open_board,
    kid=new_kid,
)
def test_notifications_get_no_response(board: Board, kid: FakeChild, message: bytes) -> None:
    host = board.host()
    already = len(host.road.heard)
    host.send(message)
    assert len(host.road.heard) == already
    assert host.get("ping") == {}


# --- routes and hosts --------------------------------------------------------------------------------------


def test_messages_of_a_request_take_the_stream_of_that_request(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    post = Road()
    host.call(road=post, meta={"progressToken": 1})
    call = kid.server.last()
    kid.server.notify("notifications/progress", {"progressToken": call["id"], "progress": 1})
    kid.server.notify("notifications/message", {"level": "info"})
    kid.server.ask("roots/list")
    kid.server.give(call, {"content": []})
    assert [message.get("method", "answer") for message in post.heard] == [
        "notifications/progress",
        "notifications/message",
        "roots/list",
        "answer",
    ]
    assert post.answers == 1
    kid.server.notify("notifications/message", {"level": "info"})
    assert len(post.heard) == 4
    assert len(host.heard("notifications/message")) == 1


def test_two_hosts_with_the_same_ids_and_tokens_never_hear_each_other(board: Board, kid: FakeChild) -> None:
    one, two = board.host(), board.host()
    one.call(id=1, args={"who": 1}, meta={"progressToken": 1})
    two.call(id=1, args={"who": 2}, meta={"progressToken": 1})
    for call in reversed(kid.server.requests("tools/call")):
        who = call["params"]["arguments"]["who"]
        kid.server.notify("notifications/progress", {"progressToken": call["id"], "progress": who})
        kid.server.give(call, {"content": [who]})
    for host, who in ((one, 1), (two, 2)):
        assert host.notifications("notifications/progress") == [{"progressToken": 1, "progress": who}]
        assert host.result(1) == {"content": [who]}
    two.call(id=2)
    one.cancel(2)
    assert kid.server.requests("notifications/cancelled") == []


def test_a_host_that_goes_cancels_its_calls_and_only_its(board: Board, kid: FakeChild) -> None:
    one, two = board.host(), board.host()
    one.call()
    mine = kid.server.last()
    kept = two.call()
    one.leave()
    one.leave()
    assert [m["params"]["requestId"] for m in kid.server.requests("notifications/cancelled")] == [mine["id"]]
    kid.server.give(kid.server.last(), {"content": []})
    assert two.result(kept) == {"content": []}


def test_a_host_that_goes_while_its_child_starts_leaves_nothing_behind(board: Board) -> None:
    kid = board.child(script=lambda message: {} if message["method"] == "initialize" else None)
    host = board.host()
    host.call()
    assert kid.server.requests("initialize")
    host.leave()
    kid.server.give(kid.server.last("initialize"), {"protocolVersion": OLD, "capabilities": {}})
    assert kid.server.requests("tools/call") == []


def test_a_batch_is_taken_in_the_version_that_has_them(board: Board) -> None:
    host = board.host()
    batch = b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]'
    host.send(batch)
    assert host.road.heard[-1]["error"]["code"] == -32600
    host.get("initialize", {"protocolVersion": "2025-03-26", "capabilities": {}})
    host.send(batch)
    assert host.result(1) == host.result(2) == {}
