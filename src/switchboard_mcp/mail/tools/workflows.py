"""Tools for workflows and reservations. The rows are in `TOOLS` at the end.

Thin wrappers around `mail.workflows` and `mail.reservations`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from switchboard_mcp.inprocess.server_app import ToolRequest, ToolSpec
from switchboard_mcp.mail import agent_registry, reservations
from switchboard_mcp.mail.agent_session import AgentSession
from switchboard_mcp.mail.tools.agents import MailToolArgs, Words
from switchboard_mcp.mail.workflows import engine
from switchboard_mcp.mail.workflows.notices import definitions_view, run_view

Id = Annotated[str | None, Meta(description="Workflow id; defaults to yours.")]
Reason = Annotated[str, Meta(min_length=1, max_length=1_000)]
Paths = Annotated[list[str], Meta(min_length=1, max_length=50, description="Paths, globs or folders.")]


class StartWorkflow(MailToolArgs, kw_only=True):
    workflow: Annotated[str, Meta(min_length=1, description="hand-off, review, challenge or a custom one.")]
    agents: Annotated[
        dict[str, str], Meta(description="Part → agent, such as {reviewer: bob}; chosen by role if omitted.")
    ] = field(default_factory=dict)
    subject: Annotated[Words, Meta(description="What it is about.")] = ""


class GetWorkflowState(MailToolArgs, kw_only=True):
    workflow: Id = None
    agent: Annotated[str | None, Meta(description="The workflow of this agent.")] = None


class CompleteWorkflowPhase(MailToolArgs, kw_only=True):
    phase: Annotated[str, Meta(min_length=1, description="The current phase.")]
    workflow: Id = None
    next: Annotated[str | None, Meta(description="Next phase, if there is a choice.")] = None
    artifacts: Annotated[
        list[str], Meta(max_length=100, description="Files made, besides the required ones.")
    ] = field(default_factory=list)
    note: Words = ""
    skip_reason: Annotated[Reason | None, Meta(description="Skips the phase; recorded.")] = None


class StopWorkflow(MailToolArgs, kw_only=True):
    reason: Annotated[Reason, Meta(description="Is recorded.")]
    workflow: Id = None


class ReservePaths(MailToolArgs, kw_only=True):
    paths: Paths
    minutes: Annotated[int, Meta(ge=1, le=1_440)] = 60
    reason: Words = ""


class ReleasePaths(MailToolArgs, kw_only=True):
    paths: Annotated[list[str] | None, Meta(description="Defaults to all of yours.")] = None


async def start_workflow(session: AgentSession, args: StartWorkflow, request: ToolRequest) -> object:
    """Start a workflow."""
    agent = await session.agent()
    outcome = await engine.start(
        await session.server.store(), agent, args.workflow, agents=args.agents, subject=args.subject
    )
    return _outcome_view(outcome, agent)


async def get_workflow_state(session: AgentSession, args: GetWorkflowState, request: ToolRequest) -> object:
    """Return the state of a workflow, or the ones that can be started. Needs no registration."""
    store = await session.server.store()
    state = await engine.send_pending_notices(store)
    if args.workflow is not None:
        return run_view(engine.find(state, session.name, args.workflow), session.name)
    agent = agent_registry.parse_name(args.agent) if args.agent else await session.agent()
    run = engine.run_of(state, agent)
    if run is not None:
        return run_view(run, session.name)
    return {
        "agent": agent,
        "workflow": None,
        "started": [run.id for run in engine.runs(state).values() if run.started_by == agent],
        "available": definitions_view(await engine.definitions(store)),
    }


async def complete_workflow_phase(
    session: AgentSession, args: CompleteWorkflowPhase, request: ToolRequest
) -> object:
    """Complete or skip the current phase."""
    agent = await session.agent()
    store = await session.server.store()
    workflow, next_phase = args.workflow or "", args.next or ""
    if args.skip_reason is not None:
        outcome = await engine.skip(
            store, agent, args.phase, args.skip_reason, workflow=workflow, next=next_phase
        )
    else:
        outcome = await engine.complete(
            store,
            agent,
            args.phase,
            workflow=workflow,
            next=next_phase,
            artifacts=args.artifacts,
            note=args.note,
        )
    return _outcome_view(outcome, agent)


async def stop_workflow(session: AgentSession, args: StopWorkflow, request: ToolRequest) -> object:
    """Stop a workflow."""
    agent = await session.agent()
    outcome = await engine.stop(
        await session.server.store(), agent, args.reason, workflow=args.workflow or ""
    )
    return _outcome_view(outcome, agent)


async def reserve_paths(session: AgentSession, args: ReservePaths, request: ToolRequest) -> object:
    """Reserve paths."""
    agent = await session.agent()
    store = await session.server.store()
    own = await store.update(reservations.reserve(agent, args.paths, args.minutes, args.reason))
    others = reservations.current(await store.state(), agent_registry.now())
    return {"yours": own, "others": [row for row in others if row.holder != agent]}


async def release_paths(session: AgentSession, args: ReleasePaths, request: ToolRequest) -> object:
    """Release reserved paths."""
    agent = await session.agent()
    store = await session.server.store()
    return {"released": await store.update(reservations.release(agent, args.paths))}


def _outcome_view(outcome: engine.StepOutcome, agent: str) -> dict[str, object]:
    view = run_view(outcome.run, agent)
    return {**view, "warnings": outcome.warnings} if outcome.warnings else view


TOOLS = (
    ToolSpec(
        name="start_workflow",
        description="Start a workflow of ordered phases; each agent is notified of its turn.",
        args_type=StartWorkflow,
        handler=start_workflow,
    ),
    ToolSpec(
        name="get_workflow_state",
        description="Show your workflow: phase, whose turn, what is needed; or which you can start.",
        args_type=GetWorkflowState,
        handler=get_workflow_state,
        read_only=True,
    ),
    ToolSpec(
        name="complete_workflow_phase",
        description="Complete the phase once its artifacts exist, or skip it with a reason.",
        args_type=CompleteWorkflowPhase,
        handler=complete_workflow_phase,
    ),
    ToolSpec(
        name="stop_workflow",
        description="Stop a workflow early.",
        args_type=StopWorkflow,
        handler=stop_workflow,
        destructive=True,
    ),
    ToolSpec(
        name="reserve_paths",
        description="Tell others which files you work on. Refused, with holder and time, if already reserved.",
        args_type=ReservePaths,
        handler=reserve_paths,
        idempotent=True,
    ),
    ToolSpec(
        name="release_paths",
        description="Release reserved paths.",
        args_type=ReleasePaths,
        handler=release_paths,
        idempotent=True,
    ),
)
