from __future__ import annotations

import pytest

from switchboard_mcp.config.models import Config
from switchboard_mcp.config.models import SuiteSettings as SuiteConfig
from switchboard_mcp.errors import failure
from switchboard_mcp.gateway.suites.refused_suite import govern
from tests.unit.gateway.board import Board

NOT_ALLOWED = failure("child_not_allowed", "Child 'other' is not approved.", child="other")
DISABLED = failure("governance_disabled", "Switched off.")


@pytest.fixture
def governed(board: Board) -> Board:
    board.child("kid")
    return board


def test_an_absent_suite_is_not_listed_and_says_why_when_it_is_called(governed: Board) -> None:
    host = governed.host()
    config = Config(suites={"other": SuiteConfig(suite_name="fine_name")})
    govern(governed.gateway, config, {"other": NOT_ALLOWED}, None)
    listed = host.result(host.ask("tools/list"))
    assert [tool["name"] for tool in listed["tools"]] == ["kid_suite"]
    answer = host.result(host.ask("tools/call", {"name": "fine_name", "arguments": {"action": "introspect"}}))
    assert answer["isError"] is True
    assert answer["structuredContent"]["error"]["code"] == "child_not_allowed"


def test_an_absent_child_never_takes_the_name_of_one_that_exists(governed: Board) -> None:
    host = governed.host()
    config = Config(suites={"other": SuiteConfig(suite_name="kid_suite")})
    govern(governed.gateway, config, {"other": NOT_ALLOWED}, None)
    assert "kid_suite" not in governed.gateway.absent
    answer = host.result(host.ask("tools/call", {"name": "kid_suite", "arguments": {"action": "introspect"}}))
    assert not answer.get("isError")


def test_while_the_switch_is_off_suites_are_shown_and_serve_nobody(governed: Board) -> None:
    host = governed.host()
    govern(governed.gateway, Config(), {}, DISABLED)
    assert [tool["name"] for tool in host.result(host.ask("tools/list"))["tools"]] == ["kid_suite"]
    for arguments in (
        {"action": "introspect"},
        {"op": "call", "subtool": "echo"},
        {"action": "call", "subtool": "x"},
    ):
        answer = host.result(host.ask("tools/call", {"name": "kid_suite", "arguments": arguments}))
        error = answer["structuredContent"]["error"]
        assert (error["code"], error["child"]) == ("governance_disabled", "kid")


def test_while_the_switch_is_off_no_child_lets_anybody_in(board: Board) -> None:
    board.services.disabled = DISABLED
    kid = board.child("kid", exposure="direct", tools=[{"name": "echo", "inputSchema": {"type": "object"}}])
    host = board.host()
    host.ask("tools/list")
    board.settle()
    assert kid.state.value == "configured"
    assert kid.peer is None
