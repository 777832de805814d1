"""`switchboard ask`, in this process: the sentence, its suite, the plan, the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from switchboard_mcp.cli.main import main
from tests.e2e.asking import Planner, step
from tests.e2e.messages_api import Fails, MessagesApi, messages_api
from tests.e2e.workspaces import MOCK_CHILD, add_child, configure, scripted

KEY = "sk-ant-test-0123456789abcdef"
ECHO = {"steps": [step("echo", message="hello")], "done": True}
DROP = {"steps": [step("drop", message="7")], "done": True}
STORE = scripted("class Store(Child):\n    tools = ('drop',)\nStore().serve()")


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagesApi]:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("CLAUDE_API_KEY", KEY)
    with messages_api() as service:
        yield service


@pytest.fixture
def planner(api: MessagesApi, workspace: Path) -> Planner:
    """Who plans in this workspace, which has two children."""
    add_child(workspace, "mock", MOCK_CHILD)
    add_child(workspace, "store", STORE)
    configure(workspace, {"ask": {"baseUrl": api.url}})
    planner = Planner()
    planner.over_api(api)
    return planner


@pytest.fixture
def run(workspace: Path, planner: Planner, capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*arguments: str) -> Ran:
        code = main([*arguments, "--workspace", str(workspace)])
        return Ran(code, *capsys.readouterr())

    return command


def test_a_sentence_is_planned_shown_and_run(run: Run, planner: Planner) -> None:
    planner.turns.append(ECHO)
    assert run("ask", "--suite", "mock", "say", "hello") == (0, "hello\n", 'mock  echo {"message":"hello"}\n')
    assert "Request: say hello" in planner.shown[0]


def test_a_program_reads_result_plan_and_cost(run: Run, planner: Planner, api: MessagesApi) -> None:
    planner.turns.append(ECHO)
    answer = json.loads(run("ask", "--suite", "mock", "say hello", "--json").out)
    assert answer["content"] == [{"type": "text", "text": "hello"}]
    assert answer["_meta"]["switchboard/plan"][0]["subtool"] == "echo"
    assert answer["_meta"]["switchboard/use"]["inputTokens"] == 100
    assert api.keys == [KEY]


def test_a_tool_that_changes_things_needs_consent(run: Run, planner: Planner) -> None:
    planner.turns += [DROP, DROP, DROP]
    refused = run("ask", "--suite", "store", "drop 7")
    assert refused.code == 1
    assert "nobody is present to give it: drop" in refused.err
    assert "--yes" in refused.err
    dry = json.loads(run("ask", "--suite", "store", "drop 7", "--dry-run", "--json").out)
    assert dry["structuredContent"]["needsConfirmation"] == ["drop"]
    assert run("ask", "--suite", "store", "drop 7", "--yes").out == "7\n"


def test_the_suite_is_found_by_the_sentence_and_a_wrapped_child_is_asked_as_it_was(
    run: Run, planner: Planner
) -> None:
    unknown = run("ask", "take a screenshot of the page")
    assert unknown.code == 2
    assert "never started here: mock, store" in unknown.err
    assert run("--dry-run").code == 0  # so that both are known
    assert run("wrap", "mock").code == 0
    planner.turns.append(ECHO)
    assert run("ask", "take a screenshot of the page").out == "hello\n"


def test_objections_of_the_model_are_shown(run: Run, planner: Planner) -> None:
    planner.turns.append({"cannot": "nothing of the kind"})
    done = run("ask", "--suite", "store", "take a screenshot")
    assert done.code == 1
    assert "This cannot be done here: nothing of the kind" in done.err


def test_without_a_key_it_says_what_to_set(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLAUDE_API_KEY")
    done = run("ask", "say hello")
    assert done.code == 1
    assert "Set ANTHROPIC_API_KEY (or CLAUDE_API_KEY)" in done.err


def test_a_key_that_is_not_accepted_is_reported(run: Run, api: MessagesApi) -> None:
    api.otherwise = lambda request: Fails(401, "authentication_error", "invalid key")
    done = run("ask", "--suite", "mock", "say hello")
    assert done.code == 1
    assert "rejects the key (401). invalid key" in done.err
