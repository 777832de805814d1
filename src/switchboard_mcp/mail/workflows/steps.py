"""Steps of a workflow run: a phase completed or skipped, a stop, a lapse. `advance` decides each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from switchboard_mcp.errors import Failure, failure
from switchboard_mcp.mail.path_patterns import fits, is_pattern
from switchboard_mcp.mail.workflows.definitions import (
    END,
    STATUSES,
    How,
    Moment,
    Phase,
    WorkflowArtifact,
    WorkflowRun,
    WorkflowStep,
)

# Result of scanning a path: the file, or the reason it is not usable.
ArtifactScan: TypeAlias = Mapping[str, "WorkflowArtifact | str"]


class Complete(Struct, frozen=True, kw_only=True):
    """The actor completes the phase. `named` are the files it names, `found` is the scan of all paths."""

    phase: str
    by: str
    when: Moment
    found: ArtifactScan
    named: list[str] = []
    next: str = ""
    note: str = ""
    verified: bool = True
    via: str = ""


class Skip(Struct, frozen=True, kw_only=True):
    """An agent skips the phase, with a reason."""

    phase: str
    by: str
    when: Moment
    reason: str
    next: str = ""
    leads: bool = False
    verified: bool = True
    via: str = ""


class StopRun(Struct, frozen=True, kw_only=True):
    """An agent stops the run, with a reason."""

    by: str
    when: Moment
    reason: str
    leads: bool = False
    verified: bool = True


class Lapse(Struct, frozen=True, kw_only=True):
    """The run ends because it was idle too long and one of its agents is needed elsewhere."""

    when: Moment
    reason: str


Event: TypeAlias = Complete | Skip | StopRun | Lapse


def advance(run: WorkflowRun, event: Event) -> WorkflowRun | Failure:
    """Return the run after the event, or why it is refused."""
    phase = run.current_phase
    if phase is None:
        return _refused(f"Workflow '{run.id}' is {run.status} and takes no more steps.")
    if isinstance(event, Complete):
        return _complete(run, phase, event)
    if isinstance(event, Skip):
        return _skip(run, phase, event)
    if isinstance(event, Lapse):
        if event.when.at < run.due:
            return _refused(f"Workflow '{run.id}' reserves its agents until {run.due}.")
        return _append_step(
            run, WorkflowStep(phase=phase.name, how="lapsed", by="", at=event.when.at, reason=event.reason)
        )
    if not event.reason.strip():
        return _refused(f"Give a reason to stop workflow '{run.id}'. It is recorded.")
    if event.by not in run.members and not event.leads:
        return _refused(
            f"'{event.by}' has no part in workflow '{run.id}'. Only its members or a lead may stop it."
        )
    step = WorkflowStep(phase=phase.name, how="stopped", by=event.by, at=event.when.at, reason=event.reason)
    return _append_step(run, replace(step, unverified=not event.verified))


def _complete(run: WorkflowRun, phase: Phase, event: Complete) -> WorkflowRun | Failure:
    problem = _out_of_order(run, phase, event.phase) or _unverified(run, phase, event)
    if problem is None and event.by != run.actor:
        message = f"Only '{run.actor}' ({phase.by}) may complete phase '{phase.name}' of workflow '{run.id}'"
        problem = _refused(f"{message}, not '{event.by}'.")
    if problem is not None:
        return problem
    to = _next_phase(run, phase, event.next)
    if isinstance(to, Failure):
        return to
    artifacts = _check_artifacts(run, phase, event)
    if isinstance(artifacts, Failure):
        return artifacts
    step = _finish_phase(run, phase, event, to, how="completed")
    return _append_step(run, replace(step, note=event.note, artifacts=artifacts), event.when.due)


def _skip(run: WorkflowRun, phase: Phase, event: Skip) -> WorkflowRun | Failure:
    problem = _out_of_order(run, phase, event.phase) or _unverified(run, phase, event)
    if problem is None and not event.reason.strip():
        problem = _refused(f"Give a reason to skip phase '{phase.name}' of workflow '{run.id}'.")
    if problem is None and not phase.skippable:
        problem = _refused(f"Phase '{phase.name}' of workflow '{run.id}' may not be skipped.")
    if problem is None and event.by not in (run.actor, run.started_by) and not event.leads:
        message = f"'{event.by}' may not skip phase '{phase.name}' of workflow '{run.id}'"
        problem = _refused(f"{message}. Only '{run.actor}', '{run.started_by}' or a lead may.")
    if problem is not None:
        return problem
    to = _next_phase(run, phase, event.next or run.definition.transitions(phase)[0])
    if isinstance(to, Failure):
        return to
    step = _finish_phase(run, phase, event, to, how="skipped")
    return _append_step(run, replace(step, reason=event.reason), event.when.due)


def _finish_phase(run: WorkflowRun, phase: Phase, event: Complete | Skip, to: str, how: How) -> WorkflowStep:
    return WorkflowStep(
        phase=phase.name,
        how=how,
        by=event.by,
        at=event.when.at,
        round=run.round(phase.name),
        to=to,
        unverified=not event.verified,
        via=event.via,
    )


def _out_of_order(run: WorkflowRun, phase: Phase, named: str) -> Failure | None:
    if named == phase.name:
        return None
    if run.definition.phase(named) is None:
        names = ", ".join(entry.name for entry in run.definition.phases)
        return _refused(f"Workflow '{run.id}' has no phase '{named[:80]}'. Its phases: {names}.")
    message = f"Workflow '{run.id}' is in phase '{phase.name}' (turn of '{run.actor}'), not in '{named}'."
    return _refused(f"{message} Complete '{phase.name}' first, or skip it with a reason.")


def _unverified(run: WorkflowRun, phase: Phase, event: Complete | Skip) -> Failure | None:
    if event.verified or not phase.verified:
        return None
    message = f"Phase '{phase.name}' of workflow '{run.id}' only accepts steps of a verified agent"
    return _refused(f"{message}; '{event.by}' is not verified here.")


def _next_phase(run: WorkflowRun, phase: Phase, chosen: str) -> str | Failure:
    """Return the next phase, or why it is refused."""
    transitions = run.definition.transitions(phase)
    choices = " or ".join(f"'{transition}'" for transition in transitions)
    if not chosen and len(transitions) > 1:
        return _refused(f"Choose the phase after '{phase.name}' of '{run.id}' with `next`: {choices}.")
    to = chosen or transitions[0]
    if to not in transitions:
        return _refused(
            f"Phase '{phase.name}' of workflow '{run.id}' is followed by {choices}, not by '{to[:80]}'."
        )
    target = run.definition.phase(to)
    # For a phase that may repeat, the visit that ends now counts too.
    visits = run.round(to) + (to == phase.name)
    if target is not None and visits > target.rounds:
        message = (
            f"Workflow '{run.id}' has been in phase '{to}' {target.rounds} time(s), which is the maximum"
        )
        return _refused(f"{message}. Choose another phase, or stop it.")
    return to


def _check_artifacts(run: WorkflowRun, phase: Phase, event: Complete) -> list[WorkflowArtifact] | Failure:
    """Return the artifacts of the phase in their current state."""
    problems = []
    artifacts: dict[str, WorkflowArtifact] = {}
    literal = [path for path in run.needs() if not is_pattern(path)]
    for path in dict.fromkeys([*literal, *event.named]):
        scanned = event.found.get(path, "it was not scanned")
        if isinstance(scanned, WorkflowArtifact) and scanned.bytes > 0:
            artifacts[path] = scanned
        else:
            problems.append(f"{path} ({scanned if isinstance(scanned, str) else 'it is empty'})")
    for pattern in run.needs():
        if is_pattern(pattern) and not any(fits(path, pattern) for path in artifacts):
            problems.append(f"{pattern} (name the matching file in `artifacts`)")
    for kept in run.kept():
        now = event.found.get(kept.path, "it was not scanned")
        if not isinstance(now, WorkflowArtifact) or now.sha256 != kept.sha256:
            why = now if isinstance(now, str) else "it was changed after it was handed over"
            problems.append(f"{kept.path} ({why})")
    if problems:
        message = (
            f"Phase '{phase.name}' of workflow '{run.id}' cannot end: {'; '.join(dict.fromkeys(problems))}."
        )
        return failure("mail_artifact_missing", message)
    return list(artifacts.values())


def _append_step(run: WorkflowRun, step: WorkflowStep, due: str = "") -> WorkflowRun:
    what = "concluded" if step.to == END else step.how
    status = STATUSES[run.status, what]
    phase = step.to if status == "running" else run.phase
    return replace(run, phase=phase, status=status, steps=[*run.steps, step], due=due or run.due)


def _refused(message: str) -> Failure:
    return failure("mail_workflow_refused", message)
