"""Runs workflows: starts, advances and stops them, in the shared state.

Each change is decided by `workflows.steps` under the state's lock. Then the next agent is notified by mail, with the
action of the phase, so it wakes as for any message; notices lost in a crash are sent by the next process that looks.
Not aware of tools and commands.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from switchboard_mcp.database.machine_clocks import stamp
from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.path_patterns import artifact_path
from switchboard_mcp.mail.store.store import MessageStore, State
from switchboard_mcp.mail.workflows import notices
from switchboard_mcp.mail.workflows.artifact_files import scan
from switchboard_mcp.mail.workflows.definitions import Definition, Moment, WorkflowRun, is_active
from switchboard_mcp.mail.workflows.library import available
from switchboard_mcp.mail.workflows.rules import assign_parts, busy_failure
from switchboard_mcp.mail.workflows.steps import Complete, Event, Lapse, Skip, StopRun, advance
from switchboard_mcp.suites.fuzzy import nearest

SECTION = "workflows"
# Finished runs kept in the state; the record of each stays in the reviews folder.
MAX_ENDED_RUNS = 20
MAX_ARTIFACTS = 100


class StepOutcome(Struct):
    """A run after a step, and notices that could not be sent."""

    run: WorkflowRun
    warnings: list[str] = []


def moment(idle_minutes: int) -> Moment:
    """Return the current time, and the time until which a run then reserves its agents."""
    at = datetime.now(UTC)
    return Moment(stamp(at), stamp(at + timedelta(minutes=idle_minutes)))


def runs(state: State) -> dict[str, WorkflowRun]:
    """Return all runs by id, in order of their start; unreadable ones are skipped and left alone."""
    by_id = {}
    for id, entry in _section(state).items():
        with suppress(msgspec.ValidationError):
            by_id[id] = msgspec.convert(entry, WorkflowRun)
    return dict(sorted(by_id.items(), key=lambda item: item[1].started_at))


def run_of(state: State, agent: str) -> WorkflowRun | None:
    """Return the run in which an agent has a part now."""
    return next((run for run in _running(state) if agent in run.agents.values()), None)


def view_of(state: State, agent: str) -> dict[str, object] | None:
    """Return the run in which an agent has a part now, as shown to it."""
    run = run_of(state, agent)
    return None if run is None else notices.run_view(run, agent)


def find(state: State, agent: str, workflow: str = "") -> WorkflowRun:
    """Return a run by id, else the agent's own, else the only one it has started."""
    all_runs = runs(state)
    if workflow:
        if workflow not in all_runs:
            near = nearest(workflow, all_runs) or list(all_runs)[-3:]
            message = f"There is no current or recent workflow '{workflow[:80]}'."
            raise refused("mail_workflow_unknown", message, nearest=near)
        return all_runs[workflow]
    own = run_of(state, agent)
    started = [run for run in _running(state) if run.started_by == agent]
    if own is None and len(started) == 1:
        own = started[0]
    if own is None:
        message = f"Agent '{agent}' is not in a workflow."
        if started:
            message += " Pass the id of one that you started as `workflow`."
        raise refused("mail_workflow_unknown", message, nearest=[run.id for run in started] or None)
    return own


async def definitions(store: MessageStore) -> dict[str, Definition | Failure]:
    """Return the workflows that can be started, or the problem of each."""
    return await asyncio.to_thread(available, store.path)


async def start(
    store: MessageStore,
    by: str,
    name: str,
    *,
    agents: Mapping[str, str] | None = None,
    subject: str = "",
    verified: bool = True,
) -> StepOutcome:
    """Start a workflow. `agents` maps parts to agents; the others are chosen by role.

    `verified` means that the caller knows `by` from its connection; otherwise the step is marked, here and below.
    """
    definition = await _definition(store, name)
    registered = await store.agents()
    assigned = {part: agent_registry.parse_name(agent) for part, agent in (agents or {}).items()}
    for agent in assigned.values():
        agent_registry.require_agent(agent, registered)

    def change(state: State) -> WorkflowRun:
        roles = {
            agent: entry.role for agent, entry in agent_registry.agents(state).items() if agent in registered
        }
        parts = assign_parts(definition, assigned, roles, by)
        if isinstance(parts, Failure):
            raise SwitchboardError(parts)
        when = moment(definition.idle_minutes)
        for agent in dict.fromkeys(parts.values()):
            _require_free(state, agent, when)
        run = WorkflowRun(
            id=_new_id(state, definition.name),
            definition=definition,
            agents=parts,
            subject=subject,
            started_by=by,
            started_at=when.at,
            due=when.due,
            phase=definition.phases[0].name,
            unverified=not verified,
        )
        _store_run(state, run)
        return run

    outcome = await _send_notices(store, await store.update(change))
    await send_pending_notices(store)  # for runs that lapsed because of this one
    return outcome


async def complete(
    store: MessageStore,
    by: str,
    phase: str,
    *,
    workflow: str = "",
    next: str = "",
    artifacts: Sequence[str] = (),
    note: str = "",
    verified: bool = True,
) -> StepOutcome:
    """Complete a phase, by default the current one. Its artifacts are scanned now.

    `artifacts` names the files that match patterns.
    """
    run = find(await send_pending_notices(store), by, workflow)
    named = parse_artifacts(artifacts)
    scanned = await asyncio.to_thread(scan, os.path.dirname(store.path), [*run.scan_paths(), *named])
    done = Complete(
        phase=phase or run.phase,
        by=by,
        when=moment(run.definition.idle_minutes),
        found=scanned,
        named=named,
        next=next,
        note=note,
        verified=verified,
    )
    return await _move(store, run, done)


async def skip(
    store: MessageStore,
    by: str,
    phase: str,
    reason: str,
    *,
    workflow: str = "",
    next: str = "",
    verified: bool = True,
) -> StepOutcome:
    """Skip a phase with a recorded reason."""
    state = await send_pending_notices(store)
    run = find(state, by, workflow)
    left_out = Skip(
        phase=phase or run.phase,
        by=by,
        when=moment(run.definition.idle_minutes),
        reason=reason,
        next=next,
        leads=is_lead(state, by),
        verified=verified,
    )
    return await _move(store, run, left_out)


async def stop(
    store: MessageStore, by: str, reason: str, *, workflow: str = "", verified: bool = True
) -> StepOutcome:
    """Stop a workflow early with a recorded reason."""
    state = await send_pending_notices(store)
    run = find(state, by, workflow)
    ended = StopRun(by=by, when=moment(0), reason=reason, leads=is_lead(state, by), verified=verified)
    return await _move(store, run, ended)


async def send_pending_notices(store: MessageStore) -> State:
    """Send notices that a process left unsent when it died, and return the state."""
    state = await store.state()
    for run in runs(state).values():
        if run.notified < len(run.steps):
            await _send_notices(store, run)
    return state


async def _move(store: MessageStore, run: WorkflowRun, event: Event) -> StepOutcome:
    return await _send_notices(store, await store.update(state_change(run, event)))


def state_change(seen: WorkflowRun, event: Event) -> Callable[[State], WorkflowRun]:
    """Return the state change that applies an event to a run; fails if the run has moved since it was `seen`."""

    def change(state: State) -> WorkflowRun:
        run = find(state, "", seen.id)
        if isinstance(event, Complete) and len(run.steps) != len(seen.steps):
            message = f"Workflow '{run.id}' has advanced in the meantime."
            raise refused("mail_workflow_refused", message)
        after = advance(run, event)
        if isinstance(after, Failure):
            raise SwitchboardError(after)
        _store_run(state, after)
        return after

    return change


async def _send_notices(store: MessageStore, run: WorkflowRun) -> StepOutcome:
    warnings = await notices.send_notices(store, run)

    def change(state: State) -> None:
        now = runs(state).get(run.id)
        if now is not None and now.notified < len(run.steps):
            _store_run(state, msgspec.structs.replace(now, notified=len(run.steps)))
        _drop_oldest(state)

    await store.update(change)
    return StepOutcome(run, warnings)


def _drop_oldest(state: State) -> None:
    finished = [
        run.id for run in runs(state).values() if run.status != "running" and run.notified >= len(run.steps)
    ]
    for id in finished[:-MAX_ENDED_RUNS]:
        del _section(state)[id]


def _require_free(state: State, agent: str, when: Moment) -> None:
    """Raise `mail_agent_busy` if another run reserves the agent; an overdue run lapses instead."""
    run = run_of(state, agent)
    if run is None:
        return
    if is_active(run, when.at):
        raise SwitchboardError(busy_failure(run, agent, "cannot join another one"))
    lapsed = advance(
        run,
        Lapse(when=when, reason=f"No phase was completed by {run.due}, and '{agent}' is needed elsewhere."),
    )
    if isinstance(lapsed, Failure):
        raise SwitchboardError(lapsed)
    _store_run(state, lapsed)


async def _definition(store: MessageStore, name: str) -> Definition:
    by_name = await definitions(store)
    definition = by_name.get(name)
    if definition is None:
        message = f"There is no workflow '{name[:80]}'. Available: {', '.join(sorted(by_name))}."
        raise refused("mail_workflow_unknown", message, nearest=nearest(name, by_name))
    if isinstance(definition, Failure):
        raise SwitchboardError(definition)
    return definition


def parse_artifacts(written: Sequence[str]) -> list[str]:
    """Return the normalized paths of artifacts named by an agent."""
    return [_parse_artifact(path) for path in written[:MAX_ARTIFACTS]]


def _parse_artifact(written: str) -> str:
    path = artifact_path(written)
    if path is None:
        message = f"'{written[:200]}' cannot be an artifact: it must be a path relative to the workspace and inside it"
        raise refused(
            "mail_artifact_missing", f"{message}, and in .switchboard only below .switchboard/reviews/."
        )
    return path


def _new_id(state: State, name: str) -> str:
    while (id := f"{name}-{os.urandom(3).hex()}") in _section(state):
        pass
    return id


def is_lead(state: State, agent: str) -> bool:
    """Return True if an agent has the role lead."""
    return agent_registry.agents(state).get(agent, agent_registry.Agent()).role == "lead"


def _running(state: State) -> list[WorkflowRun]:
    return [run for run in runs(state).values() if run.status == "running"]


def _store_run(state: State, run: WorkflowRun) -> None:
    _section(state)[run.id] = msgspec.to_builtins(run)


def _section(state: State) -> dict[str, object]:
    part = state.get(SECTION)
    if not isinstance(part, dict):
        part = state[SECTION] = {}
    return part
