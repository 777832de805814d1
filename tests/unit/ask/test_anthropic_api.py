"""The API as the model: the real client library against a service on this machine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from switchboard_mcp.ask.anthropic_api import CONTROLS, AnthropicModel, api_names, write_schema
from switchboard_mcp.ask.conversation import Conversation, Correction, InitialPrompt, Results
from switchboard_mcp.ask.plan import ModelTurn, Offered, PlanStep
from switchboard_mcp.config.sections import AskSettings
from switchboard_mcp.errors import SwitchboardError
from tests.cases import each_case
from tests.e2e.messages_api import Breaks, Fails, MessagesApi, Says, messages_api, text, use

PATH = {"type": "object", "properties": {"path": {"type": "string"}}}
OFFERED = [Offered("read.file", "Reads a file.", PATH), Offered("write", "Writes.", {})]
DONE = use("plan_done", {})


@pytest.fixture
def api() -> Iterator[MessagesApi]:
    with messages_api() as service:
        yield service


@asynccontextmanager
async def talking(api: MessagesApi, **settings: Any) -> AsyncIterator[Conversation]:
    model = AnthropicModel(AskSettings(base_url=api.url, **settings), "sk-test")
    try:
        yield model.start(InitialPrompt("files", "Be careful.", OFFERED, "Request: read a"))
    finally:
        await model.close()


async def first(api: MessagesApi) -> ModelTurn:
    async with talking(api) as talk:
        return (await talk.begin(1_000)).turn


async def refusal(api: MessagesApi) -> str:
    async with talking(api) as talk:
        with pytest.raises(SwitchboardError) as problem:
            await talk.begin(1_000)
    return f"{problem.value.failure.code}: {problem.value.failure.message}"


async def test_the_subtools_are_its_tools_and_what_is_always_the_same_is_cached(api: MessagesApi) -> None:
    api.answers.append(Says([use("read_file", {"path": "a"}), DONE], cached=7))
    async with talking(api, effort="low") as talk:
        reply = await talk.begin(1_000)
    assert reply.turn == ModelTurn(steps=[PlanStep("read.file", {"path": "a"})], done=True)
    assert (reply.usage.read, reply.usage.written, reply.usage.cached) == (100, 20, 7)
    (request,) = api.requests
    assert [tool["name"] for tool in request["tools"]] == [
        *(control["name"] for control in CONTROLS),
        "read_file",
        "write",
    ]
    assert [tool["name"] for tool in request["tools"] if "cache_control" in tool] == ["write"]
    assert request["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert "Be careful." in request["system"][0]["text"]
    assert request["stream"] is True
    assert request["max_tokens"] == 1_000
    assert request["output_config"] == {"effort": "low"}
    assert "tool_choice" not in request  # which some models refuse
    assert api.keys == ["sk-test"]


async def test_results_and_corrections_go_to_the_tools_they_belong_to(api: MessagesApi) -> None:
    request = [use("read_file", {}, "t1"), use("plan_later", {"subtools": ["read_file", "write"]}, "t2")]
    api.answers += [Says(request), Says(request), Says([text("It is a."), DONE])]
    async with talking(api) as talk:
        reply = await talk.begin(1_000)
        assert reply.turn.later == ["read.file", "write"]
        await talk.resume(Correction(["'read.file', path: is missing."]), 1_000)
        reply = await talk.resume(Results(["== data =="]), 1_000)
    assert reply.turn == ModelTurn(done=True, message="It is a.")
    last = api.requests[-1]["messages"]
    assert [message["role"] for message in last] == ["user", "assistant", "user", "assistant", "user"]
    assert [(block["tool_use_id"], block["is_error"]) for block in last[2]["content"]] == [
        ("t1", True),
        ("t2", True),
    ]
    assert "path: is missing" in last[2]["content"][0]["content"]
    assert [(block["tool_use_id"], block["content"]) for block in last[4]["content"]] == [
        ("t1", "== data =="),
        ("t2", "noted"),
    ]


@each_case(
    ("answer", "turn"),
    [
        (Says([use("plan_cannot", {"why": "no mail"})]), ModelTurn(cannot="no mail")),
        (Says([use("plan_unclear", {})]), ModelTurn(unclear="no question given.")),
        (Says([text("You could …")], "end_turn"), ModelTurn(message="You could …")),
        (Says([], "refusal"), ModelTurn(cannot="the model declines to plan it.")),
        (
            Says([text("wri")], "max_tokens"),
            ModelTurn(message="wri", odd="The answer was cut off: it is too long."),
        ),
        (Says([use("no_such", {})]), ModelTurn(steps=[PlanStep("no_such", {})])),
        (
            Says([use("write", ["x"])]),
            ModelTurn(steps=[PlanStep("write", {})], odd="The arguments of 'write' are not an object."),
        ),
        (Says([use("plan_later", {"subtools": "write"})]), ModelTurn(later=[])),
    ],
    api=messages_api,
)
async def test_any_reply_of_a_model_becomes_a_turn_to_be_judged(
    api: MessagesApi, answer: Says, turn: ModelTurn
) -> None:
    api.answers.append(answer)
    assert await first(api) == turn


@each_case("passing", [Fails(429, "rate_limit_error"), Fails(529, "overloaded_error")], api=messages_api)
async def test_passing_failures_are_tried_again(api: MessagesApi, passing: Fails) -> None:
    api.answers += [passing, passing, Says([use("write", {}), DONE])]
    assert (await first(api)).done
    assert len(api.requests) == 3


@each_case(
    ("answer", "expected", "tries"),
    [
        (
            Fails(401, "authentication_error", "invalid key"),
            "ask_model_rejected: The model's service rejects the key (401). invalid key",
            1,
        ),
        (
            Fails(404, "not_found_error", "model: x"),
            "ask_model_rejected: The model's service rejects the request (404). model: x",
            1,
        ),
        (
            Fails(429, "rate_limit_error", "slow down"),
            "ask_model_failed: The model's service limits the request rate (429). slow down",
            4,
        ),
        (
            Fails(529, "overloaded_error"),
            "ask_model_failed: The model's service is overloaded (529).",
            4,
        ),
        (Fails(500, "api_error", "oh"), "ask_model_failed: The model's service failed (500). oh", 4),
    ],
    api=messages_api,
)
async def test_an_error_of_the_service_is_reported_in_words(
    api: MessagesApi, answer: Fails, expected: str, tries: int
) -> None:
    api.otherwise = lambda request: answer
    assert await refusal(api) == expected
    assert len(api.requests) == tries


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


@each_case(
    "body",
    [
        b"event: message_start\ndata: {no json}\n\n",
        b"",
        b'event: message_start\ndata: {"type": "message_start", "message": 7}\n\n',
        b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 5, "delta": {}}\n\n',
        f"event: error\ndata: {json.dumps(OVERLOADED)}\n\n".encode(),
    ],
    api=messages_api,
)
async def test_an_answer_that_breaks_off_or_makes_no_sense_is_a_failure_of_the_service(
    api: MessagesApi, body: bytes
) -> None:
    api.otherwise = lambda request: Breaks(body)
    assert (await refusal(api)).startswith("ask_model_failed: ")


async def test_a_service_that_is_not_there_is_reported_with_what_to_check(api: MessagesApi) -> None:
    model = AnthropicModel(AskSettings(base_url="http://127.0.0.1:9"), "sk-test")
    client = (await model.client()).with_options(max_retries=0)
    model._client = client  # the pauses between tries are of no interest here
    with pytest.raises(SwitchboardError) as problem:
        await model.start(InitialPrompt("files", "", OFFERED, "x")).begin(100)
    await model.close()
    assert problem.value.failure.message == "The model's service cannot be reached."
    assert "ask.baseUrl" in str(problem.value.failure.hint)


def test_names_that_the_api_does_not_take_get_others_which_never_clash() -> None:
    names = ["a.b", "a/b", "a_b", "plan_done", "ü", "", "x" * 200, "x" * 201]
    written = api_names(names)
    assert list(written) == names
    assert len(set(written.values())) == len(names)
    assert all(1 <= len(name) <= 64 and name.replace("_", "").isascii() for name in written.values())
    assert written["a.b"] == "a_b"
    assert written["plan_done"] != "plan_done"


def test_a_schema_is_an_object_without_alternatives_at_the_top() -> None:
    assert write_schema({"anyOf": [{"required": ["a"]}], "properties": {"a": {}}}) == {
        "properties": {"a": {}},
        "type": "object",
    }
    assert write_schema(True) == {"type": "object", "properties": {}}
