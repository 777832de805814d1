"""Scenario: result types that are learned: how soon a tool has one, and how often a later result breaks it.

BFCL's back ends answer the calls that solve its multi-turn tasks, in order; the recorded runs are LiveMCPBench's. Each
tool is learned on its own, as `LearnedTypes` does it. A break is a result for which a program would get a TypeError, or
a RuntimeError for a text in place of JSON. Errors that a tool reports are no results.

Before a type is firm it is a hint, and breaks nothing. All is shown for two halves of the tools, drawn by the hash of
their names: one to choose that number of results on, one for the goals.
"""

from __future__ import annotations

import ast
import asyncio
import gzip
import importlib
import json
import random
import re
import sys
import tempfile
import types
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from unittest.mock import patch

import msgspec

from bench.data import FOLDER
from bench.find_sets import BFCL
from bench.gate import APIS, TASKS
from bench.report import Goal, Options, Report, Table
from switchboard_mcp.children.catalog import Catalog, Tool
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.programs import learned_types
from switchboard_mcp.programs.engine import Settled
from switchboard_mcp.programs.learned_types import LearnedTypes

SOURCE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
RECORDED = FOLDER / "results" / "trajectories.json.gz"
AFTER = (1, 3, 10)
SEEN = ((1, 1), (2, 2), (3, 3), (4, 9), (10, 10**9))
GOAL_PERCENT = 0.5
FIRM_CHOICES = (1, 2, 3, 5)

Results = dict[str, list[Settled]]


def run(options: Options) -> Report:
    report = Report()
    sets: dict[str, Results] = {}
    if BFCL.exists():
        sets["BFCL multi-turn"] = bfcl_results(options.pick(1_000, 40))
    if RECORDED.exists():
        sets["LiveMCPBench, recorded"] = recorded_results()
    if not sets:
        report.notes.append("Neither BFCL nor recorded results are here (bench/README.md).")
    rows, typed, choices = [], [], []
    for name, results in sets.items():
        chosen_on = {tool: listed for tool, listed in results.items() if is_in_first_half(tool)}
        held_out = {tool: listed for tool, listed in results.items() if not is_in_first_half(tool)}
        halves: dict[str, Learned] = {}
        for half, tools in (("to choose on", chosen_on), ("held out", held_out)):
            found = halves[half] = asyncio.run(learn(tools))
            rows.append(found.row(f"{name}, {half}"))
            typed.append(found.typed_row(f"{name}, {half}"))
            report.figures[f"types of {name}, {half}"] = found.figures()
            choices.append(
                [f"{name}, {half}", *(asyncio.run(learn(tools, firm)).share() for firm in FIRM_CHOICES)]
            )
        judged = halves["held out"]
        share = 100 * judged.broken / max(judged.later, 1)
        goal = f"later results of {re.split('[ ,]', name)[0]} that break a type, held-out tools"
        report.goals.append(Goal(goal, share, "at most", GOAL_PERCENT, "%"))
    columns = ["set", *(f"firm after {firm}" for firm in FIRM_CHOICES)]
    report.tables.append(Table("Later results that break a type", columns, choices))
    columns = ["set", "tools", "results", "later", "breaks", *(f"after {low}" for low, _ in SEEN)]
    report.tables.append(Table("Results that break the type learned before", columns, rows))
    columns = ["set", *(f"{count} calls" for count in AFTER), "every tool", "firm"]
    report.tables.append(Table("Share of tools with a type, of those called so often", columns, typed))
    return report


class Learned:
    """Figures of one set."""

    def __init__(self) -> None:
        self.tools = self.results = self.later = self.broken = self.firm = 0
        self.breaks: Counter[int] = Counter()
        self.places: Counter[int] = Counter()
        self.typed: Counter[int] = Counter()
        self.called: Counter[int] = Counter()
        self.messages: list[str] = []

    def share(self) -> str:
        return f"{self.broken} of {self.later:,} ({100 * self.broken / max(self.later, 1):.2f} %)"

    def row(self, name: str) -> list[str]:
        cells = [
            f"{sum(self.breaks[n] for n in self.breaks if low <= n <= high)} of "
            f"{sum(self.places[n] for n in self.places if low <= n <= high):,}"
            for low, high in SEEN
        ]
        return [name, str(self.tools), f"{self.results:,}", f"{self.later:,}", str(self.broken), *cells]

    def typed_row(self, name: str) -> list[str]:
        shares = [f"{100 * self.typed[n] / max(self.called[n], 1):.0f} % of {self.called[n]}" for n in AFTER]
        every, firm = (100 * count / max(self.tools, 1) for count in (self.typed[0], self.firm))
        return [name, *shares, f"{every:.0f} %", f"{firm:.0f} %"]

    def figures(self) -> dict[str, Any]:
        return {
            "results": self.results,
            "later": self.later,
            "breaks": self.broken,
            "typed %": {str(n): 100 * self.typed[n] / max(self.called[n], 1) for n in AFTER},
            "messages": self.messages[:20],
        }


def is_in_first_half(tool: str) -> bool:
    return sha256(tool.encode()).digest()[0] < 128


async def learn(results: Results, firm: int = learned_types.FIRM_RESULTS) -> Learned:
    """Learn the type of each tool from its results, one after the other."""
    with patch.object(learned_types, "FIRM_RESULTS", firm):
        return await _learn(results)


async def _learn(results: Results) -> Learned:
    found = Learned()
    spec = ChildSpec(name="bench", kind="stdio", command="bench", source="bench")
    with tempfile.TemporaryDirectory() as folder:
        types_ = LearnedTypes(Catalog(folder))
        for name, listed in results.items():
            found.tools += 1
            has_type = False
            for place, result in enumerate(listed):
                outcome = await types_.settle(spec, Tool(name), name, result)
                found.results += 1
                if place:
                    found.later += 1
                    found.places[place] += 1
                    if outcome.raised is not None:
                        found.broken += 1
                        found.breaks[place] += 1
                        found.messages.append(outcome.message[:160])
                has_type = bool(types_.text(spec, name))
                if place + 1 in AFTER:
                    found.called[place + 1] += 1
                    found.typed[place + 1] += has_type
            found.typed[0] += has_type
            found.firm += has_type and types_.known(spec)[name].is_firm
    return found


def recorded_results() -> Results:
    """Return the results of recorded runs by tool, without those that report an error."""
    found: Results = defaultdict(list)
    for task in json.loads(gzip.decompress(RECORDED.read_bytes()))["tasks"]:
        for call in task["calls"]:
            name = f"{call.get('server', '')}/{call.get('tool', '')}"
            texts = call.get("content") or []
            if texts and not call.get("isError"):
                found[name].append(settled("\n".join(texts)))
    return found


def settled(text: str) -> Settled:
    """Return a text as a program gets it: its JSON if it is an object or a list."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return Settled(text=text)
        return Settled(value=text.encode())
    return Settled(text=text)


def bfcl_results(tasks: int) -> Results:
    """Return the results of BFCL's back ends for the calls of its tasks, by function."""
    found: Results = defaultdict(list)
    for function, value in task_results(tasks):
        try:
            found[function].append(Settled(value=json.dumps(value).encode()))
        except (TypeError, ValueError):
            continue
    return found


def task_results(tasks: int) -> Iterator[tuple[str, object]]:
    """Yield function and result of each call of the first tasks of each category."""
    sys.path.insert(0, str(BFCL))
    # One function of one back end needs it; its calls fail, and are left out.
    sys.modules.setdefault("mpmath", types.ModuleType("mpmath"))
    with zipfile.ZipFile(BFCL) as package:
        for name in TASKS:
            questions = package.read(f"bfcl_eval/data/BFCL_v4_multi_turn_{name}.json").decode().splitlines()
            answers = package.read(f"bfcl_eval/data/possible_answer/BFCL_v4_multi_turn_{name}.json")
            pairs = list(zip(questions, answers.decode().splitlines(), strict=True))[:tasks]
            for question, answer in pairs:
                yield from run_task(json.loads(question), json.loads(answer), is_long=name == "long_context")
    sys.path.remove(str(BFCL))


def run_task(
    question: dict[str, Any], answer: dict[str, Any], *, is_long: bool
) -> Iterator[tuple[str, object]]:
    """Yield function and result of each call of a task."""
    random.seed(question["id"])
    servers = {}
    for api in question["involved_classes"]:
        server = getattr(importlib.import_module(f"{SOURCE}.{APIS[api]}"), api)()
        if hasattr(server, "_load_scenario"):
            server._load_scenario(question["initial_config"].get(api, {}), long_context=is_long)
        servers[api] = server
    for turn in answer["ground_truth"]:
        for written in turn:
            call = ast.parse(written.strip(), mode="eval").body
            assert isinstance(call, ast.Call)
            assert isinstance(call.func, ast.Name)
            function = call.func.id
            owner = next((one for one in servers.values() if hasattr(one, function)), None)
            if owner is None:
                continue
            positional = list(map(ast.literal_eval, call.args))
            named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
            try:
                value = getattr(owner, function)(*positional, **named)
            except Exception as error:  # noqa: BLE001  # as BFCL's own runner does it
                value = {"error": str(error)}
            if not (isinstance(value, dict) and value.keys() == {"error"}):  # an error of a tool is no result
                yield function, value
