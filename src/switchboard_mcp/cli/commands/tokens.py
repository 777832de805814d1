"""`switchboard tokens`: measure what the suites save, on the user's own children or on a catalog file.

Collects servers and prints figures; `suites.savings` defines what is counted and how sessions are sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.app import Switchboard, workspace_folder
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.cli.catalogs import by_unique_name, read_catalog
from switchboard_mcp.cli.console import Cell, Screen, Styled, plural, visible_width
from switchboard_mcp.cli.invocation import (
    Invocation,
    open_switchboard,
    show_no_children,
    show_warnings,
    usage_error,
)
from switchboard_mcp.cli.parser import Command, choice, flag, option
from switchboard_mcp.cli.start_all import start_all
from switchboard_mcp.config.sections import Profile
from switchboard_mcp.errors import Failure
from switchboard_mcp.gateway.results import usage_file
from switchboard_mcp.gateway.suites.app_pages import tools_with_page
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.gateway.suites.profile_suite import profile_view
from switchboard_mcp.gateway.suites.suite_tools import SHAPES, describe
from switchboard_mcp.setup.child_entries import hosts_of_child
from switchboard_mcp.setup.host_profiles import PROJECT
from switchboard_mcp.setup.hosts import HOSTS
from switchboard_mcp.suites.detail_levels import ToolView
from switchboard_mcp.suites.introspect import VERBOSITIES, IntrospectSettings
from switchboard_mcp.suites.results.counts import ResultCounts
from switchboard_mcp.suites.savings import (
    Costs,
    Count,
    Savings,
    ServerTools,
    Spread,
    flat_listing,
    measure,
    summarise,
)
from switchboard_mcp.suites.suite_names import suite_names
from switchboard_mcp.suites.token_estimate import ACCURACY, estimate
from switchboard_mcp.system.installation import install_hint
from switchboard_mcp.system.user_folders import workspace_state_folder

BASELINE = "name, description and input schema of every tool, as compact JSON"
ESTIMATE = f"estimate of o200k, {ACCURACY}; the extra `tokens` counts exactly"
HOST_TITLES = {host.name: host.title for host in HOSTS} | {PROJECT: "The host of this project's files"}
BAR_CHARS = 40
MOST_BARS = 30
# Fewer tokens of white space are not worth a setting.
WORTH_SAYING = 500


class _Tool(Struct, rename="camel"):
    name: str
    description: str = ""
    input_schema: Raw | UnsetType = UNSET


class _Page(Struct):
    tools: list[_Tool]


class HostTokens(Struct, frozen=True, rename="camel"):
    """Tokens of the tools that one host lists: those of the servers it had before `init`, and all it sees now.

    `added` counts the children that it sees now and did not have, `unknown` those it had that could not be started,
    which are counted on neither side.
    """

    host: str
    before: int
    after: int
    added: int = 0
    unknown: int = 0

    @property
    def sentence(self) -> str:
        """The comparison in one sentence."""
        title = HOST_TITLES.get(self.host, self.host)
        unknown = f"{plural(self.unknown, 'server')} could not be measured"
        if not self.before:
            return f"{title}: {unknown}." if self.unknown else f"{title} listed no tools."
        more = f", with {plural(self.added, 'child', 'children')} added since" if self.added else ""
        more += f"; {unknown}" if self.unknown else ""
        now = _less(self.before, self.after)
        return f"{title} listed {self.before:,} tokens of tools; through Switchboard {now}{more}."


class TokenReport(Struct, frozen=True, rename="camel"):
    """The answer of `--json`."""

    baseline: str
    tokenizer: str
    servers: list[Costs]
    flat: int
    suites: int
    saved: float
    listing: Spread
    session: Spread
    sets: int
    servers_per_set: int
    opened: int
    calls: int
    failed: dict[str, str]
    hosts: list[HostTokens] = []
    split: dict[str, int] = {}
    """Tokens that twin suites cost more than one suite, by child."""
    apps: dict[str, int] = {}
    """Tokens of subtools with a page, which hosts that show apps list directly, by child."""
    results: dict[str, ResultCounts] = {}
    """Tokens of results that did not reach a model, by child, and those of reading on."""


class ChildFigures(Struct, frozen=True):
    """What is known of the user's own children: tools, failures, lists of hosts, costs of twins, results."""

    servers: list[ServerTools] = []
    settings: IntrospectSettings = IntrospectSettings()
    failed: dict[str, str] = {}
    hosts: list[HostTokens] = []
    split: dict[str, int] = {}
    apps: dict[str, int] = {}
    results: dict[str, ResultCounts] = {}


def run(invocation: Invocation) -> int:
    """Measure and show."""
    args = invocation.args
    count, tokenizer = choose_counter(args.tokenizer)
    if args.catalog:
        measured = ChildFigures(catalog_servers(args.catalog))
    else:
        measured = run_loop(lambda: child_servers(invocation, count))
    failed = measured.failed
    costs = [measure(server, count, measured.settings) for server in measured.servers]
    savings = summarise(costs, count, args.servers, args.opened)
    figures = build_report(costs, savings, tokenizer, measured)
    if invocation.as_json:
        invocation.console.out.json(figures)
    elif not costs and not failed:
        show_no_children(workspace_folder(invocation.options), invocation.console.out)
    elif not costs:
        show_failed(figures, invocation.console.out)
    else:
        show(figures, invocation.console.out)
    return 1 if failed else 0


COMMAND = Command(
    "tokens [OPTIONS]",
    "Measure what the suites save: what each host listed before `init` and lists now, and tokens of your children's\n"
    "tools listed flat and behind suites. Then what was saved of results of calls, and what reading on has cost.\n"
    "A child that never ran here is started once.",
    run=run,
    arguments=[
        option("--catalog", "FILE", "measure a catalog file instead of the workspace"),
        flag("--refresh", "start every child, also those known from earlier runs"),
        option("--servers", "N", "servers in a session (default: 5)", 5),
        option("--opened", "N", "suites opened in a session (default: 2)", 2),
        choice(
            "--tokenizer",
            ("estimate", "o200k"),
            "how to count (default: o200k if installed, else an estimate)",
        ),
    ],
    epilog="example:\n  switchboard tokens",
)


def choose_counter(tokenizer: str) -> tuple[Count, str]:
    """Return a token counter and its name: a real tokenizer if installed or requested, else an estimate."""
    if tokenizer != "estimate":
        try:
            import bpe_openai
        except ImportError:
            if tokenizer:
                message = f"The tokenizer {tokenizer} is not installed."
                raise usage_error(message, f"Use --tokenizer estimate. {install_hint('tokens')}") from None
        else:
            encode = bpe_openai.get_encoding("o200k_base").encode_ordinary
            return lambda data: len(encode(data.decode("utf-8", "replace"))), "o200k_base"
    return estimate, ESTIMATE


def catalog_servers(path: str) -> list[ServerTools]:
    """Return the servers of a catalog file, each with the suite tool that Switchboard would show."""
    servers = []
    servers_by_name = {
        name: server for name, server in by_unique_name(read_catalog(path)).items() if server.tools
    }
    suites = suite_names([(name, "") for name in servers_by_name])
    for name, server in servers_by_name.items():
        tools = [tool.view() for tool in server.tools]
        description = server.description or f"Tools of the MCP server '{name}'."
        shown = describe(suites[name], description, [tool.name for tool in tools], SHAPES[0])
        servers.append(ServerTools(name, tools, msgspec.json.encode(shown), server.instructions or ""))
    return servers


async def child_servers(invocation: Invocation, count: Count) -> ChildFigures:
    """Return the user's own children, what each host lists, what twin suites cost, and the counts of results.

    Children that were never started before are started once.
    """
    async with open_switchboard(invocation) as switchboard:
        show_warnings(switchboard.workspace.warnings, invocation.console)
        suites = list(switchboard.gateway.suites.values())
        running = frozenset(suite.child.name for suite in suites if suite.child.snapshot is not None)
        skip = frozenset() if invocation.args.refresh else running
        reports = await start_all(switchboard, invocation.console.err, draw=invocation.may_draw, skip=skip)
        failed = {
            report.child: report.error.message for report in reports if isinstance(report.error, Failure)
        }
        servers = [suite_tools(suite) for suite in suites if suite.child.snapshot is not None]
        settings = suites[0].introspection if suites else IntrospectSettings()
        context = switchboard.context
        counts = usage_file.read(workspace_state_folder(context.environ, "results", context.workspace))
        present = {suite.child.name for suite in suites}
        results = {name: counts[name] for name in sorted(counts) if name in present}
        hosts, split = host_tokens(switchboard, count), split_tokens(suites, count)
        return ChildFigures(servers, settings, failed, hosts, split, app_tokens(suites, count), results)


def split_tokens(suites: Sequence[ChildSuite], count: Count) -> dict[str, int]:
    """Return the tokens that twin suites cost more than one suite, by child."""
    split = [
        suite for suite in suites if suite.child.snapshot is not None and suite.listed_names() != [suite.name]
    ]
    return {
        suite.source: count(_listed(suite)) - count(msgspec.json.encode(suite.descriptor(SHAPES[0])))
        for suite in split
    }


def app_tokens(suites: Sequence[ChildSuite], count: Count) -> dict[str, int]:
    """Return the tokens of subtools with a page, by child. The tools that only pages call are in no prompt."""
    paged = {suite: tools_with_page(suite) for suite in suites if not suite.direct}
    return {
        suite.source: _tokens([suite.child.inventory.tool(name).view() for name in names], count)
        for suite, names in paged.items()
        if names
    }


def _listed(suite: ChildSuite) -> bytes:
    return b"".join(msgspec.json.encode(tool) for tool in suite.descriptors(SHAPES[0]))


def host_tokens(switchboard: Switchboard, count: Count) -> list[HostTokens]:
    """Return the tokens that each host listed before `init` moved its servers, and those it lists now."""
    gateway, workspace = switchboard.gateway, switchboard.workspace
    hosts_of = {spec.name: hosts_of_child(spec) for spec in workspace.children}
    figures = []
    for host in sorted({host for hosts in hosts_of.values() for host in hosts}):
        of_user = workspace.user.profiles.get(host) if workspace.user is not None else None
        profile = workspace.written_config.profiles.get(host)
        if profile is None and of_user is None:
            continue
        # The entry of a host without a profile in the project serves the user workspace alone.
        profile = profile or Profile(hide=[spec.name for spec in workspace.own_children])
        view = profile_view(gateway.all_suites, profile, switchboard.context.log, host, of_user)
        suites_with_tools = {
            name: suite for name, suite in view.suites.items() if suite.child.snapshot is not None
        }
        own = [suite for suite in view.suites.values() if host in hosts_of.get(suite.source, ())]
        before = [
            tool for suite in own if suite.name in suites_with_tools for tool in suite_tools(suite).tools
        ]
        listed = [
            tool
            for page in view.tool_list.pages(stateless=False)
            for tool in msgspec.json.decode(page, type=_Page).tools
            if (behind := view.suite_behind(tool.name)) is None or behind.name in suites_with_tools
        ]
        after = [ToolView(tool.name, tool.description, tool.input_schema) for tool in listed]
        own_known = sum(suite.name in suites_with_tools for suite in own)
        figures.append(
            HostTokens(
                host=host,
                before=_tokens(before, count),
                after=_tokens(after, count),
                added=len(suites_with_tools) - own_known,
                unknown=len(own) - own_known,
            )
        )
    return figures


def _tokens(tools: Sequence[ToolView], count: Count) -> int:
    return sum(map(count, flat_listing(tools)))


def suite_tools(suite: ChildSuite) -> ServerTools:
    """Return a child as hosts see it; denied tools are counted on neither side."""
    knowledge = suite.child.snapshot
    tools = suite.permitted(suite.child.inventory.known_tools())
    views = [tool.view() for tool in tools]
    return ServerTools(suite.child.name, views, _listed(suite), knowledge.instructions if knowledge else "")


def build_report(
    costs: Sequence[Costs], savings: Savings, tokenizer: str, figures: ChildFigures
) -> TokenReport:
    """Combine all figures into one report."""
    flat, suites = sum(cost.flat for cost in costs), sum(cost.suite for cost in costs)
    return TokenReport(
        baseline=BASELINE,
        tokenizer=tokenizer,
        servers=sorted(costs, key=lambda cost: -cost.flat),
        flat=flat,
        suites=suites,
        saved=round(100 * (1 - suites / flat), 2) if flat else 0.0,
        listing=savings.listing,
        session=savings.session,
        sets=savings.sets,
        servers_per_set=savings.servers_per_set,
        opened=savings.opened,
        calls=savings.calls,
        failed=figures.failed,
        hosts=figures.hosts,
        split=figures.split,
        apps=figures.apps,
        results=figures.results,
    )


def show(figures: TokenReport, out: Screen) -> None:
    """Print the result in a sentence, then a table, a bar chart and a summary."""
    for host in figures.hosts:
        out.line(host.sentence, "bold")
    if not figures.hosts:
        servers = plural(len(figures.servers), "server")
        listed = (
            f"{servers} {'lists' if len(figures.servers) == 1 else 'list'} {figures.flat:,} tokens of tools"
        )
        out.line(f"{listed}; through Switchboard {_less(figures.flat, figures.suites)}.", "bold")
    out.line()
    rows: list[tuple[Cell, ...]] = [
        (
            Styled(cost.name, "bold cyan"),
            *(f"{number:,}" for number in (cost.tools, cost.flat, cost.suite)),
            _percent(cost.saved),
            f"{cost.introspect:,}",
            *(f"{cost.verbosities[name]:,}" for name in VERBOSITIES),
        )
        for cost in figures.servers
    ]
    sums = (sum(cost.tools for cost in figures.servers), figures.flat, figures.suites)
    rows.append(("all", *(f"{number:,}" for number in sums), _percent(figures.saved), *[""] * 5))
    header = ("SERVER", "TOOLS", "FLAT", "SUITE", "SAVED %", "INTROSPECT", *VERBOSITIES)
    # The verbosities from full to names, then INTROSPECT.
    out.table(rows, header, align="lrrrrrrrrr", optional=(9, 8, 7, 6, 5))
    out.line()
    bars(figures, out)
    out.line()
    for name, spread in (("Listing", figures.listing), ("Session", figures.session)):
        line = f"{name}: {spread.median:.1f} % saved in the median, {spread.p10:.1f} % or more in nine of ten"
        out.line(f"{line}, {spread.worst:.1f} % at worst.", "bold")
    out.prose(
        f"Over {plural(figures.sets, 'set')} of {plural(figures.servers_per_set, 'server')}. A session lists all "
        f"suites, opens {figures.opened}, looks up one tool if a suite listed names only, and makes "
        f"{figures.calls} calls. "
        f"Baseline: {figures.baseline}. Tokens: {figures.tokenizer}.",
        style="dim",
    )
    for name, tokens in figures.split.items():
        out.prose(
            f"Two suites for {name} in place of one (`suites.{name}.split`) cost {tokens:,} tokens in each list."
        )
    for name, tokens in figures.apps.items():
        out.prose(
            f"Subtools of {name} with a page cost {tokens:,} tokens in hosts that show apps (`suites.{name}.apps`)."
        )
    small = [cost.name for cost in figures.servers if cost.suite + cost.introspect > cost.flat]
    if small:
        out.prose(
            f"One introspection costs more than the whole list of {', '.join(small)}: if nearly every session needs "
            "such a server, `suites.<name>.exposure` set to `direct` is cheaper."
        )
    show_results(figures.results, out)
    show_failed(figures, out)


def show_results(results: Mapping[str, ResultCounts], out: Screen) -> None:
    """Print what was saved of the results of calls so far, and the suites for which compaction would pay."""
    total = ResultCounts()
    for counts in results.values():
        total.add(counts)
    if total.changed:
        share = f" ({100 * total.saved / total.tokens:.0f} %)" if total.tokens else ""
        reading = f"{plural(total.reads, 'read')} of the rest cost {total.read_tokens:,}"
        out.line(
            f"Results: {total.saved:,} of {total.tokens:,} tokens saved{share} in {plural(total.changed, 'result')}; "
            f"{reading}.",
            "bold",
        )
    paying = sorted(
        (
            (counts.compactable, name)
            for name, counts in results.items()
            if counts.compactable >= WORTH_SAYING
        ),
        reverse=True,
    )
    if paying:
        names = ", ".join(f"{name} ({tokens:,})" for tokens, name in paying[:5])
        out.prose(
            f"White space in JSON has cost tokens: {names}. If texts of such a server are no files that a model edits, "
            '`suites.<name>.results` set to `{"compact": "on"}` saves them.'
        )


def show_failed(figures: TokenReport, out: Screen) -> None:
    """Print the children that could not be measured, and why."""
    for name, problem in figures.failed.items():
        out.line(f"✗ {name}: {problem}", "red")


def bars(figures: TokenReport, out: Screen) -> None:
    """Print flat and suite costs as bars, the largest servers first."""
    shown = figures.servers[:MOST_BARS]
    longest = max((cost.flat for cost in shown), default=1) or 1
    names = max((visible_width(cost.name) for cost in shown), default=0)
    figure_chars = max((len(_of(cost)) for cost in shown), default=0)
    size = out.size()
    length = max(8, min(BAR_CHARS, size.columns - names - figure_chars - 4)) if size else BAR_CHARS
    for cost in shown:
        flat = max(1, round(length * cost.flat / longest))
        suite = min(flat, max(1, round(length * cost.suite / longest)))
        bar = out.paint("█" * suite, "green") + out.paint("░" * (flat - suite), "dim")
        name = cost.name + " " * (names - visible_width(cost.name))
        out.line(f"{name}  {bar}{' ' * (length - flat)}  {_of(cost)}")
    out.line(
        f"{out.paint('█', 'green')} as a suite, {out.paint('░', 'dim')} as single tools, in tokens", "dim"
    )
    if len(figures.servers) > MOST_BARS:
        out.line(f"… and {len(figures.servers) - MOST_BARS} smaller ones", "dim")


def _less(before: int, after: int) -> str:
    """Return the tokens now, compared with those before."""
    if not before:
        return f"{after:,}"
    share = 100 * (1 - after / before)
    return f"{after:,} ({abs(share):.0f} % {'less' if share >= 0 else 'more'})"


def _of(cost: Costs) -> str:
    return f"{cost.suite:,} of {cost.flat:,}"


def _percent(value: float) -> Styled:
    return Styled(f"{value:.1f}", "green" if value > 0 else "yellow")
