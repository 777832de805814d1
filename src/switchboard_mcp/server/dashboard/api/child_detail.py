"""API endpoints that show one child: subtools, drift, sandbox, history, stderr and resources. They start nothing."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct
from starlette.exceptions import HTTPException

from switchboard_mcp.children.catalog import Tool
from switchboard_mcp.children.child import Child
from switchboard_mcp.children.locking.drift_review import digest
from switchboard_mcp.config.models import sandbox_of
from switchboard_mcp.config.sandbox import SandboxWords
from switchboard_mcp.config.variables import secret_values
from switchboard_mcp.gateway.status import SandboxRefusal
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.policy.drift import ToolChange
from switchboard_mcp.server.dashboard.api.overview import find_child
from switchboard_mcp.server.dashboard.api.routes import ApiRequest
from switchboard_mcp.server.dashboard.resource_use import SAMPLE_S, ResourcePoint
from switchboard_mcp.server.dashboard.state import DashboardState
from switchboard_mcp.suites.sanitize import clean
from switchboard_mcp.suites.summary import summarise

SUMMARY_CHARS = 300
EVENT_CHARS = 2_000
MAX_DIFF_CHARS = 20_000
MAX_REFUSALS = 100
MAX_SCHEMA_BYTES = 262_144


class StderrLine(Struct, frozen=True):
    """A line of stderr and its number, from 1."""

    n: int
    text: str


class StderrPage(Struct, frozen=True):
    """Lines of stderr. `next` is for `after`; `lost` lines in between are not kept any more."""

    lines: list[StderrLine]
    next: int
    lost: int


class ResourceReport(Struct, frozen=True, rename="camel"):
    """CPU and memory of the process and all below it, over at most an hour, while a dashboard was open.

    A point is `[time in ms, percent of a core, bytes]`.
    """

    points: list[ResourcePoint]
    every_seconds: float


class SubtoolDetail(Struct, frozen=True, rename="camel"):
    """One subtool as the child describes it, cleaned. A schema is null if there is none, or if it is too large."""

    name: str
    description: str
    input_schema: Any
    output_schema: Any
    annotations: Any


async def child(state: DashboardState, request: ApiRequest) -> object:
    """Return one child with its subtools, drift, history and sandbox."""
    id = request.names[0]
    disabled = next((spec for spec in state.workspace.disabled if spec.name == id), None)
    if disabled is not None and id not in state.child_names():
        row = next(row for row in state.rows() if row["id"] == id)
        return {**row, "subtoolList": [], "driftMark": "", "driftChanges": [], "events": [], "disabled": True}
    suite, match = find_child(state, id)
    changes = match.inventory.drift()
    row = next(row for row in state.rows() if row["id"] == id)
    spec, redactor = match.spec, state.services.redactor
    # A child that was never started has not registered its secrets yet.
    for secret in secret_values(spec, state.services.environ):
        redactor.register(secret)
    tools = suite.permitted(match.inventory.known_tools()) if match.snapshot is not None else []
    return {
        **row,
        "source": spec.source,
        "command": redactor.redact_text(spec.command or spec.url),
        "weight": suite.cost().weight if match.snapshot is not None else None,
        "subtoolList": [
            {"name": tool.name, "summary": summarise(tool.description or "", SUMMARY_CHARS)} for tool in tools
        ],
        "driftMark": digest(changes) if changes else "",
        "driftChanges": [_change(state, change) for change in changes],
        "events": _events(state, match),
        "startTimes": [round(event.seconds, 3) for event in match.history if event.seconds >= 0],
        "sandboxPolicy": _sandbox(state, match),
        "builtin": spec.kind == "builtin",
        "disabled": False,
    }


async def stderr(state: DashboardState, request: ApiRequest) -> StderrPage:
    """Return what the child wrote to stderr. A child that has ended has the lines of its last failure."""
    _, match = find_child(state, request.names[0])
    after = request.number("after", 0, 1 << 53)
    if match.connection is None:
        problem = match.last_failure
        lines = (match.redact(problem).stderr or []) if problem is not None else []
        shown = [StderrLine(number, clean(line)) for number, line in enumerate(lines, 1) if number > after]
        return StderrPage(shown, len(lines), 0)
    count, lines = match.connection.stderr_since(after)
    first = count - len(lines)
    shown = [StderrLine(number, clean(line)) for number, line in enumerate(lines, first + 1)]
    return StderrPage(shown, count, max(0, first - after) if after <= count else 0)


async def resources(state: DashboardState, request: ApiRequest) -> ResourceReport:
    """Return CPU and memory of a child over time."""
    find_child(state, request.names[0])
    series = state.resources.series.get(request.names[0])
    return ResourceReport(series.points() if series is not None else [], SAMPLE_S)


async def subtool(state: DashboardState, request: ApiRequest) -> SubtoolDetail:
    """Return one subtool with its schemas."""
    suite, match = find_child(state, request.names[0])
    tool = find_tool(suite, match, request.names[1])
    shown = tool.sanitized()
    return SubtoolDetail(
        shown.name,
        shown.description or "",
        _schema(shown.input_schema),
        _schema(shown.output_schema),
        msgspec.to_builtins(tool.annotations) if tool.annotations is not UNSET else None,
    )


def find_tool(suite: ChildSuite, child: Child, name: str) -> Tool:
    """Return a subtool that hosts may call. Raise 404 if there is none."""
    tools = suite.permitted(child.inventory.known_tools()) if child.snapshot is not None else []
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        raise HTTPException(
            404, f"'{child.name}' has no subtool '{clean(name)[:100]}', or it is not allowed."
        )
    return tool


def _schema(schema: object) -> object:
    if not isinstance(schema, Raw) or len(memoryview(schema)) > MAX_SCHEMA_BYTES:
        return None
    try:
        return msgspec.json.decode(schema)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _change(state: DashboardState, change: ToolChange) -> dict[str, object]:
    clip = state.services.redactor.redact_and_clip
    text = change.describe()
    return {
        "tool": change.tool,
        "part": change.part,
        "kind": change.kind,
        "prose": change.prose,
        "before": clean(clip(change.before, MAX_DIFF_CHARS)),
        "after": clean(clip(change.after, MAX_DIFF_CHARS)),
        "text": text,
        # The former name of `text`, removed in the next release.
        "told": text,
    }


def _events(state: DashboardState, child: Child) -> list[dict[str, object]]:
    clip = state.services.redactor.redact_and_clip
    return [
        {
            "at": int(event.at * 1000),
            "event": event.event,
            "state": event.state,
            "text": clean(clip(event.text, EVENT_CHARS)),
            "seconds": round(event.seconds, 3) if event.seconds >= 0 else None,
        }
        for event in child.history
    ]


def _sandbox(state: DashboardState, child: Child) -> dict[str, object] | None:
    """Return the sandbox in the words of the config, and what it is here if the child runs; None if it has none."""
    words: SandboxWords = sandbox_of(child.name, state.workspace.config)
    if not child.is_sandboxed:
        return None
    text = state.services.redactor.redact_text
    refusals = [SandboxRefusal(clean(text), times) for text, times in child.newest_refusals(MAX_REFUSALS)]
    policy: dict[str, object] = {"words": words, "denied": child.refusals_total, "refusals": refusals}
    running = child.connection.sandbox if child.connection is not None else None
    if running is not None:
        plan = running.plan
        policy |= {
            "mechanism": plan.mechanism,
            "read": [text(path) for path in plan.read],
            "write": [text(path) for path in plan.write],
            "protect": [text(path) for path in plan.protect],
            "promises": [
                {
                    "name": promise.name,
                    "text": promise.text,
                    "holds": promise.holds,
                    "by": promise.by,
                    "why": promise.why,
                }
                for promise in plan.promises
            ],
        }
    return policy
