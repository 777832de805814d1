"""Describes the process of a host, so that its hooks can find the agent registered from it."""

from __future__ import annotations

import os
from collections.abc import Mapping

# Variables in which hosts pass a session id to both their servers and their hooks.
SESSIONS = ("CLAUDE_CODE_SESSION_ID", "GEMINI_SESSION_ID")


def host_process(environ: Mapping[str, str], server: int = 0, host: int = 0) -> dict[str, object]:
    """Describe the process of a host and its session.

    `server` is the process that the host has started, and `host` the host's own; by default this one and its parent.
    """
    session = next((environ[name] for name in SESSIONS if environ.get(name)), "")
    return {"server": server or os.getpid(), "pid": host or os.getppid(), "session": session}
