"""A2A over HTTP, with the client of the official SDK: cards, tasks and their states, streams, errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import A2AError, TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.conversations import progress
from switchboard_mcp.mail.store.store import MessageStore
from tests.e2e.web import Web, serving
from tests.e2e.workspaces import configure
from tests.patience import PATIENCE_S

TOKENS = {"partner": "0123456789abcdef-of-partner", "rival": "0123456789abcdef-of-rival"}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    workspace = tmp_path_factory.mktemp("a2a")
    configure(workspace, {"mail": {"enabled": True, "a2a": True}, "http": {"tokens": TOKENS}})
    with serving(workspace) as web:
        yield web


@asynccontextmanager
async def agent_and_client(
    web: Web, *, holder: str = "partner", streaming: bool = True
) -> AsyncIterator[tuple[MessageStore, Client]]:
    """The mailbox of `coder`, and an A2A client that talks to it."""
    async with (
        asyncio.timeout(PATIENCE_S),
        await MessageStore.open(str(web.workspace), watch=False) as store,
        httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKENS[holder]}"}, timeout=PATIENCE_S) as http,
    ):
        await store.register("coder")
        await store.update(agent_registry.register("coder", purpose="codes"))
        card = await A2ACardResolver(http, f"{web.url}/a2a/coder").get_agent_card()
        assert (card.name, card.description, card.capabilities.streaming) == ("coder", "codes", True)
        yield store, ClientFactory(ClientConfig(httpx_client=http, streaming=streaming)).create(card)


def message(id: str, text: str, **more: Any) -> SendMessageRequest:
    parts = [Part(text=text), *more.pop("parts", [])]
    return SendMessageRequest(
        message=Message(message_id=id, role=Role.ROLE_USER, parts=parts, **more),
        configuration=SendMessageConfiguration(return_immediately=True),
    )


async def test_a_stream_follows_a_task_from_submission_over_a_question_to_its_result(web: Web) -> None:
    async with agent_and_client(web) as (store, client):
        request = message("m1", "Write it", parts=[Part(raw=b"\0\xff", filename="a.bin")])
        events = client.send_message(request)
        task = (await anext(events)).task
        assert task.status.state == TaskState.TASK_STATE_SUBMITTED
        (claimed,) = await store.claim("coder")
        assert (claimed.message.id, claimed.message.sender, claimed.verified) == (task.id, "partner", True)
        assert (claimed.message.payload, await store.attachment(claimed.message)) == ("Write it", b"\0\xff")
        update = (await anext(events)).status_update
        assert (update.task_id, update.status.state) == (task.id, TaskState.TASK_STATE_WORKING)
        await progress.report(
            store, "coder", task.id, fence=claimed.fence, state="input-required", note="Which one?"
        )
        asked = (await anext(events)).status_update.status
        assert asked.state == TaskState.TASK_STATE_INPUT_REQUIRED
        assert asked.message.parts[0].text == "Which one?"
        with pytest.raises(StopAsyncIteration):
            await anext(events)

        events = client.send_message(message("m2", "The second", task_id=task.id))
        assert (await anext(events)).task.status.state == TaskState.TASK_STATE_WORKING
        (answer,) = await store.peek("coder")
        assert (answer.message.payload, answer.message.thread) == ("The second", task.context_id)
        await store.ack("coder", task.id, fence=claimed.fence, summary="Good.", result="def f(): …")
        last = [event async for event in events]
        assert last[-2].artifact_update.artifact.parts[0].text == "def f(): …"
        assert last[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
        done = await client.get_task(GetTaskRequest(id=task.id))
        assert done.artifacts[0].parts[0].text == "def f(): …"
        assert [each.parts[0].text for each in done.history] == [
            "Write it", "Which one?", "The second", "def f(): …",
        ]  # fmt: skip
        assert await store.peek("partner") == []
        with pytest.raises(UnsupportedOperationError):
            await anext(client.send_message(message("m3", "More", task_id=task.id)))
        with pytest.raises(UnsupportedOperationError):
            await anext(client.subscribe(SubscribeToTaskRequest(id=task.id)))


async def test_a_task_is_canceled_until_it_is_claimed_and_a_repeated_message_is_one_task(web: Web) -> None:
    async with agent_and_client(web, streaming=False) as (store, client):
        tasks = [(await anext(client.send_message(message("twice", "Do it")))).task for _ in range(2)]
        assert tasks[0].id == tasks[1].id
        canceled = await client.cancel_task(CancelTaskRequest(id=tasks[0].id))
        assert canceled.status.state == TaskState.TASK_STATE_CANCELED
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=tasks[0].id))
        kept = (
            await anext(client.send_message(message("kept", "Do it", context_id=tasks[0].context_id)))
        ).task
        assert kept.context_id == tasks[0].context_id
        (claimed,) = await store.claim("coder", ids=[kept.id])
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=kept.id))
        await store.ack("coder", kept.id, fence=claimed.fence, outcome="rejected", summary="No.")
        listed = await client.list_tasks(ListTasksRequest(context_id=kept.context_id))
        assert {each.id: each.status.state for each in listed.tasks} == {
            tasks[0].id: TaskState.TASK_STATE_CANCELED,
            kept.id: TaskState.TASK_STATE_REJECTED,
        }


async def test_nobody_sees_or_cancels_the_tasks_of_another_client(web: Web) -> None:
    async with agent_and_client(web, streaming=False) as (_, client):
        task = (await anext(client.send_message(message("private", "Do it")))).task
    async with agent_and_client(web, holder="rival", streaming=False) as (_, rival):
        with pytest.raises(TaskNotFoundError):
            await rival.get_task(GetTaskRequest(id=task.id))
        with pytest.raises(TaskNotFoundError):
            await rival.cancel_task(CancelTaskRequest(id=task.id))
        for more in ({"task_id": task.id}, {"context_id": task.context_id}):
            with pytest.raises(A2AError):
                await anext(rival.send_message(message("x", "Hello", **more)))
        assert (await rival.list_tasks(ListTasksRequest())).tasks == []


BODIES = [
    (b"{", -32700),
    (b"[]", -32700),
    (b'{"method":"Sing","id":1}', -32601),
    (b'{"method":"SendMessage","id":1}', -32602),
    (b'{"method":"SendMessage","id":1,"params":{"message":{"messageId":"a","parts":[{}]}}}', -32602),
    (b'{"method":"SendMessage","id":1,"params":{"message":{"messageId":"a","parts":[{"raw":"%"}]}}}', -32602),
    (b'{"method":"GetTask","id":1,"params":{"id":"../../etc/passwd"}}', -32001),
    (b'{"method":"CreateTaskPushNotificationConfig","id":1}', -32003),
    (b'{"method":"GetExtendedAgentCard","id":1}', -32007),
    (b'{"method":"SendMessage","id":1,"params":' + b"[" * 5_000 + b"]" * 5_000 + b"}", -32700),
]


def test_cards_need_the_token_and_bad_requests_are_answered_with_the_codes_of_the_specification(
    web: Web,
) -> None:
    bearer = {"Authorization": f"Bearer {TOKENS['partner']}"}
    card = "/.well-known/agent-card.json"
    with httpx.Client(base_url=web.url, timeout=PATIENCE_S) as http:
        assert http.get(card).status_code == http.post("/a2a/coder", content=b"{}").status_code == 401
        found = http.get(card, headers=bearer).json()
        assert (found["name"], found["supportedInterfaces"][0]["url"]) == ("switchboard", f"{web.url}/a2a")
        assert http.get("/a2a/nobody" + card, headers=bearer).status_code == 404
        assert http.get("/a2a/coder", headers=bearer).status_code == 405
        for body, code in BODIES:
            answer = http.post("/a2a/coder", content=body, headers=bearer)
            assert answer.json()["error"]["code"] == code, body[:80]
        old = http.post("/a2a/coder", content=BODIES[2][0], headers={**bearer, "A2A-Version": "0.3"})
        assert old.json()["error"]["code"] == -32009


def test_there_is_no_a2a_unless_it_is_enabled(tmp_path: Path) -> None:
    configure(tmp_path, {"mail": {"enabled": True}, "http": {"tokens": TOKENS}})
    with serving(tmp_path) as web, httpx.Client(base_url=web.url, timeout=PATIENCE_S) as http:
        for path in ("/a2a", "/a2a/coder", "/.well-known/agent-card.json"):
            answer = http.get(path, headers={"Authorization": f"Bearer {TOKENS['partner']}"})
            assert answer.status_code == 404


def ask(
    web: Web, token: str, method: str, params: dict[str, Any], path: str = "/a2a/coder"
) -> dict[str, Any]:
    """The decoded answer to a JSON-RPC request."""
    with httpx.Client(base_url=web.url, timeout=PATIENCE_S) as http:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer: dict[str, Any] = http.post(
            path, json=body, headers={"Authorization": f"Bearer {token}"}
        ).json()
        return answer


def sending(id: str, text: str, **metadata: str) -> dict[str, Any]:
    return {
        "message": {"messageId": id, "parts": [{"text": text}], "metadata": metadata},
        "configuration": {"returnImmediately": True},
    }


async def register(web: Web, *agents: str) -> None:
    async with await MessageStore.open(str(web.workspace), watch=False) as store:
        for agent in agents:
            await store.register(agent)
            await store.update(agent_registry.register(agent))


def test_tokens_whose_names_are_no_agents_do_not_share_one(tmp_path: Path) -> None:
    tokens = {"acme.east": "0123456789abcdef-of-east", "acme.west": "0123456789abcdef-of-west"}
    configure(tmp_path, {"mail": {"enabled": True, "a2a": True}, "http": {"tokens": tokens}})
    with serving(tmp_path) as web:
        asyncio.run(register(web, "coder"))
        for name, token in tokens.items():
            for method, params in (("SendMessage", sending("m1", "Private")), ("ListTasks", {})):
                assert (
                    f"'{name}', is not a valid name of an agent"
                    in ask(web, token, method, params)["error"]["message"]
                )
        own = ask(web, web.token, "SendMessage", sending("m1", "Mine"))["result"]["task"]
        assert [one["id"] for one in ask(web, web.token, "ListTasks", {})["result"]["tasks"]] == [own["id"]]


def test_what_a_token_may_not_do_by_mail_it_may_not_do_over_a2a(tmp_path: Path) -> None:
    denied_text = {"payload": {"glob": "*forbidden*"}}
    configure(
        tmp_path,
        {
            "mail": {"enabled": True, "a2a": True},
            "audit": {"enabled": True},
            "http": {
                "tokens": {
                    "partner": {"token": TOKENS["partner"]},
                    "reader": {"token": TOKENS["rival"], "profile": "reading"},
                }
            },
            "profiles": {"reading": {"expose": {"mail": {"deny": ["send_message", "list_agents"]}}}},
            "suites": {"mail": {"expose": {"deny": ["recall_message"]}}},
            "gate": [{"deny": True, "suite": "mail", "subtool": "send_message", "args": denied_text}],
        },
    )
    with serving(tmp_path) as web:
        asyncio.run(register(web, "coder", "tester"))
        partner, reader = TOKENS["partner"], TOKENS["rival"]
        task = ask(web, partner, "SendMessage", sending("m1", "Do it"))["result"]["task"]
        refusals = [
            ask(web, partner, "SendMessage", sending("m2", "The forbidden thing")),
            ask(web, partner, "CancelTask", {"id": task["id"]}),
            ask(web, reader, "SendMessage", sending("m3", "Do it")),
        ]
        assert [refusal.get("error", {}).get("code") for refusal in refusals] == [-32602] * 3
        assert "A rule of this workspace denies" in refusals[0]["error"]["message"]
        assert ask(web, partner, "GetTask", {"id": task["id"]})["result"]["id"] == task["id"]
        assert ask(web, reader, "ListTasks", {})["result"]["tasks"] == []
        with httpx.Client(base_url=web.url, timeout=PATIENCE_S) as http:
            card = "/.well-known/agent-card.json"
            statuses = [
                http.get(card, headers={"Authorization": f"Bearer {token}"}).status_code
                for token in (partner, reader)
            ]
            assert statuses == [200, 403]
    lines = [
        json.loads(line)
        for path in sorted((tmp_path / ".switchboard" / "audit").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    recorded = {(line["who"], line["subtool"], line["outcome"]) for line in lines if "subtool" in line}
    assert {
        ("partner", "send_message", "ok"),
        ("partner", "send_message", "gate_denied"),
        ("partner", "recall_message", "subtool_denied"),
        ("reader", "send_message", "subtool_unknown"),
    } <= recorded


def test_the_metadata_of_a_message_names_its_recipient(web: Web) -> None:
    asyncio.run(register(web, "coder", "tester"))
    sent = ask(web, TOKENS["partner"], "SendMessage", sending("named", "Test it", recipient="tester"), "/a2a")
    assert sent["result"]["task"]["metadata"] == {"recipient": "tester"}
