"""Workflow definitions and runs: ordered phases, who acts in each, and which artifacts each must produce.

Rules:
1. A run is in one phase. Only `steps.advance` moves it, along the transitions of its definition.
2. A phase ends when its actor completes it with its artifacts, or when it is skipped with a reason. Either is a
   recorded step.
3. STATUSES maps a step to the status of the run. A finished run does not change.

A run contains its definition, so editing the file does not affect runs in progress. Times are ISO 8601 strings in UTC,
which compare as strings. Not aware of files, messages or clocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct, field, structs

from switchboard_mcp.mail.path_patterns import is_pattern

Action = Literal["delegate_task", "request_review", "submit_result", "status_update", "execute"]
# Actions a phase may request, and which members may be protected from; results and status updates always pass.
Ask = Literal["delegate_task", "request_review"]
Task = Literal["delegate_task", "request_review", "execute"]
Status = Literal["running", "finished", "stopped", "lapsed"]
How = Literal["completed", "skipped", "stopped", "lapsed"]
END = "end"

# Status of a run after a step; `concluded` is a phase completed or skipped with a transition to the end.
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
    """One phase of a workflow definition."""

    name: Word
    by: str
    """The part whose agent acts."""
    does: Text
    """Instructions for that agent."""
    artifacts: list[str] = []
    """Files required at its end: paths or patterns; `{id}` is the run's id, `{round}` counts visits to the phase."""
    next: list[str] = []
    """Phases that may follow; defaults to the next one in the list."""
    ask: Ask = "delegate_task"
    """The action by which the agent is asked."""
    may_send: list[Action] = field(default_factory=lambda: ["submit_result"])
    """Actions the agent may send to the other members during the phase."""
    unchanged: list[str] = []
    """Phases whose artifacts must not have changed."""
    rounds: Annotated[int, Meta(ge=1, le=100)] = 5
    """Maximum number of times a run may enter this phase."""
    skippable: bool = True
    """Allows skipping the phase with a reason."""
    verified: bool = False
    """Accepts messages in this phase only from senders known from their connection."""


class Definition(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A workflow definition, as stored in a file."""

    name: Word
    description: Text = ""
    parts: dict[str, str]
    """Participants and the role of each; an empty role means the agent's own."""
    phases: Annotated[list[Phase], Meta(min_length=1, max_length=50)]
    distinct: list[str] = []
    """Parts that must be held by different agents."""
    apart: list[str] = []
    """Deprecated name of `distinct`; accepted for one release, and in runs that were started before."""
    protects: list[Task] = field(default_factory=lambda: ["delegate_task"])
    """Actions that non-members may not send to members during a run."""
    idle_minutes: Annotated[int, Meta(ge=1, le=43_200)] = 1_440
    """How long a run reserves its agents without a completed phase."""

    def __post_init__(self) -> None:
        if self.apart:
            structs.force_setattr(self, "distinct", self.distinct or self.apart)
            structs.force_setattr(self, "apart", [])

    def phase(self, name: str) -> Phase | None:
        """Return the phase with this name."""
        return next((phase for phase in self.phases if phase.name == name), None)

    def transitions(self, phase: Phase) -> list[str]:
        """Return the phases that may follow a phase; the first is the default."""
        if phase.next:
            return phase.next
        behind = self.phases[self.phases.index(phase) + 1 :]
        return [behind[0].name if behind else END]


class WorkflowArtifact(Struct, frozen=True):
    """A file at the time it was scanned."""

    path: str
    sha256: str
    bytes: int


class WorkflowStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of a run."""

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
    """True if the agent is only claimed, not known from a connection."""
    via: str = ""
    """The message that took the step, if any."""


class WorkflowRun(Struct, frozen=True, kw_only=True, rename="camel"):
    """A workflow in progress or finished."""

    id: str
    definition: Definition
    agents: dict[str, str]
    """Agents by part."""
    subject: str
    started_by: str
    started_at: str
    due: str
    """Time until which it reserves its agents."""
    phase: str
    status: Status = "running"
    steps: list[WorkflowStep] = []
    unverified: bool = False
    """True if the starter is only claimed, not known from a connection."""
    notified: int = field(default=-1, name="told")
    """Number of steps when notices were last sent; `told` in files."""

    @property
    def members(self) -> set[str]:
        """Return all agents with a part, the starter, and everyone who has taken a step."""
        stepped = {step.by for step in self.steps if step.by}
        return {*self.agents.values(), self.started_by} | stepped

    @property
    def current_phase(self) -> Phase | None:
        """Return the current phase; None if the run is finished."""
        return self.definition.phase(self.phase) if self.status == "running" else None

    @property
    def actor(self) -> str:
        """Return the agent whose turn it is; empty if the run is finished."""
        phase = self.current_phase
        return self.agents.get(phase.by, "") if phase is not None else ""

    def round(self, phase: str) -> int:
        """Return the number of the current or next visit to a phase."""
        return 1 + sum(step.phase == phase and step.how in ("completed", "skipped") for step in self.steps)

    def needs(self) -> list[str]:
        """Return the artifacts required to end the phase."""
        phase = self.current_phase
        return [fill_path(path, self.id, self.round(phase.name)) for path in phase.artifacts] if phase else []

    def kept(self) -> Iterator[WorkflowArtifact]:
        """Yield the artifacts that must not have changed."""
        phase = self.current_phase
        for name in phase.unchanged if phase is not None else ():
            done = [step for step in self.steps if step.phase == name and step.how == "completed"]
            yield from done[-1].artifacts if done else ()

    def scan_paths(self) -> list[str]:
        """Return the files to scan, besides those that the actor names."""
        return [path for path in self.needs() if not is_pattern(path)] + [
            artifact.path for artifact in self.kept()
        ]


class Moment(Struct, frozen=True):
    """Time of an event, and the time until which the run then reserves its agents."""

    at: str
    due: str = ""


def fill_path(path: str, run: str, round: int) -> str:
    """Fill in the placeholders of a path."""
    return path.replace("{id}", run).replace("{round}", str(round))


def is_active(run: WorkflowRun, at: str) -> bool:
    """Return True if the run reserves its agents at this time."""
    return run.status == "running" and at < run.due
