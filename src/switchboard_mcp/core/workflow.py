"""Workflows: phases in order, who acts in each, what must be there when it ends.

Rules:
1. A run stands in one phase. Nothing moves it but `advance`, and only along the arrows of its definition.
2. A phase ends by its actor, with its artifacts; or it is skipped for a reason. Either is a step, and stays recorded.
3. STATUSES says what a step makes of a run. A run that is over stays as it is.

A run carries its definition, so that a file edited meanwhile changes nothing under way. Times are texts in one form
(ISO 8601, UTC), which compare as they are. Does not know files, messages or clocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from switchboard_mcp.core.pathglobs import fits, is_pattern
from switchboard_mcp.errors import Failure, failure

Action = Literal["delegate_task", "request_review", "submit_result", "status_update", "execute"]
# What a phase may ask of somebody, and what somebody may be protected from: results and news always come through.
Ask = Literal["delegate_task", "request_review"]
Task = Literal["delegate_task", "request_review", "execute"]
Status = Literal["running", "finished", "stopped", "lapsed"]
How = Literal["completed", "skipped", "stopped", "lapsed"]
END = "end"

# What a step makes of a run; `concluded` is a phase that was completed or skipped along an arrow to the end.
STATUSES: dict[tuple[Status, str], Status] = {
    ("running", "completed"): "running",
    ("running", "skipped"): "running",
    ("running", "concluded"): "finished",
    ("running", "stopped"): "stopped",
    ("running", "lapsed"): "lapsed",
}

Word = Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9_-]{0,39}$")]
Text = Annotated[str, Meta(max_length=4_000)]


class Phase(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """One step of a workflow, as it is defined."""

    name: Word
    by: str
    """The part whose agent acts."""
    does: Text
    """What that agent is told to do."""
    artifacts: list[str] = []
    """Files that must be there at its end: paths or patterns; `{id}` is the run's, `{round}` counts its visits."""
    next: list[str] = []
    """Where it may go from here; the phase that follows, where nothing is said."""
    ask: Ask = "delegate_task"
    """The action by which the agent is asked."""
    may_send: list[Action] = field(default_factory=lambda: ["submit_result"])
    """What the agent may send to the other members meanwhile."""
    unchanged: list[str] = []
    """Phases whose artifacts must still be as they were."""
    rounds: Annotated[int, Meta(ge=1, le=100)] = 5
    """How often a run may come here."""
    skippable: bool = True
    """Whether it may be skipped for a reason."""
    verified: bool = False
    """Whether only senders known by their connection may send messages of this phase."""


class Definition(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A workflow, as a file has it."""

    name: Word
    description: Text = ""
    parts: dict[str, str]
    """Who takes part, and in which role; an empty role is the agent's own."""
    phases: Annotated[list[Phase], Meta(min_length=1, max_length=50)]
    apart: list[str] = []
    """Parts that different agents must have."""
    protects: list[Task] = field(default_factory=lambda: ["delegate_task"])
    """What nobody from outside may send to a member meanwhile."""
    idle_minutes: Annotated[int, Meta(ge=1, le=43_200)] = 1_440
    """For how long it holds its agents when no phase ends."""

    def phase(self, name: str) -> Phase | None:
        """The phase of this name."""
        return next((phase for phase in self.phases if phase.name == name), None)

    def arrows(self, phase: Phase) -> list[str]:
        """Where a run may go from a phase; the first is the usual way."""
        if phase.next:
            return phase.next
        behind = self.phases[self.phases.index(phase) + 1 :]
        return [behind[0].name if behind else END]


class Artifact(Struct, frozen=True):
    """A file as it was when it was looked at."""

    path: str
    sha256: str
    bytes: int


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to a run."""

    phase: str
    how: How
    by: str
    at: str
    round: int = 1
    to: str = ""
    reason: str = ""
    note: str = ""
    artifacts: list[Artifact] = []


class Run(Struct, frozen=True, kw_only=True, rename="camel"):
    """A workflow under way, or over."""

    id: str
    definition: Definition
    agents: dict[str, str]
    """Which agent has which part."""
    subject: str
    started_by: str
    started_at: str
    due: str
    """Until when it holds its agents."""
    phase: str
    status: Status = "running"
    steps: list[Step] = []
    told: int = -1
    """After how many steps those concerned were last told."""

    @property
    def members(self) -> set[str]:
        """Everybody with a part in it, who started it, and who has led it on."""
        stepped = {step.by for step in self.steps if step.by}
        return {*self.agents.values(), self.started_by} | stepped

    @property
    def now_in(self) -> Phase | None:
        """The phase it stands in; None when it is over."""
        return self.definition.phase(self.phase) if self.status == "running" else None

    @property
    def actor(self) -> str:
        """Whose turn it is; an empty string when it is over."""
        phase = self.now_in
        return self.agents.get(phase.by, "") if phase is not None else ""

    def round(self, phase: str) -> int:
        """Which visit to a phase this is, or would be."""
        return 1 + sum(step.phase == phase and step.how in ("completed", "skipped") for step in self.steps)

    def needs(self) -> list[str]:
        """The artifacts that end the phase."""
        phase = self.now_in
        return [filled(path, self.id, self.round(phase.name)) for path in phase.artifacts] if phase else []

    def kept(self) -> Iterator[Artifact]:
        """The artifacts that must not have changed since."""
        phase = self.now_in
        for name in phase.unchanged if phase is not None else ():
            done = [step for step in self.steps if step.phase == name and step.how == "completed"]
            yield from done[-1].artifacts if done else ()

    def looks(self) -> list[str]:
        """The files that have to be looked at, beside those that the actor names."""
        return [path for path in self.needs() if not is_pattern(path)] + [each.path for each in self.kept()]


class Moment(Struct, frozen=True):
    """When something happens, and until when the run then holds its agents."""

    at: str
    due: str = ""


# What was found at a path: the file, or why there is none to be had.
Found: TypeAlias = Mapping[str, "Artifact | str"]


class Complete(Struct, frozen=True, kw_only=True):
    """The actor says that the phase is done. `named` are the files it names, `found` is what is at all paths."""

    phase: str
    by: str
    when: Moment
    found: Found
    named: list[str] = []
    next: str = ""
    note: str = ""


class Skip(Struct, frozen=True, kw_only=True):
    """Somebody says that the phase is left out, and why."""

    phase: str
    by: str
    when: Moment
    reason: str
    next: str = ""
    leads: bool = False


class Stop(Struct, frozen=True, kw_only=True):
    """Somebody ends the run, and says why."""

    by: str
    when: Moment
    reason: str
    leads: bool = False


class Lapse(Struct, frozen=True, kw_only=True):
    """One of its agents is wanted elsewhere, after a long time in which nothing happened."""

    when: Moment
    reason: str


Event: TypeAlias = Complete | Skip | Stop | Lapse


def filled(path: str, run: str, round: int) -> str:
    """A path with the run's own words in it."""
    return path.replace("{id}", run).replace("{round}", str(round))


def is_held(run: Run, at: str) -> bool:
    """Whether the run holds its agents at this time."""
    return run.status == "running" and at < run.due


def advance(run: Run, event: Event) -> Run | Failure:
    """The run after the event, or why nothing changes."""
    phase = run.now_in
    if phase is None:
        return _refused(f"Workflow '{run.id}' is {run.status} and takes no more steps.")
    if isinstance(event, Complete):
        return _complete(run, phase, event)
    if isinstance(event, Skip):
        return _skip(run, phase, event)
    if isinstance(event, Lapse):
        if event.when.at < run.due:
            return _refused(f"Workflow '{run.id}' holds its agents until {run.due}.")
        return _step(run, Step(phase=phase.name, how="lapsed", by="", at=event.when.at, reason=event.reason))
    if not event.reason.strip():
        return _refused(f"To stop workflow '{run.id}' give a reason; it is recorded.")
    if event.by not in run.members and not event.leads:
        return _refused(
            f"'{event.by}' has no part in workflow '{run.id}'; its members or a lead may stop it."
        )
    return _step(
        run, Step(phase=phase.name, how="stopped", by=event.by, at=event.when.at, reason=event.reason)
    )


def _complete(run: Run, phase: Phase, event: Complete) -> Run | Failure:
    problem = _out_of_order(run, phase, event.phase)
    if problem is None and event.by != run.actor:
        told = f"Phase '{phase.name}' of workflow '{run.id}' is for '{run.actor}' ({phase.by}) to complete"
        problem = _refused(f"{told}, not for '{event.by}'.")
    if problem is not None:
        return problem
    to = _way(run, phase, event.next)
    if isinstance(to, Failure):
        return to
    artifacts = _artifacts(run, phase, event)
    if isinstance(artifacts, Failure):
        return artifacts
    step = Step(
        phase=phase.name,
        how="completed",
        by=event.by,
        at=event.when.at,
        round=run.round(phase.name),
        to=to,
        note=event.note,
        artifacts=artifacts,
    )
    return _step(run, step, event.when.due)


def _skip(run: Run, phase: Phase, event: Skip) -> Run | Failure:
    problem = _out_of_order(run, phase, event.phase)
    if problem is None and not event.reason.strip():
        problem = _refused(
            f"Phase '{phase.name}' of workflow '{run.id}' is skipped for a reason only; give one."
        )
    if problem is None and not phase.skippable:
        problem = _refused(f"Phase '{phase.name}' of workflow '{run.id}' cannot be skipped, for no reason.")
    if problem is None and event.by not in (run.actor, run.started_by) and not event.leads:
        told = f"'{event.by}' may not skip phase '{phase.name}' of workflow '{run.id}'"
        problem = _refused(f"{told}: that is for '{run.actor}', '{run.started_by}' or a lead.")
    if problem is not None:
        return problem
    to = _way(run, phase, event.next or run.definition.arrows(phase)[0])
    if isinstance(to, Failure):
        return to
    step = Step(
        phase=phase.name,
        how="skipped",
        by=event.by,
        at=event.when.at,
        round=run.round(phase.name),
        to=to,
        reason=event.reason,
    )
    return _step(run, step, event.when.due)


def _out_of_order(run: Run, phase: Phase, said: str) -> Failure | None:
    if said == phase.name:
        return None
    if run.definition.phase(said) is None:
        names = ", ".join(each.name for each in run.definition.phases)
        return _refused(f"Workflow '{run.id}' has no phase '{said[:80]}'; its phases are {names}.")
    told = f"Workflow '{run.id}' is in phase '{phase.name}' ('{run.actor}' acts), not in '{said}'."
    return _refused(f"{told} Complete '{phase.name}' first, or skip it with a reason.")


def _way(run: Run, phase: Phase, said: str) -> str | Failure:
    """Where the run goes."""
    arrows = run.definition.arrows(phase)
    choices = " or ".join(f"'{arrow}'" for arrow in arrows)
    if not said and len(arrows) > 1:
        return _refused(f"Say with `next` where '{run.id}' goes from phase '{phase.name}': {choices}.")
    to = said or arrows[0]
    if to not in arrows:
        return _refused(
            f"From phase '{phase.name}' workflow '{run.id}' goes to {choices}, not to '{to[:80]}'."
        )
    target = run.definition.phase(to)
    # A phase that may lead to itself counts the visit that ends now, too.
    visits = run.round(to) + (to == phase.name)
    if target is not None and visits > target.rounds:
        told = f"Workflow '{run.id}' was in phase '{to}' {target.rounds} time(s), which is the most"
        return _refused(f"{told}; go another way, or stop it.")
    return to


def _artifacts(run: Run, phase: Phase, event: Complete) -> list[Artifact] | Failure:
    """The artifacts of the phase, each as it is now."""
    problems = []
    taken: dict[str, Artifact] = {}
    literal = [path for path in run.needs() if not is_pattern(path)]
    for path in dict.fromkeys([*literal, *event.named]):
        found = event.found.get(path, "nobody has looked at it")
        if isinstance(found, Artifact) and found.bytes > 0:
            taken[path] = found
        else:
            problems.append(f"{path} ({found if isinstance(found, str) else 'it is empty'})")
    for pattern in run.needs():
        if is_pattern(pattern) and not any(fits(path, pattern) for path in taken):
            problems.append(f"{pattern} (name the file that fits, in `artifacts`)")
    for kept in run.kept():
        now = event.found.get(kept.path, "nobody has looked at it")
        if not isinstance(now, Artifact) or now.sha256 != kept.sha256:
            why = now if isinstance(now, str) else "it has been changed since it was handed over"
            problems.append(f"{kept.path} ({why})")
    if problems:
        told = (
            f"Phase '{phase.name}' of workflow '{run.id}' cannot end: {'; '.join(dict.fromkeys(problems))}."
        )
        return failure("mail_artifact_missing", told)
    return list(taken.values())


def _step(run: Run, step: Step, due: str = "") -> Run:
    what = "concluded" if step.to == END else step.how
    status = STATUSES[run.status, what]
    phase = step.to if status == "running" else run.phase
    return replace(run, phase=phase, status=status, steps=[*run.steps, step], due=due or run.due)


def _refused(message: str) -> Failure:
    return failure("mail_workflow_refused", message)
