"""`switchboard broker`: show, restart or stop the process that the stdio sessions of a workspace share."""

from __future__ import annotations

import os
import time

import msgspec

from switchboard_mcp.app import workspace_folder
from switchboard_mcp.broker.broker_client import ask_broker, find_brokers
from switchboard_mcp.cli.console import Screen, Styled, format_duration, plural
from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.cli.parser import Command, flag, positional
from switchboard_mcp.errors import refused
from switchboard_mcp.server.broker_report import BrokerReport


def run(invocation: Invocation) -> int:
    """Run the named action on every broker of the workspace."""
    folder = workspace_folder(invocation.options)
    paths = find_brokers(folder, invocation.options.config, os.environ)
    if invocation.args.action == "status":
        return _show(read_reports(paths), folder, invocation)
    return _end(paths, invocation)


COMMAND = Command(
    "broker status|restart|stop [OPTIONS]",
    "The broker is the process that serves the stdio sessions of a workspace (broker.enabled in the config). There is\n"
    "one for each environment that sessions are started with. `status` shows its sessions and children; exit code 1\n"
    "if none runs. `restart` lets calls finish, for up to 20 seconds, and starts a new one; sessions stay connected.\n"
    "`stop` ends one without sessions.",
    run=run,
    arguments=[
        positional("action", "status, restart or stop", choices=("status", "restart", "stop")),
        flag("--force", "restart: wait for no call; stop: end the sessions too"),
    ],
    epilog="examples:\n  switchboard broker status\n  switchboard broker restart",
)


def read_reports(paths: list[str]) -> list[BrokerReport]:
    """Return the reports of the brokers that answer."""
    reports = []
    for path in paths:
        answer = ask_broker(path, "status")
        try:
            if answer:
                reports.append(msgspec.json.decode(answer, type=BrokerReport))
        except msgspec.MsgspecError:
            continue  # another version, which is being replaced
    return reports


def _show(reports: list[BrokerReport], folder: str, invocation: Invocation) -> int:
    out = invocation.console.out
    if invocation.as_json:
        out.json({"brokers": reports})
    elif not reports:
        out.line(f"No broker runs for {folder}.", "dim")
    for report in [] if invocation.as_json else reports:
        show_report(report, out)
    return 0 if reports else 1


def show_report(report: BrokerReport, out: Screen) -> None:
    """Print one broker: a line about it, its sessions, and its children."""
    up = format_duration(time.time() - report.started_at / 1000)
    running = [child for child in report.children if child.pid]
    out.line(
        f"Broker {report.version}, process {report.pid}, up {up}, {plural(len(report.sessions), 'session')}, "
        f"{plural(len(running), 'child process', 'child processes')}"
    )
    out.line(f"log: {report.log}", "dim")
    sessions = [
        (
            Styled(session.client or "?", "bold"),
            str(session.pid),
            format_duration(time.time() - session.started_at / 1000),
            f"{session.calls:,}",
            str(session.in_flight or ""),
            Styled(session.profile),
        )
        for session in report.sessions
    ]
    if sessions:
        out.table(sessions, ("HOST", "PID", "UP", "CALLS", "IN FLIGHT", "PROFILE"), align="lrrrrl")
    children = [
        (Styled(child.suite, "bold cyan"), child.health, str(child.pid or ""), f"{child.calls:,}")
        for child in report.children
    ]
    if children:
        out.table(children, ("SUITE", "HEALTH", "PID", "CALLS"), align="llrr")


def _end(paths: list[str], invocation: Invocation) -> int:
    action, arguments = invocation.args.action, ["--force"] if invocation.args.force else []
    answers = [answer for path in paths if (answer := ask_broker(path, action, arguments)) is not None]
    for answer in answers:
        if answer != "ok":
            raise refused("broker_busy", f"The broker was not stopped: {answer.removeprefix('no ')}.")
    done = "restarting" if action == "restart" else "stopped"
    invocation.report({"count": len(answers)}, f"{plural(len(answers), 'broker')} {done}.")
    return 0 if answers else 1
