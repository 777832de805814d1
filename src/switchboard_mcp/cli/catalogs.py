"""Reads catalog files: tools of many servers, so commands can work without starting any.

The format is `{"servers": [{"server", "tools", "instructions"?, "description"?}, …]}`, plain or gzipped. A single
`tools/list` result counts as one server.
"""

from __future__ import annotations

import gzip
import os

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from switchboard_mcp.cli.invocation import usage_error
from switchboard_mcp.suites.detail_levels import ToolView

SHAPE = (
    'A catalog is {"servers": [{"server": NAME, "tools": [{"name", "description", "inputSchema"}, …]}, …]}.'
)
GZIP_MAGIC = b"\x1f\x8b"


class CatalogTool(Struct, rename="camel"):
    """One tool of a catalog."""

    name: str
    description: str | None = None
    input_schema: Raw | UnsetType = UNSET
    output_schema: Raw | UnsetType = UNSET

    def view(self) -> ToolView:
        """Return the tool as introspection sees it."""
        return ToolView(self.name, self.description or "", self.input_schema, self.output_schema)


class CatalogServer(Struct):
    """One server of a catalog."""

    tools: list[CatalogTool]
    server: str = ""
    name: str = ""
    description: str | None = None
    instructions: str | None = None

    @property
    def title(self) -> str:
        """The name of the server."""
        return self.server or self.name


class _File(Struct):
    servers: list[CatalogServer] | UnsetType = UNSET
    tools: list[CatalogTool] | UnsetType = UNSET


def read_catalog(path: str) -> list[CatalogServer]:
    """Return the servers of a catalog file."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        if data.startswith(GZIP_MAGIC):
            data = gzip.decompress(data)
        catalog = msgspec.json.decode(data, type=_File | list[CatalogServer])
    except OSError as problem:
        message = f"Catalog {path}: {problem.strerror or problem}."
        raise usage_error(message, SHAPE) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, EOFError) as problem:
        raise usage_error(f"Catalog {path}: {problem}.", SHAPE) from None
    if isinstance(catalog, list):
        return catalog
    if catalog.servers is not UNSET:
        return catalog.servers
    if catalog.tools is not UNSET:
        name = os.path.basename(path).split(".")[0]
        return [CatalogServer(tools=catalog.tools, server=name)]
    raise usage_error(f"Catalog {path}: neither 'servers' nor 'tools' found.", SHAPE)


def by_unique_name(servers: list[CatalogServer]) -> dict[str, CatalogServer]:
    """Return the servers by name; a repeated name gets a number."""
    named: dict[str, CatalogServer] = {}
    for server in servers:
        name, number = server.title or "server", 1
        while name in named:
            number += 1
            name = f"{server.title or 'server'}-{number}"
        named[name] = server
    return named
