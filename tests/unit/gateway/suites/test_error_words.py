"""Errors of servers about the arguments of a call, whatever their code."""

from __future__ import annotations

from switchboard_mcp.errors import is_about_arguments
from tests.cases import each_case


@each_case(
    ("text", "expected"),
    [
        ("Invalid arguments: project_id: Invalid input: expected nonoptional, received undefined", True),
        ("Missing required parameter 'path'", True),
        ("field `name` is required", True),
        ("Input validation error: 'x' is a required property", True),
        ("The file must be closed", False),
        ("404 Not Found", False),
        ("invalid credentials", False),
    ],
)
def test_refused_arguments_are_recognised_by_the_words(text: str, expected: bool) -> None:
    assert is_about_arguments(text) is expected
