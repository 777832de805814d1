"""`switchboard broker`: show, restart or stop the process that the stdio sessions of a workspace share."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from switchboard_mcp import __version__
from switchboard_mcp.app import workspace_folder
from switchboard_mcp.broker.broker_client import (
    NO_ANSWER,
    ask_broker,
    broker_pid,
    find_all_brokers,
    find_brokers,
)
from switchboard_mcp.cli.console import Screen, Styled, format_duration, one_line, plural
from switchboard_mcp.cli.invocation import Invocation
from switchboard_mcp.cli.parser import Command, flag, positional
from switchboard_mcp.errors import refused
from switchboard_mcp.gateway.status import ChildUse, SessionStatus
from switchboard_mcp.server.broker_report import BrokerReport
from switchboard_mcp.server.memory_report import MemoryReport, measure_memory
from switchboard_mcp.system.processes import has_ended

# A restart lets calls finish for 20 seconds; then children are stopped, which takes some more.
END_TIMEOUT_S = 40.0
NEXT_TIMEOUT_S = 15.0
# If it had sessions, which is not known, they are back by then.
AFTER_KILL_S = 3.0
POLL_S = 0.02
SHOWN_CLIENTS = 4


class FoundBroker(Struct, frozen=True):
    """A broker that has answered. `path` is its socket."""

    path: str
    report: BrokerReport


def run(invocation: Invocation) -> int:
    """Run the named action on every broker of the workspace."""
    folder = workspace_folder(invocation.options)
    if invocation.args.all:
        paths = find_all_brokers(os.environ)
    else:
        paths = find_brokers(folder, invocation.options.config, os.environ)
    if invocation.args.action == "status":
        return _show(paths, "this user" if invocation.args.all else folder, invocation)
    return _end(paths, invocation)


COMMAND = Command(
    "broker status|restart|stop [OPTIONS]",
    "The broker is the process that serves the stdio sessions of a workspace. There is one for each environment that\n"
    "sessions are started with; with broker.enabled: false in the config, each session has its own process.\n"
    "`status` shows its sessions, its children and the sessions that use them, and its memory; exit code 1 if none\n"
    "runs. `restart` lets calls finish, for up to 20 seconds, and waits for the new broker; sessions stay connected.\n"
    "`stop` ends one without sessions.",
    run=run,
    arguments=[
        positional("action", "status, restart or stop", choices=("status", "restart", "stop")),
        flag("--all", "the brokers of all workspaces"),
        flag(
            "--force", "restart: wait for no call, and kill a broker that hangs; stop: end the sessions too"
        ),
    ],
    epilog="examples:\n  switchboard broker status\n  switchboard broker status --all --json\n"
    "  switchboard broker restart",
)


# Reports


def read_brokers(paths: Sequence[str]) -> tuple[list[FoundBroker], list[str]]:
    """Return the brokers that answer, and the sockets of those that hang."""
    brokers: list[FoundBroker] = []
    hanging: list[str] = []
    for path in paths:
        answer = ask_broker(path, "status")
        if answer == NO_ANSWER:
            hanging.append(path)
        with suppress(msgspec.MsgspecError):  # another version, which is being replaced
            if answer:
                brokers.append(FoundBroker(path, msgspec.json.decode(answer, type=BrokerReport)))
    return brokers, hanging


def read_reports(paths: Sequence[str]) -> list[BrokerReport]:
    """Return the reports of the brokers that answer."""
    return [broker.report for broker in read_brokers(paths)[0]]


def broker_memory(report: BrokerReport) -> MemoryReport:
    """Measure the memory of a broker, its children and its sessions."""
    return measure_memory(report.pid, report.sessions, report.children)


def report_members(report: BrokerReport) -> dict[str, object]:
    """Return a report with its memory, for JSON output."""
    members: dict[str, object] = msgspec.to_builtins(report)
    return {**members, "memory": broker_memory(report)}


def describe_users(child: ChildUse) -> str:
    """Return the clients of the sessions that use a child, as in `claude-code ×2, codex`."""
    counts = Counter(one_line(user.client) or "?" for user in child.users).most_common()
    names = [f"{name} ×{count}" if count > 1 else name for name, count in counts[:SHOWN_CLIENTS]]
    shown = sum(count for _, count in counts[:SHOWN_CLIENTS])
    if child.user_count > shown:
        names.append(f"{child.user_count - shown} more")
    return ", ".join(names)


def format_mib(count: int) -> str:
    """Format a number of bytes in MiB."""
    mib = count / 1024 / 1024
    return f"{mib:.1f} MiB" if mib < 10 else f"{mib:,.0f} MiB"


def session_cells(session: SessionStatus, now_s: float) -> tuple[Styled, ...]:
    """Return the row of a session; `SESSION_HEADER` names its columns."""
    return (
        Styled(one_line(session.client) or "?", "bold"),
        Styled(one_line(session.version)),
        Styled(str(session.pid or "")),
        Styled(format_duration(now_s - session.started_at / 1000)),
        Styled(f"{session.calls:,}"),
        Styled(str(session.in_flight or "")),
        Styled(one_line(session.profile)),
    )


SESSION_HEADER = ("HOST", "VERSION", "PID", "UP", "CALLS", "NOW", "PROFILE")
SESSION_ALIGN = "llrrrrl"


def _show(paths: list[str], where: str, invocation: Invocation) -> int:
    brokers, hanging = read_brokers(paths)
    out = invocation.console.out
    if invocation.as_json:
        reports = [report_members(broker.report) for broker in brokers]
        out.json({"brokers": reports, "hanging": [broker_pid(path) for path in hanging]})
    elif not brokers and not hanging:
        out.line(f"No broker runs for {where}.", "dim")
    else:
        for number, broker in enumerate(brokers):
            if number:
                out.line()
            show_report(broker.report, out, several=invocation.args.all)
        for path in hanging:
            out.line(f"The broker (pid {broker_pid(path) or '?'}) does not answer.", "red")
            out.line("Kill it; its sessions continue: switchboard broker restart --force")
    return 0 if brokers else 1


def show_report(report: BrokerReport, out: Screen, *, several: bool = False) -> None:
    """Print one broker: lines about it and its memory, its sessions, and its children."""
    memory = broker_memory(report)
    now_s = time.time()
    out.line(headline(report, now_s))
    if several:
        out.line(f"workspace: {report.workspace}", "dim")
    if memory.total:
        out.prose(memory_line(memory), style="dim")
    out.line(f"log: {report.log}", "dim")
    if report.version != __version__:
        out.line(f"This is version {__version__}. Replace the broker: switchboard broker restart")
    show_sessions(report.sessions, out, now_s)
    children = [
        (
            Styled(child.suite, "bold cyan"),
            child.health,
            str(child.pid or ""),
            f"{child.calls:,}",
            format_mib(memory.children[child.id]) if memory.children.get(child.id) else "",
            "" if child.kind == "builtin" else "per session" if child.per_session else "shared",
            Styled(describe_users(child)),
        )
        for child in report.children
    ]
    if children:
        out.line()
        header = ("SUITE", "HEALTH", "PID", "CALLS", "MEMORY", "PROCESS", "USED BY")
        out.table(children, header, align="llrrrll", optional=(2, 4, 1))


def headline(report: BrokerReport, now_s: float) -> str:
    """Return a broker in one line."""
    running = sum(1 for child in report.children if child.pid)
    return (
        f"Broker {report.version}, process {report.pid}, up {format_duration(now_s - report.started_at / 1000)}, "
        f"{plural(len(report.sessions), 'session')}, {plural(running, 'child process', 'child processes')}"
    )


def memory_line(memory: MemoryReport) -> str:
    """Return the memory of a broker in one line, with the baseline of its savings."""
    line = f"{format_mib(memory.total)} of memory in all"
    if memory.saved:
        line += (
            f"; at least {format_mib(memory.saved)} less than with one process of each child for every session "
            "that uses it"
        )
    return line


def show_sessions(sessions: Sequence[SessionStatus], out: Screen, now_s: float) -> None:
    """Print a table of sessions, if there are any."""
    if sessions:
        out.line()
        rows = [session_cells(session, now_s) for session in sessions]
        out.table(rows, SESSION_HEADER, align=SESSION_ALIGN, optional=(1, 6, 5))


# Restart and stop


class EndedBroker(Struct, frozen=True, kw_only=True, rename="camel"):
    """A broker that was restarted or stopped. `next_pid` is the process that serves its sessions now."""

    pid: int
    sessions: int
    killed: bool = False
    next_pid: int = 0


def _end(paths: list[str], invocation: Invocation) -> int:
    action, force = invocation.args.action, invocation.args.force
    brokers, hanging = read_brokers(paths)
    for path in hanging:
        if not force:
            message = f"The broker (pid {broker_pid(path) or '?'}) does not answer."
            raise refused(
                "broker_busy",
                message,
                hint="Kill it; its sessions continue: switchboard broker restart --force",
            )
    ended = [_end_one(broker, action, force=force) for broker in brokers]
    ended += [_kill(path, action) for path in hanging]
    done = "restarted" if action == "restart" else "stopped"
    answer = {"count": len(ended), "brokers": ended}
    line = f"{plural(len(ended), 'broker')} {done}."
    if sessions := sum(outcome.sessions for outcome in ended if outcome.next_pid):
        line += f" {plural(sessions, 'session')} went on without a break."
    invocation.report(answer, line if ended else "No broker runs here.", "" if ended else "dim")
    return 0 if ended else 1


def _end_one(broker: FoundBroker, action: str, *, force: bool) -> EndedBroker:
    """Restart or stop a broker, and wait until that is done."""
    report = broker.report
    answer = ask_broker(broker.path, action, ["--force"] if force else [])
    if answer not in ("ok", None):
        raise refused("broker_busy", f"The broker was not stopped: {answer.removeprefix('no ')}.")
    if not _wait_until(lambda: has_ended(report.pid), END_TIMEOUT_S):
        message = f"The broker (pid {report.pid}) has not ended within {END_TIMEOUT_S:.0f} s."
        raise refused("broker_busy", message, hint="Kill it with `switchboard broker restart --force`.")
    follower = _next_pid(broker.path) if action == "restart" and report.sessions else 0
    return EndedBroker(pid=report.pid, sessions=len(report.sessions), next_pid=follower)


def _kill(path: str, action: str) -> EndedBroker:
    """Kill a broker that hangs. The processes that wait for its sessions start the next one."""
    pid = broker_pid(path)
    if not pid:
        raise refused("broker_busy", f"The pid of the broker at {path} is unknown.")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    _wait_until(lambda: has_ended(pid), END_TIMEOUT_S)
    follower = _next_pid(path, AFTER_KILL_S)
    if action == "stop" and follower:
        ask_broker(path, "stop", ["--force"])
        follower = 0
    return EndedBroker(pid=pid, sessions=0, killed=True, next_pid=follower)


def _next_pid(path: str, within_s: float = NEXT_TIMEOUT_S) -> int:
    """Return the pid of the broker that has taken over; 0 if there is none, since no session was left."""
    brokers: list[FoundBroker] = []

    def is_there() -> bool:
        brokers[:] = read_brokers([path])[0]
        return bool(brokers)

    _wait_until(is_there, within_s)
    return brokers[0].report.pid if brokers else 0


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
