"""Prints what `switchboard init` found, plans, did, and what is left to do.

Secrets are never shown: commands are masked, variables and settings appear by name only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from switchboard_mcp.cli.console import Screen, Styled, plural
from switchboard_mcp.policy.governance import ENABLED
from switchboard_mcp.setup.child_entries import (
    find_literal_secrets,
    is_missing,
    redacted_target,
    safe_name,
)
from switchboard_mcp.setup.dialects import ENTRY_NAME, HostServer
from switchboard_mcp.setup.discovery import Discovery
from switchboard_mcp.setup.host_profiles import PROJECT
from switchboard_mcp.setup.hosts import BY_NAME
from switchboard_mcp.setup.journal import FileChange
from switchboard_mcp.setup.paths import find_repository
from switchboard_mcp.setup.plan import Outcome, Plan
from switchboard_mcp.setup.references import ServerReference
from switchboard_mcp.setup.scopes import ScopePlan, SetupScope
from switchboard_mcp.system.installation import install_hint

OLD_NAMES = "These still use the old tool names"
# This many references are listed; the rest is counted.
MAX_TRACES = 12


def show_discovery(
    discovery: Discovery,
    outcomes: Sequence[Outcome],
    folder: str,
    out: Screen,
    children: Sequence[str] = (),
    *,
    named: bool = False,
) -> None:
    """Print a table of the discovered servers. `children` are those that the workspace has already.

    `named` is True if the person has named the hosts.
    """
    if not outcomes:
        files = len({source.path for source in discovery.sources if source.data is not None})
        searched = (
            f"in {plural(files, 'file')} of your hosts" if files else "on this machine: no host has any"
        )
        if children:
            present = f"{plural(len(children), 'child', 'children')}: {', '.join(children)}"
            out.prose(f"No servers to move were found {searched}. This workspace has {present}.")
            if not named:
                out.prose(f"`switchboard init --host HOST` connects a host to {_short(folder)}.")
        else:
            out.line(f"No MCP servers were found {searched}.")
            connect = "" if named else ", `switchboard init --host HOST` connects a host"
            out.line(f"`switchboard add NAME -- CMD` adds one here{connect}.")
    number = 0
    rows = []
    for outcome in outcomes:
        finding, server = outcome.entry, outcome.entry.parsed.server
        number += outcome.moves
        rows.append(
            (
                Styled(str(number) if outcome.moves else "", "dim"),
                finding.source.host.title,
                finding.source.scope,
                Styled(finding.name, "bold"),
                server.kind if server else "",
                Styled(_outcome_text(outcome), "green" if outcome.moves else "dim"),
                redacted_target(server) if server else "",
            )
        )
    if rows:
        out.table(
            rows, ("", "HOST", "SCOPE", "NAME", "KIND", "WHAT HAPPENS", "RUNS"), align="r", optional=(6, 4, 2)
        )
    for trouble in discovery.problems:
        out.prose(trouble, style="yellow")
    if stuck := cannot_run(outcomes):
        out.line()
        out.line("These cannot run here as they are, behind Switchboard or without it:", "yellow")
        for name, reason in stuck.items():
            out.prose(f"{name}: {reason}", indent="  ", style="yellow")


def cannot_run(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Return the servers that would move but cannot run on this machine, each with the reason."""
    reasons: dict[str, str] = {}
    for outcome in outcomes:
        server = outcome.entry.parsed.server
        if outcome.moves and server is not None and not server.disabled and (reason := _obstacle(server)):
            reasons[f"{outcome.entry.name} ({outcome.entry.source.host.title})"] = reason
    return reasons


def _obstacle(server: HostServer) -> str:
    if server.kind != "stdio":
        missing = find_spec("httpx2") is None
        text = f"remote servers need the package httpx2, which is missing. {install_hint('')}"
        return text if missing else ""
    command = server.command
    if is_missing(command) or (os.path.isabs(command) and not os.path.exists(command)):
        return f"its program {command} was not found. Install it, or correct the entry."
    return ""


def _outcome_text(outcome: Outcome) -> str:
    if not outcome.moves:
        return f"stays: {outcome.skip_reason}"
    server = outcome.entry.parsed.server
    off = ", still disabled" if server and server.disabled else ""
    if outcome.merged_with:
        return f"moves, the same as {outcome.child} ({outcome.merged_with})"
    renamed = f" as {outcome.child}" if outcome.child != outcome.entry.name else ""
    why = f"; other {outcome.differs} than {safe_name(outcome.entry.name)}" if outcome.differs else ""
    return f"moves{renamed}{off}{why}"


def show_plan(plans: Sequence[ScopePlan], out: Screen) -> None:
    """Print the files that would change."""
    plans = [planned for planned in plans if planned.plan.changes]
    if not plans:
        out.line("There is nothing to do.")
        return
    out.line()
    out.line("These files would change:", "bold")
    for planned in plans:
        if planned.scope.is_user:
            where = f"your user workspace, {_short(planned.scope.folder)}, which every project includes"
        else:
            where = f"the project, {_short(planned.scope.folder)}"
        if planned.plan.moving:
            out.prose(f"{plural(len(planned.plan.moving), 'entry', 'entries')} to {where}:")
        _show_changes(planned.plan.changes, out)
    if views := list(_host_views(plans)):
        out.line()
        for line in views:
            out.prose(line)
    if secrets := {name: None for planned in plans for name in _literal_secrets(planned.plan)}:
        there = ", ".join(sorted(secrets))
        out.prose(
            f"These servers have literal secrets: {there}. `--secrets env` replaces them with variables.",
            style="yellow",
        )


def _show_changes(changes: Sequence[FileChange], out: Screen) -> None:
    for change in changes:
        summary = "new" if change.before is None else "changed"
        if change.edits:
            entry = next((edit.entry for edit in change.edits if edit.entry), "")
            names = sum(len(edit.names) for edit in change.edits)
            summary = f"{plural(names, 'server')} out" + (f", `{entry}` in" if entry else "")
            summary = summary if names or entry else f"sets {ENABLED}"
        out.line(f"  {_short(change.path)}  {out.paint(summary, 'dim')}")


def _host_views(plans: Sequence[ScopePlan]) -> Iterator[str]:
    """Yield what each host will see, if they differ."""
    profiles = [(profile, planned.plan) for planned in plans for profile in planned.plan.profiles]
    if not any(profile.hide or profile.expose for profile, _ in profiles):
        return
    seen: dict[str, list[str]] = {}
    for profile, plan in profiles:
        seen.setdefault(_title(profile.name), []).extend(
            f"{name} (limited)" if name in profile.expose else name
            for name in sorted({outcome.child for outcome in plan.moving})
            if name not in profile.hide
        )
    for title, shown in seen.items():
        yield f"{title} will see {', '.join(shown) or 'no server that moves'}."
    yield "`--share` shows every host all servers."


def _title(profile: str) -> str:
    """Return the name of a profile for people."""
    if profile in BY_NAME:
        return BY_NAME[profile].title
    host = BY_NAME.get(profile.removesuffix(f"-{PROJECT}"))
    return f"{host.title}, by the entry of this project," if host else "The project's own entry"


def show_done(
    plans: Sequence[ScopePlan], plan: Plan, references: Sequence[ServerReference], out: Screen
) -> None:
    """Print what was done, and what is left to do. `plan` has the changes of all workspaces."""
    hosts = {outcome.entry.source.host.title: outcome.entry.source.host.restart for outcome in plan.moving}
    for planned in plans:
        if planned.plan.moving:
            out.prose(_moved(planned), style="green")
    entered: dict[str, list[str]] = {}
    for change in _files_with_entry(plan):
        entered.setdefault(_entry_in(change), []).append(_short(change.path))
    for entry, paths in entered.items():
        out.prose(f"The entry `{entry}` is in {', '.join(paths)}.", style="green")
    copies = _short(os.path.dirname(plans[0].scope.journals.path))
    out.prose(f"Copies of the old files are in {copies}; `switchboard revert` restores them.")
    for title, lines in _all_remarks(plans, references).items():
        out.line()
        out.line(title, "bold")
        for line in dict.fromkeys(lines):
            out.prose(line, indent="  ")
    if hosts:
        out.line()
        out.line("To apply the change", "bold")
        for host, restart in hosts.items():
            out.prose(f"{host}: {restart}", indent="  ")
    out.line()
    out.line("Next: `switchboard doctor` starts every server once; `switchboard tokens` shows what you save.")


def _moved(planned: ScopePlan) -> str:
    names = sorted({outcome.child for outcome in planned.plan.moving})
    moved = plural(len(planned.plan.moving), "entry", "entries")
    created = plural(len(names), "child", "children")
    whose = "your user workspace" if planned.scope.is_user else "the project"
    return f"Moved {moved} into {created} of {whose}, {_short(planned.scope.folder)}: {', '.join(names)}."


def _all_remarks(plans: Sequence[ScopePlan], references: Sequence[ServerReference]) -> dict[str, list[str]]:
    """Return the remarks about all workspaces by their titles."""
    remarks: dict[str, list[str]] = {}
    for planned in plans:
        for title, lines in _remarks(planned) if planned.plan.changes else ():
            remarks.setdefault(title, []).extend(lines)
    return remarks | ({OLD_NAMES: _reference_lines(references)} if references else {})


def _remarks(planned: ScopePlan) -> Iterator[tuple[str, list[str]]]:
    plan, options, workspace = planned.plan, planned.options, planned.scope.workspace
    if notes := _notes(planned):
        yield "Worth knowing", notes
    closed = sorted({outcome.child for outcome in plan.moving if _wants_login(outcome)})
    if closed:
        yield "Remote servers that may need a login", [f"switchboard login {name}" for name in closed]
    literal = [f"{name}: {', '.join(places)}" for name, places in _literal_secrets(plan).items()]
    if literal:
        again = (
            "switchboard init --secrets env" if options.command else "switchboard init --team --secrets env"
        )
        hint = f"`switchboard revert`, then `{again}`, replaces them with variables."
        yield "Literal secrets", [*literal, hint]
    unset = [name for name in plan.variables if name not in options.environ]
    if plan.secrets:
        path = _short(os.path.join(workspace.folder, ".switchboard", "secrets.env"))
        place = "the system keyring" if plan.keyring else path
        names = ", ".join(sorted(plan.secrets))
        yield "Secrets are now variables", [f"{names}: stored in {place}, which Switchboard reads"]
    elif unset:
        yield (
            "Variables that are not set here",
            [f"{', '.join(unset)}: set them where your hosts are started"],
        )


def _notes(planned: ScopePlan) -> list[str]:
    """Return what is different from now on, or does not work for everyone."""
    plan, options, workspace = planned.plan, planned.options, planned.scope.workspace
    notes = [
        f"{outcome.entry.name} ({outcome.entry.source.host.title}): {note}"
        for outcome in plan.moving
        for note in outcome.entry.parsed.notes
    ]
    entries = {change.path: _entry_in(change) for change in _files_with_entry(plan)}
    notes += [
        f"{_short(source.path)}: {source.shared}; they now find `{entries.get(source.path, ENTRY_NAME)}` there"
        for source in {each.entry.source.path: each.entry.source for each in plan.moving}.values()
        if source.shared
    ]
    if not options.command:
        notes.append("commit these files and mcps/; everyone who pulls them needs `switchboard` on the PATH")
        notes += [
            f"{child.name}: names a path of this machine, which others do not have; write it from the project's folder"
            for child in plan.children
            if any(os.path.isabs(word) for word in (child.server.command, *child.server.args))
        ]
    else:
        notes += [
            f"{_short(path)} belongs to the project, and others would get its paths of this machine from git; "
            "`switchboard revert`, then `switchboard init --team`, sets it up for everyone"
            for path in sorted(
                {each.path for each in _files_with_entry(plan) if each.path in _project_files(plan)}
            )
        ]
    if workspace.config.governance.mode == "governed":
        notes.append(
            "this workspace is governed: `switchboard approve --all` lets its children run, and the entries of your "
            f"hosts set {ENABLED}"
        )
        if any(profile.settings() for profile in plan.profiles):
            notes.append(
                "this adds profiles, which are settings that need an approval: no call is routed until "
                "`switchboard approve --settings`"
            )
    return notes


def _literal_secrets(plan: Plan) -> dict[str, list[str]]:
    """Return the locations of literal secrets, by child."""
    by_child = {
        child.name: [secret.location for secret in find_literal_secrets(child.server)]
        for child in plan.children
    }
    return {name: places for name, places in by_child.items() if places}


def _files_with_entry(plan: Plan) -> list[FileChange]:
    """Return the changed files that now have an entry for Switchboard."""
    return [change for change in plan.changes if any(edit.entry for edit in change.edits)]


def _entry_in(change: FileChange) -> str:
    """Return the name of the entry for Switchboard that a change puts into a file."""
    return next((edit.entry for edit in change.edits if edit.entry), "")


def _project_files(plan: Plan) -> set[str]:
    """Return the files in a repository from which servers move."""
    sources = (outcome.entry.source for outcome in plan.moving)
    return {
        source.path
        for source in sources
        if source.scope == "project" and find_repository(os.path.dirname(source.path))
    }


def _wants_login(outcome: Outcome) -> bool:
    server = outcome.entry.parsed.server
    return server is not None and server.kind != "stdio" and not server.headers and server.oauth is not False


def _reference_lines(references: Sequence[ServerReference]) -> list[str]:
    lines = [
        f"{_short(trace.path)}{f':{trace.line}' if trace.line else ''}  {trace.kind} for {trace.name}"
        + (", which is not moved" if trace.kind == "login" else "")
        for trace in references[:MAX_TRACES]
    ]
    if len(references) > MAX_TRACES:
        lines.append(f"and {len(references) - MAX_TRACES} more; --json names all of them")
    return lines


def as_json(
    plan: Plan, references: Sequence[ServerReference], scopes: Sequence[SetupScope], *, changed: bool
) -> dict[str, object]:
    """Return the same as JSON members."""
    servers = [
        {
            "host": outcome.entry.source.host.name,
            "scope": outcome.entry.source.scope,
            "file": outcome.entry.source.path,
            "name": outcome.entry.name,
            "kind": server.kind if server else None,
            "runs": redacted_target(server) if server else None,
            "child": outcome.child or None,
            "stays": outcome.skip_reason or None,
            "disabled": bool(server and server.disabled),
            "notes": outcome.entry.parsed.notes,
        }
        for outcome in plan.outcomes
        for server in (outcome.entry.parsed.server,)
    ]
    users = [scope.folder for scope in scopes if scope.is_user]
    return {
        "workspace": scopes[-1].folder,
        "userWorkspace": users[0] if users else None,
        "changed": changed,
        "servers": servers,
        "files": [change.path for change in plan.changes],
        "troubles": plan.problems,
        "cannotRun": cannot_run(plan.outcomes),
        "variables": plan.variables,
        "secrets": {
            child.name: [secret.location for secret in find_literal_secrets(child.server)]
            for child in plan.children
        },
        "traces": list(references),
    }


def _short(path: str) -> str:
    home = os.environ.get("HOME", "")
    return f"~{path[len(home) :]}" if home and path.startswith(home + os.sep) else path
