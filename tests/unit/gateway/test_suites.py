"""What every suite is to the gateway: a child's, one that is built in, or one with something around it."""

from __future__ import annotations

import json

from switchboard_mcp.core import jsonrpc
from switchboard_mcp.errors import failure
from switchboard_mcp.gateway.calls import PlainParams
from switchboard_mcp.gateway.inbound import refuse_call, suite_call
from switchboard_mcp.gateway.session import Route, Session
from switchboard_mcp.gateway.suites import Shape, Suite, describe
from tests.unit.gateway.board import EVERYTHING, Board

FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}


class Clock:
    """A suite that is built in: it has one subtool, and answers at once."""

    name = "clock_suite"
    source = "clock"

    def descriptor(self, shape: Shape) -> dict[str, object]:
        return describe(self.name, "Tells the time", ["now"], shape, {"readOnlyHint": True})

    def begin(self, session: Session, route: Route, id: bytes, params: PlainParams) -> None:
        asked = params.arguments
        if asked.subtool != "now":
            refuse_call(session, route, id, params.meta, failure("subtool_unknown", "Only now."))
            return
        told = jsonrpc.encode({"content": [], "who": session.principal})
        suite_call(session, route, id, params.meta).answer(told)


class Answers:
    """A road that keeps what is answered on it, and passes it on."""

    def __init__(self, route: Route, kept: list[bytes]) -> None:
        self.send = route.send
        self._route = route
        self._kept = kept

    def answer(self, message: bytes) -> None:
        self._kept.append(message)
        self._route.answer(message)


class Watched:
    """Any suite, with an eye on what goes in and what comes out."""

    def __init__(self, inner: Suite) -> None:
        self.name, self.source, self.descriptor = inner.name, inner.source, inner.descriptor
        self.inner = inner
        self.calls: list[str] = []
        self.answers: list[bytes] = []

    def begin(self, session: Session, route: Route, id: bytes, params: PlainParams) -> None:
        self.calls.append(params.arguments.subtool)
        self.inner.begin(session, Answers(route, self.answers), id, params)


def test_a_built_in_suite_stands_among_the_children_in_the_list(board: Board) -> None:
    board.child("alpha")
    board.child("zulu")
    board.built_in = [Clock()]
    tools = board.host().get("tools/list")["tools"]
    assert [tool["name"] for tool in tools] == ["alpha_suite", "clock_suite", "zulu_suite"]
    assert tools[1]["description"] == "Tells the time. Subtools: now."
    assert tools[1]["annotations"] == {"readOnlyHint": True}


def test_a_built_in_suite_answers_hosts_of_both_eras_in_their_own(board: Board) -> None:
    board.built_in = [Clock()]
    old = board.host(principal="ann")
    assert old.result(old.call("now", "clock_suite")) == {"content": [], "who": "ann"}
    new = board.passer(principal="bob")
    answer = new.result(new.call("now", "clock_suite"))
    assert answer == {"content": [], "who": "bob", "resultType": "complete"}


def test_what_is_wrong_with_a_call_of_a_built_in_suite_is_told_by_its_own_name(board: Board) -> None:
    board.built_in = [Clock()]
    host = board.host()
    told = host.get("tools/call", {"name": "clock_suite", "arguments": {"action": "wind"}})
    assert told["isError"] is True
    assert "clock" in told["content"][0]["text"]


def test_a_child_gives_way_to_a_built_in_suite_of_its_name(board: Board) -> None:
    child = board.child("clock")
    board.built_in = [Clock()]
    host = board.host()
    names = [tool["name"] for tool in host.get("tools/list")["tools"]]
    (theirs,) = set(names) - {"clock_suite"}
    host.call("echo", theirs)
    assert child.server.last()["params"]["name"] == "echo"
    assert host.result(host.call("now", "clock_suite"))["content"] == []


def test_a_direct_tool_gives_way_to_a_built_in_suite_of_its_name(board: Board) -> None:
    board.child("kid", exposure="direct", tools=[{"name": "clock_suite", "inputSchema": {"type": "object"}}])
    board.built_in = [Clock()]
    names = [tool["name"] for tool in board.host().get("tools/list")["tools"]]
    assert names == ["clock_suite", "kid_clock_suite"]


def test_an_unknown_tool_is_not_mistaken_for_a_suite_that_no_host_sees(board: Board) -> None:
    board.child("kid", exposure="direct")
    board.child("cat")
    host = board.host()
    host.get("tools/list")
    told = host.error(host.ask("tools/call", {"name": "kid_suit", "arguments": {}}))
    assert "kid_suite" not in json.dumps(told)


def test_what_is_put_around_a_suite_sees_a_call_come_back_from_the_lot_too(board: Board) -> None:
    child = board.child()
    host = board.host(EVERYTHING, modern=True)
    watched = board.gateway.tools["kid_suite"] = Watched(board.gateway.tools["kid_suite"])
    first = host.call()
    child.server.ask("elicitation/create", FORM)
    board.advance(1)
    asked = host.result(first)
    answers = {key: {"action": "decline"} for key in asked["inputRequests"]}
    again = host.call(params={"requestState": asked["requestState"], "inputResponses": answers})
    child.server.give(child.server.last(), {"content": []})
    assert host.result(again) == {"content": [], "resultType": "complete"}
    assert watched.calls == ["echo", "echo"]
    ends = [json.loads(answer)["result"]["resultType"] for answer in watched.answers]
    assert ends == ["input_required", "complete"]
