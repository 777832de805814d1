"""Finds what a program can call, from its source alone, and refuses programs of which that cannot be said.

A mention of a function counts as a call of it, wherever it occurs. A module of a suite may occur only as
`module.function`, and its name may be bound by its import alone, so nothing can reach a function without a mention.
The run enforces the manifest once more. Standard library only: this runs in the helper, since parsing a hostile source
takes long, or fails for lack of memory or stack.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from switchboard_mcp.programs.checking import hints
from switchboard_mcp.programs.checking.names import BUILTIN_MODULES

# Without eval there is no name that is not in the source.
FORBIDDEN = frozenset("eval exec compile globals locals vars __import__ breakpoint".split())
# `type(error).__name__` is common and harmless.
ALLOWED_DUNDERS = frozenset({"__name__"})
MAX_FINDINGS = 20
MAX_LITERAL_CALLS = 500
# Of all literal arguments together; their values travel to the gateway.
MAX_LITERAL_NODES = 10_000
MAX_LITERAL_CHARS = 200_000
MAX_LITERAL_DEPTH = 30
ROOM = {"refusals": MAX_FINDINGS, "hints": MAX_FINDINGS, "literals": MAX_LITERAL_CALLS}

Finding = dict[str, Any]


def analyse(code: str, modules: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """Return the analysis of a program as JSON can carry it. `modules` has the functions of each module.

    `calls` lists the module and function of every mention; `refusals` and `hints` have code, message, line and column,
    and a hint means that the program would fail; `literals` has the literal arguments of each call; `allowed` has the
    lines of statements that run, although the type checker refuses them.
    """
    analysis: dict[str, Any] = {"calls": [], "refusals": [], "hints": [], "literals": [], "allowed": []}
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError) as error:
        analysis["refusals"].append(hints.syntax_finding(error, code))
        return analysis
    except (RecursionError, MemoryError):
        message = "The program is nested too deeply. Use fewer levels of brackets and blocks."
        analysis["refusals"].append(hints.finding("invalid-syntax", message))
        return analysis
    try:
        nodes = list(ast.walk(tree))
        walk = _ManifestWalk(nodes, modules)
        analysis["calls"] = [list(call) for call in walk.calls]
        analysis["refusals"] = walk.refusals
        analysis["literals"] = list(_literals(walk.tool_calls))
        analysis["hints"] = list(islice(hints.find(nodes, walk.functions_of), MAX_FINDINGS))
        analysis["allowed"] = hints.allowed_lines(tree)
    except (RecursionError, MemoryError):
        message = "The program is too large to be checked. Split it."
        analysis["refusals"].append(hints.finding("too-large", message))
    for key, room in ROOM.items():
        analysis[key] = analysis[key][:room]
    return analysis


class _ManifestWalk:
    """The imports of a program, and every use of what they bind."""

    def __init__(self, nodes: Sequence[ast.AST], modules: Mapping[str, Collection[str]]) -> None:
        self._modules = modules
        self._aliases: dict[str, str] = {}  # name in the program: module
        self._functions: dict[str, tuple[str, str]] = {}  # name in the program: module and function
        self._others: dict[str, str] = {}  # names that other imports bind
        self._used: set[int] = set()  # modules that occur as they may
        self.calls: dict[tuple[str, str], None] = {}
        self.tool_calls: list[tuple[str, str, ast.Call]] = []
        self.refusals: list[Finding] = []
        for node in nodes:
            if isinstance(node, ast.Import):
                self._import(node)
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node)
        for name in (self._aliases.keys() | self._functions.keys()) & self._others.keys():
            self._refuse(nodes[0], "manifest", f"Two imports bind `{name}`. Give one of them another name.")
        for node in nodes:
            if isinstance(node, ast.Attribute):
                self._attribute(node)
        for node in nodes:
            self._visit(node)

    def functions_of(self, node: ast.expr) -> tuple[str, str] | None:
        """Return the module and function that an expression names, or None."""
        if isinstance(node, ast.Name):
            return self._functions.get(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = self._aliases.get(node.value.id)
            return (module, node.attr) if module is not None else None
        return None

    def _refuse(self, node: ast.AST, code: str, message: str, **more: str) -> None:
        if len(self.refusals) < MAX_FINDINGS:
            self.refusals.append(hints.finding(code, message, node, **more))

    # --- imports ---

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            root = alias.name.partition(".")[0]
            bound = alias.asname or root
            if alias.name in self._modules:
                self._bind(node, bound, alias.name)
            elif root in self._modules:
                message = f"`{alias.name}` is not a module. Write `import {root}`."
                self._refuse(node, "unresolved-import", message)
            elif root in BUILTIN_MODULES:
                self._others[bound] = alias.name
            else:
                self._unknown_module(node, alias.name)

    def _bind(self, node: ast.AST, name: str, module: str) -> None:
        if self._aliases.setdefault(name, module) != module or name in self._functions:
            self._refuse(node, "manifest", f"Two imports bind `{name}`. Give one of them another name.")

    def _unknown_module(self, node: ast.AST, name: str) -> None:
        message = hints.import_hint(name) or f"There is no module `{name}`."
        self._refuse(node, "unresolved-import", message, module=name)

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        root = module.partition(".")[0]
        for alias in node.names:
            bound = alias.asname or alias.name
            if node.level:
                self._refuse(node, "unresolved-import", "A program has no package. Write `import <module>`.")
            elif alias.name == "*":
                message = f"`from {module} import *` hides what is called. Import the names that you use."
                self._refuse(node, "manifest", message)
            elif module in self._modules:
                self._bind_function(node, bound, module, alias.name)
            elif root in BUILTIN_MODULES or root == "__future__":
                self._others[bound] = f"{module}.{alias.name}"
            else:
                self._unknown_module(node, module)
                return

    def _bind_function(self, node: ast.AST, name: str, module: str, function: str) -> None:
        if function not in self._modules[module]:
            message = f"`{module}` has no function `{function}`."
            self._refuse(node, "unresolved-attribute", message, module=module, name=function)
        elif (
            self._functions.setdefault(name, (module, function)) != (module, function)
            or name in self._aliases
        ):
            self._refuse(node, "manifest", f"Two imports bind `{name}`. Give one of them another name.")

    # --- uses ---

    def _attribute(self, node: ast.Attribute) -> None:
        if node.attr.startswith("__") and node.attr.endswith("__") and node.attr not in ALLOWED_DUNDERS:
            message = f"`{node.attr}` is not available in a program."
            self._refuse(node, "manifest", message)
        if not isinstance(node.value, ast.Name) or node.value.id not in self._aliases:
            return
        name, module = node.value.id, self._aliases[node.value.id]
        self._used.add(id(node.value))
        if not isinstance(node.ctx, ast.Load):
            self._refuse(node, "manifest", f"The functions of `{name}` cannot be replaced.")
        elif node.attr not in self._modules[module]:
            message = f"`{module}` has no function `{node.attr}`."
            self._refuse(node, "unresolved-attribute", message, module=module, name=node.attr)
        else:
            self.calls[module, node.attr] = None

    def _visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            self._name(node)
            return
        if isinstance(node, ast.Call):
            target = self.functions_of(node.func)
            if target is not None and len(self.tool_calls) < MAX_LITERAL_CALLS:
                self.tool_calls.append((*target, node))
        for name in _bound_names(node):
            if name in FORBIDDEN or name in self._aliases or name in self._functions:
                kind = "is forbidden" if name in FORBIDDEN else "is an import"
                self._refuse(node, "manifest", f"`{name}` {kind}. Use another name here.")

    def _name(self, node: ast.Name) -> None:
        if node.id in FORBIDDEN:
            message = (
                f"`{node.id}` is not available in a program: what it calls must be visible before it runs."
            )
            self._refuse(node, "manifest", message)
        elif node.id in self._functions:
            if isinstance(node.ctx, ast.Load):
                self.calls[self._functions[node.id]] = None
            else:
                self._refuse(node, "manifest", f"`{node.id}` is an import. Use another name here.")
        elif node.id in self._aliases and id(node) not in self._used:
            if isinstance(node.ctx, ast.Load):
                message = f"The module `{node.id}` is not a value. Write `{node.id}.<function>(...)`."
            else:
                message = f"`{node.id}` is an import. Use another name here."
            self._refuse(node, "manifest", message)


def _bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds other than by a `Name`."""
    if isinstance(node, ast.expr | ast.expr_context):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        if node.name:
            yield node.name
    elif isinstance(node, ast.MatchMapping):
        if node.rest:
            yield node.rest
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names
    elif type(node).__name__ in ("TypeVar", "ParamSpec", "TypeVarTuple"):  # not in Python 3.11
        yield node.name  # type: ignore[attr-defined]


class _NotLiteralError(Exception):
    """An expression is not a literal, or too large a one."""


class _Budget:
    def __init__(self) -> None:
        self.nodes, self.chars = MAX_LITERAL_NODES, MAX_LITERAL_CHARS


def _literals(calls: list[tuple[str, str, ast.Call]]) -> Iterator[Finding]:
    """Yield the literal arguments of each call."""
    budget = _Budget()
    for module, function, call in calls:
        arguments = {}
        for keyword in call.keywords:
            if keyword.arg is not None:
                try:
                    arguments[keyword.arg] = _literal(keyword.value, 0, budget)
                except _NotLiteralError:
                    continue
        yield {
            "module": module,
            "function": function,
            "line": call.lineno,
            "end": call.end_lineno or call.lineno,
            "column": call.col_offset + 1,
            "arguments": arguments,
        }


def _literal(node: ast.expr, depth: int, budget: _Budget) -> object:
    """Return the value of a literal as JSON has it."""
    budget.nodes -= 1
    if budget.nodes < 0 or depth > MAX_LITERAL_DEPTH:
        raise _NotLiteralError
    if isinstance(node, ast.Constant):
        return _constant(node.value, budget)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _literal(node.operand, depth + 1, budget)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item, depth + 1, budget) for item in node.elts]
    if isinstance(node, ast.Dict):
        members = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                raise _NotLiteralError
            budget.chars -= len(key.value)
            members[key.value] = _literal(value, depth + 1, budget)
        return members
    raise _NotLiteralError


def _constant(value: object, budget: _Budget) -> object:
    if isinstance(value, str):
        budget.chars -= len(value)
        # A surrogate alone is in no JSON.
        if budget.chars < 0 or (not value.isascii() and any("\ud800" <= sign <= "\udfff" for sign in value)):
            raise _NotLiteralError
    elif not (value is None or isinstance(value, bool | float)) and not (
        isinstance(value, int) and abs(value) < 2**63
    ):
        raise _NotLiteralError
    return value
