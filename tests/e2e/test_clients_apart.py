"""Several clients of one Switchboard over HTTP, with real children: what one has received is nobody else's.

The child without handshakes is the fixture on the official SDK, whose tools become tasks; the one with handshakes is a
published server with a tool that only runs as a task.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases import each_case
from tests.e2e.host import Json
from tests.e2e.stress import survivors, tree, until
from tests.e2e.web import Web, headers_of, modern, serving
from tests.e2e.workspaces import add_child, configure

FIXTURE = Path(__file__).parent.parent / "conformance" / "server.py"
ANN, BOB, EVE = "ann-" + "a" * 28, "bob-" + "b" * 28, "eve-" + "e" * 28
TASKS: Json = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
SETTINGS: Json = {
    "http": {"tokens": {"ann": ANN, "bob": BOB, "eve": {"token": EVE, "profile": "blind"}}},
    "profiles": {
        "blind": {
            "suites": ["*"],
            "expose": {name: {"deny": ["slow_compute", "simulate-*"]} for name in ("kid", "wrapped")},
        }
    },
    "audit": {"enabled": True},
}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """Two children without handshakes, one of them direct, and three clients."""
    workspace = tmp_path_factory.mktemp("apart")
    configure(
        workspace, {**SETTINGS, "suites": {"kid": {"exposure": "direct"}, "wrapped": {"exposure": "suite"}}}
    )
    for name in ("kid", "wrapped"):
        add_child(workspace, name, [sys.executable, str(FIXTURE), "--stdio", "--era", "modern"])
    with serving(workspace, env={"XDG_CACHE_HOME": str(workspace / "cache")}) as running:
        yield running


@pytest.fixture(scope="module")
def legacy_web(tmp_path_factory: pytest.TempPathFactory, npm_bin: Callable[[str], str]) -> Iterator[Web]:
    """One direct child with handshakes, and three clients."""
    workspace = tmp_path_factory.mktemp("apart")
    configure(workspace, {**SETTINGS, "suites": {"kid": {"exposure": "direct"}}})
    add_child(workspace, "kid", [npm_bin("mcp-server-everything")])
    with serving(workspace, env={"XDG_CACHE_HOME": str(workspace / "cache")}) as running:
        yield running


def ask(web: Web, token: str, method: str, params: Json, id: object = 1) -> Any:
    """Send a request without a session, and return the whole answer."""
    message = modern(method, params, id=id, capabilities={**TASKS, "elicitation": {"form": {}}})
    name = params.get("taskId")
    headers = headers_of(message, Authorization=f"Bearer {token}", **({"Mcp_Name": name} if name else {}))
    answer = web.ask("POST", "/mcp", message, headers)
    return json.loads(answer.body.decode().removeprefix("event: message\ndata: ").strip())


def start_task(web: Web, token: str, *, through_suite: bool = False) -> str:
    call: Json = {"name": "slow_compute", "arguments": {"seconds": 300}}
    if through_suite:
        arguments = {"action": "call", "subtool": call["name"], "args": call["arguments"]}
        call = {"name": "wrapped_suite", "arguments": arguments}
    result = ask(web, token, "tools/call", call)["result"]
    assert result["resultType"] == "task"
    task: str = result["taskId"]
    return task


@each_case("through_suite", [False, True])
@each_case("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_task_without_a_session_is_its_principals(web: Web, method: str, through_suite: bool) -> None:
    task = start_task(web, ANN, through_suite=through_suite)
    for other in (BOB, EVE, web.token):
        refused = ask(web, other, method, {"taskId": task})["error"]
        assert refused["code"] == -32602
        assert refused == ask(web, other, method, {"taskId": "no-such-task"})["error"]
    assert ask(web, ANN, "tasks/get", {"taskId": task})["result"]["status"] == "working"
    assert "result" in ask(web, ANN, method, {"taskId": task})


def test_after_a_kill_a_task_is_unknown_and_a_new_one_can_be_started(tmp_path: Path) -> None:
    suites = {"wrapped": {"exposure": "suite"}}
    configure(tmp_path, {**SETTINGS, "suites": suites})
    add_child(tmp_path, "wrapped", [sys.executable, str(FIXTURE), "--stdio", "--era", "modern"])
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    with serving(tmp_path, env=env) as killed:
        task = start_task(killed, ANN, through_suite=True)
        assert ask(killed, ANN, "tasks/get", {"taskId": task})["result"]["taskId"] == task
        children = tree(killed.process.pid)
        killed.process.kill()
        assert survivors(children) == []
    with serving(tmp_path, env=env) as web:
        assert ask(web, ANN, "tasks/get", {"taskId": task})["error"]["code"] == -32602
        assert start_task(web, ANN, through_suite=True) != task


def test_a_task_is_in_the_audit_record_with_its_tool(web: Web) -> None:
    task = start_task(web, ANN)
    ask(web, ANN, "tasks/cancel", {"taskId": task})
    ask(web, BOB, "tasks/cancel", {"taskId": task})
    wanted = {
        ("tasks/cancel", "ann", "slow_compute", "ok"),
        ("decision", "bob", "tasks/cancel", "task_unknown"),
    }
    until(lambda: wanted <= recorded(web), "the calls in the audit log")  # a process of its own writes it


def recorded(web: Web) -> set[tuple[str, ...]]:
    """What the audit log says of each call."""
    names = ("kind", "who", "subtool", "outcome")
    return {
        tuple(json.loads(line).get(name, "") for name in names)
        for file in (web.workspace / ".switchboard" / "audit").glob("*.jsonl")
        for line in file.read_text().splitlines()
    }


def test_a_request_state_of_the_child_is_its_principals(web: Web) -> None:
    call: Json = {"name": "test_input_required_result_request_state", "arguments": {}}
    wanted = ask(web, ANN, "tools/call", call)["result"]
    assert wanted["resultType"] == "input_required"
    answers = {key: {"action": "accept", "content": {"confirm": True}} for key in wanted["inputRequests"]}
    again = {**call, "requestState": wanted["requestState"], "inputResponses": answers}
    assert ask(web, BOB, "tools/call", again)["error"]["code"] == -32602
    assert "result" in ask(web, ANN, "tools/call", again)


def start_research(web: Web, token: str) -> tuple[Any, str]:
    session = web.initialize(token=token, tasks={"list": {}, "cancel": {}})
    created = session.result(
        "tools/call",
        {"name": "simulate-research-query", "arguments": {"topic": "honey"}, "task": {"ttl": 60000}},
    )
    task: str = created["task"]["taskId"]
    return session, task


@each_case("method", ["tasks/get", "tasks/result", "tasks/cancel"])
def test_a_task_of_a_session_is_that_sessions(legacy_web: Web, method: str) -> None:
    own, task = start_research(legacy_web, ANN)
    for token in (BOB, EVE, ANN):  # another session of the same principal as well
        other = legacy_web.initialize(token=token)
        assert json.loads(other.ask(method, {"taskId": task}).body)["error"]["code"] == -32602
        listed = other.result("tasks/list", {}, id=2)
        assert task not in [one["taskId"] for one in listed["tasks"]]
    assert task in [one["taskId"] for one in own.result("tasks/list", {}, id=3)["tasks"]]
    assert own.result("tasks/get", {"taskId": task}, id=4)["taskId"] == task


def test_a_client_that_reconnects_continues_its_task(legacy_web: Web) -> None:
    own, task = start_research(legacy_web, ANN)
    headers = {"Authorization": f"Bearer {ANN}", "Mcp-Session-Id": own.key}
    assert legacy_web.ask("DELETE", "/mcp", None, headers).status in (200, 204)
    bob, again = legacy_web.initialize(token=BOB), legacy_web.initialize(token=ANN)
    assert json.loads(bob.ask("tasks/get", {"taskId": task}).body)["error"]["code"] == -32602
    assert again.result("tasks/get", {"taskId": task})["taskId"] == task
