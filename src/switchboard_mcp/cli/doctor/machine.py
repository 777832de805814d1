"""Checks the machine around a workspace: orphaned children, and the configs of hosts.

Reads `/proc` and the hosts' own files; changes nothing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from switchboard_mcp import __version__
from switchboard_mcp.app import uses_broker
from switchboard_mcp.broker.address import runtime_folder, without_noise
from switchboard_mcp.broker.broker_client import broker_pid, find_brokers
from switchboard_mcp.cli.commands.broker import broker_memory, headline, memory_line, read_brokers
from switchboard_mcp.cli.console import plural
from switchboard_mcp.cli.doctor.findings import GOOD, NOTE, PROBLEM, Finding
from switchboard_mcp.config.models import ChildSpec, Workspace, sandbox_of
from switchboard_mcp.config.variables import expand
from switchboard_mcp.errors import Failure, SwitchboardError, shell_word
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.sandbox.probing import find_support
from switchboard_mcp.sandbox.promises import promises
from switchboard_mcp.server import stdio_info
from switchboard_mcp.server.broker_report import BrokerReport
from switchboard_mcp.setup.child_entries import FILE as CHILD_FILE
from switchboard_mcp.setup.discovery import discover_servers
from switchboard_mcp.setup.edit import formats
from switchboard_mcp.setup.hosts import HOSTS
from switchboard_mcp.setup.journal import journal_folders, load_runs
from switchboard_mcp.setup.paths import host_paths
from switchboard_mcp.setup.revert import revertible
from switchboard_mcp.system.user_folders import user_workspace

if TYPE_CHECKING:
    from switchboard_mcp.setup.discovery import ServerMap

PROC = "/proc"
# The program's name is among the first words: an interpreter, its options, the script.
HEAD_WORDS = 4
AGAIN = "Run `switchboard init` again: it writes the current path of Switchboard."


class ProcessInfo(Struct, frozen=True):
    """The facts about a process that are needed here."""

    pid: int
    parent: int
    words: list[str]
    folder: str


def machine_findings(workspace: Workspace, environ: Mapping[str, str]) -> list[Finding]:
    """Return the findings about processes and hosts."""
    return [
        *_orphans(workspace, environ, processes()),
        *_hosts(workspace.folder, environ),
        *_lost_children(workspace.folder, environ),
        *_sandboxes(workspace),
        *_brokers(workspace, environ),
    ]


def _brokers(workspace: Workspace, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Report the brokers, or why none can run, and why the sessions of the workspace use several or none."""
    if sys.platform == "linux" and uses_broker(workspace.config) and not runtime_folder(environ, create=True):
        message = "Sessions cannot share a broker: there is no private folder for its socket."
        level = PROBLEM if workspace.config.broker.enabled else NOTE
        yield Finding(level, message, "Set XDG_RUNTIME_DIR to a folder of yours with mode 0700.")
    brokers, hanging = read_brokers(find_brokers(workspace.folder, None, environ))
    reports = [broker.report for broker in brokers]
    for path in hanging:
        message = f"The broker with the process {broker_pid(path) or '?'} does not answer; its sessions wait."
        yield Finding(PROBLEM, message, "Kill it; its sessions continue: switchboard broker restart --force")
    for report in reports:
        yield from _broker(report)
    variables = [_variables(report.pid) for report in reports]
    if len(variables) > 1:
        names = {name for values in variables for name in values}
        differing = sorted(name for name in names if len({values.get(name) for values in variables}) > 1)
        reason = ", ".join(differing) or "umask, priority, processors, limits (ulimit -H) or installation"
        message = f"{len(variables)} brokers run for this workspace, since sessions differ in {reason}."
        yield Finding(NOTE, message, "Start hosts with the same values, and they share children.")
    alone = [info for info in stdio_info.read_all(workspace.folder, environ) if info.alone]
    for reason, count in sorted(Counter(info.alone for info in alone).items()):
        sessions = "is served alone" if count == 1 else "are served alone"
        yield Finding(NOTE, f"{plural(count, 'session')} {sessions}, not by the broker: {reason}.")


def _broker(report: BrokerReport) -> Iterator[Finding]:
    """Report on one broker: its sessions and memory, and if it is of another version."""
    message = f"{headline(report, time.time())}: {memory_line(broker_memory(report))}."
    yield Finding(GOOD, message, "See who uses which child: switchboard broker status")
    if report.version != __version__:
        message = (
            f"The broker with the process {report.pid} is of version {report.version}, this is {__version__}."
        )
        yield Finding(NOTE, message, "Replace it; its sessions continue: switchboard broker restart")


def _variables(pid: int) -> dict[str, str]:
    """Return the environment of a broker; empty if it cannot be read. What does not count is left out."""
    try:
        with open(f"{PROC}/{pid}/environ", "rb") as file:
            entries = [os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0") if entry]
    except OSError:
        return {}
    return without_noise({name: value for name, _, value in entries})


def _sandboxes(workspace: Workspace) -> Iterator[Finding]:
    """Report promises of sandboxes that do not hold here, and offer sandboxes if no child has one."""
    local = [spec for spec in workspace.children if spec.kind == "stdio" and not spec.wraps]
    words = {spec.name: sandbox_of(spec.name, workspace.config) for spec in local}
    if local and not any(own.is_on for own in words.values()):
        message = (
            f"{plural(len(local), 'child', 'children')} may do whatever you may do: no child has a sandbox."
        )
        yield Finding(
            NOTE, message, f"`switchboard sandbox learn {shell_word(local[0].name)} --save` finds one for it."
        )
    if not any(own.is_on for own in words.values()):
        return
    support = find_support({own.mechanism for own in words.values()})
    reasons: dict[str, list[str]] = {}
    for name, own in words.items():
        for promise in promises(own, support):
            if not promise.holds:
                reasons.setdefault(f"{promise.text}: {promise.why}", []).append(name)
    for reason, names in reasons.items():
        required = [name for name in names if words[name].required]
        message = f"The sandbox of {', '.join(names)} does not keep all it promises here; not kept: {reason}."
        yield Finding(PROBLEM if required else NOTE, message, "`switchboard sandbox show` has the details.")


def processes(proc: str = PROC) -> dict[int, ProcessInfo]:
    """Return the processes of this user by pid; empty without `/proc`."""
    by_pid: dict[int, ProcessInfo] = {}
    try:
        names = os.listdir(proc)
    except OSError:
        return by_pid
    for name in filter(str.isdecimal, names):
        here = os.path.join(proc, name)
        try:
            with open(os.path.join(here, "stat"), "rb") as file:
                parent = int(file.read().rpartition(b") ")[2].split()[1])
            with open(os.path.join(here, "cmdline"), "rb") as file:
                words = [word.decode("utf-8", "replace") for word in file.read().split(b"\0")[:-1]]
            folder = os.readlink(os.path.join(here, "cwd"))
        except (OSError, IndexError, ValueError):
            continue
        if words:
            by_pid[int(name)] = ProcessInfo(int(name), parent, words, folder)
    return by_pid


def _orphans(
    workspace: Workspace, environ: Mapping[str, str], running: Mapping[int, ProcessInfo]
) -> Iterator[Finding]:
    """Report processes that run like a child of this workspace but have no parent, neither a Switchboard nor a host."""
    for spec in workspace.children:
        filled = expand(spec, environ) if spec.kind == "stdio" else None
        if filled is None or isinstance(filled, Failure):
            continue
        for process in running.values():
            if process.parent <= 1 and process.pid != os.getpid() and is_child_process(filled, process):
                command = Redactor().redact_text(shlex.join(process.words))
                message = (
                    f"Process {process.pid} runs like child '{spec.name}', and nobody uses it: {command}"
                )
                yield Finding(PROBLEM, message, f"Unless you started it yourself: kill {process.pid}")


def is_child_process(spec: ChildSpec, process: ProcessInfo) -> bool:
    """Return True if a process is what a child's entry starts."""
    words, args = process.words, list(spec.args)
    head = words[: len(words) - len(args)] if not args or words[-len(args) :] == args else []
    names = {os.path.basename(word) for word in head[:HEAD_WORDS]}
    same_folder = os.path.realpath(process.folder) == os.path.realpath(spec.cwd)
    return same_folder and bool(head) and os.path.basename(spec.command) in names


def _hosts(workspace: str, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Report hosts that cannot start Switchboard, and those with servers beside it."""
    survey = discover_servers(
        host_paths(workspace, environ, sys.platform), [host.name for host in HOSTS], (), named=False
    )
    for trouble in survey.problems:
        yield Finding(NOTE, trouble, "Correct the file: its host cannot read it either.")
    beside: Counter[str] = Counter()
    served: set[str] = set()
    for server in survey.servers:
        reading, source = server.parsed, server.source
        where = f"{source.host.title} ({source.path})"
        if reading.serves_folder:
            if reading.serves_folder in (".", workspace, user_workspace(environ)):
                served.add(source.host.title)
            yield from _entry(where, server.name, reading.serves_folder, _command(source, server.name))
        elif reading.server is not None and not reading.server.disabled:
            beside[source.host.title] += 1
    for title, count in sorted(beside.items()):
        if title in served:
            message = (
                f"{title} has {plural(count, 'server')} beside Switchboard, whose tools are listed in full."
            )
            yield Finding(NOTE, message, "`switchboard init` moves them behind it.")


def _entry(where: str, name: str, folder: str, command: Sequence[str]) -> Iterator[Finding]:
    """Report what keeps a host from starting its entry for Switchboard."""
    if folder != "." and not os.path.isdir(folder):
        message = f"{where}: entry '{name}' starts Switchboard in {folder}, which does not exist."
        remedy = f"Give the host its own servers back: switchboard revert --workspace {shlex.quote(folder)}"
        yield Finding(PROBLEM, message, remedy)
    if command and not shutil.which(command[0]):
        message = f"{where}: entry '{name}' starts {command[0]}, which does not exist."
        by_name = os.path.basename(command[0]) == command[0]
        hint = "Put it on the PATH, e.g. with `pipx install` and `pipx ensurepath`." if by_name else AGAIN
        yield Finding(PROBLEM, message, hint)


def _lost_children(workspace: str, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Report children that `init` made and that were deleted since, as `git clean -fdx` does, in any project."""
    here = {os.path.realpath(workspace), os.path.realpath(os.curdir)}
    for place in journal_folders(environ):
        try:
            runs = revertible(load_runs(place))
        except SwitchboardError as problem:
            yield Finding(NOTE, problem.failure.message, problem.failure.hint or "")
            continue
        records = [record for run in runs for record in run.journal.records]
        created = {
            record.path for record in records if not record.before and record.path.endswith(CHILD_FILE)
        }
        lost = sorted(os.path.basename(os.path.dirname(path)) for path in created if not os.path.exists(path))
        # Nobody misses them if the files that they were moved from are gone too.
        if lost and any(record.edits and os.path.exists(record.path) for record in records):
            folder = place.workspace
            message = f"`init` moved servers to {folder}, and their files are gone: {', '.join(lost)}."
            remedy = (
                f"Give the hosts their own servers back: switchboard revert --workspace {shlex.quote(folder)}"
            )
            yield Finding(PROBLEM if folder in here else NOTE, message, remedy)


def _command(source: ServerMap, name: str) -> list[str]:
    entry = formats.read_servers(source.text, source.form, source.key).get(name)
    command = entry.get("command") or entry.get("cmd") if isinstance(entry, dict) else None
    if isinstance(command, dict):
        command = command.get("path") or command.get("cmd")
    if isinstance(command, list):
        return [word for word in command if isinstance(word, str)]
    return [command] if isinstance(command, str) else []
