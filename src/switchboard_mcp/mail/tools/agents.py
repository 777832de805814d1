"""Tools for registration, status, roles and teams. The rows are in `TOOLS` at the end."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from switchboard_mcp.errors import refused
from switchboard_mcp.inprocess.server_app import ToolRequest, ToolSpec
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.agent_registry import Agent, AgentStatus
from switchboard_mcp.mail.agent_session import AgentSession
from switchboard_mcp.mail.presentation import describe_agents
from switchboard_mcp.mail.terminal import terminal_registry
from switchboard_mcp.mail.terminal.styling import parse_styling

Name = Annotated[str, Meta(min_length=1, max_length=64)]
Words = Annotated[str, Meta(max_length=500)]


class MailToolArgs(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all tool arguments: camelCase, unknown arguments are refused."""


class RegisterTerminal(MailToolArgs, kw_only=True):
    name: Annotated[Name, Meta(description="Your name: letters, digits, - and _.")]
    pid: Annotated[
        int,
        Meta(
            ge=1,
            le=2**31 - 1,
            description="Process id of the terminal. In a `switchboard terminal`, of any process in it: "
            "`execute` messages to you are then typed there.",
        ),
    ]
    purpose: Words = ""
    styling: Annotated[
        dict[str, str], Meta(description="How you are shown: color (a name or #rrggbb), icon (an emoji).")
    ] = {}


class RegisterChatAgent(MailToolArgs, kw_only=True):
    name: Annotated[Name, Meta(description="Your name: letters, digits, - and _.")]
    interface: Annotated[Words, Meta(description="The program you run in.")] = ""
    capabilities: Annotated[list[str], Meta(description="What you can do, in a few words.")] = []


class ListAgents(MailToolArgs, kw_only=True):
    role: Annotated[str | None, Meta(description="Only agents in this role.")] = None
    team: Annotated[str | None, Meta(description="Only members of this team.")] = None


class SetStatus(MailToolArgs, kw_only=True):
    status: AgentStatus
    note: Annotated[Words, Meta(description="What you are working on.")] = ""


class AssignRole(MailToolArgs, kw_only=True):
    role: Annotated[
        str, Meta(description="lead, coder 1, coder 2, reviewer, tester, researcher or execution.")
    ]
    agent: Annotated[str | None, Meta(description="Defaults to yourself.")] = None


class CreateTeam(MailToolArgs, kw_only=True):
    team: Name
    members: Annotated[list[Name], Meta(min_length=1, max_length=100, description="Agents.")]
    roles: Annotated[list[str], Meta(description="For a team of one agent that plays several roles.")] = []


async def register_terminal(session: AgentSession, args: RegisterTerminal, request: ToolRequest) -> object:
    """Register a terminal, and attach it to the `switchboard terminal` that its process runs in."""
    styling = msgspec.to_builtins(parse_styling(args.styling))
    folder = (await session.server.store()).path
    bridge = await asyncio.to_thread(terminal_registry.find, folder, args.pid)
    if bridge is not None and session.caller.principal:
        # A token may be used from another machine; the terminal belongs to the person at it.
        message = (
            f"Terminal '{bridge[0]}' can be attached from this machine only, without a token of your own."
        )
        raise refused("mail_forbidden", message, hint="Register with the pid of another process.")
    details = {"purpose": args.purpose, "styling": styling}
    if bridge is not None:  # The person who started it may have set them.
        details = {name: value for name, value in details.items() if value}
    agent = await session.register(args.name, kind="terminal", pid=args.pid, **details)
    view = await _welcome(session, agent)
    if bridge is None:
        start = f"switchboard terminal {view['name']} --allow-execute -- PROGRAM"
        return {**view, "execute": f"refused: process {args.pid} is in no `{start}`"}
    order = terminal_registry.ControlRequest("attach", str(view["name"]), styling)
    reply = await asyncio.to_thread(terminal_registry.ask, folder, bridge[0], order)
    if reply.error:
        raise refused("mail_forbidden", reply.error)
    allowed = "typed" if reply.allow_execute else f"refused: '{reply.terminal}' runs without --allow-execute"
    return {**view, "terminal": reply.terminal, "execute": allowed}


async def register_chat_agent(session: AgentSession, args: RegisterChatAgent, request: ToolRequest) -> object:
    """Register a chat agent. If it was attached to a terminal, nothing is typed there for it any more."""
    details: dict[str, object] = {"interface": args.interface, "capabilities": args.capabilities}
    name = agent_registry.parse_name(args.name)
    terminals = await asyncio.to_thread(terminal_registry.read, (await session.server.store()).path)
    if name in terminals and terminal_registry.is_attached(name, terminals[name]):
        details["bridge"] = False
    agent = await session.register(args.name, kind="chat", **details)
    return await _welcome(session, agent)


async def _welcome(session: AgentSession, agent: Agent) -> dict[str, object]:
    name = await session.agent()
    waiting = await (await session.server.store()).waiting_for(name)
    view: dict[str, object] = {"name": name, "unread": waiting.count, "inbox": f"switchboard://inbox/{name}"}
    if agent.role:
        view["role"] = agent.role
        view["persona"] = (await asyncio.to_thread(session.server.personas.for_role, agent.role)).text
    return view


async def list_agents(session: AgentSession, args: ListAgents, request: ToolRequest) -> object:
    """List the agents. Needs no registration."""
    agents = await describe_agents(session.server)
    if args.role is not None:
        role = agent_registry.require_role(args.role)
        agents = [entry for entry in agents if entry.get("role") == role]
    if args.team is not None:
        team = agent_registry.find_team(await (await session.server.store()).state(), args.team)
        agents = [entry for entry in agents if entry["name"] in team.members]
    return {"you": session.name or None, "agents": agents}


async def set_status(session: AgentSession, args: SetStatus, request: ToolRequest) -> object:
    """Set the agent's status."""
    name = await session.agent()
    await (await session.server.store()).update(agent_registry.set_status(name, args.status, args.note))
    return {"name": name, "status": args.status, "note": args.note}


async def assign_role(session: AgentSession, args: AssignRole, request: ToolRequest) -> object:
    """Assign a role and return its persona."""
    name = await session.agent()
    store = await session.server.store()
    agent = agent_registry.parse_name(args.agent) if args.agent else name
    agent_registry.require_agent(agent, await store.agents())
    role = await store.update(agent_registry.assign_role(name, agent, args.role))
    persona = await asyncio.to_thread(session.server.personas.for_role, role)
    return {"agent": agent, "role": role, "persona": persona.text, "personaFile": persona.file}


async def create_team(session: AgentSession, args: CreateTeam, request: ToolRequest) -> object:
    """Create or replace a team."""
    name = await session.agent()
    store = await session.server.store()
    members = [agent_registry.parse_name(member) for member in args.members]
    agents = await store.agents()
    for member in members:
        agent_registry.require_agent(member, agents)
    team = agent_registry.parse_name(args.team)
    created = await store.update(agent_registry.create_team(name, team, members, args.roles))
    view = {"team": team, "kind": created.kind, "members": created.members}
    return {**view, "roles": created.roles} if created.roles else view


TOOLS = (
    ToolSpec(
        name="register_terminal",
        description="Register yourself as a terminal. Required once before sending or reading mail.",
        args_type=RegisterTerminal,
        handler=register_terminal,
        idempotent=True,
    ),
    ToolSpec(
        name="register_chat_agent",
        description="Register yourself as a chat agent. Required once before sending or reading mail.",
        args_type=RegisterChatAgent,
        handler=register_chat_agent,
        idempotent=True,
    ),
    ToolSpec(
        name="list_agents",
        description="List agents: roles, status, presence, unread mail.",
        args_type=ListAgents,
        handler=list_agents,
        read_only=True,
    ),
    ToolSpec(
        name="set_status",
        description="Tell other agents what you are working on.",
        args_type=SetStatus,
        handler=set_status,
        idempotent=True,
    ),
    ToolSpec(
        name="assign_role",
        description="Assign a role to an agent; its tasks then carry the role's persona. The lead may assign any.",
        args_type=AssignRole,
        handler=assign_role,
        idempotent=True,
    ),
    ToolSpec(
        name="create_team",
        description="Group agents, to send messages to all of them.",
        args_type=CreateTeam,
        handler=create_team,
        idempotent=True,
    ),
)
