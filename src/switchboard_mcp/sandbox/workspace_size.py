"""Refuses a sandbox that may write a workspace which is a home folder, or contains one: it would confine nothing."""

from __future__ import annotations

import os
import pwd

from switchboard_mcp.config.sandbox import SandboxWords
from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.sandbox.plan import Places

FIRST_PERSON, NOBODY = 1_000, 65_534  # ids of people, after those of services


def too_wide(child: str, words: SandboxWords, places: Places) -> Failure | None:
    """Return the failure of a child that would write the workspace, if that is a home folder or contains one."""
    if "${workspace}" not in words.write:
        return None
    home = home_inside(places.workspace, places.home)
    if not home:
        return None
    return failure(
        "sandbox_unavailable",
        f"Child '{child}' may write its workspace, {places.workspace}, and that has the home folder {home} in it.",
        child=child,
        hint="Open a project folder, or give the child the preset `strict` and its folders in files.write.",
    )


def home_inside(folder: str, own_home: str) -> str:
    """Return the home folder of a person that a folder is or contains, or an empty string."""
    top = os.path.realpath(folder).rstrip("/")
    people = [one.pw_dir for one in pwd.getpwall() if one.pw_uid == 0 or FIRST_PERSON <= one.pw_uid < NOBODY]
    for home in dict.fromkeys((own_home, *people)):
        real = os.path.realpath(home) if home else ""
        if real not in ("", "/") and (real == top or real.startswith(top + "/")) and os.path.isdir(real):
            return home
    return ""
