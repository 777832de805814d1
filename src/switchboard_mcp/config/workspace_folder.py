"""Finds the workspace of a folder. Imports next to nothing, since it runs before anything else is known."""

from __future__ import annotations

import os
from collections.abc import Mapping

from switchboard_mcp.system.user_folders import user_workspace

JSON_NAME = "switchboard.config.json"
TOML_NAME = "switchboard.config.toml"
# A folder that contains one of these is a workspace.
WORKSPACE_MARKERS = (JSON_NAME, TOML_NAME, ".switchboard", "mcps")


def nearest_workspace(here: str, home: str = "") -> str:
    """Return the workspace of a folder: itself, or the nearest one above it. Empty if there is none.

    The search ends at the root of a git repository, or before the home folder, and ignores files of other owners: a
    user who can write to a parent folder, as anyone can in /tmp, must not decide what runs here.
    """
    own, folder = _owner(here), here
    while True:
        repository = _owner(os.path.join(folder, ".git"))
        owners = {_owner(os.path.join(folder, mark)) for mark in WORKSPACE_MARKERS} - {None}
        if owners:
            return folder if owners <= {own} and repository in (None, own) else ""
        above = os.path.dirname(folder)
        if repository is not None or above in (folder, home) or _owner(above) != own:
            return ""
        folder = above


def is_workspace(folder: str) -> bool:
    """Return True if a folder has the files of a workspace."""
    return bool(folder) and any(os.path.lexists(os.path.join(folder, mark)) for mark in WORKSPACE_MARKERS)


def served_workspace(here: str, environ: Mapping[str, str]) -> str:
    """Return the workspace that is served in a folder: the nearest one, else that of the user, else the folder."""
    nearest, user = nearest_workspace(here, environ.get("HOME", "")), user_workspace(environ)
    return nearest or (user if is_workspace(user) else here)


def _owner(path: str) -> int | None:
    """Return the owner of a path without following links, or None if it cannot be read."""
    try:
        return os.lstat(path).st_uid
    except OSError:
        return None
