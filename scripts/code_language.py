#!/usr/bin/env python3
"""Measures the language and layout of the package and of the tests, and fails if a figure exceeds its limit.

scripts/code_language.py            print every figure beside its limit
scripts/code_language.py --list     also list each place behind a figure that exceeds its limit

The limits are a ratchet: lower one when the code gets better, never raise one. `CONTRIBUTING.md` says how we write.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
PACKAGE = "switchboard_mcp"
QUESTION = re.compile(
    r"(what|who|whose|whom|whether|where|wherever|how|why|when|which|nobody|somebody|anybody|nothing|something"
    r"|see the module)\b",
    re.IGNORECASE,
)
# Variables that say that somebody spoke instead of what they hold.
VAGUE_NAMES = {"told", "asked", "said", "given", "meant"}
# Participles and pronouns where a noun of the field fits.
NO_NOUNS = {"found", "one", "each", "known", "held", "taken", "made"}
# Parts of a regular expression, and the quantifiers that never give back what they matched.
ESCAPE = re.compile(r"\\.")
CHARACTER_CLASS = re.compile(r"\[\^?\]?[^\]]*\]")
NEVER_BACK = re.compile(r"[*+?}]\+|\(\?>")
TEST_THAT_ASKS = re.compile(
    r"test_(what|who|whose|whom|whether|where|why|how|nobody|nothing|somebody|something)_"
)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Module:
    """One source file, parsed."""

    path: Path
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def name(self) -> str:
        parts = self.path.relative_to(REPO).with_suffix("").parts
        parts = parts[1:] if parts[0] == "src" else parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def at(self, node: ast.AST, text: str) -> str:
        return f"{self.path.relative_to(REPO)}:{getattr(node, 'lineno', 1)}: {text}"


Measure = Callable[[list[Module]], tuple[float, list[str]]]


def questions_in_docstrings(modules: list[Module]) -> tuple[float, list[str]]:
    documented, places = 0, []
    for module in modules:
        for node in module.nodes:
            text = ast.get_docstring(node) if isinstance(node, DEFINITIONS) else None
            if text:
                documented += 1
                if QUESTION.match(text):
                    places.append(module.at(node, text.partition("\n")[0]))
    return 100 * len(places) / max(1, documented), places


def vague_names(modules: list[Module]) -> tuple[float, list[str]]:
    return _variables(modules, VAGUE_NAMES)


def names_without_a_noun(modules: list[Module]) -> tuple[float, list[str]]:
    return _variables(modules, NO_NOUNS)


def _variables(modules: list[Module], names: set[str]) -> tuple[float, list[str]]:
    places = []
    for module in modules:
        for node in module.nodes:
            name = node.arg if isinstance(node, ast.arg) else ""
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            if name in names:
                places.append(module.at(node, name))
    return len(places), places


def shared_class_names(modules: list[Module]) -> tuple[float, list[str]]:
    found = defaultdict(list)
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module.at(node, node.name))
    places = [place for group in found.values() if len(group) > 1 for place in group]
    return 100 * len(places) / max(1, sum(map(len, found.values()))), places


def shared_file_names(modules: list[Module]) -> tuple[float, list[str]]:
    found = Counter(module.path.name for module in modules if module.path.name != "__init__.py")
    places = [name for name, count in found.items() if count > 1]
    return len(places), places


def largest_folder(modules: list[Module]) -> tuple[float, list[str]]:
    counts = Counter(module.path.parent for module in modules)
    return max(counts.values(), default=0), [str(folder) for folder, _ in counts.most_common(1)]


def foreign_private_members(modules: list[Module]) -> tuple[float, list[str]]:
    places = []
    for module in modules:
        for node in module.nodes:
            if not isinstance(node, ast.Attribute) or not re.match(r"_[^_]", node.attr):
                continue
            owner = node.value
            own = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
            inherited = isinstance(owner, ast.Call) and getattr(owner.func, "id", "") == "super"
            if not own and not inherited:
                places.append(module.at(node, ast.unparse(node)))
    return len(places), places


def deepest_inheritance(modules: list[Module]) -> tuple[float, list[str]]:
    bases: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                bases[node.name] |= {getattr(base, "id", getattr(base, "attr", "")) for base in node.bases}

    def chain(name: str, seen: tuple[str, ...] = ()) -> tuple[str, ...]:
        if name not in bases or name in seen:
            return seen
        return max((chain(base, (*seen, name)) for base in bases[name]), key=len, default=(*seen, name))

    longest = max((chain(name) for name in list(bases)), key=len, default=())
    return len(longest), [" < ".join(longest)]


def abstract_methods(modules: list[Module]) -> tuple[float, list[str]]:
    places = [
        module.at(node, "NotImplementedError")
        for module in modules
        for node in module.nodes
        if isinstance(node, ast.Name) and node.id == "NotImplementedError"
    ]
    return len(places), places


def imports_in_functions(modules: list[Module]) -> tuple[float, list[str]]:
    places = [
        module.at(node, f"from {node.module}")
        for module in modules
        for function in module.nodes
        if isinstance(function, FUNCTIONS)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE)
    ]
    return len(places), places


def largest_import_cycle(modules: list[Module]) -> tuple[float, list[str]]:
    """Count the modules of the largest cycle of imports at module level, those for type checkers included."""
    names = {module.name for module in modules}
    graph = {module.name: set(_imports(module, names)) for module in modules}
    cycle = max(_components(graph), key=len, default=set())
    return (len(cycle), sorted(cycle)) if len(cycle) > 1 else (0, [])


def _imports(module: Module, names: set[str]) -> Iterator[str]:
    functions = [node for node in module.nodes if isinstance(node, FUNCTIONS)]
    lazy = {id(node) for function in functions for node in ast.walk(function)}
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.module and id(node) not in lazy:
            for alias in node.names:
                target = f"{node.module}.{alias.name}"
                if (name := target if target in names else node.module) in names:
                    yield name


def _components(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected components (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in graph[name]:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = stack.index(name)
            components.append(set(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in index:
            visit(name)
    return components


def patterns_that_never_go_back(modules: list[Module]) -> tuple[float, list[str]]:
    """Find possessive quantifiers and atomic groups: Python 3.11.0 to 3.11.4 match them wrongly."""
    places = []
    for module in modules:
        text = module.path.read_text("utf-8")
        if not NEVER_BACK.search(text):
            continue
        with module.path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                # Regular expressions are raw strings.
                if (
                    token.type != tokenize.STRING
                    or "r" not in token.string[:3].partition(token.string[-1])[0].lower()
                ):
                    continue
                if NEVER_BACK.search(CHARACTER_CLASS.sub("x", ESCAPE.sub("x", token.string))):
                    places.append(f"{module.path.relative_to(REPO)}:{token.start[0]}: {token.string[:80]}")
    return len(places), places


def names_of_tests_that_ask(modules: list[Module]) -> tuple[float, list[str]]:
    """Find tests whose name begins with a question word instead of saying what happens."""
    places = [
        module.at(node, node.name)
        for module in modules
        for node in module.nodes
        if isinstance(node, FUNCTIONS) and TEST_THAT_ASKS.match(node.name)
    ]
    return len(places), places


# File names, nouns and imports inside functions: higher while the new store of mail stands beside the old one.
FIGURES: tuple[tuple[str, Measure, float], ...] = (
    ("docstrings that begin with a question word, %", questions_in_docstrings, 3),
    ("variables named told, asked, said, given, meant", vague_names, 0),
    ("variables named found, one, each, known, held, taken, made", names_without_a_noun, 160),
    ("classes that share their name, %", shared_class_names, 4.1),
    ("file names used twice", shared_file_names, 12),
    ("modules in the largest folder", largest_folder, 25),
    ("uses of another object's private members", foreign_private_members, 8),
    ("depth of inheritance", deepest_inheritance, 4),
    ("NotImplementedError", abstract_methods, 7),
    ("imports of the package inside functions", imports_in_functions, 49),
    ("modules in the largest import cycle", largest_import_cycle, 5),
    ("possessive quantifiers and atomic groups", patterns_that_never_go_back, 0),
)
FIGURES_OF_TESTS: tuple[tuple[str, Measure, float], ...] = (
    ("names of tests that begin with a question word", names_of_tests_that_ask, 140),
    ("docstrings that begin with a question word, %", questions_in_docstrings, 6.3),
    ("variables named told, asked, said, given, meant", vague_names, 275),
    ("variables named found, one, each, known, held, taken, made", names_without_a_noun, 1000),
    ("classes that share their name, %", shared_class_names, 30),
    ("uses of another object's private members", foreign_private_members, 75),
    ("depth of inheritance", deepest_inheritance, 3),
)


def main() -> int:
    sys.setrecursionlimit(10_000)
    exceeded = 0
    for folder, figures in (("src/switchboard_mcp", FIGURES), ("tests", FIGURES_OF_TESTS)):
        print(folder)
        modules = [
            Module(path, ast.parse(path.read_text("utf-8")))
            for path in sorted((REPO / folder).rglob("*.py"))
            if "node_modules" not in path.parts
        ]
        for label, measure, limit in figures:
            value, places = measure(modules)
            exceeded += value > limit
            print(f"{'  ' if value <= limit else '✗ '}{label}: {value:.3g} (limit {limit})")
            if value > limit and "--list" in sys.argv:
                print("\n".join(f"    {place}" for place in places))
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
