"""`switchboard approve`: show what a child really runs, and record that it may.

Handles the dialog with the person who approves. `policy.launch.packages` resolves what runs, `policy.launch.approval`
builds the record. Nothing is started, downloaded or installed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from shlex import quote

from msgspec import Struct

from switchboard_mcp.app import workspace_folder
from switchboard_mcp.cli.console import Console, Screen, Styled, one_line
from switchboard_mcp.cli.invocation import YES, Invocation, prompt, require_person, show_warnings, usage_error
from switchboard_mcp.cli.parser import Command, flag, positional, repeatable
from switchboard_mcp.config.approvals import Approval, Approvals, read_approvals, write_approvals
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import ChildSpec, Workspace
from switchboard_mcp.config.variables import expand
from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.features import record_decision
from switchboard_mcp.policy.governance import make_launch_policy
from switchboard_mcp.policy.launch.approval import propose
from switchboard_mcp.policy.launch.rules import LaunchPolicy
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.suites.fuzzy import did_you_mean

# Enough of a checksum to compare by eye; the file has all of it.
SHOWN_DIGITS = 16


class ApprovalStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One child: allowed to run as it is, or the reason why not."""

    child: str
    state: str
    package: str = ""
    error: Failure | None = None


def run(invocation: Invocation) -> int:
    """List, revoke or approve, as the options say."""
    folder = workspace_folder(invocation.options)
    workspace = load_workspace(folder, invocation.options.config, os.environ, originals=True)
    guard = make_launch_policy(workspace, os.environ)
    args = invocation.args
    if args.list:
        in_front = load_workspace(folder, invocation.options.config, os.environ).children
        return show_list(workspace, guard, invocation, {spec.name for spec in in_front if spec.wraps})
    if not args.child:
        raise usage_error("approve: CHILD missing.", "Name a child, or use --list.")
    if args.revoke:
        code = revoke(args.child, guard, invocation)
        record_decision(workspace, "approval", args.child, "revoked")
        return code
    code = approve(find_child(workspace, args.child, invocation.console), guard, invocation)
    record_decision(workspace, "approval", args.child, "refused" if code else "approved")
    return code


COMMAND = Command(
    "approve CHILD [OPTIONS]",
    "Show what a child really runs (the script behind `npx -y pkg`, its interpreter), with checksums, and record it\n"
    "in switchboard.approvals.json, which governed mode enforces at every start. Nothing is started.\n"
    "--list verifies every pinned file; exit code 1 if a configured child may not run as it is.",
    run=run,
    arguments=[
        positional("child", "name of a child", nargs="?", default=""),
        flag("--yes", "approve without asking"),
        flag("--list", "list every child and whether it may run as it is"),
        flag("--revoke", "revoke the approval of the child"),
        flag("--ask", "also allow a model to turn sentences into its calls"),
        repeatable(
            "--allow-env", "NAME", "approve this variable, which affects what runs, with its current value"
        ),
    ],
    epilog=(
        "examples:\n"
        "  switchboard approve github\n"
        "  switchboard approve github --yes --json\n"
        "  switchboard approve --list\n"
        "  switchboard approve --revoke github"
    ),
)


def approve(spec: ChildSpec, guard: LaunchPolicy, invocation: Invocation) -> int:
    """Show what would be approved, and record it if the person agrees."""
    approval = propose(spec, guard, frozenset(invocation.args.allow_env), ask=invocation.args.ask)
    if isinstance(approval, Failure):
        raise SwitchboardError(approval)
    before = guard.approvals.find(spec.name, guard.platform)
    approvals = guard.approvals.adding(spec.name, guard.platform, approval)
    same = approvals == guard.approvals
    if not invocation.as_json:
        show_approval(spec, approval, before.approval if before else None, invocation.console.out)
        if others := approvals.elsewhere(spec.name, guard.platform):
            invocation.console.out.line(f"  Approved on other machines as before: {', '.join(others)}.")
    agreed = same or invocation.args.yes or _confirm(invocation)
    if agreed and not same:
        # Read the file again: another child may have been approved while this one was inspected.
        _write(guard, read_approvals(guard.file).adding(spec.name, guard.platform, approval))
    if invocation.as_json:
        answer = {"child": spec.name, "approved": agreed, "changed": not same, "approval": approval}
        invocation.console.out.json({**answer, "file": guard.file})
    elif same:
        invocation.console.out.line("Already approved; there is nothing to do.", "green")
    elif agreed:
        invocation.console.out.line(f"Approved in {one_line(guard.file)}.", "green")
    else:
        invocation.console.out.line("Not approved; nothing was written.")
    return 0 if agreed else 1


def revoke(child: str, guard: LaunchPolicy, invocation: Invocation) -> int:
    """Delete an approval."""
    names = guard.approvals.names()
    if child not in names:
        message = f"Child '{child}' is not approved in {guard.file}.{did_you_mean(child, names)}"
        raise usage_error(message, "`switchboard approve --list` lists the approvals.")
    _write(guard, guard.approvals.without(child))
    if invocation.as_json:
        invocation.console.out.json({"child": child, "approved": False, "changed": True, "file": guard.file})
    else:
        invocation.console.out.line(f"'{one_line(child)}' is no longer approved.")
        invocation.console.out.line("A Switchboard that was started with --no-reload must be restarted.")
    return 0


def show_list(workspace: Workspace, guard: LaunchPolicy, invocation: Invocation, wrapped: set[str]) -> int:
    """Show every child and every approval; exit code 1 if a configured child may not run as it is."""
    statuses = list(approval_statuses(workspace, guard, wrapped))
    if invocation.as_json:
        invocation.console.out.json({"file": guard.file, "children": statuses})
    else:
        show_warnings(workspace.warnings, invocation.console)
        colours = {"approved": "green", "unused": "dim"}
        rows = [
            (
                Styled(standing.child, "bold"),
                Styled(standing.state, colours.get(standing.state, "red")),
                standing.error.message if standing.error else standing.package,
            )
            for standing in statuses
        ]
        invocation.console.out.table(rows, header=("CHILD", "STATE", ""))
    return 1 if any(standing.error is not None for standing in statuses) else 0


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
    raise usage_error(message, "`switchboard approve --list` shows the children.")


def show_approval(spec: ChildSpec, approval: Approval, before: Approval | None, out: Screen) -> None:
    """Show the configured command, what it resolves to, and its permissions."""
    mask = Redactor().redact_text
    out.line(f"Child {out.paint(one_line(spec.name), 'bold')}  {one_line(spec.source)}")
    rows: list[tuple[str, str]] = []
    if approval.kind == "stdio":
        rows.append(("configured", mask(_command_line((spec.command, *spec.args)))))
        rest = approval.args[approval.replaces :]
        rows.append(("really runs", mask(_command_line((*approval.launch, *rest)))))
        if approval.package:
            rows.append(("package", approval.package))
        for pin in approval.files:
            led = f" → {pin.real}" if pin.real else ""
            rows.append(("pinned", f"{pin.sha256[:SHOWN_DIGITS]}…  {pin.path}{led}"))
        rows.append(("works in", spec.cwd))
    else:
        rows.append(("connects to", approval.origin))
    rows += [("may set", name) for name in approval.env]
    rows += [("may read", name) for name in approval.variables or ()]
    rows += [("must set", f"{name}={value}") for name, value in approval.env_values.items()]
    if approval.ask is not None:
        rows.append(("planned by", " or ".join(approval.ask.models)))
        rows += [("unasked", name) for name in approval.ask.trust]
    width = max(len(name) for name, _ in rows)
    for (
        name,
        value,
    ) in rows:  # all of each: what is cut off, or looks like something else, is not approved by anybody
        out.line(f"  {out.paint(name.ljust(width), 'dim')}  {one_line(value)}")
        plain_value = value.replace("…  ", "").replace(" → ", " ")  # without our own marks
        if not plain_value.isascii():
            plain = plain_value.encode("ascii", "backslashreplace").decode()
            out.line(f"  {' ' * width}  {one_line(plain)}", "yellow")
    if before is not None and before != approval:
        fields = (name for name in Approval.__struct_fields__)
        changed = [name for name in fields if getattr(before, name) != getattr(approval, name)]
        out.line(f"  It was approved before; changed since: {', '.join(changed)}.", "yellow")
        if approval.package and changed == ["files"] and before.files[1:] != approval.files[1:]:
            out.line(
                "  The package version is the same: make sure you know who changed its files.", "bold red"
            )


def _command_line(words: Iterable[str]) -> str:
    """Return a command with quotes that show where each argument ends."""
    return " ".join(quote(word) if not word or re.search(r"[\s'\"\\]", word) else word for word in words)


def _confirm(invocation: Invocation) -> bool:
    require_person(invocation, "approve", "Look at what is shown, then add --yes.")
    return prompt("Approve this? [y/N]") in YES


def _write(guard: LaunchPolicy, approvals: Approvals) -> None:
    try:
        write_approvals(guard.file, approvals)
    except OSError as problem:
        message = f"{guard.file}: {problem.strerror}."
        raise refused("config_invalid", message, hint="Make it writable, then try again.") from None
