from __future__ import annotations

import json
from pathlib import Path

from switchboard_mcp.setup.child_entries import (
    TEAM,
    find_literal_secrets,
    find_problem,
    redacted_target,
    render_child,
    replace_literal_secrets,
    safe_name,
)
from switchboard_mcp.setup.dialects import HostServer
from tests.cases import each_case

KEY = "sk-proj-aB3dE5fG7hI9jK1lM3nO5pQ7rS9t"


@each_case(
    ("name", "safe"),
    [
        ("github", "github"),
        ("My Server!", "My-Server"),
        ("../../etc", "etc"),
        ("ä", "server"),
        ("", "server"),
    ],
)
def test_a_name_can_be_a_folder(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_the_file_of_a_child_is_in_the_dialect_that_switchboard_reads() -> None:
    server = HostServer(
        kind="stdio", command="npx", args=["-y", "@modelcontextprotocol/server-memory"], env={"A": "b"}
    )
    written = json.loads(render_child("memory", server, "/w"))
    assert written["command"] == {
        "cmd": "npx",
        "args": ["-y", "@modelcontextprotocol/server-memory"],
        "env": {"A": "b"},
    }
    assert written["switchboardDescription"].startswith("Remember")
    assert written["cwd"] == "../../.."
    assert find_problem("memory", server, "/w") == ""
    assert "NUL" in find_problem("x", HostServer(kind="stdio", command="a\0b"), "/w")


def test_a_child_that_the_workspace_describes_gets_no_text_of_the_library(tmp_path: Path) -> None:
    server = HostServer(kind="stdio", command="npx", args=["-y", "@modelcontextprotocol/server-memory"])
    own = {"mcps": {"memory": {"switchboard": "Ours."}, "notes": {"claude": "Only for wrappers."}}}
    (tmp_path / "mcp-descriptions.json").write_text(json.dumps(own))
    assert "switchboardDescription" not in json.loads(render_child("memory", server, str(tmp_path)))
    assert "switchboardDescription" in json.loads(render_child("notes", server, str(tmp_path)))


@each_case(
    ("cwd", "written"),
    [("", "../.."), ("/w", "../.."), ("/w/a/b", "../../a/b"), ("/w/..a", "../../..a"), ("/other", "/other")],
)
def test_a_folder_within_the_workspace_is_written_without_where_that_is(cwd: str, written: str) -> None:
    server = HostServer(kind="stdio", command="x", cwd=cwd)
    assert json.loads(render_child("x", server, "/w", TEAM))["cwd"] == written


@each_case(
    "server",
    [
        HostServer(kind="stdio", command="x", args=["--api-key", KEY]),
        HostServer(kind="stdio", command="x", args=[f"--token={KEY}"]),
        HostServer(kind="stdio", command="x", args=["postgresql://u:pa55-word-x@h/db"]),
        HostServer(kind="stdio", command="x", args=["0a1b2c3d4e5f60718293a4b5c6d7e8f9"]),
        HostServer(kind="http", url="https://u:pa55-word-x@h/mcp"),
        HostServer(kind="http", url=f"https://h/mcp?apiKey={KEY}"),
    ],
)
def test_the_summary_of_a_server_has_no_secret(server: HostServer) -> None:
    result = redacted_target(server)
    for secret in (KEY, "pa55-word-x", "0a1b2c3d4e5f60718293a4b5c6d7e8f9"):
        assert secret not in result


def test_secrets_that_are_written_out_are_found_and_others_are_not() -> None:
    server = HostServer(
        kind="stdio",
        command="x",
        args=["--api-key", KEY, "--port", "8080"],
        env={"GITHUB_TOKEN": "abcdef12345", "LEVEL": "debug", "FILLED_TOKEN": "${T}", "KEY_FILE": "/etc/key"},
    )
    assert [each.location for each in find_literal_secrets(server)] == ["env.GITHUB_TOKEN", "args --api-key"]
    clean, values = replace_literal_secrets("my-server", server, {})
    assert clean.env["GITHUB_TOKEN"] == "${GITHUB_TOKEN}"
    assert clean.args[1] == "${MY_SERVER_API_KEY}"
    assert values == {"GITHUB_TOKEN": "abcdef12345", "MY_SERVER_API_KEY": KEY}
    assert find_literal_secrets(clean) == []


def test_a_variable_that_means_something_else_already_is_not_used() -> None:
    server = HostServer(kind="stdio", command="x", env={"API_TOKEN": "second-value"})
    _, values = replace_literal_secrets("b", server, {"API_TOKEN": "first-value"})
    assert values == {"B_API_TOKEN": "second-value"}


def test_a_header_keeps_its_scheme() -> None:
    server = HostServer(kind="http", url="https://h/mcp", headers={"Authorization": f"Bearer {KEY}"})
    clean, values = replace_literal_secrets("h", server, {})
    assert clean.headers == {"Authorization": "Bearer ${H_TOKEN}"}
    assert values == {"H_TOKEN": KEY}
