"""`switchboard mail agents|teams`: who there is, who is here, and whose mail waits with nobody woken."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from switchboard_mcp.cli.console import Cell, Styled, plural
from switchboard_mcp.cli.invocation import Invocation, misuse
from switchboard_mcp.cli.mail.mailbox import Mailbox, with_mailbox
from switchboard_mcp.cli.mail.show import spell
from switchboard_mcp.mail import agent_registry, presentation
from switchboard_mcp.mail.personas import Personas

PRESENCE_STYLES = {"online": "green", "idle": "yellow", "offline": "dim"}
SEE = "`switchboard mail agents --help` and `switchboard mail teams --help` show how."


def run_agents(asked: Invocation) -> int:
    """Show, add, or give a role."""
    match asked.given.words:
        case []:
            return with_mailbox(asked, lambda mailbox: _show_agents(asked, mailbox))
        case ["add", name]:
            return with_mailbox(asked, lambda mailbox: _add(asked, mailbox, name), make=True)
        case ["role", name, *role] if role:
            return with_mailbox(asked, lambda mailbox: _give_role(asked, mailbox, name, " ".join(role)))
        case words:
            raise misuse(f"mail agents: '{' '.join(words)}' is not understood.", SEE)


async def _show_agents(asked: Invocation, mailbox: Mailbox) -> int:
    found = await presentation.list_agents(mailbox.post, mailbox.presence, mailbox.starving_s)
    if asked.as_json:
        asked.console.out.json({"you": mailbox.agent or None, "agents": found})
        return 0
    out = asked.console.out
    if not found:
        out.line("Nobody yet. `switchboard mail agents add NAME` adds one.", "dim")
        return 0
    rows = [_agent_row(entry, mailbox.agent) for entry in found]
    out.table(rows, ("AGENT", "PRESENCE", "ROLE", "UNREAD", ""), align="lllr")
    for entry in found:
        if entry.get("starving"):
            asked.console.warn(starving(entry))
    return 0


def starving(entry: dict[str, object]) -> str:
    """What is said of an agent whose mail waits while nobody was told of it."""
    seconds = entry.get("oldestUnreadSeconds", 0)
    age = spell(seconds if isinstance(seconds, int | float) else 0)
    unread = entry.get("unread", 0)
    return (
        f"{plural(unread if isinstance(unread, int) else 0, 'message')} for '{entry['name']}', the oldest for {age}, "
        f"and nobody was woken. Give its host a mail hook, or run it in `switchboard terminal {entry['name']} -- …`."
    )


def _agent_row(entry: dict[str, object], me: str) -> list[Cell]:
    seen = entry.get("lastSeenSecondsAgo")
    here = str(entry["presence"])
    age = f", {spell(seen)}" if isinstance(seen, int) and here == "offline" else ""
    unread = entry.get("unread", 0)
    about = [str(entry.get("status") or ""), str(entry.get("note") or ""), str(entry.get("purpose") or "")]
    about.append(f"in {', '.join(map(str, _list(entry.get('teams'))))}" if entry.get("teams") else "")
    about.insert(0, "terminal" if entry["kind"] == "terminal" else str(entry.get("interface") or ""))
    name = str(entry["name"])
    return [
        Styled(name + (" (you)" if name == me else ""), "bold cyan" if name == me else "bold"),
        Styled(here + age, PRESENCE_STYLES.get(here, "")),
        str(entry.get("role") or ""),
        Styled(str(unread), "bold red" if entry.get("starving") else "yellow" if unread else "dim"),
        " · ".join(part for part in about if part),
    ]


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


async def _add(asked: Invocation, mailbox: Mailbox, written: str) -> int:
    name = agent_registry.parse_name(written)
    await mailbox.post.register(name)
    told = {"purpose": asked.given.purpose} if asked.given.purpose else {}
    await mailbox.post.update(agent_registry.register(name, **told))
    if asked.as_json:
        asked.console.out.json({"name": name, "inbox": f".switchboard/inbox/{name}"})
    else:
        asked.console.out.line(f"{name} can be written to. Act as it with --as {name}.")
    return 0


async def _give_role(asked: Invocation, mailbox: Mailbox, written: str, role: str) -> int:
    by = mailbox.may_act()
    agent = agent_registry.parse_name(written)
    agent_registry.require_agent(agent, await mailbox.post.agents())
    given = await mailbox.post.update(agent_registry.assign_role(by, agent, role))
    persona = await asyncio.to_thread(Personas(mailbox.post.path).for_role, given)
    if asked.as_json:
        asked.console.out.json({"agent": agent, "role": given, "personaFile": persona.file})
    else:
        asked.console.out.line(f"{agent} is {given}. Its persona, to edit: {persona.file}")
    return 0


def run_teams(asked: Invocation) -> int:
    """Show, or make one."""
    match asked.given.words:
        case []:
            return with_mailbox(asked, lambda mailbox: _show_teams(asked, mailbox))
        case ["create", team, *members] if members:
            return with_mailbox(asked, lambda mailbox: _create(asked, mailbox, team, members))
        case words:
            raise misuse(f"mail teams: '{' '.join(words)}' is not understood.", SEE)


async def _show_teams(asked: Invocation, mailbox: Mailbox) -> int:
    teams = agent_registry.teams(await mailbox.post.state())
    if asked.as_json:
        asked.console.out.json({"teams": teams})
        return 0
    if not teams:
        asked.console.out.line("No teams. `switchboard mail teams create TEAM MEMBER …` makes one.", "dim")
        return 0
    rows = [
        (
            Styled(name, "bold cyan"),
            team.kind,
            ", ".join(team.members + [f"as {role}" for role in team.roles]),
        )
        for name, team in teams.items()
    ]
    asked.console.out.table(rows, ("TEAM", "KIND", "MEMBERS"))
    return 0


async def _create(asked: Invocation, mailbox: Mailbox, written: str, members: list[str]) -> int:
    by = mailbox.may_act()
    known = await mailbox.post.agents()
    names = [agent_registry.parse_name(member) for member in members]
    for name in names:
        agent_registry.require_agent(name, known)
    team = agent_registry.parse_name(written)
    made = await mailbox.post.update(agent_registry.create_team(by, team, names, asked.given.roles))
    if asked.as_json:
        asked.console.out.json(
            {"team": team, "kind": made.kind, "members": made.members, "roles": made.roles}
        )
    else:
        asked.console.out.line(f"{team}: {', '.join(made.members)}")
    return 0
