"""Hosts that can do little, and a person at a terminal: what is asked, refused, passed through, cancelled."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.cli.commands import main
from tests.e2e.asking import NO_KEYS, Planner, step
from tests.e2e.host import SWITCHBOARD, Host, switchboard
from tests.e2e.messages_api import MessagesApi, messages_api
from tests.e2e.web import serving
from tests.e2e.workspaces import MOCK_CHILD, add_child, configure, scripted

KEY = {"ANTHROPIC_API_KEY": "sk-ant-test-0123456789abcdef"}
ECHO = {"steps": [step("echo", message="hello")], "done": True}
DROP = {"steps": [step("drop", message="7")], "done": True}
# Its tools say nothing of themselves, which counts as destructive.
STORE = scripted("class Store(Child):\n    tools = ('drop',)\nStore().serve()")
Json = dict[str, Any]


@pytest.fixture
def api() -> Iterator[MessagesApi]:
    with messages_api() as service:
        yield service


@pytest.fixture
def planner(api: MessagesApi, workspace: Path) -> Planner:
    """Who plans in this workspace."""
    add_child(workspace, "mock", MOCK_CHILD)
    add_child(workspace, "store", STORE)
    configure(workspace, {"ask": {"baseUrl": api.url}})
    planner = Planner()
    planner.over_api(api)
    return planner


def wrap(workspace: Path, child: str) -> None:
    assert main(["wrap", child, "--workspace", str(workspace)]) == 0


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"\n", 1)])
def test_a_person_at_a_terminal_is_asked(workspace: Path, planner: Planner, answer: bytes, code: int) -> None:
    planner.turns.append(ECHO)
    ours, theirs = pty.openpty()
    command = [*SWITCHBOARD, "ask", "--suite", "mock", "say hello"]
    env = {**os.environ, **NO_KEYS, **KEY, "TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen(
        command, cwd=workspace, env=env, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        while b"Run it? [y/N]" not in shown:
            shown += os.read(ours, 65536)
        os.write(ours, answer)
        assert process.stdout is not None
        out = process.stdout.read()
        assert process.wait(timeout=50) == code
    os.close(ours)
    assert b'mock  echo {"message":"hello"}' in shown
    assert out == (b"hello\n" if code == 0 else b"")


def connect(workspace: Path, *, capabilities: Json | None = None, env: Json | None = None) -> Host:
    host = switchboard(workspace, env={**os.environ, **NO_KEYS, **(env or {})})
    info = {"name": "test-host", "version": "1"}
    told = {"protocolVersion": "2025-11-25", "capabilities": capabilities or {}, "clientInfo": info}
    host.result("initialize", told)
    host.notify("notifications/initialized")
    return host


def test_a_host_that_cannot_ask_its_user_gets_a_refusal_with_the_plan_unless_the_settings_trust_it(
    workspace: Path, planner: Planner, api: MessagesApi
) -> None:
    wrap(workspace, "store")
    planner.turns += [DROP, DROP]
    with connect(workspace, env=KEY) as host:
        asked = {"action": "call", "subtool": "natural_language", "args": {"query": "drop 7"}}
        failure = host.failure("store_suite", **asked)
        assert host.subtools("store_suite") == ["natural_language"]
    assert failure["code"] == "ask_unconfirmed"
    assert '1. drop {"message":"7"} (not run)' in failure["message"]
    assert "ask.trust" in failure["hint"]
    configure(workspace, {"ask": {"baseUrl": api.url, "trust": {"store": ["dr*"]}}})
    with connect(workspace, env=KEY) as host:
        assert host.use("store_suite", **asked)["content"] == [{"type": "text", "text": "7"}]


@pytest.mark.parametrize("capabilities", [{}, {"sampling": {}}])
def test_a_host_that_lends_no_model_or_only_says_so_hears_what_to_set(
    workspace: Path, planner: Planner, capabilities: Json
) -> None:
    wrap(workspace, "mock")
    with connect(workspace, capabilities=capabilities) as host:  # which answers: method not found
        failure = host.failure("mock_suite", action="call", subtool="natural_language", args={"query": "x"})
    assert failure["code"] == "ask_no_model"
    assert "ANTHROPIC_API_KEY" in failure["hint"]


def test_with_passthrough_the_subtools_stay_as_they_were(
    workspace: Path, planner: Planner, api: MessagesApi
) -> None:
    suites = {"mock": {"expose": {"deny": ["crash"]}}}
    configure(workspace, {"ask": {"baseUrl": api.url, "passthrough": True}, "suites": suites})
    with connect(workspace) as host:
        before = host.subtools("mock_suite")
        straight = host.call("mock_suite", "echo", message="hi")
    wrap(workspace, "mock")
    planner.turns.append(ECHO)
    with connect(workspace, env=KEY) as host:
        assert host.subtools("mock_suite") == ["natural_language", *before]
        assert host.call("mock_suite", "echo", message="hi") == straight
        assert host.call("mock_suite", "natural_language", query="x")["content"][0]["text"] == "hello"


def test_a_request_that_is_cancelled_is_cancelled_all_the_way(workspace: Path, planner: Planner) -> None:
    wrap(workspace, "mock")
    planner.turns.append({"steps": [step("slow", seconds=60, steps=600)], "done": True})
    with connect(workspace, env=KEY) as host:
        arguments = {"action": "call", "subtool": "natural_language", "args": {"query": "be slow"}}
        params = {"name": "mock_suite", "arguments": arguments, "_meta": {"progressToken": "p"}}
        asked = host.ask("tools/call", params)
        while "calling slow" not in host.notification("notifications/progress").get("message", ""):
            pass
        host.notify("notifications/cancelled", {"requestId": asked})
        planner.turns.append(ECHO)
        result = host.call("mock_suite", "natural_language", query="say hello")
        assert result["content"][0]["text"] == "hello"


def test_what_requests_cost_is_in_the_metrics(workspace: Path, planner: Planner) -> None:
    wrap(workspace, "mock")
    planner.turns.append(ECHO)
    with serving(workspace, env={**os.environ, **NO_KEYS, **KEY}) as web:
        host = web.initialize()
        arguments = {"action": "call", "subtool": "natural_language", "args": {"query": "say hello"}}
        result = host.result("tools/call", {"name": "mock_suite", "arguments": arguments})
        assert result["content"] == [{"type": "text", "text": "hello"}]
        metrics = web.ask("GET", "/metrics").body.decode().splitlines()
    assert 'switchboard_ask_requests_total{child="mock",outcome="ok"} 1' in metrics
    assert 'switchboard_ask_tokens_total{child="mock",kind="input"} 100' in metrics
