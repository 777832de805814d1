"""Workflows as agents live them: started, led from phase to phase, stopped; kept in the state that all processes share.

Each change is decided by `mail.workflows.steps` under the state's lock. Then whose turn it is hears of it by mail, with
the phase's action, so that it is woken as by any message; a crash in between is made good by whoever looks next.
Owns this; how tools and commands ask for it is theirs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.path_patterns import artifact_path
from switchboard_mcp.mail.store.clocks import stamp
from switchboard_mcp.mail.store.store import MessageStore, State
from switchboard_mcp.mail.workflows import notices
from switchboard_mcp.mail.workflows.artifact_files import scan
from switchboard_mcp.mail.workflows.definitions import Definition, Moment, WorkflowRun, is_active
from switchboard_mcp.mail.workflows.library import available
from switchboard_mcp.mail.workflows.rules import assign_parts, busy_failure
from switchboard_mcp.mail.workflows.steps import Complete, Event, Lapse, Skip, StopRun, advance
from switchboard_mcp.suites.fuzzy import nearest

SECTION = "workflows"
# Runs that are over and stay in the state; the record of each is among the reviews.
MAX_ENDED_RUNS = 20
MAX_ARTIFACTS = 100


class StepOutcome(Struct):
    """A run after a step, and what could not be told to somebody."""

    run: WorkflowRun
    warnings: list[str] = []


def moment(idle_minutes: int) -> Moment:
    """Now, and until when a run then holds its agents."""
    at = datetime.now(UTC)
    return Moment(stamp(at), stamp(at + timedelta(minutes=idle_minutes)))


def runs(state: State) -> dict[str, WorkflowRun]:
    """All runs by id, in the order they were started; what cannot be read is left out, and left alone."""
    found = {}
    for id, entry in _section(state).items():
        with suppress(msgspec.ValidationError):
            found[id] = msgspec.convert(entry, WorkflowRun)
    return found


def run_of(state: State, agent: str) -> WorkflowRun | None:
    """The run an agent has a part in now."""
    return next((run for run in _running(state) if agent in run.agents.values()), None)


def find(state: State, agent: str, workflow: str = "") -> WorkflowRun:
    """The run that is meant: by its id, else the agent's own, else the only one it has started."""
    known = runs(state)
    if workflow:
        if workflow not in known:
            near = nearest(workflow, known) or list(known)[-3:]
            message = f"There is no workflow '{workflow[:80]}' under way or lately ended."
            raise refused("mail_workflow_unknown", message, nearest=near)
        return known[workflow]
    own = run_of(state, agent)
    started = [run for run in _running(state) if run.started_by == agent]
    if own is None and len(started) == 1:
        own = started[0]
    if own is None:
        message = f"'{agent}' is in no workflow."
        if started:
            message += " Say with `workflow` which of those you have started is meant."
        raise refused("mail_workflow_unknown", message, nearest=[run.id for run in started] or None)
    return own


async def definitions(store: MessageStore) -> dict[str, Definition | Failure]:
    """What can be started here, or what is wrong with it."""
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
    """Begin a workflow. `agents` says who has which part; who is left out is found by role.

    Here as below, `by` is `verified` where the caller knows it from the connection; else the step is marked.
    """
    definition = await _definition(store, name)
    known = await store.agents()
    assigned = {part: agent_registry.parse_name(agent) for part, agent in (agents or {}).items()}
    for agent in assigned.values():
        agent_registry.require_agent(agent, known)

    def change(state: State) -> WorkflowRun:
        roles = {agent: entry.role for agent, entry in agent_registry.agents(state).items() if agent in known}
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

    moved = await _send_notices(store, await store.update(change))
    await send_pending_notices(store)  # of runs that have lapsed by it
    return moved


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
    """The phase is done; without a name, the one it is in. Its artifacts are looked at now; those that only a pattern
    names are in `artifacts`.
    """
    run = find(await send_pending_notices(store), by, workflow)
    named = parse_artifacts(artifacts)
    found = await asyncio.to_thread(scan, os.path.dirname(store.path), [*run.scan_paths(), *named])
    done = Complete(
        phase=phase or run.phase,
        by=by,
        when=moment(run.definition.idle_minutes),
        found=found,
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
    """The phase is left out, for a reason that is recorded."""
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
    """End a workflow before its time, for a reason that is recorded."""
    state = await send_pending_notices(store)
    run = find(state, by, workflow)
    ended = StopRun(by=by, when=moment(0), reason=reason, leads=is_lead(state, by), verified=verified)
    return await _move(store, run, ended)


async def send_pending_notices(store: MessageStore) -> State:
    """The state, after telling what a process that died had left untold."""
    state = await store.state()
    for run in runs(state).values():
        if run.told < len(run.steps):
            await _send_notices(store, run)
    return state


async def _move(store: MessageStore, run: WorkflowRun, event: Event) -> StepOutcome:
    return await _send_notices(store, await store.update(state_change(run, event)))


def state_change(seen: WorkflowRun, event: Event) -> Callable[[State], WorkflowRun]:
    """The change of the state that an event makes of a run, as it was seen when the event was made."""

    def change(state: State) -> WorkflowRun:
        run = find(state, "", seen.id)
        if isinstance(event, Complete) and len(run.steps) != len(seen.steps):
            message = f"Workflow '{run.id}' has gone on meanwhile."
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
        if now is not None and now.told < len(run.steps):
            _store_run(state, msgspec.structs.replace(now, told=len(run.steps)))
        _drop_oldest(state)

    await store.update(change)
    return StepOutcome(run, warnings)


def _drop_oldest(state: State) -> None:
    over = [run.id for run in runs(state).values() if run.status != "running" and run.told >= len(run.steps)]
    for id in over[:-MAX_ENDED_RUNS]:
        del _section(state)[id]


def _require_free(state: State, agent: str, when: Moment) -> None:
    """Refuse somebody whom another run holds; one that has held it for too long ends."""
    held = run_of(state, agent)
    if held is None:
        return
    if is_active(held, when.at):
        raise SwitchboardError(busy_failure(held, agent, "cannot be in another"))
    lapsed = advance(
        held, Lapse(when=when, reason=f"Nothing happened until {held.due}; '{agent}' is needed.")
    )
    if isinstance(lapsed, Failure):
        raise SwitchboardError(lapsed)
    _store_run(state, lapsed)


async def _definition(store: MessageStore, name: str) -> Definition:
    known = await definitions(store)
    found = known.get(name)
    if found is None:
        message = f"There is no workflow called '{name[:80]}'; there are {', '.join(sorted(known))}."
        raise refused("mail_workflow_unknown", message, nearest=nearest(name, known))
    if isinstance(found, Failure):
        raise SwitchboardError(found)
    return found


def parse_artifacts(written: Sequence[str]) -> list[str]:
    """The files an agent names, each a path in the workspace."""
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
    """Whether an agent is a lead."""
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
