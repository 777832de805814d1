"""The answer to `stubs`: the modules of the chosen suites as a model reads them, within a token budget.

With documentation if that fits, then without, then only the functions that match best, then only names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from switchboard_mcp.errors import refused
from switchboard_mcp.gateway.programs.checker import Learned, ProgramChecker, program_tools
from switchboard_mcp.gateway.programs.own_functions import OWN_MODULE
from switchboard_mcp.gateway.suites.tool_search import BUDGET_TOKENS, ToolSearch
from switchboard_mcp.programs.checking.stubs import shown
from switchboard_mcp.suites.fuzzy import nearest
from switchboard_mcp.suites.token_estimate import estimate
from switchboard_mcp.system import work_thread

if TYPE_CHECKING:
    from switchboard_mcp.gateway.programs.program_calls import ProgramRun
    from switchboard_mcp.gateway.suites.child_suite import ChildSuite
    from switchboard_mcp.gateway.suites.views import View

OWN_LINE = f"# {OWN_MODULE}: find(query=…), describe(suite=…, subtool=…), select(handle=…, query=…)"
MORE = "# {left} more functions: name a query, or a larger budget."
# Functions that a query leaves, over all suites.
MAX_FOUND = 20
NO_SUITES = "# There is no suite to import."


async def render_stubs(
    checker: ProgramChecker,
    view: View,
    host: ProgramRun,
    suites: Sequence[str],
    query: str,
    budget: int,
) -> str:
    """Return the stubs of these suites, or of the functions that a query finds; without either, all names."""
    modules = checker.modules(view)
    chosen = _chosen(modules, suites) if suites else modules
    if suites:
        await checker.start(chosen.values(), host)
    if query:
        matches = await ToolSearch().refresh_and_find(
            work_thread.OWN, chosen.values(), query, MAX_FOUND, BUDGET_TOKENS
        )
        by_suite: dict[str, list[str]] = {}
        for match in matches:
            by_suite.setdefault(match.suite, []).append(match.subtool)
        chosen = {name: suite for name, suite in chosen.items() if suite.name in by_suite}
        names = {name: by_suite[suite.name] for name, suite in chosen.items()}
        return await work_thread.run(
            work_thread.OWN, partial(_render, chosen, checker.learned(chosen), names, budget)
        )
    if not suites:
        return await work_thread.run(work_thread.OWN, partial(_names_only, chosen, budget))
    return await work_thread.run(
        work_thread.OWN, partial(_render, chosen, checker.learned(chosen), {}, budget)
    )


def _chosen(modules: Mapping[str, ChildSuite], wanted: Sequence[str]) -> dict[str, ChildSuite]:
    """Return suites by the names of modules, suite tools or children."""
    by_name = {
        **{suite.source: name for name, suite in modules.items()},
        **{suite.name: name for name, suite in modules.items()},
        **{name: name for name in modules},
    }
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        near = nearest(unknown[0], list(by_name))
        raise refused("unknown_tool", f"There is no suite '{unknown[0][:100]}' to import.", nearest=near)
    return {by_name[name]: modules[by_name[name]] for name in wanted}


def _render(
    chosen: Mapping[str, ChildSuite], learned: Learned, wanted: Mapping[str, Sequence[str]], budget: int
) -> str:
    """Return the most detailed text that fits."""
    tools = {name: program_tools(suite, learned[name]) for name, suite in chosen.items()}
    if wanted:
        tools = {
            name: sorted(
                (tool for tool in tools[name] if tool.name in wanted[name]),
                key=lambda tool: wanted[name].index(tool.name),
            )
            for name in chosen
        }
    for with_docs in (True, False):
        modules = [shown(name, chosen[name].source, tools[name], with_docs=with_docs) for name in chosen]
        text = "\n".join(f"# import {module.name}\n{module.text()}" for module in modules)
        if estimate(text) <= budget:
            return text or NO_SUITES
    modules = [shown(name, chosen[name].source, tools[name], with_docs=False) for name in chosen]
    parts: list[str] = []
    left = 0
    room = budget - estimate(MORE)
    for number, module in enumerate(modules):
        functions = list(module.functions)
        share = (room - sum(map(estimate, parts))) // (len(modules) - number)
        while functions and estimate(module.text(functions)) > share:
            functions = functions[: len(functions) * 3 // 4]
        left += len(module.functions) - len(functions)
        if functions:
            parts.append(f"# import {module.name}\n{module.text(functions)}")
    return "\n".join([*parts, MORE.format(left=left)])


def _names_only(modules: Mapping[str, ChildSuite], budget: int) -> str:
    """Return the modules with the names of their functions."""
    lines = [OWN_LINE]
    for name, suite in modules.items():
        if suite.child.inventory.snapshot is None:
            lines.append(f"# {name}: not started yet, name it in `suites`")
            continue
        names = [tool.name for tool in suite.permitted(suite.child.inventory.known_tools())]
        room = max((budget - estimate("\n".join(lines))) // max(len(modules) - len(lines) + 1, 1), 20)
        while names and estimate(", ".join(names)) > room:
            names = names[: len(names) * 3 // 4]
        lines.append(f"# {name}: {', '.join(names)}" if names else f"# {name}")
    return "\n".join(lines)
