from __future__ import annotations

import os
from pathlib import Path

from switchboard_mcp.setup.discovery import discover_servers
from switchboard_mcp.setup.hosts import BY_NAME, HOSTS, ROO_IN_CODE
from switchboard_mcp.setup.paths import candidate_paths, existing_paths, fill_key, find_repository, host_paths
from tests.cases import each_case

WINDOWS = {"USERPROFILE": "/u", "APPDATA": "/u/AppData/Roaming", "LOCALAPPDATA": "/u/AppData/Local"}


def user_files(host: str, platform: str, environ: dict[str, str]) -> list[str]:
    here = host_paths("/w", environ, platform)
    spots = [spot for spot in BY_NAME[host].locations if here.platform in spot.platforms]
    return [path for spot in spots if spot.scope == "user" for path in candidate_paths(spot, here)]


@each_case(
    ("host", "platform", "path"),
    [
        ("claude-code", "linux", "/h/.claude.json"),
        ("claude-desktop", "linux", "/h/.config/Claude/claude_desktop_config.json"),
        ("claude-desktop", "darwin", "/h/Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", "/u/AppData/Roaming/Claude/claude_desktop_config.json"),
        ("cursor", "win32", "/u/.cursor/mcp.json"),
        ("vscode", "linux", "/h/.config/Code/User/mcp.json"),
        ("vscode", "darwin", "/h/Library/Application Support/Code/User/mcp.json"),
        ("vscode", "win32", "/u/AppData/Roaming/Code/User/mcp.json"),
        ("windsurf", "darwin", "/h/.codeium/windsurf/mcp_config.json"),
        ("codex", "linux", "/h/.codex/config.toml"),
        ("gemini", "darwin", "/h/.gemini/settings.json"),
        ("zed", "darwin", "/h/.config/zed/settings.json"),
        ("zed", "win32", "/u/AppData/Roaming/Zed/settings.json"),
        ("continue", "linux", "/h/.continue/config.yaml"),
        ("cline", "linux", "/h/.cline/data/settings/cline_mcp_settings.json"),
        ("copilot", "linux", "/h/.copilot/mcp-config.json"),
        ("goose", "linux", "/h/.config/goose/config.yaml"),
        ("goose", "win32", "/u/AppData/Roaming/Block/goose/config/config.yaml"),
        ("opencode", "linux", "/h/.config/opencode/opencode.jsonc"),
        ("amp", "linux", "/h/.config/amp/settings.json"),
        ("warp", "darwin", "/h/.warp/.mcp.json"),
        ("qwen", "linux", "/h/.qwen/settings.json"),
        ("kiro", "win32", "/u/.kiro/settings/mcp.json"),
        ("roo", "linux", f"/h/.config/{ROO_IN_CODE}"),
        ("roo", "darwin", f"/h/Library/Application Support/{ROO_IN_CODE}"),
        ("junie", "darwin", "/h/.junie/mcp/mcp.json"),
        ("copilot-jetbrains", "linux", "/h/.config/github-copilot/intellij/mcp.json"),
        ("copilot-jetbrains", "win32", "/u/AppData/Local/github-copilot/intellij/mcp.json"),
        ("lmstudio", "linux", "/h/.lmstudio/mcp.json"),
        ("crush", "darwin", "/h/.config/crush/crush.json"),
    ],
)
def test_each_host_has_a_place_for_its_servers(host: str, platform: str, path: str) -> None:
    environ = WINDOWS if platform == "win32" else {"HOME": "/h"}
    assert path in user_files(host, platform, environ)


@each_case(
    ("host", "variable", "value", "path"),
    [
        ("claude-code", "CLAUDE_CONFIG_DIR", "/c", "/c/.claude.json"),
        ("codex", "CODEX_HOME", "/c", "/c/config.toml"),
        ("copilot", "COPILOT_HOME", "/c", "/c/mcp-config.json"),
        ("cline", "CLINE_MCP_SETTINGS_PATH", "/c/x.json", "/c/x.json"),
        ("cline", "CLINE_DATA_DIR", "/c", "/c/settings/cline_mcp_settings.json"),
    ],
)
def test_a_variable_leads_to_the_only_file_that_counts(
    host: str, variable: str, value: str, path: str
) -> None:
    assert set(user_files(host, "linux", {"HOME": "/h", variable: value})) == {path}


def test_xdg_folders_count_where_they_are_set() -> None:
    assert "/x/zed/settings.json" in user_files("zed", "linux", {"HOME": "/h", "XDG_CONFIG_HOME": "/x"})


def test_without_a_home_there_are_only_the_files_of_the_workspace(tmp_path: Path) -> None:
    here = host_paths(str(tmp_path), {}, "linux")
    for host in HOSTS:
        for spot in host.locations:
            assert all(path.startswith(str(tmp_path)) for path in candidate_paths(spot, here))


def test_a_linked_work_tree_belongs_to_its_main_repository(tmp_path: Path) -> None:
    main, linked = tmp_path / "main", tmp_path / "linked"
    (main / ".git" / "worktrees" / "linked").mkdir(parents=True)
    (linked / "deep").mkdir(parents=True)
    (linked / ".git").write_text(f"gitdir: {main}/.git/worktrees/linked\n")
    assert find_repository(str(linked / "deep")) == str(main)
    assert find_repository(str(main)) == str(main)
    here = host_paths(str(linked), {"HOME": "/h"}, "linux")
    assert fill_key(("projects", "{repository}", "mcpServers"), here.fields) == (
        "projects",
        str(main),
        "mcpServers",
    )


def test_a_file_that_cannot_be_read_is_reported_and_the_others_are_found(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".cursor").mkdir(parents=True)
    (home / ".cursor" / "mcp.json").write_text("{ broken")
    (home / ".warp").mkdir()
    (home / ".warp" / ".mcp.json").write_text('{"a": {"command": "a"}}')
    discovery = discover_servers(
        host_paths(str(tmp_path), {"HOME": str(home)}, "linux"), list(BY_NAME), (), named=False
    )
    assert [finding.name for finding in discovery.servers] == ["a"]
    assert len(discovery.problems) == 1
    assert ".cursor/mcp.json is not valid JSON" in discovery.problems[0]


def test_a_link_is_followed(tmp_path: Path) -> None:
    home, dotfiles = tmp_path / "home", tmp_path / "dotfiles"
    (home / ".cursor").mkdir(parents=True)
    dotfiles.mkdir()
    (dotfiles / "mcp.json").write_text('{"mcpServers": {"a": {"command": "a"}}}')
    os.symlink(dotfiles / "mcp.json", home / ".cursor" / "mcp.json")
    here = host_paths(str(tmp_path), {"HOME": str(home)}, "linux")
    assert existing_paths(BY_NAME["cursor"].locations[0], here)
    discovery = discover_servers(here, ["cursor"], (), named=False)
    assert discovery.sources[0].path == str(dotfiles / "mcp.json")
