"""The MCP resources of the mail server: inboxes, agents and workflows, and which changes affect them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from switchboard_mcp.errors import failure
from switchboard_mcp.inprocess.server_app import Resource
from switchboard_mcp.mail.presentation import describe_agents, summary_view
from switchboard_mcp.mail.store.store import MailboxChange

if TYPE_CHECKING:
    from switchboard_mcp.mail.agent_session import AgentSession
    from switchboard_mcp.mail.server import MailServer

AGENTS = "switchboard://agents"
INBOX = "switchboard://inbox/"
WORKFLOW = "switchboard://workflow/"
MAX_MESSAGES = 50
JSON = "application/json"

RESOURCES = (
    Resource(
        uri=AGENTS,
        name="agents",
        description="Every agent: role, status, presence, unread mail.",
        mime_type=JSON,
    ),
    Resource(
        uri_template=INBOX + "{agent}",
        name="inbox",
        description="Your unread mail. Reading consumes nothing. Subscribe to be notified of new mail.",
        mime_type=JSON,
    ),
    Resource(
        uri_template=WORKFLOW + "{agent}",
        name="workflow",
        description="The workflow an agent is in.",
        mime_type=JSON,
    ),
)


def is_affected(change: MailboxChange, uri: str, agent: str) -> bool:
    """Return True if a file change affects a resource that this agent may see."""
    if change.kind == "inbox":
        return uri == INBOX + change.agent == INBOX + agent
    return change.kind == "state" and (uri == AGENTS or uri.startswith(WORKFLOW))


async def read(session: AgentSession, uri: str) -> object:
    """Return the contents of a resource; None if there is no such resource."""
    if uri == AGENTS:
        return {"agents": await describe_agents(session.server)}
    if uri.startswith(INBOX):
        agent = await session.agent()
        if uri != INBOX + agent:
            message = f"You are '{agent}', so you cannot read '{uri}'."
            return failure("mail_identity", message, hint=f"Read {INBOX}{agent}.")
        session.server.note_notified(agent)
        return await read_inbox(session.server, agent)
    if uri.startswith(WORKFLOW):
        return await _workflow(session.server, uri.removeprefix(WORKFLOW))
    return None


async def _workflow(server: MailServer, agent: str) -> dict[str, object]:
    from switchboard_mcp.mail.workflows.engine import view_of  # Loaded on first use.

    return {"agent": agent, "workflow": view_of(await (await server.store()).state(), agent)}


async def read_inbox(
    server: MailServer, agent: str, limit: int = MAX_MESSAGES, after: int = 0
) -> dict[str, object]:
    """Return an agent's unread messages as summaries."""
    store = await server.store()
    messages = await store.peek(agent, limit=limit, after=after)
    waiting = await store.waiting_for(agent)
    return {
        "agent": agent,
        "unread": waiting.count,
        "messages": [summary_view(message) for message in messages],
    }
