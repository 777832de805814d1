"""Finds the commands, settings and links in the Markdown pages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct

from switchboard_mcp.cli.main import MAIL_OPTIONS_WITH_VALUE, OPTIONS_WITH_VALUE, split_command

REPO = Path(__file__).resolve().parent.parent
PAGES = sorted(
    page
    for folder in ("docs", "examples", ".github")
    for page in (REPO / folder).rglob("*.md")
    if "node_modules" not in page.parts
) + sorted(REPO.glob("*.md"))
FENCE = re.compile(r"^([ \t]*)```(\w*)[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
# A command in a line of a terminal: at the beginning, or after a prompt, variables or a pipe.
START = re.compile(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(?:[^|#`]*\| )?(?:[\w./~-]*/)?switchboard(?= |$)(.*)$")
# Two columns: the text after the gap explains the command. A comment does so too.
GAP = re.compile(r"\s{2,}\S|\s#\s")
# A placeholder, or alternatives in one line: not to be typed as shown.
PATTERN = re.compile(r"[\[\]<>…|]|\b[A-Z][A-Z_]+\b(?!=)")


class Line(Struct, frozen=True):
    """One command as a page shows it."""

    page: str
    text: str

    @property
    def words(self) -> list[str]:
        """Return the arguments as a shell would pass them, up to a redirection or another command."""
        found = shlex.split(self.text)
        ends = [at for at, word in enumerate(found) if word in ("|", "&&", "||", ";", "&", ">", "<")]
        return found[: ends[0]] if ends else found

    @property
    def is_pattern(self) -> bool:
        """Return True if the reader has to fill something in."""
        return PATTERN.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", self.text)) is not None

    def __str__(self) -> str:
        return f"{self.page}: switchboard {self.text}"


def command_of(line: Line) -> tuple[str, list[str]]:
    """Return the name of a line's command, and its own arguments."""
    command, rest = split_command(line.words, OPTIONS_WITH_VALUE)
    command = command.strip("[]")
    if command == "help":
        return (rest[0] if rest and not line.is_pattern else ""), ["--help"]
    if command == "mail":
        word, rest = split_command(rest, MAIL_OPTIONS_WITH_VALUE)
        command = f"mail {word}".strip()
    return command, rest


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield language and content of each fenced block."""
    for match in FENCE.finditer(text):
        yield match[2], match[3]


def prose(text: str) -> str:
    """Return everything outside fenced blocks."""
    return FENCE.sub("", text)


def name_of(page: Path) -> str:
    """Return the path of a page in the repository."""
    return page.relative_to(REPO).as_posix()


@cache
def commands() -> list[Line]:
    """Return every `switchboard …` of every page, each once."""
    found: dict[str, Line] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        shown = [
            line
            for kind, block in blocks(text)
            if kind in ("", "console", "sh", "bash")
            for line in joined(block)
        ]
        shown += re.findall(r"(?<!`)`((?:\$ )?switchboard [^`\n]+)`(?!`)", prose(text))
        for line in shown:
            if match := START.match(line):
                command = GAP.split(match[1], maxsplit=1)[0].strip()
                found.setdefault(command, Line(name_of(page), command))
    return [line for line in found.values() if line.text]


def joined(block: str) -> list[str]:
    """Return the lines of a block; one that ends in a backslash is joined with the next."""
    return re.sub(r"\\\n\s*", "", block).splitlines()


def links(page: Path) -> list[str]:
    """Return every link of a page that stays in the repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text(encoding="utf-8")))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def named_tests(text: str) -> list[tuple[str, str]]:
    """Return file and name of every test that a page names."""
    return re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", text)


@cache
def headings(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub makes them."""
    found: set[str] = set()
    for title in re.findall(r"^#+ (.*)$", prose(page.read_text(encoding="utf-8")), re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        count = 0
        while (name := f"{words}-{count}" if count else words) in found:
            count += 1
        found.add(name)
    return found
