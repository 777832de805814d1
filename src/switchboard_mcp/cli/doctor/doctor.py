"""`switchboard doctor`: check everything a start depends on, and say how to fix what is wrong."""

from __future__ import annotations

import math
import os
import platform
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from msgspec import UNSET, Struct, UnsetType, convert, structs, to_builtins
from msgspec.structs import replace

from switchboard_mcp import __version__
from switchboard_mcp.app import load, workspace_folder
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.ask.host_access import KEYS
from switchboard_mcp.bus import relay_status
from switchboard_mcp.bus.open_client import open_client
from switchboard_mcp.children.catalog import cache_folder
from switchboard_mcp.children.health import health_rules
from switchboard_mcp.children.timeouts import PACKAGE_RUNNERS
from switchboard_mcp.cli.commands.status import FOLDER, find_server
from switchboard_mcp.cli.commands.wrap import can_plan
from switchboard_mcp.cli.console import Console, Screen, one_line, plural, truncate, visible_width
from switchboard_mcp.cli.doctor.files import file_findings, has_mail
from switchboard_mcp.cli.doctor.findings import GOOD, NOTE, PROBLEM, Finding
from switchboard_mcp.cli.doctor.host import explain_host
from switchboard_mcp.cli.doctor.machine import machine_findings
from switchboard_mcp.cli.doctor.program_findings import program_findings
from switchboard_mcp.cli.invocation import (
    HOW_TO_ADD_CHILDREN,
    Invocation,
    open_switchboard,
    user_scope_members,
    user_scope_text,
)
from switchboard_mcp.cli.parser import Command, check_timeout, number, option
from switchboard_mcp.cli.preflight import check_all
from switchboard_mcp.cli.start_all import Connected, PeakMemory, StartReport, start_all
from switchboard_mcp.config.load import find_config
from switchboard_mcp.config.models import ChildSpec, Config, ConfigWarning, Workspace
from switchboard_mcp.config.sections import ASK_SUBTOOL, resolve_bus
from switchboard_mcp.config.variables import missing_variables, secret_values, shown_environment
from switchboard_mcp.errors import RUN_DOCTOR, Failure, SwitchboardError, shell_word
from switchboard_mcp.features import audit_folder
from switchboard_mcp.gateway.capabilities import UnannouncedExtensions, unannounced_extensions
from switchboard_mcp.mail.presence import Presence
from switchboard_mcp.mail.store.reading import Waiting
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.policy.access import nothing_allowed
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.suites.fuzzy import nearest
from switchboard_mcp.suites.suite_names import suite_names
from switchboard_mcp.transport.http.remote_base import redacted_url

# The summary names this many children.
MAX_NAMES = 20
CORRECT_KEY, CORRECT_FILE = "Correct or remove this key.", "Correct or remove this file."


class ChildDiagnosis(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One child: what it runs, how its start went, what is wrong with it."""

    child: str
    suite: str
    source: str
    command: str
    ok: bool
    scope: str = "workspace"
    program: str = ""
    server: str = ""
    protocol: str = ""
    handshake_ms: int | UnsetType = UNSET
    subtools: int | UnsetType = UNSET
    denied: int | UnsetType = UNSET
    extensions_not_announced: UnannouncedExtensions | UnsetType = UNSET
    findings: list[Finding] = []

    @property
    def level(self) -> str:
        """The level of its most serious finding, or an empty string."""
        levels = [finding.level for finding in self.findings]
        return PROBLEM if PROBLEM in levels else levels[0] if levels else ""


class Diagnosis(Struct, kw_only=True, rename="camel"):
    """All results of the checks."""

    versions: dict[str, str]
    workspace: str
    config: str
    children: list[ChildDiagnosis] = []
    disabled: list[str] = []
    unchecked: list[str] = []
    interrupted: bool = False
    seconds: float = 0.0  # all starts together
    peak_memory: int = 0  # of all children at one moment, in bytes; 0 if unknown
    findings: list[Finding] = []
    user: str = ""
    user_workspace: dict[str, object] | None = None

    def problems(self) -> int:
        """Count the problems, notes excluded."""
        findings = [*self.findings, *(finding for child in self.children for finding in child.findings)]
        return sum(finding.level == PROBLEM for finding in findings)


def run(invocation: Invocation) -> int:
    """Check, then report; if interrupted, report what is known."""
    check_timeout("doctor", invocation.args.timeout)
    if invocation.args.host:
        return explain_host(invocation)
    folder = workspace_folder(invocation.options)
    diagnosis = Diagnosis(versions=versions(), workspace=folder, config="")
    try:
        diagnosis.config = find_config(folder, invocation.options.config)
        workspace = load(invocation.options)
    except SwitchboardError as problem:
        diagnosis.findings.append(_finding(problem.failure))
        report(diagnosis, invocation)
        return 2
    examine(diagnosis, workspace, invocation)
    report(diagnosis, invocation)
    if diagnosis.interrupted:
        invocation.console.flush()
        raise KeyboardInterrupt
    return 1 if diagnosis.problems() else 0


COMMAND = Command(
    "doctor [OPTIONS]",
    "Check the config, every child's program, variables and folder, and start each child once.\n"
    "Exit code 0 if all is well, 1 if something needs fixing, 2 if the config cannot be used.\n"
    "Ctrl-C ends it with the results so far; the exit code is then 130.",
    run=run,
    arguments=[
        option(
            "--timeout",
            "SECONDS",
            "time limit for each child's start (default: its own start limit)",
            default=None,
            type=number,
        ),
        option("--host", "NAME", "explain instead what exposure `auto` shows this host, and why"),
    ],
)


def examine(diagnosis: Diagnosis, workspace: Workspace, invocation: Invocation) -> None:
    """Check each child, start those that can start, and collect the findings."""
    checks = check_all(workspace, os.environ)
    broken = frozenset(name for name, outcome in checks.items() if isinstance(outcome, Failure))
    by_child: dict[str, StartReport] = {}
    hidden: dict[str, UnannouncedExtensions] = {}
    memory = PeakMemory(os.getpid())
    if len(broken) < len(checks):
        began = time.monotonic()
        try:
            run_loop(lambda: _start_children(workspace, broken, invocation, by_child, hidden, memory))
        except KeyboardInterrupt:
            diagnosis.interrupted = True
            diagnosis.unchecked = sorted(checks.keys() - by_child.keys() - broken)
        diagnosis.seconds, diagnosis.peak_memory = time.monotonic() - began, memory.peak
    suites = suite_names(
        [
            (name, suite.suite_name if (suite := workspace.config.suites.get(name)) else "")
            for name in sorted(checks)
        ]
    )
    for spec in sorted(workspace.children, key=lambda spec: suites[spec.name]):
        if spec.name in diagnosis.unchecked:
            continue
        checked = diagnose(
            spec, suites[spec.name], checks[spec.name], by_child.get(spec.name), workspace.config
        )
        if spec.name in hidden:
            checked = structs.replace(
                checked,
                extensions_not_announced=hidden[spec.name],
                findings=[*checked.findings, _unannounced(hidden[spec.name])],
            )
        diagnosis.children.append(_without_secrets(checked, spec))
    diagnosis.user, diagnosis.user_workspace = user_scope_text(workspace), user_scope_members(workspace)
    diagnosis.disabled = sorted(spec.name for spec in workspace.disabled)
    diagnosis.findings += _workspace_findings(workspace, os.environ)
    diagnosis.findings += _health_findings(workspace.folder)
    diagnosis.findings += _planning_findings(workspace)
    diagnosis.findings += _mail_findings(workspace)
    diagnosis.findings += program_findings(workspace)
    reported = {finding.message for child in diagnosis.children for finding in child.findings}
    diagnosis.findings += [
        finding for finding in file_findings(workspace, os.environ) if finding.message not in reported
    ]
    diagnosis.findings += machine_findings(workspace, os.environ)
    diagnosis.findings += _bus_findings(workspace, os.environ)


def diagnose(
    spec: ChildSpec, suite: str, checked: str | Failure, report: StartReport | None, config: Config
) -> ChildDiagnosis:
    """Diagnose one child from the checks before its start and the report of it."""
    problem = checked if isinstance(checked, Failure) else report.error if report else UNSET
    connected = report.connected if report and isinstance(report.connected, Connected) else None
    findings = (
        [_finding(problem, spec)]
        if isinstance(problem, Failure)
        else [
            *_nothing_allowed(spec.name, connected, config),
            *_unmatched_rules(spec.name, connected, config),
        ]
    )
    # Alone it might have been faster by the number of starts beside it.
    starts_at_once = report.starts_at_once if report else 1
    if connected is not None and connected.handshake_ms >= config.health.spawn_warn_ms * starts_at_once:
        findings.append(_slow(spec, connected.handshake_ms, config))
    return ChildDiagnosis(
        child=spec.name,
        suite=suite,
        source=spec.source,
        command=spec.command or redacted_url(spec.url),
        ok=connected is not None,
        scope=spec.scope,
        program=checked if isinstance(checked, str) else "",
        server=connected.server if connected else "",
        protocol=connected.protocol if connected else "",
        handshake_ms=connected.handshake_ms if connected else UNSET,
        subtools=len(connected.allowed()) if connected else UNSET,
        denied=len(connected.subtools) - len(connected.allowed()) if connected else UNSET,
        findings=findings,
    )


async def _start_children(
    workspace: Workspace,
    broken: frozenset[str],
    invocation: Invocation,
    by_child: dict[str, StartReport],
    hidden: dict[str, UnannouncedExtensions],
    memory: PeakMemory,
) -> None:
    """Start the children that can start, and add the report of each to `by_child` once it is known.

    `hidden` receives the extensions that are not announced, which depends on all children.
    """
    timeout_s = invocation.args.timeout
    if timeout_s is not None:
        workspace = with_start_limit(workspace, timeout_s)
    async with open_switchboard(invocation, workspace) as switchboard, memory.measured():
        await start_all(
            switchboard,
            invocation.console.err,
            draw=invocation.may_draw,
            skip=broken,
            within_s=timeout_s,
            on_report=lambda report: by_child.update({report.child: report}),
        )
        hidden.update(unannounced_extensions(switchboard.gateway.suites.values()))


def with_start_limit(workspace: Workspace, timeout_s: float) -> Workspace:
    """Raise the limits of the settings to this one, so that a longer `--timeout` has an effect."""
    config, limit_ms = workspace.config, math.ceil(timeout_s * 1000)
    timeouts = structs.replace(config.timeouts, child_spawn_ms=max(config.timeouts.child_spawn_ms, limit_ms))
    health = config.health
    if config.governance.mode != "open" or health.spawn_fail_ms is not None:
        health = structs.replace(health, spawn_fail_ms=max(health.spawn_fail_ms or 0, limit_ms))
    # The settings as written stay what they are: these are approved.
    return structs.replace(
        workspace,
        config=structs.replace(config, timeouts=timeouts, health=health),
        written=workspace.written_config,
    )


def _finding(problem: Failure, spec: ChildSpec | None = None) -> Finding:
    remedy = problem.hint or ""
    if spec is not None and spec.command and RUN_DOCTOR in remedy:
        command = Redactor().redact_text(shlex.join([spec.command, *spec.args]))
        variables = "".join(f"{name}={value} " for name, value in shown_environment(spec).items())
        by_hand = f"run it by hand to see what it does: cd {shlex.quote(spec.cwd)} && {variables}{command}"
        remedy = remedy.removesuffix(".").replace(RUN_DOCTOR, by_hand)
    return Finding(PROBLEM, problem.message, remedy, problem.stderr or [])


def _without_secrets(checked: ChildDiagnosis, spec: ChildSpec) -> ChildDiagnosis:
    """Redact the child's secrets, even if it was never started."""
    redactor = Redactor()
    for secret in secret_values(spec, os.environ):
        redactor.register(secret)
    return convert(redactor.redact_value(to_builtins(checked)), ChildDiagnosis)


def _slow(spec: ChildSpec, handshake_ms: int, config: Config) -> Finding:
    """Return the note for a start slow enough that the health gate warns."""
    measures = health_rules(config.health, governed=config.governance.mode != "open")
    took_s, warn_s = handshake_ms / 1000, measures.spawn_warn_s
    message = f"Child '{spec.name}' took {took_s:.1f} s to start; it should take under {warn_s:g} s"
    gate = (
        f", and the health gate stops it after {measures.spawn_fail_s:g} s" if measures.spawn_fail_s else ""
    )
    hint = "Reduce what it does at startup, or raise health.spawnWarnMs."
    runner = os.path.basename(spec.command)
    if runner in PACKAGE_RUNNERS:
        hint = f"The first time, {runner} downloads it. If it stays slow, install the package and run its program."
    return Finding(NOTE, f"{message}{gate}.", hint)


def _health_findings(folder: str) -> list[Finding]:
    """Report the children to which the running server sends no calls."""
    served = find_server(os.path.join(folder, FOLDER))
    ill = [child for child in served.status.children if child.is_unavailable] if served is not None else []
    return [
        Finding(
            PROBLEM,
            f"The running server sends no calls to child '{child.child}': it is {child.health}"
            f"{f', {child.last_failure.message}' if child.last_failure is not UNSET else '.'}",
            f"It is tried again in {child.retry_after_ms / 1000:.1f} s; `switchboard status` shows its state.",
        )
        for child in ill
    ]


def _planning_findings(workspace: Workspace) -> list[Finding]:
    """Report wrapped children for whose requests no model can plan."""
    names = sorted(spec.name for spec in workspace.children if spec.wraps)
    if not names or can_plan(workspace):
        return []
    message = f"No model can plan requests in sentences for {', '.join(names)}: {KEYS[0]} is not set."
    if workspace.config.ask.backend == "api":
        return [Finding(PROBLEM, message, f"Set {KEYS[0]} where Switchboard is started.")]
    remedy = f"Set {KEYS[0]} where Switchboard is started, or use a host that lends its own model (sampling)."
    return [Finding(NOTE, message, remedy)]


def _mail_findings(workspace: Workspace) -> list[Finding]:
    """Report agents whose unread mail nobody was notified of, and dead letters."""
    folder = os.path.join(workspace.folder, FOLDER)
    if not has_mail(workspace):
        return []
    presence = Presence(folder)
    findings = []
    try:
        counted, dead = run_loop(lambda: _count_mail(workspace))
    except SwitchboardError as problem:
        return [Finding(PROBLEM, problem.failure.message, problem.failure.hint or "")]
    for agent in sorted(counted):
        waiting = presence.unclaimed(agent, workspace.config.mail.unread_warn_ms / 1000, counted[agent])
        if waiting.overdue:
            unread = plural(waiting.unread, "message")
            message = f"{unread} for agent '{agent}', the oldest for {waiting.oldest_s:.0f} s"
            remedy = (
                f"Give its host a mail hook (docs/messaging.md), or look: switchboard mail inbox --as {agent}"
            )
            findings.append(Finding(NOTE, f"{message}, and nobody was notified.", remedy))
    if dead:
        message = f"{plural(dead, 'dead letter')}: rejected, never settled, or undeliverable."
        findings.append(
            Finding(NOTE, message, "List them, and requeue those to retry: switchboard mail dead")
        )
    return findings


async def _count_mail(workspace: Workspace) -> tuple[dict[str, Waiting], int]:
    config = workspace.config
    store = await MessageStore.open(workspace.folder, database=config.database, watch=False)
    async with store:
        return await store.waiting(), len(await store.all_dead_letters())


def _bus_findings(workspace: Workspace, environ: Mapping[str, str]) -> list[Finding]:
    """Report what keeps events from being published."""
    settings = resolve_bus(workspace.config.bus, environ, workspace.folder)
    if not settings.enabled:
        return []
    try:
        open_client(settings)  # Validates the settings; does not connect yet.
    except SwitchboardError as problem:
        return [Finding(PROBLEM, str(problem), problem.failure.hint or "")]
    status = relay_status.read(workspace.folder)
    trouble = relay_status.describe_problem(status)
    if not trouble:
        return []
    remedy = "Serve this workspace, or run: switchboard bus relay"
    if status is not None and status.problem and not relay_status.is_stale(status):
        remedy = status.remedy
    kind = PROBLEM if status is not None and status.problem else NOTE
    return [Finding(kind, trouble, remedy)]


def _nothing_allowed(child: str, connected: Connected | None, config: Config) -> list[Finding]:
    """Report a child that governed mode lets run, but of which it allows no subtool."""
    suite = config.suites.get(child)
    allow = suite.expose.allow if suite is not None else []
    if (
        config.governance.mode == "open"
        or allow
        or connected is None
        or not connected.subtools
        or connected.allowed()
    ):
        return []
    remedy = (
        f"`switchboard approve {shlex.quote(child)}` lists its subtools and allows those that you choose."
    )
    return [Finding(PROBLEM, nothing_allowed(child), remedy)]


def _unannounced(extensions: UnannouncedExtensions) -> Finding:
    """Report extensions that are not announced to hosts."""
    remedy = "If hosts need them, serve this child without restrictions, in a separate profile."
    return Finding(NOTE, one_line(f"{extensions}."), remedy)


def _unmatched_rules(child: str, connected: Connected | None, config: Config) -> list[Finding]:
    """Report names in allow and deny that the child does not have: misspelt, or meant for another version."""
    suite = config.suites.get(child)
    if suite is None or connected is None:
        return []
    names = [subtool.name for subtool in connected.subtools]
    if names == [ASK_SUBTOOL]:  # it is wrapped: the rules apply to the original
        return []
    findings = []
    for list_name, rules in (("allow", suite.expose.allow), ("deny", suite.expose.deny)):
        for rule in rules:
            if rule in names or any(wild in rule for wild in "*?["):
                continue
            near = nearest(rule, names)
            remedy = (
                f"Did you mean {', '.join(near)}?" if near else "Remove it, or keep it for another version."
            )
            message = f"suites.{child}.expose.{list_name} names '{rule}', which the child does not have."
            findings.append(Finding(NOTE, message, remedy))
    return findings


def _workspace_findings(workspace: Workspace, environ: Mapping[str, str]) -> list[Finding]:
    reported = {
        (spec.source, gap.key) for spec in workspace.children for gap in missing_variables(spec, environ)
    }
    incomplete = tuple(spec.incomplete for spec in workspace.children if spec.incomplete)
    refused = workspace.absent.values()
    remedies = tuple(problem.hint for problem in refused if problem.hint)
    findings = [Finding(PROBLEM, problem.message, problem.hint or "") for problem in refused]
    findings += [
        Finding(PROBLEM, str(warning), warning.remedy or (CORRECT_KEY if warning.key else CORRECT_FILE))
        for warning in _not_reported(workspace.warnings, reported)
        if not warning.message.endswith(remedies) and not str(warning).startswith(incomplete)
    ]
    if not workspace.children and not workspace.absent:
        findings.append(Finding(PROBLEM, f"No children in {workspace.folder}.", HOW_TO_ADD_CHILDREN))
    if (folder := audit_folder(workspace)) and not _is_writable(folder):
        message = f"audit.path: {folder} cannot be written, so nothing is recorded."
        findings.append(Finding(PROBLEM, message, "Make it writable, or set audit.path to a folder that is."))
    folder = cache_folder(environ)
    if not folder or not _is_writable(folder):
        message = (
            f"{folder or 'The cache folder'} cannot be written: subtools are not remembered between runs."
        )
        findings.append(
            Finding(NOTE, message, "Make it writable, or set XDG_CACHE_HOME to a folder that is.")
        )
    return findings


def _not_reported(
    warnings: Iterable[ConfigWarning], reported: set[tuple[str, str]]
) -> Iterable[ConfigWarning]:
    """Yield the warnings that no child's findings cover."""
    return (warning for warning in warnings if (warning.source, warning.key) not in reported)


def _is_writable(folder: str) -> bool:
    while not os.path.exists(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK)


def versions() -> dict[str, str]:
    """Return the versions in use; uvloop is empty if it is not installed."""
    installed = {"switchboard": __version__, "python": platform.python_version()}
    for name in ("msgspec", "uvloop"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            installed[name] = ""
    return installed


def report(diagnosis: Diagnosis, invocation: Invocation) -> None:
    """Print the report, as JSON or as text."""
    if invocation.as_json:
        ok = not diagnosis.problems() and not diagnosis.interrupted
        invocation.console.out.json({"ok": ok, **_members(diagnosis)})
    else:
        show(diagnosis, invocation.console)


def _members(diagnosis: Diagnosis) -> dict[str, object]:
    names = dict(zip(Diagnosis.__struct_fields__, Diagnosis.__struct_encode_fields__, strict=True))
    members = {key: getattr(diagnosis, name) for name, key in names.items() if name != "user"}
    return {**members, "seconds": round(diagnosis.seconds, 2)}


def show(diagnosis: Diagnosis, console: Console) -> None:
    """Print the report as text."""
    out = console.out
    installed = diagnosis.versions
    speed = (
        f"uvloop {installed['uvloop']}"
        if installed["uvloop"]
        else "without uvloop (optional; it makes calls faster)"
    )
    out.line(
        f"Switchboard {installed['switchboard']} · Python {installed['python']} "
        f"· msgspec {installed['msgspec']} · {speed}"
    )
    out.line(f"Workspace   {diagnosis.workspace}")
    out.line(f"Config      {diagnosis.config or 'none; the defaults are used'}")
    if diagnosis.user:
        out.prose(diagnosis.user)
    out.line()
    failing = [child for child in diagnosis.children if child.level == PROBLEM]
    width = max((visible_width(one_line(child.suite)) for child in diagnosis.children), default=0)
    for child in failing:
        _show_child(child, width, out)
        out.line()
    for finding in diagnosis.findings:
        if finding.level == PROBLEM:
            _show_finding(finding, out, "")
            out.line()
    notes = [finding for child in diagnosis.children if child not in failing for finding in child.findings]
    _show_notes([*notes, *(finding for finding in diagnosis.findings if finding.level == NOTE)], out)
    _show_notes([finding for finding in diagnosis.findings if finding.level == GOOD], out)
    healthy = [child for child in diagnosis.children if child not in failing]
    for child in healthy:
        _show_child(replace(child, findings=[]), width, out)
    for name in diagnosis.disabled:
        details = out.paint(f"disabled; `switchboard enable {shell_word(name)}` switches it on", "dim")
        out.line(f"{out.paint('–', 'dim')} {out.paint(one_line(name), 'bold')}  {details}")
    if healthy or diagnosis.disabled:
        out.line()
    out.line(
        _summary(diagnosis), "bold red" if diagnosis.interrupted or diagnosis.problems() else "bold green"
    )
    if diagnosis.seconds:
        out.line(_cost(diagnosis), "dim")


def _summary(diagnosis: Diagnosis) -> str:
    """Return the result in one sentence, with the names of the children that have a problem."""
    problems = plural(diagnosis.problems(), "problem")
    ready = f"{plural(sum(child.ok for child in diagnosis.children), 'child', 'children')} ready"
    if diagnosis.interrupted:
        names = _some(diagnosis.unchecked)
        not_checked = f"; not checked: {names}" if names else ""
        return f"Interrupted: {problems}, {ready}{not_checked}."
    if not diagnosis.problems():
        return f"All is well: {ready}."
    names = _some([child.child for child in diagnosis.children if child.level == PROBLEM])
    return f"{problems}{f' ({names})' if names else ''}; {ready}."


def _some(names: Sequence[str]) -> str:
    """Return the names in one text, those that would fill a screen as a number."""
    shown = [one_line(name) for name in names[:MAX_NAMES]]
    return ", ".join([*shown, f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else shown)


def _cost(diagnosis: Diagnosis) -> str:
    """Return what the starts have cost."""
    took = f"The starts took {diagnosis.seconds:.1f} s"
    if not diagnosis.peak_memory:
        return f"{took}."
    return f"{took} and at most {diagnosis.peak_memory / 1e6:,.0f} MB of memory at once."


def _show_child(child: ChildDiagnosis, width: int, out: Screen) -> None:
    """Print one child, its details in a column after the widest name of a suite."""
    mark = out.paint("✓", "green") if child.ok else out.paint("✗", "red")
    facts = [f"child {child.child}{' of the user workspace' if child.scope == 'user' else ''}"]
    if isinstance(child.subtools, int) and isinstance(child.handshake_ms, int):
        denied = f" ({child.denied} denied)" if child.denied else ""
        facts += [child.server or "unnamed server", f"{plural(child.subtools, 'subtool')}{denied}"]
        facts += [f"protocol {child.protocol}", f"{child.handshake_ms / 1000:.2f} s"]
    suite, size = one_line(child.suite), out.size()
    details = one_line(" · ".join(facts))
    if size is not None:
        details = truncate(details, max(size.columns - width - 4, 1))
    gap = " " * (width - visible_width(suite) + 2)
    out.line(f"{mark} {out.paint(suite, 'bold')}{gap}{out.paint(details, 'dim')}")
    if child.program and child.findings:
        out.line(f"    runs {one_line(child.program)}", "dim")
    for finding in child.findings:
        _show_finding(finding, out, "    ")


def _show_notes(notes: Sequence[Finding], out: Screen) -> None:
    """Print notes; a remedy that several share is printed once."""
    by_remedy: dict[str, list[Finding]] = {}
    for note in notes:
        by_remedy.setdefault(note.remedy, []).append(note)
    for remedy, group in by_remedy.items():
        for note in group[:-1]:
            _show_finding(replace(note, remedy=""), out, "")
        _show_finding(replace(group[-1], remedy=remedy), out, "")
        out.line()


def _show_finding(finding: Finding, out: Screen, indent: str) -> None:
    mark, style = {PROBLEM: ("✗", "red"), NOTE: ("!", "yellow"), GOOD: ("✓", "green")}[finding.level]
    out.prose(finding.message if indent else f"{mark} {finding.message}", indent, style)
    if finding.stderr:
        out.line(f"{indent}Lines of stderr:", "dim")
        for line in finding.stderr:
            out.text(f"{indent}  {line}", "dim")
    if finding.remedy:
        remedy = f"{indent}→ {finding.remedy}"
        # A command to copy must not be wrapped.
        if ": cd " in finding.remedy:
            out.text(remedy)
        else:
            out.line(remedy)
