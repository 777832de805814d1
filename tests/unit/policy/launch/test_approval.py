from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from switchboard_mcp.config.files.approvals import Approval, Approvals
from switchboard_mcp.errors import Failure
from switchboard_mcp.policy.launch.approval import pattern, propose
from switchboard_mcp.policy.launch.rules import ApprovedLaunch
from tests.cases import each_case
from tests.unit.policy.launch.launching import Place

NOTHING: frozenset[str] = frozenset()


def new_tool(place: Place) -> Path:
    """A program that nobody has approved yet."""
    path = place.bin / "tool"
    path.write_bytes(b"\x7fELF tool")
    path.chmod(0o755)
    return path


tool = pytest.fixture(new_tool, name="tool")


def test_a_proposed_approval_is_accepted_at_the_start(place: Place, tool: Path) -> None:
    spec = place.spec(command=str(tool), args=["--root", "${DATA}", "*.txt"], env={"TOKEN": "${TOKEN}"})
    guard = structs.replace(place.guard(), environ={"DATA": "/data", "TOKEN": "secret-value"})
    approval = propose(spec, guard, NOTHING)
    assert isinstance(approval, Approval)
    assert approval.args == ["--root", "*", "\\*.txt"]
    assert approval.launch == ["${workspace}/bin/tool"]
    assert approval.env == ["TOKEN"]
    assert approval.variables == ["DATA", "TOKEN"]
    assert "secret-value" not in repr(approval)
    judge = structs.replace(guard, approvals=Approvals(children={"good": approval}))
    filled = structs.replace(spec, args=["--root", "/data", "*.txt"], env={"TOKEN": "secret-value"})
    approved = judge.approve(filled)
    assert isinstance(approved, ApprovedLaunch)
    assert approved.argv == [str(tool), "--root", "/data", "*.txt"]


def test_a_script_is_pinned_with_its_interpreter(place: Place, tool: Path) -> None:
    script = place.folder / "server.py"
    script.write_text("serve()")
    python = place.bin / "python3"
    python.symlink_to(tool)
    approval = propose(place.spec(command=str(python), args=["server.py"], env={}), place.guard(), NOTHING)
    assert isinstance(approval, Approval), approval
    assert approval.launch == ["${workspace}/bin/python3", "-I", "${workspace}/server.py"]
    assert [(pin.path, pin.real) for pin in approval.files if not pin.names] == [
        ("${workspace}/bin/python3", "${workspace}/bin/tool"),
        ("${workspace}/server.py", ""),
    ]


def test_the_summary_of_a_child_is_readable_text(place: Place, tool: Path) -> None:
    role = place.folder / ".switchboard" / "mcps" / "good" / "CLAUDE.md"
    role.parent.mkdir(parents=True)
    role.symlink_to("nowhere")
    outcome = propose(place.spec(command=str(tool), args=[], env={}), place.guard(), NOTHING, ask=True)
    assert isinstance(outcome, Failure)
    assert f"{role}: No such file or directory" in outcome.message


@each_case(
    ("changes", "expected"),
    [
        ({"args": ["; rm -rf /"]}, "args[0]: contains the shell metacharacter `;`"),
        ({"args": ["--token", "hunter2hunter2"]}, "args[1]: looks like a secret"),
        ({"args": ["ghp_" + "a1B2" * 9]}, "args[0]: looks like a secret"),
        ({"env": {"LD_PRELOAD": "/x.so"}}, "env.LD_PRELOAD: makes the system load other code"),
        ({"env": {"NODE_OPTIONS": "--x"}}, "approve with --allow-env NODE_OPTIONS"),
        ({"env": {"PYTHON_CREDENTIALS": "x"}}, "may be a secret"),
        ({"cwd": "/"}, "cwd: is outside the workspace"),
        ({"args": ["${NOT_SET}"]}, "not set: NOT_SET"),
    ],
    place=Place,
    tool=new_tool,
)
def test_a_start_that_would_be_refused_is_not_approved(
    place: Place, tool: Path, changes: dict[str, object], expected: str
) -> None:
    spec = structs.replace(place.spec(command=str(tool), args=[], env={}), **changes)
    outcome = propose(spec, place.guard(), NOTHING)
    assert isinstance(outcome, Failure)
    assert expected in outcome.message


def test_a_variable_that_changes_what_runs_is_approved_with_its_value(place: Place, tool: Path) -> None:
    spec = place.spec(command=str(tool), args=[], env={"NODE_OPTIONS": "--no-warnings", "A": "b"})
    approval = propose(spec, place.guard(), frozenset({"NODE_OPTIONS"}))
    assert isinstance(approval, Approval)
    assert approval.env == ["A"]
    assert approval.env_values == {"NODE_OPTIONS": "--no-warnings"}


def test_a_program_that_everybody_can_write_is_not_approved(place: Place, tool: Path) -> None:
    tool.chmod(0o777)
    outcome = propose(place.spec(command=str(tool), args=[], env={}), place.guard(), NOTHING)
    assert isinstance(outcome, Failure)
    assert "command: " in outcome.message
    assert "is writable by everybody" in outcome.message


def test_a_reference_that_cannot_be_followed_is_named_with_file_and_key(place: Place) -> None:
    outcome = propose(place.spec(command="npx", args=["-y", "nothing-here"], env={}), place.guard(), NOTHING)
    assert isinstance(outcome, Failure)
    assert outcome.code == "launch_unresolved"
    assert f"{place.folder}/switchboard.config.json: mcpServers.good.command" in outcome.message


def test_a_remote_child_is_approved_by_its_origin(place: Place) -> None:
    spec = place.spec(kind="http", url="https://mcp.example.com/mcp?key=x", command="", args=[], env={})
    assert propose(spec, place.guard(), NOTHING) == Approval(
        kind="http", origin="https://mcp.example.com:443", variables=[]
    )


@each_case(
    ("word", "made"),
    [("plain", "plain"), ("${A}", "*"), ("--x=${A:-b}/c", "--x=*/c"), ("a*b", "a\\*b"), ("${A}*", "*\\*")],
)
def test_patterns_take_the_place_of_variables(word: str, made: str) -> None:
    assert pattern(word) == made
