"""Scenario: the checks of programs: valid ones that are refused, faulty ones that are accepted, and their time."""

from __future__ import annotations

import ast
import gzip
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic_monty import ExternalModule, Monty, MontyTypingError

from bench.data import CATALOGS, missing
from bench.program_values import WRONG, valid_arguments, validator, wrong_arguments
from bench.report import Goal, Options, Report, Table
from switchboard_mcp.programs.checking import literals, manifest, names, stubs
from switchboard_mcp.programs.checking.stubs import BUILTIN_STUBS, ProgramTool, StubFunction, StubModule
from switchboard_mcp.programs.checking.verdict import Verdict, verdict
from switchboard_mcp.programs.engine import CheckReport, Diagnostic

# Random calls of each published tool, and faults of each kind in a program.
CALLS_PER_TOOL = 4


def run(options: Options) -> Report:
    report = Report()
    with Checker() as checker:
        programs(checker, options, report)
        if CATALOGS.exists():
            published(checker, options, report)
        else:
            report.notes.append(missing(CATALOGS))
    return report


def programs(checker: Checker, options: Options, report: Report) -> None:
    """Check the sample programs, with and without faults, and take the time of a check."""
    valid, faulty = sample_programs("valid.txt"), sample_programs("faulty.txt")
    raw = sum(not checker.diagnostics(code, sample_modules(code)) for code in valid.values())
    accepted = [
        title for title, code in valid.items() if checker.verdict(code, sample_modules(code)).is_accepted
    ]
    refused = [
        title for title, code in faulty.items() if not checker.verdict(code, sample_modules(code)).is_accepted
    ]
    seeded: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for code in valid.values():
        for kind, wrong in seeded_faults(code, 1 if options.quick else None):
            seeded[kind] += 1
            missed[kind] += checker.verdict(wrong, sample_modules(wrong)).is_accepted
    rows = [
        ["valid, as models write", str(len(valid)), f"{len(accepted)} accepted", f"{raw} by the raw checker"],
        ["with a fault, by hand", str(len(faulty)), f"{len(refused)} refused", ""],
        *(
            [f"seeded: {kind}", str(count), f"{count - missed[kind]} refused", ""]
            for kind, count in seeded.items()
        ),
    ]
    report.tables.append(Table("Verdicts on programs", ["programs", "number", "verdict", ""], rows))
    share = 100 * (1 - missed.total() / seeded.total())
    report.goals += [
        Goal("valid programs accepted", 100 * len(accepted) / len(valid), "at least", 100, "%"),
        Goal("faulty programs refused", 100 * len(refused) / len(faulty), "at least", 99, "%"),
        Goal("seeded faults refused", share, "at least", 99, "%"),
    ]
    times: dict[str, list[float]] = {"stubs": [], "source": [], "type checker": [], "verdict": []}
    for code in list(valid.values())[: options.pick(len(valid), 10)]:
        for part, milliseconds in check_times(checker, code).items():
            times[part].append(milliseconds)
    cells = [
        [part, f"{statistics.median(some):.2f} ms", f"{max(some):.1f} ms"] for part, some in times.items()
    ]
    report.tables.append(Table("Time of a check, warm, in one process", ["part", "p50", "max"], cells))
    report.figures["program_checks"] = {"seeded": seeded.total(), "missed": missed.total(), "raw": raw}


def check_times(checker: Checker, code: str) -> dict[str, float]:
    """Return the milliseconds of each part of a check."""
    marks = [time.perf_counter()]
    modules = sample_modules(code)
    marks.append(time.perf_counter())
    analysis = manifest.analyse(code, {one.name: list(one.functions) for one in modules})
    marks.append(time.perf_counter())
    found = checker.diagnostics(code, modules)
    marks.append(time.perf_counter())
    verdict(CheckReport(diagnostics=found, analysis=analysis), code, modules)
    marks.append(time.perf_counter())
    durations = [1_000 * (after - before) for before, after in pairwise(marks)]
    return dict(zip(("stubs", "source", "type checker", "verdict"), durations, strict=True))


def published(checker: Checker, options: Options, report: Report) -> None:
    """Check random calls of published tools."""
    rng = random.Random(7)
    servers = json.loads(gzip.decompress(CATALOGS.read_bytes()))["servers"]
    found = CallsFound()
    for server in servers[: options.pick(len(servers), 8)]:
        one = random_calls(checker, server["tools"], rng, CALLS_PER_TOOL)
        found.valid += one.valid
        found.refused += one.refused
        found.faulty += one.faulty
        found.accepted += one.accepted
    rows = [
        ["valid", f"{found.valid:,}", f"{len(found.refused)} refused"],
        ["faulty", f"{found.faulty.total():,}", f"{len(found.accepted)} accepted"],
    ]
    tools = sum(len(server["tools"]) for server in servers)
    title = f"Random calls with literal arguments, {tools:,} published tools"
    report.tables.append(Table(title, ["calls", "number", "judged wrongly"], rows))
    report.goals += [
        Goal("valid calls refused", float(len(found.refused)), "at most", 0, ""),
        Goal("faulty calls accepted", 100 * len(found.accepted) / found.faulty.total(), "at most", 1, "%"),
    ]
    report.notes += [f"Refused: {line[:200]}" for line in found.refused[:5]]
    report.notes += [f"Accepted: {line[:200]}" for line in found.accepted[:5]]


def _never(*_: object, **__: object) -> None:
    raise RuntimeError("a check called a tool")


class Checker:
    """The type checker, as the helper uses it, in this process."""

    def __enter__(self) -> Checker:
        self._pool = Monty(min_processes=1, max_processes=1, request_timeout=60)
        self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, error, trace)

    def diagnostics(self, code: str, modules: Sequence[StubModule]) -> list[Diagnostic]:
        """Return all that the checker says about a program."""
        offered = {
            one.name: ExternalModule(dict.fromkeys(one.functions, _never), stubs=one.text())
            for one in modules
        }
        own = ExternalModule({"find": _never}, stubs="async def find() -> None: ...\n")
        offered.setdefault(names.OWN_MODULE, own)
        with self._pool.checkout(
            external_modules=offered,
            type_check=True,
            type_check_format="json",
            type_check_stubs=BUILTIN_STUBS,
        ) as session:
            try:
                found: Any = session.feed_start(f"import {names.OWN_MODULE}\n{code}")
                while found.is_os_function and found.function_name == "import_stubs":
                    found = found.resume_auto()
            except MontyTypingError as error:
                return [
                    Diagnostic(
                        one["code"] or "",
                        one["message"],
                        one["location"]["row"] - 1,
                        one["location"]["column"],
                        one["severity"],
                    )
                    for one in json.loads(str(error))
                ]
        return []

    def verdict(self, code: str, modules: Sequence[StubModule]) -> Verdict:
        """Return the verdict on a program."""
        analysis = manifest.analyse(code, {one.name: list(one.functions) for one in modules})
        report = CheckReport(diagnostics=self.diagnostics(code, modules), analysis=analysis)
        return verdict(report, code, modules, names.module_names(_sample_tools()).values())


@dataclass
class CallsFound:
    """Random calls of some tools: how many there were, and those that were judged wrongly."""

    valid: int = 0
    refused: list[str] = field(default_factory=list)
    faulty: Counter[str] = field(default_factory=Counter)
    accepted: list[str] = field(default_factory=list)


PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "programs"


def sample_modules(code: str) -> list[StubModule]:
    """Return the modules of the sample tools that a program can import."""
    catalog, words = _sample_tools(), stubs.mentioned(code)
    module_names = names.module_names(catalog)
    return [
        stubs.checked(module_names[suite], suite, tools, words)
        for suite, tools in catalog.items()
        if module_names[suite] in words or suite in words
    ]


@cache
def _sample_tools() -> dict[str, list[ProgramTool]]:
    catalog = json.loads((PROGRAMS / "tools.json").read_bytes())
    return {suite: program_tools(listed) for suite, listed in catalog.items()}


def sample_programs(name: str) -> dict[str, str]:
    """Return the sample programs of a file, by title."""
    parts = (PROGRAMS / name).read_text().split("### ")[1:]
    return {title: code for title, _, code in (part.partition("\n") for part in parts)}


def program_tools(listed: Sequence[dict[str, Any]]) -> list[ProgramTool]:
    """Return the tools of a server, as it lists them, for programs."""
    return [
        ProgramTool(
            tool["name"],
            tool.get("inputSchema"),
            tool.get("outputSchema"),
            tool.get("description") or "",
            bool((tool.get("annotations") or {}).get("readOnlyHint")),
        )
        for tool in listed
    ]


def random_calls(
    checker: Checker, listed: Sequence[dict[str, Any]], rng: random.Random, count: int
) -> CallsFound:
    """Check valid and faulty calls of each tool, with literal arguments, all in one program."""
    tools = program_tools(listed)
    function_names = stubs.function_names(tool.name for tool in tools)
    module = stubs.checked("m", "m", tools, frozenset(function_names.values()))
    lines, kinds = ["import m"], [""]
    found = CallsFound()
    for tool in tools:
        function = module.functions[function_names[tool.name]]
        for arguments in valid_arguments(tool.input_schema, rng, count):
            faults = wrong_arguments(tool.input_schema, arguments, rng)
            for kind, each in {"": arguments, **faults}.items():
                lines.append(call_text("m", function, each))
                kinds.append(kind)
                found.valid += not kind
                found.faulty.update([kind] if kind else [])
    code = "\n".join(lines)
    refused = {one.line for one in checker.diagnostics(code, [module])}
    # In parts: the analysis lists at most so many calls.
    for start in range(1, len(lines), manifest.MAX_LITERAL_CALLS):
        part = "\n".join([lines[0], *lines[start : start + manifest.MAX_LITERAL_CALLS]])
        for one in manifest.analyse(part, {"m": list(module.functions)})["literals"]:
            function = module.functions[one["function"]]
            values = {function.parameters.get(name, name): value for name, value in one["arguments"].items()}
            if any(literals.mistakes(function.tool.input_schema, values)):
                refused.add(one["line"] + start - 1)
    for number, (line, kind) in enumerate(zip(lines, kinds, strict=True), 1):
        if not kind and number in refused:
            found.refused.append(line)
        if kind and number not in refused:
            found.accepted.append(line)
    return found


def call_text(module: str, function: StubFunction, arguments: dict[str, Any]) -> str:
    """Return a call of a tool as a line of a program."""
    python = {key: name for name, key in function.parameters.items()}
    listed = ", ".join(f"{python.get(key, key)}={value!r}" for key, value in arguments.items())
    return f"await {module}.{function.name}({listed})"


def seeded_faults(code: str, each: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield a valid program with one fault at a time, and the kind of fault; at most `each` of one kind."""
    modules = {module.name: module for module in sample_modules(code)}
    keys = {key for module in modules.values() for record in module.records.values() for key in record.keys}
    seen: Counter[str] = Counter()
    tree = ast.parse(code)
    local = _local_dicts(tree)
    for node in ast.walk(tree):
        for kind, part, text in (*_call_faults(node, modules), *_key_faults(node, keys, local)):
            if each is None or seen[kind] < each:
                seen[kind] += 1
                yield kind, _replaced(code, part, text)


Place = tuple[int, int, int, int]


def _place(node: ast.expr | ast.keyword) -> Place:
    return (
        node.lineno,
        node.col_offset,
        node.end_lineno or node.lineno,
        node.end_col_offset or node.col_offset,
    )


def _replaced(code: str, place: Place, text: str) -> str:
    lines = [line.encode() for line in code.split("\n")]
    first, start, last, end = place
    lines[first - 1 : last] = [lines[first - 1][:start] + text.encode() + lines[last - 1][end:]]
    return b"\n".join(lines).decode()


def _call_faults(node: ast.AST, modules: Mapping[str, StubModule]) -> Iterator[tuple[str, Place, str]]:
    """Yield faults of a call: the kind, the part of the source, and what is written there."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    owner = node.func.value
    module = modules.get(owner.id) if isinstance(owner, ast.Name) else None
    function = module.functions.get(node.func.attr) if module is not None else None
    if function is None or module is None:
        return
    yield "wrong name", _place(node.func), f"{module.name}.{function.name}z"
    judge = validator(function.tool.input_schema)
    for keyword in node.keywords:
        if keyword.arg is None:
            continue
        value = ast.unparse(keyword.value)
        yield "unknown argument", _place(keyword), f"zz_{keyword.arg}={value}"
        if keyword.arg in function.required:
            others = [one for one in node.keywords if one is not keyword]
            yield "missing argument", _place(node), ast.unparse(ast.Call(node.func, node.args, others))
        for wrong in WRONG:
            one = {function.parameters[keyword.arg]: wrong}
            if judge is not None and any(mistake.path for mistake in judge.iter_errors(one)):
                yield "wrong type", _place(keyword.value), repr(wrong)
                break


def _local_dicts(tree: ast.Module) -> set[str]:
    """Return the keys of dicts that the program builds itself: no fault of a result."""
    found = {
        key.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
    return found | {"input"}


def _key_faults(node: ast.AST, keys: set[str], local: set[str]) -> Iterator[tuple[str, Place, str]]:
    """Yield a wrong key of a result."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        key = node.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value in keys - local:
            yield "wrong key of a result", _place(key), repr(f"{key.value}_zz")
