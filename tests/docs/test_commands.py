"""Every command that a page shows exists, with these flags; what can be run without harm is run as it stands there."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from switchboard_mcp.cli.index import ALL_COMMANDS, MAIL_COMMANDS, parser_for
from switchboard_mcp.cli.main import (
    MAIL_OPTIONS_WITH_VALUE,
    OPTIONS_WITH_VALUE,
    split_command,
    split_program,
)
from switchboard_mcp.errors import SwitchboardError
from tests.docs.pages import REPO, Line, commands
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


def parts(line: Line) -> tuple[str, list[str]]:
    """The command's name, and its own arguments."""
    command, rest = split_command(line.words, OPTIONS_WITH_VALUE)
    command = command.strip("[]")
    if command == "help":
        return (rest[0] if rest and not line.is_pattern else ""), ["--help"]
    if command == "mail":
        word, rest = split_command(rest, MAIL_OPTIONS_WITH_VALUE)
        command = f"mail {word}".strip()
    return command, rest


@pytest.mark.parametrize("line", SHOWN, ids=str)
def test_every_command_and_flag_that_a_page_shows_exists(line: Line) -> None:
    command, rest = parts(line)
    known = {*ALL_COMMANDS, ""}
    if line.is_pattern and command not in known:
        command = command.partition(" ")[0]  # `mail COMMAND`: any of them
    assert command in known, f"there is no command '{command}'"
    if command.startswith("mail") and command not in MAIL_COMMANDS:
        return
    own, _ = split_program(rest)
    flags = {*parser_for(command or "serve").flags, "--help", "-h", "--version"}
    used = {word.partition("=")[0].strip("[](),") for word in own if word.lstrip("[(").startswith("--")}
    assert used <= flags
    spoken_of = " ".join(line.words) == command  # its name alone
    if not line.is_pattern and not spoken_of and not {"--help", "-h", "--version"} & set(own):
        parser_for(command or "serve").parse(own)


def runnable(line: Line) -> bool:
    command, rest = parts(line)
    if line.is_pattern or "-" in rest or not (command or rest) or command.partition(" ")[0] in NOT_RUN:
        return False
    if {"--help", "-h", "--version"} & set(rest):
        return True
    try:
        parser_for(command or "serve").parse(split_program(rest)[0])
    except (SwitchboardError, KeyError):
        return False  # a command's name alone, which the page speaks of; what there is not is told by another test
    return bool(command or "--dry-run" in rest) and (
        command not in ASKING or bool(ASKING[command] & set(rest))
    )


def suites() -> dict[str, set[str]]:
    """Which children the pages speak of, with the subtools that they call there."""
    found: dict[str, set[str]] = {}
    for line in SHOWN:
        command, rest = parts(line)
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


@pytest.mark.parametrize("line", [line for line in SHOWN if runnable(line)], ids=str)
def test_what_can_be_run_without_harm_is_run_as_it_stands_there(
    line: Line, workspace: Path, tmp_path: Path
) -> None:
    command, _ = parts(line)
    servers = {
        name: {"command": sys.executable, "args": [str(STAND_IN), *sorted(tools)]}
        for name, tools in suites().items()
        if command != "add"
    }
    config = {
        "mcpServers": servers,
        "profiles": {"reader": {}},
        "audit": {"enabled": True},
        "http": {"tokens": {"build": TOKEN}},
    }
    (workspace / "switchboard.config.json").write_text(json.dumps(config))
    (workspace / "examples").symlink_to(REPO / "examples")
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "TRACKER_TOKEN": "t"}
    done = command_server.run(line.words, workspace, environment)
    assert done.returncode in ((0, 1) if command in MAY_FAIL else (0,)), done.stderr + done.stdout


def test_the_pages_show_enough_for_these_tests_to_mean_something() -> None:
    assert len(SHOWN) > 40
    assert len([line for line in SHOWN if runnable(line)]) > 15
