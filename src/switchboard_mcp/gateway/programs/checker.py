"""Checks programs against the suites that a host sees: their tools as modules, the check, and its verdict.

Only suites and subtools whose names occur in a program are converted. A verdict is kept while the code and the stubs
stay the same. Schemas are converted outside of the event loop, and the check runs in the engine's process.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.children.catalog import Tool
from switchboard_mcp.config.models import SWITCHBOARD_NAME
from switchboard_mcp.config.sections import PROGRAM_NAME
from switchboard_mcp.errors import refused
from switchboard_mcp.gateway.programs.own_functions import OWN, OWN_MODULE
from switchboard_mcp.gateway.programs.prepared import CheckedProgram, Subtool
from switchboard_mcp.programs.checking.names import module_names
from switchboard_mcp.programs.checking.stubs import ProgramTool, StubModule, checked, mentioned
from switchboard_mcp.programs.checking.verdict import Verdict, verdict
from switchboard_mcp.programs.engine import Engine, Module
from switchboard_mcp.programs.learned_types import LearnedResult, LearnedTypes
from switchboard_mcp.suites.suite_arguments import SuiteCall
from switchboard_mcp.system import work_thread

if TYPE_CHECKING:
    from switchboard_mcp.gateway.programs.program_calls import ProgramRun
    from switchboard_mcp.gateway.suites.child_suite import ChildSuite
    from switchboard_mcp.gateway.suites.views import View

# Learned types of results, by module and subtool.
Learned = Mapping[str, Mapping[str, LearnedResult]]
MAX_VERDICTS = 256
# Children that are started at the same time because a program names them.
START_AT_ONCE = 4


class ProgramChecker:
    """Checks programs. Suites of one name are different modules for hosts with different views."""

    def __init__(self, engine: Engine, types: LearnedTypes) -> None:
        self._engine = engine
        self._types = types
        self._verdicts: OrderedDict[bytes, CheckedProgram] = OrderedDict()

    def modules(self, view: View) -> dict[str, ChildSuite]:
        """Return the suites that programs of a view can import, by the name of the module."""
        suites = {
            suite.source: suite
            for suite in view.suites.values()
            if suite.source not in (PROGRAM_NAME, SWITCHBOARD_NAME)
        }
        names = module_names(sorted(suites))
        return {names[child]: suites[child] for child in names if names[child] != OWN_MODULE}

    async def check(self, view: View, code: str, host: ProgramRun | None) -> CheckedProgram:
        """Check a program. `host` starts children whose tools are not known yet."""
        words = mentioned(code)
        all_modules = self.modules(view)
        suites = {name: suite for name, suite in all_modules.items() if name in words}
        await self.start(suites.values(), host)
        stubs = await work_thread.run(
            work_thread.OWN, partial(_stub_modules, suites, words, self.learned(suites))
        )
        texts = {module.name: module.text() for module in stubs}
        key = sha256("\0".join([code, *sorted(texts.values())]).encode("utf-8", "replace")).digest()
        cached = self._verdicts.get(key)
        if cached is None:
            cached = await self._check(code, stubs, texts, all_modules)
            self._verdicts[key] = cached
            if len(self._verdicts) > MAX_VERDICTS:
                self._verdicts.popitem(last=False)
        return cached

    def learned(self, suites: Mapping[str, ChildSuite]) -> Learned:
        """Return the learned types of results, by module and subtool."""
        return {name: self._types.known(suite.child.spec) for name, suite in suites.items()}

    async def start(self, suites: Iterable[ChildSuite], host: ProgramRun | None) -> None:
        """Start the children among these whose tools are not known."""
        unknown = [suite for suite in suites if suite.child.inventory.snapshot is None]
        turns = asyncio.Semaphore(START_AT_ONCE)

        async def start(suite: ChildSuite) -> None:
            async with turns:
                assert host is not None
                await host.exchange(suite.source, SuiteCall(action="introspect", verbosity="names"))

        if unknown and host is not None:
            await asyncio.gather(*map(start, unknown))

    async def _check(
        self,
        code: str,
        stubs: Sequence[StubModule],
        texts: Mapping[str, str],
        all_modules: Mapping[str, ChildSuite],
    ) -> CheckedProgram:
        modules = [Module(stub.name, _functions(stub), texts[stub.name]) for stub in stubs]
        try:
            report = await self._engine.check(code, [*modules, OWN])
        except OSError as problem:
            message = f"No program can be checked: {problem.strerror or problem}."
            raise refused("programs_unavailable", message) from None
        if report.failure is not None and report.failure.kind == "crash":
            raise refused("programs_unavailable", report.failure.message)
        by_name = {stub.name: stub for stub in stubs}
        result = verdict(report, code, stubs, [*all_modules, OWN_MODULE])
        return _checked_program(result, by_name)


def _checked_program(result: Verdict, stubs: Mapping[str, StubModule]) -> CheckedProgram:
    """Return a program with the modules that it runs with: the functions of its manifest, and no other."""
    used: dict[str, dict[str, str]] = {name: {} for name in stubs}
    parameters: dict[Subtool, Mapping[str, str]] = {}
    for entry in result.manifest:
        used[entry.module][entry.function] = entry.subtool
        names = stubs[entry.module].functions[entry.function].parameters
        if any(name != own for name, own in names.items()):
            parameters[entry.suite, entry.subtool] = names
    errors = [str(problem) for problem in result.errors]
    if result.left_out:
        errors.append(f"… and {result.left_out} more")
    return CheckedProgram(
        errors=errors,
        warnings=[str(problem) for problem in result.warnings],
        manifest=frozenset((entry.suite, entry.subtool) for entry in result.manifest),
        writes=frozenset((entry.suite, entry.subtool) for entry in result.writes),
        modules=[*(Module(name, functions) for name, functions in used.items()), OWN],
        children={name: stub.suite for name, stub in stubs.items()},
        parameters=parameters,
    )


def _functions(stub: StubModule) -> dict[str, str]:
    return {name: function.tool.name for name, function in stub.functions.items()}


def _stub_modules(
    suites: Mapping[str, ChildSuite], words: frozenset[str], learned: Learned
) -> list[StubModule]:
    """Return the modules of suites, for the checker. A result whose type is a hint may be anything."""
    firm = {
        name: {subtool: result for subtool, result in types.items() if result.is_firm}
        for name, types in learned.items()
    }
    return [
        checked(name, suite.source, program_tools(suite, firm[name]), words) for name, suite in suites.items()
    ]


def program_tools(suite: ChildSuite, learned: Mapping[str, LearnedResult]) -> list[ProgramTool]:
    """Return the subtools that the host may call, as programs see them."""
    tools = suite.permitted(suite.child.inventory.known_tools())
    return [_program_tool(suite, tool, learned.get(tool.name)) for tool in tools]


def _program_tool(suite: ChildSuite, tool: Tool, learned: LearnedResult | None) -> ProgramTool:
    shown = tool.sanitized()
    is_learned = tool.output_schema is UNSET and learned is not None
    return ProgramTool(
        tool.name,
        _decoded(tool.input_schema),
        (learned.schema or None) if is_learned and learned is not None else _decoded(tool.output_schema),
        shown.description or "",
        suite.is_read_only(tool),
        learned.seen if is_learned and learned is not None else 0,
    )


def _decoded(schema: Raw | UnsetType) -> object:
    if schema is UNSET:
        return None
    try:
        return msgspec.json.decode(schema)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
