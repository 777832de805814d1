"""Recognises what models write that the interpreter does not run, and says what to write instead.

Several of these fail at run time only, when calls have been made already. Standard library only: this runs in the
helper. Not aware of suites.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Finding = dict[str, Any]
FunctionsOf = Callable[[ast.expr], object]

NOT_RUN = "not-supported"
CALLS_ONLY = "A program reaches files, networks and processes through its suites only."
ABC = "collections.abc"
BY_HAND = "It is not there: write what you need of it by hand."
MODULES = {
    **dict.fromkeys(
        "requests httpx aiohttp urllib urllib3 http socket ssl subprocess shutil tempfile glob io threading "
        "multiprocessing concurrent signal select smtplib ftplib sqlite3 platform getpass".split(),
        CALLS_ONLY,
    ),
    "statistics": "It is not there: use `sum(values) / len(values)` or `sorted(values)`.",
    "operator": "It is not there: use a lambda, such as `key=lambda item: item['name']`.",
    "heapq": "It is not there: use `sorted(values)[:n]`.",
    "enum": "It is not there: use constants.",
    "uuid": "It is not there: use `random` or a value of a tool.",
    "zoneinfo": "It is not there: use `datetime.timezone`.",
    "logging": "It is not there: use `print`.",
    "pprint": "It is not there: use `json.dumps(value, indent=2)`.",
    "traceback": "It is not there: use `str(error)`.",
    "contextlib": "It is not there: use try and except.",
    "abc": "It is not there: classes cannot inherit. Use functions.",
    ABC: "It is not there: use `list` and `dict` in annotations.",
    "numpy": "It is not there: use lists.",
    "pandas": "It is not there: use lists of dicts.",
}
GATHER = "Use `await asyncio.gather(*calls)`, with try and except in an `async def` around each call."
NO_GENERATORS = "Generators are not supported. Append to a list and return it."
INHERITANCE = "Classes cannot inherit. Use a dict or a `@dataclass`."
DECORATORS = "Decorators of methods are not supported. Use a plain method or a function."
NEXT = "A generator expression is a list here. Use `[...][0]`, or a loop with `break`."
ATTRIBUTES = {
    ("asyncio", None): GATHER,
    ("collections", "OrderedDict"): "Use a dict: it keeps its order.",
    ("dataclasses", "asdict"): "It is not there. Build the dict by hand.",
    ("dataclasses", "astuple"): "It is not there. Build the tuple by hand.",
    ("dataclasses", "replace"): "It is not there. Make a new object.",
    ("functools", "cmp_to_key"): "It is not there. Use a key function.",
    ("functools", "singledispatch"): "It is not there. Use `isinstance`.",
    ("os", "environ"): CALLS_ONLY,
    ("os", "getenv"): CALLS_ONLY,
    ("os", "system"): CALLS_ONLY,
    ("os", "listdir"): CALLS_ONLY,
}
ASYNCIO = frozenset({"gather", "run", "sleep"})
METHODS = {
    "translate": "`str.translate` is not there. Use `replace`.",
    "maketrans": "`str.maketrans` is not there. Use `replace`.",
}
# Methods of classes that the interpreter calls. It ignores all others.
SPECIAL_METHODS = frozenset(
    "__init__ __repr__ __str__ __eq__ __enter__ __exit__ __post_init__ __hash__ __call__ __ne__".split()
)
BUILTINS = {
    "open": CALLS_ONLY,
    "exit": "A program ends with its last expression. Use `if` and `else`, or raise an exception.",
    "quit": "A program ends with its last expression. Use `if` and `else`, or raise an exception.",
    "callable": "`callable` is not there. Use `isinstance`.",
    "super": INHERITANCE,
    "staticmethod": DECORATORS,
    "classmethod": DECORATORS,
}
STATEMENTS: dict[type[ast.AST], str] = {
    ast.Yield: NO_GENERATORS,
    ast.YieldFrom: NO_GENERATORS,
    ast.AsyncFor: "`async for` is not supported. Await the call, then use `for`.",
    ast.AsyncWith: "`async with` is not supported. Await the calls one after the other.",
    ast.Delete: "`del` is not supported. Use `values.pop(key)`, or build a new value.",
    ast.TryStar: "`except*` is not supported. Use `except`.",
}
# What may hold a statement of the same scope.
BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.ExceptHandler, ast.Match, ast.match_case)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NESTED_QUOTES = re.compile(r"""f"[^"\n]*\{[^}"\n]*"|f'[^'\n]*\{[^}'\n]*'""")
_TYPE_ALIAS = re.compile(r"\s*type\s+\w+.*=")
_GENERIC = re.compile(r"\s*(async\s+def|def|class)\s+\w+\s*\[")


def finding(code: str, message: str, node: ast.AST | None = None, **more: str) -> Finding:
    """Return one finding at the place of a node."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
    return {"code": code, "message": message, "line": line, "column": column, **more}


def syntax_finding(error: SyntaxError | ValueError, code: str) -> Finding:
    """Return the finding for a source that cannot be parsed."""
    if not isinstance(error, SyntaxError):
        return finding("invalid-syntax", "The program has characters that no source may have.")
    line = error.lineno or 1
    lines = code.splitlines()
    text = lines[line - 1] if line <= len(lines) else ""
    message = f"{(error.msg or 'invalid syntax')[:200]}."
    if _NESTED_QUOTES.search(text):
        message += " Inside an f-string, use the other kind of quotes."
    elif _TYPE_ALIAS.match(text):
        message += " Type aliases are not supported: write the type itself."
    elif _GENERIC.match(text):
        message += " Type parameters are not supported: leave them out."
    return {**finding("invalid-syntax", message), "line": line, "column": error.offset or 1}


def import_hint(module: str) -> str:
    """Return the hint for a module that does not exist; empty if it may be a misspelled suite."""
    root = module.partition(".")[0]
    hint = MODULES.get(module) or MODULES.get(root)
    if hint is None and root in OTHER_MODULES:
        hint = BY_HAND
    return f"There is no module `{module}`. {hint}" if hint else ""


def find(nodes: Sequence[ast.AST], functions_of: FunctionsOf) -> Iterator[Finding]:
    """Yield what would fail when the program runs. `functions_of` recognises a function of a suite."""
    imported = dict(_imported(nodes))
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.name for node in nodes if isinstance(node, DEFINITIONS)}
    for node in nodes:
        message = ""
        if isinstance(node, ast.Name):
            message = _name(node, imported, bound)
        elif isinstance(node, ast.Call):
            message = _call(node, imported, functions_of)
        elif isinstance(node, ast.Attribute):
            message = _attribute(node, imported)
        elif isinstance(node, ast.Expr):
            message = _expression(node, imported)
        elif not isinstance(node, ast.expr_context | ast.Constant):
            message = _statement(node)
        if message:
            yield finding(NOT_RUN, message, node)


def allowed_lines(tree: ast.Module) -> list[list[Any]]:
    """Return the lines and codes that the type checker refuses although they run."""
    allowed: list[list[Any]] = []
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            allowed.append([statement.lineno, "unresolved-import"])
    # The value of a program may be returned at its top level.
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return):
            allowed.append([node.lineno, "invalid-syntax"])
        elif isinstance(node, BLOCKS):
            waiting.extend(ast.iter_child_nodes(node))
    return allowed[:1_000]


def _imported(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the names that imports bind, each with its module and, if it is a member, the member's name."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], (alias.name, "")
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, (node.module or "", alias.name)


def _statement(node: ast.AST) -> str:
    message = STATEMENTS.get(type(node), "")
    if message:
        return message
    if isinstance(node, ast.ClassDef):
        return _class(node)
    if isinstance(node, ast.Import | ast.ImportFrom):
        return _import(node)
    if isinstance(node, ast.comprehension) and node.is_async:
        return "Asynchronous comprehensions are not supported. Await the call, then use a plain one."
    return (
        "Type aliases are not supported. Write the type itself." if type(node).__name__ == "TypeAlias" else ""
    )


def _expression(node: ast.Expr, imported: dict[str, tuple[str, str]]) -> str:
    if isinstance(node.value, ast.Call) and _called(node.value.func, imported) == ("asyncio", "gather"):
        return "`asyncio.gather` is not awaited. Write `await` before it."
    return ""


def _class(node: ast.ClassDef) -> str:
    if node.bases or node.keywords:
        return INHERITANCE
    for statement in node.body:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if statement.decorator_list:
            return DECORATORS
        if (
            statement.name.startswith("__")
            and statement.name.endswith("__")
            and statement.name not in SPECIAL_METHODS
        ):
            return f"`{statement.name}` of a class is never called here. Use a plain method."
    return ""


def _import(node: ast.Import | ast.ImportFrom) -> str:
    if isinstance(node, ast.Import):
        return MODULES[ABC] if any(alias.name == ABC for alias in node.names) else ""
    if node.module == ABC:
        return MODULES[ABC]
    hints = (_member_hint(node.module or "", alias.name) for alias in node.names)
    return next(filter(None, hints), "")


def _name(node: ast.Name, imported: dict[str, tuple[str, str]], bound: set[str]) -> str:
    if node.id not in BUILTINS or node.id in imported or node.id in bound:
        return ""
    return BUILTINS[node.id]


def _member_hint(module: str, member: str) -> str:
    if module == "asyncio":
        return "" if member in ASYNCIO else f"`asyncio.{member}` is not there. {GATHER}"
    if module == "collections" and member == "abc":
        return MODULES[ABC]
    hint = ATTRIBUTES.get((module, member), "")
    return f"`{module}.{member}`: {hint}" if hint else ""


def _attribute(node: ast.Attribute, imported: dict[str, tuple[str, str]]) -> str:
    if isinstance(node.value, ast.Name) and node.value.id in imported:
        module, member = imported[node.value.id]
        return "" if member else _member_hint(module, node.attr)
    return ""


def _call(node: ast.Call, imported: dict[str, tuple[str, str]], functions_of: FunctionsOf) -> str:
    module, name = _called(node.func, imported)
    keywords = {keyword.arg for keyword in node.keywords}
    first = node.args[0] if node.args else None
    if (module, name) == ("asyncio", "gather") and keywords - {None}:
        return f"`gather` takes no keywords here. {GATHER}"
    if (module, name) == ("json", "dumps") and "default" in keywords:
        return "`json.dumps` takes no `default` here. Convert the values before."
    if module == "re" and name in ("sub", "subn") and isinstance((*node.args, None, None)[1], ast.Lambda):
        return "`re.sub` takes no function here. Use `re.findall` and `replace`."
    if module:
        return ""
    if name == "next" and isinstance(first, ast.GeneratorExp):
        return NEXT
    if name == "bytes" and isinstance(first, ast.List):
        return "`bytes` takes no list here. Use `bytes.fromhex` or a text."
    if name in ("map", "filter") and first is not None and functions_of(first) is not None:
        return f"`{name}` cannot call a function of a suite. Use a comprehension with `await`."
    if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS and len(node.args) <= 2:
        is_text = isinstance(node.func.value, ast.Constant | ast.JoinedStr)
        names_str = isinstance(node.func.value, ast.Name) and node.func.value.id == "str"
        if is_text or names_str:
            return METHODS[node.func.attr]
    return ""


def _called(node: ast.expr, imported: dict[str, tuple[str, str]]) -> tuple[str, str]:
    """Return the module and name of what is called, or an empty module for what is not imported."""
    if isinstance(node, ast.Name):
        module, member = imported.get(node.id, ("", node.id))
        return module, member or node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported:
        return imported[node.value.id][0], node.attr
    return "", ""


# Modules of the standard library that models use and the interpreter does not have.
OTHER_MODULES = frozenset(
    "string textwrap fractions html difflib inspect calendar locale secrets hmac zlib gzip zipfile pickle struct types "
    "warnings weakref xml argparse configparser array queue sched cmath numbers email mimetypes ipaddress shlex "
    "stat errno codecs keyword ast timeit yaml".split()
)
