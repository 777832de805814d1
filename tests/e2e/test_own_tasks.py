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
    configure(workspace, {**SETTINGS, "tasks": {"after": "1s"}})
    add_child(workspace, "slow", [sys.executable, str(HOLDING), "slow"])
    add_child(workspace, "research", [npm_bin("mcp-server-everything")])
    with serving(workspace, env={"XDG_CACHE_HOME": str(workspace / "cache")}) as running:
        known = {"name": "research_suite", "arguments": {"action": "introspect"}}
        ask(running, ANN, "tools/call", known)
        yield running


def hold(path: Path, message: str = "x") -> Json:
    """A call that is answered when there is a file of this name."""
    return {"action": "call", "subtool": "hold", "args": {"message": message, "until": str(path)}}


def modern_client(web: Web, http: httpx2.AsyncClient) -> Client:
    return Client(streamable_http_client(f"{web.url}/mcp", http_client=http), extensions=[Tasks()])


async def test_a_client_makes_a_task_of_a_slow_call_leaves_and_fetches_it_later(
    web: Web, tmp_path: Path
) -> None:
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {ANN}"}) as http:
        async with modern_client(web, http) as client:
            made = await client.call_tool("slow_suite", hold(tmp_path / "go"))
            (block,) = made.content
            assert isinstance(block, types.TextContent)
        (tmp_path / "go").touch()
        async with modern_client(web, http) as again:
            request = TaskRequest(params={"taskId": block.text})
            async with asyncio.timeout(PATIENCE_S):
                while (found := await again.session.send_request(request, TaskState)).status == "working":
                    continue
            assert found.status == "completed"
            assert found.result is not None
            assert found.result["content"][0]["text"] == "slow:x"
    wanted = {("call", "ann", "hold", "ok"), ("tasks/get", "ann", "hold", "ok")}
    until(lambda: wanted <= recorded(web), "the task in the audit log")


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
