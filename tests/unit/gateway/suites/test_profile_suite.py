"""Profiles: what a client does not see reads as if it were not there, wherever it asks."""

from __future__ import annotations

import json

from switchboard_mcp.config.models import Expose
from switchboard_mcp.config.sections import LimitSettings, Profile
from switchboard_mcp.errors import failure
from switchboard_mcp.gateway.suites.profile_suite import apply_profiles
from switchboard_mcp.gateway.suites.refused_suite import govern
from tests.cases import each_case
from tests.unit.gateway.board import ECHO, Board, Host, Json, open_board
from tests.unit.gateway.pipeline.chained import chained

READ: Json = {"name": "read", "inputSchema": {"type": "object"}}
WRITE: Json = {"name": "write", "inputSchema": {"type": "object"}}
PROMPT: Json = {"name": "write"}
LISTS = {
    "prompts/list": [PROMPT, {"name": "read"}],
    "resources/list": [{"uri": "x://write", "name": "w"}],
}


def profiled(board: Board, profile: Profile, principal: str = "ada") -> Host:
    """A host whose token has this profile."""
    apply_profiles(board.gateway, {"p": profile}, {principal: "p"}, "", board.services.log)
    return board.host(principal=principal)


def tools(host: Host) -> list[str]:
    return [tool["name"] for tool in host.get("tools/list")["tools"]]


def problem_of(host: Host, id: int | str) -> Json:
    error: Json = host.result(id)["structuredContent"]["error"]
    return error


def test_a_client_sees_the_suites_of_its_profile_and_others_see_all(board: Board) -> None:
    for name in ("docs", "mail", "shell"):
        board.child(name)
    ada = profiled(board, Profile(suites=["docs", "ma*"]))
    assert tools(ada) == ["docs_suite", "mail_suite"]
    assert tools(board.host()) == ["docs_suite", "mail_suite", "shell_suite"]


def test_hidden_suites_stay_hidden_and_new_ones_are_listed(board: Board) -> None:
    for name in ("docs", "mail", "shell"):
        board.child(name)
    assert tools(profiled(board, Profile(hide=["sh*"]))) == ["docs_suite", "mail_suite"]
    assert tools(profiled(board, Profile(suites=["docs", "shell"], hide=["shell_suite"]))) == ["docs_suite"]


def test_a_suite_can_be_named_by_its_tool_too(board: Board) -> None:
    board.child("docs", suite_name="library")
    assert tools(profiled(board, Profile(suites=["library"]))) == ["library"]


def test_an_empty_list_of_suites_shows_none(board: Board) -> None:
    board.child()
    assert tools(profiled(board, Profile(suites=[]))) == []


def test_a_hidden_suite_is_an_unknown_tool_and_is_named_to_nobody(board: Board) -> None:
    board.child("docs")
    board.child("shell")
    ada = profiled(board, Profile(suites=["docs"]))
    stranger = ada.error(ada.call(suite="shells_suite"))
    hidden = ada.error(ada.call(suite="shell_suite"))
    assert hidden["message"] == stranger["message"].replace("shells_suite", "shell_suite")
    assert hidden["data"]["error"]["nearest"] == ["docs_suite"]


def test_a_hidden_subtool_is_not_listed_and_reads_as_unknown(board: Board) -> None:
    kid = board.child(tools=[READ, WRITE])
    ada = profiled(board, Profile(expose={"kid": Expose(deny=["write"])}))
    opened = ada.result(ada.ask("tools/call", {"name": "kid_suite", "arguments": {"action": "introspect"}}))
    assert [tool["name"] for tool in json.loads(opened["content"][0]["text"])["tools"]] == ["read"]
    assert "write" not in str(ada.get("tools/list"))
    problem = problem_of(ada, ada.call("write"))
    assert problem["code"] == "subtool_unknown"
    assert problem["message"] == problem_of(ada, ada.call("wrote"))["message"].replace("wrote", "write")
    assert not kid.server.requests("tools/call")


def test_an_entry_denied_to_all_stays_denied_in_a_profile_that_allows_it(board: Board) -> None:
    board.child(tools=[READ, WRITE], expose=Expose(deny=["write"]))
    ada = profiled(board, Profile(expose={"kid_suite": Expose(allow=["*"])}))
    assert problem_of(ada, ada.call("write"))["code"] == "subtool_denied"


def test_a_look_at_one_hidden_subtool_says_that_there_is_none(board: Board) -> None:
    board.child(tools=[READ, WRITE])
    ada = profiled(board, Profile(expose={"kid": Expose(allow=["read"])}))
    arguments = {"action": "introspect", "subtool": "write"}
    problem = problem_of(ada, ada.ask("tools/call", {"name": "kid_suite", "arguments": arguments}))
    assert (problem["code"], problem.get("nearest")) == ("subtool_unknown", None)


def test_prompts_and_resources_follow_the_same_rules(board: Board) -> None:
    kid = board.child(tools=[READ, WRITE], lists=LISTS)
    board.child("other", lists={"prompts/list": [{"name": "hello"}]})
    ada = profiled(board, Profile(suites=["kid"], expose={"kid": Expose(deny=["*write"])}))
    ada.call("read")
    board.host().call(suite="other_suite")
    assert [prompt["name"] for prompt in ada.get("prompts/list")["prompts"]] == ["kid__read"]
    assert ada.get("resources/list")["resources"] == []
    assert "Unknown prompt" in ada.error(ada.ask("prompts/get", {"name": "kid__write"}))["message"]
    assert "Unknown prompt" in ada.error(ada.ask("prompts/get", {"name": "other__hello"}))["message"]
    uri = {"uri": "switchboard://kid/x://write"}
    assert "Unknown resource" in ada.error(ada.ask("resources/read", uri))["message"]
    assert not kid.server.requests("prompts/get")


def test_a_change_of_a_hidden_child_is_not_reported(board: Board) -> None:
    board.child("docs")
    shell = board.child("shell")
    ada = profiled(board, Profile(suites=["docs"]))
    bob = board.host()
    bob.call(suite="shell_suite")
    shell.server.notify("notifications/tools/list_changed")
    assert bob.heard("notifications/tools/list_changed")
    assert not ada.heard("notifications/tools/list_changed")


def test_tools_that_are_shown_directly_can_be_hidden_too(board: Board) -> None:
    board.child(exposure="direct", tools=[READ, WRITE])
    ada = profiled(board, Profile(expose={"kid": Expose(allow=["read"])}))
    assert tools(ada) == ["read"]
    assert "Unknown tool" in ada.error(ada.ask("tools/call", {"name": "write", "arguments": {}}))["message"]


def test_a_profile_can_be_that_of_everybody_who_has_none(board: Board) -> None:
    board.child("docs")
    board.child("shell")
    profiles = {"p": Profile(suites=["docs"]), "q": Profile(suites=["shell"])}
    apply_profiles(board.gateway, profiles, {"ada": "q"}, "p", board.services.log)
    assert tools(board.host()) == ["docs_suite"]
    assert tools(board.host(principal="ada")) == ["shell_suite"]
    assert list(board.gateway.suites) == ["docs_suite"]


def test_limits_and_the_record_hold_for_what_a_profile_shows(board: Board) -> None:
    kid = board.child(tools=[READ, WRITE])
    recorder = chained(board, limits=LimitSettings(concurrent=1, queue=0))
    ada = profiled(board, Profile(expose={"kid": Expose(allow=["read"])}))
    ada.call("write")
    ada.call("read")
    other = board.host()
    assert problem_of(other, other.call("read"))["code"] == "suite_busy"
    kid.server.give(kid.server.last(), {"content": []})
    assert recorder.outcomes == ["subtool_unknown", "suite_busy", "ok"]


@each_case(("suites", "known"), [(["kid", "ghost"], True), (["kid"], False)], board=open_board)
def test_a_child_that_may_not_exist_is_named_only_to_those_who_would_see_it(
    board: Board, suites: list[str], known: bool
) -> None:
    board.child()
    apply_profiles(board.gateway, {"p": Profile(suites=suites)}, {"ada": "p"}, "", board.services.log)
    absent = {"ghost": failure("child_not_allowed", "Child 'ghost' is not approved.", child="ghost")}
    govern(board.gateway, board.config, absent, None)
    ada = board.host(principal="ada")
    answer = ada.answer(ada.call(suite="ghost_suite"))
    assert answer is not None
    assert ("error" in answer) is not known


def test_echo_is_still_called_as_before(board: Board) -> None:
    kid = board.child(tools=[ECHO])
    ada = profiled(board, Profile(suites=["kid"]))
    called = ada.call(args={"a": 1})
    kid.server.give(kid.server.last(), {"content": []})
    assert ada.result(called) == {"content": []}
