"""The folders for what Switchboard keeps about a user, outside of every project: state, and the user workspace."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

APP = "switchboard-mcp"
USER_WORKSPACE = "switchboard"


def state_folder(environ: Mapping[str, str], *parts: str) -> str:
    """Return a folder below the user's state folder; empty if there is no home folder."""
    base = environ.get("XDG_STATE_HOME") or (
        environ.get("HOME", "") and os.path.join(environ["HOME"], ".local", "state")
    )
    return os.path.join(base, APP, *parts) if base else ""


def workspace_state_folder(environ: Mapping[str, str], kind: str, workspace: str) -> str:
    """Return the folder for what is kept about a workspace; empty if there is no home folder."""
    from hashlib import sha256  # not needed to serve

    name = sha256(os.path.realpath(workspace).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return state_folder(environ, kind, name)


def user_workspace(environ: Mapping[str, str], platform: str = sys.platform) -> str:
    """Return the folder of the user workspace, which need not exist; empty if there is no home folder.

    A relative path is not used: it would lead into the project in which Switchboard is started.
    """
    if platform == "win32":
        base = environ.get("APPDATA", "")
        return os.path.join(base, USER_WORKSPACE) if base else ""
    named, home = environ.get("XDG_CONFIG_HOME", ""), environ.get("HOME", "")
    base = named if os.path.isabs(named) else os.path.join(home, ".config") if os.path.isabs(home) else ""
    return os.path.join(base, USER_WORKSPACE) if base else ""
