"""`switchboard lock`: record what every child offers, show what changed since, accept changes.

Decides what is compared and how it is shown. `children.locking.lock_file` has the file format, `policy.drift` the
differences.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, structs

from switchboard_mcp.app import project_folder
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.children.catalog import Catalog, cache_folder
from switchboard_mcp.children.health import health_rules
from switchboard_mcp.children.locking.lock_file import (
    compare_children,
    find_tampering,
    lock_child,
    lock_path,
    merge,
    metadata_changes,
    read_lock,
    render,
    write_lock,
)
from switchboard_mcp.children.timeouts import call_timeout_s
from switchboard_mcp.cli.console import Console, Screen, plural
from switchboard_mcp.cli.invocation import (
    Invocation,
    open_switchboard,
    show_no_children,
    show_warnings,
    usage_error,
    usage_failure,
)
from switchboard_mcp.cli.parser import Command, flag, positional, repeatable
from switchboard_mcp.cli.start_all import Connected, start_all
from switchboard_mcp.config.files.lock_models import LockedChild, LockFile
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import ChildSpec, Workspace, recorded_sandbox
from switchboard_mcp.errors import Failure, SwitchboardError, as_text, shell_word
from switchboard_mcp.features import record_decision
from switchboard_mcp.policy.drift import ToolChange
from switchboard_mcp.policy.governance import govern
from switchboard_mcp.programs.kept_programs import kept_programs_of
from switchboard_mcp.programs.learned_types import LearnedTypes
from switchboard_mcp.programs.shapes import changed_kind, from_schema
from switchboard_mcp.suites.fuzzy import nearest

Status = Literal["same", "locked", "accepted", "drifted", "unlocked", "gone", "removed", "failed"]
# Before the name of a kept program, among those of children.
PROGRAM = "program:"
# The statuses that make the command fail.
BAD_STATUSES = frozenset({"drifted", "unlocked", "gone", "failed"})
# A change that at least this many tools share is listed once.
FOLD_FROM = 3
MARKS = {
    "same": ("✓", "green", "as locked"),
    "locked": ("✓", "green", "locked"),
    "accepted": ("✓", "green", "accepted"),
    "removed": ("✓", "green", "removed from the lock: it is no longer configured"),
    "drifted": ("✗", "red", "differs from the lock"),
    "unlocked": ("✗", "yellow", "is not locked"),
    "gone": ("✗", "yellow", "is locked, but no longer configured"),
    "failed": ("✗", "red", "did not start"),
}


class Difference(Struct, frozen=True, omit_defaults=True):
    """One change, as `--json` prints it."""

    change: str
    tool: str = ""


class LockReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one child compared with its lock entry."""

    child: str
    status: Status
    tools: int | UnsetType = UNSET
    changes: list[Difference] = []
    remarks: list[str] = []
    error: Failure | UnsetType = UNSET
    hash: str | UnsetType = UNSET


class CurrentTools(Struct, frozen=True):
    """The tools one child offers now, or the reason they are unknown."""

    entry: LockedChild | None = None
    error: Failure | None = None
    start_ms: int = 0


def run(invocation: Invocation) -> int:
    """Start the children, compare, write the lock, show the report."""
    workspace = governed_workspace(invocation)
    path = lock_path(workspace.folder)
    lock = read_lock(path) or LockFile(schema_version=1)
    chosen = _choose(invocation, workspace, lock)
    current = run_loop(lambda: inspect_children(invocation, workspace, chosen)) if chosen else {}
    accepted = frozenset(invocation.args.accept)
    whole = not invocation.args.children and not accepted
    slow = slow_starts(workspace, current)
    approve_slow_starts(current, accepted.intersection(slow))
    reports = compare(path, lock, current, accepted, check=invocation.args.check)
    add_start_remarks(
        reports, current, [name for name in slow if not _is_approved(lock, name, current[name])]
    )
    reports += leftovers(workspace, lock, check=invocation.args.check) if whole else []
    named = accepted | frozenset(invocation.args.children)
    reports += compare_programs(workspace, lock, named, accepted, check=invocation.args.check)
    if not invocation.args.check:
        _record(workspace, path, lock, current, reports)
    reports.sort(key=lambda report: report.child)
    if invocation.as_json:
        ok = all(report.status not in BAD_STATUSES for report in reports)
        invocation.console.out.json({"lock": path, "ok": ok, "children": reports})
    else:
        show(workspace, path, reports, invocation)
    return 1 if any(report.status in BAD_STATUSES for report in reports) else 0


COMMAND = Command(
    "lock [CHILD …] [--check | --accept CHILD] [OPTIONS]",
    "Start the children and record what they offer in switchboard.lock.json, which belongs in git. A child that has\n"
    "changed keeps its old entry until you accept the change by name. Kept programs are locked as program:NAME.",
    run=run,
    arguments=[
        positional("children", "only these children (default: all)", metavar="CHILD", nargs="*"),
        flag("--check", "check only; exit 1 if anything changed"),
        repeatable("--accept", "CHILD", "accept what this child offers now"),
    ],
    epilog=(
        "With a lock, listing suites starts nothing. In governed mode a subtool that differs from its lock entry "
        "is\nblocked; in open mode a line is logged.\n\n"
        "examples:\n"
        "  switchboard lock\n"
        "  switchboard lock --check           exit 1 if anything changed, for CI\n"
        "  switchboard lock --accept github   accept what github offers now"
    ),
)


def lock_new_children(
    invocation: Invocation, workspace: Workspace, accepts: Callable[[str, int], bool]
) -> list[LockReport]:
    """Start and lock the children that are not in the lock yet; the others keep their entries.

    `accepts` decides about the start of a child that takes longer than the health gate allows, in milliseconds.
    """
    path = lock_path(workspace.folder)
    lock = read_lock(path) or LockFile(schema_version=1)
    chosen = [
        spec for spec in workspace.children if spec.kind != "builtin" and spec.name not in lock.children
    ]
    current = run_loop(lambda: inspect_children(invocation, workspace, chosen)) if chosen else {}
    slow = slow_starts(workspace, current)
    approve_slow_starts(current, [name for name in slow if accepts(name, current[name].start_ms)])
    reports = compare(path, lock, current, frozenset(), check=False)
    add_start_remarks(reports, current, slow)
    _record(workspace, path, lock, current, reports)
    return reports


def slow_starts(workspace: Workspace, current: Mapping[str, CurrentTools]) -> list[str]:
    """Return the children whose start takes longer than the health gate of governed mode allows."""
    if workspace.config.governance.mode == "open":
        return []
    limit_ms = health_rules(workspace.config.health, governed=True).spawn_fail_s * 1000
    return [name for name, child in current.items() if child.entry is not None and child.start_ms > limit_ms]


def _is_approved(lock: LockFile, name: str, child: CurrentTools) -> bool:
    """Return whether the lock already allows a start as long as this one, and nothing new is recorded."""
    before = lock.children.get(name)
    recorded = child.entry is not None and bool(child.entry.start_limit_ms)
    return not recorded and before is not None and (before.start_limit_ms or 0) >= child.start_ms


def approve_slow_starts(current: Mapping[str, CurrentTools], names: Iterable[str]) -> None:
    """Record twice the measured start as the limit of these children."""
    for name in names:
        entry = current[name].entry
        if entry is not None:
            entry.start_limit_ms = 2 * current[name].start_ms


def add_start_remarks(
    reports: Iterable[LockReport], current: Mapping[str, CurrentTools], slow: Sequence[str]
) -> None:
    """Say of each slow start what was recorded, or how to approve it."""
    for report in reports:
        entry = current[report.child].entry if report.child in slow else None
        if entry is None:
            continue
        took = (
            f"Its start took {current[report.child].start_ms / 1000:.1f} s, more than the health gate allows."
        )
        if entry.start_limit_ms:
            report.remarks.append(f"{took} It may take {entry.start_limit_ms / 1000:.1f} s now.")
        else:
            report.remarks.append(
                f"{took} `switchboard lock --accept {shell_word(report.child)}` approves it."
            )


def _record(
    workspace: Workspace,
    path: str,
    lock: LockFile,
    current: Mapping[str, CurrentTools],
    reports: Sequence[LockReport],
) -> None:
    """Write the lock, and the decisions to the audit log."""
    _write(path, lock, current, reports)
    for report in reports:
        if report.status in ("locked", "accepted", "removed"):
            record_decision(workspace, "lock", report.child, report.status)


def governed_workspace(invocation: Invocation) -> Workspace:
    """Load the children without wrappers: wrapped children are locked by what their wrapper uses."""
    options = invocation.options
    workspace = load_workspace(project_folder(options), options.config, os.environ, originals=True)
    if workspace.config.governance.mode == "open":
        return workspace
    return govern(workspace, os.environ).workspace


def _choose(invocation: Invocation, workspace: Workspace, lock: LockFile) -> list[ChildSpec]:
    """Return the named children; all if none is named."""
    args = invocation.args
    if args.check and args.accept:
        raise usage_error("--check changes nothing, --accept does.", "Use one of the two.")
    named = [name for name in (*args.children, *args.accept) if not name.startswith(PROGRAM)]
    if not named and (args.children or args.accept):
        return []
    specs = {spec.name: spec for spec in workspace.children if spec.kind != "builtin"}
    for name in named:
        if name not in specs:
            _raise_unknown(name, workspace, lock, specs)
    return [spec for name, spec in specs.items() if not named or name in named]


def _raise_unknown(name: str, workspace: Workspace, lock: LockFile, specs: Mapping[str, ChildSpec]) -> None:
    absent = workspace.absent.get(name)
    if absent is not None:
        raise SwitchboardError(absent)
    message = f"There is no child '{name}' in {workspace.folder}."
    if name in lock.children:
        message += " It is in the lock; `switchboard lock` without a name removes it."
    near = nearest(name, specs)
    problem = usage_failure(message, "`switchboard list` shows the children.")
    raise SwitchboardError(structs.replace(problem, nearest=near) if near else problem)


async def inspect_children(
    invocation: Invocation, workspace: Workspace, chosen: Sequence[ChildSpec]
) -> dict[str, CurrentTools]:
    """Start the children concurrently and record what they offer. Their current lock is not enforced."""
    workspace = with_first_start_time(workspace)
    names = {spec.name for spec in chosen}
    current: dict[str, CurrentTools] = {}
    async with open_switchboard(invocation, workspace, pinned=False) as switchboard:
        children = switchboard.registry.children
        skip = frozenset(children) - names
        lists_s = max((children[name].call_timeout_s for name in names), default=0.0)
        for report in await start_all(
            switchboard, invocation.console.err, draw=invocation.may_draw, skip=skip, lists_s=lists_s
        ):
            child = children[report.child]
            if isinstance(report.error, Failure):
                current[report.child] = CurrentTools(error=report.error)
            elif child.snapshot is not None:
                process = next(iter(child.processes()), child)
                # Never the prompts of an earlier run.
                snapshot = structs.replace(child.snapshot, lists=process.inventory.fetched_lists)
                sandbox = recorded_sandbox(child.spec, workspace.config)
                entry = lock_child(child.spec, workspace.folder, snapshot, sandbox)
                if workspace.config.programs.enabled:
                    entry.results = learned_results(child.spec, entry)
                took = report.connected.handshake_ms if isinstance(report.connected, Connected) else 0
                current[report.child] = CurrentTools(entry, start_ms=took)
    return current


def learned_results(spec: ChildSpec, entry: LockedChild) -> dict[str, dict[str, Any]] | UnsetType:
    """Return the types that were learned from results of the child's tools; an empty one for those of texts."""
    learned = LearnedTypes(Catalog(cache_folder(os.environ))).known(spec)
    results = {
        name: {} if result.may_be_text else result.schema
        for name, result in learned.items()
        if name in entry.tools
    }
    return {
        name: results[name] for name in sorted(results) if learned[name].results or not results[name]
    } or UNSET


def compare_results(before: LockedChild, now: LockedChild) -> Iterator[Difference]:
    """Yield the results that may have another kind than when they were locked."""
    locked, learned = before.results or {}, now.results or {}
    for name in locked.keys() & learned.keys():
        change = changed_kind(from_schema(locked[name]), from_schema(learned[name]))
        if locked[name] and not learned[name]:
            change = "result may be a text"
        if change:
            yield Difference(f"tool {name}: {change}", name)


def with_first_start_time(workspace: Workspace) -> Workspace:
    """Give each start as long as a call may take, unless the settings limit it: a first start may be a cold one."""
    config = workspace.config
    if config.governance.mode == "open" or config.health.spawn_fail_ms is not None:
        return workspace
    limits_s = [config.timeouts.child_spawn_ms / 1000, config.timeouts.rpc_ms / 1000]
    limits_s += [call_timeout_s(spec, config) for spec in workspace.children]
    health = structs.replace(config.health, spawn_fail_ms=round(max(limits_s) * 1000))
    # The settings as written stay what they are: these are approved.
    return structs.replace(
        workspace, config=structs.replace(config, health=health), written=workspace.written_config
    )


def compare(
    path: str, lock: LockFile, current: Mapping[str, CurrentTools], accepted: frozenset[str], *, check: bool
) -> list[LockReport]:
    """Compare each inspected child with the lock."""
    reports: list[LockReport] = []
    for name, child in current.items():
        before, now = lock.children.get(name), child.entry
        if now is None:
            assert child.error is not None
            reports.append(LockReport(child=name, status="failed", error=child.error))
            continue
        tools = len(now.tools)
        if before is None:
            reports.append(LockReport(child=name, status="unlocked" if check else "locked", tools=tools))
            continue
        differences = list(compare_children(before, now))
        changes = [Difference(change.describe(), change.tool) for change in differences]
        changes += compare_results(before, now)
        changes += _tampering(path, name, before)
        status: Status = "accepted" if changes and name in accepted else "drifted" if changes else "same"
        reports.append(
            LockReport(
                child=name,
                status=status,
                tools=tools,
                changes=changes,
                remarks=[*_order_remark(name, differences), *metadata_changes(before, now)],
            )
        )
    return reports


def _order_remark(child: str, changes: Sequence[ToolChange]) -> list[str]:
    """Return the cure for texts whose order changes with every start."""
    if not any(change.is_reordered for change in changes):
        return []
    cause = "A program that prints sets writes them in another order at each start."
    cure = (
        f'set "PYTHONHASHSEED": "0" in its `env`, then run `switchboard lock --accept {shell_word(child)}`.'
    )
    return [f"{cause} If it is a Python program, {cure}"]


def _tampering(path: str, name: str, entry: LockedChild) -> list[Difference]:
    """Return the changes made to the lock file by hand."""
    tampering = find_tampering(path, name, entry)
    return [Difference(tampering.message)] if tampering is not None else []


def leftovers(workspace: Workspace, lock: LockFile, *, check: bool) -> list[LockReport]:
    """Report locked children that are neither configured nor waiting for approval."""
    configured = {spec.name for spec in workspace.children} | set(workspace.absent)
    status: Status = "gone" if check else "removed"
    return [LockReport(child=name, status=status) for name in lock.children if name not in configured]


def compare_programs(
    workspace: Workspace, lock: LockFile, named: frozenset[str], accepted: frozenset[str], *, check: bool
) -> list[LockReport]:
    """Compare the kept programs with the lock: all of them, or those that are named."""
    locked = lock.programs or {}
    if not workspace.config.programs.enabled and not locked:
        return []
    current = {program.name: program.hash for program in kept_programs_of(workspace).all()}
    reports = []
    for name in sorted({*locked, *current}):
        child = PROGRAM + name
        if named and child not in named:
            continue
        if name not in current:
            status: Status = "gone" if check else "removed"
        elif name not in locked:
            status = "unlocked" if check else "locked"
        elif locked[name] == current[name]:
            status = "same"
        else:
            status = "accepted" if child in accepted else "drifted"
        changes = [Difference("its code has changed")] if status in ("drifted", "accepted") else []
        reports.append(LockReport(child=child, status=status, changes=changes, hash=current.get(name, UNSET)))
    return reports


def record_program(lock: LockFile, report: LockReport) -> None:
    """Record a kept program in the lock, as its report says."""
    name, programs = report.child.removeprefix(PROGRAM), dict(lock.programs or {})
    if report.status == "removed":
        del programs[name]
    elif report.status in ("locked", "accepted") and report.hash is not UNSET:
        programs[name] = report.hash
    lock.programs = dict(sorted(programs.items())) or UNSET


def _write(
    path: str, lock: LockFile, current: Mapping[str, CurrentTools], reports: Sequence[LockReport]
) -> None:
    """Update the lock. A drifted child keeps its entry until it is accepted by name."""
    before = render(lock)
    for report in reports:
        if report.child.startswith(PROGRAM):
            record_program(lock, report)
            continue
        entry = current[report.child].entry if report.child in current else None
        if report.status == "removed":
            del lock.children[report.child]
        elif entry is not None and report.status in ("same", "locked", "accepted"):
            kept = lock.children.get(report.child)
            sound = kept is not None and find_tampering(path, report.child, kept) is None
            lock.children[report.child] = merge(kept if sound else None, entry)
    if render(lock) != before or ((lock.children or lock.programs) and read_lock(path) is None):
        write_lock(path, lock)


def show(workspace: Workspace, path: str, reports: Sequence[LockReport], invocation: Invocation) -> None:
    """Print one line per child with its changes, then the totals and what to do."""
    console = invocation.console
    show_warnings(workspace.warnings, console)
    out = console.out
    if not reports:
        show_no_children(workspace.folder, out)
        return
    width = max(len(report.child) for report in reports)
    for report in reports:
        show_report(report, width, out)
    out.line()
    _show_summary(path, reports, invocation.args.check, console)


def show_report(report: LockReport, width: int, out: Screen) -> None:
    """Print one child with its changes, as wide as the longest name."""
    mark, colour, words = MARKS[report.status]
    count = "" if isinstance(report.tools, UnsetType) else f" · {plural(report.tools, 'tool')}"
    name = out.paint(report.child.ljust(width), "bold")
    out.line(f"{out.paint(mark, colour)} {name}  {words}{out.paint(count, 'dim')}")
    for tools, changes in fold_changes(report.changes):
        indent = "    "
        if tools:
            out.prose(tools, indent, "cyan")
            indent = "      "
        for change in changes:
            out.prose(change, indent)
    for remark in report.remarks:
        out.prose(remark, "    ", "dim")
    if isinstance(report.error, Failure):
        out.prose(as_text(report.error), "    ")


def fold_changes(changes: Sequence[Difference]) -> list[tuple[str, list[str]]]:
    """Group the changes by tool; a change shared by several tools is listed once, under all their names."""
    where: dict[str, list[str]] = {}
    for change in changes:
        where.setdefault(change.change, []).append(change.tool)
    by_tools: dict[str, list[str]] = {}
    for change in changes:
        tools = where[change.change]
        name = ", ".join(tools) if len(tools) >= FOLD_FROM else change.tool
        if change.change not in by_tools.setdefault(name, []):
            by_tools[name].append(change.change)
    return list(by_tools.items())


def _show_summary(path: str, reports: Sequence[LockReport], check: bool, console: Console) -> None:
    out = console.out
    drifted = [report.child for report in reports if report.status == "drifted"]
    missing = [report.child for report in reports if report.status in ("unlocked", "gone")]
    failed = [report.child for report in reports if report.status == "failed"]
    if not (drifted or missing or failed):
        out.line("Everything matches the lock." if check else f"Written to {path}.", "bold")
        return
    counts = (
        (len(drifted), "drifted"),
        (sum(report.status == "unlocked" for report in reports), "not locked"),
        (sum(report.status == "gone" for report in reports), "gone"),
        (len(failed), "not started"),
    )
    text = ", ".join(f"{count} {what}" for count, what in counts if count)
    out.line(f"{plural(len(reports), 'child', 'children')}: {text}.", "bold")
    if drifted:
        command = " ".join(["switchboard lock", *(f"--accept {shell_word(name)}" for name in drifted)])
        out.line(f"Review every change above. `{command}` accepts it.")
    if missing:
        out.line("`switchboard lock` adds what is missing, and removes what is gone.")
