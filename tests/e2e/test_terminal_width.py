"""What commands print fits the terminal: tables give up columns, cells and sentences are wrapped."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
from pathlib import Path

import pytest

from switchboard_mcp.cli.console import visible_width
from tests.cases import each_case
from tests.e2e import command_server
from tests.hostfiles import Person
from tests.patience import PATIENCE_S

WIDTHS = (60, 100)
HOSTS = ("claude-code", "cursor", "vscode", "codex", "gemini")
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# Commands that print something about a workspace with children and an agent, and end.
SHOWN = [
    ("init", "--dry-run"),
    ("list",),
    ("introspect", "mock"),
    ("introspect", "mock", "add"),
    ("find", "add two numbers"),
    ("status",),
    ("sandbox", "show"),
    ("secret", "list"),
    ("revert", "--dry-run"),
    ("approve", "--list"),
    ("lock", "--check"),
    ("audit", "tail"),
    ("audit", "verify"),
    ("evidence",),
    ("bus", "status"),
    ("mail", "agents"),
    ("mail", "inbox", "--as", "coder"),
    ("mail", "dead"),
    ("mail", "workflow"),
]
# These start every child, so one width has to do.
STARTING = [("--dry-run",), ("tokens",), ("doctor",), ("doctor", "--host", "codex")]
CASES = [(arguments, columns) for arguments in SHOWN for columns in WIDTHS]


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    """Somebody whose servers are behind Switchboard; those that need a network or a download are gone."""
    person = Person(tmp_path_factory.mktemp("narrow"), *HOSTS)
    run(person, "init", "--yes", "--mail", "--find")
    for child in (person.workspace / ".switchboard" / "mcps").iterdir():
        if not child.name.startswith(("mock", "team-db")):
            (child / ".mcp.json").unlink()
    run(person, "mail", "agents", "add", "coder", "--purpose", "writes " + "very much " * 20)
    run(person, "list", "--refresh")
    return person


def run(person: Person, *arguments: str) -> None:
    command = [*arguments, "--workspace", str(person.workspace)]
    command_server.run(command, person.workspace, person.environment(MOCK_TOKEN="x"))


def lines_at(person: Person, columns: int, *arguments: str) -> list[str]:
    """Return the lines that a terminal of this width shows, without colours."""
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with open(os.devnull) as nothing:
        process = command_server.start(
            [*arguments, "--workspace", str(person.workspace)],
            person.workspace,
            person.environment(TERM="xterm", MOCK_TOKEN="x"),
            (nothing.fileno(), theirs, theirs),
        )
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(terminal, 65536):
            shown += data
    except OSError:  # how a terminal says that everybody has gone
        pass
    os.close(terminal)
    process.wait(PATIENCE_S)
    text = SEQUENCE.sub("", shown.decode()).replace("\r\n", "\n")
    return [line.rpartition("\r")[2] for line in text.split("\n")]


def too_wide(lines: list[str], columns: int) -> list[str]:
    # A single long word, such as a path, is left for the terminal to break, so that it can be copied.
    return [line for line in lines if visible_width(line) > columns and len(line.split()) > 1]


@each_case(("arguments", "columns"), [*CASES, *((arguments, 60) for arguments in STARTING)])
def test_what_a_command_prints_fits_the_terminal(
    person: Person, arguments: tuple[str, ...], columns: int
) -> None:
    lines = lines_at(person, columns, *arguments)
    assert any(line.strip() for line in lines)
    assert too_wide(lines, columns) == []


def test_a_narrow_terminal_gets_the_columns_that_matter(tmp_path: Path) -> None:
    person = Person(tmp_path, *HOSTS)
    narrow = "\n".join(lines_at(person, 60, "init", "--dry-run"))
    wide = "\n".join(lines_at(person, 160, "init", "--dry-run"))
    assert "WHAT HAPPENS" in narrow
    assert "RUNS" not in narrow
    assert "RUNS" in wide
