"""Names of agents and of token holders: the allowlist, how names as people write them become folder names, and the
name that no agent may have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

AGENT = r"[a-z0-9_-]{1,64}"
_AGENT = re.compile(AGENT)
# Words separated by single spaces, such as the role `coder 1`.
_WRITTEN = re.compile(r"[A-Za-z0-9_-]+(?: [A-Za-z0-9_-]+)*")
LONGEST = 64
# The person at the dashboard, who may do to terminals what a lead may. Only the dashboard sends in this name.
OVERSEER = "overseer"
# The sender of notices of the mail server itself, such as one about a deadline.
SYSTEM = "switchboard"
RESERVED_FOR = {OVERSEER: "the person at the dashboard", SYSTEM: "notices of the mail server"}


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


def token_name_problem(names: Iterable[str]) -> str:
    """Return the problem with the names of tokens, each of which is one agent; empty if there is none.

    >>> token_name_problem(["Coder 1", "coder-1"])
    "'Coder 1' and 'coder-1' are the same agent, 'coder-1'. Rename one of them."
    """
    holders: dict[str, str] = {}
    for written in names:
        name = agent_name(written) or written
        if name in RESERVED_FOR:
            return f"'{written}' is reserved for {RESERVED_FOR[name]}. Use another name."
        if name in holders:
            return f"'{holders[name]}' and '{written}' are the same agent, '{name}'. Rename one of them."
        holders[name] = written
    return ""
