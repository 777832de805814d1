"""The map of the code: packages and modules by the first lines of their docstrings."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "switchboard_mcp"
BEGIN, END = "<!-- packages -->", "<!-- end -->"

INDEX = """\
# Modules

{note}

Every module of `src/switchboard_mcp`, with the first line of its docstring.
[A map of the code](../code.md) says where to start.

{sections}
"""


def summary(path: Path) -> str:
    """Return the first paragraph of a module's docstring in one line."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def start(path: Path) -> str:
    """Return where a package's docstring says to start."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    found = re.search(r"^Start with (.*?)\.?$", text, re.MULTILINE)
    return found[1] if found else ""


def packages() -> list[Path]:
    """Return all packages, outer before inner, in the order of the layers: highest first."""
    layers = re.findall(r"\(?(\w+)\)?", _layers())
    found = [path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE]
    return sorted(found, key=lambda path: (_rank(path, layers), path.relative_to(SOURCE).as_posix()))


def _layers() -> str:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    return text.partition("layers = [")[2].partition("]")[0]


def _rank(path: Path, layers: list[str]) -> int:
    top = path.relative_to(SOURCE).parts[0]
    return layers.index(top) if top in layers else len(layers)


def code_map(page: Path) -> str:
    """Return docs/code.md with its table of packages as the code has them now."""
    text = page.read_text("utf-8")
    before, found, rest = text.partition(BEGIN)
    if not found:
        raise SystemExit(f"{page}: the line {BEGIN} is missing")
    rows = ["| package | what it is for | start with |", "| --- | --- | --- |"]
    for folder in packages():
        init = folder / "__init__.py"
        rows.append(f"| `{folder.relative_to(SOURCE).as_posix()}` | {summary(init)} | {start(init)} |")
    table = "\n".join(rows)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}"


def modules(note: str) -> str:
    """Return the index of all modules."""
    sections = []
    for folder in [SOURCE, *packages()]:
        name = folder.relative_to(SOURCE.parent).as_posix()
        rows = [
            f"| `{path.stem}` | {summary(path)} |"
            for path in sorted(folder.glob("*.py"))
            if path.name != "__init__.py"
        ]
        if rows:
            head = f"## {name}\n\n{summary(folder / '__init__.py')}".rstrip()
            sections.append("\n".join([head, "", "| module | |", "| --- | --- |", *rows]))
    return INDEX.format(note=note, sections="\n\n".join(sections))
