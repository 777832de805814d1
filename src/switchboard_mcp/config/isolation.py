"""Decides if several hosts may share the process of a child whose `isolation` is `auto`. Pure.

Servers that hold the state of one user in memory (a browser, a shell, a current folder or project) run once per
session. The table has those whose source shows it; others are recognised by their names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Literal

from switchboard_mcp.config.models import ChildSpec

# One page, shell, history, project, connection or set of roots per process.
SESSION_PACKAGES = frozenset(
    {
        "@modelcontextprotocol/server-puppeteer",
        "@executeautomation/playwright-mcp-server",
        "@playwright/mcp",
        "mcp-server-playwright",
        "chrome-devtools-mcp",
        "@browserbasehq/mcp",
        "@browserbasehq/mcp-server-browserbase",
        "hyperbrowser-mcp",
        "@modelcontextprotocol/server-sequential-thinking",
        "mcp-server-sequential-thinking",
        "@cyanheads/git-mcp-server",
        "xcodebuildmcp",
        "serena",
        "serena-mcp-server",
        "code-index-mcp",
        "office-powerpoint-mcp-server",
        "mcp-python-interpreter",
        "jupyter-mcp-server",
        "mcp-ssh",
        "ssh-mcp",
        "@angular/cli",
        "@mobilenext/mobile-mcp",
        "mcp-server-motherduck",
        "chroma-mcp",
        "mcp-server-sqlite",
        "@modelcontextprotocol/server-filesystem",
        "mcp-server-filesystem",
        "nx-mcp",
        "convex",
        "firecrawl-mcp",
        "@wonderwhy-er/desktop-commander",
        "blender-mcp",
    }
)
# Named like those with state, but they start a process for each call.
SHARED_PACKAGES = frozenset({"mcp-shell-server", "mcp-server-code-runner"})
# Words in the name of a server or package that holds state.
SESSION_WORDS = frozenset(
    """browser playwright puppeteer selenium chrome shell terminal tty repl notebook jupyter interpreter ssh tmux
    desktop debugger""".split()
)
# Names of tools that change what later calls mean, or with which one user logs in for all later calls.
SESSION_TOOLS = re.compile(
    r"(?:^|_)session$|^set_\w*(?:dir|cwd|project|token|credentials|api_key|password)|^browser_"
    r"|^(?:(?!get|list|is|has|check|test)[a-z0-9]+_)?(?:connect|disconnect|log_?in|log_?on|log_?out|sign_?in|sign_?out|authenticate|authorize|use_database)"
    r"(?:_|$)"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-.]")


def decide_isolation(spec: ChildSpec, tools: Iterable[str]) -> Literal["shared", "session"]:
    """Return if hosts share the process of a child. `tools` are the names of its tools, if they are known."""
    if spec.kind != "stdio":
        return "shared"  # a remote server has been made for several clients
    packages = {package_name(word) for word in (spec.command, *spec.args)}
    if packages & SHARED_PACKAGES:
        return "shared"
    words = {word for name in (spec.name, *packages) for word in re.split(r"[^a-z]+", name.lower())}
    stateful = packages & SESSION_PACKAGES or words & SESSION_WORDS
    return (
        "session"
        if stateful or any(SESSION_TOOLS.search(_HUMP.sub("_", tool).lower()) for tool in tools)
        else "shared"
    )


def package_name(word: str) -> str:
    """Return the package name in a word of a command line, without version, path and extension."""
    if word.startswith("@") and "/" in word:
        scope, _, rest = word.partition("/")
        return f"{scope}/{rest.partition('@')[0]}"
    if "/" in word and not word.startswith((".", "/", "~")) and "\\" not in word:
        # A container image, such as ghcr.io/owner/name:tag.
        return re.sub(r"[:@].*$", "", word)
    base = os.path.basename(word.replace("\\", "/"))
    return re.sub(r"(?:==|@|\[).*$", "", base).removesuffix(".exe").removesuffix(".cmd")
