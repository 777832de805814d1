from __future__ import annotations

from pathlib import Path

from switchboard_mcp.config.sandbox import sandbox_mistakes
from switchboard_mcp.setup.known_servers import find_known_server, load_library, propose_sandbox
from tests.cases import each_case
from tests.conftest import REPO


@each_case(
    ("command", "args", "url", "name"),
    [
        ("npx", ["-y", "@modelcontextprotocol/server-github@2025.4.8"], "", "github"),
        ("docker", ["run", "-i", "--rm", "ghcr.io/github/github-mcp-server:v1"], "", "github"),
        ("uvx", ["mcp-server-git==1.0", "--repository", "."], "", "git"),
        ("/opt/bin/mcp-server-time", [], "", "time"),
        ("cmd", ["/c", "npx", "-y", "@playwright/mcp@latest"], "", "playwright"),
        ("C:\\tools\\mcp-server-fetch.exe", [], "", "fetch"),
        ("", [], "https://mcp.linear.app/mcp", "linear"),
        ("", [], "https://user:pw@mcp.sentry.dev:443/mcp", "sentry"),
    ],
)
def test_a_server_is_known_by_what_it_runs_or_where_it_is(
    command: str, args: list[str], url: str, name: str
) -> None:
    assert find_known_server(command, args, url) is load_library().mcps[name]


def test_an_unknown_name_gives_none() -> None:
    assert find_known_server("npx", ["-y", "my-own-server"]) is None
    assert find_known_server("", [], "https://example.com/mcp") is None


def test_the_library_says_something_useful_of_every_server_and_names_each_once() -> None:
    mcps = load_library().mcps
    assert len(mcps) >= 60
    packages = [package for known in mcps.values() for package in known.packages]
    urls = [url for known in mcps.values() for url in known.urls]
    assert len(set(packages)) == len(packages)
    assert len(set(urls)) == len(urls)
    for name, known in mcps.items():
        assert known.packages or known.urls, name
        assert 10 <= len(known.switchboard) <= 160, name
        assert known.switchboard.endswith("."), name
        assert known.claude.startswith("You "), name


def test_the_needs_of_servers_are_settings_without_mistakes() -> None:
    needs = {name: known.sandbox for name, known in load_library().mcps.items() if known.sandbox is not None}
    assert len(needs) >= 100
    for name, sandbox in needs.items():
        assert sandbox.preset, name
        assert list(sandbox_mistakes(sandbox)) == [], name
    for known in load_library().mcps.values():
        assert not known.sandbox_note or known.sandbox_note.endswith(".")
        assert known.sandbox is not None or not known.sandbox_note


def test_a_proposal_has_the_known_needs_and_the_folders_that_arguments_name(tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    script = tmp_path / "node_modules" / "@modelcontextprotocol" / "server-filesystem" / "index.js"
    script.parent.mkdir(parents=True)
    script.write_text("")
    server = str(script)
    proposed = propose_sandbox(
        "node", [server, str(tmp_path / "served"), "/nowhere", "."], str(tmp_path / "w")
    )
    assert proposed.is_known
    assert proposed.settings.files.write == [str(tmp_path / "served")]
    github = propose_sandbox("npx", ["-y", "@modelcontextprotocol/server-github"], "/w")
    assert "api.github.com" in (github.settings.network or [])
    unknown = propose_sandbox("npx", ["-y", "my-own-server"], "/w", "strict")
    assert (unknown.settings.preset, unknown.is_known) == ("strict", False)
    assert propose_sandbox("npx", ["-y", "mcp-server-time"], "/w", "off").settings.preset == "off"


def test_it_is_a_part_of_the_package() -> None:
    assert (REPO / "src" / "switchboard_mcp" / "setup" / "mcp-descriptions.json").is_file()
