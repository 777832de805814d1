"""Turns of a model, judged before anything of them runs."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.ask.plan import (
    Finished,
    Go,
    ModelTurn,
    Offered,
    PlanLimits,
    PlanStep,
    SendBack,
    StopPlan,
    judge,
    to_confirm,
)
from tests.cases import each_case

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
OFFERED = {
    tool.name: tool
    for tool in (
        Offered("read_file", schema=PATH, read_only=True),
        Offered("create_note", schema={}, destructive=False),
        Offered("delete_file", schema=PATH),
    )
}
FRESH = PlanLimits(4)
READ = PlanStep("read_file", {"path": "a"})


def verdict(frame: PlanLimits = FRESH, **turn: Any) -> Any:
    return judge(ModelTurn(**turn), OFFERED, frame)


def test_steps_that_fulfil_the_request_are_run() -> None:
    for done in (True, False):
        assert verdict(steps=[READ], done=done) == Go([READ], True, frozenset({"read_file"}))


def test_later_needs_are_named_before_anything_is_read() -> None:
    assert verdict(steps=[READ], later=["create_note"]) == Go(
        [READ], False, frozenset({"read_file", "create_note"})
    )


@each_case(
    ("turn", "expected"),
    [
        ({"steps": [PlanStep("read_fil", {})], "done": True}, "Did you mean read_file"),
        ({"steps": [PlanStep("read_file", {})], "done": True}, "'read_file', path: is missing."),
        ({"steps": [READ], "later": ["drop_tables"]}, "There is no subtool 'drop_tables', named for later."),
        ({"message": "You could call read_file."}, "Do not describe"),
        ({"done": True, "message": "Nothing to do."}, "Do not describe"),
        ({"odd": "This is no JSON."}, "This is no JSON."),
    ],
)
def test_a_turn_that_does_not_hold_is_sent_back_once(turn: dict[str, Any], expected: str) -> None:
    first = verdict(**turn)
    assert isinstance(first, SendBack)
    assert expected in first.problems[0]
    second = verdict(PlanLimits(4, sent_back=True), **turn)
    assert isinstance(second, StopPlan)
    assert second.code == "ask_plan_invalid"
    assert expected in second.message


def test_a_step_not_planned_from_the_request_is_not_run_after_results_were_read() -> None:
    frame = PlanLimits(4, frozenset({"read_file"}))
    assert verdict(frame, steps=[READ], done=True) == Go([READ], True, frozenset({"read_file"}))
    injected = verdict(frame, steps=[PlanStep("delete_file", {"path": "a"})], later=["delete_file"])
    assert isinstance(injected, SendBack)
    assert "not part of the plan" in injected.problems[0]


def test_after_results_a_model_may_say_that_all_is_done() -> None:
    assert verdict(PlanLimits(0, frozenset()), done=True, message="It is a.") == Finished("It is a.")


def test_more_steps_than_are_left_are_not_begun() -> None:
    stopped = verdict(PlanLimits(1), steps=[READ, READ], done=True)
    assert isinstance(stopped, StopPlan)
    assert stopped.code == "ask_limit"


@each_case(
    ("turn", "code"),
    [({"cannot": "no mail here"}, "ask_impossible"), ({"unclear": "which file?"}, "ask_unclear")],
)
def test_a_model_may_give_up_and_nothing_runs(turn: dict[str, Any], code: str) -> None:
    stopped = verdict(steps=[READ], done=True, **turn)
    assert isinstance(stopped, StopPlan)
    assert stopped.code == code


@each_case(
    ("rule", "requested"),
    [
        ("destructive", ["delete_file"]),
        ("writes", ["create_note", "delete_file"]),
        ("never", []),
    ],
)
def test_a_person_is_asked_about_what_the_setting_names(rule: Any, requested: list[str]) -> None:
    steps = [PlanStep(name, {}) for name in OFFERED]
    found = to_confirm(steps, OFFERED, rule, lambda name: False)
    assert [step.subtool for step in found] == requested
    assert to_confirm(steps, OFFERED, rule, lambda name: True) == []


def test_a_subtool_that_says_nothing_of_itself_counts_as_destructive() -> None:
    assert to_confirm([PlanStep("x", {})], {"x": Offered("x")}, "destructive", lambda name: False)


NAMES = st.sampled_from([*OFFERED, "delete_all", ""])
STEPS = st.builds(
    PlanStep, NAMES, st.dictionaries(st.sampled_from(["path", "x"]), st.text(max_size=2), max_size=2)
)
TURNS = st.builds(
    ModelTurn,
    steps=st.lists(STEPS, max_size=6),
    done=st.booleans(),
    later=st.none() | st.lists(NAMES, max_size=3),
    message=st.sampled_from(["", "x"]),
    odd=st.sampled_from(["", "odd"]),
)
FRAMES = st.builds(
    PlanLimits, st.integers(0, 5), st.none() | st.frozensets(st.sampled_from(list(OFFERED))), st.booleans()
)


@given(TURNS, FRAMES)
def test_only_offered_and_planned_steps_run_and_never_too_many(turn: ModelTurn, frame: PlanLimits) -> None:
    result = judge(turn, OFFERED, frame)
    if isinstance(result, Go):
        assert 0 < len(result.steps) <= frame.steps_left
        assert {step.subtool for step in result.steps} <= OFFERED.keys() & result.within
        assert frame.within is None or result.within == frame.within
        assert result.within <= OFFERED.keys()
        assert all("path" in step.args for step in result.steps if OFFERED[step.subtool].schema)
    if frame.sent_back:
        assert not isinstance(result, SendBack)
