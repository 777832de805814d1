"""The commands that pages show are run as they stand there, where that does no harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.pages import REPO, Line, command_of, commands
from switchboard_mcp.cli.index import parser_for
from switchboard_mcp.cli.main import split_program
from switchboard_mcp.errors import SwitchboardError
from tests.e2e import command_server

SHOWN = commands()
STAND_IN = Path(__file__).with_name("stand_in.py")
# A server that stays, a conversation with a model or a browser, a terminal: their own tests run them. So do those of
# mail, whose examples build on each other.
NOT_RUN = frozenset(
    "approvals gate serve login logout ask program wrap unwrap wrapper terminal top dashboard mail bus".split()
)
# These look at what a workspace has; in a new one they may rightly say that it is not well, or that nothing is known.
MAY_FAIL = frozenset(
    "approvals broker gate lock approve audit evidence status remove revert import find".split()
)
# They ask a person first.
ASKING = {"init": {"--dry-run", "--yes"}, "approve": {"--list", "--yes"}, "revert": {"--dry-run", "--yes"}}
TOKEN = "sha256:" + "0" * 64
# Commands of one group share an item.
GROUPS = ["help", "init", "others"]


def group_of(line: Line) -> str:
    command, rest = command_of(line)
    if {"--help", "-h", "--version"} & set(rest):
        return "help"
    return "init" if command in ("init", "add", "remove", "revert", "import") else "others"


def runnable(line: Line) -> bool:
    command, rest = command_of(line)
    if line.is_pattern or "-" in rest or not (command or rest) or command.partition(" ")[0] in NOT_RUN:
        return False
    if {"--help", "-h", "--version"} & set(rest):
        return True
    try:
        parser_for(command or "serve").parse(split_program(rest)[0])
    except (SwitchboardError, KeyError):
        return False  # a command's name alone, which the page speaks of; what there is not is told by another test
    asks = {"--yes"} if command == "sandbox" and "learn" in rest else ASKING.get(command)
    return bool(command or "--dry-run" in rest) and (asks is None or bool(asks & set(rest)))


def suites() -> dict[str, set[str]]:
    """Which children the pages speak of, with the subtools that they call there."""
    found: dict[str, set[str]] = {}
    for line in SHOWN:
        command, rest = command_of(line)
        words = [word for word in rest if not word.startswith("-")]
        if (
            command in ("call", "introspect", "lock", "approve", "remove", "logout")
            and words
            and not line.is_pattern
        ):
            name = words[0].removesuffix("_suite")
            for each in words if command == "lock" else [name]:
                found.setdefault(each, {"look"})
            if command == "call":
                found[name].update(words[1:2])
            if "--subtool" in rest:
                found[name].add(rest[rest.index("--subtool") + 1])
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_commands_of_the_pages_run_as_they_stand_there(group: str, tmp_path: Path) -> None:
    failures = []
    for number, line in enumerate(line for line in SHOWN if group_of(line) == group and runnable(line)):
        done = run(line, tmp_path / str(number))
        if done.returncode not in ((0, 1) if command_of(line)[0] in MAY_FAIL else (0,)):
            failures.append(f"{line}\n{done.stderr}{done.stdout}")
    assert failures == []


def run(line: Line, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a workspace with the children that the pages speak of."""
    workspace, home = folder / "workspace", folder / "home"
    workspace.mkdir(parents=True)
    home.mkdir()
    servers = {
        name: {"command": sys.executable, "args": [str(STAND_IN), *sorted(tools)]}
        for name, tools in suites().items()
        if command_of(line)[0] != "add"
    }
    config = {
        "mcpServers": servers,
        "profiles": {"reader": {}},
        "audit": {"enabled": True},
        "http": {"tokens": {"build": TOKEN}},
    }
    (workspace / "switchboard.config.json").write_text(json.dumps(config))
    (workspace / "examples").symlink_to(REPO / "examples")
    return command_server.run(line.words, workspace, {**os.environ, "HOME": str(home), "TRACKER_TOKEN": "t"})
