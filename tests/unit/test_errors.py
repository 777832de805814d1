from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path

import pytest
from msgspec import UNSET, Raw

from switchboard_mcp.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    KINDS,
    KNOWN_FAILURE,
    Failure,
    SwitchboardError,
    as_text,
    failure,
    rpc_error,
    tool_result,
)
from tests.cases import each_case

SOURCE = Path(__file__).parents[2] / "src" / "switchboard_mcp"


@cache
def modules() -> list[tuple[Path, ast.Module]]:
    paths = sorted(SOURCE.rglob("*.py"))
    return [(path, ast.parse(path.read_text())) for path in paths if path != SOURCE / "errors.py"]


def constants(node: ast.AST) -> set[str]:
    return {
        inner.value
        for inner in ast.walk(node)
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
    }


def codes(call: ast.Call) -> set[str]:
    """The codes a call makes a failure with, as far as they are written there."""
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    if name == "Failure":
        return set().union(*(constants(word.value) for word in call.keywords if word.arg == "code"))
    if name != "failure" or not call.args:
        return set()
    code = call.args[0]
    return constants(code.body) | constants(code.orelse) if isinstance(code, ast.IfExp) else constants(code)


class TestKinds:
    @each_case("code", KINDS)
    def test_every_kind_says_what_to_do(self, code: str) -> None:
        hint = KINDS[code].hint
        assert len(hint) > 15
        assert hint.endswith(".")
        assert hint[0].isupper()

    def test_every_code_the_source_makes_a_failure_with_is_a_kind(self) -> None:
        unknown = [
            f"{path.relative_to(SOURCE)}: {code}"
            for path, tree in modules()
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            for code in codes(node) - KINDS.keys()
        ]
        assert unknown == []

    def test_every_kind_is_met_somewhere_in_the_source(self) -> None:
        used: set[str] = set()
        for _, tree in modules():
            used |= constants(tree)
        assert KINDS.keys() - used == set()

    def test_a_failure_of_no_kind_cannot_be_made(self) -> None:
        with pytest.raises(KeyError):
            failure("no_such_code", "x")

    def test_outside_a_suite_call_a_failure_is_known_unless_the_protocol_has_a_code_for_it(self) -> None:
        special = {code: kind.rpc for code, kind in KINDS.items() if kind.rpc != KNOWN_FAILURE}
        assert special == {"unknown_tool": INVALID_PARAMS, "internal": INTERNAL_ERROR}


class TestFailure:
    def test_retryability_and_hint_come_from_the_kind(self) -> None:
        problem = failure("child_crashed", "Child 'a' was killed by SIGKILL.", child="a")
        assert problem.retryable is True
        assert problem.hint == KINDS["child_crashed"].hint

    def test_a_better_hint_replaces_that_of_the_kind(self) -> None:
        assert failure("child_crashed", "x", hint="Do this.").hint == "Do this."

    def test_empty_lists_do_not_help_and_are_left_out(self) -> None:
        problem = failure("subtool_unknown", "x", nearest=[], stderr=[])
        assert problem.nearest is UNSET
        assert problem.stderr is UNSET

    def test_the_subtool_is_named_in_the_message_and_once_only(self) -> None:
        problem = failure("child_crashed", "Child 'a' is gone.", child="a").with_subtool("read")
        assert problem.subtool == "read"
        assert problem.message == "Subtool 'read': Child 'a' is gone."
        assert problem.with_subtool("read").message == problem.message

    def test_a_file_name_that_is_no_utf8_can_be_told(self) -> None:
        problem = failure("folder_not_found", "Child 'a': folder '/tmp/caf\udce9' is missing.", child="a")
        assert json.loads(rpc_error(problem))["message"] == "Child 'a': folder '/tmp/caf?' is missing."
        assert json.loads(tool_result(problem))["isError"] is True

    def test_a_raised_failure_reads_like_its_message(self) -> None:
        problem = failure("config_invalid", "switchboard.config.json: unknown key 'x'.")
        error = SwitchboardError(problem)
        assert str(error) == problem.message
        assert error.failure is problem


FULL = failure(
    "subtool_unknown",
    "Child 'git' has no subtool 'comit'.",
    child="git",
    subtool="comit",
    nearest=["commit", "checkout"],
    schema=Raw('{"type":"object","title":"é"}'.encode()),
    stderr=["first", "last"],
    retry_after_ms=1500,
    data=Raw(b'{"any":[1,2.0]}'),
)


class TestWire:
    def test_a_tool_result_speaks_to_a_model_and_to_a_program(self) -> None:
        result = json.loads(tool_result(FULL))
        assert result == {
            "content": [{"type": "text", "text": as_text(FULL)}],
            "isError": True,
            "structuredContent": {
                "error": {
                    "code": "subtool_unknown",
                    "message": "Child 'git' has no subtool 'comit'.",
                    "child": "git",
                    "subtool": "comit",
                    "retryable": False,
                    "hint": KINDS["subtool_unknown"].hint,
                    "nearest": ["commit", "checkout"],
                    "schema": {"type": "object", "title": "é"},
                    "stderr": ["first", "last"],
                    "retryAfterMs": 1500,
                    "data": {"any": [1, 2.0]},
                }
            },
        }

    def test_members_without_use_are_left_out(self) -> None:
        error = json.loads(tool_result(failure("shutting_down", "Bye.")))["structuredContent"]["error"]
        assert error == {
            "code": "shutting_down",
            "message": "Bye.",
            "retryable": True,
            "hint": KINDS["shutting_down"].hint,
        }

    @each_case("code", KINDS)
    def test_the_json_rpc_error_carries_code_message_and_the_whole_failure(self, code: str) -> None:
        problem = failure(code, "It failed.", child="a")
        error = json.loads(rpc_error(problem))
        assert error["code"] == KINDS[code].rpc
        assert error["message"] == "It failed."
        assert error["data"]["error"]["code"] == code
        assert error["data"]["error"]["retryable"] is KINDS[code].retryable

    @each_case("encoded", [tool_result(FULL), rpc_error(FULL)])
    def test_a_failure_is_one_line(self, encoded: bytes) -> None:
        assert b"\n" not in encoded


class TestText:
    def test_everything_that_helps_is_said_in_order(self) -> None:
        assert as_text(FULL).splitlines() == [
            "Child 'git' has no subtool 'comit'.",
            "Nearest: commit, checkout",
            'Schema: {"type":"object","title":"é"}',
            "Lines of stderr:",
            "  first",
            "  last",
            KINDS["subtool_unknown"].hint,
        ]

    def test_a_bare_failure_is_its_message(self) -> None:
        assert as_text(Failure(code="internal", message="Only this.")) == "Only this."
