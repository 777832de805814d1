"""The host's own model: what it is asked, and how its text is read."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from switchboard_mcp.ask.conversation import CannotAskError, Correction, InitialPrompt, Results
from switchboard_mcp.ask.host_access import HostConsent, choose_model
from switchboard_mcp.ask.plan import ModelTurn, Offered, PlanStep
from switchboard_mcp.ask.sampling import SamplingModel, read_turn
from switchboard_mcp.errors import SwitchboardError, failure
from tests.cases import each_case

BRIEF = InitialPrompt(
    "files", "Be careful.", [Offered("read", "Reads.", {"type": "object"})], "Request: read a"
)
DELETE = [PlanStep("delete", {"path": "a"})]


class Host:
    """A client that answers what is written down."""

    def __init__(self, *answers: object, capabilities: tuple[str, ...] = ("sampling", "elicitation")) -> None:
        self._answers = list(answers)
        self._capabilities = capabilities
        self.requests: list[tuple[str, Any]] = []

    def supports(self, capability: str) -> bool:
        return capability in self._capabilities

    def notify(self, method: str, params: bytes) -> None:
        raise AssertionError

    async def request(self, method: str, params: bytes) -> Raw:
        self.requests.append((method, json.loads(params)))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Raw(msgspec.json.encode(answer))


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"}


async def test_the_conversation_grows_and_every_host_can_carry_it() -> None:
    host = Host(said('{"steps":[{"subtool":"read"}],"done":true}'), said("{}"), said("{}"))
    talk = SamplingModel(host.request).start(BRIEF)
    reply = await talk.begin(500)
    assert reply.turn == ModelTurn(steps=[PlanStep("read", {})], done=True)
    assert reply.model == "m"
    assert reply.usage.read > 50
    assert reply.usage.written > 5
    await talk.resume(Correction(["No."]), 500)
    await talk.resume(Results(["== data ==", "more"]), 500)
    method, params = host.requests[-1]
    assert method == "sampling/createMessage"
    assert params["maxTokens"] == 500
    assert '{"subtool":"read","does":"Reads."' in params["systemPrompt"]
    assert "Be careful." in params["systemPrompt"]
    assert [message["role"] for message in params["messages"]] == ["user", "assistant"] * 2 + ["user"]
    assert params["messages"][2]["content"]["text"] == "Nothing was run. No. Try again."
    assert params["messages"][4]["content"]["text"] == "== data ==\n\nmore"


@each_case(
    ("text", "turn"),
    [
        ('{"cannot": "no"}', ModelTurn(cannot="no")),
        ('Sure!\n```json\n{"unclear": "which?"}\n```\nDone.', ModelTurn(unclear="which?")),
        ('{"steps":[],"later":["a"],"message":"m"}', ModelTurn(later=["a"], message="m")),
        ('{"subtool":"a","args":{"b":1}}', ModelTurn(steps=[PlanStep("a", {"b": 1})])),
    ],
)
def test_the_plan_is_found_in_whatever_stands_around_it(text: str, turn: ModelTurn) -> None:
    assert read_turn(text) == turn


@each_case(
    "text", ["", "I would call read.", "}{", '{"steps": 7}', '{"steps":[{}]}', "{" * 5000 + "}" * 5000]
)
def test_a_reply_that_is_no_plan_is_reported(text: str) -> None:
    assert "That is not a plan" in read_turn(text).odd


@each_case(
    ("answer", "code"),
    [
        (CannotAskError(failure("host_refused", "Method not found")), "ask_no_model"),
        (SwitchboardError(failure("host_refused", "User rejected")), "ask_model_failed"),
        ({"content": 7}, "ask_model_failed"),
    ],
)
async def test_a_host_that_does_not_lend_its_model_is_told_apart(answer: object, code: str) -> None:
    with pytest.raises(SwitchboardError) as problem:
        await SamplingModel(Host(answer).request).start(BRIEF).begin(100)
    assert problem.value.failure.code == code


async def test_content_in_several_blocks_is_one_text() -> None:
    blocks = [{"type": "text", "text": '{"do'}, {"type": "image"}, {"type": "text", "text": 'ne":true}'}]
    reply = await SamplingModel(Host({"content": blocks, "model": ""}).request).start(BRIEF).begin(100)
    assert reply.turn.done
    assert reply.model == "host"


@each_case(
    ("answer", "agreed"),
    [
        ({"action": "accept", "content": {"agree": True}}, "yes"),
        ({"action": "accept", "content": {"agree": False}}, "no"),
        ({"action": "accept", "content": {"agree": "true"}}, "no"),
        ({"action": "accept"}, "no"),
        ({"action": "decline"}, "no"),
        ({"action": "cancel", "content": None}, "no"),
        (7, "nobody"),
        (CannotAskError(failure("host_refused", "no")), "nobody"),
    ],
)
async def test_only_a_plain_yes_is_one(answer: object, agreed: str) -> None:
    host = Host(answer)
    assert await HostConsent("files", host).request(DELETE, DELETE) == agreed
    ((method, params),) = host.requests
    assert method == "elicitation/create"
    assert '1. delete {"path":"a"}' in params["message"]


async def test_only_hosts_that_can_answer_get_a_request_and_only_if_there_is_one() -> None:
    host = Host(capabilities=())
    assert await HostConsent("files", host).request(DELETE, []) == "yes"
    assert await HostConsent("files", host).request(DELETE, DELETE) == "nobody"
    assert host.requests == []


@each_case(
    ("backend", "host", "expected"),
    [
        ("auto", Host(capabilities=()), "no API key is set, and the host does not lend its model"),
        ("host", Host(capabilities=()), "ask.backend is 'host', and the host does not lend"),
        ("api", Host(), "no API key is set"),
        ("auto", None, "there is no host to lend one"),
    ],
)
def test_without_any_model_it_is_said_why(backend: Any, host: Host | None, expected: str) -> None:
    with pytest.raises(SwitchboardError) as problem:
        choose_model(backend, None, host)
    assert expected in problem.value.failure.message
    assert "ANTHROPIC_API_KEY" in str(problem.value.failure.hint)
