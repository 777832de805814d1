"""The API's answers about mail: agents, teams, messages, threads and workflows. Consumes nothing."""

from __future__ import annotations

from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.messages import StoredMessage
from switchboard_mcp.mail.presentation import described
from switchboard_mcp.mail.server import MailServer
from switchboard_mcp.mail.workflows import engine
from switchboard_mcp.mail.workflows.definitions import WorkflowRun
from switchboard_mcp.server.dashboard.api.routes import ApiRequest, RefusedError
from switchboard_mcp.server.dashboard.mail_view import EXCERPT_CHARS, MessageFilter
from switchboard_mcp.server.dashboard.state import DashboardState
from switchboard_mcp.suites.summary import summarise

MOST_ON_PAGE = 200
MOST_QUERY_CHARS = 500


def desk_of(board: DashboardState) -> MailServer:
    """The desk, or why there is none."""
    desk = board.desk
    if desk is None:
        raise RefusedError(404, "Mail is off; mail.enabled turns it on.")
    return desk


async def agents(board: DashboardState, asked: ApiRequest) -> object:
    """Who is here, in which teams, and how much mail there is."""
    desk = desk_of(board)
    post = await desk.post()
    return {
        "agents": await described(desk),
        "teams": [
            {"name": name, "team": team} for name, team in agent_registry.teams(await post.state()).items()
        ],
        "counts": await board.mail.counts(),
    }


async def messages(board: DashboardState, asked: ApiRequest) -> object:
    """One page. A search reads so many and stops; `next` goes on."""
    desk_of(board)
    query = asked.query
    wanted = MessageFilter(
        query=query.get("q", "")[:MOST_QUERY_CHARS].strip(),
        agent=agent_registry.read_name(query["agent"]) if query.get("agent") else "",
        sender=query.get("sender", ""),
        action=query.get("action", ""),
        place=query.get("place", ""),
        before=asked.number("before", 0, 1 << 60),
        limit=asked.number("limit", 50, MOST_ON_PAGE),
    )
    page = await board.mail.page(wanted)
    return {
        "messages": [_brief(agent, letter) for agent, letter in page.letters],
        "total": page.total,
        "next": page.next,
        "read": page.read,
    }


async def message(board: DashboardState, asked: ApiRequest) -> object:
    """One message, in full, with what it answers and what answers it."""
    desk_of(board)
    agent, id = asked.names
    found = await board.mail.message(agent_registry.read_name(agent), id)
    if found is None:
        raise RefusedError(404, f"'{agent[:80]}' has no message '{id[:150]}'.")
    letter, thread = found
    return {**_full(agent, letter), "thread": [_full(to, each) for to, each in thread]}


async def workflow_runs(board: DashboardState, asked: ApiRequest) -> object:
    """Every run there is, the latest first."""
    post = await desk_of(board).post()
    runs = engine.runs(await post.state())
    return {"workflows": [_run(run) for run in reversed(runs.values())]}


def _brief(agent: str, letter: StoredMessage) -> dict[str, object]:
    message = letter.message
    return {
        "to": agent,
        "id": message.id,
        "order": letter.order,
        "from": message.sender,
        "action": message.action,
        "excerpt": summarise(message.payload[: 4 * EXCERPT_CHARS], EXCERPT_CHARS),
        "place": letter.place,
        "verified": letter.verified,
        "priority": message.priority,
        "at": message.created_at,
        "outcome": letter.outcome or "",
        "replyTo": message.reply_to or "",
    }


def _full(agent: str, letter: StoredMessage) -> dict[str, object]:
    message = letter.message
    return {
        **_brief(agent, letter),
        "payload": message.payload,
        "team": message.team or "",
        "reason": letter.reason or "",
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
