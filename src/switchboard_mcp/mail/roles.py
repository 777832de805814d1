"""Roles of agents, and who may give them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from switchboard_mcp.mail.agent_names import agent_name

ROLES = ("lead", "coder 1", "coder 2", "reviewer", "tester", "researcher", "execution")
# The person at the dashboard, under whose name nobody else can come; may what a lead may to terminals.
OVERSEER = "overseer"
_BY_NAME = {role.replace(" ", "-"): role for role in ROLES}


def read_role(written: str) -> str | None:
    """The role that is meant, in the protocol's own words; None where there is no such.

    >>> read_role("Coder 1"), read_role("coder-1"), read_role("boss")
    ('coder 1', 'coder 1', None)
    """
    name = agent_name(written)
    return _BY_NAME.get(name) if name is not None else None


def file_name(role: str) -> str:
    """The role as a file is named after it."""
    return role.replace(" ", "-")


def may_assign(by: str, agent: str, role: str, held: Mapping[str, str]) -> bool:
    """Whether `by` may give `agent` a role, `held` being who has which.

    A lead gives roles. Without one somebody has to begin; and what is not the lead's everybody may take on.
    """
    if held.get(by) == "lead" or "lead" not in held.values():
        return True
    return by == agent and role != "lead"
