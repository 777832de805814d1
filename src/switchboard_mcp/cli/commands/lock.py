"""`switchboard lock`: write down what every child offers, see what is another since, take it.

Owns what is compared with what, and how it is shown. The file is `children.lock`'s affair, differences are
`policy.drift`'s.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal

from msgspec import UNSET, Struct, UnsetType, structs

from switchboard_mcp.app import run as run_loop
from switchboard_mcp.app import workspace_folder
from switchboard_mcp.children.catalog import ServerSnapshot
from switchboard_mcp.children.child import Child
from switchboard_mcp.children.lock import (
    PROMPTS,
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
from switchboard_mcp.cli.start_all import start_all
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.lockfile import LockedChild, LockFile
from switchboard_mcp.config.models import ChildSpec, Workspace
from switchboard_mcp.errors import Failure, SwitchboardError, as_text
from switchboard_mcp.features import record_decision
from switchboard_mcp.suites.fuzzy import nearest

Status = Literal["same", "locked", "accepted", "drifted", "unlocked", "gone", "removed", "failed"]
# What keeps a lock from being right.
BAD_STATUSES = frozenset({"drifted", "unlocked", "gone", "failed"})
# From so many tools on, a change that is the same in all of them is told once.
FOLD_FROM = 3
MARKS = {
    "same": ("✓", "green", "as locked"),
    "locked": ("✓", "green", "locked"),
    "accepted": ("✓", "green", "accepted"),
    "removed": ("✓", "green", "removed from the lock: it is not configured any more"),
    "drifted": ("✗", "red", "is not what was locked"),
    "unlocked": ("✗", "yellow", "is not locked"),
    "gone": ("✗", "yellow", "is locked, but not configured any more"),
    "failed": ("✗", "red", "did not start"),
}


class Difference(Struct, frozen=True, omit_defaults=True):
    """One change, for programs."""

    change: str
    tool: str = ""


class LockReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one child stands to its lock."""

    child: str
    status: Status
    tools: int | UnsetType = UNSET
    changes: list[Difference] = []
    remarks: list[str] = []
    error: Failure | UnsetType = UNSET


class CurrentTools(Struct, frozen=True):
    """What one child offers now, or why that is not known."""

    entry: LockedChild | None = None
    error: Failure | None = None


def run(invocation: Invocation) -> int:
    """Look, compare, write, show."""
    workspace = _workspace(invocation)
    path = lock_path(workspace.folder)
    lock = read_lock(path) or LockFile(schema_version=1)
    chosen = _choose(invocation, workspace, lock)
    seen = run_loop(lambda: inspect_children(invocation, workspace, chosen)) if chosen else {}
    accepted = frozenset(invocation.args.accept)
    whole = not invocation.args.children and not accepted
    reports = compare(path, lock, seen, accepted, check=invocation.args.check)
    reports += leftovers(workspace, lock, check=invocation.args.check) if whole else []
    if not invocation.args.check:
        _write(path, lock, seen, reports)
        for report in reports:
            if report.status in ("locked", "accepted", "removed"):
                record_decision(workspace, "lock", report.child, report.status)
    reports.sort(key=lambda report: report.child)
    if invocation.as_json:
        ok = all(report.status not in BAD_STATUSES for report in reports)
        invocation.console.out.json({"lock": path, "ok": ok, "children": reports})
    else:
        show(workspace, path, reports, invocation)
    return 1 if any(report.status in BAD_STATUSES for report in reports) else 0


COMMAND = Command(
    "lock [CHILD …] [--check | --accept CHILD] [OPTIONS]",
    "Start the children and write what they offer to switchboard.lock.json, which belongs into git. What has\n"
    "changed since it was locked stays as it was until you accept it, child by child.",
    run=run,
    arguments=[
        positional("children", "only these children (default: all)", metavar="CHILD", nargs="*"),
        flag("--check", "change nothing; exit code 1 where something is another"),
        repeatable("--accept", "CHILD", "take what this child offers now, whatever has changed"),
    ],
    epilog=(
        "With a lock, looking at suites starts nothing. In governed mode a subtool that is not as it was locked "
        "is\nblocked; in open mode a line is logged.\n\n"
        "examples:\n"
        "  switchboard lock\n"
        "  switchboard lock --check           exit code 1 where something is another, for CI\n"
        "  switchboard lock --accept github   take what github offers now"
    ),
)


def _workspace(invocation: Invocation) -> Workspace:
    """The children as they are without wrappers: it is what wrappers use that is held to a lock."""
    options = invocation.options
    workspace = load_workspace(workspace_folder(options), options.config, os.environ, originals=True)
    if workspace.config.governance.mode == "open":
        return workspace
    from switchboard_mcp.policy.governance import take_posture

    return take_posture(workspace, os.environ).workspace


def _choose(invocation: Invocation, workspace: Workspace, lock: LockFile) -> list[ChildSpec]:
    """The children that are meant; all where none is named."""
    args = invocation.args
    if args.check and args.accept:
        raise usage_error("--check changes nothing, --accept does.", "Use one of the two.")
    named = [*args.children, *args.accept]
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
        message += " It is in the lock; `switchboard lock` without a name takes it out."
    near = nearest(name, specs)
    problem = usage_failure(message, "`switchboard list` shows the children.")
    raise SwitchboardError(structs.replace(problem, nearest=near) if near else problem)


async def inspect_children(
    invocation: Invocation, workspace: Workspace, chosen: Sequence[ChildSpec]
) -> dict[str, CurrentTools]:
    """Start the children, all at once, and take down what they offer. Their lock does not stand in the way."""
    names = {spec.name for spec in chosen}
    seen: dict[str, CurrentTools] = {}
    async with open_switchboard(invocation, workspace, pinned=False) as switchboard:
        children = switchboard.supervisor.children
        skip = frozenset(children) - names
        for report in await start_all(
            switchboard, invocation.console.err, draw=invocation.may_draw, skip=skip
        ):
            child = children[report.child]
            if isinstance(report.error, Failure):
                seen[report.child] = CurrentTools(error=report.error)
            elif child.snapshot is not None:
                snapshot = await _full_snapshot(child)
                seen[report.child] = CurrentTools(lock_child(child.spec, workspace.folder, snapshot))
    return seen


async def _full_snapshot(child: Child) -> ServerSnapshot:
    """What it has told in this run. Prompts follow in the background, since no call waits for them."""
    fetched = asyncio.Event()
    child.inventory.when_fetched(PROMPTS, fetched.set, anew=True)
    with suppress(TimeoutError):
        async with asyncio.timeout(child.timeout_s):
            await fetched.wait()
    knowledge = child.snapshot
    assert knowledge is not None
    # Never those of an earlier run.
    return knowledge if child.inventory.prompts_fetched else structs.replace(knowledge, lists={})


def compare(
    path: str, lock: LockFile, seen: Mapping[str, CurrentTools], accepted: frozenset[str], *, check: bool
) -> list[LockReport]:
    """How each child that was looked at stands to the lock."""
    reports: list[LockReport] = []
    for name, one in seen.items():
        before, now = lock.children.get(name), one.entry
        if now is None:
            assert one.error is not None
            reports.append(LockReport(child=name, status="failed", error=one.error))
            continue
        tools = len(now.tools)
        if before is None:
            reports.append(LockReport(child=name, status="unlocked" if check else "locked", tools=tools))
            continue
        changes = [Difference(change.told(), change.tool) for change in compare_children(before, now)]
        changes += _tampering(path, name, before)
        status: Status = "accepted" if changes and name in accepted else "drifted" if changes else "same"
        reports.append(
            LockReport(
                child=name, status=status, tools=tools, changes=changes, remarks=metadata_changes(before, now)
            )
        )
    return reports


def _tampering(path: str, name: str, entry: LockedChild) -> list[Difference]:
    """What was changed by hand."""
    found = find_tampering(path, name, entry)
    return [Difference(found.message)] if found is not None else []


def leftovers(workspace: Workspace, lock: LockFile, *, check: bool) -> list[LockReport]:
    """Children that are locked, but neither configured any more nor waiting for an approval."""
    configured = {spec.name for spec in workspace.children} | set(workspace.absent)
    status: Status = "gone" if check else "removed"
    return [LockReport(child=name, status=status) for name in lock.children if name not in configured]


def _write(
    path: str, lock: LockFile, seen: Mapping[str, CurrentTools], reports: Sequence[LockReport]
) -> None:
    """Keep what may be kept. What has drifted stays as it was until it is accepted by name."""
    before = render(lock)
    for report in reports:
        entry = seen[report.child].entry if report.child in seen else None
        if report.status == "removed":
            del lock.children[report.child]
        elif entry is not None and report.status in ("same", "locked", "accepted"):
            kept = lock.children.get(report.child)
            sound = kept is not None and find_tampering(path, report.child, kept) is None
            lock.children[report.child] = merge(kept if sound else None, entry)
    if render(lock) != before or (lock.children and read_lock(path) is None):
        write_lock(path, lock)


def show(workspace: Workspace, path: str, reports: Sequence[LockReport], invocation: Invocation) -> None:
    """One line a child, with what is different below it, then the sum and what to do."""
    console = invocation.console
    show_warnings(workspace.warnings, console)
    out = console.out
    if not reports:
        show_no_children(workspace.folder, out)
        return
    width = max(len(report.child) for report in reports)
    for report in reports:
        _show_one(report, width, out)
    out.line()
    _show_summary(path, reports, invocation.args.check, console)


def _show_one(report: LockReport, width: int, out: Screen) -> None:
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
    """The changes of each tool; what is the same in several is told once, under all their names."""
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
        out.line("All as locked." if check else f"Written to {path}.", "bold")
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
        names = " ".join(f"--accept {name}" for name in drifted)
        out.line(f"Look at every change above. `switchboard lock {names}` takes it.")
    if missing:
        out.line("`switchboard lock` writes what is missing, and takes out what is gone.")
