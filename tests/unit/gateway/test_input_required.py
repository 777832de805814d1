"""A modern child that asks a handshake-era host, and modern pairs, which need nobody in between."""

from __future__ import annotations

import pytest

from switchboard_mcp.gateway.client_requests.input_required import MAX_ROUNDS
from switchboard_mcp.protocol.versions import HEADER_MISMATCH
from tests.cases import each_case
from tests.unit.gateway.board import EVERYTHING, PREFIX, Board, FakeChild, Host, Json, open_board

FORM: Json = {"message": "Name?", "requestedSchema": {"type": "object"}}
DONE: Json = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
ASK: Json = {"method": "elicitation/create", "params": FORM}


def new_kid(board: Board) -> FakeChild:
    return board.child(era="modern")


kid = pytest.fixture(new_kid, name="kid")


def wants(*, state: str | None = "s", **requests: Json) -> Json:
    result: Json = {"resultType": "input_required"}
    if requests:
        result["inputRequests"] = requests
    return result if state is None else {**result, "requestState": state}


def test_each_question_is_asked_and_the_child_is_called_again_with_the_answers(
    board: Board, kid: FakeChild
) -> None:
    host = board.host(EVERYTHING)
    called = host.call(args={"a": 1}, meta={"v.com/x": 1})
    first = kid.server.last()
    kid.server.give(
        first,
        wants(who=ASK, dirs={"method": "roots/list"}, ask={"method": "sampling/createMessage", "params": {}}),
    )
    (form,), (dirs,), (sample,) = map(
        host.heard, ("elicitation/create", "roots/list", "sampling/createMessage")
    )
    assert form["params"] == FORM
    host.reply(sample, {"role": "assistant"})
    host.reply(dirs, {"roots": []})
    assert len(kid.server.requests("tools/call")) == 1
    host.reply(form, {"action": "accept", "content": {"n": "Al"}})
    again = kid.server.last()
    assert again["id"] != first["id"]
    assert again["params"]["requestState"] == "s"
    assert again["params"]["inputResponses"] == {
        "who": {"action": "accept", "content": {"n": "Al"}},
        "dirs": {"roots": []},
        "ask": {"role": "assistant"},
    }
    assert again["params"]["arguments"] == {"a": 1}
    assert again["params"]["_meta"]["v.com/x"] == 1
    kid.server.give(again, {**DONE, "_meta": {PREFIX + "serverInfo": {"name": "s"}}})
    assert host.result(called) == {"content": DONE["content"]}


def test_without_a_state_none_comes_back(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    host.call()
    kid.server.give(kid.server.last(), wants(who=ASK, state=None))
    host.reply(host.heard("elicitation/create")[0], {"action": "decline"})
    assert "requestState" not in kid.server.last()["params"]
    assert kid.server.last()["params"]["inputResponses"] == {"who": {"action": "decline"}}


def test_a_state_alone_is_brought_back_after_a_while(board: Board, kid: FakeChild) -> None:
    host = board.host()
    called = host.call()
    for _ in range(2):
        kid.server.give(kid.server.last(), wants(state="later"))
        before = len(kid.server.requests("tools/call"))
        board.advance(5)
        assert len(kid.server.requests("tools/call")) == before + 1
    assert kid.server.last()["params"]["requestState"] == "later"
    assert "inputResponses" not in kid.server.last()["params"]
    kid.server.give(kid.server.last(), DONE)
    assert host.result(called) == {"content": DONE["content"]}


def test_only_the_answers_of_the_round_are_sent(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    host.call()
    kid.server.give(kid.server.last(), wants(one=ASK, state="1"))
    host.reply(host.heard("elicitation/create")[0], {"action": "accept"})
    kid.server.give(kid.server.last(), wants(two=ASK, state="2"))
    host.reply(host.heard("elicitation/create")[1], {"action": "cancel"})
    assert kid.server.last()["params"]["inputResponses"] == {"two": {"action": "cancel"}}
    assert kid.server.last()["params"]["requestState"] == "2"


def test_a_child_that_never_has_enough_is_stopped(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    for _ in range(MAX_ROUNDS):
        kid.server.give(kid.server.last(), wants(who=ASK))
        host.reply(host.heard("elicitation/create")[-1], {"action": "accept"})
    assert host.answer(called) is None
    kid.server.give(kid.server.last(), wants(who=ASK))
    assert host.result(called)["isError"] is True
    assert len(host.heard("elicitation/create")) == MAX_ROUNDS


def test_a_url_to_visit_gets_the_id_that_the_handshake_era_needs(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    host.call()
    url = {"mode": "url", "message": "Go", "url": "https://x"}
    kid.server.give(kid.server.last(), wants(a={"method": "elicitation/create", "params": url}))
    params = host.notifications("elicitation/create")[0]
    assert params.pop("elicitationId")
    assert params == url


@each_case(
    ("capabilities", "question"),
    [
        ({}, ASK),
        ({"elicitation": {}}, {"method": "elicitation/create", "params": {"mode": "url", "url": "u"}}),
        ({"elicitation": {}}, {"method": "sampling/createMessage", "params": {}}),
        ({"elicitation": {}}, {"method": "roots/list"}),
    ],
    board=open_board,
    kid=new_kid,
)
def test_a_request_that_the_host_cannot_answer_fails_the_call_and_is_not_sent(
    board: Board, kid: FakeChild, capabilities: Json, question: Json
) -> None:
    host = board.host(capabilities)
    called = host.call()
    kid.server.give(kid.server.last(), wants(first=ASK, second=question))
    assert host.result(called)["structuredContent"]["error"]["code"] == "host_refused"
    assert host.heard("elicitation/create") == []
    assert len(kid.server.requests("tools/call")) == 1


def test_one_refusal_ends_the_call_and_withdraws_the_other_questions(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    kid.server.give(kid.server.last(), wants(one=ASK, two=ASK))
    one, two = host.heard("elicitation/create")
    host.refuse(one, -1, "the user is busy")
    error = host.result(called)["structuredContent"]["error"]
    assert (error["code"], "the user is busy" in error["message"]) == ("host_refused", True)
    assert [notification["requestId"] for notification in host.notifications("notifications/cancelled")] == [
        two["id"]
    ]
    host.reply(two, {"action": "accept"})
    assert len(kid.server.requests("tools/call")) == 1


def test_a_prompt_that_asks_fails_as_an_error_of_the_protocol(board: Board) -> None:
    kid = board.child("lib", "modern", lists={"prompts/list": [{"name": "p"}]})
    host = board.host()
    host.call(suite="lib_suite")
    request_id = host.ask("prompts/get", {"name": "lib__p"})
    kid.server.give(kid.server.last("prompts/get"), wants(who=ASK))
    assert host.error(request_id)["data"]["error"]["code"] == "host_refused"


def test_cancelling_a_call_ends_its_round(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    kid.server.give(kid.server.last(), wants(who=ASK))
    host.cancel(called)
    host.reply(host.heard("elicitation/create")[0], {"action": "accept"})
    assert host.answer(called) is None
    assert len(kid.server.requests("tools/call")) == 1
    assert kid.server.requests("notifications/cancelled") == []  # the child has nothing under way


def test_cancelling_while_the_child_wants_to_be_left_alone_ends_it_too(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    kid.server.give(kid.server.last(), wants(state="later"))
    host.cancel(called)
    board.advance(60)
    assert len(kid.server.requests("tools/call")) == 1


def test_a_child_that_has_gone_meanwhile_is_started_again(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    kid.server.give(kid.server.last(), wants(who=ASK))
    kid.server.die()
    host.reply(host.heard("elicitation/create")[0], {"action": "accept"})
    assert len(kid.runs) == 2
    assert kid.server.last()["params"]["inputResponses"] == {"who": {"action": "accept"}}
    kid.server.give(kid.server.last(), DONE)
    assert host.result(called) == {"content": DONE["content"]}


@each_case("kind", ["task", "vendor"], board=open_board, kid=new_kid)
def test_a_result_of_a_kind_the_host_cannot_take_is_a_failure(
    board: Board, kid: FakeChild, kind: str
) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    kid.server.give(kid.server.last(), {"resultType": kind, "taskId": "t"})
    assert host.result(called)["structuredContent"]["error"]["code"] == "child_protocol"


@each_case(
    "result",
    [
        {"resultType": "input_required", "inputRequests": []},
        {"resultType": "input_required", "inputRequests": {"a": 1}},
        {"resultType": "input_required", "inputRequests": {"a": {"params": {}}}},
        {"resultType": 5},
    ],
    board=open_board,
    kid=new_kid,
)
def test_a_question_that_cannot_be_read_fails_the_call(board: Board, kid: FakeChild, result: Json) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    kid.server.give(kid.server.last(), result)
    assert host.result(called)["structuredContent"]["error"]["code"] == "child_protocol"


def test_a_missing_capability_of_the_host_is_reported_in_words(board: Board, kid: FakeChild) -> None:
    host = board.host()
    called = host.call()
    kid.server.refuse(kid.server.last(), -32021, "needs sampling", {"requiredCapabilities": {"sampling": {}}})
    assert "needs sampling" in host.result(called)["structuredContent"]["error"]["message"]


def test_a_modern_child_is_told_what_of_the_host_can_be_driven(board: Board, kid: FakeChild) -> None:
    host = board.host({**EVERYTHING, "roots": {"listChanged": True}, "tasks": {}, "extensions": {"v/x": {}}})
    host.get("logging/setLevel", {"level": "warning"})
    host.call()
    meta = kid.server.last()["params"]["_meta"]
    assert meta[PREFIX + "clientCapabilities"] == EVERYTHING
    assert meta[PREFIX + "logLevel"] == "warning"
    assert meta[PREFIX + "protocolVersion"] == "2026-07-28"


# --- modern on both sides ----------------------------------------------------------------------------------


def test_between_modern_ends_everything_passes_untouched(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    called = host.call()
    request_id = wants(who=ASK, state="opaque")
    kid.server.give(kid.server.last(), {**request_id, "vendor": 1})
    assert host.result(called) == {**request_id, "vendor": 1}
    again = host.call(params={"requestState": "opaque", "inputResponses": {"who": {"action": "accept"}}})
    params = kid.server.last()["params"]
    assert params["requestState"] == "opaque"
    assert params["inputResponses"] == {"who": {"action": "accept"}}
    kid.server.give(kid.server.last(), DONE)
    assert host.result(again) == DONE


def test_answers_without_a_state_pass_as_well(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    host.call(params={"inputResponses": {"who": {"action": "accept"}}})
    assert kid.server.last()["params"]["inputResponses"] == {"who": {"action": "accept"}}
    assert "requestState" not in kid.server.last()["params"]


def test_a_state_of_another_switchboard_behind_us_passes(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING, modern=True)
    called = host.call()
    kid.server.give(kid.server.last(), wants(who=ASK, state="switchboard:abc:def"))
    assert host.result(called)["requestState"] == "switchboard:abc:def"
    host.call(params={"requestState": "switchboard:abc:def"})
    assert kid.server.last()["params"]["requestState"] == "switchboard:abc:def"


@each_case("exposure", ["suite", "direct"], board=open_board)
def test_a_missing_capability_of_the_host_has_its_error_code(board: Board, exposure: str) -> None:
    kid = board.child(era="modern", exposure=exposure)
    host = board.host(modern=True)
    called = host.call() if exposure == "suite" else host.ask("tools/call", {"name": "echo"})
    kid.server.refuse(kid.server.last(), -32021, "needs", {"requiredCapabilities": {"sampling": {}}})
    assert host.error(called)["code"] == -32021
    assert host.error(called)["data"] == {"requiredCapabilities": {"sampling": {}}}


def test_a_complaint_about_a_capability_that_the_host_has_is_a_fault_of_the_child(board: Board) -> None:
    kid = board.child(era="modern", exposure="direct")
    host = board.host({"sampling": {}}, modern=True)
    called = host.ask("tools/call", {"name": "echo"})
    kid.server.refuse(kid.server.last(), -32021, "needs", {"requiredCapabilities": {"sampling": {}}})
    assert host.error(called)["code"] == -32603


def test_a_modern_result_without_a_type_gets_one(board: Board, kid: FakeChild) -> None:
    host = board.host(modern=True)
    called = host.call()
    kid.server.give(kid.server.last(), {"content": []})
    assert host.result(called) == {"resultType": "complete", "content": []}


# --- headers that do not fit any more ----------------------------------------------------------------------


def call_of(host: Host, exposure: str) -> int | str:
    return host.call() if exposure == "suite" else host.ask("tools/call", {"name": "echo", "arguments": {}})


@each_case("modern", [False, True])
@each_case("exposure", ["suite", "direct"], board=open_board)
def test_a_child_that_misses_headers_is_asked_for_its_tools_and_called_again(
    board: Board, exposure: str, modern: bool
) -> None:
    kid = board.child(era="modern", exposure=exposure)
    host = board.host(modern=modern)
    called = call_of(host, exposure)
    first, lists = kid.server.last(), len(kid.server.requests("tools/list"))
    kid.server.refuse(first, HEADER_MISMATCH)
    assert len(kid.server.requests("tools/list")) == lists + 1
    again = kid.server.last()
    assert again["id"] != first["id"]
    assert again["params"]["arguments"] == first["params"]["arguments"]
    kid.server.give(again, DONE)
    assert host.result(called)["content"] == DONE["content"]


def test_a_child_that_misses_headers_twice_has_failed(board: Board, kid: FakeChild) -> None:
    host = board.host()
    called = host.call()
    for _ in range(2):
        kid.server.refuse(kid.server.last(), HEADER_MISMATCH)
    assert len(kid.server.requests("tools/call")) == 2
    assert host.result(called)["isError"] is True


def test_the_answers_of_a_round_are_brought_again_with_the_call(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    host.call()
    kid.server.give(kid.server.last(), wants(who=ASK))
    host.reply(host.heard("elicitation/create")[0], {"action": "decline"})
    params = kid.server.last()["params"]
    kid.server.refuse(kid.server.last(), HEADER_MISMATCH)
    again = kid.server.last()["params"]
    assert (again["inputResponses"], again["requestState"]) == ({"who": {"action": "decline"}}, "s")
    assert again["arguments"] == params["arguments"]


def test_a_tool_that_is_gone_when_the_host_has_answered_is_reported(board: Board, kid: FakeChild) -> None:
    host = board.host(EVERYTHING)
    called = host.call()
    kid.server.give(kid.server.last(), wants(who=ASK))
    kid.lists["tools/list"] = []
    kid.server.notify("notifications/tools/list_changed")
    host.reply(host.heard("elicitation/create")[0], {"action": "decline"})
    assert host.result(called)["structuredContent"]["error"]["code"] == "subtool_unknown"


def test_a_call_that_was_cancelled_while_the_tools_were_listed_is_not_made_again(
    board: Board, kid: FakeChild
) -> None:
    host = board.host()
    called = host.call()
    kid.extra = lambda message: {} if message["method"] == "tools/list" else None
    kid.server.refuse(kid.server.last(), HEADER_MISMATCH)
    host.cancel(called)
    kid.server.give(kid.server.last("tools/list"), {"resultType": "complete", "tools": []})
    assert len(kid.server.requests("tools/call")) == 1


def test_a_handshake_era_child_that_says_so_means_something_else(board: Board) -> None:
    kid = board.child(exposure="direct")
    host = board.host()
    called = host.ask("tools/call", {"name": "echo"})
    kid.server.refuse(kid.server.last(), HEADER_MISMATCH)
    assert host.error(called)["code"] == HEADER_MISMATCH


@each_case("era", ["legacy", "modern"])
@each_case(
    ("input", "valid"),
    [
        ({"a": 5}, False),
        ({"a": None}, True),
        (5, False),
        ([], False),
        ("x", False),
        (None, True),
        ({}, True),
    ],
)
@each_case("spaced", [False, True], board=open_board)
def test_input_that_its_host_has_written_wrongly_is_an_error_for_the_host(
    board: Board, era: str, input: object, valid: bool, spaced: bool
) -> None:
    """Not a result for the model, which cannot correct it. A member that is unknown takes the slow path."""
    kid = board.child(era=era)
    host = board.host(modern=True)
    id = host.call(params={"inputResponses": input, **({"vendor": 1} if spaced else {})})
    if valid:
        assert kid.server.requests("tools/call")
    else:
        assert host.error(id)["code"] == -32602
        assert kid.runs == [] or kid.server.requests("tools/call") == []
