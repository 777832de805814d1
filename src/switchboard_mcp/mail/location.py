"""Where the mail is that a program at a shell means, and as whom it acts, by its environment and folder.

Owns the two variables' names. Cheap: hooks load it at every turn of a host.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

AGENT = "SWITCHBOARD_AGENT"
WORKSPACE = "SWITCHBOARD_WORKSPACE"
# Where a workspace has its mail, and all else of ours.
FOLDER = ".switchboard"


def workspace_of(environ: Mapping[str, str], here: str) -> str:
    """The workspace: as the environment says, else the nearest folder at or above `here` with mail, else `here`."""
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


# Hosts that tell their servers and their hooks the same id of a session.
SESSIONS = ("CLAUDE_CODE_SESSION_ID", "GEMINI_SESSION_ID")


def host_of(environ: Mapping[str, str]) -> dict[str, object]:
    """Whose child this process is. A hook of the same host knows by it which agent it is run for."""
    session = next((environ[name] for name in SESSIONS if environ.get(name)), "")
    return {"server": os.getpid(), "pid": os.getppid(), "session": session}
