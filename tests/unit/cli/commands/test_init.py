"""The conversation of `init`: what is asked, and what the answers mean."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from switchboard_mcp.app import CommandOptions
from switchboard_mcp.cli.commands.init import initialise, parse_choice
from switchboard_mcp.cli.console import Console
from switchboard_mcp.cli.index import parser_for
from switchboard_mcp.cli.invocation import Invocation, own_command
from tests.cases import each_case
from tests.hostfiles import Person
from tests.patience import PATIENCE_S


@each_case(
    ("expected", "numbers"),
    [
        ("", {1, 2, 3, 4, 5}),
        ("all", {1, 2, 3, 4, 5}),
        ("none", set()),
        ("2", {2}),
        ("1,3-5", {1, 3, 4, 5}),
        ("1 2", {1, 2}),
        ("6", None),
        ("what?", None),
    ],
)
def test_each_answer_has_one_meaning(expected: str, numbers: set[int] | None) -> None:
    assert parse_choice(expected, 5) == numbers


class Talk:
    """Somebody at a terminal, with answers by what the question is about."""

    def __init__(self, **answers: str) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, question: str) -> str:
        self.asked.append(question)
        return next((answer for about, answer in self.answers.items() if about in question), "")


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    made = Person(tmp_path, "windsurf")
    for name in ("CONFIG", "DATA"):
        monkeypatch.delenv(f"XDG_{name}_HOME")
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    return made


def talk(person: Person, ask: Callable[[str], str], *arguments: str) -> str:
    args: Namespace = parser_for("init").parse([*arguments, "--workspace", str(person.workspace)])
    out = io.StringIO()
    console = Console(out, io.StringIO(), {"COLUMNS": "200"})
    assert initialise(Invocation(CommandOptions(workspace=args.workspace), args, console), ask) == 0
    return out.getvalue()


def test_only_what_was_chosen_moves(person: Person) -> None:
    ask = Talk(Move="1")
    output = talk(person, ask)
    assert "Moved 1 entry into 1 child of your user workspace, ~/.config/switchboard: mock." in output
    left = json.loads((person.home / ".codeium/windsurf/mcp_config.json").read_text())["mcpServers"]
    assert set(left) == {"switchboard", "figma", "secret-file", "off"}
    assert [question.split()[0] for question in ask.asked] == ["Move", "Enable", "Enable", "Change"]


def test_a_refusal_changes_nothing(person: Person) -> None:
    before = person.files()
    assert "Nothing was changed" in talk(person, Talk(Change="n"))
    assert person.files() == before


def test_a_choice_of_none_is_remembered(person: Person) -> None:
    before = person.files()
    ask = Talk(Move="none")
    assert "nothing to do" in talk(person, ask)
    assert person.files() == before
    assert not any(question.startswith("Change") for question in ask.asked)


def test_an_answer_that_means_nothing_is_asked_for_again(person: Person) -> None:
    answers = iter(("9", "1", "n", "n", "y"))
    assert "Moved 1 entry" in talk(person, lambda question: next(answers))


@pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are Linux")
@pytest.mark.parametrize(
    ("answer", "flags", "expected"),
    [
        ("", [], None),
        ("y", [], {"time": {"preset": "strict"}}),
        ("", ["--sandbox", "workspace"], {"time": {"preset": "strict"}, "own": {"preset": "workspace"}}),
    ],
)
def test_servers_with_known_needs_are_confined_if_the_person_wants_it(
    person: Person, answer: str, flags: list[str], expected: object
) -> None:
    file = person.home / ".codeium/windsurf/mcp_config.json"
    entries = {
        "time": {"command": "uvx", "args": ["mcp-server-time"]},
        "own": {"command": "cat"},
        "far": {"serverUrl": "https://mcp.example.com/mcp"},
    }
    file.write_text(json.dumps({"mcpServers": entries}))
    ask = Talk(Confine=answer)
    talk(person, ask, *flags)
    asked = [question for question in ask.asked if question.startswith("Confine")]
    assert asked == ([] if flags else ["Confine time in sandboxes with what they are known to need? [y/N]"])
    config = person.user / "switchboard.config.json"
    suites = json.loads(config.read_text()).get("suites", {}) if config.exists() else {}
    assert {name: suite["sandbox"] for name, suite in suites.items()} == (expected or {})


@pytest.mark.parametrize(
    ("answer", "flags", "is_asked"), [("", [], True), ("y", [], True), ("", ["--secrets", "env"], False)]
)
def test_secrets_that_are_written_out_are_stored_apart_if_the_person_wants_it(
    person: Person, answer: str, flags: list[str], is_asked: bool
) -> None:
    file = person.home / ".codeium/windsurf/mcp_config.json"
    entry = {"command": "cat", "env": {"GITHUB_TOKEN": "ghp_" + "x9Zq" * 9}}
    file.write_text(json.dumps({"mcpServers": {"git": entry, "plain": {"command": "cat"}}}))
    ask = Talk(secrets=answer)
    output = talk(person, ask, *flags)
    question = "Store the secrets written out in the entries of git in a private file? [y/N]"
    assert (question in ask.asked) == is_asked
    moved = json.loads((person.user / ".switchboard/mcps/git/.mcp.json").read_text())
    is_kept = not answer and not flags
    assert (moved["command"]["env"] == entry["env"]) == is_kept
    assert (person.user / ".switchboard/secrets.env").exists() != is_kept
    assert "ghp_" not in output


def test_a_command_with_a_host_gives_no_hint_to_name_one(person: Person) -> None:
    (person.home / ".codeium/windsurf/mcp_config.json").write_text("{}")
    assert "init --host HOST" in talk(person, Talk(Change="n"))
    assert "init --host HOST" not in talk(person, Talk(Change="n"), "--host", "windsurf")


def test_suites_that_are_wanted_are_switched_on(person: Person) -> None:
    talk(person, Talk(mail="y"))
    assert json.loads((person.user / "switchboard.config.json").read_text())["mail"] == {"enabled": True}


def test_the_program_is_named_by_its_whole_path() -> None:
    assert Path(own_command()[0]).is_absolute()


def test_the_command_in_a_hosts_config_runs_no_code_of_the_project_it_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = sys.executable
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "__main__.py")])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    command = [python, *own_command()[1:], "--version"]
    (tmp_path / "msgspec.py").write_text("raise SystemExit('the project has run')")
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert ran.stdout.startswith("switchboard "), ran.stderr


@pytest.mark.parametrize("installed", [True, False])
def test_moving_remote_servers_names_the_needed_package_first(
    person: Person, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "httpx2", None)
    seen = ""

    def ask(question: str) -> str:
        nonlocal seen
        seen = seen or question
        return "none"

    output = talk(person, ask)
    assert seen.startswith("Move which?")
    assert "Nothing was changed" in output or "nothing to do" in output
    assert ("remote servers need the package httpx2" in output) != installed
