"""Catalog files: what many servers offer, written down, so that commands can work without starting any.

Owns reading them: `{"servers": [{"server", "tools", "instructions"?, "description"?}, …]}`, plain or gzipped. A single
`tools/list` answer is taken as a server of its own.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.cli.invocation import usage_error
from switchboard_mcp.suites.introspect import ToolView

SHAPE = (
    'A catalog is {"servers": [{"server": NAME, "tools": [{"name", "description", "inputSchema"}, …]}, …]}.'
)
GZIP_MAGIC = b"\x1f\x8b"


class CatalogTool(Struct, rename="camel"):
    """One tool as a catalog has it."""

    name: str
    description: str | None = None
    input_schema: Raw | UnsetType = UNSET

    def view(self) -> ToolView:
        """As introspection sees it."""
        return ToolView(self.name, self.description or "", self.input_schema)


class CatalogServer(Struct):
    """One server as a catalog has it."""

    tools: list[CatalogTool]
    server: str = ""
    name: str = ""
    description: str | None = None
    instructions: str | None = None

    @property
    def title(self) -> str:
        """What it is called."""
        return self.server or self.name


class _File(Struct):
    servers: list[CatalogServer] | UnsetType = UNSET
    tools: list[CatalogTool] | UnsetType = UNSET


def read_catalog(path: str) -> list[CatalogServer]:
    """The servers of a catalog file; what is wrong with it is said with its name."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        if data.startswith(GZIP_MAGIC):
            import gzip

            data = gzip.decompress(data)
        found = msgspec.json.decode(data, type=_File | list[CatalogServer])
    except OSError as problem:
        message = f"Catalog {path}: {problem.strerror or problem}."
        raise usage_error(message, SHAPE) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, EOFError) as problem:
        raise usage_error(f"Catalog {path}: {problem}.", SHAPE) from None
    if isinstance(found, list):
        return found
    if found.servers is not UNSET:
        return found.servers
    if found.tools is not UNSET:
        name = os.path.basename(path).split(".")[0]
        return [CatalogServer(tools=found.tools, server=name)]
    raise usage_error(f"Catalog {path}: it has neither 'servers' nor 'tools'.", SHAPE)


def by_unique_name(servers: list[CatalogServer]) -> dict[str, CatalogServer]:
    """By name; where two have the same one, the later gets a number."""
    found: dict[str, CatalogServer] = {}
    for server in servers:
        name, number = server.title or "server", 1
        while name in found:
            number += 1
            name = f"{server.title or 'server'}-{number}"
        found[name] = server
    return found
