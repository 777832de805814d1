"""Scenario: BFCL's multi-turn tasks as programs: their end state, tokens and round trips, beside FastMCP's CodeMode.

BFCL's Python back ends are children. The calls that solve a task are made one by one through suites, and once more as
one program; the state of the back ends must be the same. Tokens are those that a model reads and writes once: what is
listed or introspected, the calls or the code, and the results. CodeMode runs the same calls with the same back ends in
its own process; for the wrong argument, the last call of each program gets one that does not exist.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import random
import statistics
import sys
import tempfile
import time
import types
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.bfcl_child import SOURCE, state_of
from bench.find_sets import BFCL
from bench.gate import APIS, TASKS, functions, read_tasks
from bench.report import Goal, Options, Report, Table, cell
from switchboard_mcp.app import CommandOptions, load, running
from switchboard_mcp.cli.local_client import LocalClient, connected
from switchboard_mcp.config.sections import PROGRAM_DESCRIPTION
from switchboard_mcp.gateway.suites.suite_tools import INPUT_SCHEMA
from switchboard_mcp.observability.log import Log
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.suites.token_estimate import estimate

CHILD = Path(__file__).resolve().parent / "bfcl_child.py"
COMPARED = 20
OWN_TOOLS = [
    {
        "name": name,
        "description": "",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }
    for name in ("bench_load", "bench_state")
]
Calls = list[tuple[str, str, dict[str, Any]]]


@dataclass
class BfclTask:
    """One task: its calls, and the scenario of each of its back ends."""

    calls: Calls
    scenarios: dict[str, dict[str, Any]]

    @property
    def apis(self) -> list[str]:
        return sorted({api for api, _, _ in self.calls})

    def program(self, *, wrong: bool = False) -> str:
        """Return the calls as a program; with a wrong argument in the last one."""
        lines = [f"import {api.lower()}" for api in self.apis]
        for number, (api, function, args) in enumerate(self.calls, 1):
            arguments = {**args, "zz_bad": 1} if wrong and number == len(self.calls) else args
            written = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            lines.append(f"r = await {api.lower()}.{function}({written})")
        return "\n".join([*lines, "r"])

    def code_mode(self, *, wrong: bool = False) -> str:
        """Return the same for CodeMode."""
        lines = []
        for number, (_, function, args) in enumerate(self.calls, 1):
            arguments = {**args, "zz_bad": 1} if wrong and number == len(self.calls) else args
            lines.append(f"r = await call_tool({function!r}, {arguments!r})")
        return "\n".join([*lines, "return r"])


@dataclass
class Found:
    """Sums over all tasks."""

    tasks: int = 0
    refused: list[str] = field(default_factory=list)
    differ: list[str] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=lambda: {"direct": 0, "suites": 0, "programs": 0})
    trips: dict[str, int] = field(default_factory=lambda: {"direct": 0, "suites": 0, "programs": 0})
    ms: list[float] = field(default_factory=list)
    wrong_refused: int = 0
    wrong_changed: int = 0

    def add(self, way: str, trips: int, *texts: object) -> None:
        self.trips[way] += trips
        for text in texts:
            self.tokens[way] += estimate(text if isinstance(text, str) else json.dumps(text))


def run(options: Options) -> Report:
    report = Report()
    if not BFCL.exists():
        report.notes.append("BFCL is not here: no task was run (bench/README.md).")
        return report
    with zipfile.ZipFile(BFCL) as package:
        tools = {api: list(map(json_schema, functions(package, file))) for api, file in APIS.items()}
        tasks = list(bfcl_tasks(package, tools))
    tasks = tasks[: options.pick(len(tasks), 40)]
    found = asyncio.run(replay(tasks, tools))
    rows = [
        [way, f"{found.tokens[way] / found.tasks:,.0f}", cell(found.trips[way] / found.tasks, 1)]
        for way in ("direct", "suites", "programs")
    ]
    title = f"{found.tasks} BFCL multi-turn tasks: a task in the mean"
    report.tables.append(Table(title, ["calls are made", "tokens into the context", "round trips"], rows))
    peer = asyncio.run(code_mode(tasks[:COMPARED]))
    ours = [statistics.median(found.ms[:COMPARED]), found.wrong_refused, found.wrong_changed]
    report.tables.append(
        Table(
            f"Beside FastMCP's CodeMode: the first {min(COMPARED, len(tasks))} tasks",
            [
                "",
                "ms per program, p50",
                "wrong last argument reported",
                "state changed by then",
                "tokens listed",
            ],
            [
                ["Switchboard", cell(ours[0], 1), str(ours[1]), str(ours[2]), str(listed_tokens())],
                [
                    "CodeMode",
                    cell(peer["ms"], 1),
                    str(peer["reported"]),
                    str(peer["changed"]),
                    str(peer["listed"]),
                ],
            ],
        )
    )
    accepted = 100 * (found.tasks - len(found.refused)) / found.tasks
    report.goals += [
        Goal(
            "programs whose end state differs from direct calls", float(len(found.differ)), "at most", 0, ""
        ),
        Goal("tasks accepted as programs", accepted, "at least", 99.0, "%"),
        Goal(
            "state changed by a program with a wrong last argument",
            float(found.wrong_changed),
            "at most",
            0,
            "",
        ),
    ]
    report.notes += [f"Refused: {one}" for one in found.refused[:8]]
    report.notes += [f"Different end state: {one}" for one in found.differ[:8]]
    return report


TYPES = {"dict": "object", "float": "number", "tuple": "array"}


def json_schema(tool: Any) -> Any:
    """Return a tool with the types of JSON Schema in place of those of Python that BFCL writes."""
    if isinstance(tool, dict):
        changed = {name: json_schema(one) for name, one in tool.items()}
        kind = changed.get("type")
        if isinstance(kind, str):
            changed["type"] = TYPES.get(kind, kind)
        if changed.get("type") == "any":
            del changed["type"]
        return changed
    return list(map(json_schema, tool)) if isinstance(tool, list) else tool


def listed_tokens() -> int:
    listed = {
        "name": "program_suite",
        "description": PROGRAM_DESCRIPTION,
        "inputSchema": json.loads(bytes(INPUT_SCHEMA)),
    }
    return estimate(json.dumps(listed))


def bfcl_tasks(package: zipfile.ZipFile, tools: dict[str, list[dict[str, object]]]) -> Iterator[BfclTask]:
    questions = [
        (json.loads(line), name == "long_context")
        for name in TASKS
        for line in package.read(f"bfcl_eval/data/BFCL_v4_multi_turn_{name}.json").decode().splitlines()
    ]
    for task, (question, is_long) in zip(read_tasks(package, tools), questions, strict=True):
        configs = question["initial_config"]
        scenarios = {
            api: {"config": configs.get(api, {}), "long": is_long, "seed": question["id"]}
            for api, _, _ in task.calls
        }
        if task.calls:
            yield BfclTask(task.calls, scenarios)


async def replay(tasks: list[BfclTask], tools: dict[str, list[dict[str, object]]]) -> Found:
    """Make the calls of each task one by one, then as a program."""
    found = Found()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        servers = {}
        for api, listed in tools.items():
            file = folder / f"{api}.json"
            file.write_text(json.dumps([*listed, *OWN_TOOLS]))
            args = [str(CHILD), str(BFCL), APIS[api], api, str(file)]
            servers[api.lower()] = {"command": sys.executable, "args": args}
        config = {"mcpServers": servers, "programs": {"enabled": True, "approve": "never"}}
        (folder / "switchboard.config.json").write_text(json.dumps(config))
        redactor = Redactor()
        workspace = load(CommandOptions(workspace=name))
        async with (
            running(workspace, Log(level="error", redactor=redactor), redactor) as switchboard,
            connected(switchboard.gateway) as host,
        ):
            introspected = {api: await text(host, api, {"action": "introspect"}) for api in tools}
            stubs = {
                api: await text(host, "program", call("stubs", {"suites": [api.lower()], "budget": 20_000}))
                for api in tools
            }
            for number, task in enumerate(tasks):
                await one_task(host, task, found, tools, introspected, stubs, compared=number < COMPARED)
    return found


async def one_task(
    host: LocalClient,
    task: BfclTask,
    found: Found,
    tools: dict[str, list[dict[str, object]]],
    introspected: dict[str, str],
    stubs: dict[str, str],
    *,
    compared: bool,
) -> None:
    found.tasks += 1
    await load_scenarios(host, task)
    before = await states(host, task)
    found.add("direct", len(task.calls), *(tools[api] for api in task.apis))
    found.add("suites", len(task.calls) + len(task.apis), *(introspected[api] for api in task.apis))
    for api, function, args in task.calls:
        arguments = call(function, args)
        answer = await text(host, api, arguments)
        found.add("direct", 0, {"name": function, "arguments": args}, answer)
        found.add("suites", 0, {"name": f"{api.lower()}_suite", "arguments": arguments}, answer)
    direct = await states(host, task)
    await load_scenarios(host, task)
    code = task.program()
    began = time.perf_counter()
    result = await host.call("program_suite", call("run", {"code": code}))
    found.ms.append((time.perf_counter() - began) * 1000)
    answer = str(result.content[0]["text"])
    if result.is_error:
        found.refused.append(answer[:200])
    elif await states(host, task) != direct:
        found.differ.append(code[:200])
    found.add(
        "programs", 2, *(stubs[api] for api in task.apis), {"name": "program_suite", "code": code}, answer
    )
    if compared:
        await load_scenarios(host, task)
        wrong = await host.call("program_suite", call("run", {"code": task.program(wrong=True)}))
        found.wrong_refused += bool(wrong.is_error)
        found.wrong_changed += await states(host, task) != before


def call(subtool: str, args: dict[str, Any]) -> dict[str, object]:
    return {"action": "call", "subtool": subtool, "args": args}


async def text(host: LocalClient, api: str, arguments: dict[str, object]) -> str:
    result = await host.call(f"{api.lower()}_suite", arguments)
    return str(result.content[0]["text"])


async def load_scenarios(host: LocalClient, task: BfclTask) -> None:
    for api, scenario in task.scenarios.items():
        await text(host, api, call("bench_load", scenario))


async def states(host: LocalClient, task: BfclTask) -> list[str]:
    return [await text(host, api, call("bench_state", {})) for api in task.apis]


async def code_mode(tasks: list[BfclTask]) -> dict[str, float]:
    """Run the same programs with FastMCP's CodeMode, whose tools are the back ends in this process."""
    from fastmcp import Client, FastMCP
    from fastmcp.experimental.transforms.code_mode import CodeMode

    sys.path.insert(0, str(BFCL))
    sys.modules.setdefault("mpmath", types.ModuleType("mpmath"))
    logging.getLogger("fastmcp").setLevel(logging.CRITICAL)  # it prints a traceback for each refused call
    times, reported, changed, listed = [], 0, 0, 0
    for task in tasks:
        for wrong in (False, True):
            random.seed(next(iter(task.scenarios.values()))["seed"])
            server: FastMCP[Any] = FastMCP("bfcl", transforms=[CodeMode()])
            back_ends = []
            for api, scenario in task.scenarios.items():
                back_end = getattr(importlib.import_module(f"{SOURCE}.{APIS[api]}"), api)()
                if hasattr(back_end, "_load_scenario"):
                    back_end._load_scenario(scenario["config"], long_context=scenario["long"])
                back_ends.append(back_end)
                for _, function, _ in [one for one in task.calls if one[0] == api]:
                    server.tool(getattr(back_end, function))
            before = json.dumps(list(map(state_of, back_ends)))
            async with Client(server) as client:
                if not listed:
                    tools = await client.list_tools()
                    shown = [
                        {"name": t.name, "d": t.description, "inputSchema": t.input_schema} for t in tools
                    ]
                    listed = estimate(json.dumps(shown))
                began = time.perf_counter()
                result = await client.call_tool(
                    "execute", {"code": task.code_mode(wrong=wrong)}, raise_on_error=False
                )
                if not wrong:
                    times.append((time.perf_counter() - began) * 1000)
                else:
                    reported += bool(result.is_error)
                    changed += json.dumps(list(map(state_of, back_ends))) != before
    sys.path.remove(str(BFCL))
    return {"ms": statistics.median(times), "reported": reported, "changed": changed, "listed": listed}
