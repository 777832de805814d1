"""Agent cards: the description of an agent, or of the whole workspace, for clients that speak A2A 1.0."""

from __future__ import annotations

from collections.abc import Mapping

from switchboard_mcp import __version__
from switchboard_mcp.config.agent_names import RESERVED_FOR
from switchboard_mcp.mail.agent_registry import Agent

PROTOCOL_VERSION = "1.0"
MODES = ["text/plain", "application/json", "application/octet-stream"]


def agent_card(name: str, agent: Agent, url: str) -> dict[str, object]:
    """Return the card of one agent."""
    role = f"the {agent.role} of this workspace" if agent.role else "an agent of this workspace"
    about = agent.purpose or f"{name} is {role}."
    skill: dict[str, object] = {
        "id": "mail",
        "name": agent.role or "Tasks",
        "description": about,
        "tags": _tags(agent),
    }
    return _card(name, about, url, [skill])


def workspace_card(agents: Mapping[str, Agent], url: str) -> dict[str, object]:
    """Return the card of the workspace: one skill for each agent, which `metadata.recipient` of a message names."""
    skills: list[dict[str, object]] = [
        {
            "id": name,
            "name": name,
            "description": agent.purpose or f'Send it a task: message.metadata {{"recipient":"{name}"}}.',
            "tags": _tags(agent),
        }
        for name, agent in agents.items()
        if name not in RESERVED_FOR
    ]
    return _card("switchboard", "The agents of a workspace, reached by mail.", url, skills)


def _tags(agent: Agent) -> list[str]:
    return [tag for tag in (agent.role, agent.kind, *agent.capabilities) if tag]


def _card(name: str, about: str, url: str, skills: list[dict[str, object]]) -> dict[str, object]:
    return {
        "name": name,
        "description": about,
        "version": __version__,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": PROTOCOL_VERSION}
        ],
        "capabilities": {"streaming": True, "pushNotifications": False, "extendedAgentCard": False},
        "defaultInputModes": MODES,
        "defaultOutputModes": MODES,
        "skills": skills,
        "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
    }
