"""Hosts that can do little, and a person at a terminal: what is asked, refused, passed through, cancelled."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.cli.main import main
from tests.e2e.asking import NO_KEYS, Planner, step
from tests.e2e.host import SWITCHBOARD, Host, switchboard
from tests.e2e.messages_api import MessagesApi, messages_api
from tests.e2e.web import serving
from tests.e2e.workspaces import MOCK_CHILD, add_child, configure, scripted
from tests.patience import PATIENCE_S

KEY = {"ANTHROPIC_API_KEY": "sk-ant-test-0123456789abcdef"}
ECHO = {"steps": [step("echo", message="hello")], "done": True}
DROP = {"steps": [step("drop", message="7")], "done": True}
# Its tools say nothing of themselves, which counts as destructive.
STORE = scripted("class Store(Child):\n    tools = ('drop',)\nStore().serve()")
ASKED = {"action": "call", "subtool": "natural_language", "args": {"query": "do it"}}
Json = dict[str, Any]


@pytest.fixture
def api() -> Iterator[MessagesApi]:
    with messages_api() as service:
        yield service


@pytest.fixture
def planner(api: MessagesApi, workspace: Path) -> Planner:
    """Who plans in this workspace."""
    add_child(workspace, "mock", MOCK_CHILD)
    configure(workspace, {"ask": {"baseUrl": api.url}})
    planner = Planner()
    planner.over_api(api)
    return planner


def wrap(workspace: Path, child: str) -> None:
    assert main(["wrap", child, "--hide", "--workspace", str(workspace)]) == 0


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
        assert process.wait(timeout=PATIENCE_S) == code
    os.close(ours)
    assert b'mock  echo {"message":"hello"}' in shown
    assert out == (b"hello\n" if code == 0 else b"")


def connect(workspace: Path, turn: Json | None = None, **more: Json) -> Host:
    """A host that lends its model, where a turn is given that this says each time it is asked. No library to load, no
    service to ask: that is much quicker.
    """
    host = switchboard(workspace, env={**os.environ, **NO_KEYS})
    if turn is not None:
        say(host, turn)
    info = {"name": "test-host", "version": "1"}
    able = {"sampling": {}, **more} if turn is not None else more
    result = {"protocolVersion": "2025-11-25", "capabilities": able, "clientInfo": info}
    host.result("initialize", result)
    host.notify("notifications/initialized")
    return host


def say(host: Host, turn: Json) -> None:
    """What the model says from now on."""
    content = {"type": "text", "text": json.dumps(turn)}
    host.replies["sampling/createMessage"] = {"role": "assistant", "content": content, "model": "lent"}


@pytest.fixture
def mock(workspace: Path) -> Path:
    """A workspace with the mock child."""
    add_child(workspace, "mock", MOCK_CHILD)
    return workspace


def test_a_host_that_cannot_ask_its_user_gets_a_refusal_with_the_plan_unless_the_settings_trust_it(
    workspace: Path,
) -> None:
    add_child(workspace, "store", STORE)
    wrap(workspace, "store")
    with connect(workspace, DROP) as host:
        failure = host.failure("store_suite", **ASKED)
        assert host.subtools("store_suite") == ["natural_language"]
    assert failure["code"] == "ask_unconfirmed"
    assert '1. drop {"message":"7"} (not run)' in failure["message"]
    assert "ask.trust" in failure["hint"]
    configure(workspace, {"ask": {"trust": {"store": ["dr*"]}}})
    with connect(workspace, DROP) as host:
        assert host.use("store_suite", **ASKED)["content"] == [{"type": "text", "text": "7"}]


@pytest.mark.parametrize("capabilities", [{}, {"sampling": {}}])
def test_a_host_that_lends_no_model_or_only_says_so_hears_what_to_set(mock: Path, capabilities: Json) -> None:
    wrap(mock, "mock")
    with connect(mock, **capabilities) as host:  # which answers: method not found
        failure = host.failure("mock_suite", **ASKED)
    assert failure["code"] == "ask_no_model"
    assert "ANTHROPIC_API_KEY" in failure["hint"]


def test_wrapping_without_a_key_keeps_the_subtools_until_they_are_hidden(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NO_KEYS:
        monkeypatch.delenv(name, raising=False)
    add_child(workspace, "mock", MOCK_CHILD)
    env = {**os.environ, **NO_KEYS}

    def listed() -> list[str]:
        with switchboard(workspace, env=env) as host:
            host.initialize()
            return host.subtools("mock_suite")

    before = listed()
    assert main(["wrap", "mock", "--workspace", str(workspace)]) == 0
    assert sorted(listed()) == sorted([*before, "natural_language"])
    with switchboard(workspace, env=env) as host:
        host.initialize()
        assert not host.call("mock_suite", "echo", message="hi").get("isError")
    doctor = subprocess.run(
        [*SWITCHBOARD, "doctor"], cwd=workspace, env=env, capture_output=True, text=True, check=False
    )
    assert "No model can plan requests in sentences for mock" in doctor.stdout
    assert main(["wrap", "mock", "--hide", "--workspace", str(workspace)]) == 0
    assert listed() == ["natural_language"]
    assert main(["unwrap", "mock", "--workspace", str(workspace)]) == 0
    assert listed() == before


def test_with_passthrough_the_subtools_stay_as_they_were(mock: Path) -> None:
    configure(mock, {"ask": {"passthrough": True}, "suites": {"mock": {"expose": {"deny": ["crash"]}}}})
    with connect(mock, ECHO) as host:
        before = host.subtools("mock_suite")
        straight = host.call("mock_suite", "echo", message="hi")
    wrap(mock, "mock")
    with connect(mock, ECHO) as host:
        assert host.subtools("mock_suite") == ["natural_language", *before]
        assert host.call("mock_suite", "echo", message="hi") == straight
        assert host.use("mock_suite", **ASKED)["content"][0]["text"] == "hello"


def test_a_request_that_is_cancelled_is_cancelled_all_the_way(mock: Path) -> None:
    wrap(mock, "mock")
    with connect(mock, {"steps": [step("slow", seconds=60, steps=600)], "done": True}) as host:
        params = {"name": "mock_suite", "arguments": ASKED, "_meta": {"progressToken": "p"}}
        request = host.ask("tools/call", params)
        while "calling slow" not in host.notification("notifications/progress").get("message", ""):
            pass
        host.notify("notifications/cancelled", {"requestId": request})
        say(host, ECHO)
        assert host.use("mock_suite", **ASKED)["content"][0]["text"] == "hello"


def test_what_requests_cost_is_in_the_metrics(mock: Path) -> None:
    wrap(mock, "mock")
    with serving(mock, env={**os.environ, **NO_KEYS}) as web:
        host = web.initialize()
        result = host.result("tools/call", {"name": "mock_suite", "arguments": ASKED})
        assert result["structuredContent"]["error"]["code"] == "ask_no_model"
        metrics = web.ask("GET", "/metrics").body.decode().splitlines()
    assert 'switchboard_ask_requests_total{child="mock",outcome="ask_no_model"} 1' in metrics
    assert 'switchboard_ask_tokens_total{child="mock",kind="input"} 0' in metrics


ASKING = scripted("""
    class Asking(Child):
        tools = ("sign",)

        def call(self, request_id, params, line):
            self.waiting = request_id
            schema = {"type": "object", "properties": {"agree": {"type": "boolean"}}}
            asked = {"message": "Sign here?", "requestedSchema": schema}
            send({"id": "q", "method": "elicitation/create", "params": asked})

        def hear(self, message):
            self.answer(self.waiting, text(json.dumps(message.get("result") or message.get("error"))))

    import json
    Asking().serve()
""")


def test_what_the_original_asks_reaches_the_host(workspace: Path) -> None:
    add_child(workspace, "asking", ASKING)
    wrap(workspace, "asking")
    answer = {"action": "accept", "content": {"agree": True}}
    turn = {"steps": [step("sign", message="x")], "done": True}
    with connect(workspace, turn, elicitation={}) as host:
        host.replies["elicitation/create"] = answer
        result = host.use("asking_suite", **ASKED)
        heard = [
            reported.json for reported in host.heard if reported.json.get("method") == "elicitation/create"
        ]
    assert json.loads(result["content"][0]["text"]) == answer
    assert [message["params"]["message"].splitlines()[0] for message in heard] == [
        "Run this with 'asking'? It may change or delete things.",
        "Sign here?",
    ]


def test_wrapping_and_denying_count_while_hosts_are_served(mock: Path) -> None:
    with connect(mock, ECHO) as host:
        assert "echo" in host.subtools("mock_suite")
        wrap(mock, "mock")
        while host.subtools("mock_suite") != ["natural_language"]:
            pass  # each look takes a moment; the change is seen within a few
        assert host.use("mock_suite", **ASKED)["content"][0]["text"] == "hello"
        configure(mock, {"suites": {"mock": {"expose": {"deny": ["echo"]}}}})
        outcomes: list[str] = []
        while "ask_plan_invalid" not in outcomes:
            result = host.use("mock_suite", **ASKED)
            error = result["structuredContent"]["error"]["code"] if result.get("isError") else "ok"
            outcomes.append(error)
        # One that was planned just before may be refused when it is run.
        assert set(outcomes) <= {"ok", "subtool_denied", "ask_plan_invalid"}
