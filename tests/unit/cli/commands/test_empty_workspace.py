"""Commands in a workspace without children: each says so, and how to add one."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from switchboard_mcp.cli.console import Console
from switchboard_mcp.cli.main import dispatch
from switchboard_mcp.errors import SwitchboardError
from tests.cases import each_case


def run(folder: Path, *arguments: str) -> str:
    out = io.StringIO()
    console = Console(out, io.StringIO(), {})
    try:
        dispatch([*arguments, "--workspace", str(folder)], console)
    except SwitchboardError as problem:
        return f"{problem.failure.message}\n{problem.failure.hint}"
    return out.getvalue()


@each_case(
    "command",
    [
        "list",
        "lock",
        "tokens --tokenizer estimate",
        "find words",
        "sandbox show",
        "approve --list",
        "call one tool",
    ],
)
def test_the_command_says_that_there_are_no_children_and_how_to_add_one(command: str, tmp_path: Path) -> None:
    said = run(tmp_path, *command.split())
    assert f"o children in {tmp_path}." in said
    assert "switchboard add NAME -- CMD" in said
    assert "CHILD  STATE" not in said


def test_programs_that_are_off_name_the_folder_without_a_config(tmp_path: Path) -> None:
    assert f"off in {tmp_path}." in run(tmp_path, "program", "list")


def test_a_file_that_cannot_be_imported_is_named_once(tmp_path: Path) -> None:
    said = run(tmp_path, "import", str(tmp_path / "none.json"))
    assert said == f"{tmp_path}/none.json does not exist. Name an existing file.\nNothing was added."


def test_the_dashboard_says_that_nothing_runs(tmp_path: Path) -> None:
    said = run(tmp_path, "dashboard")
    assert said.startswith(f"Neither an HTTP server nor a broker runs for {tmp_path}.")
    assert "switchboard serve --http" in said


@each_case("command", ["wrap mine", "approve mine", "unwrap mine"])
def test_a_child_of_the_user_workspace_is_found_there(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "config" / "switchboard"
    child = folder / ".switchboard" / "mcps" / "mine"
    child.mkdir(parents=True)
    (child / ".mcp.json").write_text('{"name": "mine", "command": {"cmd": "cat"}}')
    project = tmp_path / "project"
    project.mkdir()
    said = run(project, *command.split())
    assert said.startswith(f"There is no child 'mine' in {project}.")
    assert f"--workspace {folder}" in said
    assert "user workspace" not in run(project, command.split()[0], "other")
