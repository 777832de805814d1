"""What the best-known servers are for, in words that help a model to choose.

Owns the bundled library, `mcp-descriptions.json`: for each server `switchboard`, the description of its suite tool, and
`claude`, instructions for whoever works with it. A server is known by the package it runs, or by its address.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec
from msgspec import Struct

PATH = os.path.join(os.path.dirname(__file__), "mcp-descriptions.json")


class KnownServer(Struct, frozen=True):
    """One server of the library: how it is recognised, and what is said of it."""

    packages: list[str]
    switchboard: str
    claude: str
    urls: list[str] = []


class Library(Struct, frozen=True):
    """The whole file."""

    mcps: dict[str, KnownServer]


@lru_cache(maxsize=1)
def load_library() -> Library:
    """The bundled library."""
    with open(PATH, "rb") as file:
        return msgspec.json.decode(file.read(), type=Library)


def find_known_server(command: str, args: Sequence[str], url: str = "") -> KnownServer | None:
    """What is known of a server with this command line, or at this address."""
    names = {_package_name(word) for word in (command, *args)}
    host = re.sub(r"^[a-z]+://", "", url).partition("/")[0].rpartition("@")[2].partition(":")[0].lower()
    for known in load_library().mcps.values():
        if names.intersection(known.packages) or (host and host in known.urls):
            return known
    return None


def _package_name(word: str) -> str:
    """A word of a command line as a package would be named: without version, path and ending."""
    if word.startswith("@") and "/" in word:
        scope, _, rest = word.partition("/")
        return f"{scope}/{rest.partition('@')[0]}"
    if "/" in word and not word.startswith((".", "/", "~")) and "\\" not in word:
        # An image of a registry, such as ghcr.io/owner/name:tag.
        return re.sub(r"[:@].*$", "", word)
    base = os.path.basename(word.replace("\\", "/"))
    return re.sub(r"(?:==|@|\[).*$", "", base).removesuffix(".exe").removesuffix(".cmd")
