"""The switchboard suite: finds, tells how children are and what went wrong, to each what it may see."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from msgspec import structs

from switchboard_mcp.children.builtin import BuiltinChild
from switchboard_mcp.config.models import SWITCHBOARD_NAME, ChildSpec, Config, Expose
from switchboard_mcp.config.sections import Profile
from switchboard_mcp.errors import failure
from switchboard_mcp.gateway.suites import tool_search
from switchboard_mcp.gateway.suites.profile_suite import apply_profiles
from switchboard_mcp.gateway.suites.switchboard_suite import SwitchboardServer
from switchboard_mcp.observability.recent_errors import MAX_ERRORS, RecentErrors
from switchboard_mcp.suites.token_estimate import estimate
from tests.unit.gateway.board import Board, Host, Json

ISSUE: Json = {
    "name": "create_issue",
    "description": "Open a new issue in a repository.",
    "inputSchema": {
        "type": "object",
        "properties": {"title": {"type": "string"}, "labels": {"type": "array", "items": {"type": "string"}}},
        "required": ["title"],
    },
}
STAR: Json = {"name": "star", "description": "Star a repository.", "inputSchema": {"type": "object"}}


class Home:
    """A board with a house; children are added before the first host."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.recent = board.services.recent_errors = RecentErrors(board.loop.time)
        self.house = SwitchboardServer(self.recent)
        board.services.builtin_apps = {SWITCHBOARD_NAME: self.house}
        spec = ChildSpec(name=SWITCHBOARD_NAME, source="test", kind="builtin", description="Find.")
        board.children[SWITCHBOARD_NAME] = BuiltinChild(spec, Config(), board.services)

    def host(self, principal: str = "") -> Host:
        self.house.gateway = self.board.gateway
        return self.board.host(principal=principal)

    def introspection(self, **settings: object) -> None:
        """Change the settings of introspect, for every suite."""
        for suite in self.board.gateway.suites.values():
            suite.introspection = structs.replace(suite.introspection, **settings)

    def ask(self, host: Host, subtool: str, **args: object) -> Json:
        """The structured answer of one of its tools."""
        called = host.call(subtool, "switchboard_suite", args=args)
        self.board.settle()
        result = host.result(called)
        answer: Json = result.get("structuredContent") or json.loads(result["content"][0]["text"])
        return answer


@pytest.fixture
def home(board: Board) -> Iterator[Home]:
    home = Home(board)
    yield home
    home.board.settle()


def use(host: Host, suite: str, subtool: str) -> None:
    """Have a child started, so that it is known."""
    host.call(subtool, suite)


def test_find_names_the_subtool_with_all_it_takes_to_call_it(home: Home) -> None:
    home.board.child("github", tools=[ISSUE, STAR])
    host = home.host()
    use(host, "github_suite", "star")
    found = home.ask(host, "find", query="open an issue", limit=1)
    assert found["matches"] == [
        {
            "suite": "github_suite",
            "subtool": "create_issue",
            "signature": "(title: string, labels?: string[])",
            "summary": "Open a new issue in a repository.",
        }
    ]
    assert '"action":"call"' in found["next"]


def test_find_says_which_suites_it_could_not_search_and_starts_nothing(home: Home) -> None:
    kid = home.board.child("github", tools=[ISSUE])
    found = home.ask(home.host(), "find", query="issue")
    assert (found["matches"], found["notSearched"]) == ([], ["github_suite"])
    assert kid.runs == []


def huge(number: int) -> Json:
    """A tool whose schema alone is several times the budget of an answer."""
    step = {
        "type": "object",
        "properties": {
            f"part_{n}": {"type": "string", "description": "A long story. " * 9} for n in range(90)
        },
    }
    kinds = {"type": "string", "enum": [f"kind_of_step_{n}" for n in range(300)]}
    properties = {"title": {"type": "string"}, "steps": {"type": "array", "items": step}, "kind": kinds}
    return {
        "name": f"create_issue_{number}",
        "description": "Open a new issue. " * 50,
        "inputSchema": {"type": "object", "properties": properties, "required": ["title"]},
    }


@pytest.mark.parametrize("limit", [1, 5, 20])
@pytest.mark.parametrize("budget", [50, 300, 1200])
def test_find_keeps_its_token_budget_and_is_sent_once(
    home: Home, monkeypatch: pytest.MonkeyPatch, budget: int, limit: int
) -> None:
    monkeypatch.setattr(tool_search, "LOOP_BYTES", 1_000_000)  # the board does not wait for threads
    home.board.child("github", tools=[huge(number) for number in range(20)])
    host = home.host()
    home.introspection(budget_tokens=budget)
    use(host, "github_suite", "create_issue_1")
    called = host.call("find", "switchboard_suite", args={"query": "open an issue", "limit": limit})
    home.board.settle()
    result = host.result(called)
    assert set(result) == {"content"}
    (block,) = result["content"]
    first_match_and_next = 120
    assert estimate(block["text"]) <= max(budget, first_match_and_next)
    matches = json.loads(block["text"])["matches"]
    if budget == 1200:
        assert len(matches) == limit
    if budget == 1200 and limit < 20:
        assert matches[0]["signature"].startswith("(title: string, steps?: {…}[], kind?: ")


def test_find_shortens_the_largest_match_and_keeps_the_others_whole(home: Home) -> None:
    home.board.child("github", tools=[huge(1), ISSUE])
    host = home.host()
    use(host, "github_suite", "create_issue")
    matches = {match["subtool"]: match for match in home.ask(host, "find", query="open an issue")["matches"]}
    assert matches["create_issue"]["signature"] == "(title: string, labels?: string[])"
    assert "{…}" in matches["create_issue_1"]["signature"]


def test_find_shows_no_parameters_in_redacted_mode(home: Home) -> None:
    home.board.child("github", tools=[ISSUE])
    host = home.host()
    home.introspection(mode="redacted")
    use(host, "github_suite", "create_issue")
    (match,) = home.ask(host, "find", query="open an issue")["matches"]
    assert "signature" not in match


def test_find_names_a_tool_that_is_shown_directly_as_it_is_called(home: Home) -> None:
    home.board.child("github", tools=[ISSUE], exposure="direct")
    host = home.host()
    host.get("tools/list")
    (match,) = home.ask(host, "find", query="open an issue")["matches"]
    assert match["tool"] == "create_issue"
    assert "suite" not in match


def test_find_keeps_to_policy_and_profile(home: Home) -> None:
    home.board.child("github", tools=[ISSUE, STAR], expose=Expose(deny=["star"]))
    home.board.child("gitlab", tools=[ISSUE])
    profile = Profile(suites=["github", SWITCHBOARD_NAME], expose={"github": Expose(deny=["create_*"])})
    host = home.host()
    use(host, "github_suite", "create_issue")
    use(host, "gitlab_suite", "create_issue")
    apply_profiles(home.board.gateway, {"p": profile}, {"ada": "p"}, "", home.board.services.log)
    ada = home.host("ada")
    query = "open an issue or star a repository"
    assert home.ask(ada, "find", query=query)["matches"] == []
    (match,) = home.ask(host, "find", query=query)["matches"]  # both have the same subtool
    assert (match["suite"], match["also"]) == ("github_suite", ["gitlab_suite"])
    assert "star" not in str(home.ask(host, "find", query=query)["matches"])


def test_find_notices_what_a_child_offers_now(home: Home) -> None:
    kid = home.board.child("github", tools=[STAR])
    host = home.host()
    use(host, "github_suite", "star")
    assert home.ask(host, "find", query="open an issue")["matches"] == []
    kid.lists["tools/list"] = [STAR, ISSUE]
    kid.server.notify("notifications/tools/list_changed")
    assert home.ask(host, "find", query="open an issue")["matches"][0]["subtool"] == "create_issue"


def test_status_tells_of_each_child_what_is_known_and_how_it_is(home: Home) -> None:
    home.board.child("github", tools=[ISSUE] * 1 + [STAR])
    home.board.child("quiet")
    host = home.host()
    use(host, "github_suite", "star")
    host.ask("tools/call", {"name": "github_suite", "arguments": {"action": "introspect"}})
    github, quiet = home.ask(host, "status")["children"]
    assert github["health"] == "healthy"
    assert (github["started"], github["known"], github["calls"], github["subtools"]) == (True, True, 1, 2)
    assert "tokensSaved" in github
    assert quiet["state"] == "configured"
    assert "started" not in quiet
    assert "known" not in quiet


def test_status_of_one_suite_and_of_none(home: Home) -> None:
    home.board.child("github")
    host = home.host()
    assert len(home.ask(host, "status", suite="github")["children"]) == 1
    assert home.ask(host, "status", suite="gitbub_suite")["error"]["nearest"] == ["github_suite"]


def test_recent_tells_what_went_wrong_without_secrets(home: Home) -> None:
    home.board.services.redactor.register("s3cr3t-t0ken")
    kid = home.board.child("github", tools=[STAR])
    host = home.host()
    host.call("star", "github_suite")
    kid.server.refuse(kid.server.last(), -32000, "no access with s3cr3t-t0ken")
    home.board.advance(5)
    (error,) = home.ask(host, "recent")["errors"]
    assert (error["code"], error["child"], error["subtool"]) == ("child_error", "github", "star")
    assert error["secondsAgo"] == 5
    assert "s3cr3t" not in str(error)


def test_recent_tells_nobody_of_the_calls_of_another(home: Home) -> None:
    kid = home.board.child("github", tools=[STAR])
    ada = home.host("ada")
    ada.call("star", "github_suite")
    kid.server.refuse(kid.server.last(), -32000, "ada's own")
    assert home.ask(home.host("bob"), "recent")["errors"] == []
    assert len(home.ask(ada, "recent")["errors"]) == 1


def test_recent_tells_no_session_of_the_calls_of_another_that_is_connected(home: Home) -> None:
    kid = home.board.child("github", tools=[STAR])
    first, second = home.host(), home.host()
    first.call("star", "github_suite")
    kid.server.refuse(kid.server.last(), -32000, "the first one's own")
    assert home.ask(second, "recent")["errors"] == []
    assert len(home.ask(first, "recent")["errors"]) == 1
    first.session.leaves_to = None  # as the sessions of a broker
    home.board.gateway.close(first.session)
    assert home.ask(second, "recent")["errors"] == []


def test_recent_tells_everybody_of_a_child_that_crashed_unless_it_is_hidden(home: Home) -> None:
    kid = home.board.child("github", tools=[STAR])
    host = home.host()
    use(host, "github_suite", "star")
    apply_profiles(
        home.board.gateway,
        {"p": Profile(suites=[SWITCHBOARD_NAME])},
        {"ada": "p"},
        "",
        home.board.services.log,
    )
    kid.server.die()
    assert "child_crashed" in {error["code"] for error in home.ask(home.host("bob"), "recent")["errors"]}
    assert home.ask(home.host("ada"), "recent")["errors"] == []


def test_the_memory_is_short_and_counts_what_repeats() -> None:
    now = [0.0]
    recent = RecentErrors(lambda: now[0])
    for number in range(MAX_ERRORS + 5):
        recent.note(failure("child_crashed", f"{number}", child="kid"))
    now[0] = 7.0
    recent.note(failure("child_crashed", f"{MAX_ERRORS + 4}", child="kid"))
    latest, *rest = recent.seen_by(lambda owner: False)
    assert (latest.times, latest.at, len(rest)) == (2, 7.0, MAX_ERRORS - 1)
