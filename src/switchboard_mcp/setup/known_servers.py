"""Descriptions of well-known servers that help a model to choose between them.

Reads the bundled library, `mcp-descriptions.json`. For each server it has `switchboard`, the description of its suite
tool, `claude`, instructions for a model that uses it, and `sandbox`, the sandbox that it is known to need. A server is
recognized by its package or its host name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec
from msgspec import Struct, structs

from switchboard_mcp.config.isolation import package_name
from switchboard_mcp.config.sandbox import Preset, SandboxFiles, SandboxSettings

PATH = os.path.join(os.path.dirname(__file__), "mcp-descriptions.json")


class KnownServer(Struct, frozen=True, rename="camel"):
    """A server of the library: its packages and host names, its descriptions, and the sandbox it needs.

    Hosts are those of the service that the server is for; paths in the home folder hold the user's data, which a home
    of its own would hide. `sandbox_folders` means that it needs the folders and files that its arguments name.
    """

    packages: list[str]
    switchboard: str
    claude: str
    urls: list[str] = []
    sandbox: SandboxSettings | None = None
    sandbox_folders: bool = False
    sandbox_note: str = ""


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
    names = {name for word in (command, *args) for name in _names(word)}
    host = re.sub(r"^[a-z]+://", "", url).partition("/")[0].rpartition("@")[2].partition(":")[0].lower()
    for server in load_library().mcps.values():
        if names.intersection(server.packages) or (host and host in server.urls):
            return server
    return None


def _installed_package(word: str) -> str:
    """Return the package of a script in `node_modules`, or an empty string."""
    _, mark, rest = word.rpartition("/node_modules/")
    return "/".join(rest.split("/")[: 2 if rest.startswith("@") else 1]) if mark else ""


class SandboxProposal(Struct, frozen=True):
    """A sandbox for a server, with a note on it. `is_known` means that the library has the needs of the server."""

    settings: SandboxSettings
    note: str = ""
    is_known: bool = False


def propose_sandbox(
    command: str, args: Sequence[str], cwd: str, preset: Preset = "workspace"
) -> SandboxProposal:
    """Return the sandbox that a server is known to need, or the preset if its needs are unknown."""
    server = find_known_server(command, args)
    if server is None or server.sandbox is None or preset == "off":
        return SandboxProposal(SandboxSettings(preset=preset))
    settings = server.sandbox
    if server.sandbox_folders and (named := list(_named_paths(_own_arguments(server, command, args), cwd))):
        files = SandboxFiles(read=settings.files.read, write=[*settings.files.write, *named])
        settings = structs.replace(settings, files=files)
    return SandboxProposal(settings, server.sandbox_note, is_known=True)


def _own_arguments(server: KnownServer, command: str, args: Sequence[str]) -> Sequence[str]:
    """Return the arguments of the server itself, which follow the word that names it."""
    words = (command, *args)
    index = next((at for at, word in enumerate(words) if _names(word).intersection(server.packages)), 0)
    return words[index + 1 :]


def _names(word: str) -> set[str]:
    return {package_name(word), _installed_package(word)}


def _named_paths(args: Sequence[str], cwd: str) -> Iterator[str]:
    """Yield the existing files and folders that arguments name, outside the folder that the server runs in."""
    for word in args:
        path = os.path.normpath(os.path.join(cwd, word.partition("=")[2] if word.startswith("-") else word))
        if word and path != "/" and not f"{path}/".startswith(f"{cwd}/") and os.path.exists(path):
            yield path
