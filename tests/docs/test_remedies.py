"""Every command that an error, a hint or a help text names can be typed as it stands: our own parsers accept it."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from switchboard_mcp.cli.index import ALL_COMMANDS, MAIL_COMMANDS, parser_for
from switchboard_mcp.cli.main import (
    MAIL_OPTIONS_WITH_VALUE,
    OPTIONS_WITH_VALUE,
    split_command,
    split_program,
)
from switchboard_mcp.errors import KINDS
from tests.docs.pages import REPO

SOURCES = sorted((REPO / "src" / "switchboard_mcp").rglob("*.py"))
QUOTED = re.compile(r"`(switchboard(?: [^`]*)?)`")
# A text that is a command as a whole, or ends in one: `Run: switchboard …`, `…, or look: switchboard …`.
BARE = re.compile(r"(?:^|: )(switchboard [^`]+)$")
# A command that is neither in backticks nor behind a colon cannot be told from the sentence around it.
FIRST_WORDS = "|".join(sorted({name.split()[0] for name in ALL_COMMANDS if name}))
LOOSE = re.compile(rf"(?<![`\w./-])switchboard (?:{FIRST_WORDS})\b")
# Texts that show how commands look, and are none: usage lines, a prefix of a log line.
NOT_A_REMEDY = ("cli/parser.py", "cli/main.py", "cli/mail/hook.py")
PLACEHOLDERS = re.compile(r" …$| > x$")
# Names of agents need no quotes: `is_agent_name` allows letters, digits and dashes.
AGENT_NAMES = ("cli/mail/", "mail/")
QUOTING = ("quote(", "shlex.quote(", "shell_word(")
FILLED = "x"


class Remedy(Struct, frozen=True):
    """A command that a text of the program names."""

    place: str
    command: str

    def __str__(self) -> str:
        return f"{self.place}: {self.command}"


def texts() -> Iterator[tuple[str, str]]:
    """Every text of the sources except docstrings, with its place; a formatted value becomes a word."""
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        attributes = {
            id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
        }  # descriptions of fields
        parts = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in ast.walk(node)
            if part is not node
        }
        for node in ast.walk(tree):
            if id(node) in docstrings | attributes | parts:
                continue
            place = f"{path.relative_to(REPO)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield place, node.value
            elif isinstance(node, ast.JoinedStr):
                yield (
                    place,
                    "".join(
                        str(part.value) if isinstance(part, ast.Constant) else FILLED for part in node.values
                    ),
                )


def remedies() -> list[Remedy]:
    found = [
        Remedy(f"errors.KINDS[{code}]", command)
        for code, kind in KINDS.items()
        for command in QUOTED.findall(kind.hint)
    ]
    for place, text in texts():
        if any(file in place for file in NOT_A_REMEDY):
            continue
        found += [Remedy(place, command) for command in QUOTED.findall(text)]
        if (match := BARE.search(text)) and "[OPTIONS]" not in text:
            found.append(Remedy(place, match[1]))
    return found


REMEDIES = remedies()


@pytest.mark.parametrize("remedy", REMEDIES, ids=str)
def test_a_command_that_a_text_names_can_be_typed(remedy: Remedy) -> None:
    assert not remedy.command.endswith("."), "it is a sentence; put the command into backticks"
    words = shlex.split(PLACEHOLDERS.sub("", remedy.command))[1:]
    command, rest = split_command(words, OPTIONS_WITH_VALUE)
    if command == "mail":
        word, rest = split_command(rest, MAIL_OPTIONS_WITH_VALUE)
        command = f"mail {word}".strip()
    assert command in {*ALL_COMMANDS, ""}, f"there is no command '{command}'"
    if {"--help", "--version"} & set(rest) or (command.startswith("mail") and command not in MAIL_COMMANDS):
        return
    if command == "token":
        rest = ["new" if word == FILLED else word for word in rest]
    parser_for(command or "serve").parse(split_program(rest)[0])
    assert command != "approve" or rest, "approve needs a child or an option"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(REPO).as_posix())
def test_a_name_in_a_command_is_quoted_for_the_shell(path: Path) -> None:
    if path.relative_to(REPO / "src" / "switchboard_mcp").as_posix().startswith(AGENT_NAMES):
        return
    unquoted = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        text = ""
        for part in node.values if isinstance(node, ast.JoinedStr) else ():
            if isinstance(part, ast.Constant):
                text += str(part.value)
                continue
            assert isinstance(part, ast.FormattedValue)
            value = ast.unparse(part.value)
            in_command = text.count("`") % 2 == 1 and text.rpartition("`")[2].startswith("switchboard ")
            if in_command and not value.startswith(QUOTING):
                unquoted.append(f"line {part.lineno}: {value}")
            text += FILLED
    assert unquoted == []


def test_no_text_names_a_command_that_cannot_be_told_from_its_sentence() -> None:
    loose = [
        f"{place}: {text}"
        for place, text in texts()
        if "\n" not in text
        and not text.strip().startswith(("$ switchboard", "switchboard mail workflow"))  # lines of their own
        and LOOSE.search(BARE.sub("", QUOTED.sub("", text)))
    ]
    assert loose == []


def test_the_sources_name_enough_commands_for_these_tests_to_mean_something() -> None:
    assert len(REMEDIES) > 100
