"""The table of hosts: where each keeps its servers, in which format, and everything that is special about it.

To support another host, add a row. Fields such as `{home}` in a path are filled in by `paths`; a path with an unknown
field is ignored. Reads no files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from switchboard_mcp.setup.edit.formats import Format

# Notation for environment variables; see `variable_syntax`.
Syntax = Literal["braces", "prefixed", "dollar", "opencode", "continue", "none"]
Platform = Literal["linux", "darwin", "win32"]
SERVERS = ("mcpServers",)
# Gemini CLI withholds such variables from the servers it starts, unless an entry sets them.
_WITHHELD = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|KEY|AUTH|CREDENTIAL|CREDS|PRIVATE|CERT", re.IGNORECASE)


class ConfigLocation(Struct, frozen=True):
    """A config file of a host. Of `paths`, the first that exists is used; with `*`, all that match.

    Of `keys`, the first that exists is used; if none does, the last one is written.
    """

    scope: str
    paths: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...] = (SERVERS,)
    form: Format = "json"
    platforms: tuple[Platform, ...] = ("linux", "darwin", "win32")
    # Names other programs that read the same file.
    shared: str = ""


class NameList(Struct, frozen=True):
    """A list of server names outside of the entries, in the same file or in another one."""

    key: tuple[str, ...]
    file: str = ""
    # Scopes of the servers it applies to; all if empty.
    scopes: tuple[str, ...] = ()


class CallTimeout(Struct, frozen=True):
    """The key of the timeout for one call, and its unit in milliseconds."""

    key: str
    unit_ms: int


# Renders the entry for Switchboard from its name, its command line, and the variables that its children need.
RenderEntry = Callable[[str, Sequence[str], Sequence[str]], dict[str, object]]


def plain_entry(name: str, command: Sequence[str], variables: Sequence[str]) -> dict[str, object]:
    """Return the entry that most hosts understand."""
    return {"command": command[0], "args": list(command[1:])}


def _stdio_entry(name: str, command: Sequence[str], variables: Sequence[str]) -> dict[str, object]:
    return {"type": "stdio", **plain_entry(name, command, variables)}


def _codex_entry(name: str, command: Sequence[str], variables: Sequence[str]) -> dict[str, object]:
    # Codex passes no variable to a server that its entry does not name.
    forwarded = {"env_vars": list(variables)} if variables else {}
    return {**plain_entry(name, command, variables), "startup_timeout_sec": 60, **forwarded}


def _gemini_entry(name: str, command: Sequence[str], variables: Sequence[str]) -> dict[str, object]:
    needed = {variable: f"${variable}" for variable in variables if _WITHHELD.search(variable)}
    return {**plain_entry(name, command, variables), **({"env": needed} if needed else {})}


def _zed_entry(name: str, command: Sequence[str], variables: Sequence[str]) -> dict[str, object]:
    return {**plain_entry(name, command, variables), "env": {}}


def _copilot_entry(name: str, command: Sequence[str], variables: Sequence[str]) -> dict[str, object]:
    return {"type": "local", **plain_entry(name, command, variables), "tools": ["*"]}


def _goose_entry(name: str, command: Sequence[str], variables: Sequence[str]) -> dict[str, object]:
    about = {"name": name, "description": "All MCP servers behind one", "timeout": 300}
    return {"type": "stdio", "enabled": True, **about, "cmd": command[0], "args": list(command[1:])}


def _opencode_entry(name: str, command: Sequence[str], variables: Sequence[str]) -> dict[str, object]:
    # Its default timeout is five seconds, and it lists tools only once.
    return {"type": "local", "command": list(command), "enabled": True, "timeout": 30_000}


def _goose_reason(entry: Mapping[str, object]) -> str:
    if entry.get("type") not in (None, "stdio", "sse", "streamable_http"):
        return "it is a part of Goose"
    return "its secrets are in Goose's keyring (`env_keys`)" if entry.get("env_keys") else ""


def _zed_reason(entry: Mapping[str, object]) -> str:
    return "it belongs to a Zed extension" if "settings" in entry and not entry.get("command") else ""


def _crush_reason(entry: Mapping[str, object]) -> str:
    # Crush runs `$(…)` in any value when it starts; Switchboard runs no shell.
    return "it takes a value from a command, `$(…)`" if "$(" in repr(entry) else ""


class Host(Struct, frozen=True, kw_only=True):
    """One host: its files, its dialect and its special cases."""

    name: str
    title: str
    locations: tuple[ConfigLocation, ...]
    syntax: Syntax
    # Tells the user how the host picks up a change.
    restart: str
    # Files with rules that may name a tool, and the prefix of tool names: `{name}` is the server.
    rules: tuple[str, ...] = ()
    tool_pattern: str = "mcp__{name}"
    # Files with logins to remote servers.
    logins: tuple[str, ...] = ()
    # Lists of servers that are disabled outside of their entries.
    disabled: tuple[NameList, ...] = ()
    # The key of a list with the only servers that are enabled, in the same file.
    allowlist: tuple[str, ...] = ()
    # Keys that identify a file of this host whose location is not known.
    guess_keys: tuple[tuple[str, ...], ...] = ()
    call_timeout: CallTimeout | None = None
    # Transport of a remote server whose entry does not name one; by default its URL decides.
    remote_kind: Literal["", "sse"] = ""
    # The key of a list of allowed tools, besides the common ones.
    tools_key: str = ""
    # Returns why an entry cannot be moved, or an empty string.
    immovable_reason: Callable[[Mapping[str, object]], str] | None = None
    render_entry: RenderEntry = plain_entry
    # The key of an entry's environment variables.
    env_key: str = "env"
    # True if it may start servers outside of the project folder. Others start them within it.
    starts_elsewhere: bool = False
    # True if an entry of a project is known to replace that of the user with the same name.
    project_replaces_user: bool = False


CLAUDE_FILE = ("{CLAUDE_CONFIG_DIR}/.claude.json", "{home}/.claude.json")
CLINE_FILE = "settings/cline_mcp_settings.json"
CLINE_IN_CODE = f"Code/User/globalStorage/saoudrizwan.claude-dev/{CLINE_FILE}"
CODEX = (("mcp_servers",),)
CRUSH = (("mcp",),)
GOOSE = (("extensions",),)
OPENCODE = (("mcp", "servers"), ("mcp",))
ROO_IN_CODE = "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"
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
            # A project is keyed by its real path, or by the root of its repository.
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
        # An entry of the same name in two scopes works, but `claude mcp list` calls it a conflict.
        syntax="braces",
        restart="start a new session, or reconnect under /mcp; an entry in .mcp.json must be approved once",
        rules=(
            "{claude}/settings.json",
            "{claude}/settings.local.json",
            "{workspace}/.claude/settings.json",
            "{workspace}/.claude/settings.local.json",
            "{claude}/agents/*.md",
            "{workspace}/.claude/agents/*.md",
        ),
        logins=("{claude}/.credentials.json",),
        disabled=(
            NameList(("projects", "{workspace}", "disabledMcpServers"), scopes=("user", "local")),
            *(
                NameList(("disabledMcpjsonServers",), f"{{workspace}}/.claude/{file}", ("project",))
                for file in ("settings.json", "settings.local.json")
            ),
        ),
        call_timeout=CallTimeout("timeout", 1),
        render_entry=_stdio_entry,
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
        project_replaces_user=True,
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
        starts_elsewhere=True,
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
        guess_keys=VSCODE,
        render_entry=_stdio_entry,
        starts_elsewhere=True,
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
        project_replaces_user=True,
        syntax="none",
        restart="start a new session",
        rules=("{CODEX_HOME}/hooks.json", "{home}/.codex/hooks.json", "{workspace}/.codex/hooks.json"),
        logins=("{CODEX_HOME}/.credentials.json", "{home}/.codex/.credentials.json"),
        guess_keys=CODEX,
        call_timeout=CallTimeout("tool_timeout_sec", 1000),
        render_entry=_codex_entry,
    ),
    Host(
        name="gemini",
        title="Gemini CLI",
        locations=(
            ConfigLocation("user", ("{home}/.gemini/settings.json",)),
            ConfigLocation("project", ("{workspace}/.gemini/settings.json",)),
        ),
        project_replaces_user=True,
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
        disabled=(NameList(("mcp", "excluded")),),
        allowlist=("mcp", "allowed"),
        call_timeout=CallTimeout("timeout", 1),
        render_entry=_gemini_entry,
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
        guess_keys=ZED,
        call_timeout=CallTimeout("timeout", 1000),
        immovable_reason=_zed_reason,
        render_entry=_zed_entry,
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
        call_timeout=CallTimeout("timeout", 1000),
        remote_kind="sse",
    ),
    Host(
        name="copilot",
        title="Copilot CLI",
        locations=(
            ConfigLocation("user", ("{COPILOT_HOME}/mcp-config.json", "{home}/.copilot/mcp-config.json")),
            ConfigLocation("project", ("{workspace}/.github/mcp.json",)),
        ),
        project_replaces_user=True,
        syntax="dollar",
        restart="start a new session",
        rules=(
            "{home}/.copilot/config.json",
            "{home}/.copilot/settings.json",
            "{home}/.copilot/hooks/*.json",
        ),
        tool_pattern="{name}(",
        call_timeout=CallTimeout("timeout", 1),
        tools_key="tools",
        render_entry=_copilot_entry,
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
        guess_keys=GOOSE,
        call_timeout=CallTimeout("timeout", 1000),
        immovable_reason=_goose_reason,
        render_entry=_goose_entry,
        env_key="envs",
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
        project_replaces_user=True,
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
        guess_keys=OPENCODE,
        render_entry=_opencode_entry,
        env_key="environment",
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
        guess_keys=(("amp.mcpServers",),),
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
    Host(
        name="qwen",
        title="Qwen Code",
        locations=(
            ConfigLocation("user", ("{home}/.qwen/settings.json",)),
            ConfigLocation("local", ("{workspace}/.qwen/settings.local.json",)),
            ConfigLocation("project", ("{workspace}/.qwen/settings.json",)),
        ),
        project_replaces_user=True,
        syntax="dollar",
        restart="start a new session",
        rules=("{home}/.qwen/settings.json", "{workspace}/.qwen/settings.json"),
        tool_pattern="mcp__{name}__",
        logins=("{home}/.qwen/mcp-oauth-tokens.json",),
        disabled=(NameList(("mcp", "excluded")),),
        allowlist=("mcp", "allowed"),
        call_timeout=CallTimeout("timeout", 1),
        # A fork of Gemini CLI, which withholds variables.
        render_entry=_gemini_entry,
    ),
    Host(
        name="kiro",
        title="Kiro",
        locations=(
            ConfigLocation("user", ("{home}/.kiro/settings/mcp.json",)),
            ConfigLocation("project", ("{workspace}/.kiro/settings/mcp.json",)),
        ),
        syntax="braces",
        restart="nothing to do",
        rules=("{home}/.kiro/agents/*.json", "{workspace}/.kiro/agents/*.json"),
        tool_pattern="@{name}",
    ),
    Host(
        name="roo",
        title="Roo Code",
        locations=(
            *(
                ConfigLocation("user", (f"{home}/{ROO_IN_CODE}",), platforms=(platform,))
                for home, platform in APPLICATION_DATA
            ),
            ConfigLocation("project", ("{workspace}/.roo/mcp.json",)),
        ),
        syntax="prefixed",
        restart="nothing to do",
        call_timeout=CallTimeout("timeout", 1000),
    ),
    Host(
        name="junie",
        title="Junie (JetBrains)",
        locations=(
            ConfigLocation("user", ("{home}/.junie/mcp/mcp.json",)),
            ConfigLocation("project", ("{workspace}/.junie/mcp/mcp.json",)),
        ),
        syntax="none",
        restart="start a new session, or restart the IDE",
    ),
    Host(
        name="copilot-jetbrains",
        title="Copilot in JetBrains",
        locations=(
            ConfigLocation(
                "user",
                ("{config}/github-copilot/intellij/mcp.json",),
                VSCODE,
                platforms=("linux", "darwin"),
            ),
            ConfigLocation(
                "user", ("{LOCALAPPDATA}/github-copilot/intellij/mcp.json",), VSCODE, platforms=("win32",)
            ),
        ),
        syntax="prefixed",
        restart="start the server in its settings",
        render_entry=_stdio_entry,
        starts_elsewhere=True,
    ),
    Host(
        name="lmstudio",
        title="LM Studio",
        # Installations from before 0.3.6 keep their folder.
        locations=(
            ConfigLocation("user", ("{home}/.lmstudio/mcp.json", "{home}/.cache/lm-studio/mcp.json")),
        ),
        syntax="none",
        restart="switch the server on in the chat",
    ),
    Host(
        name="crush",
        title="Crush",
        # Its other format, `crushrc`, is a program and is left alone.
        locations=(
            ConfigLocation("user", ("{config}/crush/crush.json",), CRUSH),
            ConfigLocation("project", ("{workspace}/.crush.json", "{workspace}/crush.json"), CRUSH),
        ),
        syntax="dollar",
        restart="start a new session",
        rules=("{config}/crush/crush.json", "{workspace}/.crush.json", "{workspace}/crush.json"),
        tool_pattern="mcp_{name}_",
        call_timeout=CallTimeout("timeout", 1000),
        immovable_reason=_crush_reason,
        render_entry=_stdio_entry,
    ),
)
# Any other file that is named on the command line.
ANY_FILE = Host(
    name="file", title="a file", locations=(), syntax="braces", restart="restart whatever reads it"
)
BY_NAME = {host.name: host for host in HOSTS}
