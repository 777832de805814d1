"""A handshake-era child that asks in the middle of a modern host's request."""

from __future__ import annotations

from typing import Any

import pytest

from switchboard_mcp.gateway.client_requests import suspended_requests
from switchboard_mcp.gateway.client_requests.suspended_requests import (
    COALESCE_S,
    MAX_PENDING_INPUTS,
    SUSPEND_TIMEOUT_S,
)
from tests.cases import each_case
from tests.unit.gateway.board import EVERYTHING, PREFIX, Board, FakeChild, Host, Json, open_board

FORM: Json = {"message": "Name?", "requestedSchema": {"type": "object"}}
DONE: Json = {"content": [{"type": "text", "text": "done"}]}


def new_kid(board: Board) -> FakeChild:
    return board.child()


kid = pytest.fixture(new_kid, name="kid")


def asks(board: Board, kid: FakeChild, *params: Json, method: str = "elicitation/create") -> None:
    """The child asks, in one breath."""
    for one in params:
        kid.server.ask(method, one, id=board.next_id())
    board.advance(COALESCE_S)


def open_questions(kid: FakeChild) -> list[str]:
    return [message["id"] for message in kid.server.heard if "method" not in message]


def input_required(host: Host, id: int | str) -> Json:
    result = host.result(id)
    assert result["resultType"] == "input_required"
    return result


def resume(host: Host, suspended: Json, responses: Json | None = None, **more: Any) -> int | str:
    """The same call again, with the state and answers to all that is asked."""
    if responses is None:
        responses = {key: {"action": "accept", "key": key} for key in suspended["inputRequests"]}
    params = {
        "requestState": suspended["requestState"],
        "inputResponses": responses,
        **more.pop("params", {}),
    }
    return host.call(params=params, **more)


def test_the_question_comes_as_the_result_and_the_call_goes_on_with_the_answer(
    board: Board, kid: FakeChild
) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call(args={"a": 1})
    asks(board, kid, FORM)
    suspended = input_required(host, first)
    ((key, question),) = suspended["inputRequests"].items()
    assert question == {"method": "elicitation/create", "params": FORM}
    second = resume(host, suspended, {key: {"action": "accept", "content": {"n": "Al"}}}, args={"a": 1})
    assert host.answer(second) is None
    (reply,) = (message for message in kid.server.heard if "method" not in message)
    assert reply["result"] == {"action": "accept", "content": {"n": "Al"}}
    kid.server.give(kid.server.last(), DONE)
    assert host.result(second) == {"resultType": "complete", **DONE}
    assert len(kid.server.requests("tools/call")) == 1


def test_questions_of_one_moment_come_in_one_result(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call()
    kid.server.ask("elicitation/create", FORM, id=1)
    board.advance(COALESCE_S / 2)
    kid.server.ask("sampling/createMessage", {"maxTokens": 1}, id=2)
    kid.server.ask("roots/list", id="1")
    assert host.answer(first) is None
    board.advance(COALESCE_S)
    suspended = input_required(host, first)["inputRequests"]
    assert [question["method"] for question in suspended.values()] == [
        "elicitation/create",
        "sampling/createMessage",
        "roots/list",
    ]


def test_requests_of_the_handshake_era_are_not_sent(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call()
    url = {"mode": "url", "message": "m", "url": "https://x"}
    asks(board, kid, {**url, "elicitationId": "e", "task": {"ttl": 1}, "_meta": {"progressToken": 3}})
    (question,) = input_required(host, first)["inputRequests"].values()
    assert question == {"method": "elicitation/create", "params": url}


def test_answers_that_are_missing_or_no_answers_are_asked_for_again_under_their_keys(
    board: Board, kid: FakeChild
) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call()
    asks(board, kid, FORM, {**FORM, "message": "Second?"}, {**FORM, "message": "Third?"})
    suspended = input_required(host, first)
    one, two, three = suspended["inputRequests"]
    again = input_required(host, resume(host, suspended, {one: {"action": "accept"}, two: None, "other": {}}))
    assert list(again["inputRequests"]) == [two, three]
    assert again["inputRequests"][two] == suspended["inputRequests"][two]
    assert again["requestState"] != suspended["requestState"]
    last = resume(host, again)
    assert len(open_questions(kid)) == 3
    kid.server.give(kid.server.last(), DONE)
    assert host.result(last)["content"] == DONE["content"]


def test_a_child_may_ask_round_after_round(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    id = host.call()
    for _ in range(3):
        asks(board, kid, FORM)
        id = resume(host, input_required(host, id))
    kid.server.give(kid.server.last(), DONE)
    assert host.result(id)["resultType"] == "complete"
    assert len(open_questions(kid)) == 3


def test_a_question_that_comes_while_the_host_is_away_waits_for_its_return(
    board: Board, kid: FakeChild
) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call()
    asks(board, kid, FORM)
    suspended = input_required(host, first)
    asks(board, kid, {**FORM, "message": "One more?"})
    again = input_required(host, resume(host, suspended))
    assert [q["params"]["message"] for q in again["inputRequests"].values()] == ["One more?"]


def test_a_result_that_comes_while_the_host_is_away_is_kept(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    asks_then_gives = host.call()
    asks(board, kid, FORM)
    suspended = input_required(host, asks_then_gives)
    kid.server.give(kid.server.last(), DONE)
    second = resume(host, suspended)
    assert host.result(second) == {"resultType": "complete", **DONE}
    assert len(open_questions(kid)) == 1  # it was answered all the same


def test_a_result_that_comes_before_the_question_was_passed_on_wins(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call()
    kid.server.ask("elicitation/create", FORM)
    kid.server.give(kid.server.last(), DONE)
    board.advance(COALESCE_S)
    assert host.result(first) == {"resultType": "complete", **DONE}


def test_the_death_of_the_child_is_reported_on_return(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call()
    asks(board, kid, FORM)
    suspended = input_required(host, first)
    kid.server.die()
    result = host.result(resume(host, suspended))
    assert result["structuredContent"]["error"]["code"] == "child_crashed"
    assert result["resultType"] == "complete"


def test_prompts_and_resources_are_parked_as_well(board: Board) -> None:
    kid = board.child("lib", lists={"prompts/list": [{"name": "p"}]})
    host = board.host(EVERYTHING, modern=True)
    host.call(suite="lib_suite")
    params = {"name": "lib__p", "arguments": {"x": "1"}}
    first = host.ask("prompts/get", params)
    kid.server.give(kid.server.last(), {})
    asks(board, kid, FORM)
    suspended = input_required(host, first)
    responses = {key: {"action": "decline"} for key in suspended["inputRequests"]}
    second = host.ask(
        "prompts/get", {**params, "requestState": suspended["requestState"], "inputResponses": responses}
    )
    kid.server.give(kid.server.last("prompts/get"), {"messages": []})
    assert host.result(second) == {"resultType": "complete", "messages": []}


def test_a_direct_tool_is_parked_as_well(board: Board) -> None:
    kid = board.child(exposure="direct")
    host = board.host(EVERYTHING, modern=True)
    first = host.ask("tools/call", {"name": "echo", "arguments": {"b": 1, "a": 2}})
    asks(board, kid, FORM)
    suspended = input_required(host, first)
    back = {"name": "echo", "arguments": {"a": 2, "b": 1}, "requestState": suspended["requestState"]}
    second = host.ask("tools/call", {**back, "inputResponses": {"q1": {"action": "accept"}}})
    kid.server.give(kid.server.last(), DONE)
    assert host.result(second) == {"resultType": "complete", **DONE}


# --- who may come back, and with what ----------------------------------------------------------------------


def test_over_http_each_round_is_a_session_of_its_own(board: Board, kid: FakeChild) -> None:
    one = board.passer(EVERYTHING, principal="ann")
    first = one.call()
    asks(board, kid, FORM)
    suspended = input_required(one, first)
    one.leave()
    two = board.passer(EVERYTHING, principal="ann")
    second = resume(two, suspended)
    kid.server.give(kid.server.last(), DONE)
    assert two.result(second)["content"] == DONE["content"]
    assert kid.server.requests("notifications/cancelled") == []


@each_case(
    ("principal", "more"),
    [
        ("bob", {}),
        ("", {}),
        ("ann", {"args": {"other": 1}}),
        ("ann", {"subtool": "other"}),
        ("ann", {"state": "x"}),
    ],
    board=open_board,
    kid=new_kid,
)
def test_a_state_is_good_only_for_who_got_it_and_for_the_same_request(
    board: Board, kid: FakeChild, principal: str, more: Json
) -> None:
    one = board.passer(EVERYTHING, principal="ann")
    first = one.call()
    asks(board, kid, FORM)
    suspended = input_required(one, first)
    wrong = {**suspended, "requestState": suspended["requestState"] + more.pop("state", "")}
    thief = board.passer(EVERYTHING, principal=principal)
    assert thief.error(resume(thief, wrong, **more))["code"] == -32602
    assert open_questions(kid) == []
    rightful = board.passer(EVERYTHING, principal="ann")
    second = resume(rightful, suspended)
    kid.server.give(kid.server.last(), DONE)
    assert rightful.result(second)["content"] == DONE["content"]


def test_a_state_is_good_for_one_return(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call()
    asks(board, kid, FORM)
    suspended = input_required(host, first)
    second = resume(host, suspended)
    assert host.error(resume(host, suspended))["code"] == -32602
    kid.server.give(kid.server.last(), DONE)
    assert host.result(second)["content"] == DONE["content"]
    assert host.error(resume(host, suspended))["code"] == -32602


@each_case("state", ["", "elsewhere", "switchboard:", "switchboard:x:y"], board=open_board, kid=new_kid)
def test_a_state_nobody_gave_is_refused_where_the_child_gives_none(
    board: Board, kid: FakeChild, state: str
) -> None:
    host = board.host(EVERYTHING, modern=True)
    assert host.error(host.call(params={"requestState": state}))["code"] == -32602
    assert kid.server.requests("tools/call") == []


def test_a_state_that_is_no_text_is_refused(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    assert host.error(host.call(params={"requestState": 7}))["code"] == -32602


def test_an_id_that_is_under_way_is_not_used_twice(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call()
    asks(board, kid, FORM)
    suspended = input_required(host, first)
    host.call(id="busy")
    resume(host, suspended, id="busy")
    assert host.error("busy")["code"] == -32600
    second = resume(host, suspended)  # the state is still good
    kid.server.give(kid.server.requests("tools/call")[0], DONE)
    assert host.result(second)["content"] == DONE["content"]


def test_the_round_of_the_moment_says_where_progress_goes(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call(meta={"progressToken": "one"})
    token = kid.server.last()["params"]["_meta"]["progressToken"]
    asks(board, kid, FORM)
    suspended = input_required(host, first)
    kid.server.notify("notifications/progress", {"progressToken": token, "progress": 1})
    assert host.notifications("notifications/progress") == []
    resume(host, suspended, meta={"progressToken": "two"})
    kid.server.notify("notifications/progress", {"progressToken": token, "progress": 2})
    assert host.notifications("notifications/progress") == [{"progressToken": "two", "progress": 2}]


# --- the end -----------------------------------------------------------------------------------------------


def test_a_host_that_does_not_come_back_has_given_up(board: Board, kid: FakeChild) -> None:
    host = board.passer(EVERYTHING)
    first = host.call()
    asks(board, kid, FORM)
    suspended = input_required(host, first)
    host.leave()
    board.advance(SUSPEND_TIMEOUT_S - 1)
    assert kid.server.requests("notifications/cancelled") == []
    board.advance(2)
    (reply,) = (message for message in kid.server.heard if "method" not in message)
    assert "error" in reply
    assert kid.server.last("notifications/cancelled")["params"]["requestId"] == kid.server.last()["id"]
    late = board.passer(EVERYTHING)
    assert late.error(resume(late, suspended))["code"] == -32602


def test_a_host_that_is_gone_for_good_does_not_come_back(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call()
    asks(board, kid, FORM)
    input_required(host, first)
    host.leave()
    assert len(kid.server.requests("notifications/cancelled")) == 1


def test_a_request_that_has_come_back_can_be_cancelled(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call()
    asks(board, kid, FORM)
    second = resume(host, input_required(host, first))
    host.cancel(second)
    assert kid.server.last("notifications/cancelled")["params"]["requestId"] == kid.server.last()["id"]
    kid.server.give(kid.server.last(), DONE)
    assert host.answer(second) is None


def test_a_question_that_is_withdrawn_is_not_asked(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call()
    kid.server.ask("elicitation/create", FORM, id=1)
    kid.server.ask("elicitation/create", {**FORM, "message": "Stays"}, id=2)
    kid.server.notify("notifications/cancelled", {"requestId": 1})
    board.advance(COALESCE_S)
    suspended = input_required(host, first)
    assert [q["params"]["message"] for q in suspended["inputRequests"].values()] == ["Stays"]
    kid.server.notify("notifications/cancelled", {"requestId": 2})
    second = resume(host, suspended)
    assert kid.server.reply(2) is None
    assert host.answer(second) is None
    kid.server.give(kid.server.last(), DONE)
    assert host.result(second)["content"] == DONE["content"]


def test_a_call_whose_only_question_is_withdrawn_goes_on(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call()
    kid.server.ask("elicitation/create", FORM, id=1)
    kid.server.notify("notifications/cancelled", {"requestId": 1})
    board.advance(59)
    assert host.answer(first) is None
    board.advance(2)
    assert host.result(first)["structuredContent"]["error"]["code"] == "child_timeout"


def test_the_time_of_a_call_goes_on_with_the_answer(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call()
    asks(board, kid, FORM)
    board.advance(SUSPEND_TIMEOUT_S - 1)
    second = resume(host, input_required(host, first))
    board.advance(59)
    assert host.answer(second) is None
    board.advance(2)
    assert host.result(second)["structuredContent"]["error"]["code"] == "child_timeout"


# --- what the host cannot ----------------------------------------------------------------------------------


@each_case(
    ("method", "params", "needed"),
    [
        ("sampling/createMessage", {}, {"sampling": {}}),
        ("elicitation/create", FORM, {"elicitation": {"form": {}}}),
        ("elicitation/create", {"mode": "url"}, {"elicitation": {"url": {}}}),
    ],
    board=open_board,
    kid=new_kid,
)
def test_a_call_that_fails_for_what_the_host_cannot_says_what_is_needed(
    board: Board, kid: FakeChild, method: str, params: Json, needed: Json
) -> None:
    host = board.host(modern=True)
    first = host.call()
    asks(board, kid, params, method=method)
    assert host.answer(first) is None
    kid.server.refuse(kid.server.last(), -32603, "the client refused")
    error = host.error(first)
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": needed}


def test_a_call_that_does_without_is_complete(board: Board, kid: FakeChild) -> None:
    host = board.host(modern=True)
    first = host.call()
    asks(board, kid, {}, method="sampling/createMessage")
    kid.server.give(kid.server.last(), {**DONE, "isError": True})
    assert host.result(first) == {"resultType": "complete", **DONE, "isError": True}


def test_a_direct_tool_says_so_too(board: Board) -> None:
    kid = board.child(exposure="direct")
    host = board.host(modern=True)
    first = host.ask("tools/call", {"name": "echo"})
    asks(board, kid, {}, method="sampling/createMessage")
    asks(board, kid, {"mode": "url"}, FORM)
    kid.server.refuse(kid.server.last(), -32603)
    assert host.error(first)["data"] == {
        "requiredCapabilities": {"sampling": {}, "elicitation": {"url": {}, "form": {}}}
    }


def test_capabilities_are_those_of_the_round_of_the_moment(board: Board, kid: FakeChild) -> None:
    host = board.host({"elicitation": {}}, modern=True)
    first = host.call()
    asks(board, kid, FORM)
    suspended = input_required(host, first)
    host.capabilities = {"sampling": {}}
    second = resume(host, suspended)
    asks(board, kid, {}, method="sampling/createMessage")
    assert [q["method"] for q in input_required(host, second)["inputRequests"].values()] == [
        "sampling/createMessage"
    ]


# --- URLs to be visited first ------------------------------------------------------------------------------

URLS = {"elicitations": [{"mode": "url", "elicitationId": "1", "url": "https://a", "message": "Sign in"}]}


def test_urls_to_be_visited_are_asked_for_and_the_child_is_called_again(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call()
    kid.server.refuse(kid.server.last(), -32042, "sign in first", URLS)
    suspended = input_required(host, first)
    assert suspended["inputRequests"] == {
        "url1": {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "Sign in", "url": "https://a"},
        }
    }
    second = resume(host, suspended, {"url1": {"action": "accept"}})
    assert len(kid.server.requests("tools/call")) == 2
    assert "requestState" not in kid.server.last()["params"]
    kid.server.give(kid.server.last(), DONE)
    assert host.result(second) == {"resultType": "complete", **DONE}


def test_a_host_that_visits_no_urls_hears_what_is_needed(board: Board, kid: FakeChild) -> None:
    host = board.host({"elicitation": {}}, modern=True)
    first = host.call()
    kid.server.refuse(kid.server.last(), -32042, "sign in first", URLS)
    assert host.error(first)["data"] == {"requiredCapabilities": {"elicitation": {"url": {}}}}


def test_a_handshake_era_host_gets_that_error_from_a_direct_tool_as_it_is(board: Board) -> None:
    kid = board.child(exposure="direct")
    host = board.host(EVERYTHING)
    first = host.ask("tools/call", {"name": "echo"})
    kid.server.refuse(kid.server.last(), -32042, "sign in first", URLS)
    assert host.error(first) == {"code": -32042, "message": "sign in first", "data": URLS}


def test_a_parked_request_of_another_client_parks_nothing(board: Board, kid: FakeChild) -> None:
    ann, bob = board.passer(EVERYTHING, principal="ann"), board.passer(EVERYTHING, principal="bob")
    first = ann.call()
    asks(board, kid, FORM)
    input_required(ann, first)
    second = bob.call()
    asks(board, kid, FORM)
    assert bob.answer(second) is None
    assert len(open_questions(kid)) == 1  # refused, since it might be Ann's


def test_a_parked_request_does_not_keep_its_own_principal_from_being_asked(
    board: Board, kid: FakeChild
) -> None:
    one, two = board.passer(EVERYTHING, principal="ann"), board.passer(EVERYTHING, principal="ann")
    first = one.call()
    asks(board, kid, FORM)
    input_required(one, first)
    second = two.call()
    asks(board, kid, FORM)
    input_required(two, second)


def test_a_log_level_of_one_request_reaches_the_child(board: Board, kid: FakeChild) -> None:
    host = board.host(modern=True)
    host.call(meta={PREFIX + "logLevel": "warning"})
    host.call(meta={PREFIX + "logLevel": "error"})
    host.call(meta={PREFIX + "logLevel": "debug"})
    assert [m["params"]["level"] for m in kid.server.requests("logging/setLevel")] == ["warning", "debug"]


def test_a_child_that_floods_its_host_with_questions_is_held_back(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    first = host.call()
    asks(board, kid, *(FORM for _ in range(MAX_PENDING_INPUTS + 3)))
    assert len(input_required(host, first)["inputRequests"]) == MAX_PENDING_INPUTS
    assert len(open_questions(kid)) == 3


def test_a_child_that_does_not_wait_for_its_answer_hears_that_there_is_none(
    board: Board, kid: FakeChild
) -> None:
    host = board.host(EVERYTHING, modern=True)
    called = host.call()
    kid.server.ask("elicitation/create", FORM)
    kid.server.give(kid.server.last(), DONE)
    board.advance(COALESCE_S)
    assert host.result(called)["content"] == DONE["content"]
    reply = kid.server.reply()
    assert reply is not None
    assert "error" in reply


def test_an_answer_that_nobody_comes_back_for_ends_what_was_asked(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    host.call()
    asks(board, kid, FORM)
    kid.server.give(kid.server.last(), DONE)
    assert open_questions(kid) == []
    board.advance(SUSPEND_TIMEOUT_S)
    assert len(open_questions(kid)) == 1


def test_a_child_gets_an_answer_if_too_many_requests_are_parked(
    board: Board, kid: FakeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspended_requests, "MAX_SUSPENDED", 1)
    host = board.host(EVERYTHING, modern=True)
    urls = {"elicitations": [{"mode": "url", "url": "https://x", "elicitationId": "e"}]}
    calls = []
    for _ in range(2):
        calls.append(host.call())
        kid.server.refuse(kid.server.last(), -32042, "go there first", urls)
    assert input_required(host, calls[0])
    assert "go there first" in host.result(calls[1])["content"][0]["text"]


def test_one_client_leaves_room_for_others(
    board: Board, kid: FakeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspended_requests, "MAX_SUSPENDED_OF_ONE", 1)
    flooding = board.host(EVERYTHING, modern=True, principal="ann")
    other = board.host(EVERYTHING, modern=True, principal="ben")
    urls = {"elicitations": [{"mode": "url", "url": "https://x", "elicitationId": "e"}]}
    calls = []
    for host in (flooding, flooding, other):
        calls.append(host.call())
        kid.server.refuse(kid.server.last(), -32042, "go there first", urls)
    assert input_required(flooding, calls[0])
    assert "go there first" in flooding.result(calls[1])["content"][0]["text"]
    assert input_required(other, calls[2])


def test_a_call_that_fails_after_the_child_was_told_the_roots_fails_for_its_own_reason(
    board: Board, kid: FakeChild
) -> None:
    host = board.host(modern=True)
    called = host.call()
    kid.server.ask("roots/list")
    assert kid.server.reply() is not None
    kid.server.refuse(kid.server.last(), -32602, "bad path")
    assert "bad path" in host.result(called)["content"][0]["text"]


def test_a_request_that_no_result_may_contain_is_not_sent(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    called = host.call()
    kid.server.ask("vendor/ask", {"any": 1})
    reply = kid.server.reply()
    assert reply is not None
    assert reply["error"]["code"] == -32601
    kid.server.give(kid.server.last(), {"content": []})
    assert host.result(called)["resultType"] == "complete"
