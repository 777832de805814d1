"""Applies governed mode to a workspace: which children exist, and whether anything is routed at all.

The rules for one child are in `launch`, those for settings in `approved_settings`. In open mode without approvals this
module is not loaded. Each refusal is created here once, so
hosts, the command line and searches show the same text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial

from msgspec import Struct, structs

from switchboard_mcp.config.files.approvals import (
    approvals_path,
    current_platform,
    path_variables,
    read_approvals,
)
from switchboard_mcp.config.models import ChildSpec, Config, ConfigWarning, Workspace, sandbox_settings_of
from switchboard_mcp.config.variables import expand, keyring_variables, missing_variables
from switchboard_mcp.errors import Failure, SwitchboardError, failure, refused
from switchboard_mcp.policy.approved_settings import (
    find_left_governed_mode,
    find_unapproved,
    unapproved_suites,
)
from switchboard_mcp.policy.launch.file_inspector import FileInspector
from switchboard_mcp.policy.launch.rules import LaunchPolicy
from switchboard_mcp.policy.launch.text_rules import INHERITABLE, NEVER_SET, is_steering

ENABLED = "SWITCHBOARD_MCP_ENABLED"
LOCK = "switchboard.lock.json"


class GovernedWorkspace(Struct, frozen=True):
    """A workspace with only the approved children. `disabled` is the reason if nothing is routed."""

    workspace: Workspace
    launch_policy: LaunchPolicy
    disabled: Failure | None


def govern(workspace: Workspace, environ: Mapping[str, str]) -> GovernedWorkspace:
    """Check settings and children, without starting or reading any program. Idempotent.

    Raises `settings_not_approved` if a section of the config is not as approved.
    """
    policy = make_launch_policy(workspace, environ)
    if problem := find_unapproved(workspace, policy.approvals, policy.file):
        raise SwitchboardError(problem)
    children: list[ChildSpec] = []
    absent = dict(workspace.absent)
    warnings = list(workspace.warnings)
    inspector = FileInspector()
    for spec in workspace.children:
        problem = None if workspace.judged else check_child(spec, policy, inspector)
        if problem is None:
            children.append(spec)
        else:
            absent[spec.name] = problem
            warnings.append(_warning(spec, problem))
    suites = {
        name: suite for name, suite in workspace.config.suites.items() if name not in policy.unapproved_suites
    }
    governed = structs.replace(
        workspace,
        config=structs.replace(workspace.config, suites=suites),
        children=children,
        warnings=warnings,
        absent=absent,
        judged=True,
    )
    return GovernedWorkspace(
        governed, policy, None if is_routed(workspace.config, environ) else disabled(workspace)
    )


def require_open(workspace: Workspace) -> None:
    """Raise `settings_not_approved` if the config leaves governed mode although it is approved."""
    file = approvals_path(workspace.folder)
    if problem := find_left_governed_mode(workspace, read_approvals(file), file):
        raise SwitchboardError(problem)


def _warning(spec: ChildSpec, problem: Failure) -> ConfigWarning:
    # The warning begins with the file already.
    message = problem.message.replace(f" ({spec.source}: {spec.key})", "").replace(f"{spec.source}: ", "")
    return ConfigWarning(spec.source, spec.key, f"{message} {problem.hint}")


def is_enabled(environ: Mapping[str, str]) -> bool:
    """Return True if the environment enables governed mode. It is off by default."""
    return environ.get(ENABLED, "").strip().lower() == "true"


def is_routed(config: Config, environ: Mapping[str, str]) -> bool:
    """Return True if calls are routed: in governed mode only if the environment enables it."""
    return config.governance.mode == "open" or is_enabled(environ)


def disabled(workspace: Workspace) -> Failure:
    """Return the failure of every request while governed mode is not enabled."""
    where = f"{workspace.source}: governance.mode" if workspace.source else "governance.mode"
    return failure(
        "governance_disabled", f"Switchboard is in governed mode ({where}) and {ENABLED} is not `true`."
    )


def make_launch_policy(workspace: Workspace, environ: Mapping[str, str]) -> LaunchPolicy:
    """Return the launch policy of a workspace. Raises `config_invalid` for unusable settings or approvals."""
    _check_settings(workspace)
    file = approvals_path(workspace.folder)
    _check_owners(workspace, file)
    approvals = read_approvals(file)
    return LaunchPolicy(
        approvals,
        file,
        workspace.config.governance,
        workspace.folder,
        path_variables(workspace.folder, environ),
        environ,
        workspace.config.ask,
        workspace.source,
        current_platform(),
        unapproved_suites(workspace, approvals, file),
        partial(sandbox_settings_of, config=workspace.written_config, governed=True),
    )


def _check_owners(workspace: Workspace, approvals: str) -> None:
    """Refuse policy files that other users can write, as for the programs themselves."""
    inspector = FileInspector()
    for path in (workspace.source, approvals, os.path.join(workspace.folder, LOCK)):
        problem = inspector.find_flaw(path) if path and os.path.lexists(path) else ""
        if problem:
            message = f"{path}: {problem}; governed mode relies on it."
            hint = "Make it and its parent folders writable by you alone: chown, chmod go-w."
            raise refused("config_invalid", message, hint=hint)


def check_child(
    spec: ChildSpec, policy: LaunchPolicy, inspector: FileInspector | None = None
) -> Failure | None:
    """Return the failure if a child, as written in the config, may not run, or None."""
    if spec.kind not in ("stdio", "http", "sse", "ws"):
        return policy.unapproved_suites.get(spec.name)  # part of Switchboard itself
    # A variable that is not set yet does not hide the child: its start reports what is missing.
    unset = {gap.variable: "unset" for gap in missing_variables(spec, policy.environ)}
    # The keyring is read when the child starts; its start checks the values.
    unset |= dict.fromkeys(keyring_variables(spec, policy.environ), "unset")
    filled = expand(spec, {**policy.environ, **unset} if unset else policy.environ)
    if isinstance(filled, Failure):
        return filled
    return policy.check(filled, inspector) or policy.check_variables(spec)


def _check_settings(workspace: Workspace) -> None:
    config = workspace.written_config
    if config.audit.enabled is False and config.governance.mode == "governed":
        message = f"{workspace.source}: audit.enabled: is `false`; governed mode always records."
        raise refused("config_invalid", message, hint="Remove this setting.")
    for index, name in enumerate(config.governance.env):
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            why = "is not a valid variable name"
        elif NEVER_SET.fullmatch(name) or (is_steering(name) and name not in INHERITABLE):
            why = f"`{name}` changes what runs; a child that needs it sets it in its own `env`, with an approval"
        else:
            continue
        raise refused("config_invalid", f"{workspace.source}: governance.env[{index}]: {why}.")
