"""`switchboard doctor --host NAME`: what a host does by itself, and what exposure `auto` therefore shows it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from switchboard_mcp.app import run as run_loop
from switchboard_mcp.cli.console import Cell, Screen, Styled, plural
from switchboard_mcp.cli.invocation import Invocation, open_switchboard, show_warnings, usage_error
from switchboard_mcp.cli.start_all import start_all
from switchboard_mcp.errors import Failure
from switchboard_mcp.gateway.suites.host_exposure import Candidate, Choice, candidates, decide
from switchboard_mcp.hosts.traits import HOSTS, HostTraits
from switchboard_mcp.suites.fuzzy import nearest

COPIES = {
    "text": "the text of a result",
    "structured": "the structured content of a result, if there is any",
    "both": "text and structured content of a result",
}


class HostReport(Struct, frozen=True, rename="camel"):
    """The answer of `--json`. `is_on` if the config has exposure `auto` for any child."""

    host: HostTraits
    is_on: bool
    choices: list[Choice]
    tools: int
    tokens: int
    suites: int
    suite_tokens: int
    """Of all children as suites."""
    failed: dict[str, str]


def explain_host(invocation: Invocation) -> int:
    """Explain what the named host is shown. A child that never ran here is started once."""
    host = find_host(invocation.args.host)
    measured, failed = run_loop(lambda: _measure(invocation))
    # A child for which nothing is set is explained as with `auto`.
    shown = [
        replace(cost, exposure="auto") if cost.exposure == "suite" and not cost.built_in else cost
        for cost in measured
    ]
    choices = decide(shown, host)
    report = HostReport(
        host=host,
        is_on=any(cost.exposure == "auto" for cost in measured),
        choices=choices,
        tools=sum(choice.tools for choice in choices),
        tokens=sum(choice.tokens for choice in choices),
        suites=len(measured),
        suite_tokens=sum(cost.suite_tokens for cost in measured),
        failed=failed,
    )
    if invocation.as_json:
        invocation.console.out.json(to_builtins(report))
    else:
        show_host(report, invocation.console.out)
    return 1 if failed else 0


def find_host(name: str) -> HostTraits:
    """Return the row of a host by its title, by a part of it, or by the name in its `clientInfo`."""
    wanted = _letters(name)
    for host in HOSTS:
        own = {_letters(spelling) for spelling in (*host.names, host.title)}
        if wanted and (wanted in own or any(spelling.startswith(wanted) for spelling in own)):
            return host
    titles = [host.title for host in HOSTS]
    near = nearest(name, titles)
    suggestion = f" Did you mean {' or '.join(near)}?" if near else ""
    raise usage_error(
        f"doctor --host {name}: nothing is known of this host.{suggestion}",
        f"Known are {', '.join(titles)}.",
    )


def _letters(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


async def _measure(invocation: Invocation) -> tuple[list[Candidate], dict[str, str]]:
    """Measure the children of the workspace, and name those that do not start."""
    async with open_switchboard(invocation) as switchboard:
        show_warnings(switchboard.workspace.warnings, invocation.console)
        suites = list(switchboard.gateway.view.suites.values())
        names = frozenset(suite.child.name for suite in suites if suite.child.snapshot is not None)
        reports = await start_all(switchboard, invocation.console.err, draw=invocation.may_draw, skip=names)
        failed = {
            report.child: report.error.message for report in reports if isinstance(report.error, Failure)
        }
        return candidates(suites), failed


def habits(host: HostTraits) -> list[str]:
    """Return what a host does by itself, in sentences."""
    prefix = f" with the prefix {host.name_prefix}" if host.name_prefix else ""
    threshold = f" from {host.defers_from} tools on" if host.defers_from else ""
    before = "only the instructions of a server" if host.hides_names else "their names"
    findings = [
        (host.defers_tools, f"It loads tools after a search{threshold}; before it the model sees {before}."),
        (host.loads_marked, "It loads tools that are marked with `anthropic/alwaysLoad` without a search."),
        (host.code_mode, "Its model may call tools from its own programs."),
        (host.ignores_list_changed, "It ignores changes of the tool list until its next session."),
        (host.name_chars, f"Names of tools have at most {host.name_chars} characters{prefix}."),
        (host.max_tools, f"It takes at most {host.max_tools} tools of all servers together."),
        (host.description_chars, f"It cuts descriptions after {host.description_chars:,} characters."),
        (host.result_tokens, f"Results of more than {host.result_tokens:,} tokens are shortened for it."),
        (host.shows, f"Its model sees {COPIES.get(host.shows, '')}."),
    ]
    return [sentence for applies, sentence in findings if applies] or ["No habit is known."]


def show_host(report: HostReport, out: Screen) -> None:
    """Print what is known of the host, then a table of the children, then the sums and the setting."""
    host = report.host
    out.line(f"{host.title}, looked at on {host.checked}", "bold")
    for sentence in habits(host):
        out.prose(f"- {sentence}")
    if host.sources:
        out.prose(f"Sources: {host.sources}.", style="dim")
    out.line()
    if report.choices:
        out.table(
            _rows(report.choices),
            ("CHILD", "SHOWN AS", "TOOLS", "TOKENS", "WHY"),
            align="llrrl",
            optional=(4,),
        )
        out.line()
        out.prose(
            f"Together {plural(report.tools, 'tool')} of {report.tokens:,} tokens; all as suites, "
            f"{plural(report.suites, 'tool')} of {report.suite_tokens:,}."
        )
    state = (
        "is on for some children"
        if report.is_on
        else 'is off; `"exposure": "auto"` in the config turns it on'
    )
    out.prose(f"Exposure `auto` {state}.")
    for name, problem in report.failed.items():
        out.line(f"✗ {name}: {problem}", "red")


def _rows(choices: Sequence[Choice]) -> list[tuple[Cell, ...]]:
    return [
        (
            Styled(choice.child, "bold cyan"),
            f"{'single tools' if choice.shown == 'direct' else 'suite'}{', loaded' if choice.always_load else ''}",
            f"{choice.tools:,}",
            f"{choice.tokens:,}",
            choice.reason,
        )
        for choice in choices
    ]
