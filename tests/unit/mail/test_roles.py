"""Roles, and who may give them."""

from __future__ import annotations

from switchboard_mcp.mail.roles import ROLES, file_name, may_assign, read_role
from tests.cases import each_case


@each_case("role", ROLES)
def test_every_role_is_known_by_its_name_in_any_spelling(role: str) -> None:
    for written in (role, role.upper(), role.replace(" ", "-")):
        assert read_role(written) == role
    assert read_role(file_name(role)) == role


@each_case("written", ["boss", "", "coder", "coder  1", "../lead", "lead\n"])
def test_a_file_that_is_no_role_gives_none(written: str) -> None:
    assert read_role(written) is None


@each_case(
    ("by", "agent", "role", "held", "allowed"),
    [
        ("a", "a", "lead", {}, True),
        ("a", "b", "lead", {"b": ""}, True),
        ("a", "b", "tester", {"a": "lead"}, True),
        ("a", "b", "lead", {"a": "lead"}, True),
        ("b", "b", "lead", {"a": "lead"}, False),
        ("b", "c", "tester", {"a": "lead"}, False),
        ("b", "b", "tester", {"a": "lead"}, True),
    ],
)
def test_a_lead_gives_roles_and_nobody_takes_the_leads(
    by: str, agent: str, role: str, held: dict[str, str], allowed: bool
) -> None:
    assert may_assign(by, agent, role, held) is allowed
