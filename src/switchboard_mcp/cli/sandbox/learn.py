"""Learns a sandbox: runs a child, watches what it uses, and proposes the smallest sandbox it works in.

Up to three runs. The first, under `strace` where it is installed, records files, programs and ports without a sandbox,
whatever the config says, so a person is asked before.
The next is in the proposed sandbox with any host allowed, which records hosts by name and shows that the proposal
works; if the smallest preset is not enough, the next larger one is tried. Only what the child did in these runs is
known, so the bundled needs of published servers are added.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from msgspec import Struct, structs

from switchboard_mcp.app import run as run_loop
from switchboard_mcp.app import running
from switchboard_mcp.children.child import Child
from switchboard_mcp.cli.invocation import YES, Invocation, prompt, require_person, usage_error
from switchboard_mcp.config.models import ChildSpec, SuiteSettings, Workspace
from switchboard_mcp.config.sandbox import PRESETS, Preset, SandboxFiles, SandboxSettings
from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.observability.log import Log
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.sandbox.installations import installed_program
from switchboard_mcp.sandbox.plan import Places
from switchboard_mcp.sandbox.probing import find_support
from switchboard_mcp.sandbox.report import installation_of, plan_of
from switchboard_mcp.setup.known_servers import SandboxProposal, propose_sandbox
from switchboard_mcp.setup.suite_settings import owner_of, write_suites
from switchboard_mcp.transport.rpc import AwaitedRequest

CALLS = (
    "trace=open,openat,openat2,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,truncate,"
    "execve,connect"
)
LINE = re.compile(r'^\d+ +(?:\S+ )?(\w+)\((?:AT_FDCWD, )?"((?:[^"\\]|\\.)*)"(.*)$')
CONNECT = re.compile(
    r"^\d+ +(?:\S+ )?connect\(.*sin6?_port=htons\((\d{1,5})\).*?(?:inet_addr\(|inet_pton\(AF_INET6, )\"([^\"]*)\""
)
WRITING = re.compile(r"O_(?:WRONLY|RDWR|CREAT|TRUNC)")
FAILED = re.compile(r"= -1 ")
CHANGES = frozenset(
    ("creat", "mkdir", "mkdirat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "truncate")
)
NOISE = (
    "/proc", "/sys", "/dev", "/etc", "/tmp", "/run", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt",
)  # fmt: skip
NAMES_PORT = 53
WEB_PORTS = (80, 443)
DURING = "during the run"


class Recorded(Struct):
    """What a child used: files that it read and wrote, programs that it started, and ports that it connected to.

    `local` are ports of this machine. `called` means that a subtool was called.
    """

    read: set[str]
    written: set[str]
    programs: list[str] = []
    ports: set[int] = set()
    local: set[int] = set()
    called: bool = False


class Line(NamedTuple):
    """One line of a proposal: the setting, its value, and the reason."""

    setting: str
    value: str
    why: str


class Outcome(NamedTuple):
    """A run in a proposed sandbox: the hosts that were connected to, or the failure."""

    settings: SandboxSettings
    hosts: list[str]
    problem: Failure | None


def learn(invocation: Invocation, workspace: Workspace, spec: ChildSpec, places: Places) -> int:
    """Run the child, and print the proposal; with `--save`, write it into the config if the child works in it."""
    if spec.kind != "stdio":
        raise usage_error(
            f"'{spec.name}' is a remote child.", "Only a child that is a process has a sandbox."
        )
    out = invocation.console.out
    if not _may_run_unconfined(invocation, spec):
        out.line("Nothing was run.")
        return 1
    proposal = propose_sandbox(spec.command, spec.args, spec.cwd)
    if problem := _installed(invocation, workspace, spec, places):
        raise SwitchboardError(problem)
    recorded = _recorded(invocation, workspace, _without_runner(spec, places))
    if recorded is None and not invocation.as_json:
        out.prose("strace is not installed, so files are not recorded; refused ones are shown as errors.")
    lines = [*_file_lines(recorded, proposal, workspace, spec, places), *_port_lines(recorded)]
    outcome = _first_working(
        invocation, workspace, spec, lines, recorded, _presets(recorded, proposal, lines)
    )
    lines = [_preset_line(outcome.settings.preset or "workspace", proposal), *lines]
    lines += _network_lines(outcome, proposal)
    if outcome.settings.processes is False:
        lines.append(Line("processes", "false", f"it started no program {DURING}"))
    settings = _settings(outcome.settings.preset or "workspace", lines, recorded)
    is_saved = bool(invocation.args.save) and outcome.problem is None
    members = {spec.name: {"sandbox": msgspec.to_builtins(settings)}}
    file = write_suites(owner_of(spec, workspace), members) if is_saved else ""
    shown = {"suites": members}
    if invocation.as_json:
        listed = [
            {"setting": setting.setting, "value": setting.value, "reason": setting.why} for setting in lines
        ]
        out.json({"proposal": shown, "reasons": listed, "problem": outcome.problem, "file": file})
        return 0 if outcome.problem is None else 1
    out.text(msgspec.json.format(msgspec.json.encode(shown), indent=2).decode())
    out.line()
    for line in lines:
        out.entry(f"{line.setting}: {line.value}", f" ({line.why})", "cyan", "  ")
    if proposal.note:
        out.prose(f"Note: {proposal.note}", "  ")
    if outcome.problem is not None:
        out.prose(f"In this sandbox it did not work: {outcome.problem.message}", "  ", "red")
        return 1
    out.prose("It worked in this sandbox. What it did not do in this run is not known.", "  ")
    if file:
        out.line(f"Written to {file}.", "green")
    return 0


def _may_run_unconfined(invocation: Invocation, spec: ChildSpec) -> bool:
    """Ask whether the child may run without a sandbox once, unless that is answered or does not happen."""
    if invocation.args.yes or not shutil.which("strace"):
        return True
    hint = "It runs the child once WITHOUT a sandbox, to see what it uses. If you trust it, use --yes."
    require_person(invocation, "sandbox learn", hint)
    invocation.console.out.prose(
        f"To see what {spec.name} uses, it runs once WITHOUT a sandbox, whatever the config says: with your rights, "
        "files, network and whole environment."
    )
    return prompt("Run it? [y/N]") in YES


def _first_working(
    invocation: Invocation,
    workspace: Workspace,
    spec: ChildSpec,
    lines: list[Line],
    recorded: Recorded | None,
    presets: list[Preset],
) -> Outcome:
    """Return the run in the first of these presets that the child works in, or in the last."""
    ports = recorded.ports if recorded is not None else set()
    outcome = _try(invocation, workspace, spec, _settings(presets[0], lines, recorded), ports)
    if outcome.problem is None or not presets[1:]:
        return outcome
    return _first_working(invocation, workspace, spec, lines, recorded, presets[1:])


def _installed(
    invocation: Invocation, workspace: Workspace, spec: ChildSpec, places: Places
) -> Failure | None:
    """Install the package of a package runner, so that the server is recorded and not the installation."""
    if installation_of(spec, os.environ, places) is None or _without_runner(spec, places) != spec:
        return None
    workspace = _with_sandbox(workspace, spec, SandboxSettings(preset="workspace", network=["*"]))
    outcome = run_loop(lambda: _use(invocation, workspace, spec.name, call=False))
    is_installed = _without_runner(spec, places) != spec
    return outcome if isinstance(outcome, Failure) and not is_installed else None


def _without_runner(spec: ChildSpec, places: Places) -> ChildSpec:
    """Return the child with the installed program instead of its package runner; unchanged without one."""
    installation = installation_of(spec, os.environ, places)
    program = installed_program(installation) if installation is not None else ""
    if installation is None or not program:
        return spec
    return structs.replace(spec, command=program, args=installation.rest)


def _recorded(invocation: Invocation, workspace: Workspace, spec: ChildSpec) -> Recorded | None:
    if not shutil.which("strace"):
        return None
    recorded = run_loop(lambda: _record(invocation, workspace, spec))
    if isinstance(recorded, Failure):
        raise SwitchboardError(recorded)
    return recorded


def _file_lines(
    recorded: Recorded | None,
    proposal: SandboxProposal,
    workspace: Workspace,
    spec: ChildSpec,
    places: Places,
) -> Iterator[Line]:
    """Yield the files that the child needs beyond those of the preset `workspace`."""
    written, read = list(proposal.settings.files.write), list(proposal.settings.files.read)
    for setting, paths in (("files.write", written), ("files.read", read)):
        yield from (Line(setting, path, "this server is known to need it") for path in paths)
    if recorded is None:
        return
    spec = _without_runner(spec, places)
    plan = plan_of(PRESETS["workspace"], spec, os.environ, places, find_support())
    covered = (*plan.read, *plan.write, workspace.folder)
    own = fold((path for path in recorded.written if not _is_known(path, covered)), places)
    yield from (Line("files.write", path, f"it was written {DURING}") for path in own if path not in written)
    covered = (*covered, *recorded.written)
    seen = fold((path for path in recorded.read if not _is_known(path, covered)), places)
    left_out = {*own, *written, *read}
    yield from (Line("files.read", path, f"it was read {DURING}") for path in seen if path not in left_out)


def _port_lines(recorded: Recorded | None) -> list[Line]:
    ports = sorted(recorded.local) if recorded is not None else []
    return [Line("network", f"localhost:{port}", f"it connected to this machine {DURING}") for port in ports]


def _presets(recorded: Recorded | None, proposal: SandboxProposal, lines: list[Line]) -> list[Preset]:
    """Return the presets to try, the smallest first."""
    if proposal.is_known:
        return [proposal.settings.preset or "workspace"]
    needs_files = recorded is None or any(line.setting != "network" for line in lines)
    written = recorded.written if recorded is not None else ()
    needs_files = needs_files or any(not _is_known(path, ()) for path in written)
    return ["workspace"] if needs_files else ["strict", "workspace"]


def _preset_line(preset: Preset, proposal: SandboxProposal) -> Line:
    if proposal.is_known:
        return Line("preset", preset, "this server is known to work in it")
    why = {
        "strict": f"it wrote no file {DURING}, so it needs no folder",
        "workspace": "it writes files, or needs a home folder of its own",
    }
    return Line("preset", preset, why.get(preset, "it is configured"))


def _network_lines(outcome: Outcome, proposal: SandboxProposal) -> Iterator[Line]:
    hosts = proposal.settings.network if isinstance(proposal.settings.network, list) else []
    yield from (Line("network", host, f"it was connected to {DURING}") for host in outcome.hosts)
    yield from (
        Line("network", host, "this server is known to need it")
        for host in hosts
        if host not in outcome.hosts
    )


def _settings(preset: Preset, lines: Iterable[Line], recorded: Recorded | None) -> SandboxSettings:
    """Return the settings that these lines describe."""
    values: dict[str, list[str]] = {}
    for line in lines:
        values.setdefault(line.setting, []).append(line.value)
    files = SandboxFiles(read=values.get("files.read", []), write=values.get("files.write", []))
    is_browser = preset == "browser"
    # Before a subtool is called, a server has rarely started the programs that it needs.
    spawns = recorded is None or not recorded.called or bool(recorded.programs) or is_browser
    settings = SandboxSettings(
        preset=preset,
        network=None if is_browser else values.get("network"),
        processes=None if spawns else False,
    )
    return settings if files == SandboxFiles() else structs.replace(settings, files=files)


def _with_sandbox(workspace: Workspace, spec: ChildSpec, sandbox: SandboxSettings) -> Workspace:
    """Return the workspace with one child only, in this sandbox."""
    own = structs.replace(workspace.config.suites.get(spec.name) or SuiteSettings(), sandbox=sandbox)
    config = structs.replace(workspace.config, suites={spec.name: own}, sandbox=None)
    return structs.replace(workspace, config=config, children=[spec])


async def _use(
    invocation: Invocation, workspace: Workspace, name: str, *, call: bool = True
) -> list[str] | Failure:
    """Start the child, call the subtool if one is named, and return the hosts that it connected to."""
    async with running(workspace, Log(level="error"), Redactor(), pinned=False) as switchboard:
        child = switchboard.registry.children[name]
        assert isinstance(child, Child)
        problem = await child.start_now()
        if problem is not None:
            return problem
        if call and invocation.args.call and child.peer is not None:
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


def _try(
    invocation: Invocation,
    workspace: Workspace,
    spec: ChildSpec,
    settings: SandboxSettings,
    ports: Iterable[int],
) -> Outcome:
    """Run the child in a sandbox with any host allowed, on the ports of the web and on these."""
    local = settings.network if isinstance(settings.network, list) else []
    reached = ",".join(map(str, sorted({*WEB_PORTS, *ports})))
    anywhere = None if settings.preset == "browser" else [f"*:{reached}", *local]
    tried = _with_sandbox(workspace, spec, structs.replace(settings, network=anywhere))
    hosts = run_loop(lambda: _use(invocation, tried, spec.name))
    if isinstance(hosts, Failure):
        return Outcome(settings, [], hosts)
    return Outcome(settings, hosts, None)


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
        return structs.replace(_read_log(log, spec.cwd), called=bool(invocation.args.call))


def _read_log(path: str, cwd: str) -> Recorded:
    with open(path, encoding="utf-8", errors="replace") as file:
        return read_trace(file, cwd)


def read_trace(lines: Iterable[str], cwd: str) -> Recorded:
    """Return the content of a recording: files that were opened or changed, programs, and ports."""
    recorded = Recorded(set(), set(), [], set(), set())
    runs = -1  # the first is the child itself
    for line in lines:
        if connected := CONNECT.match(line):
            port, address = int(connected[1]), connected[2]
            if port not in (0, NAMES_PORT):
                is_local = address.startswith("127.") or address == "::1"
                (recorded.local if is_local else recorded.ports).add(port)
            continue
        match = LINE.match(line)
        if match is None or FAILED.search(match[3]):
            continue
        path = os.path.normpath(os.path.join(cwd, match[2]))
        if match[1] == "execve":
            runs += 1
            if runs > 0:
                recorded.programs.append(path)
            continue
        changes = match[1] in CHANGES or WRITING.search(match[3])
        (recorded.written if changes else recorded.read).add(path)
    return recorded


def _is_known(path: str, known: Iterable[str]) -> bool:
    real = os.path.realpath(path)
    return any(
        candidate == place or candidate.startswith(place + "/")
        for candidate in (path, real)
        for place in (*NOISE, *known)
    )


def fold(paths: Iterable[str], places: Places) -> list[str]:
    """Return the folders of these files in the words of the config, without those inside others."""
    folders = sorted({path if os.path.isdir(path) else os.path.dirname(path) for path in paths})
    kept: list[str] = []
    for folder in folders:
        if not any(folder == parent or folder.startswith(parent + "/") for parent in kept):
            kept.append(folder)
    return list(_shortened(kept, places))


def _shortened(paths: Iterable[str], places: Places) -> Iterator[str]:
    for path in paths:
        if places.home and path == places.home:
            continue  # listing the home folder is no need
        inside = places.home and path.startswith(places.home + "/")
        yield "${home}" + path[len(places.home) :] if inside else path
