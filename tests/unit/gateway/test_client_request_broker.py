"""Questions of handshake-era children to handshake-era hosts, and whose they are."""

from __future__ import annotations

import pytest

from switchboard_mcp.gateway.client_requests.client_request_broker import MAX_PENDING
from tests.cases import each_case
from tests.unit.gateway.board import EVERYTHING, Board, FakeChild, Json, Road, open_board

FORM: Json = {"message": "Name?", "requestedSchema": {"type": "object"}, "vendor": 1}
URL: Json = {"mode": "url", "message": "Go", "url": "https://x", "elicitationId": "e1"}


def new_kid(board: Board) -> FakeChild:
    return board.child()


kid = pytest.fixture(new_kid, name="kid")


@each_case(
    ("method", "params"),
    [
        ("sampling/createMessage", {"messages": [], "maxTokens": 1}),
        ("elicitation/create", FORM),
        ("elicitation/create", URL),
        ("roots/list", {}),
        ("vendor/ask", {"any": [1]}),
    ],
    board=open_board,
    kid=new_kid,
)
def test_a_question_goes_to_the_host_and_its_answer_back(
    board: Board, kid: FakeChild, method: str, params: Json
) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    kid.server.ask(method, params, id="mine")
    (question,) = host.heard(method)
    assert question["params"] == params
    assert question["id"] != "mine"
    host.reply(question, {"answer": 1, "vendor": [2]})
    assert kid.server.reply("mine") == {
        "jsonrpc": "2.0",
        "id": "mine",
        "result": {"answer": 1, "vendor": [2]},
    }
    kid.server.give(kid.server.last(), {"content": []})
    assert host.result(called) == {"content": []}


def test_an_error_of_the_host_goes_back_as_it_is(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    host.call()
    kid.server.ask("sampling/createMessage", {})
    host.refuse(host.heard("sampling/createMessage")[0], -1, "rejected by the user")
    reply = kid.server.reply()
    assert reply is not None
    assert reply["error"] == {"code": -1, "message": "rejected by the user"}


def test_ids_of_several_children_do_not_cross(board: Board) -> None:
    one, two = board.child("one"), board.child("two")
    host = board.host(EVERYTHING)
    host.call(suite="one_suite")
    host.call(suite="two_suite")
    one.server.ask("roots/list", id=1)
    two.server.ask("roots/list", id=1)
    first, second = host.heard("roots/list")
    host.reply(second, {"roots": ["two"]})
    host.reply(first, {"roots": ["one"]})
    for child in (one, two):
        reply = child.server.reply(1)
        assert reply is not None
        assert reply["result"] == {"roots": [child.name]}


def test_an_answer_nobody_asked_for_is_ignored(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    host.call()
    host.send({"id": 424242, "result": {}})
    kid.server.ask("roots/list")
    (question,) = host.heard("roots/list")
    host.reply(question, {"roots": []})
    host.reply(question, {"roots": ["again"]})
    assert kid.server.reply() == {"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}


# --- capabilities ------------------------------------------------------------------------------------------


@each_case(
    ("capabilities", "method", "params"),
    [
        ({}, "sampling/createMessage", {}),
        ({"sampling": {}}, "elicitation/create", FORM),
        ({"elicitation": {}}, "elicitation/create", URL),
        ({"elicitation": {"url": {}}}, "elicitation/create", FORM),
    ],
    board=open_board,
    kid=new_kid,
)
def test_a_host_is_not_asked_what_it_did_not_declare(
    board: Board, kid: FakeChild, capabilities: Json, method: str, params: Json
) -> None:
    host = board.host(capabilities)
    host.call()
    kid.server.ask(method, params)
    assert host.heard(method) == []
    reply = kid.server.reply()
    assert reply is not None
    assert reply["error"]["code"] == -32601


def test_roots_are_the_workspace_where_no_host_has_any(board: Board, kid: FakeChild) -> None:
    host = board.host()
    host.call()
    kid.server.ask("roots/list")
    reply = kid.server.reply()
    assert reply is not None
    assert reply["result"] == {"roots": [{"uri": "file:///work%20space", "name": "work space"}]}


def test_a_child_hears_what_the_host_that_needs_it_can_do(board: Board, kid: FakeChild) -> None:
    board.host(EVERYTHING).call()
    assert kid.server.last("initialize")["params"]["capabilities"] == EVERYTHING


def test_a_child_that_is_started_to_be_listed_hears_it_too(board: Board) -> None:
    kid = board.child(exposure="direct")
    board.host(EVERYTHING)
    assert kid.server.last("initialize")["params"]["capabilities"] == EVERYTHING


# --- whose it is -------------------------------------------------------------------------------------------


def test_a_question_goes_to_the_host_whose_call_it_is_and_to_no_other(board: Board, kid: FakeChild) -> None:
    one, two = board.host(EVERYTHING), board.host(EVERYTHING)
    two.call()
    kid.server.ask("elicitation/create", FORM)
    assert one.heard("elicitation/create") == []
    assert len(two.heard("elicitation/create")) == 1


def test_with_calls_of_two_hosts_under_way_nobody_is_asked(board: Board, kid: FakeChild) -> None:
    one, two = board.host(EVERYTHING), board.host(EVERYTHING)
    one.call()
    two.call()
    kid.server.ask("elicitation/create", FORM)
    reply = kid.server.reply()
    assert reply is not None
    assert 'suites.kid.isolation to "session"' in reply["error"]["message"]
    assert one.heard("elicitation/create") == two.heard("elicitation/create") == []


def test_hosts_of_both_eras_at_once_are_told_apart_too(board: Board, kid: FakeChild) -> None:
    old, new = board.host(EVERYTHING), board.host(EVERYTHING, modern=True)
    old.call()
    call_id = new.call()
    kid.server.ask("elicitation/create", FORM)
    board.advance(1)
    assert old.heard("elicitation/create") == []
    assert new.answer(call_id) is None
    reply = kid.server.reply()
    assert reply is not None
    assert "error" in reply


def test_once_the_other_call_is_over_the_question_finds_its_host(board: Board, kid: FakeChild) -> None:
    one, two = board.host(EVERYTHING), board.host(EVERYTHING)
    one.call()
    first = kid.server.last()
    two.call()
    kid.server.give(first, {})
    kid.server.ask("elicitation/create", FORM)
    assert len(two.heard("elicitation/create")) == 1


def test_of_several_calls_of_one_host_the_latest_has_the_question(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    first, second = Road(), Road()
    host.call(road=first)
    host.call(road=second)
    kid.server.ask("elicitation/create", FORM)
    assert first.heard == []
    assert [message["method"] for message in second.heard] == ["elicitation/create"]


def test_a_question_outside_any_call_goes_to_the_only_host(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    host.call()
    kid.server.give(kid.server.last(), {})
    kid.server.ask("roots/list")
    assert len(host.heard("roots/list")) == 1


def test_a_question_outside_any_call_goes_to_nobody_where_there_are_two(board: Board, kid: FakeChild) -> None:
    one, two = board.host(EVERYTHING), board.host(EVERYTHING)
    one.call()
    kid.server.give(kid.server.last(), {})
    kid.server.ask("elicitation/create", FORM)
    assert one.heard("elicitation/create") == two.heard("elicitation/create") == []


def test_leftovers_of_one_host_do_not_reach_the_next(board: Board, kid: FakeChild) -> None:
    one, two = board.host(EVERYTHING), board.host(EVERYTHING)
    one.call()
    one.leave()
    kid.server.ask("elicitation/create", FORM, id="a")
    kid.server.notify("notifications/message", {"level": "info"})
    assert two.heard("elicitation/create") == two.heard("notifications/message") == []
    two.call()
    kid.server.give(kid.server.last(), {})
    kid.server.ask("elicitation/create", FORM, id="b")
    assert len(two.heard("elicitation/create")) == 1


def test_a_question_belongs_to_the_call_that_its_link_names(board: Board, kid: FakeChild) -> None:
    one, two = board.host(EVERYTHING), board.host(EVERYTHING)
    one.call()
    first = kid.server.last()
    two.call()
    link = kid.carriers[-1].link
    link.related = str(first["id"]).encode()  # type: ignore[attr-defined]  # as links do where each call has its own way
    kid.server.ask("elicitation/create", FORM, id="a")
    assert len(one.heard("elicitation/create")) == 1
    link.related = b"99999"  # type: ignore[attr-defined]
    kid.server.ask("elicitation/create", FORM, id="b")
    assert len(one.heard("elicitation/create")) == 1
    assert two.heard("elicitation/create") == []


# --- the end of a question ---------------------------------------------------------------------------------


def test_a_question_that_the_child_withdraws_is_withdrawn_from_the_host(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    host.call()
    kid.server.ask("elicitation/create", FORM, id=7)
    (question,) = host.heard("elicitation/create")
    kid.server.notify("notifications/cancelled", {"requestId": 7, "reason": "never mind"})
    assert host.notifications("notifications/cancelled") == [
        {"requestId": question["id"], "reason": "never mind"}
    ]
    host.reply(question, {"action": "accept"})
    assert kid.server.reply(7) is None


@each_case("params", [None, {}, {"requestId": 99}, {"requestId": "7"}, [1]], board=open_board, kid=new_kid)
def test_withdrawing_what_was_never_asked_changes_nothing(board: Board, kid: FakeChild, params: Json) -> None:
    host = board.host(EVERYTHING)
    host.call()
    kid.server.ask("elicitation/create", FORM, id=7)
    kid.server.notify("notifications/cancelled", params)
    host.reply(host.heard("elicitation/create")[0], {"action": "accept"})
    assert kid.server.reply(7) is not None
    assert host.heard("notifications/cancelled") == []


def test_cancelling_a_call_withdraws_its_questions(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    kid.server.ask("elicitation/create", FORM)
    (question,) = host.heard("elicitation/create")
    host.cancel(called)
    assert host.notifications("notifications/cancelled")[0]["requestId"] == question["id"]
    reply = kid.server.reply()
    assert reply is not None
    assert reply["error"]["code"] == -32603
    assert kid.server.last("notifications/cancelled")["params"]["requestId"] == kid.server.last()["id"]
    assert host.answer(called) is None


def test_a_host_that_goes_leaves_no_child_waiting(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    host.call()
    kid.server.ask("elicitation/create", FORM)
    host.leave()
    reply = kid.server.reply()
    assert reply is not None
    assert "error" in reply
    assert len(kid.server.requests("notifications/cancelled")) == 1


def test_a_host_that_says_nothing_more_still_has_its_answers(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    kid.server.ask("elicitation/create", FORM, id=1)
    board.gateway.stop_listening(host.session)
    kid.server.ask("elicitation/create", FORM, id=2)
    for question in (1, 2):
        reply = kid.server.reply(question)
        assert reply is not None
        assert "error" in reply
    kid.server.give(kid.server.last(), {"content": []})
    assert host.result(called) == {"content": []}


def test_a_child_that_dies_takes_its_questions_along(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    kid.server.ask("elicitation/create", FORM)
    (question,) = host.heard("elicitation/create")
    kid.server.die()
    assert host.notifications("notifications/cancelled")[0]["requestId"] == question["id"]
    assert host.result(called)["structuredContent"]["error"]["code"] == "child_crashed"


# --- time --------------------------------------------------------------------------------------------------


def test_while_a_person_thinks_the_call_is_not_late(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    kid.server.ask("elicitation/create", FORM)
    board.advance(1800)
    assert host.answer(called) is None
    host.reply(host.heard("elicitation/create")[0], {"action": "accept"})
    assert kid.server.reply() is not None
    board.advance(59)
    assert host.answer(called) is None
    board.advance(2)
    assert host.result(called)["structuredContent"]["error"]["code"] == "child_timeout"


def test_progress_meanwhile_does_not_make_the_call_late(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    kid.server.ask("elicitation/create", FORM)
    kid.server.notify("notifications/progress", {"progressToken": kid.server.last()["id"], "progress": 1})
    board.advance(1800)
    assert host.answer(called) is None
    assert kid.server.requests("notifications/cancelled") == []


def test_the_time_goes_on_when_the_last_of_several_questions_is_answered(
    board: Board, kid: FakeChild
) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    kid.server.ask("elicitation/create", FORM, id=1)
    kid.server.ask("elicitation/create", FORM, id=2)
    first, second = host.heard("elicitation/create")
    host.reply(first, {"action": "accept"})
    board.advance(100)
    assert host.answer(called) is None
    host.reply(second, {"action": "accept"})
    board.advance(61)
    assert host.answer(called) is not None


def test_a_question_that_nobody_answers_comes_to_an_end(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    host.call()
    kid.server.ask("elicitation/create", FORM)
    board.advance(3601)
    reply = kid.server.reply()
    assert reply is not None
    assert reply["error"]["message"] == "The host did not answer."
    assert host.notifications("notifications/cancelled")[0]["reason"] == "timeout"


def test_the_progress_of_a_question_reaches_the_child_under_its_own_token(
    board: Board, kid: FakeChild
) -> None:
    host = board.host(EVERYTHING)
    host.call()
    kid.server.ask("sampling/createMessage", {"_meta": {"progressToken": "theirs", "v": 1}})
    (question,) = host.heard("sampling/createMessage")
    token = question["params"]["_meta"]["progressToken"]
    assert token != "theirs"
    assert question["params"]["_meta"]["v"] == 1
    host.notify("notifications/progress", {"progressToken": token, "progress": 1, "vendor": 2})
    assert kid.server.last("notifications/progress")["params"] == {
        "progressToken": "theirs",
        "progress": 1,
        "vendor": 2,
    }
    host.notify("notifications/progress", {"progressToken": "theirs", "progress": 2})
    assert len(kid.server.requests("notifications/progress")) == 1


@each_case(
    "params",
    [[1], "text", {"progressToken": None}, {"progressToken": [1]}, {}],
    board=open_board,
    kid=new_kid,
)
def test_progress_that_makes_no_sense_is_dropped(board: Board, kid: FakeChild, params: Json) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    host.notify("notifications/progress", params)
    kid.server.notify("notifications/progress", params)
    kid.server.give(kid.server.last(), {"content": []})
    assert host.result(called) == {"content": []}


def test_a_child_that_floods_its_host_with_questions_is_held_back(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    host.call()
    for number in range(MAX_PENDING + 1):
        kid.server.ask("elicitation/create", FORM, id=number)
    assert len(host.heard("elicitation/create")) == MAX_PENDING
    reply = kid.server.reply(MAX_PENDING)
    assert reply is not None
    assert "Too many" in reply["error"]["message"]
    host.reply(host.heard("elicitation/create")[0], {"action": "accept"})
    kid.server.ask("elicitation/create", FORM, id="more")
    assert len(host.heard("elicitation/create")) == MAX_PENDING + 1
