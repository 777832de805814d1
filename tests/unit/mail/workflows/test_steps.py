"""Runs of workflows: by table, and under every sequence of events."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.errors import Failure
from switchboard_mcp.mail import messages
from switchboard_mcp.mail.workflows.definitions import (
    END,
    STATUSES,
    Action,
    Definition,
    Moment,
    WorkflowArtifact,
    WorkflowRun,
    is_active,
)
from switchboard_mcp.mail.workflows.steps import ArtifactScan, Complete, Event, Lapse, Skip, StopRun, advance
from tests.cases import each_case

AT, DUE, LATE = "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z", "2026-01-03T00:00:00.000Z"
WHEN = Moment(AT, DUE)
DEFINITION = msgspec.convert(
    {
        "name": "round",
        "parts": {"author": "coder 1", "reviewer": "reviewer"},
        "phases": [
            {"name": "write", "by": "author", "does": "write", "artifacts": ["{id}.{round}.md"]},
            {
                "name": "look",
                "by": "reviewer",
                "does": "look",
                "artifacts": ["notes/*.md"],
                "unchanged": ["write"],
                "next": ["close", "write"],
            },
            {"name": "close", "by": "author", "does": "close", "skippable": False},
        ],
    },
    Definition,
)


def new(**more: Any) -> WorkflowRun:
    result: dict[str, Any] = {
        "id": "r",
        "definition": DEFINITION,
        "agents": {"author": "ada", "reviewer": "bob"},
        "subject": "",
        "started_by": "lead",
        "started_at": AT,
        "due": DUE,
        "phase": "write",
    }
    return WorkflowRun(**{**result, **more})


def file(path: str, content: str = "x") -> WorkflowArtifact:
    return WorkflowArtifact(path, content, len(content))


def found(*files: WorkflowArtifact) -> ArtifactScan:
    return {each.path: each for each in files}


def complete(phase: str, by: str, files: ArtifactScan | None = None, **more: Any) -> Complete:
    return Complete(phase=phase, by=by, when=WHEN, found=files or {}, **more)


def after(run: WorkflowRun, *events: Event) -> WorkflowRun:
    for event in events:
        moved = advance(run, event)
        assert isinstance(moved, WorkflowRun), moved
        run = moved
    return run


def refusal(run: WorkflowRun, event: Event) -> Failure:
    refused = advance(run, event)
    assert isinstance(refused, Failure)
    return refused


WRITTEN = complete("write", "ada", found(file("r.1.md")))
BOTH = found(file("r.1.md"), file("notes/n.md"))
APPROVED = complete("look", "bob", BOTH, named=["notes/n.md"], next="close")


def test_a_run_goes_through_its_phases_in_order_and_keeps_what_was_handed_over() -> None:
    run = after(new(), WRITTEN)
    assert (run.phase, run.actor, run.due) == ("look", "bob", DUE)
    run = after(run, APPROVED, complete("close", "ada"))
    assert (run.status, run.actor) == ("finished", "")
    assert [(step.phase, step.how, step.by, step.to) for step in run.steps] == [
        ("write", "completed", "ada", "look"),
        ("look", "completed", "bob", "close"),
        ("close", "completed", "ada", END),
    ]
    assert [each.path for each in run.steps[1].artifacts] == ["notes/n.md"]


REFUSED: list[tuple[str, WorkflowRun, Event, str]] = [
    ("a later phase", new(), complete("close", "ada"), "Complete 'write' first, or skip it with a reason"),
    ("an earlier phase", after(new(), WRITTEN), WRITTEN, "is in phase 'look'"),
    ("a phase that is none", new(), complete("nap", "ada"), "Its phases: write, look, close"),
    (
        "another's phase",
        new(),
        complete("write", "bob", found(file("r.1.md"))),
        "Only 'ada' (author) may complete",
    ),
    ("a starter is no actor", new(), complete("write", "lead", found(file("r.1.md"))), "Only 'ada' (author)"),
    ("no artifact", new(), complete("write", "ada"), "r.1.md (it was not scanned"),
    ("one that is not there", new(), complete("write", "ada", {"r.1.md": "gone"}), "r.1.md (gone)"),
    (
        "an empty one",
        new(),
        complete("write", "ada", found(WorkflowArtifact("r.1.md", "h", 0))),
        "r.1.md (it is empty)",
    ),
    (
        "a pattern nothing was named for",
        after(new(), WRITTEN),
        complete("look", "bob", BOTH, next="close"),
        "notes/*.md (name the matching file in `artifacts`)",
    ),
    (
        "a named one that does not fit",
        after(new(), WRITTEN),
        complete("look", "bob", found(file("r.1.md"), file("n.md")), named=["n.md"], next="close"),
        "notes/*.md",
    ),
    (
        "one changed since",
        after(new(), WRITTEN),
        complete(
            "look", "bob", found(file("r.1.md", "y"), file("notes/n.md")), named=["notes/n.md"], next="close"
        ),
        "r.1.md (it was changed after it was handed over)",
    ),
    (
        "no way said where there are two",
        after(new(), WRITTEN),
        complete("look", "bob", BOTH, named=["notes/n.md"]),
        "'close' or 'write'",
    ),
    (
        "a way there is not",
        after(new(), WRITTEN),
        complete("look", "bob", BOTH, named=["notes/n.md"], next=END),
        "not by 'end'",
    ),
    (
        "a skip for no reason",
        new(),
        Skip(phase="write", by="ada", when=WHEN, reason=" "),
        "Give a reason to skip",
    ),
    ("a skip by anybody", new(), Skip(phase="write", by="eve", when=WHEN, reason="r"), "'eve' may not skip"),
    (
        "a skip of what comes later",
        new(),
        Skip(phase="look", by="lead", when=WHEN, reason="r"),
        "in phase 'write'",
    ),
    (
        "a skip of what cannot be",
        after(new(), WRITTEN, APPROVED),
        Skip(phase="close", by="lead", when=WHEN, reason="r"),
        "may not be skipped",
    ),
    ("a stop for no reason", new(), StopRun(by="ada", when=WHEN, reason=""), "Give a reason to stop"),
    ("a stop by anybody", new(), StopRun(by="eve", when=WHEN, reason="r"), "'eve' has no part"),
    ("a lapse before its time", new(), Lapse(when=WHEN, reason="r"), DUE),
    ("anything when it is over", new(status="stopped"), WRITTEN, "is stopped and takes no more steps"),
]


@each_case(("run", "event", "expected"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED])
def test_an_entry_that_does_not_fit_is_refused_with_the_reason(
    run: WorkflowRun, event: Event, expected: str
) -> None:
    refused = refusal(run, event)
    assert expected in refused.message
    assert "'r'" in refused.message


def test_only_missing_files_are_reported_as_missing() -> None:
    assert refusal(new(), complete("write", "ada")).code == "mail_artifact_missing"
    assert refusal(new(), complete("close", "ada")).code == "mail_workflow_refused"


def test_a_skip_is_recorded_with_its_reason_and_who_wanted_it() -> None:
    run = after(
        new(),
        Skip(phase="write", by="lead", when=WHEN, reason="written elsewhere"),
        Skip(phase="look", by="eve", when=WHEN, reason="nobody here", leads=True),
    )
    assert [(step.how, step.by, step.reason) for step in run.steps] == [
        ("skipped", "lead", "written elsewhere"),
        ("skipped", "eve", "nobody here"),
    ]
    assert run.phase == "close"
    assert "eve" in run.members


def test_an_unverified_actor_is_marked_or_refused_by_the_phase() -> None:
    content = msgspec.structs.replace(WRITTEN, verified=False)
    assert after(new(), content).steps[0].unverified
    assert not after(new(), WRITTEN).steps[0].unverified
    assert after(new(), StopRun(by="ada", when=WHEN, reason="r", verified=False)).steps[0].unverified
    first, *others = DEFINITION.phases
    strict = msgspec.structs.replace(
        DEFINITION, phases=[msgspec.structs.replace(first, verified=True), *others]
    )
    skip = Skip(phase="write", by="ada", when=WHEN, reason="r", verified=False)
    for event in (content, skip):
        assert "'ada' is not verified" in refusal(new(definition=strict), event).message
    assert after(new(definition=strict), WRITTEN).phase == "look"


def test_each_round_needs_artifacts_of_its_own() -> None:
    back = complete("look", "bob", BOTH, named=["notes/n.md"], next="write")
    run = after(new(), WRITTEN, back)
    assert (run.phase, run.needs()) == ("write", ["r.2.md"])
    assert "r.2.md" in refusal(run, WRITTEN).message


def test_a_phase_takes_as_many_rounds_as_it_has() -> None:
    def both(number: int) -> tuple[Complete, Complete]:
        written = file(f"r.{number}.md")
        files = found(written, file("notes/n.md"))
        back = complete("look", "bob", files, named=["notes/n.md"], next="write")
        return complete("write", "ada", found(written)), back

    run = new()
    for number in range(1, 5):
        run = after(run, *both(number))
    write, back = both(5)
    assert "5 time(s), which is the maximum" in refusal(after(run, write), back).message


def test_a_run_holds_its_agents_until_it_is_due_or_over() -> None:
    run = new()
    assert is_active(run, AT)
    assert not is_active(run, DUE)
    assert not is_active(after(run, StopRun(by="bob", when=WHEN, reason="r")), AT)
    lapsed = after(run, Lapse(when=Moment(LATE), reason="r"))
    assert lapsed.status == "lapsed"


def test_a_run_comes_back_from_its_file_as_it_was() -> None:
    run = after(new(), WRITTEN)
    assert msgspec.json.decode(msgspec.json.encode(run), type=WorkflowRun) == run


def test_actions_are_those_of_the_protocol() -> None:
    assert get_args(Action) == get_args(messages.Action)


NAMES = ("write", "look", "close", END, "nap")
PEOPLE = ("ada", "bob", "lead", "eve")
FILES = [file(f"r.{number}.md") for number in range(1, 7)] + [file("notes/n.md"), file("notes/n.md", "")]


@st.composite
def events(draw: st.DrawFn) -> Event:
    name, by = draw(st.sampled_from(NAMES)), draw(st.sampled_from(PEOPLE))
    reason, to = draw(st.sampled_from(["", "why"])), draw(st.sampled_from(["", *NAMES]))
    match draw(st.sampled_from(["complete"] * 6 + ["skip", "skip", "stop", "lapse"])):
        case "complete":
            # Mostly what would do, so that runs get somewhere.
            files = found(*(FILES[:7] if draw(st.booleans()) else draw(st.lists(st.sampled_from(FILES)))))
            return complete(name, by, files, named=["notes/n.md"] if draw(st.booleans()) else [], next=to)
        case "skip":
            return Skip(phase=name, by=by, when=WHEN, reason=reason, next=to, leads=draw(st.booleans()))
        case "stop":
            return StopRun(by=by, when=WHEN, reason=reason, leads=False)
    return Lapse(when=WHEN, reason="late")


@given(st.lists(events(), max_size=40))
def test_no_sequence_of_events_skips_a_phase(sequence: list[Event]) -> None:
    run = new()
    for event in sequence:
        moved = advance(run, event)
        if isinstance(moved, WorkflowRun):
            assert moved.steps[:-1] == run.steps
            assert run.status == "running"
            run = moved
    at = "write"
    for step in run.steps:
        assert step.phase == at
        phase = DEFINITION.phase(at)
        assert phase is not None
        if step.how in ("stopped", "lapsed"):
            assert step is run.steps[-1]
            break
        assert step.to in DEFINITION.transitions(phase)
        if step.how == "completed":
            assert step.by == run.agents[phase.by]
            assert len(step.artifacts) >= len(phase.artifacts)
            assert all(each.bytes for each in step.artifacts)
        else:
            assert (step.reason, phase.skippable) == ("why", True)
        assert step.round <= phase.rounds
        at = step.to
    if run.status == "finished":
        assert at == END
    elif run.status == "running":
        assert at == run.phase
    assert run.status in {"running", *STATUSES.values()}
