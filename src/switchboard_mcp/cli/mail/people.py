"""`switchboard mail agents|teams`: list agents and teams, add them, assign roles."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from switchboard_mcp.cli.console import Cell, Styled, format_duration, plural
from switchboard_mcp.cli.invocation import Invocation, usage_error
from switchboard_mcp.cli.mail.arguments import AS
from switchboard_mcp.cli.mail.mailbox import Mailbox, require_shell_name, with_mailbox
from switchboard_mcp.cli.parser import Command, flag, option, positional, repeatable
from switchboard_mcp.errors import refused
from switchboard_mcp.mail import agent_registry, presentation
from switchboard_mcp.mail.conversations import renaming
from switchboard_mcp.mail.personas import Personas
from switchboard_mcp.mail.store import rows
from switchboard_mcp.mail.terminal.styling import nearest_color

PRESENCE_STYLES = {"online": "green", "idle": "yellow", "offline": "dim"}
# The nearest that every terminal has.
TERMINAL_COLORS = {"orange": "yellow", "brown": "yellow", "black": "dim", "gray": "dim", "white": ""}
SEE_HELP = "`switchboard mail agents --help` and `switchboard mail teams --help` show how."


def run_agents(invocation: Invocation) -> int:
    """List agents, add one, or assign a role."""
    match invocation.args.words:
        case []:
            return with_mailbox(invocation, lambda mailbox: _show_agents(invocation, mailbox))
        case ["add", name]:
            return with_mailbox(invocation, lambda mailbox: _add(invocation, mailbox, name), make=True)
        case ["remove", name]:
            return with_mailbox(invocation, lambda mailbox: _remove(invocation, mailbox, name))
        case ["rename", old, new]:
            return with_mailbox(invocation, lambda mailbox: _rename(invocation, mailbox, old, new))
        case ["role", name, *role] if role:
            return with_mailbox(
                invocation, lambda mailbox: _assign_role(invocation, mailbox, name, " ".join(role))
            )
        case words:
            raise usage_error(f"mail agents: '{' '.join(words)}' is not a valid action.", SEE_HELP)


AGENTS = Command(
    "mail agents [add NAME | role NAME ROLE | rename OLD NEW | remove NAME] [OPTIONS]",
    "List the agents, their presence and unread mail, and whose mail nobody was notified of; or add an agent,\n"
    "assign a role, rename or remove an agent. Settled messages of a removed or renamed agent stay until they are\n"
    "pruned; waiting messages go to the new name.",
    run=run_agents,
    arguments=[
        positional("words", "add, role, rename or remove, with names", metavar="ACTION", nargs="*"),
        AS,
        option("--purpose", "LINE", "with add: its purpose"),
        flag("--force", "with remove: reject its unread and claimed messages, and notify their senders"),
    ],
    epilog="examples:\n"
    '  switchboard mail agents add ada --purpose "the one with the plan"\n'
    "  switchboard mail agents role ada lead --as ada",
)


async def _show_agents(invocation: Invocation, mailbox: Mailbox) -> int:
    agents = await presentation.list_agents(mailbox.store, mailbox.presence, mailbox.unread_warn_s)
    if invocation.as_json:
        invocation.console.out.json({"you": mailbox.agent or None, "agents": agents})
        return 0
    out = invocation.console.out
    if not agents:
        out.line("No agents yet. `switchboard mail agents add NAME` adds one.", "dim")
        return 0
    rows = [_agent_row(entry, mailbox.agent) for entry in agents]
    out.table(rows, ("AGENT", "PRESENCE", "ROLE", "UNREAD", ""), align="lllr", optional=(4,))
    for entry in agents:
        if entry.get("starving"):
            invocation.console.warn(unread_warning(entry))
    return 0


def unread_warning(entry: dict[str, object]) -> str:
    """Return the warning for an agent whose unread mail nobody was notified of."""
    seconds = entry.get("oldestUnreadSeconds", 0)
    age = format_duration(seconds if isinstance(seconds, int | float) else 0)
    unread = entry.get("unread", 0)
    return (
        f"{plural(unread if isinstance(unread, int) else 0, 'message')} for '{entry['name']}', the oldest for {age}, "
        f"and nobody was notified. Give its host a mail hook, or run it in `switchboard terminal {entry['name']} -- …`."
    )


def _agent_row(entry: dict[str, object], me: str) -> list[Cell]:
    last_seen = entry.get("lastSeenSecondsAgo")
    here = str(entry["presence"])
    age = f", {format_duration(last_seen)}" if isinstance(last_seen, int) and here == "offline" else ""
    unread = entry.get("unread", 0)
    details = [str(entry.get("status") or ""), str(entry.get("note") or ""), str(entry.get("purpose") or "")]
    details.append(f"in {', '.join(map(str, _list(entry.get('teams'))))}" if entry.get("teams") else "")
    details.insert(0, "terminal" if entry["kind"] == "terminal" else str(entry.get("interface") or ""))
    name = str(entry["name"])
    color, icon = _styling(entry)
    shown = " ".join(filter(None, (icon, name, "(you)" if name == me else "")))
    return [
        Styled(shown, f"bold {color or ('cyan' if name == me else '')}".rstrip()),
        Styled(here + age, PRESENCE_STYLES.get(here, "")),
        str(entry.get("role") or ""),
        Styled(str(unread), "bold red" if entry.get("starving") else "yellow" if unread else "dim"),
        " · ".join(part for part in details if part),
    ]


def _styling(entry: dict[str, object]) -> tuple[str, str]:
    """Return the colour that a terminal can show, and the icon."""
    styling = entry.get("styling")
    if not isinstance(styling, dict):
        return "", ""
    color = nearest_color(str(styling.get("color", "")))
    return TERMINAL_COLORS.get(color, color), str(styling.get("icon", ""))


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


async def _add(invocation: Invocation, mailbox: Mailbox, typed: str) -> int:
    name = rows.require_unreserved(agent_registry.parse_name(typed))
    await mailbox.store.register(name)
    fields = {"purpose": invocation.args.purpose} if invocation.args.purpose else {}
    await mailbox.store.update(agent_registry.register(name, **fields))
    if invocation.as_json:
        invocation.console.out.json({"name": name, "inbox": f".switchboard/inbox/{name}"})
    else:
        invocation.console.out.line(f"{name} can receive messages. Act as it with --as {name}.")
    return 0


async def _require_ended(invocation: Invocation, mailbox: Mailbox, name: str) -> None:
    """Raise `mail_forbidden` if a host or terminal is connected as this agent, unless `--force`."""
    if not invocation.args.force and await asyncio.to_thread(mailbox.presence.is_connected, name):
        text = f"A host or terminal is connected as '{name}'."
        raise refused("mail_forbidden", text, hint="End it first, or use --force.")


async def _remove(invocation: Invocation, mailbox: Mailbox, typed: str) -> int:
    name = rows.require_unreserved(agent_registry.parse_name(typed))
    await _require_ended(invocation, mailbox, name)
    rejected = await mailbox.store.remove_agent(name, force=invocation.args.force)
    text = f"{name} was removed."
    text += f" {plural(rejected, 'message')} rejected; see `switchboard mail dead`." if rejected else ""
    invocation.report({"name": name, "rejected": rejected}, text)
    return 0


async def _rename(invocation: Invocation, mailbox: Mailbox, old: str, new: str) -> int:
    name = rows.require_unreserved(agent_registry.parse_name(old))
    await _require_ended(invocation, mailbox, name)
    require_shell_name(agent_registry.parse_name(new), mailbox.config)
    moved = await renaming.rename_agent(mailbox.store, name, new)
    chosen = agent_registry.parse_name(new)
    text = f"{name} is {chosen} now, with {plural(moved, 'waiting message')}."
    invocation.report({"name": chosen, "was": name, "moved": moved}, text)
    return 0


async def _assign_role(invocation: Invocation, mailbox: Mailbox, typed: str, role: str) -> int:
    by = mailbox.acting_agent()
    agent = agent_registry.parse_name(typed)
    agent_registry.require_agent(agent, await mailbox.store.agents())
    assigned = await mailbox.store.update(agent_registry.assign_role(by, agent, role))
    persona = await asyncio.to_thread(Personas(mailbox.store.path).for_role, assigned)
    if invocation.as_json:
        invocation.console.out.json({"agent": agent, "role": assigned, "personaFile": persona.file})
    else:
        invocation.console.out.line(f"{agent} is {assigned}. Its persona, to edit: {persona.file}")
    return 0


def run_teams(invocation: Invocation) -> int:
    """List the teams, or create one."""
    match invocation.args.words:
        case []:
            return with_mailbox(invocation, lambda mailbox: _show_teams(invocation, mailbox))
        case ["create", team, *members] if members:
            return with_mailbox(invocation, lambda mailbox: _create(invocation, mailbox, team, members))
        case words:
            raise usage_error(f"mail teams: '{' '.join(words)}' is not a valid action.", SEE_HELP)


TEAMS = Command(
    "mail teams [create TEAM MEMBER …] [OPTIONS]",
    "List the teams, or create one. With --role, one agent plays several roles.",
    run=run_teams,
    arguments=[
        positional("words", "what to do", metavar="create TEAM MEMBER …", nargs="*"),
        AS,
        repeatable("--role", "ROLE", "with create, for a team of one: a role it plays", dest="roles"),
    ],
)


async def _show_teams(invocation: Invocation, mailbox: Mailbox) -> int:
    teams = agent_registry.teams(await mailbox.store.state())
    if invocation.as_json:
        invocation.console.out.json({"teams": teams})
        return 0
    if not teams:
        invocation.console.out.line(
            "No teams. `switchboard mail teams create TEAM MEMBER …` creates one.", "dim"
        )
        return 0
    rows = [
        (
            Styled(name, "bold cyan"),
            team.kind,
            ", ".join(team.members + [f"as {role}" for role in team.roles]),
        )
        for name, team in teams.items()
    ]
    invocation.console.out.table(rows, ("TEAM", "KIND", "MEMBERS"))
    return 0


async def _create(invocation: Invocation, mailbox: Mailbox, typed: str, members: list[str]) -> int:
    by = mailbox.acting_agent()
    agents = await mailbox.store.agents()
    names = [agent_registry.parse_name(member) for member in members]
    for name in names:
        agent_registry.require_agent(name, agents)
    team = agent_registry.parse_name(typed)
    created = await mailbox.store.update(agent_registry.create_team(by, team, names, invocation.args.roles))
    if invocation.as_json:
        invocation.console.out.json(
            {"team": team, "kind": created.kind, "members": created.members, "roles": created.roles}
        )
    else:
        invocation.console.out.line(f"{team}: {', '.join(created.members)}")
    return 0
