"""The folder for what Switchboard keeps about a user, outside of every workspace."""

from __future__ import annotations

import os
from collections.abc import Mapping

APP = "switchboard-mcp"


def state_folder(environ: Mapping[str, str], *parts: str) -> str:
    """Return a folder below the user's state folder; empty if there is no home folder."""
    base = environ.get("XDG_STATE_HOME") or (
        environ.get("HOME", "") and os.path.join(environ["HOME"], ".local", "state")
    )
    return os.path.join(base, APP, *parts) if base else ""
