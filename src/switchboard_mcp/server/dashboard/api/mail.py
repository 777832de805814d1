"""API endpoints that read mail: agents, teams, messages, threads and workflows. They claim nothing."""

from __future__ import annotations

from starlette.exceptions import HTTPException

from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.messages import StoredMessage
from switchboard_mcp.mail.presentation import describe_agents
from switchboard_mcp.mail.server import MailServer
from switchboard_mcp.mail.workflows import engine
from switchboard_mcp.mail.workflows.definitions import WorkflowRun
from switchboard_mcp.server.dashboard.api.routes import ApiRequest
from switchboard_mcp.server.dashboard.mail_view import EXCERPT_CHARS, MessageFilter
from switchboard_mcp.server.dashboard.state import DashboardState
from switchboard_mcp.suites.summary import summarise

MOST_ON_PAGE = 200
MOST_QUERY_CHARS = 500


def require_mail(state: DashboardState) -> MailServer:
    """Return the mail server. Raise 404 if mail is off."""
    mail_server = state.mail_server
    if mail_server is None:
        raise HTTPException(404, "Mail is off. Set mail.enabled to turn it on.")
    return mail_server


async def agents(state: DashboardState, request: ApiRequest) -> object:
    """Return agents, teams and message counts."""
    mail_server = require_mail(state)
    store = await mail_server.store()
    return {
        "agents": await describe_agents(mail_server),
        "teams": [
            {"name": name, "team": team} for name, team in agent_registry.teams(await store.state()).items()
        ],
        "counts": await state.mail.counts(),
    }


async def messages(state: DashboardState, request: ApiRequest) -> object:
    """Return one page of messages. A search stops after a number of messages; `next` continues it."""
    require_mail(state)
    query = request.query
    message_filter = MessageFilter(
        query=query.get("q", "")[:MOST_QUERY_CHARS].strip(),
        agent=agent_registry.parse_name(query["agent"]) if query.get("agent") else "",
        sender=query.get("sender", ""),
        action=query.get("action", ""),
        place=query.get("place", ""),
        before=request.number("before", 0, 1 << 60),
        limit=request.number("limit", 50, MOST_ON_PAGE),
    )
    page = await state.mail.page(message_filter)
    return {
        "messages": [_brief(agent, letter) for agent, letter in page.messages],
        "total": page.total,
        "next": page.next,
        "read": page.read,
    }


async def message(state: DashboardState, request: ApiRequest) -> object:
    """Return one message with its thread."""
    require_mail(state)
    agent, id = request.names
    match = await state.mail.message(agent_registry.parse_name(agent), id)
    if match is None:
        raise HTTPException(404, f"'{agent[:80]}' has no message '{id[:150]}'.")
    stored, thread = match
    return {**_full(agent, stored), "thread": [_full(to, each) for to, each in thread]}


async def workflow_runs(state: DashboardState, request: ApiRequest) -> object:
    """Return all workflow runs, latest first."""
    store = await require_mail(state).store()
    runs = engine.runs(await store.state())
    return {"workflows": [_run(run) for run in reversed(runs.values())]}


def _brief(agent: str, stored: StoredMessage) -> dict[str, object]:
    message = stored.message
    return {
        "to": agent,
        "id": message.id,
        "order": stored.order,
        "from": message.sender,
        "action": message.action,
        "excerpt": summarise(message.payload[: 4 * EXCERPT_CHARS], EXCERPT_CHARS),
        "place": stored.place,
        "verified": stored.verified,
        "priority": message.priority,
        "at": message.created_at,
        "outcome": stored.outcome or "",
        "replyTo": message.reply_to or "",
    }


def _full(agent: str, stored: StoredMessage) -> dict[str, object]:
    message = stored.message
    return {
        **_brief(agent, stored),
        "payload": message.payload,
        "team": message.team or "",
        "reason": stored.reason or "",
        "metadata": message.metadata,
    }


def _run(run: WorkflowRun) -> dict[str, object]:
    return {
        "id": run.id,
        "name": run.definition.name,
        "subject": run.subject,
        "status": run.status,
        "phase": run.phase,
        "phases": [
            {"name": phase.name, "by": run.agents.get(phase.by, phase.by)} for phase in run.definition.phases
        ],
        "agents": run.agents,
        "startedBy": run.started_by,
        "startedAt": run.started_at,
        "due": run.due,
        "steps": run.steps,
    }
