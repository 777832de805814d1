"""`switchboard list` and `introspect`: show suites without calling them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.app import Switchboard
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.cli.console import Screen, Styled, one_line, plural
from switchboard_mcp.cli.invocation import (
    Invocation,
    find_suite,
    open_switchboard,
    show_no_children,
    show_warnings,
    user_scope_members,
    user_scope_text,
)
from switchboard_mcp.cli.live import LiveDisplay
from switchboard_mcp.cli.local_client import ToolResult, connected
from switchboard_mcp.cli.parser import Command, check_timeout, choice, flag, number, option, positional
from switchboard_mcp.cli.result_view import failure_of, show_error
from switchboard_mcp.cli.start_all import start_all
from switchboard_mcp.config.models import ChildSpec, ConfigWarning, Workspace
from switchboard_mcp.errors import Failure, shell_word
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.suites.introspect import VERBOSITIES
from switchboard_mcp.suites.signature import result_type, signature
from switchboard_mcp.suites.token_estimate import estimate

SHOWN_DIRECTLY = "Its tools are listed directly."
UNKNOWN = "?"


class SuiteInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """One suite and its child. Counts are null if the child was never started here."""

    suite: str
    child: str
    kind: str
    source: str
    key: str
    command: list[str]
    subtools: int | None
    denied: int | None
    scope: str = "workspace"
    twins: dict[str, int | None] = {}
    """Subtools of each twin suite, if the suite is split."""


class DisabledChild(Struct, frozen=True):
    """A child that is switched off, and the file that says so."""

    child: str
    source: str


class ToolListing(Struct, frozen=True):
    """The answer of `list`: the tools as a host gets them, and the children behind them."""

    workspace: Workspace
    tools: Raw
    children: list[SuiteInfo]
    warnings: list[ConfigWarning]
    failed: dict[str, Failure] = {}
    disabled: list[DisabledChild] = []

    @property
    def folder(self) -> str:
        """The folder of the workspace."""
        return self.workspace.folder


def run_list(invocation: Invocation) -> int:
    """List the suites. Starts nothing, unless `--refresh` is given."""
    check_timeout("list", invocation.args.timeout)
    listing = run_loop(lambda: gather_listing(invocation))
    if invocation.as_json:
        members = msgspec.json.decode(listing.tools, type=dict[str, Raw])
        warnings = [str(warning) for warning in listing.warnings]
        answer = {
            **members,
            "children": listing.children,
            "disabled": listing.disabled,
            "warnings": warnings,
            "userWorkspace": user_scope_members(listing.workspace),
        }
        invocation.console.out.json(
            {**answer, "failed": listing.failed} if invocation.args.refresh else answer
        )
    else:
        show_listing(listing, invocation)
    return 1 if listing.failed else 0


LIST = Command(
    "list [OPTIONS]",
    "List the suites as a host sees them. Starts nothing: counts come from earlier runs. With --refresh every child\n"
    "is started once, all at the same time, and its tools are read again; exit code 1 if one fails.",
    run=run_list,
    arguments=[
        flag("--refresh", "start every child, and read its tools again"),
        option(
            "--timeout",
            "SECONDS",
            "with --refresh, time limit for each child (default: its own start limit)",
            default=None,
            type=number,
        ),
    ],
)


async def gather_listing(invocation: Invocation) -> ToolListing:
    """Request the tools as a host would."""
    async with open_switchboard(invocation) as switchboard, connected(switchboard.gateway) as host:
        workspace = switchboard.workspace
        failed = await refresh(switchboard, invocation) if invocation.args.refresh else {}
        children = [suite_info(suite) for suite in switchboard.gateway.suites.values()]
        disabled = [DisabledChild(spec.name, spec.source) for spec in workspace.disabled]
        tools = await host.list_tools()
        return ToolListing(workspace, tools, children, workspace.warnings, failed, disabled)


async def refresh(switchboard: Switchboard, invocation: Invocation) -> dict[str, Failure]:
    """Start every child at once to refresh its tools; return the failures by child."""
    reports = await start_all(
        switchboard, invocation.console.err, draw=invocation.may_draw, within_s=invocation.args.timeout
    )
    return {report.child: report.error for report in reports if isinstance(report.error, Failure)}


def suite_info(suite: ChildSuite) -> SuiteInfo:
    """Describe one suite from its configuration and the results of earlier runs."""
    spec, knowledge = suite.child.spec, suite.child.snapshot
    tools = suite.child.inventory.known_tools()
    allowed = len(suite.permitted(tools))
    return SuiteInfo(
        suite=suite.name,
        child=spec.name,
        kind=spec.kind,
        source=spec.source,
        key=spec.key,
        command=command_of(spec),
        subtools=allowed if knowledge else None,
        denied=len(tools) - allowed if knowledge else None,
        scope=spec.scope,
        twins={
            name: len(suite.twins.of(name, suite, suite.permitted(tools))) if knowledge else None
            for name in suite.listed_names()
        }
        if suite.twins is not None and suite.listed_names() != [suite.name]
        else {},
    )


def command_of(spec: ChildSpec) -> list[str]:
    """Return the configured command: variables are not expanded, secrets are masked."""
    mask = Redactor().redact_text
    return [mask(word) for word in (spec.command, *spec.args)] if spec.kind == "stdio" else []


def show_listing(listing: ToolListing, invocation: Invocation) -> None:
    """Print a table of suites."""
    out = invocation.console.out
    show_warnings(listing.warnings, invocation.console, every=True)
    if not listing.children:
        if listing.disabled:
            _show_disabled(listing, out)
        elif listing.warnings:
            out.line(f"No child in {listing.folder} can be shown; see the warnings.")
        else:
            show_no_children(listing.folder, out)
        _show_user_scope(listing, out)
        return
    described = {tool["name"]: tool["description"] for tool in msgspec.json.decode(listing.tools)["tools"]}
    rows = [
        (
            Styled(name, "bold cyan"),
            info.child,
            _count(info) if name == info.suite or info.twins[name] is None else Styled(str(info.twins[name])),
            Styled(described.get(name, SHOWN_DIRECTLY)),
        )
        for info in listing.children
        for name in info.twins or [info.suite]
    ]
    out.table(rows, header=("SUITE", "CHILD", "SUBTOOLS", "DESCRIPTION"), optional=(1,), cell_lines=1)
    if listing.disabled:
        _show_disabled(listing, out)
    _show_user_scope(listing, out)
    for problem in listing.failed.values():
        invocation.console.show_failure(problem)
    if not invocation.args.refresh and any(info.subtools is None for info in listing.children):
        out.line(
            f"{UNKNOWN}: never started here; `switchboard list --refresh` starts every child.",
            "dim",
        )


def _show_user_scope(listing: ToolListing, out: Screen) -> None:
    if text := user_scope_text(listing.workspace):
        out.prose(text, style="dim")


def _show_disabled(listing: ToolListing, out: Screen) -> None:
    names = [one_line(child.child) for child in listing.disabled]
    out.line(
        f"Disabled: {', '.join(names)}. `switchboard enable {shell_word(names[0])}` switches it on.", "dim"
    )


def _count(info: SuiteInfo) -> Styled:
    if info.subtools is None:
        return Styled(UNKNOWN, "dim")
    return Styled(f"{info.subtools}{f' ({info.denied} denied)' if info.denied else ''}")


class IntrospectResult(Struct, rename="camel"):
    """The answer of an introspect call."""

    tools: list[dict[str, Any]] = []
    detail: str = ""
    more: str = ""
    truncated: bool = False
    total: int | None = None
    cursor: str = ""
    instructions: str = ""


class Introspection(Struct, frozen=True):
    """The answer of one suite, with its name and child."""

    suite: str
    child: str
    result: ToolResult


def run_introspect(invocation: Invocation) -> int:
    """Show the subtools of one suite."""
    introspection = run_loop(lambda: gather_introspection(invocation))
    problem = failure_of(introspection.result)
    if problem is not None:
        return show_error(problem, invocation)
    text = _text(introspection.result)
    if invocation.as_json:
        invocation.console.out.json(text.encode())
    else:
        answer = msgspec.json.decode(text, type=IntrospectResult)
        show_answer(introspection, answer, estimate(text), invocation)
    return 0


INTROSPECT = Command(
    "introspect SUITE [OPTIONS]",
    "Show the subtools of a suite, as a model reads them.",
    run=run_introspect,
    arguments=[
        positional("suite", "name of a suite, or of its child"),
        option("--subtool", "NAME", "one subtool, in full"),
        option("--query", "WORDS", "only subtools that match these words, best first"),
        choice("--verbosity", VERBOSITIES, "how much to show of each subtool"),
        option("--cursor", "CURSOR", "the next page, from the end of the previous one"),
    ],
    epilog=(
        "examples:\n"
        "  switchboard introspect github\n"
        '  switchboard introspect github --query "review a pull request"\n'
        "  switchboard introspect github --subtool create_issue"
    ),
)


async def gather_introspection(invocation: Invocation) -> Introspection:
    """Introspect the suite as a host would."""
    async with open_switchboard(invocation) as switchboard:
        suite = find_suite(switchboard, invocation.args.suite, invocation.console)
        listed = suite.listed_names()
        # Of a split suite the name of a twin shows that twin, and the name of the child both.
        name = invocation.args.suite if invocation.args.suite in listed else suite.callable_name
        result = await _introspect(switchboard, suite, name, invocation)
        return Introspection(name, suite.child.name, result)


async def _introspect(
    switchboard: Switchboard, suite: ChildSuite, name: str, invocation: Invocation
) -> ToolResult:
    filters = {name: getattr(invocation.args, name) for name in ("subtool", "query", "verbosity", "cursor")}
    arguments = {"action": "introspect", **{name: value for name, value in filters.items() if value}}

    def frame(spin: str) -> list[Styled]:
        return [Styled(f"{spin} starting {suite.child.name}")]

    with LiveDisplay(invocation.console.err, frame, enabled=invocation.may_draw):
        async with connected(switchboard.gateway) as host:
            return await host.call(name, arguments)


def _text(result: ToolResult) -> str:
    return "".join(str(block.get("text", "")) for block in result.content)


def show_answer(
    introspection: Introspection, answer: IntrospectResult, tokens: int, invocation: Invocation
) -> None:
    """Print the subtools for people."""
    out = invocation.console.out
    if invocation.args.subtool:
        for tool in answer.tools:
            show_tool(tool, out)
    else:
        count = plural(answer.total or len(answer.tools), "subtool")
        matching = f" matching '{one_line(invocation.args.query)}'" if invocation.args.query else ""
        about = f"child {introspection.child} · {count}{matching}"
        out.line(f"{out.paint(introspection.suite, 'bold')}  {out.paint(about, 'dim')}")
        out.line()
        if answer.detail == "names":
            out.table(
                [(Styled(tool["name"], "cyan"), tool.get("summary", "")) for tool in answer.tools],
                indent=2,
                cell_lines=1,
            )
        else:
            for tool in answer.tools:
                _show_signature(tool, out)
    if answer.instructions:
        out.line()
        out.line("Instructions of the child:", "dim")
        out.prose(answer.instructions, "  ")
    out.line()
    cost = f"What a model reads: detail {answer.detail}, about {tokens:,} tokens (estimated)."
    out.line(cost, "dim")
    if not answer.tools and answer.more:
        out.line(answer.more)
    if answer.cursor:
        rest = f"{len(answer.tools)} of {answer.total} shown. " if answer.total else ""
        out.line(f"{rest}Next page: switchboard introspect {introspection.suite} --cursor '{answer.cursor}'")


def _show_signature(tool: dict[str, Any], out: Screen) -> None:
    out.entry(tool["name"], tool.get("signature") or _head(tool), "cyan", "  ")
    text = tool.get("summary") or tool.get("description") or ""
    if text:
        out.prose(text.strip(), "      ")


def show_tool(tool: dict[str, Any], out: Screen) -> None:
    """Print one subtool in full: its description, then each parameter."""
    schema = tool.get("inputSchema")
    out.entry(tool["name"], _head(tool), "bold cyan")
    text = tool.get("description") or tool.get("summary") or ""
    if text:
        out.line()
        out.prose(text.strip(), "  ")
    rows = parameters(schema)
    if rows:
        out.line()
        out.table(rows, header=("PARAMETER", "TYPE", "", "MEANING"), indent=2)


def _head(tool: dict[str, Any]) -> str:
    """Return the parameters and the type of the result."""
    schema = tool.get("inputSchema")
    returns = tool.get("returns") or result_type(tool.get("outputSchema"))
    return (signature(schema, 0) if schema is not None else "") + (f" -> {returns}" if returns else "")


def parameters(schema: object) -> Sequence[tuple[Styled, str, str, str]]:
    """Return the top-level parameters of a schema: name, type, required or not, description."""
    members = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(members, dict):
        return []
    assert isinstance(schema, dict)
    required = schema.get("required")
    required_names = frozenset(required) if isinstance(required, list) else frozenset()
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    rows = []
    for name, member in members.items():
        alone = {"type": "object", "properties": {"p": member}, "required": ["p"], **definitions}
        kind = signature(alone, 0).removeprefix("(p: ").removesuffix(")")
        doc = member.get("description") if isinstance(member, dict) else None
        rows.append(
            (Styled(name, "cyan"), kind, "required" if name in required_names else "", str(doc or ""))
        )
    return rows
