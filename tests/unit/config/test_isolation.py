"""Children that several hosts may share, and those that hold the state of one."""

from __future__ import annotations

from switchboard_mcp.config.isolation import SESSION_PACKAGES, decide_isolation
from switchboard_mcp.config.models import ChildSpec
from tests.cases import each_case


def spec(name: str, *words: str, kind: str = "stdio") -> ChildSpec:
    return ChildSpec(name=name, kind=kind, command=words[0], args=list(words[1:]), source="x")  # type: ignore[arg-type]


@each_case("package", sorted(SESSION_PACKAGES))
def test_a_server_that_holds_the_state_of_one_user_runs_once_per_session(package: str) -> None:
    assert decide_isolation(spec("a", "npx", "-y", f"{package}@latest"), []) == "session"


@each_case(
    ("child", "tools", "expected"),
    [
        (spec("memory", "npx", "-y", "@modelcontextprotocol/server-memory"), [], "shared"),
        (spec("fetch", "uvx", "mcp-server-fetch"), ["fetch"], "shared"),
        (spec("sh", "uvx", "mcp-shell-server"), ["shell_execute"], "shared"),
        (spec("my-browser", "node", "server.js"), [], "session"),
        (spec("a", "/opt/terminal-mcp/run"), [], "shared"),
        (spec("a", "/opt/terminal-mcp"), [], "session"),
        (spec("a", "node", "server.js"), ["read", "set_working_dir"], "session"),
        (spec("a", "node", "server.js"), ["close_session"], "session"),
        (spec("a", "node", "server.js"), ["list_sessions", "reset"], "shared"),
        (spec("mysql", "node", "server.js"), ["connect_db", "query"], "session"),
        (spec("a", "node", "server.js"), ["query", "dbConnect"], "session"),
        (spec("a", "node", "server.js"), ["jira.login"], "session"),
        (spec("a", "node", "server.js"), ["sign-in"], "session"),
        (spec("a", "node", "server.js"), ["set_api_key"], "session"),
        (spec("a", "node", "server.js"), ["list_connections", "get_login_count", "blogin"], "shared"),
        (spec("a", "node", "server.js"), ["get_author", "connectivity"], "shared"),
        (spec("browser", "", kind="http"), ["browser_click"], "shared"),
    ],
)
def test_others_are_recognised_by_name_and_tools(child: ChildSpec, tools: list[str], expected: str) -> None:
    assert decide_isolation(child, tools) == expected
