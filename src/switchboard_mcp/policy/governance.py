"""What governed mode makes of a workspace: which children exist, and whether anything is routed at all.

Owns the decision; `launch` owns the rules for one child. In open mode this module is not loaded. A refusal is made here
once and handed to whoever asks, so that a host, the command line and a search read the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from msgspec import Struct, structs

from switchboard_mcp.config.approvals import approvals_path, current_platform, path_variables, read_approvals
from switchboard_mcp.config.models import ChildSpec, ConfigWarning, Workspace
from switchboard_mcp.config.variables import expand, missing_variables
from switchboard_mcp.errors import Failure, failure, refused
from switchboard_mcp.policy.launch.file_inspector import FileInspector
from switchboard_mcp.policy.launch.rules import LaunchPolicy
from switchboard_mcp.policy.launch.text_rules import HANDED_ON, NEVER_SET, STEERING

ENABLED = "SWITCHBOARD_MCP_ENABLED"
LOCK = "switchboard.lock.json"


class GovernedWorkspace(Struct, frozen=True):
    """A governed workspace: `workspace` has only the children that exist; `disabled` is why nothing is routed yet."""

    workspace: Workspace
    guard: LaunchPolicy
    disabled: Failure | None


def take_posture(workspace: Workspace, environ: Mapping[str, str]) -> GovernedWorkspace:
    """Judge every child. Nothing is started, and no program is read. Taking it twice changes nothing."""
    guard = make_guard(workspace, environ)
    children: list[ChildSpec] = []
    absent = dict(workspace.absent)
    warnings = list(workspace.warnings)
    look = FileInspector()
    for spec in workspace.children:
        problem = None if workspace.judged else judge_child(spec, guard, look)
        if problem is None:
            children.append(spec)
        else:
            absent[spec.name] = problem
            warnings.append(_warning(spec, problem))
    governed = structs.replace(workspace, children=children, warnings=warnings, absent=absent, judged=True)
    return GovernedWorkspace(governed, guard, None if is_enabled(environ) else disabled(workspace))


def _warning(spec: ChildSpec, problem: Failure) -> ConfigWarning:
    # It begins with the file already.
    told = problem.message.replace(f" ({spec.source}: {spec.key})", "").replace(f"{spec.source}: ", "")
    return ConfigWarning(spec.source, spec.key, f"{told} {problem.hint}")


def is_enabled(environ: Mapping[str, str]) -> bool:
    """Whether the switch is on; it is off unless it says so."""
    return environ.get(ENABLED, "").strip().lower() == "true"


def disabled(workspace: Workspace) -> Failure:
    """What everybody is told while the switch is off."""
    where = f"{workspace.source}: governance.mode" if workspace.source else "governance.mode"
    return failure(
        "governance_disabled", f"Switchboard is governed here ({where}) and {ENABLED} is not `true`."
    )


def make_guard(workspace: Workspace, environ: Mapping[str, str]) -> LaunchPolicy:
    """The judge of a workspace. Raises `config_invalid` where settings or approvals cannot be used."""
    _check_settings(workspace)
    file = approvals_path(workspace.folder)
    _check_owners(workspace, file)
    return LaunchPolicy(
        read_approvals(file),
        file,
        workspace.config.governance,
        workspace.folder,
        path_variables(workspace.folder, environ),
        environ,
        workspace.config.ask,
        workspace.source,
        current_platform(),
    )


def _check_owners(workspace: Workspace, approvals: str) -> None:
    """What decides what runs is written by nobody else, as what runs is."""
    look = FileInspector()
    for path in (workspace.source, approvals, os.path.join(workspace.folder, LOCK)):
        problem = look.flaw(path) if path and os.path.lexists(path) else ""
        if problem:
            told = f"{path}: {problem}; governed mode relies on it."
            hint = "Let nobody else write it or the folders it is in: chown, chmod go-w."
            raise refused("config_invalid", told, hint=hint)


def judge_child(spec: ChildSpec, guard: LaunchPolicy, look: FileInspector | None = None) -> Failure | None:
    """Why a child does not exist, its entry being as it is written."""
    if spec.kind not in ("stdio", "http", "sse", "ws"):
        return None  # part of Switchboard itself
    # What is not set yet is no reason not to exist: the child says at its start what is missing.
    unset = {gap.variable: "unset" for gap in missing_variables(spec, guard.environ)}
    filled = expand(spec, {**guard.environ, **unset} if unset else guard.environ)
    if isinstance(filled, Failure):
        return filled
    return guard.judge(filled, look) or guard.judge_written(spec)


def _check_settings(workspace: Workspace) -> None:
    for index, name in enumerate(workspace.config.governance.env):
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            why = "is no name of a variable"
        elif NEVER_SET.fullmatch(name) or (STEERING.fullmatch(name) and name not in HANDED_ON):
            why = f"`{name}` changes what runs; a child that needs it sets it in its own `env`, with an approval"
        else:
            continue
        raise refused("config_invalid", f"{workspace.source}: governance.env[{index}]: {why}.")
