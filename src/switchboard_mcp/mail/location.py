"""Finds the mail folder and the agent of a program in a shell, from its environment and working directory.

Cheap to import: hooks load it at every turn of a host.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

AGENT = "SWITCHBOARD_AGENT"
WORKSPACE = "SWITCHBOARD_WORKSPACE"
# Folder of a workspace that holds its mail and other Switchboard files.
FOLDER = ".switchboard"


def workspace_of(environ: Mapping[str, str], here: str) -> str:
    """Return the workspace from the environment, else the nearest folder at or above `here` with mail, else `here`."""
    configured = environ.get(WORKSPACE, "")
    if configured:
        return os.path.abspath(configured)
    folder = here
    while not os.path.isdir(os.path.join(folder, FOLDER, "inbox")):
        above = os.path.dirname(folder)
        if above == folder:
            return here
        folder = above
    return folder
