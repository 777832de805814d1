"""API endpoint with everything that waits for a person's decision: calls, drift, new children, commands to type."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from msgspec import Struct, field

from switchboard_mcp.children.locking.drift_review import digest
from switchboard_mcp.errors import Failure, shell_word
from switchboard_mcp.gateway.gate.questions import Question
from switchboard_mcp.server.dashboard.api.approvals import open_questions
from switchboard_mcp.server.dashboard.api.routes import ApiRequest
from switchboard_mcp.server.dashboard.dashboard_access import ACT, ADMIN
from switchboard_mcp.server.dashboard.mail_view import MessageFilter
from switchboard_mcp.server.dashboard.state import DashboardState
from switchboard_mcp.suites.sanitize import clean

MOST_CHANGES = 20
MOST_EXECUTES = 50
MOST_COMMAND_CHARS = 4_000
# Failures of children that a person must approve first.
UNAPPROVED = frozenset({"child_not_allowed", "launch_refused"})
# The failure of a child that is approved and must be locked next.
UNLOCKED = "child_not_locked"


class InboxAction(Struct, frozen=True):
    """A decision: the request that makes it. It needs a token with this `scope`.

    If `look` has a path, a `POST` to it shows what is decided, and the `mark` that the request needs.
    """

    name: str
    path: str
    scope: str
    body: dict[str, Any] = {}
    look: str = ""


class InboxItem(Struct, frozen=True, rename="camel", kw_only=True):
    """Something that waits. `text` says what will happen; `command` decides it in a terminal, if nothing here can."""

    id: str
    kind: str
    child: str
    subtool: str = ""
    title: str
    text: str = ""
    arguments: str = ""
    code: str = ""
    reason: str = ""
    client: str = ""
    asked_by: str = field(default="", name="from")
    at: int = 0
    expires_at: int = 0
    actions: list[InboxAction] = []
    command: str = ""


class Inbox(Struct, frozen=True):
    """All that waits, the most urgent first: calls before the rest."""

    items: list[InboxItem]


async def inbox(state: DashboardState, request: ApiRequest) -> Inbox:
    """Return what waits for a decision. A viewer who may not decide sees no arguments."""
    items = [*await _calls(state, request), *await _executes(state, request)]
    return Inbox([*items, *_drift(state), *_new_children(state)])


async def _calls(state: DashboardState, request: ApiRequest) -> list[InboxItem]:
    return [
        InboxItem(
            id=question.id,
            kind="program" if question.code else "call",
            child=question.child,
            subtool=question.subtool,
            title=_title(question),
            text=question.scope,
            arguments=question.arguments if request.viewer.may_act else "",
            code=question.code if request.viewer.may_act else "",
            reason=question.reason,
            client=question.client,
            asked_by=question.principal,
            at=int(question.asked_at * 1000),
            expires_at=int(question.expires_at * 1000),
            actions=[
                InboxAction(name, f"/api/approvals/{question.id}/{name}", ACT) for name in ("allow", "deny")
            ],
        )
        for question in await open_questions(state)
    ]


def _title(question: Question) -> str:
    who = question.client or "An agent"
    if question.code:
        return f"{who} wants to run a program"
    return f"{who} wants to call '{question.subtool}' of '{question.child}'"


async def _executes(state: DashboardState, request: ApiRequest) -> list[InboxItem]:
    """Return the commands that wait to be typed into a terminal."""
    if state.mail_server is None:
        return []
    page = await state.mail.page(MessageFilter(action="execute", place="inbox", limit=MOST_EXECUTES))
    items, redactor = [], state.services.redactor
    for agent, stored in page.messages:
        path = f"/api/mail/messages/{agent}/{stored.message.id}"
        items.append(
            InboxItem(
                id=stored.message.id,
                kind="execute",
                child="mail",
                title=f"{stored.message.sender} asks {agent} to run a command",
                text="If approved, the terminal types it.",
                arguments=clean(redactor.redact_and_clip(stored.message.payload, MOST_COMMAND_CHARS))
                if request.viewer.may_act
                else "",
                asked_by=stored.message.sender,
                actions=[
                    InboxAction("approve", f"{path}/approve", ADMIN),
                    InboxAction("reject", f"{path}/reject", ACT),
                ],
            )
        )
    return items


def _drift(state: DashboardState) -> list[InboxItem]:
    items = []
    for suite in state.gateway.all_suites.values():
        changes = suite.child.inventory.drift()
        if changes:
            name, mark = suite.child.name, digest(changes)
            shown = [f"{change.tool}: {change.describe()}" for change in changes[:MOST_CHANGES]]
            items.append(
                InboxItem(
                    id=f"drift {name} {mark}",
                    kind="drift",
                    child=name,
                    title=f"'{name}' offers other tools than its lock",
                    text=clean(state.services.redactor.redact_text("\n".join(shown))),
                    actions=[InboxAction("accept", f"/api/children/{name}/approve", ADMIN, {"mark": mark})],
                    command=f"switchboard lock --accept {shell_word(name)}",
                )
            )
    return items


def _new_children(state: DashboardState) -> list[InboxItem]:
    """Return the children that governed mode refuses until they are approved and locked."""
    failures = dict(state.gateway.absent)
    for suite in state.gateway.all_suites.values():
        problem = suite.child.last_failure
        if problem is not None and problem.code in UNAPPROVED:
            failures[suite.child.name] = suite.child.redact(problem)
        elif (unusable := suite.child.inventory.blocked_reason()) is not None:
            failures[suite.child.name] = unusable
    return [
        _new_child(str(problem.child or name), problem)
        for name, problem in failures.items()
        if problem.code in UNAPPROVED or problem.code == UNLOCKED
    ]


def _new_child(name: str, problem: Failure) -> InboxItem:
    """Return a child with its next step: it is approved first, here or in a terminal, then locked in a terminal."""
    if problem.code == UNLOCKED:
        title, command, actions = f"'{name}' waits to be locked", f"switchboard lock {shell_word(name)}", []
    else:
        path = f"/api/children/{quote(name, safe='')}"
        title, command = f"'{name}' waits for approval", f"switchboard approve {shell_word(name)}"
        actions = [InboxAction("approve", f"{path}/approval", ADMIN, look=f"{path}/proposal")]
    return InboxItem(
        id=f"child {name} {problem.code}",
        kind="child",
        child=name,
        title=title,
        text=problem.message,
        reason=problem.hint or "",
        actions=actions,
        command=command,
    )
