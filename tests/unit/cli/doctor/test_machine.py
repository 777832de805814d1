"""What the doctor sees around a workspace: processes nobody looks after, and hosts that cannot start Switchboard."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from switchboard_mcp.cli.doctor.findings import NOTE, PROBLEM, Finding
from switchboard_mcp.cli.doctor.machine import (
    ProcessInfo,
    _orphans,
    is_child_process,
    machine_findings,
    processes,
)
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import ChildSpec, Workspace
from tests.cases import each_case

SPEC = ChildSpec(name="kid", source="x", command="server", args=["--root", "/data"], cwd="/home")


def workspace_of(*children: ChildSpec) -> Workspace:
    found = load_workspace("/", None, {})
    return Workspace(folder="/", config=found.config, children=list(children), warnings=[])


@each_case(
    ("words", "folder", "same"),
    [
        (["server", "--root", "/data"], "/home", True),
        (["/usr/bin/python3", "/usr/bin/server", "--root", "/data"], "/home", True),
        (["node", "--no-warnings", "/opt/server", "--root", "/data"], "/home", True),
        (["server", "--root", "/other"], "/home", False),
        (["server", "--root", "/data"], "/tmp", False),
        (["other", "--root", "/data"], "/home", False),
        (["--root", "/data"], "/home", False),
    ],
)
def test_a_process_is_known_by_its_command_and_folder(words: list[str], folder: str, same: bool) -> None:
    assert is_child_process(SPEC, ProcessInfo(5, 1, words, folder)) is same


def test_a_process_that_nobody_looks_after_is_a_problem_and_one_of_a_host_is_none() -> None:
    words = ["server", "--root", "/data"]
    found = {5: ProcessInfo(5, 1, words, "/home"), 6: ProcessInfo(6, 77, words, "/home")}
    (finding,) = _orphans(workspace_of(SPEC), {}, found)
    assert finding.level == PROBLEM
    assert "kill 5" in finding.remedy


def test_processes_are_read_as_the_system_tells() -> None:
    own = processes()[os.getpid()]
    assert own.parent == os.getppid()
    assert own.folder == str(Path.cwd())
    assert processes("/nowhere") == {}


def hosts(tmp_path: Path, entry: object, **more: object) -> list[Finding]:
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    (home / ".claude.json").write_text(json.dumps({"mcpServers": {"switchboard": entry, **more}}))
    return machine_findings(load_workspace(str(folder), None, {}), {"HOME": str(home)})


def test_a_host_that_starts_switchboard_where_it_is_has_nothing_to_tell(tmp_path: Path) -> None:
    args = ["-m", "switchboard_mcp", "--workspace", str(tmp_path / "work")]
    assert hosts(tmp_path, {"command": sys.executable, "args": args}) == []


def test_a_host_whose_switchboard_is_gone_is_a_problem(tmp_path: Path) -> None:
    entry = {"command": "/nowhere/switchboard", "args": ["--workspace", "/nowhere/else"]}
    folder, program = hosts(tmp_path, entry)
    assert (folder.level, program.level) == (PROBLEM, PROBLEM)
    assert "/nowhere/else" in folder.message
    assert "/nowhere/switchboard" in program.message
    assert "Claude Code" in program.message


def test_servers_beside_switchboard_are_noted(tmp_path: Path) -> None:
    args = ["-m", "switchboard_mcp", "--workspace", str(tmp_path / "work")]
    entry = {"command": sys.executable, "args": args}
    (finding,) = hosts(tmp_path, entry, other={"command": "npx", "args": ["-y", "some-server"]})
    assert finding.level == NOTE
    assert "1 server beside" in finding.message


def test_a_file_of_a_host_that_cannot_be_read_is_noted(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "home" / ".claude.json").write_text("{ not json")
    found = machine_findings(
        load_workspace(str(tmp_path / "work"), None, {}), {"HOME": str(tmp_path / "home")}
    )
    assert found
    assert {finding.level for finding in found} == {NOTE}
