"""Scenario: the checks of programs: valid ones that are refused, faulty ones that are accepted, and their time."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from pydantic_monty import ExternalModule, Monty, MontyTypingError

from bench.program_values import valid_arguments, wrong_arguments
from switchboard_mcp.programs.checking import names, stubs
from switchboard_mcp.programs.checking.stubs import BUILTIN_STUBS, ProgramTool, StubFunction, StubModule
from switchboard_mcp.programs.engine import CheckReport, Diagnostic


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

    def diagnostics(self, code: str, modules: Sequence[StubModule], builtins: str = "") -> list[Diagnostic]:
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
            type_check_stubs=builtins or None,
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


@dataclass
class CallsFound:
    """Random calls of some tools: how many there were, and those that were judged wrongly."""

    valid: int = 0
    refused: list[str] = field(default_factory=list)
    faulty: Counter[str] = field(default_factory=Counter)
    accepted: list[str] = field(default_factory=list)


def program_tools(listed: Sequence[dict[str, Any]]) -> list[ProgramTool]:
    """Return the tools of a server, as it lists them, for programs."""
    return [
        ProgramTool(
            tool["name"], tool.get("inputSchema"), tool.get("outputSchema"), tool.get("description") or ""
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
    report = CheckReport(
        diagnostics=checker.diagnostics("\n".join(lines), [module], BUILTIN_STUBS),
    )
    refused = {one.line for one in report.diagnostics}
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
