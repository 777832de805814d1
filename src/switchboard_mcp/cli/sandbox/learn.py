"""Learns a sandbox: runs a child, watches what it uses, and proposes the smallest sandbox it works in.

Two runs. The first, under `strace` where it is installed, records files; it has no sandbox. The second is in the
proposed sandbox with any host allowed, which records hosts by name and shows that the proposal works. Only what the
child did in these runs is known.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct, structs

from switchboard_mcp.app import run as run_loop
from switchboard_mcp.app import running
from switchboard_mcp.children.child import Child
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.config.models import ChildSpec, SuiteSettings, Workspace
from switchboard_mcp.config.sandbox import PRESETS, SandboxFiles, SandboxSettings
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.observability.log import Log
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.sandbox.known_servers import package_of, propose
from switchboard_mcp.sandbox.plan import Places
from switchboard_mcp.sandbox.probing import find_support
from switchboard_mcp.sandbox.report import plan_of
from switchboard_mcp.transport.rpc import AwaitedRequest

CALLS = (
    "trace=open,openat,openat2,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,execve,truncate"
)
LINE = re.compile(r'^\d+ +(?:\S+ )?(\w+)\((?:AT_FDCWD, )?"((?:[^"\\]|\\.)*)"(.*)$')
WRITING = re.compile(r"O_(?:WRONLY|RDWR|CREAT|TRUNC)")
FAILED = re.compile(r"= -1 ")
CHANGES = frozenset(
    ("creat", "mkdir", "mkdirat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "truncate")
)
NOISE = (
    "/proc",
    "/sys",
    "/dev",
    "/etc",
    "/tmp",
    "/run",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/opt",
)


class Recorded(Struct):
    """Files that a child used: `read` and `written`."""

    read: set[str]
    written: set[str]


def learn(invocation: Invocation, workspace: Workspace, spec: ChildSpec, places: Places) -> int:
    """Run the child, and print the proposal."""
    if spec.kind != "stdio":
        raise usage_error(
            f"'{spec.name}' is a remote child.", "Only a child that is a process has a sandbox."
        )
    out = invocation.console.out
    known = propose(spec)
    reasons: list[tuple[str, str, str]] = []
    read: list[str] = []
    write: list[str] = []
    if shutil.which("strace"):
        recorded = run_loop(lambda: _record(invocation, workspace, spec))
        if isinstance(recorded, Failure):
            raise SwitchboardError(recorded)
        plan = plan_of(PRESETS["workspace"], spec, os.environ, places, find_support())
        known_paths = (*plan.read, *plan.write, workspace.folder)
        write = fold((path for path in recorded.written if not _is_known(path, known_paths)), places)
        read = fold(
            (path for path in recorded.read if not _is_known(path, (*known_paths, *recorded.written))), places
        )
        reasons += [("files.write", path, "it was written during the run") for path in write]
        reasons += [("files.read", path, "it was read during the run") for path in read if path not in write]
    else:
        out.prose("strace is not installed, so files are not recorded; refused ones are shown as errors.")
    if known is not None:
        for path in known[0].files.write:
            write.append(path)
            reasons.append(("files.write", path, f"known for {package_of(spec)}: the user's data"))
    proposal = SandboxSettings(
        preset=known[0].preset if known is not None and known[0].preset else "workspace",
        files=SandboxFiles(
            read=[path for path in read if path not in write], write=list(dict.fromkeys(write))
        ),
        network=["*:80,443"],
    )
    if proposal.preset == "browser":
        proposal = structs.replace(proposal, network=None)
    outcome = run_loop(lambda: _try(invocation, workspace, spec, proposal))
    hosts = [] if isinstance(outcome, Failure) else outcome
    reasons += [("network", host, "it was connected to during the run") for host in hosts]
    if known is not None:
        extra = [host for host in known[0].network or [] if host not in hosts]
        reasons += [("network", host, f"known for {package_of(spec)}") for host in extra]
        hosts += extra
    settings = structs.replace(proposal, network=hosts or None) if proposal.preset != "browser" else proposal
    shown = {"suites": {spec.name: {"sandbox": _plain(settings)}}}
    if invocation.as_json:
        listed = [{"setting": setting, "value": value, "reason": why} for setting, value, why in reasons]
        problem = outcome if isinstance(outcome, Failure) else None
        out.json({"proposal": shown, "reasons": listed, "problem": problem})
    else:
        out.text(msgspec.json.format(msgspec.json.encode(shown), indent=2).decode())
        out.line()
        for setting, value, why in reasons:
            out.entry(f"{setting}: {value}  ", why, "cyan", "  ")
        if known is not None and known[1]:
            out.prose(f"Note: {known[1]}.", "  ")
        if isinstance(outcome, Failure):
            out.prose(f"In this sandbox it did not work: {outcome.message}", "  ", "red")
        else:
            out.prose(
                "It worked in this sandbox. What it did not do in this run is not known.",
                "  ",
            )
    return 1 if isinstance(outcome, Failure) else 0


def _plain(settings: SandboxSettings) -> Any:
    """Return settings as a person would write them."""
    files = {name: value for name in ("read", "write") if (value := getattr(settings.files, name))}
    members = {"preset": settings.preset, "files": files, "network": settings.network}
    return {name: value for name, value in members.items() if value}


def _with_sandbox(workspace: Workspace, spec: ChildSpec, sandbox: SandboxSettings) -> Workspace:
    """Return the workspace with one child only, in this sandbox."""
    own = structs.replace(workspace.config.suites.get(spec.name) or SuiteSettings(), sandbox=sandbox)
    config = structs.replace(workspace.config, suites={spec.name: own}, sandbox=None)
    return structs.replace(workspace, config=config, children=[spec])


async def _use(invocation: Invocation, workspace: Workspace, name: str) -> list[str] | Failure:
    """Start the child, call the subtool if one is named, and return the hosts that it connected to."""
    async with running(workspace, Log(level="error"), Redactor(), pinned=False) as switchboard:
        child = switchboard.registry.children[name]
        assert isinstance(child, Child)
        problem = await child.start_now()
        if problem is not None:
            return problem
        if invocation.args.call and child.peer is not None:
            params = b'{"name":%b,"arguments":%b}' % (
                msgspec.json.encode(invocation.args.call), invocation.args.args.encode()
            )  # fmt: skip
            request = AwaitedRequest(
                asyncio.get_running_loop(), "tools/call", params, child.call_timeout_s, cancellable=True
            )
            child.peer.send(request)
            await request.future
        sandbox = child.connection.sandbox if child.connection is not None else None
        return sorted(sandbox.egress.hosts) if sandbox is not None and sandbox.egress is not None else []


async def _try(
    invocation: Invocation, workspace: Workspace, spec: ChildSpec, sandbox: SandboxSettings
) -> list[str] | Failure:
    return await _use(invocation, _with_sandbox(workspace, spec, sandbox), spec.name)


async def _record(invocation: Invocation, workspace: Workspace, spec: ChildSpec) -> Recorded | Failure:
    """Run the child under strace, and return the files that it used."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "calls")
        words = ["-f", "-qq", "-s", "4096", "-e", CALLS, "-o", log, "--", spec.command, *spec.args]
        traced = structs.replace(spec, command="strace", args=words)
        off = SandboxSettings(preset="off")
        outcome = await _use(invocation, _with_sandbox(workspace, traced, off), spec.name)
        if isinstance(outcome, Failure):
            return outcome
        return _read_log(log, spec.cwd)


def _read_log(path: str, cwd: str) -> Recorded:
    with open(path, encoding="utf-8", errors="replace") as file:
        return read_trace(file, cwd)


def read_trace(lines: Iterable[str], cwd: str) -> Recorded:
    """Return the files of a recording that were opened or changed."""
    recorded = Recorded(set(), set())
    for line in lines:
        match = LINE.match(line)
        if match is None or FAILED.search(match[3]):
            continue
        path = os.path.normpath(os.path.join(cwd, match[2]))
        changes = match[1] in CHANGES or WRITING.search(match[3])
        (recorded.written if changes else recorded.read).add(path)
    return recorded


def _is_known(path: str, known: Iterable[str]) -> bool:
    real = os.path.realpath(path)
    return any(
        one == place or one.startswith(place + "/") for one in (path, real) for place in (*NOISE, *known)
    )


def fold(paths: Iterable[str], places: Places) -> list[str]:
    """Return the folders of these files in the words of the config, without those inside others."""
    folders = sorted({path if os.path.isdir(path) else os.path.dirname(path) for path in paths})
    kept: list[str] = []
    for folder in folders:
        if not any(folder == one or folder.startswith(one + "/") for one in kept):
            kept.append(folder)
    return list(_shortened(kept, places))


def _shortened(paths: Iterable[str], places: Places) -> Iterator[str]:
    for path in paths:
        if places.home and path == places.home:
            continue  # listing the home folder is no need
        inside = places.home and path.startswith(places.home + "/")
        yield "${home}" + path[len(places.home) :] if inside else path
