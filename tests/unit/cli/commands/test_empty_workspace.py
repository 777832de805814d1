"""Commands in a workspace without children: each says so, and how to add one."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from switchboard_mcp.cli.console import Console
from switchboard_mcp.cli.main import dispatch
from switchboard_mcp.errors import SwitchboardError


def run(folder: Path, *arguments: str) -> str:
    out = io.StringIO()
    console = Console(out, io.StringIO(), {})
    try:
        dispatch([*arguments, "--workspace", str(folder)], console)
    except SwitchboardError as problem:
        return f"{problem.failure.message}\n{problem.failure.hint}"
    return out.getvalue()


@pytest.mark.parametrize(
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
    assert f"Programs are off in {tmp_path}." in run(tmp_path, "program", "list")


def test_a_file_that_cannot_be_imported_is_named_once(tmp_path: Path) -> None:
    said = run(tmp_path, "import", str(tmp_path / "none.json"))
    assert said == f"{tmp_path}/none.json does not exist. Name an existing file.\nNothing was added."


def test_the_live_view_and_the_dashboard_say_that_nothing_runs(tmp_path: Path) -> None:
    for command in ("top", "dashboard"):
        said = run(tmp_path, command)
        assert said.startswith(f"Neither an HTTP server nor a broker runs for {tmp_path}.")
        assert "switchboard serve --http" in said
