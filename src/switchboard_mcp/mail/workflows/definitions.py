"""Workflows: phases in order, who acts in each, what must be there when it ends.

Rules:
1. A run stands in one phase. Nothing moves it but `workflow_steps.advance`, along the arrows of its definition.
2. A phase ends by its actor, with its artifacts; or it is skipped for a reason. Either is a step, and stays recorded.
3. STATUSES says what a step makes of a run. A run that is over stays as it is.

A run carries its definition, so that a file edited meanwhile changes nothing under way. Times are texts in one form
(ISO 8601, UTC), which compare as they are. Does not know files, messages or clocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from switchboard_mcp.mail.path_patterns import is_pattern

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

    def transitions(self, phase: Phase) -> list[str]:
        """Where a run may go from a phase; the first is the usual way."""
        if phase.next:
            return phase.next
        behind = self.phases[self.phases.index(phase) + 1 :]
        return [behind[0].name if behind else END]


class WorkflowArtifact(Struct, frozen=True):
    """A file as it was when it was looked at."""

    path: str
    sha256: str
    bytes: int


class WorkflowStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to a run."""

    phase: str
    how: How
    by: str
    at: str
    round: int = 1
    to: str = ""
    reason: str = ""
    note: str = ""
    artifacts: list[WorkflowArtifact] = []
    unverified: bool = False
    """Whether it was only said who did it, and not known by a connection."""
    via: str = ""
    """The message by which it was said, where it was one."""


class WorkflowRun(Struct, frozen=True, kw_only=True, rename="camel"):
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
    steps: list[WorkflowStep] = []
    unverified: bool = False
    """Whether it was only said who started it."""
    told: int = -1
    """After how many steps those concerned were last told."""

    @property
    def members(self) -> set[str]:
        """Everybody with a part in it, who started it, and who has led it on."""
        stepped = {step.by for step in self.steps if step.by}
        return {*self.agents.values(), self.started_by} | stepped

    @property
    def current_phase(self) -> Phase | None:
        """The phase it stands in; None when it is over."""
        return self.definition.phase(self.phase) if self.status == "running" else None

    @property
    def actor(self) -> str:
        """Whose turn it is; an empty string when it is over."""
        phase = self.current_phase
        return self.agents.get(phase.by, "") if phase is not None else ""

    def round(self, phase: str) -> int:
        """Which visit to a phase this is, or would be."""
        return 1 + sum(step.phase == phase and step.how in ("completed", "skipped") for step in self.steps)

    def needs(self) -> list[str]:
        """The artifacts that end the phase."""
        phase = self.current_phase
        return [fill_path(path, self.id, self.round(phase.name)) for path in phase.artifacts] if phase else []

    def kept(self) -> Iterator[WorkflowArtifact]:
        """The artifacts that must not have changed since."""
        phase = self.current_phase
        for name in phase.unchanged if phase is not None else ():
            done = [step for step in self.steps if step.phase == name and step.how == "completed"]
            yield from done[-1].artifacts if done else ()

    def scan_paths(self) -> list[str]:
        """The files that have to be looked at, beside those that the actor names."""
        return [path for path in self.needs() if not is_pattern(path)] + [each.path for each in self.kept()]


class Moment(Struct, frozen=True):
    """When something happens, and until when the run then holds its agents."""

    at: str
    due: str = ""


def fill_path(path: str, run: str, round: int) -> str:
    """A path with the run's own words in it."""
    return path.replace("{id}", run).replace("{round}", str(round))


def is_active(run: WorkflowRun, at: str) -> bool:
    """Whether the run holds its agents at this time."""
    return run.status == "running" and at < run.due
