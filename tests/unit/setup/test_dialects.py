from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.setup.child_entries import (
    find_literal_secrets,
    find_problem,
    redacted_target,
    render_child,
    replace_literal_secrets,
)
from switchboard_mcp.setup.dialects import parse_entry
from switchboard_mcp.setup.hosts import BY_NAME, HOSTS
from tests.cases import each_case

HERE = {"workspace": "/w", "platform": "linux"}
COMMAND = ["/bin/switchboard", "--workspace", "/w"]
KEYS = st.sampled_from(
    """
    type command cmd args env environment envs url serverUrl uri httpUrl headers http_headers env_http_headers cwd tools
    bearer_token_env_var requestOptions apiKey oauth disabled enabled timeout tool_timeout_sec includeTools transport
    settings env_vars description trust working_directory disabledTools
    """.split()
)
ODD = st.sampled_from(
    ("${env:A}", "${input:x}", "http://a:b@c/d?token=123456789", "https://[bad", "--api-key=abcdef", "a\0b")
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | ODD,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(("path", "cmd", "args")), inner, max_size=3)
    ),
    max_leaves=6,
)


def server(host: str, entry: dict[str, Any]) -> Any:
    parsed = parse_entry(BY_NAME[host], entry, HERE)
    assert parsed.server is not None, parsed.skip_reason
    return parsed.server


def why(host: str, entry: object) -> str:
    return parse_entry(BY_NAME[host], entry, HERE).skip_reason


def test_a_program_in_every_dialect_is_the_same_server() -> None:
    servers = [
        server("claude-code", {"command": "p", "args": ["-a"], "env": {"K": "v"}}),
        server("opencode", {"type": "local", "command": ["p", "-a"], "environment": {"K": "v"}}),
        server("goose", {"type": "stdio", "cmd": "p", "args": ["-a"], "envs": {"K": "v"}}),
        server("cline", {"transport": {"type": "stdio", "command": "p", "args": ["-a"], "env": {"K": "v"}}}),
        server("zed", {"source": "custom", "command": {"path": "p", "args": ["-a"], "env": {"K": "v"}}}),
        server("codex", {"command": "p", "args": ["-a"], "env": {"K": "v"}}),
        server("vscode", {"type": "stdio", "command": "p", "args": ["-a"], "env": {"K": "v", "GONE": None}}),
    ]
    assert len({repr(each.merge_key) for each in servers}) == 1


def test_an_address_in_every_dialect_is_the_same_server() -> None:
    head, url = {"Authorization": "Bearer ${T}"}, "https://x.example/mcp"
    servers = [
        server("claude-code", {"type": "http", "url": url, "headers": head}),
        server("windsurf", {"serverUrl": url, "headers": {"Authorization": "Bearer ${env:T}"}}),
        server("gemini", {"httpUrl": url, "headers": {"Authorization": "Bearer $T"}}),
        server("codex", {"url": url, "bearer_token_env_var": "T"}),
        server(
            "codex", {"url": url, "env_http_headers": {}, "http_headers": {}, "bearer_token_env_var": "T"}
        ),
        server(
            "cline", {"type": "streamableHttp", "url": url, "headers": {"Authorization": "Bearer ${env:T}"}}
        ),
        server("opencode", {"type": "remote", "url": url, "headers": {"Authorization": "Bearer {env:T}"}}),
        server("continue", {"type": "streamable-http", "url": url, "apiKey": "${{ secrets.T }}"}),
    ]
    assert len({repr(each.merge_key) for each in servers}) == 1


@each_case(
    ("host", "entry", "kind"),
    [
        ("cline", {"url": "https://x.example/mcp"}, "sse"),
        ("cursor", {"url": "https://x.example/sse"}, "sse"),
        ("cursor", {"url": "https://x.example/mcp"}, "http"),
        ("cursor", {"url": "wss://x.example/mcp"}, "ws"),
        ("opencode", {"type": "remote", "url": "https://x.example/sse"}, "sse"),
        ("goose", {"type": "sse", "uri": "https://x.example/mcp"}, "sse"),
    ],
)
def test_the_kind_of_a_server_follows_from_its_address(host: str, entry: dict[str, Any], kind: str) -> None:
    assert server(host, entry).kind == kind


@each_case(
    ("host", "entry", "milliseconds"),
    [
        ("claude-code", {"command": "p", "timeout": 5000}, 5000),
        ("codex", {"command": "p", "tool_timeout_sec": 2.5}, 2500),
        ("zed", {"command": "p", "timeout": 60}, 60000),
        (
            "opencode",
            {"type": "local", "command": ["p"], "timeout": 5000},
            None,
        ),  # of its listing, not of calls
        ("cline", {"command": "p", "timeout": True}, None),
    ],
)
def test_seconds_and_milliseconds(host: str, entry: dict[str, Any], milliseconds: int | None) -> None:
    assert server(host, entry).timeout_ms == milliseconds


def test_lists_of_tools_become_rules_and_approvals_become_none() -> None:
    assert server("gemini", {"command": "p", "includeTools": ["b", "a"], "excludeTools": ["c"]}).allow == [
        "a",
        "b",
    ]
    assert server("gemini", {"command": "p", "excludeTools": ["c"]}).deny == ["c"]
    assert server("copilot", {"type": "local", "command": "p", "tools": ["*"]}).allow == []
    assert server("copilot", {"type": "local", "command": "p", "tools": ["read"]}).allow == ["read"]
    parsed = parse_entry(BY_NAME["cline"], {"command": "p", "autoApprove": ["rm"]}, HERE)
    assert parsed.server is not None
    assert parsed.server.allow == []
    assert "approvals" in parsed.notes[0]


@each_case(
    ("host", "entry", "reason"),
    [
        ("goose", {"type": "builtin", "name": "developer"}, "part of Goose"),
        ("goose", {"type": "stdio", "cmd": "p", "env_keys": ["K"]}, "keyring"),
        ("zed", {"settings": {"token": "t"}}, "extension"),
        ("cursor", {"command": "p", "envFile": ".env"}, "envFile"),
        ("vscode", {"url": "unix:///tmp/x"}, "only this host supports"),
        ("vscode", {"command": "p", "args": ["${input:a}"]}, "asks the user for a value"),
        ("cursor", {"type": "stdio"}, "neither a command nor a URL"),
        ("cursor", "text", "not a valid entry"),
    ],
)
def test_an_entry_that_cannot_move_has_a_reason(host: str, entry: object, reason: str) -> None:
    assert reason in why(host, entry)


@each_case(
    ("entry", "serves"),
    [
        ({"command": "/x/bin/switchboard", "args": ["--workspace", "/w/"]}, "/w"),
        ({"type": "local", "command": ["switchboard"]}, "."),
        ({"command": "python3", "args": ["-m", "switchboard_mcp", "--workspace", "/o"]}, "/o"),
        ({"command": "C:\\x\\switchboard.exe"}, "."),
        ({"command": "npx", "args": ["-y", "some-switchboard"]}, ""),
    ],
)
def test_switchboard_itself_is_recognised_and_the_folder_it_serves(
    entry: dict[str, Any], serves: str
) -> None:
    assert parse_entry(BY_NAME["cursor"], entry, HERE).serves_folder == serves


@each_case("host", HOSTS, ids=lambda host: host.name)
def test_the_entry_of_every_host_is_read_as_switchboard_for_this_folder(host: Any) -> None:
    entry = host.render_entry("switchboard", COMMAND, ["GITHUB_TOKEN", "PLAIN"])
    assert parse_entry(host, entry, HERE).serves_folder == "/w"


def test_hosts_that_hand_down_little_are_told_what_is_needed() -> None:
    assert BY_NAME["codex"].render_entry("s", COMMAND, ["A"])["env_vars"] == ["A"]
    gemini = BY_NAME["gemini"].render_entry("s", COMMAND, ["GITHUB_TOKEN", "PLAIN"])
    assert gemini["env"] == {"GITHUB_TOKEN": "$GITHUB_TOKEN"}
    assert BY_NAME["copilot"].render_entry("s", COMMAND, [])["tools"] == ["*"]


@given(st.sampled_from(HOSTS), st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_entry_is_read_or_stays(host: Any, entry: dict[str, Any]) -> None:
    parsed = parse_entry(host, entry, HERE)
    assert bool(parsed.server) != bool(parsed.skip_reason)
    if parsed.server is not None and not find_problem("x", parsed.server, "/w"):
        assert isinstance(redacted_target(parsed.server), str)
        clean, values = replace_literal_secrets("x", parsed.server, {})
        assert len(values) == len(find_literal_secrets(parsed.server))
        assert render_child("x", clean, "/w")
