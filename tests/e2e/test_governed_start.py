"""From nothing to a governed call: the guide in docs/governance.md, and every place that names what is missing."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts.pages import REPO, blocks
from tests.e2e.governed import ON, SWITCH, command, complaint, ran, safe_python, script, serve, starts
from tests.e2e.host import SWITCHBOARD
from tests.e2e.workspaces import configure
from tests.patience import PATIENCE_S

GUIDE = (REPO / "docs" / "governance.md").read_text(encoding="utf-8")
ENABLE = GUIDE.partition("## Enable it")[2].partition("\n## ")[0]
TOOLS = """
class Named(Child):
    def page(self, cursor):
        return {"tools": [tool("echo"), tool("get_current_time"), tool("hidden")]}

    def call(self, id, params, line):
        self.answer(id, text(params["name"]))

Named().serve()
"""


def steps() -> list[list[str]]:
    """The commands of the guide's first block."""
    kind, block = next(blocks(ENABLE))
    assert kind == "console"
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in block.splitlines()]


def child(workspace: Path, name: str) -> dict[str, Any]:
    return {"command": safe_python(), "args": ["-S", str(script(workspace, name, TOOLS))]}


def at_terminal(workspace: Path, *arguments: str, answers: str) -> tuple[int, str]:
    """Run a command with somebody at the terminal who has typed these answers."""
    ours, theirs = pty.openpty()
    os.write(ours, answers.encode())
    try:
        done = subprocess.run(
            [*SWITCHBOARD, *arguments],
            cwd=workspace,
            env={**os.environ, **ON},
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=5 * PATIENCE_S,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, done.stdout + done.stderr


def test_the_guide_leads_to_a_governed_call_with_two_children_in_four_commands(workspace: Path) -> None:
    commands = steps()
    assert len(commands) <= 4
    added = 0
    arguments, output = [""], ""
    for words in commands:
        env = dict(word.split("=", 1) for word in words[: words.index("switchboard")])
        arguments = words[words.index("switchboard") + 1 :]
        if arguments[0] == "add":
            added += 1
            entry = child(workspace, arguments[1])
            arguments = [*arguments[:3], entry["command"], *entry["args"]]
        done = command(
            workspace,
            *arguments,
            *(["--yes"] if arguments[0] == "approve" else []),
            env={SWITCH: "", **env},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        output = done.stdout
    assert added == 2
    assert arguments[0] == "call"
    assert output.strip() == arguments[2]
    config = json.loads((workspace / "switchboard.config.json").read_text())
    assert config["governance"]["mode"] == "governed"
    assert command(workspace, "approve", "--list").returncode == 0
    assert command(workspace, "lock", "--check").returncode == 0
    assert command(workspace, "doctor").returncode == 0


def test_a_person_chooses_the_subtools_and_enter_alone_allows_nothing(workspace: Path) -> None:
    configure(workspace, {"mcpServers": {"kid": child(workspace, "kid")}})
    code, shown = at_terminal(workspace, "approve", "--all", answers="y\n\n2\n")
    assert code == 0, shown
    assert "governance.mode is `open`; it becomes `governed`" in shown
    assert ran(workspace, "call", "kid", "get_current_time").strip() == "get_current_time"
    assert complaint(workspace, "call", "kid", "echo")["code"] == "subtool_denied"
    code, shown = at_terminal(workspace, "approve", "--all", answers="")
    assert code == 0
    assert "Already approved" in shown


def test_a_person_who_declines_changes_nothing(workspace: Path) -> None:
    configure(workspace, {"mcpServers": {"kid": child(workspace, "kid")}})
    before = (workspace / "switchboard.config.json").read_bytes()
    code, _ = at_terminal(workspace, "approve", "--all", answers="n\n")
    assert code == 1
    assert (workspace / "switchboard.config.json").read_bytes() == before
    assert not (workspace / "switchboard.approvals.json").exists()
    assert starts(workspace) == 0
    done = command(workspace, "approve", "--all")  # nobody is there
    assert done.returncode != 0
    assert not (workspace / "switchboard.approvals.json").exists()


@pytest.fixture
def without_list(workspace: Path) -> Path:
    """A governed workspace whose child is approved and locked, without an allow list."""
    configure(workspace, {"governance": {"mode": "governed"}, "mcpServers": {"kid": child(workspace, "kid")}})
    ran(workspace, "approve", "kid", "--yes")
    ran(workspace, "lock")
    return workspace


def test_an_empty_allow_list_is_named_with_the_command_that_fills_it(without_list: Path) -> None:
    key, remedy = "suites.kid.expose.allow", "switchboard approve kid"
    error = complaint(without_list, "call", "kid", "echo")
    assert key in error["message"]
    assert remedy in error["hint"]
    assert complaint(without_list, "call", "kid", "no_such_subtool")["message"] == error["message"]
    doctor = command(without_list, "doctor")
    assert doctor.returncode == 1
    assert key in doctor.stdout
    assert remedy in doctor.stdout
    with serve(without_list) as host:
        introspected = json.dumps(
            host.request("tools/call", {"name": "kid_suite", "arguments": {"action": "introspect"}})
        )
        assert key in introspected
        assert "offers no tools" not in introspected
    code, shown = at_terminal(without_list, "approve", "kid", answers="1,2\n")
    assert code == 0, shown
    assert ran(without_list, "call", "kid", "echo").strip() == "echo"
    assert command(without_list, "doctor").returncode == 0


def test_subtools_are_allowed_by_name_or_glob_for_scripts(without_list: Path) -> None:
    ran(without_list, "approve", "kid", "--yes", "--allow", "get_*")
    ran(without_list, "approve", "kid", "--yes", "--allow", "echo")
    for subtool in ("echo", "get_current_time"):
        assert ran(without_list, "call", "kid", subtool).strip() == subtool
    assert complaint(without_list, "call", "kid", "hidden")["code"] == "subtool_denied"


def test_a_lock_that_was_edited_is_one_problem_of_doctor_and_no_source_of_subtools(
    without_list: Path,
) -> None:
    lock = without_list / "switchboard.lock.json"
    lock.write_text(lock.read_text().replace('"title"', '"titel"', 1).replace("hidden", "hiddem"))
    doctor = command(without_list, "doctor")
    assert doctor.returncode == 1
    assert doctor.stdout.count("edited by hand") == 1
    code, shown = at_terminal(without_list, "approve", "kid", answers="all\n")
    assert code != 0
    assert "edited by hand" in shown
    assert "suites" not in json.loads((without_list / "switchboard.config.json").read_text())
