"""The command `find`: searches the subtools of all suites, or of a catalog file, by a sentence. Starts nothing."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from switchboard_mcp.app import Switchboard
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.cli.catalogs import by_unique_name, read_catalog
from switchboard_mcp.cli.console import Screen, Styled
from switchboard_mcp.cli.invocation import (
    HOW_TO_ADD_CHILDREN,
    Invocation,
    open_switchboard,
    show_warnings,
    usage_error,
)
from switchboard_mcp.cli.parser import Command, option, positional
from switchboard_mcp.config.sections import PROGRAM_NAME
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.gateway.suites.switchboard_suite import MAX_PROGRAMS
from switchboard_mcp.gateway.suites.tool_search import (
    BRIEF_LEVELS,
    BUDGET_TOKENS,
    LEVELS,
    Found,
    IndexedTool,
    SubtoolMatch,
    ToolSearch,
    search_document,
    to_matches,
)
from switchboard_mcp.programs.kept_programs import kept_programs_of
from switchboard_mcp.suites.detail_levels import Level
from switchboard_mcp.suites.search import Index


class FindReport(Struct, frozen=True):
    """The answer of `--json`."""

    query: str
    matches: list[SubtoolMatch]
    unknown: list[str]
    """Children of which nothing is known yet: they were not searched."""


def run(invocation: Invocation) -> int:
    """Search and show the matches; exit code 1 if there are none."""
    if not invocation.args.words:
        raise usage_error("`find` needs a few words.", 'For example: `switchboard find "open an issue"`.')
    query = " ".join(invocation.args.words)
    if invocation.args.catalog:
        report = FindReport(query, search_catalog(invocation, query), [])
    else:
        report = run_loop(lambda: search_suites(invocation, query))
    if invocation.as_json:
        invocation.console.out.json(report)
    else:
        show(report, invocation.console.out)
    return 0 if report.matches else 1


COMMAND = Command(
    "find WORDS … [OPTIONS]",
    "Find the subtools that match a sentence, in all suites, with how to call them. Starts nothing.",
    run=run,
    arguments=[
        positional("words", "what you want to do", nargs="*"),
        option("--limit", "N", "how many to show (default: 5)", 5),
        option("--catalog", "FILE", "search a catalog file instead of the workspace"),
    ],
    epilog='example:\n  switchboard find "open an issue about a bug"',
)


def search_catalog(invocation: Invocation, query: str) -> list[SubtoolMatch]:
    """Search the servers of a catalog file."""
    servers = by_unique_name(read_catalog(invocation.args.catalog))
    places = [IndexedTool(name, tool.view()) for name, server in servers.items() for tool in server.tools]
    documents = [
        search_document(place.tool, place.suite, servers[place.suite].description or "") for place in places
    ]
    hits = Index(documents).search(query, invocation.args.limit)
    matches = [Found(places[hit.place], hit.score) for hit in hits]
    return to_matches(matches, BUDGET_TOKENS, levels(invocation))


def levels(invocation: Invocation) -> Sequence[Level]:
    """Return the levels of detail to try: with the docs of parameters for programs and models only."""
    return LEVELS if invocation.as_json else BRIEF_LEVELS


async def search_suites(invocation: Invocation, query: str) -> FindReport:
    """Search the known subtools of the workspace's children."""
    async with open_switchboard(invocation) as switchboard:
        if switchboard.context.disabled is not None:
            raise SwitchboardError(switchboard.context.disabled)
        show_warnings(switchboard.workspace.warnings, invocation.console)
        suites = list(switchboard.gateway.suites.values())
        if not suites:
            message = f"There is nothing to search: no children in {switchboard.workspace.folder}."
            raise usage_error(message, HOW_TO_ADD_CHILDREN)
        finder = ToolSearch()
        finder.refresh(suites)
        budget = switchboard.workspace.config.introspection.budget_tokens
        unknown = [suite.child.name for suite in suites if suite.child.snapshot is None]
        matches = finder.find(query, invocation.args.limit, budget, levels(invocation))
        return FindReport(query, [*_kept_programs(switchboard, query), *matches], unknown)


def _kept_programs(switchboard: Switchboard, query: str) -> list[SubtoolMatch]:
    """Return the kept programs that match."""
    suite = switchboard.gateway.view.suite_of(PROGRAM_NAME)
    if suite is None:
        return []
    programs = kept_programs_of(switchboard.workspace).find(query, MAX_PROGRAMS)
    return [
        SubtoolMatch(suite.name, "run", f'run(name="{program.name}")', program.description)
        for program in programs
    ]


def show(report: FindReport, out: Screen) -> None:
    """Print each match, with the command that calls the best one."""
    if not report.matches:
        out.line("Nothing matches these words.")
    for match in report.matches:
        out.line(
            f"{out.paint(match.suite, 'bold cyan')}  {out.paint(match.subtool, 'bold')}{match.signature}"
            + (f"  (also in {', '.join(match.also)})" if match.also else "")
        )
        if match.summary:
            out.prose(match.summary, "    ")
    if report.matches:
        best = report.matches[0]
        out.line(f"$ switchboard call {best.suite} {best.subtool} …", "dim")
    if report.unknown:
        out.table(
            [
                (
                    Styled("not searched, since never started here:", "dim"),
                    Styled(", ".join(report.unknown), "dim"),
                )
            ]
        )
        out.line("`switchboard list --refresh` starts every child once.", "dim")
