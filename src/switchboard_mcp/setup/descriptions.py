"""Descriptions of well-known servers that help a model to choose between them.

Reads the bundled library, `mcp-descriptions.json`. For each server it has `switchboard`, the description of its suite
tool, and `claude`, instructions for a model that uses it. A server is recognized by its package or its host name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec
from msgspec import Struct

from switchboard_mcp.config.isolation import package_name

PATH = os.path.join(os.path.dirname(__file__), "mcp-descriptions.json")


class KnownServer(Struct, frozen=True):
    """A server of the library: its packages and host names, and its descriptions."""

    packages: list[str]
    switchboard: str
    claude: str
    urls: list[str] = []


class Library(Struct, frozen=True):
    """The content of the library file."""

    mcps: dict[str, KnownServer]


@lru_cache(maxsize=1)
def load_library() -> Library:
    """Return the bundled library."""
    with open(PATH, "rb") as file:
        return msgspec.json.decode(file.read(), type=Library)


def find_known_server(command: str, args: Sequence[str], url: str = "") -> KnownServer | None:
    """Return the known server with this command line or URL, or None."""
    names = {package_name(word) for word in (command, *args)}
    host = re.sub(r"^[a-z]+://", "", url).partition("/")[0].rpartition("@")[2].partition(":")[0].lower()
    for known in load_library().mcps.values():
        if names.intersection(known.packages) or (host and host in known.urls):
            return known
    return None
