"""Agents, roles and teams as parts of the shared state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.agent_registry import Addressee
from tests.cases import each_case


def refusal(act: Callable[[], object]) -> Failure:
    with pytest.raises(SwitchboardError) as raised:
        act()
    return raised.value.failure


def state(**roles: str) -> dict[str, Any]:
    return {"agents": {name: {"role": role} for name, role in roles.items()}}


def test_an_agent_that_introduces_itself_again_keeps_what_others_gave_it() -> None:
    held: dict[str, Any] = {}
    first = agent_registry.register("ada", kind="terminal", pid=5, purpose="build")(held)
    assert (first.kind, first.pid, first.purpose) == ("terminal", 5, "build")
    assert first.registered_at.endswith("Z")
    agent_registry.assign_role("ada", "ada", "coder-1")(held)
    again = agent_registry.register("ada", kind="chat")(held)
    assert (again.kind, again.role, again.registered_at) == ("chat", "coder 1", first.registered_at)


def test_entries_that_cannot_be_read_are_left_as_names_and_teams_left_out() -> None:
    held = {"agents": {"ada": 5, "bob": {"pid": "x"}}, "teams": {"t": 1}}
    assert list(agent_registry.agents(held)) == ["ada", "bob"]
    assert agent_registry.teams(held) == {}
    assert agent_registry.agents({"agents": []}) == {}


@each_case("name", ["../x", "", "a/b", "a\nb", "é", "x" * 65])
def test_a_name_that_could_be_a_path_is_refused(name: str) -> None:
    assert refusal(lambda: agent_registry.parse_name(name)).code == "mail_name_invalid"


def test_only_the_lead_gives_roles_to_others() -> None:
    held = state(ada="lead", bob="", cy="")
    assert agent_registry.assign_role("ada", "bob", "Coder 1")(held) == "coder 1"
    problem = refusal(lambda: agent_registry.assign_role("bob", "cy", "tester")(held))
    assert problem.code == "mail_forbidden"
    assert "ada" in problem.message
    assert refusal(lambda: agent_registry.assign_role("bob", "bob", "lead")(held)).code == "mail_forbidden"
    unknown = refusal(lambda: agent_registry.assign_role("ada", "bob", "reviwer"))
    assert (unknown.code, unknown.nearest) == ("mail_role_unknown", ["reviewer"])


def test_a_team_is_written_to_without_its_sender_and_by_role() -> None:
    held = state(ada="lead", bob="coder 1", cy="tester")
    agent_registry.create_team("ada", "core", ["ada", "bob", "cy", "bob"], [])(held)
    assert agent_registry.find_team(held, "core").members == ["ada", "bob", "cy"]
    assert agent_registry.addressees(held, "core", None, "ada") == [Addressee("bob"), Addressee("cy")]
    assert agent_registry.addressees(held, "core", "Tester", "ada") == [Addressee("cy")]
    assert (
        refusal(lambda: agent_registry.addressees(held, "core", "reviewer", "ada")).code
        == "mail_team_unknown"
    )


def test_a_composite_team_is_one_agent_in_several_roles() -> None:
    held = state(ada="lead", bob="")
    made = agent_registry.create_team("ada", "solo", ["bob"], ["coder 1", "tester"])(held)
    assert (made.kind, made.roles) == ("composite", ["coder 1", "tester"])
    assert agent_registry.addressees(held, "solo", "tester", "ada") == [Addressee("bob", "tester")]
    assert agent_registry.addressees(held, "solo", None, "ada") == [Addressee("bob")]
    assert refusal(lambda: agent_registry.addressees(held, "solo", "lead", "ada")).code == "mail_team_unknown"
    several = refusal(lambda: agent_registry.create_team("ada", "x", ["a", "b"], ["tester"]))
    assert several.code == "mail_team_invalid"
    assert (
        refusal(lambda: agent_registry.create_team("ada", "x", ["a"], ["boss"])).code == "mail_role_unknown"
    )


def test_a_team_is_changed_by_who_made_it_or_the_lead() -> None:
    held = state(ada="lead", bob="", cy="")
    agent_registry.create_team("bob", "core", ["bob"], [])(held)
    assert (
        refusal(lambda: agent_registry.create_team("cy", "core", ["cy"], [])(held)).code == "mail_forbidden"
    )
    agent_registry.create_team("ada", "core", ["cy"], [])(held)
    assert agent_registry.find_team(held, "core").members == ["cy"]


def test_an_unknown_team_is_reported_with_the_nearest() -> None:
    held = state(ada="lead")
    agent_registry.create_team("ada", "backend", ["ada"], [])(held)
    problem = refusal(lambda: agent_registry.find_team(held, "bakend"))
    assert (problem.code, problem.nearest) == ("mail_team_unknown", ["backend"])


def test_a_recipient_is_an_agent_or_the_one_agent_of_a_role() -> None:
    held = state(ada="lead", bob="tester", cy="tester", eve="coder 1")
    assert agent_registry.resolve_recipient(held, "ADA") == "ada"
    assert agent_registry.resolve_recipient(held, "lead") == "ada"
    assert agent_registry.resolve_recipient(held, "coder 1") == "eve"
    assert agent_registry.resolve_recipient(held, "reviewer") == "reviewer"
    assert agent_registry.resolve_recipient(held, "no/such") == "no/such"
    several = refusal(lambda: agent_registry.resolve_recipient(held, "tester"))
    assert several.nearest == ["bob", "cy"]
    held["agents"]["tester"] = {}
    assert agent_registry.resolve_recipient(held, "tester") == "tester"


def test_an_unknown_recipient_is_refused_with_the_nearest_names() -> None:
    problem = refusal(lambda: agent_registry.require_agent("revewer", ["ada", "reviewer"]))
    assert (problem.code, problem.nearest) == ("mail_recipient_unknown", ["reviewer"])


@each_case(
    ("first", "then", "left"),
    [
        (
            {"kind": "terminal", "pid": 7, "purpose": "builds", "styling": {"icon": "x"}, "role": "lead"},
            {"kind": "chat", "interface": "cursor"},
            {"kind": "chat", "interface": "cursor", "role": "lead"},
        ),
        (
            {"kind": "chat", "interface": "cursor", "capabilities": ["x"], "status": "working"},
            {"kind": "terminal", "pid": 7},
            {"kind": "terminal", "pid": 7, "status": "working"},
        ),
        (
            {"kind": "terminal", "pid": 7, "purpose": "p"},
            {"kind": "terminal", "pid": 8},
            {"kind": "terminal", "pid": 8, "purpose": "p"},
        ),
        ({"kind": "chat", "interface": "x"}, {"seenAt": "now"}, {"kind": "chat", "interface": "x", "seenAt": "now"}),
    ],
)  # fmt: skip
def test_registering_as_the_other_kind_replaces_the_fields_of_the_former(
    first: dict[str, object], then: dict[str, object], left: dict[str, object]
) -> None:
    state: dict[str, Any] = {}
    agent_registry.register("ada", **first)(state)
    agent_registry.register("ada", **then)(state)
    entry = state["agents"]["ada"]
    entry.pop("registeredAt")
    assert entry == left
