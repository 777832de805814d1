"""Verdicts on programs: written the way models write them, and with faults. The real type checker runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from bench.program_checks import Checker, sample_modules, sample_programs, seeded_faults
from switchboard_mcp.programs.checking import stubs
from switchboard_mcp.programs.checking.diagnostics import could_be, weight
from switchboard_mcp.programs.checking.stubs import ProgramTool
from switchboard_mcp.programs.checking.verdict import verdict
from switchboard_mcp.programs.engine import CheckReport, Diagnostic, Failed
from tests.cases import each_case

VALID, FAULTY = sample_programs("valid.txt"), sample_programs("faulty.txt")


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    with Checker() as found:
        yield found


def test_there_are_enough_programs() -> None:
    assert len(VALID) >= 40
    assert len(FAULTY) >= 40


@each_case("title", VALID)
def test_a_valid_program_is_accepted(checker: Checker, title: str) -> None:
    code = VALID[title]
    found = checker.verdict(code, sample_modules(code))
    assert found.is_accepted, found.text()


@each_case("title", FAULTY)
def test_a_faulty_program_is_refused_with_what_is_wrong(checker: Checker, title: str) -> None:
    code = FAULTY[title]
    found = checker.verdict(code, sample_modules(code))
    assert not found.is_accepted
    assert title.rpartition(" | ")[2] in found.text()
    assert all(one.source for one in found.errors)


def test_seeded_faults_are_refused(checker: Checker) -> None:
    """A sample: `python -m bench program_checks` takes all."""
    seen: Counter[str] = Counter()
    for title in list(VALID)[::6]:
        for kind, code in seeded_faults(VALID[title], 1):
            seen[kind] += 1
            assert not checker.verdict(code, sample_modules(code)).is_accepted, (kind, code)
    assert len(seen) == 5


def test_the_manifest_says_what_reads_and_what_writes(checker: Checker) -> None:
    code = (
        "import github, time_suite, sqlite\nfor i in await github.list_issues(owner='a', repo='b'):\n"
        "    await github.update_issue(owner='a', repo='b', issue_number=i['number'], state='closed')\n"
        "await sqlite.describe_table(table_name='x')\nawait time_suite.get_current_time(timezone='UTC')"
    )
    found = checker.verdict(code, sample_modules(code))
    assert found.is_accepted
    assert {(one.suite, one.subtool, one.function, one.is_read) for one in found.manifest} == {
        ("github", "list_issues", "list_issues", True),
        ("github", "update_issue", "update_issue", False),
        ("sqlite", "describe-table", "describe_table", True),
        ("time", "get_current_time", "get_current_time", True),
    }
    assert [one.subtool for one in found.writes] == ["update_issue"]


def test_an_error_shows_the_line_the_nearest_name_and_the_parameters(checker: Checker) -> None:
    code = "import github\n\nawait github.get_issue(owner='a', repo='b', issue_nr=3, issue_number=1)"
    assert checker.verdict(code, sample_modules(code)).text() == (
        "line 3: Argument `issue_nr` does not match any known parameter of function `get_issue`. "
        "Did you mean `issue_number`? Parameters (* = required): owner*, repo*, issue_number*.\n"
        "    await github.get_issue(owner='a', repo='b', issue_nr=3, issue_number=1)"
    )


def test_a_crowd_of_errors_is_cut(checker: Checker) -> None:
    code = "import github\n" + "\n".join(f"x{n} = unknown_{n}" for n in range(40))
    found = checker.verdict(code, sample_modules(code))
    assert len(found.errors) == 10
    assert "… and 30 more" in found.text()


@each_case(
    ("value", "expected", "fits"),
    [
        ("str", 'Literal["a", "b"]', True),
        ('Literal["c"]', 'Literal["a", "b"]', False),
        ("int", 'Literal["a"]', False),
        ("dict[str, str]", "Issue", True),
        ("list[dict[str, str]]", "list[Issue]", True),
        ("list[int]", "list[str]", False),
        ("list[str | int]", "list[str]", True),
        ("list[int]", "Sequence[float]", True),
        ("dict[str, int]", "Mapping[str, float]", True),
        ("dict[str, str]", "Mapping[str, float]", False),
        ("str | None", "str", True),
        ("None", "str", False),
        ("Issue", "str", False),
        ("Issue", "dict[str, Any]", True),
        ("tuple[str, str]", "list[str]", True),
        ("set[str]", "list[str]", False),
        ("CoroutineType[Any, Any, str]", "str", False),
        ("Unknown", "str", True),
        ('Literal["a, b | c", "d"]', "int", False),
        ("list[list[int]]", "list[list[str]]", False),
    ],
)
def test_a_value_that_may_be_right_does_not_refuse(value: str, expected: str, fits: bool) -> None:
    assert could_be(value, expected) is fits


@each_case(
    ("code", "message", "expected"),
    [
        ("unresolved-attribute", "Attribute `x` is not defined on `None` in union `A | None`", "warning"),
        (
            "not-subscriptable",
            "Cannot subscript object of type `None` with no `__getitem__` method",
            "warning",
        ),
        ("unresolved-attribute", "Object of type `str` has no attribute `x`", "error"),
        ("invalid-key", 'Unknown key "x" for TypedDict `A`', "error"),
        ("a-rule-of-the-next-version", "Something is wrong", "error"),
        ("invalid-assignment", "Object of type `int` is not assignable to `str`", "warning"),
        ("unsupported-operator", "Operator `+` is not supported between `int | None` and `int`", "warning"),
        ("redundant-condition", "always falsy", "none"),
        ("invalid-argument-type", "Expected `" + "list[" * 900 + "`, found `int`", "warning"),
    ],
)
def test_messages_have_a_weight(code: str, message: str, expected: str) -> None:
    assert weight(Diagnostic(code, message, 1, 1), "x") == expected


@each_case(
    "analysis",
    [
        {
            "calls": [["github"], ["github", "nope"], 7, ["a", ["b"]]],
            "refusals": {},
            "hints": [3, {"line": "x"}],
        },
        {
            "literals": [{"line": 1, "module": [], "function": {}, "arguments": 3}],
            "allowed": [[[]], [1, None]],
        },
        {"refusals": [{"line": 10**9, "code": None, "message": None}], "calls": None},
    ],
)
def test_an_analysis_of_another_shape_is_no_surprise(analysis: dict[str, object]) -> None:
    code = "import github\nawait github.list_issues()"
    modules = [stubs.checked("github", "github", [ProgramTool("list_issues")], stubs.mentioned(code))]
    found = verdict(CheckReport(analysis=analysis), code, modules)
    assert found.manifest == ()


def test_a_check_that_failed_refuses() -> None:
    report = CheckReport(failure=Failed("limit", "The check took too long.", 0))
    assert "too long" in verdict(report, "x", []).text()
