"""The files that Switchboard reads to decide what runs. No child may change them, wherever they are.

They are found from the loaded workspace: its config under any name, the files and globs of its children, approvals and
lock, and the programs of all children. Links count, and so do the files behind them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from switchboard_mcp.config.files.descriptions import FILE as DESCRIPTIONS
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.variables import expand
from switchboard_mcp.config.watch_paths import APPROVALS, LOCK
from switchboard_mcp.config.workspace_folder import JSON_NAME, TOML_NAME
from switchboard_mcp.errors import Failure
from switchboard_mcp.sandbox.programs import find_program, is_system

OWN_FILES = (JSON_NAME, TOML_NAME, APPROVALS, LOCK, DESCRIPTIONS)


def decisive_files(workspace: Workspace, environ: Mapping[str, str]) -> list[str]:
    """Return the files and folders that decide what a workspace runs; those that exist."""
    children = [*workspace.children, *workspace.disabled]
    found = [os.path.join(workspace.folder, name) for name in OWN_FILES]
    found += [workspace.source, *(spec.source for spec in children)]
    found += [_fixed_part(workspace.folder, pattern) for pattern in workspace.config.discover_globs]
    for spec in children:
        if spec.kind == "stdio":
            expanded = expand(spec, environ)
            launch = spec if isinstance(expanded, Failure) else expanded
            found += find_program([launch.command, *launch.args], {**environ, **launch.env}, launch.cwd).own
    return [path for path in dict.fromkeys(found) if path and not is_system(path) and os.path.lexists(path)]


def _fixed_part(folder: str, pattern: str) -> str:
    """Return the folder in which a glob finds files; empty if it is the workspace itself, or a file."""
    parts = os.path.join(folder, pattern).split("/")
    fixed = next(
        (index for index, part in enumerate(parts) if any(char in part for char in "*?[")), len(parts)
    )
    path = os.path.normpath("/".join(parts[:fixed]))
    return path if path.startswith(folder.rstrip("/") + "/") else ""
