"""Determines which files to watch for configuration changes, including files that do not exist yet.

Reads none of the files; `system.file_watch` watches them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from switchboard_mcp.config.files.descriptions import FILE as DESCRIPTIONS
from switchboard_mcp.config.files.secrets_file import SECRETS_FILE
from switchboard_mcp.config.load import JSON_NAME, TOML_NAME, WORKSPACE_MARKERS
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.system import globs

ConfigVersion = tuple[tuple[int, int, int] | None, ...]
APPROVALS, LOCK = "switchboard.approvals.json", "switchboard.lock.json"


def watched_files(
    workspace: Workspace, config_file: str | None, environ: Mapping[str, str]
) -> dict[str, frozenset[str]]:
    """Return the folders to watch, each with the names or patterns that matter in it."""
    watched = {folder: set(names) for folder, names in _own_files(workspace, config_file, environ).items()}
    if workspace.user is not None and workspace.user.workspace is not None:
        for folder, names in _own_files(workspace.user.workspace, None, environ).items():
            watched.setdefault(folder, set()).update(names)
    elif workspace.user is not None:
        # It may be made, or corrected, while this workspace is served.
        user = workspace.user.folder
        for path in (user, *(os.path.join(user, mark) for mark in WORKSPACE_MARKERS)):
            if os.path.isdir(os.path.dirname(path)):
                _add(watched, path)
    return {folder: frozenset(names) for folder, names in watched.items()}


def config_version(folder: str, config_file: str | None) -> ConfigVersion:
    """Return time, size and inode of the files that decide what runs and who may do what; None if there is none."""
    own = (JSON_NAME, TOML_NAME) if config_file is None else (os.path.abspath(config_file),)
    return tuple(_version(os.path.join(folder, name)) for name in (*own, APPROVALS, LOCK))


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _own_files(
    workspace: Workspace, config_file: str | None, environ: Mapping[str, str]
) -> dict[str, set[str]]:
    watched: dict[str, set[str]] = {workspace.folder: {APPROVALS, LOCK, DESCRIPTIONS}}
    secrets = os.path.join(workspace.folder, SECRETS_FILE)
    if os.path.isdir(os.path.dirname(secrets)):
        _add(watched, secrets)
    if config_file is None:
        watched[workspace.folder].update((JSON_NAME, TOML_NAME))
    else:
        _add(watched, os.path.abspath(config_file))
    for pattern in workspace.config.discover_globs:
        home = environ.get("HOME", "") if pattern.startswith("~/") else ""
        for folder, part in globs.inspected_folders(
            workspace.folder, home + pattern[1:] if home else pattern
        ):
            watched.setdefault(folder, set()).add(part)
    for source in {workspace.source, *(spec.source for spec in workspace.children)}:
        if source and os.path.islink(source):
            _add(watched, os.path.realpath(source))
    return watched


def _add(watched: dict[str, set[str]], path: str) -> None:
    folder, name = os.path.split(path)
    watched.setdefault(folder, set()).add(name)
