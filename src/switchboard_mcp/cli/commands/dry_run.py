"""`switchboard --dry-run`: connect to every child, list its subtools, exit."""

from __future__ import annotations

from collections.abc import Sequence

from switchboard_mcp.app import run as run_loop
from switchboard_mcp.cli.console import Console, Screen, Styled, plural
from switchboard_mcp.cli.invocation import Invocation, open_switchboard, show_no_children, show_warnings
from switchboard_mcp.cli.start_all import Connected, StartReport, start_all
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.errors import Failure, as_text


def run(invocation: Invocation) -> int:
    """Start every child and show the reports; exit code 1 if any failed."""
    workspace, reports = run_loop(lambda: gather(invocation))
    if invocation.as_json:
        warnings = [str(warning) for warning in workspace.warnings]
        invocation.console.out.json(
            {"workspace": workspace.folder, "children": reports, "warnings": warnings}
        )
    else:
        show(workspace, reports, invocation.console)
    return 0 if all(report.ok for report in reports) else 1


async def gather(invocation: Invocation) -> tuple[Workspace, list[StartReport]]:
    """Connect to every child."""
    async with open_switchboard(invocation) as switchboard:
        reports = await start_all(switchboard, invocation.console.err, draw=invocation.may_draw)
    return switchboard.workspace, reports


def show(workspace: Workspace, reports: Sequence[StartReport], console: Console) -> None:
    """Print one paragraph per child, then the totals."""
    show_warnings(workspace.warnings, console, every=True)
    out = console.out
    if not reports:
        show_no_children(workspace.folder, out)
        return
    for report in reports:
        if isinstance(report.connected, Connected):
            _show_connected(report, report.connected, out)
        elif isinstance(report.error, Failure):
            _show_failed(report, report.error, out)
        out.line()
    out.line(_summary(reports), "bold")


def _show_connected(report: StartReport, connected: Connected, out: Screen) -> None:
    denied = len(connected.subtools) - len(connected.allowed())
    counts = f"{plural(len(connected.subtools), 'subtool')}{f', {denied} denied' if denied else ''}"
    server, took_s = connected.server or "unnamed server", connected.handshake_ms / 1000
    details = f"child {report.child} · {server} · {counts} · {took_s:.2f} s"
    out.line(f"{out.paint('✓', 'green')} {out.paint(report.suite, 'bold')}  {out.paint(details, 'dim')}")
    out.table(
        [
            (Styled(subtool.name, "dim"), Styled(f"denied · {subtool.summary}".rstrip(" ·"), "dim"))
            if subtool.denied
            else (Styled(subtool.name, "cyan"), subtool.summary)
            for subtool in connected.subtools
        ],
        indent=4,
        cell_lines=1,
    )


def _show_failed(report: StartReport, problem: Failure, out: Screen) -> None:
    details = out.paint(f"child {report.child}", "dim")
    out.line(f"{out.paint('✗', 'red')} {out.paint(report.suite, 'bold')}  {details}")
    out.prose(as_text(problem), "    ")


def _summary(reports: Sequence[StartReport]) -> str:
    connected = [report.connected for report in reports if isinstance(report.connected, Connected)]
    subtools = sum(len(child.subtools) for child in connected)
    failed = len(reports) - len(connected)
    text = f"{plural(len(connected), 'child', 'children')} connected, {plural(subtools, 'subtool')}"
    return f"{text}; {failed} failed." if failed else f"{text}."
