"""Measures what the tests catch: makes small faults in the source and runs the tests that execute them.

    scripts/mutations.py plan [--count 60] [--also-in SRC] [--exclude PREFIX …]   choose the faults
    scripts/mutations.py record [PYTEST ARGUMENTS]    run the suite and note which tests execute the lines
    scripts/mutations.py run                          make each fault and run the tests noted for it

The faults are a flipped condition, a missing call and a wrong constant, spread over all packages by a recorded seed.
Plan, marks and results are in `build/`. The source is changed in place and put back, so commit it before.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

REPO = Path(__file__).resolve().parent.parent
SOURCE = REPO / "src/switchboard_mcp"
BUILD = REPO / "build"
PLAN, MARKS, RESULTS = (
    BUILD / "mutation-plan.json",
    BUILD / "mutation-marks.txt",
    BUILD / "mutation-results.json",
)
SEED = 20261119

# A fault may make a test wait for what never comes.
TIMEOUT_S = 300
# A line that more tests execute is mostly start-up, and some of them are enough to notice its fault.
MOST_TESTS = 60
LOGGERS = ("log", "logger", "_log", "warnings")

# A module that runs by itself has no `_mark`, since it does not import the package.
MARK = '(__import__("builtins").__dict__.get("_mark", {{}}.get)({}) or ({}))'
# A marked process runs this at its import of the package. A sandboxed one may not write, which is no failure.
MARKER = """
import builtins, os
_marked = set()


def _find_test():
    test, pid = os.environ.get("PYTEST_CURRENT_TEST"), os.getppid()
    while not test and pid > 1:
        with open(f"/proc/{{pid}}/environ") as file:
            test = dict(pair.partition("=")[::2] for pair in file.read().split("\\0")).get("PYTEST_CURRENT_TEST")
        with open(f"/proc/{{pid}}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    return (test or "?").rpartition(" (")[0]


def _mark(number):
    key = number, os.environ.get("PYTEST_CURRENT_TEST")
    if key in _marked:
        return
    _marked.add(key)
    try:
        with open({marks!r}, "a") as file:
            file.write(f"{{number}}\\t{{_find_test()}}\\n")
    except Exception:
        pass


builtins._mark = _mark
"""


class Fault(NamedTuple):
    """A piece of a function, and what replaces it."""

    path: str
    function: str
    kind: str
    offset: int
    text: str
    replacement: str
    # The whole function finds it again in another version.
    body: str

    def start(self, source: bytes) -> int:
        return source.index(self.body.encode()) + self.offset


def find_faults(path: Path) -> Iterator[Fault]:
    """Yield the possible faults of a module."""
    source = path.read_bytes()
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def span(node: ast.expr | ast.stmt) -> slice:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return slice(
            lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset
        )

    for function in find_functions(ast.parse(source)):
        body = source[span(function)]
        if source.count(body) > 1:
            continue
        for kind, node, template in vary(function):
            text = source[span(node)].decode()
            offset = span(node).start - span(function).start
            name = str(path.relative_to(SOURCE))
            yield Fault(name, function.name, kind, offset, text, template.format(text), body.decode())


def find_functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions of a module and of its classes."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        elif isinstance(child, ast.ClassDef):
            yield from find_functions(child)


def vary(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, ast.expr, str]]:
    """Yield kind, expression and template of the replacement of each fault that a function can have."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        # Defaults, patterns and format strings do not take any expression.
        if isinstance(node, ast.arguments | ast.pattern | ast.JoinedStr | ast.AnnAssign):
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.If | ast.While | ast.IfExp) and "platform" not in ast.dump(node.test):
            yield "flipped condition", node.test, "(not ({}))"
        elif isinstance(node, ast.Expr) and changes_something(node.value):
            yield "missing call", node.value, "None"
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield "wrong constant", node, str(not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            yield "wrong constant", node, "({} + 1)"


def changes_something(node: ast.expr) -> bool:
    """Return whether this is a call, and not one that writes a log line."""
    node = node.value if isinstance(node, ast.Await) else node
    if not isinstance(node, ast.Call):
        return False
    names = {
        part.id if isinstance(part, ast.Name) else getattr(part, "attr", "") for part in ast.walk(node.func)
    }
    return names.isdisjoint(LOGGERS)


def choose(count: int, exclude: list[str], also_in: Path | None) -> list[Fault]:
    """Choose by the seed: packages and kinds in turn, at most one fault in a function."""
    rng = random.Random(SEED)
    queues: dict[str, dict[str, list[Fault]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(SOURCE.rglob("*.py")):
        relative = path.relative_to(SOURCE)
        if not str(relative).startswith(tuple(exclude)):
            for fault in find_faults(path):
                queues[relative.parts[0]][fault.kind].append(fault)
    packages = []
    for kinds in queues.values():
        for faults in kinds.values():
            rng.shuffle(faults)
        rows = zip_longest(*kinds.values())
        packages.append([fault for row in rows for fault in row if fault is not None])
    chosen: dict[tuple[str, str], Fault] = {}
    for row in zip_longest(*packages):
        for fault in row:
            if fault and len(chosen) < count and (also_in is None or stands_in(fault, also_in)):
                chosen.setdefault((fault.path, fault.function), fault)
    return list(chosen.values())


def stands_in(fault: Fault, source: Path) -> bool:
    """Return whether another version has the same function in the same module."""
    path = source / fault.path
    return path.is_file() and path.read_text(encoding="utf-8").count(fault.body) == 1


class Edited:
    """Keeps files of the source changed for a while."""

    def __init__(self, edits: dict[str, bytes]) -> None:
        self._edits = edits
        self._before = {name: (SOURCE / name).read_bytes() for name in edits}

    def __enter__(self) -> None:
        self._write(self._edits)

    def __exit__(self, *_: object) -> None:
        self._write(self._before)

    @staticmethod
    def _write(files: dict[str, bytes]) -> None:
        for name, data in files.items():
            compile(data, name, "exec")
            path = SOURCE / name
            path.write_bytes(data)
            # Two versions of one size in one second would share their compiled file.
            for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
                compiled.unlink()


def replace(source: bytes, fault: Fault, replacement: str) -> bytes:
    start = fault.start(source)
    return source[:start] + replacement.encode() + source[start + len(fault.text.encode()) :]


def marked(faults: list[Fault]) -> dict[str, bytes]:
    """Return the source with a mark in front of each expression."""
    files: dict[str, bytes] = {}
    by_place = [
        (fault.start((SOURCE / fault.path).read_bytes()), number) for number, fault in enumerate(faults)
    ]
    for start, number in sorted(by_place, reverse=True):
        fault = faults[number]
        source = files.get(fault.path) or (SOURCE / fault.path).read_bytes()
        wrapped = MARK.format(number, fault.text).encode()
        files[fault.path] = source[:start] + wrapped + source[start + len(fault.text.encode()) :]
    init = files.get("__init__.py") or (SOURCE / "__init__.py").read_bytes()
    files["__init__.py"] = init + MARKER.format(marks=str(MARKS)).encode()
    return files


def load_plan() -> list[Fault]:
    return [Fault(*row) for row in json.loads(PLAN.read_text(encoding="utf-8"))]


def plan(args: argparse.Namespace) -> None:
    chosen = choose(args.count, args.exclude, args.also_in)
    BUILD.mkdir(exist_ok=True)
    PLAN.write_text(json.dumps(chosen, indent=1), encoding="utf-8")
    for number, fault in enumerate(chosen):
        print(f"{number:3} {fault.kind:17} {fault.path}: {fault.function}: {fault.text[:60]!r}")


def record(args: argparse.Namespace) -> None:
    MARKS.touch()
    MARKS.chmod(0o666)
    with Edited(marked(load_plan())):
        subprocess.run([sys.executable, "-m", "pytest", *args.pytest], check=False, cwd=REPO)


def run(args: argparse.Namespace) -> None:
    tests: dict[int, dict[str, None]] = defaultdict(dict)
    for line in MARKS.read_text(encoding="utf-8").splitlines():
        number, _, test = line.partition("\t")
        if test and test != "?":
            tests[int(number)][test] = None
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for index, fault in enumerate(load_plan()):
        if str(index) in results:
            continue
        results[str(index)] = outcome = try_fault(fault, list(tests[index]))
        RESULTS.write_text(json.dumps(results, indent=1), encoding="utf-8")
        print(
            f"{index:3} {outcome:9} {fault.kind:17} {fault.path}: {fault.function}: {fault.text[:50]!r}",
            flush=True,
        )
    caught = sum(outcome == "caught" for outcome in results.values())
    print(f"{caught} of {len(results)} caught")


def try_fault(fault: Fault, tests: list[str]) -> str:
    """Return caught, missed or unreached: what the tests that execute the line make of its fault."""
    if not tests:
        return "unreached"
    # The tests of one module mostly do the same, so take some of each.
    modules: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        modules[test.partition("::")[0]].append(test)
    picked = [test for row in zip_longest(*modules.values()) for test in row if test][:MOST_TESTS]
    picked.sort(key=lambda test: not test.startswith("tests/unit"))
    source = (SOURCE / fault.path).read_bytes()
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *picked]
    with Edited({fault.path: replace(source, fault, fault.replacement)}):
        try:
            done = subprocess.run(command, check=False, cwd=REPO, capture_output=True, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "caught"
    return "missed" if done.returncode == 0 else "caught"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    planning = commands.add_parser("plan")
    planning.add_argument("--count", type=int, default=60)
    planning.add_argument("--also-in", type=Path)
    planning.add_argument("--exclude", action="append", default=[])
    planning.set_defaults(act=plan)
    recording = commands.add_parser("record")
    recording.set_defaults(act=record)
    commands.add_parser("run").set_defaults(act=run)
    args, rest = parser.parse_known_args()
    args.pytest = rest
    began = time.monotonic()
    args.act(args)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
