"""`switchboard status`: the health of the children, from the server that runs here, else from config and earlier runs.

Starts nothing. Exit code 1 if calls to some child are refused.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct

from switchboard_mcp.app import load
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.broker.broker_client import find_brokers
from switchboard_mcp.bus import relay_status
from switchboard_mcp.cli.commands.broker import (
    broker_memory,
    describe_users,
    headline,
    memory_line,
    read_reports,
    report_members,
    show_sessions,
)
from switchboard_mcp.cli.console import Console, Screen, Styled, format_duration, one_line, plural
from switchboard_mcp.cli.invocation import (
    Invocation,
    open_switchboard,
    show_no_children,
    show_warnings,
    user_scope_members,
    user_scope_text,
)
from switchboard_mcp.cli.parser import Command
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.sections import resolve_bus
from switchboard_mcp.gateway.status import ChildStatus, ChildUse, child_statuses
from switchboard_mcp.server import stdio_info
from switchboard_mcp.server.broker_report import BrokerReport
from switchboard_mcp.server.http import server_info, status_endpoint
from switchboard_mcp.server.http.status_endpoint import ServerStatus
from switchboard_mcp.server.stdio_info import StdioInfo

if TYPE_CHECKING:
    from switchboard_mcp.bus.relay_status import BusStatus

FOLDER = ".switchboard"
COLOURS = {
    "healthy": "green",
    "starting": "cyan",
    "probation": "yellow",
    "unhealthy": "red",
    "quarantined": "bold red",
    "absent": "red",
    "untried": "dim",
    "disabled": "dim",
}


class RunningServer(Struct, frozen=True, rename="camel"):
    """The server that answered, and its status."""

    url: str
    pid: int
    started_at: str
    status: ServerStatus


def run(invocation: Invocation) -> int:
    """Collect and show the status."""
    workspace = load(invocation.options)
    served = find_server(os.path.join(workspace.folder, FOLDER), invocation.console)
    user = workspace.user
    folders = [workspace.folder, *([user.folder] if user is not None and user.workspace else [])]
    brokers = [
        report
        for folder in folders
        for report in read_reports(find_brokers(folder, invocation.options.config, os.environ))
    ]
    if served is not None:
        children = served.status.children
    elif brokers:
        children = [child for report in brokers for child in report.children]
    else:
        children = run_loop(lambda: _configured_children(invocation))
    bus = _bus(workspace)
    stdio_servers = [info for folder in folders for info in stdio_info.read_all(folder, os.environ)]
    if invocation.as_json:
        answer = {
            "server": None if served is None else _server_members(served),
            "workspace": workspace.folder,
            "children": children,
            "stdioServers": stdio_servers,
            "brokers": [report_members(report) for report in brokers],
            "userWorkspace": user_scope_members(workspace),
        }
        invocation.console.out.json(answer | ({} if bus is None else {"bus": bus}))
    else:
        show_warnings(workspace.warnings, invocation.console)
        if served is not None or not brokers:
            show(served, children, workspace.folder, invocation.console)
        for number, report in enumerate(brokers):
            if number or served is not None:
                invocation.console.out.line()
            show_broker(report, invocation.console.out, with_children=served is None)
        if served is None and not brokers and (text := user_scope_text(workspace)):
            invocation.console.out.prose(text, style="dim")
        if bus is not None:
            invocation.console.out.line(bus_line(bus))
        shown_brokers = {report.pid for report in brokers}
        alone = [info for info in stdio_servers if info.broker not in shown_brokers]
        show_stdio_servers(alone, invocation.console.out)
    return 1 if any(child.is_unavailable for child in children) else 0


def _server_members(served: RunningServer) -> dict[str, object]:
    """Return the members of the HTTP server in JSON."""
    return {
        "url": served.url,
        "pid": served.pid,
        "startedAt": served.started_at,
        "version": served.status.version,
        "uptimeSeconds": served.status.uptime_seconds,
        "sessions": served.status.sessions,
    }


COMMAND = Command(
    "status [OPTIONS]",
    "Show the health of the children, as reported by the HTTP server or the broker that runs here; without one, what\n"
    "is configured and known of them. Lists the sessions of the broker, and the servers that hosts have started here\n"
    "over stdio. Starts nothing. Exit code 1 if calls to a child are refused.",
    run=run,
)


def show_broker(report: BrokerReport, out: Screen, *, with_children: bool) -> None:
    """Print a broker with its children and sessions."""
    now_s = time.time()
    out.line(headline(report, now_s), "dim")
    memory = broker_memory(report)
    if memory.total:
        out.prose(memory_line(memory), style="dim")
    if with_children:
        _show_children(list(report.children), out, with_figures=True)
    show_sessions(report.sessions, out, now_s)


def show_stdio_servers(servers: list[StdioInfo], out: Screen) -> None:
    """Print a table of the servers that hosts have started over stdio, if there are any."""
    if not servers:
        return
    out.line()
    rows = [
        (
            Styled(server.client or "?", "bold"),
            str(server.pid),
            format_duration(time.time() - server.started_at / 1000),
            Styled(server.workspace),
        )
        for server in servers
    ]
    out.table(rows, ("STDIO HOST", "PID", "UP", "WORKSPACE"), align="lrr")


def _bus(workspace: Workspace) -> BusStatus | None:
    """Return the status of the bus relay, if a bus is configured and a relay has run."""
    if not resolve_bus(workspace.config.bus, os.environ).enabled:
        return None
    return relay_status.read(workspace.folder)


def bus_line(bus: BusStatus) -> str:
    """Return the state of the bus in one line."""
    problem = relay_status.describe_problem(bus)
    return f"bus: {problem or 'connected'}; {bus.events_waiting} events waiting"


def find_server(folder: str, console: Console | None = None) -> RunningServer | None:
    """Return the server of the workspace and its status; None if none answers."""
    info = server_info.read(folder)
    if info is None or not server_info.is_alive(info):
        return None
    status = status_endpoint.request_status(info, folder)
    url = f"http://{info.host}:{info.port}"
    if isinstance(status, str):
        if console is not None:
            console.warn(
                f"Switchboard (process {info.pid}) serves here at {url}, but does not answer: {status}."
            )
        return None
    return RunningServer(url, info.pid, info.started_at, status)


async def _configured_children(invocation: Invocation) -> list[ChildStatus]:
    """Return the children as configured, with what earlier runs or the lock know of them."""
    async with open_switchboard(invocation) as switchboard:
        return child_statuses(switchboard.gateway.suites.values())


def show(served: RunningServer | None, children: list[ChildStatus], folder: str, console: Console) -> None:
    """Print a table of children."""
    out = console.out
    if served is None:
        out.line(f"No HTTP server runs here; this is what is configured in {folder}.", "dim")
    else:
        status = served.status
        out.line(
            f"Switchboard {status.version} at {served.url}, process {served.pid}, "
            f"up {format_duration(status.uptime_seconds)}, {plural(status.sessions, 'session')}",
            "dim",
        )
    if not children:
        show_no_children(folder, out)
        return
    _show_children(children, out, with_figures=served is not None)


def _show_children(children: list[ChildStatus], out: Screen, *, with_figures: bool) -> None:
    rows = [
        (
            Styled(child.suite, "bold cyan"),
            Styled(child.health, COLOURS.get(child.health, "")),
            child.state,
            "?" if child.subtools is UNSET else str(child.subtools),
            f"{child.tokens_saved:,}" if child.tokens_saved else "",
            *(_figures(child) if with_figures else ()),
            Styled(_remark(child)),
        )
        for child in children
    ]
    figures = ("CALLS", "ERRORS", "P50", "PID") if with_figures else ()
    out.table(
        rows,
        ("SUITE", "HEALTH", "STATE", "SUBTOOLS", "SAVED", *figures, ""),
        align="lllrr" + "r" * len(figures),
        # PID, SAVED, SUBTOOLS and P50.
        optional=(8, 4, 3, 7) if figures else (4, 3),
    )
    for child in children:
        if child.extensions_not_announced is not UNSET:
            out.prose(one_line(f"{child.suite}: {child.extensions_not_announced}"), style="dim")


def _figures(child: ChildStatus) -> tuple[str | Styled, ...]:
    """Return the cells that only a running server knows."""
    return (
        f"{child.calls:,}" if child.calls else "",
        Styled(f"{child.errors:,}", "red") if child.errors else "",
        format_ms(child.p50) if child.p50 is not UNSET else "",
        str(child.pid or ""),
    )


def _sandbox(child: ChildStatus) -> str:
    broken = f", without {' and '.join(child.sandbox_broken)}" if child.sandbox_broken else ""
    denied = f", {child.sandbox_denied:,} refused" if child.sandbox_denied else ""
    return f"sandbox {child.sandbox}{broken}{denied}"


def _remark(child: ChildStatus) -> str:
    parts = [f"{plural(child.in_flight, 'call')} in flight"] if child.in_flight else []
    if child.failures:
        parts.append(f"{plural(child.failures, 'failure')} in a row")
    if child.is_unavailable and child.retry_after_ms:
        parts.append(f"next try in {child.retry_after_ms / 1000:.1f} s")
    if child.last_failure is not UNSET:
        parts.append(child.last_failure.message)
    if child.sandbox:
        parts.append(_sandbox(child))
    if isinstance(child, ChildUse) and child.user_count:
        parts.append(f"used by {describe_users(child)}")
    return "; ".join(parts)


def format_ms(value: float | None) -> str:
    """Format a time in milliseconds; empty if it is unknown."""
    if value is None or value < 0:
        return ""
    return (
        f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms" if value < 10_000 else f"{value / 1000:.1f} s"
    )
