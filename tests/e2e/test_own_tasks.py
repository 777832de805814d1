"""Tasks that Switchboard runs, over HTTP with real children: made by the official SDK's client, left, fetched again."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.host import Json
from tests.e2e.stress import until
from tests.e2e.test_clients_apart import ANN, BOB, SETTINGS, ask, recorded
from tests.e2e.web import Web, serving
from tests.e2e.workspaces import add_child, configure
from tests.patience import PATIENCE_S

BOSS = "b" * 40
HOLDING = Path(__file__).parent.parent / "children" / "holding.py"


class TaskHandle(types.Result):
    """A task in place of a result."""

    result_type: Literal["task"] = "task"
    task_id: str


class TaskState(types.Result):
    """A task that is polled."""

    status: str
    result: dict[str, Any] | None = None


class TaskRequest(types.Request[dict[str, Any], str]):
    name_param: ClassVar[str | None] = "taskId"
    method: str = "tasks/get"


class Tasks(ClientExtension):
    """Knows tasks, and hands out their ids instead of waiting for them."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskHandle, resolve=self.leave)]

    async def leave(self, handle: TaskHandle, context: ClaimContext) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(text=handle.task_id)])


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, npm_bin: Callable[[str], str]) -> Iterator[Web]:
    """Two children with handshakes behind suites: one with slow calls, one with a tool that only runs as a task."""
    workspace = tmp_path_factory.mktemp("tasks")
    tokens = {**SETTINGS["http"]["tokens"], "boss": {"token": BOSS, "dashboard": "admin"}}
    more = {"http": {"tokens": tokens}, "tasks": {"after": "1s"}, "programs": {"enabled": True}}
    configure(workspace, {**SETTINGS, **more})
    add_child(workspace, "slow", [sys.executable, str(HOLDING), "slow"])
    add_child(workspace, "research", [npm_bin("mcp-server-everything")])
    with serving(workspace, env={"XDG_CACHE_HOME": str(workspace / "cache")}) as running:
        known = {"name": "research_suite", "arguments": {"action": "introspect"}}
        ask(running, ANN, "tools/call", known)
        yield running


HOLD_BY_PROGRAM = """
import slow
first = await slow.hold(message="p", until=input)
[first, await slow.hold(message="q", until=input)]
"""


def program(code: str, path: Path) -> Json:
    """The run of a program whose calls are answered when there is a file of this name."""
    return {"action": "call", "subtool": "run", "args": {"code": code, "input": str(path)}}


def hold(path: Path, message: str = "x") -> Json:
    """A call that is answered when there is a file of this name."""
    return {"action": "call", "subtool": "hold", "args": {"message": message, "until": str(path)}}


def modern_client(web: Web, http: httpx2.AsyncClient) -> Client:
    return Client(streamable_http_client(f"{web.url}/mcp", http_client=http), extensions=[Tasks()])


async def left_task(web: Web, http: httpx2.AsyncClient, suite: str, arguments: Json) -> str:
    """The task that a client got for a call, and left."""
    async with modern_client(web, http) as client:
        (block,) = (await client.call_tool(suite, arguments)).content
    assert isinstance(block, types.TextContent)
    return block.text


async def text_of_task(web: Web, http: httpx2.AsyncClient, task: str) -> str:
    """The text of the result of a task, which another client waits for."""
    async with modern_client(web, http) as again, asyncio.timeout(PATIENCE_S):
        request = TaskRequest(params={"taskId": task})
        while (found := await again.session.send_request(request, TaskState)).status == "working":
            continue
    assert found.status == "completed"
    assert found.result is not None
    text: str = found.result["content"][0]["text"]
    return text


async def test_a_client_makes_a_task_of_a_slow_call_leaves_and_fetches_it_later(
    web: Web, tmp_path: Path
) -> None:
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {ANN}"}) as http:
        task = await left_task(web, http, "slow_suite", hold(tmp_path / "go"))
        (tmp_path / "go").touch()
        assert await text_of_task(web, http, task) == "slow:x"
    wanted = {("call", "ann", "hold", "ok"), ("tasks/get", "ann", "hold", "ok")}
    until(lambda: wanted <= recorded(web), "the task in the audit log")


async def test_a_program_that_waits_is_a_task_and_is_approved_on_the_dashboard(
    web: Web, tmp_path: Path
) -> None:
    as_boss = {"Authorization": f"Bearer {BOSS}"}
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {ANN}"}) as http:
        task = await left_task(web, http, "program_suite", program(code := HOLD_BY_PROGRAM, tmp_path / "go"))
        async with asyncio.timeout(PATIENCE_S):
            while not (
                questions := (await http.get(f"{web.url}/api/approvals", headers=as_boss)).json()["approvals"]
            ):
                continue
        (question,) = questions
        assert question["code"] == code
        assert question["arguments"].startswith("slow.hold (write)")
        allow = f"{web.url}/api/approvals/{question['id']}/allow"
        assert (await http.post(allow, json={}, headers=as_boss)).json()["allow"] is True
        (tmp_path / "go").touch()
        answer = json.loads(await text_of_task(web, http, task))
    assert answer["value"] == ["slow:p", "slow:q"]
    assert [call["subtool"] for call in answer["calls"]] == ["slow.hold"]


async def test_a_program_whose_call_takes_long_is_a_task_that_goes_on_without_its_client(
    web: Web, tmp_path: Path
) -> None:
    reads = HOLD_BY_PROGRAM.replace("hold", "look")
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {ANN}"}) as http:
        task = await left_task(web, http, "program_suite", program(reads, tmp_path / "go"))
        assert ask(web, BOB, "tasks/get", {"taskId": task})["error"]["code"] == -32602
        (tmp_path / "go").touch()
        assert json.loads(await text_of_task(web, http, task))["value"] == ["slow:p", "slow:q"]
        cancelled = await left_task(web, http, "program_suite", program(reads, tmp_path / "never"))
    ask(web, ANN, "tasks/cancel", {"taskId": cancelled})
    assert ask(web, ANN, "tasks/get", {"taskId": cancelled})["result"]["status"] == "cancelled"
    until(lambda: ("call", "ann", "look", "cancelled") in recorded(web), "the end of the program's call")


def test_two_hundred_tasks_of_two_principals_are_each_visible_to_one(web: Web, tmp_path: Path) -> None:
    legacy = {token: web.initialize(token=token) for token in (ANN, BOB)}
    tasks: list[tuple[str, str]] = []
    for number in range(200):
        token = (ANN, BOB)[number % 2]
        call = {"name": "research_suite", "arguments": {"action": "introspect"}, "task": {}}
        created = legacy[token].result("tools/call", call, id=number + 10)
        tasks.append((token, created["task"]["taskId"]))
    for token, other in ((ANN, BOB), (BOB, ANN)):
        own = {task for owner, task in tasks if owner == token}
        listed = {one["taskId"] for one in legacy[token].result("tasks/list", {}, id=500)["tasks"]}
        assert own <= listed
        assert not listed & {task for owner, task in tasks if owner == other}
    for number, (token, task) in enumerate(tasks[:20]):
        stranger = legacy[BOB if token == ANN else ANN]
        refused = json.loads(stranger.ask("tasks/get", {"taskId": task}, id=600 + number).body)
        assert refused["error"]["code"] == -32602
        assert "content" in legacy[token].result("tasks/result", {"taskId": task}, id=700 + number)


def test_a_tool_that_runs_only_as_a_task_works_in_a_suite_for_both_protocol_versions(web: Web) -> None:
    call = {"action": "call", "subtool": "simulate-research-query", "args": {"topic": "honey"}}
    created = ask(web, ANN, "tools/call", {"name": "research_suite", "arguments": call})["result"]
    assert created["resultType"] == "task"
    legacy = web.initialize(token=BOB, tasks={})
    made = legacy.result("tools/call", {"name": "research_suite", "arguments": call, "task": {"ttl": 60_000}})
    assert made["task"]["ttl"] == 60_000
    result = legacy.result("tasks/result", {"taskId": made["task"]["taskId"]}, id=2)
    assert "honey" in str(result["content"])

    def done() -> Json:
        found: Json = ask(web, ANN, "tasks/get", {"taskId": created["taskId"]})["result"]
        return found if found["status"] == "completed" else {}

    assert "honey" in str(until(done, "the end of the task")["result"])
