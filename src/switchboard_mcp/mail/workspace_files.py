"""Reads files that a command was told to send or copy: those of the workspace, unless the user allows others."""

from __future__ import annotations

import os
import stat

from switchboard_mcp.errors import refused
from switchboard_mcp.mail.location import FOLDER


def read_workspace_file(workspace: str, name: str, limit: int, hint: str, *, anywhere: bool = False) -> bytes:
    """Return up to `limit` + 1 bytes of a regular file. Raises `mail_unsafe` if it is not a file of the workspace.

    Links are followed first, so one that leads outside does not count as inside; the mail folder does not either.
    """
    root = os.path.realpath(workspace)
    path = os.path.realpath(os.path.join(os.getcwd(), name))
    inside = os.path.relpath(path, root).split(os.sep)[0] not in (os.pardir, FOLDER)
    if not (inside or anywhere):
        raise refused("mail_unsafe", f"{name} is not a file of the workspace {root}.", hint=hint)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        raise refused(
            "mail_not_found", f"{name}: {problem.strerror}.", hint="Name a file that can be read."
        ) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise refused("mail_unsafe", f"{name} is not a regular file.")
    with open(descriptor, "rb") as file:
        return file.read(limit + 1)
