"""The files of hosts as people have them, in a home and a workspace of a test's own; and what should become of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from tests.conftest import REPO
from tests.processes import MARK

FIXTURES = REPO / "tests" / "fixtures" / "hosts"


class Expected(NamedTuple):
    """Expected result of `init` for a host.

    Children by name, with disabled ones; entries that stay; file and key of the one entry; secrets to hide.
    """

    children: dict[str, str]
    off: tuple[str, ...]
    stays: tuple[str, ...]
    file: str
    key: tuple[str, ...]
    secrets: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


MCP = ("mcpServers",)
HOSTS = {
    "claude-code": Expected(
        {"mock": "stdio", "linear": "http", "tracker": "sse", "notes": "stdio", "team-db": "stdio"},
        ("tracker",),
        ("helper",),
        ".claude.json",
        MCP,
        ("ghp_Zq3vN8xKfL2mPw7RtY5bHc9Jd4Gs6Aa1Ee0U", "s3cr3t-Pa55word", "lin_oauth_5f6e7d8c9b0a1f2e3d4c"),
    ),
    "claude-desktop": Expected(
        {"mock": "stdio", "filesystem": "stdio"},
        (),
        ("literal",),
        ".config/Claude/claude_desktop_config.json",
        MCP,
        ("sk-proj-aB3dE5fG7hI9jK1lM3nO5pQ7rS9t",),
    ),
    "cursor": Expected(
        {"mock": "stdio", "files": "stdio", "remote": "http", "git": "stdio"},
        (),
        ("with-file",),
        ".cursor/mcp.json",
        MCP,
        variables=("MOCK_TOKEN",),
    ),
    "vscode": Expected(
        {"mock": "stdio", "playwright": "stdio"},
        (),
        ("github", "socket"),
        ".config/Code/User/mcp.json",
        ("servers",),
        ("9f86d081884c7d659a2feaa0c55ad015",),
    ),
    "windsurf": Expected(
        {"mock": "stdio", "figma": "http", "off": "stdio"},
        ("off",),
        ("secret-file",),
        ".codeium/windsurf/mcp_config.json",
        MCP,
        ("figd_aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789",),
        ("MOCK_KEY",),
    ),
    "codex": Expected(
        {"mock": "stdio", "docs-server": "http"},
        ("docs-server",),
        ("dollar",),
        ".codex/config.toml",
        ("mcp_servers",),
        ("correct-horse-battery-9",),
        ("DOCS_TOKEN", "MOCK_TOKEN", "OTHER"),
    ),
    "gemini": Expected(
        {"mock": "stdio", "old": "http"},
        ("old",),
        (),
        ".gemini/settings.json",
        MCP,
        variables=("MODE", "MOCK_TOKEN", "OLD_TOKEN"),
    ),
    "zed": Expected(
        {"mock": "stdio", "older": "stdio"},
        (),
        ("mcp-server-github",),
        ".config/zed/settings.json",
        ("context_servers",),
        ("zed-s3cr3t-0987654321", "ghp_extensionsecret000000000000000000000"),
    ),
    "continue": Expected(
        {"mock": "stdio", "remote": "http", "git": "stdio", "time": "stdio"},
        (),
        (),
        ".continue/config.yaml",
        MCP,
        ("plain-s3cr3t-77777",),
        ("MOCK_KEY",),
    ),
    "cline": Expected(
        {"mock": "stdio", "stream": "http"},
        (),
        ("managed",),
        ".cline/data/settings/cline_mcp_settings.json",
        MCP,
        ("ck_live_1234567890abcdef",),
        ("MOCK_TOKEN",),
    ),
    "copilot": Expected(
        {"mock": "stdio", "few": "http"},
        (),
        (),
        ".copilot/mcp-config.json",
        MCP,
        ("ghu_16C7e42F292c6912E7710c838347Ae178B4a",),
        ("MOCK_TOKEN",),
    ),
    "goose": Expected(
        {"mock": "stdio", "stream": "http"},
        ("stream",),
        ("developer", "github"),
        ".config/goose/config.yaml",
        ("extensions",),
        ("it's-s3cr3t-0042",),
    ),
    "opencode": Expected(
        {"mock": "stdio", "jira": "sse"},
        ("jira",),
        ("by-file",),
        ".config/opencode/opencode.jsonc",
        ("mcp",),
        variables=("MOCK_TOKEN",),
    ),
    "amp": Expected(
        {"mock": "stdio", "web": "http"},
        (),
        (),
        ".config/amp/settings.json",
        ("amp.mcpServers",),
        ("8d6f2f6e-1b2c-4d3e-9f00-aa11bb22cc33",),
        ("MOCK_TOKEN",),
    ),
    "warp": Expected({"mock": "stdio", "web": "http"}, (), (), ".warp/.mcp.json", (), ("warp-s3cr3t-55555",)),
    "qwen": Expected(
        {"mock": "stdio", "old": "http"},
        ("old",),
        (),
        ".qwen/settings.json",
        MCP,
        variables=("MOCK_TOKEN", "OLD_TOKEN"),
    ),
    "kiro": Expected(
        {"mock": "stdio", "web": "http"},
        (),
        (),
        ".kiro/settings/mcp.json",
        MCP,
        ("kiro-s3cr3t-24680",),
        ("MOCK_TOKEN",),
    ),
    "roo": Expected(
        {"mock": "stdio", "stream": "http"},
        ("stream",),
        (),
        ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        MCP,
        ("roo-s3cr3t-13579",),
        ("MOCK_TOKEN",),
    ),
    "junie": Expected(
        {"mock": "stdio", "web": "http"},
        (),
        ("literal",),
        ".junie/mcp/mcp.json",
        MCP,
        ("junie-s3cr3t-11223",),
    ),
    "copilot-jetbrains": Expected(
        {"mock": "stdio"},
        (),
        ("asks",),
        ".config/github-copilot/intellij/mcp.json",
        ("servers",),
        variables=("MOCK_TOKEN",),
    ),
    "lmstudio": Expected(
        {"mock": "stdio", "hub": "http"},
        (),
        (),
        ".lmstudio/mcp.json",
        MCP,
        ("hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ012345",),
    ),
    "crush": Expected(
        {"mock": "stdio", "tracker": "sse"},
        ("tracker",),
        ("vault",),
        ".config/crush/crush.json",
        ("mcp",),
        variables=("MOCK_TOKEN",),
    ),
}


class Person:
    """Somebody with a home, a workspace and hosts."""

    def __init__(self, folder: Path, *hosts: str) -> None:
        # What a host writes is the real path of a folder.
        folder = folder.resolve()
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        # What belongs to the user, whichever project is open.
        self.user = self.home / ".config" / "switchboard"
        self.home.mkdir(parents=True, exist_ok=True)
        self.workspace.mkdir(exist_ok=True)
        for host in hosts:
            self._settle(FIXTURES / host)

    def _settle(self, fixture: Path) -> None:
        for source in sorted(path for path in fixture.rglob("*") if path.is_file()):
            target = (self.home.parent) / source.relative_to(fixture)
            target.parent.mkdir(parents=True, exist_ok=True)
            data = source.read_bytes()
            for mark, value in self.marks().items():
                data = data.replace(mark, value.encode())
            target.write_bytes(data)
            target.chmod(0o640)

    def marks(self) -> dict[bytes, str]:
        mock = str(REPO / "examples" / "mock-child" / "server.py")
        return {b"@PYTHON@": sys.executable, b"@MOCK@": mock, b"@WORKSPACE@": str(self.workspace)}

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", MARK) if name in os.environ}
        return {**kept, "HOME": str(self.home), "LANG": "C.UTF-8", **more}

    def files(self) -> dict[str, tuple[bytes, int]]:
        """Every file, with its content and mode; what Switchboard remembers of its user is no matter here."""
        root = self.home.parent
        return {
            str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mode)
            for path in sorted(root.rglob("*"))
            if path.is_file() and not {".cache", "state"} & set(path.parts)
        }
