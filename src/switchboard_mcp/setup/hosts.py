"""The hosts: where each keeps its servers on each platform, in which format, and how it writes a variable.

Owns the table. `{home}` and the like in a path are filled by `places`; a path with a variable that is not set does not
count. Does not read any file.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from switchboard_mcp.setup.edit.formats import Format

# How a host writes a variable of the environment; see `syntax`.
Syntax = Literal["braces", "prefixed", "dollar", "opencode", "continue", "none"]
Platform = Literal["linux", "darwin", "win32"]
SERVERS = ("mcpServers",)


class ConfigLocation(Struct, frozen=True):
    """One place where a host keeps servers. Of its `paths` the first that exists counts, with `*` all that match.

    Of its `keys` the first that is there counts; the last is the one that is written where there is none.
    """

    scope: str
    paths: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...] = (SERVERS,)
    form: Format = "json"
    platforms: tuple[Platform, ...] = ("linux", "darwin", "win32")
    # Other programs read the same file.
    shared: str = ""


class Host(Struct, frozen=True, kw_only=True):
    """One host."""

    name: str
    title: str
    locations: tuple[ConfigLocation, ...]
    syntax: Syntax
    # How it finds out about a change.
    restart: str
    # Where rules may name a tool, and how it names one: `{name}` is the server's.
    rules: tuple[str, ...] = ()
    tool_pattern: str = "mcp__{name}"
    # Where it keeps logins to remote servers.
    logins: tuple[str, ...] = ()


CLAUDE_FILE = ("{CLAUDE_CONFIG_DIR}/.claude.json", "{home}/.claude.json")
CLINE_FILE = "settings/cline_mcp_settings.json"
CLINE_IN_CODE = f"Code/User/globalStorage/saoudrizwan.claude-dev/{CLINE_FILE}"
CODEX = (("mcp_servers",),)
GOOSE = (("extensions",),)
OPENCODE = (("mcp", "servers"), ("mcp",))
VSCODE = (("servers",),)
ZED = (("context_servers",),)
APPLICATION_DATA: tuple[tuple[str, Platform], ...] = (
    ("{config}", "linux"),
    ("{support}", "darwin"),
    ("{APPDATA}", "win32"),
)

HOSTS: tuple[Host, ...] = (
    Host(
        name="claude-code",
        title="Claude Code",
        locations=(
            ConfigLocation("user", CLAUDE_FILE),
            # It knows a project by its real path, in a repository by the root.
            *(
                ConfigLocation("local", CLAUDE_FILE, (("projects", folder, "mcpServers"),))
                for folder in ("{workspace}", "{real}", "{repository}")
            ),
            ConfigLocation(
                "project",
                ("{workspace}/.mcp.json",),
                shared="Copilot CLI and other hosts read this file too",
            ),
        ),
        syntax="braces",
        restart="start a new session, or reconnect under /mcp; an entry in .mcp.json asks once to be approved",
        rules=(
            "{claude}/settings.json",
            "{claude}/settings.local.json",
            "{workspace}/.claude/settings.json",
            "{workspace}/.claude/settings.local.json",
            "{claude}/agents/*.md",
            "{workspace}/.claude/agents/*.md",
        ),
        logins=("{claude}/.credentials.json",),
    ),
    Host(
        name="claude-desktop",
        title="Claude Desktop",
        locations=(
            ConfigLocation("user", ("{support}/Claude/claude_desktop_config.json",), platforms=("darwin",)),
            ConfigLocation(
                "user",
                (
                    "{LOCALAPPDATA}/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude/claude_desktop_config.json",
                    "{APPDATA}/Claude/claude_desktop_config.json",
                ),
                platforms=("win32",),
            ),
            ConfigLocation("user", ("{config}/Claude/claude_desktop_config.json",), platforms=("linux",)),
        ),
        syntax="none",
        restart="quit it fully, then start it",
    ),
    Host(
        name="cursor",
        title="Cursor",
        locations=(
            ConfigLocation("user", ("{home}/.cursor/mcp.json",)),
            ConfigLocation("project", ("{workspace}/.cursor/mcp.json",)),
        ),
        syntax="prefixed",
        restart="reload the window",
        rules=(
            "{home}/.cursor/permissions.json",
            "{home}/.cursor/cli-config.json",
            "{workspace}/.cursor/cli.json",
            "{home}/.cursor/hooks.json",
            "{workspace}/.cursor/hooks.json",
        ),
        tool_pattern="{name}:",
    ),
    Host(
        name="vscode",
        title="VS Code",
        locations=(
            *(
                ConfigLocation(scope, (f"{home}/{folder}/User/mcp.json",), VSCODE, platforms=(platform,))
                for scope, folder in (("user", "Code"), ("insiders", "Code - Insiders"))
                for home, platform in APPLICATION_DATA
            ),
            ConfigLocation("remote", ("{home}/.vscode-server/data/User/mcp.json",), VSCODE),
            ConfigLocation("project", ("{workspace}/.vscode/mcp.json",), VSCODE),
        ),
        syntax="prefixed",
        restart="trust it when asked",
        rules=(
            "{workspace}/.vscode/settings.json",
            "{workspace}/.github/chatmodes/*.md",
            "{workspace}/.github/agents/*.md",
        ),
        tool_pattern="{name}/",
    ),
    Host(
        name="windsurf",
        title="Windsurf",
        locations=(
            ConfigLocation("user", ("{home}/.codeium/windsurf/mcp_config.json",)),
            ConfigLocation("jetbrains", ("{home}/.codeium/mcp_config.json",)),
        ),
        syntax="prefixed",
        restart="refresh the servers in its settings",
    ),
    Host(
        name="codex",
        title="Codex",
        locations=(
            ConfigLocation("user", ("{CODEX_HOME}/config.toml", "{home}/.codex/config.toml"), CODEX, "toml"),
            ConfigLocation("project", ("{workspace}/.codex/config.toml",), CODEX, "toml"),
        ),
        syntax="none",
        restart="start a new session",
        rules=("{CODEX_HOME}/hooks.json", "{home}/.codex/hooks.json", "{workspace}/.codex/hooks.json"),
        logins=("{CODEX_HOME}/.credentials.json", "{home}/.codex/.credentials.json"),
    ),
    Host(
        name="gemini",
        title="Gemini CLI",
        locations=(
            ConfigLocation("user", ("{home}/.gemini/settings.json",)),
            ConfigLocation("project", ("{workspace}/.gemini/settings.json",)),
        ),
        syntax="dollar",
        restart="start a new session",
        rules=(
            "{home}/.gemini/settings.json",
            "{workspace}/.gemini/settings.json",
            "{home}/.gemini/policies/*.toml",
            "{workspace}/.gemini/policies/*.toml",
        ),
        tool_pattern="mcp_{name}_",
        logins=("{home}/.gemini/mcp-oauth-tokens.json",),
    ),
    Host(
        name="zed",
        title="Zed",
        locations=(
            ConfigLocation("user", ("{config}/zed/settings.json",), ZED, platforms=("linux", "darwin")),
            ConfigLocation("user", ("{APPDATA}/Zed/settings.json",), ZED, platforms=("win32",)),
            ConfigLocation("project", ("{workspace}/.zed/settings.json",), ZED),
        ),
        syntax="none",
        restart="nothing to do",
        rules=("{config}/zed/settings.json", "{workspace}/.zed/settings.json"),
        tool_pattern="mcp:{name}:",
    ),
    Host(
        name="continue",
        title="Continue",
        locations=(
            ConfigLocation("user", ("{home}/.continue/config.yaml",), form="yaml-list"),
            ConfigLocation("project", ("{workspace}/.continue/mcpServers/*.yaml",), form="yaml-list"),
            ConfigLocation("project", ("{workspace}/.continue/mcpServers/*.json",)),
        ),
        syntax="continue",
        restart="reload the window",
    ),
    Host(
        name="cline",
        title="Cline",
        locations=(
            ConfigLocation(
                "user",
                (
                    "{CLINE_MCP_SETTINGS_PATH}",
                    f"{{CLINE_DATA_DIR}}/{CLINE_FILE}",
                    f"{{CLINE_DIR}}/data/{CLINE_FILE}",
                    f"{{home}}/.cline/data/{CLINE_FILE}",
                    *(f"{home}/{CLINE_IN_CODE}" for home, _ in APPLICATION_DATA),
                ),
            ),
        ),
        syntax="prefixed",
        restart="nothing to do",
    ),
    Host(
        name="copilot",
        title="Copilot CLI",
        locations=(
            ConfigLocation("user", ("{COPILOT_HOME}/mcp-config.json", "{home}/.copilot/mcp-config.json")),
            ConfigLocation("project", ("{workspace}/.github/mcp.json",)),
        ),
        syntax="dollar",
        restart="start a new session",
        rules=(
            "{home}/.copilot/config.json",
            "{home}/.copilot/settings.json",
            "{home}/.copilot/hooks/*.json",
        ),
        tool_pattern="{name}(",
    ),
    Host(
        name="goose",
        title="Goose",
        locations=(
            ConfigLocation("user", ("{config}/goose/config.yaml",), GOOSE, "yaml", ("linux", "darwin")),
            ConfigLocation("user", ("{APPDATA}/Block/goose/config/config.yaml",), GOOSE, "yaml", ("win32",)),
        ),
        syntax="none",
        restart="start a new session",
        rules=("{config}/goose/permission.yaml", "{config}/goose/permissions/*.json"),
        tool_pattern="{name}__",
    ),
    Host(
        name="opencode",
        title="opencode",
        locations=(
            ConfigLocation("user", ("{config}/opencode/opencode.json",), OPENCODE),
            ConfigLocation("user", ("{config}/opencode/opencode.jsonc",), OPENCODE),
            ConfigLocation("user", ("{OPENCODE_CONFIG}",), OPENCODE),
            ConfigLocation(
                "user",
                ("{APPDATA}/opencode/opencode.json", "{APPDATA}/opencode/opencode.jsonc"),
                OPENCODE,
                platforms=("win32",),
            ),
            ConfigLocation("project", ("{workspace}/opencode.json",), OPENCODE),
            ConfigLocation("project", ("{workspace}/opencode.jsonc",), OPENCODE),
        ),
        syntax="opencode",
        restart="start a new session",
        rules=(
            "{config}/opencode/opencode.json",
            "{config}/opencode/opencode.jsonc",
            "{workspace}/opencode.json",
            "{workspace}/opencode.jsonc",
            "{config}/opencode/agents/*.md",
            "{workspace}/.opencode/agents/*.md",
        ),
        tool_pattern='"{name}_',
        logins=("{data}/opencode/mcp-auth.json",),
    ),
    Host(
        name="amp",
        title="Amp",
        locations=(
            ConfigLocation(
                "user",
                (
                    "{config}/amp/settings.json",
                    "{config}/amp/settings.jsonc",
                    "{APPDATA}/amp/settings.json",
                ),
                (("amp.mcpServers",),),
            ),
            ConfigLocation(
                "project",
                ("{workspace}/.amp/settings.json", "{workspace}/.amp/settings.jsonc"),
                (("amp.mcpServers",),),
            ),
        ),
        syntax="dollar",
        restart="start a new session, and approve a project's entry when asked",
        rules=("{config}/amp/settings.json", "{workspace}/.amp/settings.json"),
    ),
    Host(
        name="warp",
        title="Warp",
        locations=(
            ConfigLocation("user", ("{home}/.warp/.mcp.json",), (SERVERS, ())),
            ConfigLocation("project", ("{workspace}/.warp/.mcp.json",), (SERVERS, ())),
        ),
        syntax="none",
        restart="start the server in its settings",
    ),
)
# A file that somebody names, and that no host is known to have.
ANY_FILE = Host(
    name="file", title="a file", locations=(), syntax="braces", restart="restart whatever reads it"
)
BY_NAME = {host.name: host for host in HOSTS}
