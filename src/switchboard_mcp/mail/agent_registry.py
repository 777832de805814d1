"""Agents, roles and teams, as part of the shared state.

The functions return changes for `MessageStore.update`, which applies them under the lock. Presence is not part of the
state (see `presence`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from switchboard_mcp.config.agent_names import agent_name, is_agent_name
from switchboard_mcp.database.machine_clocks import stamp
from switchboard_mcp.errors import refused
from switchboard_mcp.mail.roles import ROLES, may_assign, read_role
from switchboard_mcp.mail.store import rows
from switchboard_mcp.mail.store.store import State
from switchboard_mcp.suites.fuzzy import nearest

T = TypeVar("T", bound=Struct)
AgentKind = Literal["terminal", "chat"]
AgentStatus = Literal["available", "working", "blocked", "away"]


class Agent(Struct, rename="camel", kw_only=True):
    """An agent's entry in the state."""

    kind: AgentKind = "chat"
    role: str = ""
    purpose: str = ""
    interface: str = ""
    capabilities: list[str] = []
    styling: dict[str, str] = {}
    pid: int = 0
    bridge: bool = False
    """True while a `switchboard terminal` runs under this name."""
    status: AgentStatus = "available"
    note: str = ""
    registered_at: str = ""
    seen_at: str = ""


class Team(Struct, rename="camel", kw_only=True):
    """A group of agents; in a composite team one agent has several roles."""

    kind: Literal["manual", "composite"] = "manual"
    members: list[str] = []
    roles: list[str] = []
    created_by: str = ""


class Addressee(Struct, frozen=True):
    """A recipient of a team message, with the role it is addressed in if that differs from its own."""

    agent: str
    role: str = ""


def now() -> str:
    """Return the current time as stored in files."""
    return stamp(datetime.now(UTC))


def agents(state: State) -> dict[str, Agent]:
    """Return all agents by name; an unreadable entry yields defaults."""
    entries = sorted(_section(state, "agents").items())
    return {name: _convert(entry, Agent) or Agent() for name, entry in entries if is_agent_name(name)}


def teams(state: State) -> dict[str, Team]:
    """Return all teams by name."""
    entries = {name: _convert(entry, Team) for name, entry in sorted(_section(state, "teams").items())}
    return {name: team for name, team in entries.items() if team is not None}


def parse_name(written: str) -> str:
    """Return the normalized agent name. Raises `mail_name_invalid`."""
    name = agent_name(written)
    if name is None:
        raise refused("mail_name_invalid", f"'{written[:80]}' is not a valid agent name.")
    return name


# What registering as one kind sets, so it goes when the agent registers as the other kind.
KIND_FIELDS: Mapping[str, tuple[str, ...]] = {
    "terminal": ("pid", "purpose", "styling"),
    "chat": ("interface", "capabilities"),
}


def register(name: str, **details: object) -> Callable[[State], Agent]:
    """Register an agent or update its entry; details not passed are kept, but not those of another kind."""

    def change(state: State) -> Agent:
        entry = _section(state, "agents").setdefault(name, {})
        for kind, fields in KIND_FIELDS.items():
            if details.get("kind", kind) != kind and entry.get("kind") == kind:
                for field in fields:
                    entry.pop(field, None)
        entry.update(details)
        entry.setdefault("registeredAt", now())
        return _convert(entry, Agent) or Agent()

    return change


def set_status(name: str, status: AgentStatus, note: str) -> Callable[[State], Agent]:
    """Set an agent's status."""
    return register(name, status=status, note=note)


def assign_role(by: str, agent: str, written: str) -> Callable[[State], str]:
    """Assign a role to an agent and return it."""
    role = require_role(written)

    def change(state: State) -> str:
        registered = agents(state)
        roles = {name: entry.role for name, entry in registered.items()}
        if not may_assign(by, agent, role, roles):
            leads = ", ".join(name for name, theirs in roles.items() if theirs == "lead")
            message = f"'{by}' may not make '{agent}' {role}. Only the lead ({leads}) may."
            raise refused("mail_forbidden", message)
        _section(state, "agents").setdefault(agent, {})["role"] = role
        return role

    return change


def create_team(by: str, team: str, members: Sequence[str], roles: Sequence[str]) -> Callable[[State], Team]:
    """Create or replace a team; with `roles`, one agent plays them all."""
    rows.require_unreserved(team)
    played = [require_role(role) for role in roles]
    if played and len(members) != 1:
        message = (
            f"Team '{team}' has `roles`, so it needs exactly one member. Omit `roles` for several members."
        )
        raise refused("mail_team_invalid", message)

    def change(state: State) -> Team:
        registered = agents(state)
        earlier = teams(state).get(team)
        is_lead = registered.get(by, Agent()).role == "lead"
        if earlier is not None and earlier.created_by not in ("", by) and not is_lead:
            message = f"Team '{team}' already exists and belongs to '{earlier.created_by}'."
            raise refused("mail_forbidden", message)
        created = Team(
            kind="composite" if played else "manual",
            members=list(dict.fromkeys(members)),
            roles=played,
            created_by=by,
        )
        _section(state, "teams")[team] = msgspec.to_builtins(created)
        return created

    return change


def addressees(state: State, team: str, role: str | None, sender: str) -> list[Addressee]:
    """Return the recipients of a team message: everyone but the sender, except in a team of one."""
    target = find_team(state, team)
    wanted_role = require_role(role) if role else ""
    if target.kind == "composite":
        chosen = (
            [Addressee(target.members[0], wanted_role)]
            if not wanted_role or wanted_role in target.roles
            else []
        )
    else:
        roles = {name: agent.role for name, agent in agents(state).items()}
        others = [member for member in target.members if member != sender]
        chosen = [Addressee(name) for name in others if not wanted_role or roles.get(name) == wanted_role]
    if not chosen:
        who = f"no member with the role '{wanted_role}'" if wanted_role else "no member but you"
        raise refused("mail_team_unknown", f"Team '{team}' has {who}.")
    return chosen


def find_team(state: State, written: str) -> Team:
    """Return the named team. Raises `mail_team_unknown`."""
    all_teams = teams(state)
    match = all_teams.get(agent_name(written) or written)
    if match is None:
        near = nearest(written, all_teams) or list(all_teams)[:5]
        raise refused("mail_team_unknown", f"There is no team '{written[:80]}'.", nearest=near)
    return match


def resolve_recipient(state: State, written: str) -> str:
    """Return the agent with this name, or with this role if it is the only one. It need not exist."""
    registered = agents(state)
    name = agent_name(written)
    role = read_role(written)
    if role is None or name in registered:
        return name if name is not None else written
    holders = [agent for agent, entry in registered.items() if entry.role == role]
    if len(holders) > 1:
        message = f"Several agents are {role}: {', '.join(holders)}. Name one of them."
        raise refused("mail_recipient_unknown", message, nearest=holders)
    return holders[0] if holders else name or written


def require_agent(agent: str, known: Collection[str]) -> None:
    """Raise `mail_recipient_unknown` for an unknown agent."""
    if agent not in known:
        near = nearest(agent, known) or sorted(known)[:5]
        raise refused("mail_recipient_unknown", f"There is no agent '{agent}'.", nearest=near)


def require_role(written: str) -> str:
    """Return the normalized role. Raises `mail_role_unknown`."""
    role = read_role(written)
    if role is None:
        message = f"There is no role '{written[:80]}'. Roles: {', '.join(ROLES)}."
        raise refused("mail_role_unknown", message, nearest=nearest(written, ROLES))
    return role


def _section(state: State, name: str) -> dict[str, Any]:
    part = state.get(name)
    if not isinstance(part, dict):
        part = state[name] = {}
    return part


def _convert(entry: object, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(entry, kind)
    except msgspec.ValidationError:
        return None
