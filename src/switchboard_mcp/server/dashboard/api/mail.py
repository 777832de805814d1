"""API endpoints that read mail: agents, teams, messages, threads and workflows. They claim nothing.

Secrets in what agents have written are masked, outside of the event loop.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct, field
from starlette.exceptions import HTTPException

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.conversations.attached_files import encode_base64, read_file
from switchboard_mcp.mail.conversations.threads import is_open, people_of, whole_thread
from switchboard_mcp.mail.messages import PRIORITIES, MailMessage, Receipt, StoredMessage
from switchboard_mcp.mail.presentation import describe_agents
from switchboard_mcp.mail.server import MailServer
from switchboard_mcp.mail.workflows import engine
from switchboard_mcp.mail.workflows.definitions import WorkflowArtifact, WorkflowRun
from switchboard_mcp.mail.workflows.notices import thread_of
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.server.dashboard.api.routes import ApiRequest
from switchboard_mcp.server.dashboard.mail_view import EXCERPT_CHARS, MessageFilter
from switchboard_mcp.server.dashboard.state import DashboardState
from switchboard_mcp.suites.sanitize import clean
from switchboard_mcp.suites.summary import summarise
from switchboard_mcp.system import work_thread

MOST_ON_PAGE = 200
MOST_QUERY_CHARS = 500
MESSAGES_FOR_THREADS = 400
MOST_PEOPLE = 50
MOST_RECEIPTS = 1_000
MOST_DEAD = 500
MOST_ATTACHMENT_BYTES = 262_144
PREVIEW_CHARS = 4_000


class AttachmentRow(Struct, frozen=True, rename="camel"):
    """What a message says about its attachment."""

    name: str
    media_type: str
    bytes: int


class AttachmentContent(Struct, frozen=True, rename="camel"):
    """An attachment: its `text`, or `base64` of the beginning if it is not text. `cut` if it is longer."""

    name: str
    media_type: str
    bytes: int
    cut: bool
    text: str | None
    base64: str | None


class ThreadRow(Struct):
    """A thread as far as its messages are on this page. `priority` and `deadline` are those of its open messages."""

    id: str
    subject: str
    people: list[str]
    messages: int = 0
    open: int = 0
    priority: str = "low"
    deadline: str = ""
    last_at: str = field(default="", name="lastAt")
    last: dict[str, Any] = {}
    first: dict[str, Any] = {}


class ThreadPage(Struct, frozen=True):
    """Threads, those with the newest message first. `next` continues with older messages, 0 if there are none."""

    threads: list[ThreadRow]
    next: int


class DeadRow(Struct, frozen=True):
    """A message that could not be delivered or handled, with the reason."""

    agent: str
    id: str
    reason: str
    at: str
    sender: str = field(name="from")
    action: str = ""
    subject: str = ""


class DeadLetters(Struct, frozen=True):
    """The newest dead letters, and the number of all."""

    letters: list[DeadRow]
    total: int


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
    loads = await state.mail.loads()
    return {
        "agents": [
            {**agent, "load": loads.get(str(agent["name"]), {})}
            for agent in await describe_agents(mail_server)
        ],
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
    page, redactor = await state.mail.page(message_filter), state.services.redactor
    briefs = await work_thread.run(
        work_thread.OWN, lambda: [_brief(redactor, *entry) for entry in page.messages]
    )
    return {
        "messages": briefs,
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
    (stored, thread), redactor = match, state.services.redactor
    return await work_thread.run(
        work_thread.OWN,
        lambda: {
            **_full(redactor, agent, stored),
            "thread": [_full(redactor, to, reply) for to, reply in thread],
        },
    )


async def threads(state: DashboardState, request: ApiRequest) -> ThreadPage:
    """Return threads by their newest messages. A page reads some hundred messages; older ones may be on the next."""
    require_mail(state)
    message_filter = MessageFilter(
        query=request.query.get("q", "")[:MOST_QUERY_CHARS].strip(),
        agent=agent_registry.parse_name(request.query["agent"]) if request.query.get("agent") else "",
        before=request.number("before", 0, 1 << 60),
        limit=request.number("limit", MESSAGES_FOR_THREADS, MESSAGES_FOR_THREADS),
    )
    page, redactor = await state.mail.page(message_filter), state.services.redactor
    rows = await work_thread.run(work_thread.OWN, partial(_thread_rows, redactor, page.messages))
    return ThreadPage(rows, page.next)


def _thread_rows(redactor: Redactor, messages: list[tuple[str, StoredMessage]]) -> list[ThreadRow]:
    rows: dict[str, ThreadRow] = {}
    for agent, stored in messages:
        message = stored.message
        row = rows.get(message.thread)
        if row is None:
            row = rows[message.thread] = ThreadRow(
                message.thread,
                "",
                [],
                priority="low",
                last_at=message.created_at,
                last=_brief(redactor, agent, stored),
            )
        row.subject = redactor.redact_text(message.subject) or row.subject
        row.people = sorted({*row.people, *people_of(message)})[:MOST_PEOPLE]
        row.messages += 1
        if is_open(stored):
            row.open += 1
            row.priority = max(row.priority, message.priority, key=PRIORITIES.index)
            row.deadline = min(filter(None, (row.deadline, message.ack_by)), default="")
        row.first = _brief(redactor, agent, stored)
    for row in rows.values():
        row.subject = row.subject or str(row.first["excerpt"])
    return list(rows.values())


async def thread(state: DashboardState, request: ApiRequest) -> object:
    """Return one thread, or the messages of a workflow, with receipts."""
    store = await require_mail(state).store()
    conversation = await whole_thread(store, request.names[0])
    ids: dict[str, list[str]] = {}
    for stored in conversation.messages:
        ids.setdefault(stored.message.sender, []).append(stored.message.id)
    receipts: dict[str, list[Receipt]] = {}
    for sender, sent in ids.items():
        try:
            newest = await store.receipts(sender, ids=sent, limit=MOST_RECEIPTS)
        except SwitchboardError:
            continue  # a sender on another machine has its receipts there
        for receipt in newest:
            receipts.setdefault(receipt.in_reply_to, []).append(receipt)
    redactor = state.services.redactor
    return await work_thread.run(
        work_thread.OWN,
        lambda: {
            "id": conversation.id,
            "subject": redactor.redact_text(conversation.subject),
            "people": conversation.members,
            "messages": [
                {
                    **_full(redactor, entry.message.recipient, entry),
                    "receipts": _masked(redactor, receipts.get(entry.message.id, [])),
                }
                for entry in conversation.messages
            ],
            "workflow": _masked(redactor, _run(conversation.run)) if conversation.run is not None else None,
        },
    )


async def attachment(state: DashboardState, request: ApiRequest) -> AttachmentContent:
    """Return the content of an attachment: as text if it is text, else as base64, up to a limit."""
    store = await require_mail(state).store()
    agent, id = request.names
    stored = await store.read(agent_registry.parse_name(agent), id)
    about = _attachment(stored.message)
    if about is None:
        raise HTTPException(404, "This message has no attachment.")
    redactor, whole = state.services.redactor, await store.attachment(stored.message)
    # Cut so late that no secret within the shown part is cut.
    kept = whole[: redactor.chars_to_keep(MOST_ATTACHMENT_BYTES)]
    data = await work_thread.run(work_thread.OWN, partial(redactor.mask_registered_json, kept))
    text = _as_text(data[:MOST_ATTACHMENT_BYTES])
    return AttachmentContent(
        about.name,
        about.media_type,
        len(whole),
        len(whole) > MOST_ATTACHMENT_BYTES,
        clean(redactor.redact_text(text)) if text is not None else None,
        encode_base64(data[:MOST_ATTACHMENT_BYTES]) if text is None else None,
    )


async def dead(state: DashboardState, request: ApiRequest) -> DeadLetters:
    """Return the dead letters of all agents, newest first, each with its reason."""
    store = await require_mail(state).store()
    letters = await store.all_dead_letters()
    letters.sort(key=lambda letter: letter.at, reverse=True)
    text = state.services.redactor.redact_text
    rows = [
        DeadRow(
            letter.agent,
            letter.id,
            text(letter.reason),
            letter.at,
            letter.message.sender if letter.message is not None else "",
            letter.message.action if letter.message is not None else "",
            text(subject_of(letter.message)) if letter.message is not None else "",
        )
        for letter in letters[:MOST_DEAD]
    ]
    return DeadLetters(rows, len(letters))


async def workflow(state: DashboardState, request: ApiRequest) -> object:
    """Return one workflow as a timeline: its steps with their times, rounds, artifacts and messages."""
    store = await require_mail(state).store()
    run = engine.runs(await store.state()).get(request.names[0])
    if run is None:
        raise HTTPException(404, f"There is no workflow '{request.names[0][:100]}'.")
    steps, before = [], run.started_at
    for step in run.steps:
        artifacts = [await _artifact(state, request, artifact) for artifact in step.artifacts]
        steps.append(
            {
                **msgspec.to_builtins(step),
                "round": step.round,
                "seconds": _seconds(before, step.at),
                "artifacts": artifacts,
            }
        )
        before = step.at
    current = run.current_phase
    shown = {
        **_run(run),
        "timeline": steps,
        "holder": run.actor if current is not None else "",
        "waitingSeconds": _seconds(before, datetime.now(UTC).isoformat()) if current is not None else None,
        "rounds": max((step.round for step in run.steps), default=0),
        "thread": thread_of(run.id),
    }
    return await work_thread.run(work_thread.OWN, partial(_masked, state.services.redactor, shown))


async def _artifact(
    state: DashboardState, request: ApiRequest, artifact: WorkflowArtifact
) -> dict[str, object]:
    """Return an artifact with the beginning of the file as it is now, for viewers who may see contents."""
    row: dict[str, object] = {"path": artifact.path, "bytes": artifact.bytes, "sha256": artifact.sha256}
    if not request.viewer.may_act:
        return row
    try:
        data = await asyncio.to_thread(read_file, state.workspace.folder, artifact.path)
    except (SwitchboardError, OSError):
        return {**row, "state": "gone"}
    row["state"] = "same" if sha256(data).hexdigest() == artifact.sha256 else "changed"
    text = _as_text(data[: 4 * PREVIEW_CHARS])
    if text is not None:
        row["preview"] = clean(state.services.redactor.redact_and_clip(text, PREVIEW_CHARS))
        row["cut"] = len(text) > PREVIEW_CHARS or len(data) > 4 * PREVIEW_CHARS
    return row


def _as_text(data: bytes) -> str | None:
    """Return data that is text; a character may be cut at its end. None if it is not text."""
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        whole = data[: problem.start]
        return whole.decode() if len(data) - problem.start < 4 and b"\0" not in whole else None


def _seconds(begin: str, end: str) -> float | None:
    try:
        return round((datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds(), 3)
    except (ValueError, TypeError):
        return None


def _attachment(message: MailMessage) -> AttachmentRow | None:
    record = message.metadata.get("attachment")
    if not isinstance(record, dict):
        return None
    size = record.get("bytes")
    return AttachmentRow(
        str(record.get("name") or "message.txt"),
        str(record.get("mediaType") or "text/plain"),
        size if isinstance(size, int) else 0,
    )


async def workflow_runs(state: DashboardState, request: ApiRequest) -> object:
    """Return all workflow runs, latest first."""
    store = await require_mail(state).store()
    runs = engine.runs(await store.state())
    shown = [_run(run) for run in reversed(runs.values())]
    return {
        "workflows": await work_thread.run(work_thread.OWN, partial(_masked, state.services.redactor, shown))
    }


def _masked(redactor: Redactor, value: object) -> object:
    """Return a value for a viewer, with every secret in its texts masked."""
    return redactor.redact_value(msgspec.to_builtins(value))


def _brief(redactor: Redactor, agent: str, stored: StoredMessage) -> dict[str, object]:
    message = stored.message
    excerpt = redactor.redact_and_clip(message.payload, 4 * EXCERPT_CHARS)
    return {
        "to": agent,
        "id": message.id,
        "order": stored.order,
        "from": message.sender,
        "action": message.action,
        "excerpt": summarise(excerpt, EXCERPT_CHARS),
        "place": stored.place,
        "verified": stored.verified,
        "priority": message.priority,
        "subject": redactor.redact_text(message.subject),
        "thread": message.thread,
        "deadline": message.ack_by or "",
        "attachment": _attachment(message),
        "workflow": str(message.metadata.get("workflow") or ""),
        "at": message.created_at,
        "outcome": stored.outcome or "",
        "replyTo": message.reply_to or "",
    }


def _full(redactor: Redactor, agent: str, stored: StoredMessage) -> dict[str, object]:
    message = stored.message
    return {
        **_brief(redactor, agent, stored),
        "payload": redactor.redact_uncut(message.payload),
        "team": message.team or "",
        "reason": redactor.redact_text(stored.reason or ""),
        "metadata": redactor.redact_value(message.metadata),
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


def subject_of(message: MailMessage) -> str:
    """Return the subject; without one, the beginning of the text."""
    return " ".join((message.subject or message.payload)[:200].split())
