"""Tools by which agents introduce themselves and find each other: entries, presence, roles, teams."""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from switchboard_mcp.inprocess.server_app import ToolRequest, ToolSpec
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.agent_registry import Agent, AgentStatus
from switchboard_mcp.mail.presentation import describe_agents
from switchboard_mcp.mail.session import AgentSession

Name = Annotated[str, Meta(min_length=1, max_length=64)]
Words = Annotated[str, Meta(max_length=500)]


class MailToolArgs(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of the arguments of every tool: camelCase, unknown ones refused."""


class RegisterTerminal(MailToolArgs, kw_only=True):
    name: Annotated[Name, Meta(description="Your name: letters, digits, - and _.")]
    pid: Annotated[int, Meta(ge=1, le=2**31 - 1, description="Process id of the terminal.")]
    purpose: Words = ""
    styling: Annotated[dict[str, str], Meta(description="How people see it, such as color.")] = {}


class RegisterChatAgent(MailToolArgs, kw_only=True):
    name: Annotated[Name, Meta(description="Your name: letters, digits, - and _.")]
    interface: Annotated[Words, Meta(description="The program you run in.")] = ""
    capabilities: Annotated[list[str], Meta(description="What you can do, in a few words.")] = []


class ListAgents(MailToolArgs, kw_only=True):
    role: Annotated[str | None, Meta(description="Only agents in this role.")] = None
    team: Annotated[str | None, Meta(description="Only members of this team.")] = None


class SetStatus(MailToolArgs, kw_only=True):
    status: AgentStatus
    note: Annotated[Words, Meta(description="What you are at.")] = ""


class AssignRole(MailToolArgs, kw_only=True):
    role: Annotated[
        str, Meta(description="lead, coder 1, coder 2, reviewer, tester, researcher or execution.")
    ]
    agent: Annotated[str | None, Meta(description="Whose; yourself when left out.")] = None


class CreateTeam(MailToolArgs, kw_only=True):
    team: Name
    members: Annotated[list[Name], Meta(min_length=1, max_length=100, description="Agents.")]
    roles: Annotated[
        list[str], Meta(description="For a team of one agent that plays several roles: which.")
    ] = []


async def register_terminal(seat: AgentSession, asked: RegisterTerminal, request: ToolRequest) -> object:
    """A terminal says who it is."""
    agent = await seat.register(
        asked.name, kind="terminal", pid=asked.pid, purpose=asked.purpose, styling=asked.styling
    )
    return await _welcome(seat, agent)


async def register_chat_agent(seat: AgentSession, asked: RegisterChatAgent, request: ToolRequest) -> object:
    """A chat agent says who it is."""
    agent = await seat.register(
        asked.name, kind="chat", interface=asked.interface, capabilities=asked.capabilities
    )
    return await _welcome(seat, agent)


async def _welcome(seat: AgentSession, agent: Agent) -> object:
    name = await seat.agent()
    waiting = await asyncio.to_thread(seat.desk.presence.unclaimed, name, seat.desk.starving_s)
    view: dict[str, object] = {"name": name, "unread": waiting.unread, "inbox": f"switchboard://inbox/{name}"}
    if agent.role:
        view["role"] = agent.role
        view["persona"] = (await asyncio.to_thread(seat.desk.personas.for_role, agent.role)).text
    return view


async def list_agents(seat: AgentSession, asked: ListAgents, request: ToolRequest) -> object:
    """Who there is. Anybody may ask."""
    found = await describe_agents(seat.desk)
    if asked.role is not None:
        role = agent_registry.require_role(asked.role)
        found = [entry for entry in found if entry.get("role") == role]
    if asked.team is not None:
        team = agent_registry.find_team(await (await seat.desk.post()).state(), asked.team)
        found = [entry for entry in found if entry["name"] in team.members]
    return {"you": seat.named or None, "agents": found}


async def set_status(seat: AgentSession, asked: SetStatus, request: ToolRequest) -> object:
    """What one is at, for others to see."""
    name = await seat.agent()
    await (await seat.desk.post()).update(agent_registry.set_status(name, asked.status, asked.note))
    return {"name": name, "status": asked.status, "note": asked.note}


async def assign_role(seat: AgentSession, asked: AssignRole, request: ToolRequest) -> object:
    """Give a role, and say which persona comes with it."""
    name = await seat.agent()
    post = await seat.desk.post()
    agent = agent_registry.parse_name(asked.agent) if asked.agent else name
    agent_registry.require_agent(agent, await post.agents())
    role = await post.update(agent_registry.assign_role(name, agent, asked.role))
    persona = await asyncio.to_thread(seat.desk.personas.for_role, role)
    return {"agent": agent, "role": role, "persona": persona.text, "personaFile": persona.file}


async def create_team(seat: AgentSession, asked: CreateTeam, request: ToolRequest) -> object:
    """Make or replace a team."""
    name = await seat.agent()
    post = await seat.desk.post()
    members = [agent_registry.parse_name(member) for member in asked.members]
    known = await post.agents()
    for member in members:
        agent_registry.require_agent(member, known)
    team = agent_registry.parse_name(asked.team)
    made = await post.update(agent_registry.create_team(name, team, members, asked.roles))
    view = {"team": team, "kind": made.kind, "members": made.members}
    return {**view, "roles": made.roles} if made.roles else view


TOOLS = (
    ToolSpec(
        name="register_terminal",
        description="Say which agent you are, as a terminal. Needed once before mail can be sent or read.",
        takes=RegisterTerminal,
        serve=register_terminal,
        idempotent=True,
    ),
    ToolSpec(
        name="register_chat_agent",
        description="Say which agent you are, as a chat. Needed once before mail can be sent or read.",
        takes=RegisterChatAgent,
        serve=register_chat_agent,
        idempotent=True,
    ),
    ToolSpec(
        name="list_agents",
        description="Who there is: roles, status, presence, unread mail.",
        takes=ListAgents,
        serve=list_agents,
        read_only=True,
    ),
    ToolSpec(
        name="set_status",
        description="Tell others what you are at.",
        takes=SetStatus,
        serve=set_status,
        idempotent=True,
    ),
    ToolSpec(
        name="assign_role",
        description="Give an agent a role; its tasks then carry the role's persona. The lead may give any.",
        takes=AssignRole,
        serve=assign_role,
        idempotent=True,
    ),
    ToolSpec(
        name="create_team",
        description="Group agents, to write to them together.",
        takes=CreateTeam,
        serve=create_team,
        idempotent=True,
    ),
)
