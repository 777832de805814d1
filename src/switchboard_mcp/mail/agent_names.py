"""Which words name an agent, and how the names people write become those of folders.

Owns the allowlist. Does not know which agents there are.
"""

from __future__ import annotations

import re

AGENT = r"[a-z0-9_-]{1,64}"
_AGENT = re.compile(AGENT)
# Words with single spaces between them, such as the role `coder 1`.
_WRITTEN = re.compile(r"[A-Za-z0-9_-]+(?: [A-Za-z0-9_-]+)*")
LONGEST = 64


def agent_name(written: str) -> str | None:
    """The agent's name as its folders have it; None where `written` can be no name.

    >>> agent_name("Coder 1"), agent_name("../etc")
    ('coder-1', None)
    """
    if len(written) > LONGEST or not _WRITTEN.fullmatch(written):
        return None
    return written.lower().replace(" ", "-")


def is_agent_name(name: str) -> bool:
    """Whether a folder of this name can be an agent's."""
    return _AGENT.fullmatch(name) is not None
