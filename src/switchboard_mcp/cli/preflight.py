"""Checks a child before it is started: its variables, folder and program.

Failures read like those of a failed start, so one fault has one text wherever it appears.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping

from switchboard_mcp.children.launch import spawn_failure
from switchboard_mcp.children.remote_transport import find_config_error
from switchboard_mcp.config.models import ChildSpec, Workspace
from switchboard_mcp.config.variables import expand
from switchboard_mcp.errors import Failure
from switchboard_mcp.policy.governance import make_launch_policy
from switchboard_mcp.transport.process.launcher import SpawnError


def check_all(workspace: Workspace, environ: Mapping[str, str]) -> dict[str, str | Failure]:
    """Check every child, by name; in governed mode, check its approval too, reading every pinned file."""
    if workspace.config.governance.mode == "open":
        return {spec.name: check(spec, environ) for spec in workspace.children}
    guard = make_launch_policy(workspace, environ)
    checks: dict[str, str | Failure] = {}
    for spec in workspace.children:
        filled = expand(spec, environ)
        if isinstance(filled, Failure) or filled.kind == "builtin":
            checks[spec.name] = filled if isinstance(filled, Failure) else ""
            continue
        approved = guard.approve(filled)
        checks[spec.name] = approved if isinstance(approved, Failure) else (approved.argv or [""])[0]
    return checks


def check(spec: ChildSpec, environ: Mapping[str, str]) -> str | Failure:
    """Return the path of the program a child runs, if it is local, or the first reason it cannot run."""
    filled = expand(spec, environ)
    if isinstance(filled, Failure):
        return filled
    if filled.kind == "builtin":
        return ""
    if filled.kind != "stdio":
        return find_config_error(filled) or ""
    if not os.path.isdir(filled.cwd):
        return spawn_failure(filled, SpawnError(errno.ENOENT, "chdir"))
    program = find_program(filled, environ)
    return spawn_failure(filled, SpawnError(program, "exec")) if isinstance(program, int) else program


def find_program(spec: ChildSpec, environ: Mapping[str, str]) -> str | int:
    """Return the path of the program, or the errno its start would fail with. Searches as the start will."""
    if os.path.dirname(spec.command):
        path: str | None = os.path.join(spec.cwd, spec.command)
        folders = None
    else:
        path = spec.command
        folders = spec.env.get("PATH", environ.get("PATH", os.defpath))
    assert path is not None
    program = shutil.which(path, path=folders)
    if program:
        return program
    return errno.EACCES if shutil.which(path, mode=os.F_OK, path=folders) else errno.ENOENT
