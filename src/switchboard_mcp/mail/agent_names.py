"""Agent names: the allowlist, and how names as people write them become folder names."""

from __future__ import annotations

import re

AGENT = r"[a-z0-9_-]{1,64}"
_AGENT = re.compile(AGENT)
# Words separated by single spaces, such as the role `coder 1`.
_WRITTEN = re.compile(r"[A-Za-z0-9_-]+(?: [A-Za-z0-9_-]+)*")
LONGEST = 64


def agent_name(written: str) -> str | None:
    """Return the name as used for folders; None if `written` is not a valid name.

    >>> agent_name("Coder 1"), agent_name("../etc")
    ('coder-1', None)
    """
    if len(written) > LONGEST or not _WRITTEN.fullmatch(written):
        return None
    return written.lower().replace(" ", "-")


def is_agent_name(name: str) -> bool:
    """Return True if this folder name is a valid agent name."""
    return _AGENT.fullmatch(name) is not None
