"""Finds the workspace of a folder. Imports next to nothing, since it runs before anything else is known."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from switchboard_mcp.system.user_folders import user_workspace

JSON_NAME = "switchboard.config.json"
TOML_NAME = "switchboard.config.toml"
# A folder that contains one of these is a workspace.
WORKSPACE_MARKERS = (JSON_NAME, TOML_NAME, ".switchboard", "mcps")


# As both forms of the config write it. The config is not parsed here.
GOVERNED = re.compile(rb"""(?m)(["']mode["']\s*:|^\s*(governance\.)?mode\s*=)\s*["']governed["']""")
MAX_CONFIG_BYTES = 4_000_000


def nearest_workspace(here: str, home: str = "") -> str:
    """Return the workspace of a folder: itself, or the nearest one above it. Empty if there is none.

    The search ends at the root of a git repository, or before the home folder, and ignores files of other owners: a
    user who can write to a parent folder, as anyone can in /tmp, must not decide what runs here. A governed workspace
    above it, within other folders of the same owner, is the workspace of all that is in it.
    """
    nearest = _nearest(here, home)
    return _governed_above(nearest or here, home) or nearest


def _governed_above(folder: str, home: str) -> str:
    """Return the outermost governed workspace above a folder, or an empty string."""
    own, found = _owner(folder), ""
    while True:
        above = os.path.dirname(folder)
        if above in (folder, home) or _owner(above) != own:
            return found
        folder = above
        if any(_is_governed(os.path.join(folder, name), own) for name in (JSON_NAME, TOML_NAME)):
            found = folder


def _is_governed(path: str, owner: int | None) -> bool:
    if _owner(path) != owner:
        return False
    try:
        with open(path, "rb") as file:
            return GOVERNED.search(file.read(MAX_CONFIG_BYTES)) is not None
    except OSError:
        return False


def _nearest(here: str, home: str) -> str:
    """Return the nearest workspace, whatever is above it."""
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
