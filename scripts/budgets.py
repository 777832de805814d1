#!/usr/bin/env python3
"""Measures the size of the project, and fails if a figure is above its budget in budgets.toml.

scripts/budgets.py            check every figure but the number of test items
scripts/budgets.py --items N  check the number of test items, which `make test` knows
scripts/budgets.py --all      print all figures beside their budgets
scripts/budgets.py --write    lower the budgets that are too high, and add those that are missing; none is raised
"""

from __future__ import annotations

import ast
import json
import math
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
FILE = REPO / "budgets.toml"
PACKAGE = REPO / "src" / "switchboard_mcp"
# A budget that is higher than the figure by more than this share should be lowered.
MAX_ROOM = 0.03
# The room that `--write` leaves.
ROOM = 0.01
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CONSTANT = re.compile(r"^_?[A-Z][A-Z0-9_]+$")
GENERATED = "<!-- Written by scripts/"
HEAD = """\
# How large the project may be. `make check` fails above a budget (scripts/budgets.py, scripts/hot_path.py).
# Budgets only go down: `scripts/budgets.py --write` lowers those that are too high. One is raised by hand, in a commit
# that says what it pays for and why nothing else could go.
"""

Figures = dict[str, dict[str, int]]


def source_figures() -> Figures:
    """Return lines and modules per package, and what the whole package has of everything."""
    lines: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    code = constants = limits = 0
    attributes, methods = [0], [0]
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        parts = path.relative_to(PACKAGE).parts
        package = parts[0] if len(parts) > 1 else "top level"
        lines[package] += text.count("\n")
        modules[package] += 1
        code += _lines_of_code(path, text, tree)
        names = [name for name in _assigned(tree) if CONSTANT.match(name)]
        constants += len(names)
        limits += sum("MAX_" in name or name.endswith("_MAX") for name in names)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                attributes.append(len(_attributes(node)))
                methods.append(sum(isinstance(item, FUNCTIONS) for item in node.body))
    whole = {
        "lines": lines.total(),
        "lines_of_code": code,
        "modules": modules.total(),
        "module_constants": constants,
        "limit_constants": limits,
        "attributes_of_the_largest_class": max(attributes),
        "methods_of_the_largest_class": max(methods),
    }
    return {"lines": dict(lines), "modules": dict(modules), "whole": whole}


def _lines_of_code(path: Path, text: str, tree: ast.Module) -> int:
    """Count the lines that are not blank, docstring, comment or import."""
    other = {number for number, line in enumerate(text.splitlines(), 1) if not line.strip()}
    for node in ast.walk(tree):
        is_docstring = isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
        if is_docstring or isinstance(node, ast.Import | ast.ImportFrom):
            other |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#"):
                other.add(token.start[0])
    return text.count("\n") - len(other)


def _assigned(tree: ast.Module) -> list[str]:
    """Return the names that a module assigns at its top level."""
    names = []
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        names += [target.id for target in targets if isinstance(target, ast.Name)]
    return names


def _attributes(node: ast.ClassDef) -> set[str]:
    """Return the attributes that a class sets on `self`."""
    return {
        item.attr
        for item in ast.walk(node)
        if isinstance(item, ast.Attribute)
        and isinstance(item.ctx, ast.Store)
        and isinstance(item.value, ast.Name)
        and item.value.id == "self"
    }


def surface_figures() -> dict[str, int]:
    """Return how many settings and commands there are, and how many modules the ways to serve import."""
    from switchboard_mcp.cli.index import ALL_COMMANDS

    schema = json.loads((PACKAGE / "schemas/switchboard.config.schema.json").read_text(encoding="utf-8"))
    structures = [schema, *schema.get("$defs", {}).values()]
    figures = {
        "settings": sum(len(structure.get("properties", {})) for structure in structures),
        "commands": len(ALL_COMMANDS),
    }
    for entry in ("app", "broker_app", "http_app"):
        code = f"import sys, switchboard_mcp.{entry}; print(sum(m.startswith('switchboard_mcp') for m in sys.modules))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        figures[f"modules_imported_with_{entry}"] = int(done.stdout)
    return figures


def text_figures() -> dict[str, int]:
    """Return the words of documentation that people write, and the lines of tests."""
    folders = [REPO / folder for folder in ("docs", "examples")]
    pages = [*REPO.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]
    texts = [page.read_text(encoding="utf-8") for page in pages if page.name != "CHANGELOG.md"]
    tests = [path for path in (REPO / "tests").rglob("*.py") if "node_modules" not in path.parts]
    return {
        "words_of_documentation": sum(len(text.split()) for text in texts if GENERATED not in text[:2000]),
        "lines_of_tests": sum(path.read_text(encoding="utf-8").count("\n") for path in tests),
    }


def measure() -> Figures:
    figures = source_figures()
    figures["whole"] |= surface_figures() | text_figures()
    return figures


def compare(figures: Figures, budgets: Figures, *, show_all: bool) -> int:
    """Print what is above its budget or well below it. Return 1 if anything is above."""
    exceeded, roomy = [], []
    for table, values in figures.items():
        for name, value in values.items():
            budget = budgets.get(table, {}).get(name)
            label = f"{table}, {name}: {value:,}"
            if budget is None:
                exceeded.append(f"✗ {label} (no budget yet: run scripts/budgets.py --write)")
            elif value > budget:
                exceeded.append(f"✗ {label} (budget {budget:,}). What can go?")
            elif budget - value > max(1, MAX_ROOM * budget):
                roomy.append(f"  {label} (budget {budget:,})")
            elif show_all:
                print(f"  {label} (budget {budget:,})")
    if roomy:
        print("Well below the budget; lower it with scripts/budgets.py --write:", *roomy, sep="\n")
    if exceeded:
        print(*exceeded, sep="\n")
    return 1 if exceeded else 0


def lowered(figures: Figures, budgets: Figures) -> Figures:
    """Return the budgets with a little room above the figures, none higher than before. Those of what is gone go."""
    result: Figures = {}
    for table, values in figures.items():
        old = budgets.get(table, {})
        result[table] = {
            name: min(old.get(name, 1 << 62), math.ceil(value * (1 + ROOM))) for name, value in values.items()
        }
    kept = {"python_calls": budgets.get("python_calls", {}), "tests": budgets.get("tests", {})}
    return result | kept


def write(budgets: Figures) -> None:
    lines = [HEAD]
    for table, values in budgets.items():
        lines.append(f"[{table}]")
        lines += [
            f"{name if name.isidentifier() else json.dumps(name)} = {value}" for name, value in values.items()
        ]
        lines.append("")
    FILE.write_text("\n".join(lines), encoding="utf-8")


def main() -> int:
    budgets: Figures = tomllib.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if "--items" in sys.argv:
        items = int(sys.argv[sys.argv.index("--items") + 1])
        return compare({"tests": {"items": items}}, budgets, show_all=False)
    figures = measure()
    if "--write" in sys.argv:
        write(lowered(figures, budgets))
        return 0
    return compare(figures, budgets, show_all="--all" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
