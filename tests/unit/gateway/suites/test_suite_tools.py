"""What every suite is to the gateway: a child's own, or one with something around it."""

from __future__ import annotations

import json

from msgspec.json import encode

from switchboard_mcp.gateway.session import ReplyChannel, Session
from switchboard_mcp.gateway.suites import suite_tools
from switchboard_mcp.gateway.suites.suite_tools import PlainParams, Suite
from tests.unit.gateway.board import EVERYTHING, Board

FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}


class Answers:
    """A road that keeps what is answered on it, and passes it on."""

    backlog = 0

    def __init__(self, channel: ReplyChannel, kept: list[bytes]) -> None:
        self.send = channel.send
        self._channel = channel
        self._kept = kept

    def answer(self, message: bytes) -> None:
        self._kept.append(message)
        self._channel.answer(message)


class Watched:
    """Any suite, with an eye on what goes in and what comes out."""

    def __init__(self, inner: Suite) -> None:
        self.name, self.source, self.descriptor = inner.name, inner.source, inner.descriptor
        self.inner = inner
        self.calls: list[str] = []
        self.answers: list[bytes] = []

    def begin(self, session: Session, channel: ReplyChannel, id: bytes, params: PlainParams) -> None:
        self.calls.append(params.arguments.subtool)
        self.inner.begin(session, Answers(channel, self.answers), id, params)


def test_an_unknown_tool_is_not_mistaken_for_a_suite_that_no_host_sees(board: Board) -> None:
    board.child("kid", exposure="direct")
    board.child("cat")
    host = board.host()
    host.get("tools/list")
    problem = host.error(host.ask("tools/call", {"name": "kid_suit", "arguments": {}}))
    assert "kid_suite" not in json.dumps(problem)


def test_middleware_of_a_suite_sees_calls_of_programs_too(board: Board) -> None:
    child = board.child()
    host = board.host(EVERYTHING, modern=True)
    watched = board.gateway.tools["kid_suite"] = Watched(board.gateway.tools["kid_suite"])
    first = host.call()
    child.server.ask("elicitation/create", FORM)
    board.advance(1)
    result = host.result(first)
    answers = {key: {"action": "decline"} for key in result["inputRequests"]}
    again = host.call(params={"requestState": result["requestState"], "inputResponses": answers})
    child.server.give(child.server.last(), {"content": []})
    assert host.result(again) == {"content": [], "resultType": "complete"}
    assert watched.calls == ["echo", "echo"]
    ends = [json.loads(answer)["result"]["resultType"] for answer in watched.answers]
    assert ends == ["input_required", "complete"]


class GeneratedSuite:
    """A suite whose description is generated, with forty subtools."""

    def __init__(self, number: int) -> None:
        self._name = f"some-published-server-{number}_suite"

    def descriptor(self, shape: suite_tools.Shape) -> dict[str, object]:
        names = [f"get_some_thing_{number}" for number in range(40)]
        hints = {"readOnlyHint": False, "destructiveHint": True}
        text = f"Tools of the MCP server '{self._name}'."
        return suite_tools.describe(self._name, text, names, shape, hints, generated=True)


def test_names_of_subtools_stay_in_a_list_of_157_suites_and_what_all_share_goes_first() -> None:
    suites = [GeneratedSuite(number) for number in range(157)]
    listed = suite_tools.encode_suites(suites, [])
    assert sum(len(bytes(tool)) for tool in listed) <= suite_tools.MAX_LIST_BYTES
    assert all(b"Subtools: get_some_thing_0" in bytes(tool) for tool in listed)
    assert not any(b"Tools of the MCP server" in bytes(tool) for tool in listed)
    sizes = [len(encode(suites[0].descriptor(shape))) for shape in suite_tools.SHAPES]
    assert sizes == sorted(sizes, reverse=True)
