"""`switchboard sandbox show|learn`: what each child may do here, and the smallest sandbox that a child works in."""

from __future__ import annotations

import contextlib
import os
import shutil

from switchboard_mcp.app import load
from switchboard_mcp.children.catalog import cache_folder
from switchboard_mcp.cli.console import Console, Screen, Styled
from switchboard_mcp.cli.invocation import Invocation, find_child, show_no_children, usage_error
from switchboard_mcp.cli.parser import Command, flag, option, positional
from switchboard_mcp.cli.sandbox.learn import learn
from switchboard_mcp.config.models import ChildSpec, Workspace, sandbox_of
from switchboard_mcp.config.sandbox import describe_network
from switchboard_mcp.sandbox.plan import Places, packages_folder
from switchboard_mcp.sandbox.probing import find_support
from switchboard_mcp.sandbox.promises import Promise, Support
from switchboard_mcp.sandbox.recorded_plans import plan_file
from switchboard_mcp.sandbox.report import SandboxReport, describe_child
from switchboard_mcp.sandbox.runner import child_places


def run(invocation: Invocation) -> int:
    """Show the sandboxes, or learn one."""
    workspace = load(invocation.options)
    name = invocation.args.child
    if invocation.args.action == "learn":
        if not name:
            raise usage_error("`sandbox learn` needs a child.", "Name it: `switchboard sandbox learn CHILD`.")
        spec = find_child(workspace, name, invocation.console)
        return learn(invocation, workspace, spec, places_of(workspace, spec))
    chosen = [find_child(workspace, name, invocation.console)] if name else local_children(workspace)
    if invocation.args.action == "update":
        return update(invocation, workspace, chosen)
    support = find_support({sandbox_of(spec.name, workspace.config).mechanism for spec in chosen})
    reports = [
        describe_child(workspace, spec, os.environ, places_of(workspace, spec), support) for spec in chosen
    ]
    if invocation.as_json:
        invocation.console.out.json({"system": support, "children": reports})
    else:
        show(reports, support, invocation.console, detailed=bool(name))
        if not workspace.children:
            show_no_children(workspace.folder, invocation.console.out)
    required = any(report.broken for report in reports if report.words.required)
    return 1 if required else 0


COMMAND = Command(
    "sandbox show|learn|update [CHILD] [OPTIONS]",
    "`show` prints what this system offers, each child's sandbox, and which of its promises hold here; with a\n"
    "child, all of it. Exit code 1 if a required sandbox cannot be kept. `learn` asks, runs a child once without a\n"
    "sandbox, watches what it uses, and prints the smallest one that it works in, with a reason for each line; --save\n"
    "writes it to the config.\n"
    "`update` forgets the package that `npx`, `uvx` and the like have installed for a child, and what its sandbox was\n"
    "at its first start: the next start downloads the package again, and may use more than before.",
    run=run,
    arguments=[
        positional("action", "show, learn or update", choices=("show", "learn", "update")),
        positional("child", "the child (default: all)", metavar="CHILD", nargs="?", default=""),
        option("--call", "SUBTOOL", "learn: call this subtool too"),
        flag("--save", "learn: write the proposal into the config, if the child works in it"),
        flag("--yes", "learn: do not ask before it runs without a sandbox"),
        option("--args", "JSON", "learn: its arguments (default: {})", "{}"),
    ],
    epilog=(
        "examples:\n"
        "  switchboard sandbox show\n"
        "  switchboard sandbox show github\n"
        "  switchboard sandbox learn github --call get_me"
    ),
)


def update(invocation: Invocation, workspace: Workspace, chosen: list[ChildSpec]) -> int:
    """Remove the packages that were installed for these children."""
    removed = []
    for spec in chosen:
        places = places_of(workspace, spec)
        folder, record = packages_folder(places), plan_file(places)
        if os.path.isdir(folder) or os.path.exists(record):
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                os.remove(record)
            removed.append(spec.name)
    if invocation.as_json:
        invocation.console.out.json({"updated": removed})
    elif removed:
        invocation.console.out.prose(
            f"The next start of {', '.join(removed)} downloads its package again and records its sandbox anew."
        )
    else:
        invocation.console.out.line("No package was installed for it, and no sandbox recorded.")
    return 0


def local_children(workspace: Workspace) -> list[ChildSpec]:
    """Return the children that are processes."""
    return sorted((spec for spec in workspace.children if spec.kind == "stdio"), key=lambda spec: spec.name)


def places_of(workspace: Workspace, spec: ChildSpec) -> Places:
    """Return the folders of a child's sandbox."""
    cache = os.path.join(os.path.dirname(cache_folder(os.environ)), "sandbox")
    return child_places(workspace.folder, os.environ.get("HOME", ""), cache, spec.name)


def show(reports: list[SandboxReport], support: Support, console: Console, *, detailed: bool) -> None:
    """Print the reports."""
    out = console.out
    out.line(f"This system: {describe_support(support)}")
    out.line()
    if detailed:
        for report in reports:
            _show_child(report, out)
        return
    rows = [
        (
            Styled(report.child, "bold cyan"),
            report.words.preset,
            describe_network(report.words) if report.words.is_on else "",
            Styled(_kept(report), "yellow" if report.broken else ""),
        )
        for report in reports
    ]
    if rows:
        out.table(rows, ("CHILD", "SANDBOX", "NETWORK", "PROMISES"))


def _kept(report: SandboxReport) -> str:
    if not report.words.is_on:
        return ""
    if report.refused:
        return "does not start"
    names = ", ".join(promise.name for promise in report.broken)
    return f"not kept: {names}" if names else "all kept"


def describe_support(support: Support) -> str:
    """Describe in one line which sandbox features the system has."""
    if support.system != "linux":
        return f"{support.system}: sandboxes are applied on Linux only"
    has = {
        f"Landlock {support.landlock}" if support.landlock else "Landlock": bool(support.landlock),
        "seccomp": support.seccomp,
        "user namespaces": support.user,
        "mounts": support.mount,
        "own network": support.transparent,
    }
    if support.bubblewrap is not None:
        has["bubblewrap"] = True
    offered = ", ".join(name for name, is_there in has.items() if is_there) or "nothing"
    lacking = ", ".join(name for name, is_there in has.items() if not is_there)
    return f"{offered}{f'; without {lacking}' if lacking else ''}{' (as root)' if support.is_root else ''}"


def _show_child(report: SandboxReport, out: Screen) -> None:
    words = report.words
    out.line(report.child, "bold")
    if not words.is_on:
        out.prose("No sandbox: it may do whatever you may do.", "  ")
        return
    programs = words.processes
    facts = {
        "preset": f"{words.preset}{', required' if words.required else ''}",
        "mechanism": "" if words.mechanism == "auto" else words.mechanism,
        "package": report.package,
        "reads": ", ".join((*report.read, "programs and libraries of the system")),
        "writes": ", ".join((*report.write, "a temporary folder of its own")),
        "protected": ", ".join(report.protect),
        "not protected": "files of these names that do not exist yet, which it can create"
        if report.protect
        else "",
        "not there": ", ".join(report.missing),
        "proposed": ", ".join(
            f"{path} (editable install of {name}; allow it in files.read)"
            for name, path in report.proposed.items()
        ),
        "home": "a folder of its own" if words.home == "private" else "yours",
        "network": describe_network(words),
        "programs": "any" if programs is True else ", ".join(programs or ()) or "none",
        "variables": ", ".join(report.env),
        "limits": ", ".join(f"{name} {value}" for name, value in words.limits.items()),
    }
    for name, value in facts.items():
        if value:
            out.entry(f"{name}: ", value, "bold", "  ")
    out.line()
    if report.refused:
        out.entry("✗ ", report.refused, "red", "  ")
        return
    for promise in report.promises:
        _show_promise(promise, out)


def _show_promise(promise: Promise, out: Screen) -> None:
    if promise.holds:
        out.entry("✓ ", f"{promise.text} ({promise.by})", "green", "  ")
    else:
        out.entry("✗ ", f"{promise.text}: {promise.why}", "red", "  ")
