"""Finds rules, hooks and logins that refer to a server that is moved.

Behind Switchboard a tool has a different name, so they no longer match. They are reported with file and line for the
user to change; nothing else of their content is reported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from switchboard_mcp.setup.hosts import Host
from switchboard_mcp.setup.paths import HostPaths, existing_files

MAX_BYTES = 4 * 1024 * 1024


class ServerReference(Struct, frozen=True, rename="camel"):
    """A line that refers to a server."""

    host: str
    kind: str
    path: str
    line: int
    name: str


def find_references(host: Host, names: Sequence[str], paths: HostPaths) -> list[ServerReference]:
    """Return the references to these servers in the files of a host."""
    references: list[ServerReference] = []
    for path in existing_files(host.rules, paths):
        for number, line in enumerate(_lines(path), 1):
            references += (
                ServerReference(host.name, _kind(line, path), path, number, name)
                for name in names
                if _mentions(host, name, line)
            )
    for path in existing_files(host.logins, paths):
        text = "\n".join(_lines(path))
        references += (
            ServerReference(host.name, "login", path, 0, name)
            for name in names
            if re.search(rf'"{re.escape(name)}(?:\||")', text)
        )
    return references


def _mentions(host: Host, name: str, line: str) -> bool:
    tool = host.tool_pattern.replace("{name}", name)
    if tool.endswith(name):
        # `mcp__github` is also a prefix of `mcp__github_other`; a rule for all tools of a server ends after its name.
        return bool(re.search(re.escape(tool) + r"(?:__|[^A-Za-z0-9_-]|$)", line))
    if tool in line:
        return True
    listed = ("McpjsonServers", "mcpName", "allowed", "excluded", "McpServers")
    return any(word in line for word in listed) and f'"{name}"' in line


def _kind(line: str, path: str) -> str:
    if "hooks" in os.path.basename(path) or "matcher" in line:
        return "hook"
    return "tool list" if path.endswith(".md") else "rule"


def _lines(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            yield from file.read(MAX_BYTES).splitlines()
    except OSError:
        return
