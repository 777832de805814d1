#!/usr/bin/env python3
"""Checks what pages and texts name: links, tests, commands, settings, configs. Runs no command; takes seconds.

scripts/check_docs.py    print every problem, and fail if there is one
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.pages import (
    PAGES,
    REPO,
    Line,
    blocks,
    command_of,
    commands,
    headings,
    links,
    name_of,
    named_tests,
    prose,
)
from switchboard_mcp.cli.index import ALL_COMMANDS, MAIL_COMMANDS, parser_for
from switchboard_mcp.cli.main import (
    MAIL_OPTIONS_WITH_VALUE,
    OPTIONS_WITH_VALUE,
    split_command,
    split_program,
)
from switchboard_mcp.config.documents import decode_json
from switchboard_mcp.config.load import REMOVED_KEYS, REMOVED_RESTRICTIONS, RENAMED_KEYS, read_config
from switchboard_mcp.errors import KINDS, SwitchboardError
from switchboard_mcp.suites.suite_arguments import SuiteCall

Problems = Iterator[str]
PACKAGE = REPO / "src" / "switchboard_mcp"
HELP = {"--help", "-h", "--version"}


@cache
def sources() -> dict[Path, ast.Module]:
    """Return the modules of the package, parsed."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


# --- links and names -------------------------------------------------------------------------------------------------


def broken_links() -> Problems:
    for page in PAGES:
        for link in links(page):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists():
                yield f"{name_of(page)}: nothing is at {link}"
            elif anchor and target.suffix == ".md" and anchor not in headings(target):
                yield f"{name_of(page)}: no heading for {link}"


def modules_of_the_map() -> Problems:
    """Yield paths in the map of the code that do not exist."""
    text = (REPO / "docs" / "code.md").read_text(encoding="utf-8")
    for path in re.findall(r"`([a-z]+(?:/\w+)*\.py)`", text):
        if not any((place / path).exists() for place in (PACKAGE, REPO)):
            yield f"docs/code.md: there is no module {path}"


def numbers_of_decisions() -> Problems:
    numbers = set[int]()
    for page in sorted((REPO / "docs" / "adr").glob("[0-9]*.md")):
        number = int(page.name.partition("-")[0])
        if number in numbers:
            yield f"{name_of(page)}: another decision has this number"
        numbers.add(number)
        if not page.read_text(encoding="utf-8").startswith(f"# {number}."):
            yield f"{name_of(page)}: the title does not begin with '# {number}.'"


def pages_named_in_code() -> Problems:
    for path in sources():
        for page in re.findall(r"docs/[\w/-]+\.md", path.read_text(encoding="utf-8")):
            # docs/plan.md is a file of the reader's, in an example.
            if page != "docs/plan.md" and not (REPO / page).exists():
                yield f"{name_of(path)}: there is no page {page}"


def figures_of_the_picture() -> Problems:
    picture = (REPO / "docs/picture.svg").read_text(encoding="utf-8")
    (before,) = re.findall(r"44 tools +([\d,]+) tokens", picture)
    (after,) = re.findall(r"4 suites +([\d,]+) tokens", picture)
    sentence = f"44 tools with {before} tokens become 4 suites with {after}"
    for page in ("README.md", "docs/index.md"):
        if sentence not in (REPO / page).read_text(encoding="utf-8"):
            yield f"{page}: the description of the picture does not say '{sentence}'"


# --- tests that pages name -------------------------------------------------------------------------------------------


@cache
def tests_of(path: str) -> frozenset[str]:
    """Return the tests of a file by the name pytest gives them, those of classes as `Class::name`."""
    names = set[str]()
    for node in ast.parse((REPO / path).read_text(encoding="utf-8")).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        functions = (m for m in members if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef))
        names |= {prefix + function.name for function in functions}
    return frozenset(names)


def missing_tests() -> Problems:
    for page in PAGES:
        for path, name in named_tests(page.read_text(encoding="utf-8")):
            if not (REPO / path).exists() or name not in tests_of(path):
                yield f"{name_of(page)}: there is no test {path}::{name}"


def requirements_without_evidence() -> Problems:
    text = (REPO / "docs" / "seeds.md").read_text(encoding="utf-8")
    requirements, _, decisions = text.partition("## Decisions")
    numbers = set(re.findall(r"^\| (\d+) \|", decisions, re.MULTILINE))
    for row in requirements.splitlines():
        if not row.startswith("| ") or "---" in row or "| requirement |" in row:
            continue
        evidence = row.rsplit("|", 2)[1]
        if "::" not in evidence and "](" not in evidence:
            yield f"docs/seeds.md: no test and no page: {row}"
    for number in set(re.findall(r"\[decision (\d+)\]", requirements)) - numbers:
        yield f"docs/seeds.md: there is no decision {number}"


def threats_without_evidence() -> Problems:
    text = (REPO / "SECURITY.md").read_text(encoding="utf-8")
    model = text.partition("## Threat model")[2].partition("## Scope")[0]
    for row in model.splitlines():
        if not row.startswith("| ") or row.startswith(("| threat |", "| ---")):
            continue
        cells = [cell.strip() for cell in row.replace("\\|", "").split("|")[1:-1]]
        if len(cells) != 4 or not all(cells) or not named_tests(cells[2]):
            yield f"SECURITY.md: a threat needs a defence, a test and limits: {row[:120]}"


# --- commands --------------------------------------------------------------------------------------------------------


def commands_of_pages() -> Problems:
    for line in commands():
        # The changelog names commands that are gone.
        if line.page != "CHANGELOG.md" and (problem := _problem_of(line)):
            yield f"{line}: {problem}"


def _problem_of(line: Line) -> str:
    command, rest = command_of(line)
    known = {*ALL_COMMANDS, ""}
    if line.is_pattern and command not in known:
        command = command.partition(" ")[0]  # `mail COMMAND`: any of them
    if command not in known:
        return f"there is no command '{command}'"
    if command.startswith("mail") and command not in MAIL_COMMANDS:
        return ""
    own, _ = split_program(rest)
    parser = parser_for(command or "serve")
    used = {word.partition("=")[0].strip("[](),") for word in own if word.lstrip("[(").startswith("--")}
    if unknown := used - {*parser.flags, *HELP}:
        return f"there is no option {', '.join(sorted(unknown))}"
    if line.is_pattern or " ".join(line.words) == command or HELP & set(own):
        return ""
    try:
        parser.parse(own)
    except SwitchboardError as error:
        return str(error)
    return ""


# --- commands in the texts of the program ----------------------------------------------------------------------------

QUOTED = re.compile(r"`(switchboard(?: [^`]*)?)`")
# A text that is a command as a whole, or ends in one: `Run: switchboard …`, `…, or look: switchboard …`.
BARE = re.compile(r"(?:^|: )(switchboard [^`]+)$")
# A command that is neither in backticks nor behind a colon cannot be told from the sentence around it.
FIRST_WORDS = "|".join(sorted({name.split()[0] for name in ALL_COMMANDS if name}))
LOOSE = re.compile(rf"(?<![`\w./-])switchboard (?:{FIRST_WORDS})\b")
# Texts that show how commands look, and are none: usage lines, a prefix of a log line.
NO_REMEDIES = ("cli/parser.py", "cli/main.py", "cli/mail/hook.py")
PLACEHOLDERS = re.compile(r" …$| > x$")
# Names of agents need no quotes: `is_agent_name` allows letters, digits and dashes.
AGENT_NAMES = ("cli/mail/", "mail/")
QUOTING = ("quote(", "shlex.quote(", "shell_word(")
FILLED = "x"


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return every text of the sources except docstrings, with its place; a formatted value becomes a word."""
    return tuple(text for path, tree in sources().items() for text in _texts_of(path, tree))


def _texts_of(path: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
    skipped = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):  # docstrings of modules, classes, functions and fields
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in ast.walk(node) if part is not node)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        place = f"{name_of(path)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield place, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else FILLED for part in node.values)
            yield place, "".join(parts)


def remedies_that_cannot_be_typed() -> Problems:
    found = {
        (f"errors.KINDS[{code}]", command)
        for code, kind in KINDS.items()
        for command in QUOTED.findall(kind.hint)
    }
    for place, text in texts():
        if any(file in place for file in NO_REMEDIES):
            continue
        found |= {(place, command) for command in QUOTED.findall(text)}
        if (match := BARE.search(text)) and "[OPTIONS]" not in text:
            found.add((place, match[1]))
    for place, command in sorted(found):
        if problem := _problem_of_remedy(command):
            yield f"{place}: `{command}`: {problem}"


def _problem_of_remedy(text: str) -> str:
    if text.endswith("."):
        return "it is a sentence; put the command into backticks"
    command, rest = split_command(shlex.split(PLACEHOLDERS.sub("", text))[1:], OPTIONS_WITH_VALUE)
    if command == "mail":
        word, rest = split_command(rest, MAIL_OPTIONS_WITH_VALUE)
        command = f"mail {word}".strip()
    if command == FILLED:
        return ""  # no command, but a name such as `switchboard {workspace}`
    if command not in {*ALL_COMMANDS, ""}:
        return f"there is no command '{command}'"
    if HELP & set(rest) or (command.startswith("mail") and command not in MAIL_COMMANDS):
        return ""
    if command == "token":
        rest = ["new" if word == FILLED else word for word in rest]
    try:
        parser_for(command or "serve").parse(split_program(rest)[0])
    except SwitchboardError as error:
        return str(error)
    return "approve needs a child or an option" if command == "approve" and not rest else ""


def names_not_quoted_for_the_shell() -> Problems:
    for path, tree in sources().items():
        if path.relative_to(PACKAGE).as_posix().startswith(AGENT_NAMES):
            continue
        for node in ast.walk(tree):
            text = ""
            for part in node.values if isinstance(node, ast.JoinedStr) else ():
                if not isinstance(part, ast.FormattedValue):
                    text += str(part.value) if isinstance(part, ast.Constant) else ""
                    continue
                value = ast.unparse(part.value)
                in_command = text.count("`") % 2 == 1 and text.rpartition("`")[2].startswith("switchboard ")
                if in_command and not value.startswith(QUOTING):
                    yield f"{name_of(path)}:{part.lineno}: {value} in a command is not quoted for the shell"
                text += FILLED


def commands_without_backticks() -> Problems:
    for place, text in texts():
        own_line = text.strip().startswith(("$ switchboard", "switchboard mail workflow"))
        if "\n" not in text and not own_line and LOOSE.search(BARE.sub("", QUOTED.sub("", text))):
            yield f"{place}: put the command into backticks: {text}"


# --- settings --------------------------------------------------------------------------------------------------------

SCHEMA: dict[str, Any] = json.loads(
    (PACKAGE / "schemas" / "switchboard.config.schema.json").read_text(encoding="utf-8")
)
TOP = frozenset(SCHEMA["properties"])
# Names that stand for any: `suites.<child>.pin`, `profiles.NAME`, and examples such as `suites.github.pin`.
DOTTED = re.compile(r"`([a-z][A-Za-z]*(?:\.[A-Za-z<>_*-]+)+)`")
# Files, and the keys of other things, that look the same.
FILES = re.compile(r"\.(json|toml|md|py|pyi|yaml|yml|js|ts|env|svg|txt|lock|key|sh)$")
# Names of events in the log.
EVENTS = frozenset(
    "ask.done mail.look_failed mail.maintenance_failed mail.refused mail.starving mail.unread_overdue".split()
)
# A page of dotted module names.
MODULES = "docs/reference/modules.md"


def settings_that_do_not_exist() -> Problems:
    for page in PAGES:
        if name_of(page) == MODULES:
            continue
        # The changelog names settings that are gone.
        is_history = page.name == "CHANGELOG.md"
        for path in sorted(set(DOTTED.findall(prose(page.read_text(encoding="utf-8"))))):
            if path.partition(".")[0] not in TOP or FILES.search(path) or path in EVENTS:
                continue
            if is_history and path in (REMOVED_KEYS | REMOVED_RESTRICTIONS):
                continue
            if not _is_setting(RENAMED_KEYS.get(path, path) if is_history else path):
                yield f"{name_of(page)}: there is no setting {path}"


def _is_setting(path: str) -> bool:
    node = SCHEMA
    for part in path.split("."):
        node = _resolved(node)
        more = node.get("additionalProperties")
        if part in node.get("properties", {}):
            node = node["properties"][part]
        elif isinstance(more, dict):
            node = more
        else:  # free form, such as the options of a middleware
            return node.get("type") == "object" and "properties" not in node
    return True


def _resolved(node: dict[str, Any]) -> dict[str, Any]:
    for link in [node, *node.get("allOf", []), *node.get("anyOf", [])]:
        if "$ref" in link:
            definition: dict[str, Any] = SCHEMA["$defs"][link["$ref"].rpartition("/")[2]]
            return definition
    return node


def configs_that_are_refused() -> Problems:
    """Yield the examples on pages that are configs of Switchboard, or of a host in the same form, and fail."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "switchboard.config.json"
        for page in PAGES:
            for kind, block in blocks(page.read_text(encoding="utf-8")):
                config = _config_of(kind, block)
                if config is None:
                    yield f"{name_of(page)}: not valid {kind}: {block[:120]}"
                if not config or not set(config) <= TOP | {"$schema"}:
                    continue
                file.write_text(json.dumps(config))
                try:
                    read_config(str(file))
                except SwitchboardError as error:
                    yield f"{name_of(page)}: {error}"


def _config_of(kind: str, block: str) -> dict[str, Any] | None:
    """Return what a block holds, empty if it is no config; None if it cannot be read."""
    several = len(re.findall(r"^\{", block, re.MULTILINE)) > 1
    if kind in ("json", "jsonc") and "…" not in block and not several:
        value = decode_json(block.encode())
        if isinstance(value, list):
            return {}
        return value if isinstance(value, dict) else None
    return tomllib.loads(block) if kind == "toml" and "mcp_servers" not in block else {}


def arguments_missing_in_the_concepts() -> Problems:
    page = (REPO / "docs" / "concepts.md").read_text(encoding="utf-8")
    section = page.partition("## Suite arguments and results")[2].partition("\n## ")[0]
    shown = set(re.findall(r'"(\w+)":', section))
    # `op` and `arguments` are accepted spellings.
    for name in set(SuiteCall.__struct_fields__) - shown - {"op", "arguments"}:
        yield f"docs/concepts.md: the argument {name} of a suite is not shown"


CHECKS: tuple[Callable[[], Problems], ...] = (
    broken_links,
    modules_of_the_map,
    numbers_of_decisions,
    pages_named_in_code,
    figures_of_the_picture,
    missing_tests,
    requirements_without_evidence,
    threats_without_evidence,
    commands_of_pages,
    remedies_that_cannot_be_typed,
    names_not_quoted_for_the_shell,
    commands_without_backticks,
    settings_that_do_not_exist,
    configs_that_are_refused,
    arguments_missing_in_the_concepts,
)


def main() -> int:
    problems = [problem for check in CHECKS for problem in check()]
    print("\n".join(problems) or f"{len(PAGES)} pages, {len(commands())} commands, {len(sources())} modules")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
