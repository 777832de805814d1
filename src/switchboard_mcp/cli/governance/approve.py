"""`switchboard approve`: show what a child really runs, or which settings apply, and record that they may.

Handles the dialog with the person who approves. `policy.launch.packages` resolves what runs,
`policy.launch.child_approval` makes and writes the record, `allow_list` shows and allows subtools.
Nothing is downloaded or installed. Only `--all` starts children: it locks those that it has approved.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from shlex import quote

from msgspec import Struct, structs
from msgspec.json import encode

from switchboard_mcp.app import project_folder
from switchboard_mcp.cli.console import Console, Screen, Styled, one_line
from switchboard_mcp.cli.governance.allow_list import (
    children_without_list,
    choose_subtools,
    locked_children,
    show_allowed,
    write_settings,
)
from switchboard_mcp.cli.governance.lock import governed_workspace, lock_new_children, show_report
from switchboard_mcp.cli.invocation import (
    YES,
    Invocation,
    prompt,
    require_person,
    show_no_children,
    show_warnings,
    usage_error,
    where_child_is,
)
from switchboard_mcp.cli.parser import Command, flag, positional, repeatable
from switchboard_mcp.config.files.approvals import read_approvals
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import ChildSpec, Workspace
from switchboard_mcp.config.variables import expand
from switchboard_mcp.errors import Failure, SwitchboardError, as_text
from switchboard_mcp.features import record_decision
from switchboard_mcp.policy.access import nothing_allowed
from switchboard_mcp.policy.approved_settings import (
    SectionStatus,
    approve_settings,
    section_statuses,
    settings_in,
    suite_status,
)
from switchboard_mcp.policy.governance import ENABLED, is_enabled, make_launch_policy
from switchboard_mcp.policy.launch.child_approval import (
    UNKNOWN_CHANGE,
    ChildProposal,
    approval_remarks,
    ascii_form,
    describe_approval,
    propose_child,
    record_approval,
    require_no_secret,
    save_approvals,
)
from switchboard_mcp.policy.launch.rules import LaunchPolicy
from switchboard_mcp.suites.fuzzy import did_you_mean


class ApprovalStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One child: allowed to run as it is, or the reason why not."""

    child: str
    state: str
    package: str = ""
    error: Failure | None = None


def run(invocation: Invocation) -> int:
    """List, revoke or approve, as the options say."""
    folder = project_folder(invocation.options)
    workspace = load_workspace(folder, invocation.options.config, os.environ, originals=True)
    guard = make_launch_policy(workspace, os.environ)
    args = invocation.args
    if args.all:
        return approve_workspace(workspace, guard, invocation)
    if args.list:
        in_front = load_workspace(folder, invocation.options.config, os.environ).children
        return show_list(workspace, guard, invocation, {spec.name for spec in in_front if spec.wraps})
    if args.settings:
        code = (
            revoke_settings(guard, invocation) if args.revoke else approve_all(workspace, guard, invocation)
        )
        record_decision(
            workspace, "settings", "", "refused" if code else "revoked" if args.revoke else "approved"
        )
        return code
    if not args.child:
        raise usage_error("approve: CHILD missing.", "Name a child, or use --all, --settings or --list.")
    if args.revoke:
        code = revoke(args.child, guard, invocation)
        record_decision(workspace, "approval", args.child, "revoked")
        return code
    spec = find_child(workspace, args.child, invocation.console)
    code = approve(
        spec, suite_status(workspace.written_config, spec.name, guard.approvals), guard, invocation
    )
    record_decision(workspace, "approval", args.child, "refused" if code else "approved")
    return code or allow_subtools([args.child], invocation)


COMMAND = Command(
    "approve CHILD | --all | --settings | --list [OPTIONS]",
    "Show what a child really runs (the script behind `npx -y pkg`, its interpreter), with checksums, and record it\n"
    "in switchboard.approvals.json, which governed mode enforces at every start. Nothing is started.\n"
    "In governed mode, a child without an allow list then shows its locked subtools, to take them into the list.\n"
    "--all does everything that governed mode needs: it sets the mode, approves all children and settings, starts and\n"
    "locks the new children, and takes their subtools into the allow lists.\n"
    "--settings does so for the settings that a developer may not decide alone, such as http, audit and limits.\n"
    "--list verifies every pinned file and setting; exit code 1 if anything is not as approved.",
    run=run,
    arguments=[
        positional("child", "name of a child", nargs="?", default=""),
        flag("--all", "approve all children and settings, lock new children, and allow their subtools"),
        flag(
            "--yes",
            "approve without asking; with --all, allow all subtools of children without an allow list",
        ),
        repeatable("--allow", "NAME", "allow this subtool of the child, or those that a glob matches"),
        flag("--settings", "approve the settings of the workspace and of all its suites"),
        flag("--list", "list all settings and children, and whether they are approved as they are"),
        flag("--revoke", "revoke the approval of the child, or with --settings of all settings"),
        flag("--ask", "also allow a model to turn sentences into its calls"),
        repeatable(
            "--allow-env", "NAME", "approve this variable, which affects what runs, with its current value"
        ),
        repeatable(
            "--data", "PATH", "do not pin this file or folder in the arguments: the child runs nothing there"
        ),
    ],
    epilog=(
        "examples:\n"
        "  switchboard approve --all\n"
        "  switchboard approve github\n"
        "  switchboard approve github --allow get_issue --allow 'list_*'\n"
        "  switchboard approve --settings\n"
        "  switchboard approve github --yes --json\n"
        "  switchboard approve files --data /srv/documents\n"
        "  switchboard approve --list\n"
        "  switchboard approve --revoke github"
    ),
)


def approve(spec: ChildSpec, suite: SectionStatus, guard: LaunchPolicy, invocation: Invocation) -> int:
    """Show what would be approved, including the settings of the child's suite, and record it if the person agrees."""
    args = invocation.args
    proposal = propose_child(spec, suite, guard, args.allow_env, ask=args.ask, data=args.data)
    if isinstance(proposal, Failure):
        raise SwitchboardError(proposal)
    approvals = proposal.add(guard.approvals, guard.platform)
    same = approvals == guard.approvals
    if not invocation.as_json:
        show_approval(proposal, invocation.console.out)
        show_section(suite, invocation.console.out)
        if others := approvals.elsewhere(spec.name, guard.platform):
            invocation.console.out.line(f"  Approved on other machines as before: {', '.join(others)}.")
    agreed = same or invocation.args.yes or _confirm(invocation)
    if agreed and not same:
        record_approval(proposal, guard)
    if invocation.as_json:
        answer = {"child": spec.name, "approved": agreed, "changed": not same, "approval": proposal.approval}
        invocation.console.out.json({**answer, "settings": suite.value, "file": guard.file})
    else:
        show_outcome(invocation.console.out, guard.file, agreed=agreed, same=same)
    return 0 if agreed else 1


def approve_workspace(workspace: Workspace, guard: LaunchPolicy, invocation: Invocation) -> int:
    """Approve all children and settings, lock the new children, and fill empty allow lists."""
    if invocation.args.child or invocation.args.settings or invocation.args.revoke or invocation.args.allow:
        raise usage_error(
            "approve: --all takes no CHILD, --settings, --revoke or --allow.", "Leave them out."
        )
    if invocation.as_json:
        raise usage_error(
            "approve: --all has no --json.", "`switchboard approve --list --json` has the result."
        )
    out = invocation.console.out
    opens = workspace.written_config.governance.mode == "open"
    if opens:
        out.line("governance.mode is `open`; it becomes `governed`.", "yellow")
    proposals, problems = _propose_all(workspace, guard, invocation)
    statuses = section_statuses(workspace, guard.approvals)
    require_no_secret(statuses, guard)
    _show_all(proposals, statuses, problems, out)
    same = not opens and not proposals and approve_settings(guard.approvals, statuses) == guard.approvals
    if not (same or invocation.args.yes or _confirm(invocation)):
        record_decision(workspace, "settings", "", "refused")
        show_outcome(out, guard.file, agreed=False, same=False)
        return 1
    if opens:
        write_settings(workspace, govern=True, allow={})
        workspace = _load(invocation)
    if not same:
        approvals = read_approvals(guard.file)
        for proposal in proposals:
            approvals = proposal.add(approvals, guard.platform)
        save_approvals(guard, approve_settings(approvals, section_statuses(workspace, approvals)))
        for proposal in proposals:
            record_decision(workspace, "approval", proposal.spec.name, "approved")
        record_decision(workspace, "settings", "", "approved")
    show_outcome(out, guard.file, agreed=True, same=same)
    return _lock_and_allow(workspace, invocation) or (1 if problems else 0)


def _show_all(
    proposals: list[ChildProposal],
    statuses: list[SectionStatus],
    problems: list[Failure],
    out: Screen,
) -> None:
    """Show what would be approved, and what cannot be."""
    for proposal in proposals:
        show_approval(proposal, out)
    for status in statuses:
        show_section(status, out)
    for problem in problems:
        out.prose(as_text(problem), style="red")


def _lock_and_allow(workspace: Workspace, invocation: Invocation) -> int:
    """Lock the children that are not locked yet, and fill empty allow lists."""

    def accepts(name: str, took_ms: int) -> bool:
        if invocation.args.yes:
            return True
        question = (
            f"The start of {name} took {took_ms / 1000:.1f} s. Allow {took_ms / 500:.1f} s for it? [y/N]"
        )
        return not invocation.as_json and prompt(question) in YES

    reports = lock_new_children(invocation, governed_workspace(invocation), accepts)
    for report in reports:
        show_report(report, max(len(report.child) for report in reports), invocation.console.out)
    code = allow_subtools(children_without_list(workspace), invocation)
    return 1 if any(report.status == "failed" for report in reports) else code


def _propose_all(
    workspace: Workspace, guard: LaunchPolicy, invocation: Invocation
) -> tuple[list[ChildProposal], list[Failure]]:
    """Return the proposals for all children that are not approved as they are, and the reasons against the others."""
    args = invocation.args
    by_name = {spec.name: spec for spec in workspace.children}
    proposals: list[ChildProposal] = []
    problems: list[Failure] = []
    for status in approval_statuses(workspace, guard, set()):
        if status.error is None:
            continue
        spec = by_name[status.child]
        suite = suite_status(workspace.written_config, spec.name, guard.approvals)
        proposal = propose_child(spec, suite, guard, args.allow_env, ask=args.ask, data=args.data)
        if isinstance(proposal, Failure):
            problems.append(proposal)
        elif proposal.approval != proposal.before:
            proposals.append(proposal)
    return proposals, problems


def _load(invocation: Invocation) -> Workspace:
    folder = project_folder(invocation.options)
    return load_workspace(folder, invocation.options.config, os.environ, originals=True)


def allow_subtools(children: list[str], invocation: Invocation) -> int:
    """Take subtools into the allow lists of these children, as the person chooses, and approve the lists.

    In open mode an empty list allows everything, so there is nothing to do.
    """
    workspace = _load(invocation)
    args, out = invocation.args, invocation.console.out
    if workspace.written_config.governance.mode == "open":
        return 0
    if args.allow:
        suites = workspace.written_config.suites
        present = {name: suites[name].expose.allow if name in suites else [] for name in children}
        allow = {name: list(dict.fromkeys([*present[name], *args.allow])) for name in children}
    else:
        missing = [name for name in children if name in children_without_list(workspace)]
        if not missing or invocation.as_json or (args.yes and not args.all):
            return 0
        allow = _ask_for_subtools(workspace, missing, invocation)
    allow = {name: names for name, names in allow.items() if names}
    if not allow:
        return 0
    path = write_settings(workspace, govern=False, allow=allow)
    workspace = _load(invocation)
    guard = make_launch_policy(workspace, os.environ)
    statuses = [suite_status(workspace.written_config, name, guard.approvals) for name in allow]
    save_approvals(guard, approve_settings(read_approvals(guard.file), statuses))
    for name in allow:
        record_decision(workspace, "settings", name, "approved")
    if not invocation.as_json:
        show_allowed(allow, path, out)
        if not is_enabled(os.environ):
            out.prose(
                f"No call is routed until {ENABLED} is `true` in the environment of Switchboard; "
                "`switchboard init` writes it into the entries of your hosts."
            )
    return 0


def _ask_for_subtools(
    workspace: Workspace, children: list[str], invocation: Invocation
) -> dict[str, list[str]]:
    """Show the locked subtools of each child and return the chosen ones."""
    out, locked = invocation.console.out, locked_children(workspace)
    allow: dict[str, list[str]] = {}
    for name in children:
        if name in locked:
            allow[name] = choose_subtools(name, locked[name], out, ask=not invocation.args.yes)
        elif not invocation.args.all:
            again = f"`switchboard lock {quote(name)}`, then `switchboard approve {quote(name)}`"
            out.prose(f"{nothing_allowed(name)} {again}, lists its subtools and allows them.", style="yellow")
    return allow


def show_outcome(out: Screen, file: str, *, agreed: bool, same: bool) -> None:
    """Say whether anything was written."""
    if same:
        out.line("Already approved; there is nothing to do.", "green")
    elif agreed:
        out.line(f"Approved in {one_line(file)}.", "green")
    else:
        out.line("Not approved; nothing was written.")


def approve_all(workspace: Workspace, guard: LaunchPolicy, invocation: Invocation) -> int:
    """Show the settings of every section and suite, and record them if the person agrees."""
    if invocation.args.child:
        raise usage_error(
            "approve: --settings takes no CHILD.", "`switchboard approve CHILD` includes its settings."
        )
    if workspace.written_config.governance.mode == "open":
        raise usage_error(
            f"{workspace.source or workspace.folder}: governance.mode is `open`, so settings need no approval.",
            "Set it to `governed` first.",
        )
    statuses = section_statuses(workspace, guard.approvals)
    require_no_secret(statuses, guard)
    same = approve_settings(guard.approvals, statuses) == guard.approvals
    out = invocation.console.out
    if not invocation.as_json:
        out.line(f"Settings  {one_line(workspace.source)}")
        for status in statuses:
            show_section(status, out)
    agreed = same or invocation.args.yes or _confirm(invocation)
    if agreed and not same:
        save_approvals(guard, approve_settings(read_approvals(guard.file), statuses))
    if invocation.as_json:
        names = {status.name: status.state for status in statuses}
        out.json({"approved": agreed, "changed": not same, "settings": names, "file": guard.file})
    else:
        show_outcome(out, guard.file, agreed=agreed, same=same)
    return 0 if agreed else 1


def revoke_settings(guard: LaunchPolicy, invocation: Invocation) -> int:
    """Delete the approvals of all settings."""
    changed = bool(guard.approvals.settings)
    if changed:
        save_approvals(guard, structs.replace(guard.approvals, settings={}))
    if invocation.as_json:
        invocation.console.out.json({"approved": False, "changed": changed, "file": guard.file})
    else:
        invocation.console.out.line(
            "No settings are approved any more." if changed else "No settings were approved."
        )
    return 0


def show_section(status: SectionStatus, out: Screen) -> None:
    """Show a section with every setting that is not at its default."""
    if status.state == "unset" or (status.state == "approved" and not status.value):
        return
    colour = "dim" if status.state == "unused" else "" if status.state == "approved" else "yellow"
    out.line(f"  {out.paint(one_line(status.name), 'bold')}  {out.paint(status.state, colour)}")
    if not status.value and status.state == "changed":
        out.line("    nothing is set any more", "yellow")
    for key, value in settings_in(status.value) if status.value else ():
        text = encode(value).decode()
        shown = f"{key} = {text}" if key else text
        out.line(f"    {one_line(shown)}")
        if not shown.isascii():
            out.line(f"    {one_line(shown.encode('ascii', 'backslashreplace').decode())}", "yellow")


def revoke(child: str, guard: LaunchPolicy, invocation: Invocation) -> int:
    """Delete an approval."""
    names = guard.approvals.names()
    if child not in names:
        message = f"Child '{child}' is not approved in {guard.file}.{did_you_mean(child, names)}"
        raise usage_error(message, "`switchboard approve --list` lists the approvals.")
    save_approvals(guard, guard.approvals.without(child))
    if invocation.as_json:
        invocation.console.out.json({"child": child, "approved": False, "changed": True, "file": guard.file})
    else:
        invocation.console.out.line(f"'{one_line(child)}' is no longer approved.")
        invocation.console.out.line("A Switchboard that was started with --no-reload must be restarted.")
    return 0


def show_list(workspace: Workspace, guard: LaunchPolicy, invocation: Invocation, wrapped: set[str]) -> int:
    """Show all settings, children and approvals; exit code 1 if anything is not as approved."""
    statuses = list(approval_statuses(workspace, guard, wrapped))
    sections = setting_statuses(workspace, guard)
    if invocation.as_json:
        settings = [{"section": status.name, "state": status.state} for status in sections]
        invocation.console.out.json({"file": guard.file, "settings": settings, "children": statuses})
    else:
        show_warnings(workspace.warnings, invocation.console)
        colours = {"approved": "green", "unused": "dim", "unset": "dim"}
        named = [
            (
                Styled(status.name, "bold"),
                Styled(status.state, colours.get(status.state, "red")),
                "" if status.allowed else "`switchboard approve --settings` shows and approves it",
            )
            for status in sections
        ]
        if named:
            invocation.console.out.table(named, header=("SETTINGS", "STATE", ""))
            invocation.console.out.line()
        rows = [
            (
                Styled(standing.child, "bold"),
                Styled(standing.state, colours.get(standing.state, "red")),
                standing.error.message if standing.error else standing.package,
            )
            for standing in statuses
        ]
        if rows:
            invocation.console.out.table(rows, header=("CHILD", "STATE", ""))
        else:
            show_no_children(workspace.folder, invocation.console.out)
    refused = any(standing.error is not None for standing in statuses)
    return 1 if refused or not all(status.allowed for status in sections) else 0


def setting_statuses(workspace: Workspace, guard: LaunchPolicy) -> list[SectionStatus]:
    """Return the sections that are set or approved; none in open mode, unless the approvals are of governed mode."""
    if workspace.written_config.governance.mode == "open" and "governance" not in guard.approvals.settings:
        return []
    return [status for status in section_statuses(workspace, guard.approvals) if status.state != "unset"]


def approval_statuses(
    workspace: Workspace, guard: LaunchPolicy, wrapped: set[str]
) -> Iterator[ApprovalStatus]:
    """Yield the children by name, then unused approvals. Reads every pinned file."""
    names = {spec.name for spec in workspace.children}
    for spec in sorted(workspace.children, key=lambda spec: spec.name):
        if spec.kind not in ("stdio", "http", "sse", "ws"):
            continue
        filled = expand(spec, guard.environ)
        outcome = (
            filled if isinstance(filled, Failure) else guard.check_variables(spec) or guard.approve(filled)
        )
        if spec.name in wrapped and not isinstance(outcome, Failure):
            outcome = guard.check_ask(spec) or outcome
        recorded = guard.approvals.find(spec.name, guard.platform)
        package = recorded.approval.package if recorded else ""
        if isinstance(outcome, Failure):
            state = "refused" if recorded else "not approved"
            yield ApprovalStatus(child=spec.name, state=state, package=package, error=outcome)
        else:
            yield ApprovalStatus(child=spec.name, state="approved", package=package)
    for name in sorted(guard.approvals.names() - names):
        yield ApprovalStatus(child=name, state="unused")


def find_child(workspace: Workspace, name: str, console: Console) -> ChildSpec:
    """Return the child to approve, as it is configured."""
    by_name = {spec.name: spec for spec in workspace.children}
    if name in by_name:
        return by_name[name]
    show_warnings(workspace.warnings, console)
    message = f"There is no child '{name}' in {workspace.folder}.{did_you_mean(name, by_name)}"
    raise usage_error(message, where_child_is(name) or "`switchboard approve --list` shows the children.")


def show_approval(proposal: ChildProposal, out: Screen) -> None:
    """Show the configured command, what it resolves to, and its permissions."""
    spec, approval = proposal.spec, proposal.approval
    out.line(f"Child {out.paint(one_line(spec.name), 'bold')}  {one_line(spec.source)}")
    rows = describe_approval(spec, approval)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        out.line(f"  {out.paint(name.ljust(width), 'dim')}  {one_line(value)}")
        if plain := ascii_form(value):
            out.line(f"  {' ' * width}  {one_line(plain)}", "yellow")
    for remark in approval_remarks(approval, proposal.before):
        out.line(f"  {one_line(remark)}", "bold red" if remark == UNKNOWN_CHANGE else "yellow")


def _confirm(invocation: Invocation) -> bool:
    require_person(invocation, "approve", "Look at what is shown, then add --yes.")
    return prompt("Approve this? [y/N]") in YES
