from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.config.models import Expose
from switchboard_mcp.policy.access import Access, access, denial
from tests.cases import each_case

NAMES = st.text(alphabet="ab*?[]!-", max_size=4)


def rule(allow: list[str] | None = None, deny: list[str] | None = None) -> Access:
    return access(Expose(allow=allow or [], deny=deny or []))


@each_case(
    ("allow", "deny", "subtool", "permitted"),
    [
        ([], [], "click", True),
        (["click"], [], "click", True),
        (["click"], [], "type", False),
        (["get_*"], [], "get_all", True),
        (["get_*"], [], "set_all", False),
        (["get_?"], [], "get_ab", False),
        (["[ab]*"], [], "beta", True),
        (["click"], [], "Click", False),
        ([], ["click"], "click", False),
        ([], ["*_unsafe"], "run_unsafe", False),
        ([], ["*_unsafe"], "run", True),
        (["click"], ["click"], "click", False),
        (["*"], ["del*"], "delete", False),
        (["delete"], ["del*"], "delete", False),
        (["*"], ["*"], "anything", False),
        (["a.c"], [], "abc", False),
        (["*"], [], "", True),
        ([""], [], "x", False),
    ],
)
def test_a_subtool_is_permitted_by_this_table(
    allow: list[str], deny: list[str], subtool: str, permitted: bool
) -> None:
    assert rule(allow, deny).permits(subtool) is permitted


@given(st.lists(NAMES, max_size=3), st.lists(NAMES, max_size=3), NAMES)
def test_deny_wins_and_globs_mean_what_fnmatch_says(allow: list[str], deny: list[str], subtool: str) -> None:
    denied = any(fnmatchcase(subtool, glob) for glob in deny)
    allowed = not allow or any(fnmatchcase(subtool, glob) for glob in allow)
    decided = rule(allow, deny)
    assert decided.permits(subtool) is (allowed and not denied)
    assert decided.permits(subtool) is (allowed and not denied)


def test_memory_for_remembered_values_is_bounded() -> None:
    decided = rule(deny=["x*"])
    for index in range(5000):
        assert decided.permits(f"name{index}")
    assert not decided.permits("x" * 1_000_000)
    assert len(decided.memo) <= 1024
    assert max(len(name) for name in decided.memo) <= 256


def test_a_denial_says_what_the_documentation_promises() -> None:
    problem = denial("playwright", "playwright", "recordHar")
    assert problem.message == "Subtool 'recordHar' not allowed by Switchboard (suite 'playwright')."
    assert (problem.code, problem.child, problem.subtool) == ("subtool_denied", "playwright", "recordHar")
    assert problem.retryable is False


def test_a_denial_names_the_child_too_where_the_suite_does_not() -> None:
    problem = denial("playwright", "browser", "recordHar")
    assert (
        problem.message
        == "Subtool 'recordHar' not allowed by Switchboard (suite 'browser', child 'playwright')."
    )
