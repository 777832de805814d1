"""Roles of agents, and who may assign them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from switchboard_mcp.config.agent_names import agent_name

ROLES = ("lead", "coder 1", "coder 2", "reviewer", "tester", "researcher", "execution")
_BY_NAME = {role.replace(" ", "-"): role for role in ROLES}


def read_role(written: str) -> str | None:
    """Return the role in the protocol's spelling; None if there is no such role.

    >>> read_role("Coder 1"), read_role("coder-1"), read_role("boss")
    ('coder 1', 'coder 1', None)
    """
    name = agent_name(written)
    return _BY_NAME.get(name) if name is not None else None


def file_name(role: str) -> str:
    """Return the role as used in file names."""
    return role.replace(" ", "-")


def may_assign(by: str, agent: str, role: str, roles: Mapping[str, str]) -> bool:
    """Return True if `by` may assign a role to `agent`; `held` maps agents to their roles.

    The lead assigns roles. Without a lead anyone may become it, and anyone may take any other role.
    """
    if roles.get(by) == "lead" or "lead" not in roles.values():
        return True
    return by == agent and role != "lead"
