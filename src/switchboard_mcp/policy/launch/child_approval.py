"""The approval of one child as a decision of a person: what they are shown, and what is written if they agree.

Used by `switchboard approve` and by the dashboard. `approval` creates the approval, and `config.files.approvals` reads
and writes the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from hashlib import sha256
from shlex import quote

from msgspec import Struct, to_builtins
from msgspec.json import encode

from switchboard_mcp.config.files.approvals import Approval, Approvals, read_approvals, write_approvals
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.errors import Failure, refused
from switchboard_mcp.policy.approved_settings import (
    SectionStatus,
    approve_settings,
    find_written_secret,
    settings_in,
)
from switchboard_mcp.policy.launch.approval import propose
from switchboard_mcp.policy.launch.file_inspector import NOTHING_THERE
from switchboard_mcp.policy.launch.rules import LaunchPolicy
from switchboard_mcp.redaction.redactor import Redactor

# Enough of a checksum to compare by eye; the file has all of it.
SHOWN_DIGITS = 16
MARK_DIGITS = 32
UNKNOWN_CHANGE = "The package version is the same: make sure you know who changed its files."


class ChildProposal(Struct, frozen=True):
    """An approval that a person may give: what the child runs now, the settings of its suite, and the last approval."""

    spec: ChildSpec
    suite: SectionStatus
    approval: Approval
    before: Approval | None

    @property
    def mark(self) -> str:
        """Return an identifier of what is approved: only what a person has seen can be approved."""
        return sha256(encode((self.spec.name, self.approval, self.suite.sha256))).hexdigest()[:MARK_DIGITS]

    def add(self, approvals: Approvals, platform: str) -> Approvals:
        """Return the approvals with this one."""
        return approve_settings(approvals.adding(self.spec.name, platform, self.approval), [self.suite])


def propose_child(
    spec: ChildSpec,
    suite: SectionStatus,
    policy: LaunchPolicy,
    allow_env: Iterable[str] = (),
    *,
    ask: bool = False,
    data: Iterable[str] = (),
) -> ChildProposal | Failure:
    """Return the approval of a child, as it is written in the config, for a person to look at."""
    require_no_secret([suite], policy)
    approval = propose(spec, policy, frozenset(allow_env), ask=ask, data=frozenset(data))
    if isinstance(approval, Failure):
        return approval
    before = policy.approvals.find(spec.name, policy.platform)
    return ChildProposal(spec, suite, approval, before.approval if before else None)


def record_approval(proposal: ChildProposal, policy: LaunchPolicy) -> None:
    """Write the approval. The file is read again: another child may have been approved in the meantime."""
    save_approvals(policy, proposal.add(read_approvals(policy.file), policy.platform))


def save_approvals(policy: LaunchPolicy, approvals: Approvals) -> None:
    """Write the approvals of a workspace. Raises `config_invalid` if that is not possible."""
    try:
        write_approvals(policy.file, approvals)
    except OSError as problem:
        message = f"{policy.file}: {problem.strerror}."
        raise refused("config_invalid", message, hint="Make it writable, then try again.") from None


def require_no_secret(statuses: list[SectionStatus], policy: LaunchPolicy) -> None:
    """Raise if a setting is a secret that is written out."""
    if key := find_written_secret(statuses):
        message = f"{policy.config}: {key}: is a secret that is written out, and approvals are kept in git."
        raise refused("config_invalid", message, hint="Write it as ${VAR}, and set the variable.")


def describe_approval(spec: ChildSpec, approval: Approval) -> list[tuple[str, str]]:
    """Return what a person approves, by label: the command, what it resolves to, and its permissions.

    Nothing is shortened but checksums: what is cut off is not approved by anybody.
    """
    mask = Redactor().redact_text
    rows: list[tuple[str, str]] = []
    if approval.kind == "stdio":
        rows.append(("configured", mask(_command_line((spec.command, *spec.args)))))
        rest = approval.args[approval.replaces :]
        rows.append(("really runs", mask(_command_line((*approval.launch, *rest)))))
        if approval.package:
            rows.append(("package", approval.package))
        for pin in approval.files:
            led = f" → {pin.real}" if pin.real else ""
            if pin.names and pin.sha256 == NOTHING_THERE:
                rows.append(("must lack", f"{', '.join(pin.names)}  in {pin.path}"))
                continue
            only = f"  (only {', '.join(pin.names)})" if pin.names else ""
            only = "  (all packages in it)" if pin.installed else only
            rows.append(("pinned", f"{pin.sha256[:SHOWN_DIGITS]}…  {pin.path}{led}{only}"))
        rows += [("not pinned", f"{path}  (data)") for path in approval.data]
        rows += [("not pinned", reason) for reason in approval.unpinned]
        rows.append(("works in", spec.cwd))
        if approval.sandbox is not None:
            rows += [
                ("sandbox", f"{key} = {encode(value).decode()}")
                for key, value in settings_in(to_builtins(approval.sandbox))
            ]
    else:
        rows.append(("connects to", approval.origin))
    rows += [("may set", name) for name in approval.env]
    rows += [("may read", name) for name in approval.variables or ()]
    rows += [("must set", f"{name}={value}") for name, value in approval.env_values.items()]
    if approval.ask is not None:
        rows.append(("planned by", " or ".join(approval.ask.models)))
        rows += [("unasked", name) for name in approval.ask.trust]
    return rows


def ascii_form(value: str) -> str:
    """Return a value with escapes for all that is not ASCII, since it may look like something else; else nothing."""
    value = value.replace("…  ", "").replace(" → ", " ")  # without our own marks
    return "" if value.isascii() else value.encode("ascii", "backslashreplace").decode()


def approval_remarks(approval: Approval, before: Approval | None) -> list[str]:
    """Return what a person should know before they approve: paths that will change, and what has changed."""
    remarks: list[str] = []
    if path := _pinned_argument(approval):
        remarks.append(f"The child will not start once {path} has changed.")
        remarks.append("If it runs nothing there, approve with --data and that path.")
    if before is not None and before != approval:
        fields = (name for name in Approval.__struct_fields__)
        changed = [name for name in fields if getattr(before, name) != getattr(approval, name)]
        remarks.append(f"It was approved before; changed since: {', '.join(changed)}.")
        if approval.package and changed == ["files"] and before.files[1:] != approval.files[1:]:
            remarks.append(UNKNOWN_CHANGE)
    return remarks


def _pinned_argument(approval: Approval) -> str:
    """Return the first pinned path that an argument seems to name and that is no program, or an empty string."""
    words = approval.args[approval.replaces :]
    for pin in approval.files:
        folder, name = os.path.split(pin.path)
        named = (
            any(name in word for word in words)
            and pin.path not in approval.launch
            and not (pin.names or pin.installed)
        )
        if named and os.path.basename(folder) not in ("bin", "sbin"):
            return pin.path
    return ""


def _command_line(words: Iterable[str]) -> str:
    """Return a command with quotes that show where each argument ends."""
    return " ".join(quote(word) if not word or re.search(r"[\s'\"\\]", word) else word for word in words)
