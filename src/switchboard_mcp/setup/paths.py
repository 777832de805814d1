"""Where the files of the hosts are on this machine.

Owns how `{home}` and its like are filled from the environment and the workspace, on each platform. Looks at what
exists; reads nothing but the pointer of a linked git work tree.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping

from msgspec import Struct

from switchboard_mcp.setup.hosts import ConfigLocation, Platform

_FIELD = re.compile(r"\{([A-Za-z_]+)\}")
# Where one of these is set, the file it leads to is the only one that counts.
OVERRIDES = (
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "COPILOT_HOME",
    "OPENCODE_CONFIG",
    "CLINE_MCP_SETTINGS_PATH",
    "CLINE_DATA_DIR",
    "CLINE_DIR",
)


class Places(Struct, frozen=True):
    """What the fields of a path stand for here."""

    platform: Platform
    fields: dict[str, str]

    @property
    def workspace(self) -> str:
        """The folder that is set up."""
        return self.fields["workspace"]


def places(workspace: str, environ: Mapping[str, str], platform: str) -> Places:
    """The fields for a workspace."""
    known: Platform = "darwin" if platform == "darwin" else "win32" if platform == "win32" else "linux"
    home = environ.get("HOME") or (environ.get("USERPROFILE", "") if known == "win32" else "")
    fields = {name: environ[name] for name in OVERRIDES if environ.get(name)}
    if known == "win32":
        fields |= {name: environ[name] for name in ("APPDATA", "LOCALAPPDATA") if environ.get(name)}
    if home:
        fields["home"] = home
        fields["config"] = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
        fields["data"] = environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
        fields["claude"] = environ.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude")
        if known == "darwin":
            fields["support"] = os.path.join(home, "Library", "Application Support")
    fields |= {"workspace": workspace, "platform": known}
    if (real := os.path.realpath(workspace)) != workspace:
        fields["real"] = real
    repository = repository_of(workspace)
    if repository and repository != workspace:
        fields["repository"] = repository
    return Places(known, fields)


def filled(text: str, fields: Mapping[str, str]) -> str:
    """A path with its fields filled in; empty where one of them is not known."""
    names = _FIELD.findall(text)
    if any(name not in fields for name in names):
        return ""
    return _FIELD.sub(lambda found: fields[found[1]], text)


def key_of(key: tuple[str, ...], fields: Mapping[str, str]) -> tuple[str, ...] | None:
    """A key with its fields filled in."""
    found = tuple(filled(name, fields) if "{" in name else name for name in key)
    return None if any(not name for name in found) else found


def paths_of(spot: ConfigLocation, here: Places) -> list[str]:
    """The files of a spot that exist."""
    if here.platform not in spot.platforms:
        return []
    for path in candidates(spot, here):
        if "*" in path:
            return sorted(glob.glob(path))
        if os.path.isfile(path):
            return [path]
    return []


def candidates(spot: ConfigLocation, here: Places) -> list[str]:
    """The files of a spot, whether they exist or not. An override that is set is the only one."""
    paths = [path for text in spot.paths if (path := filled(text, here.fields))]
    overridden = any(
        text.startswith(f"{{{name}}}") for text in spot.paths for name in OVERRIDES if name in here.fields
    )
    return paths[:1] if overridden else paths


def matching(templates: tuple[str, ...], here: Places) -> list[str]:
    """The files that exist, of a list of paths."""
    found: list[str] = []
    for text in templates:
        path = filled(text, here.fields)
        if path:
            found += sorted(glob.glob(path)) if "*" in path else [path] if os.path.isfile(path) else []
    return list(dict.fromkeys(found))


def repository_of(folder: str) -> str:
    """The root of the repository a folder is in; of a linked work tree the main one. Empty outside of git."""
    while True:
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            return folder
        if os.path.isfile(git):
            return _main_tree(git) or folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return ""
        folder = parent


def _main_tree(pointer: str) -> str:
    try:
        with open(pointer, encoding="utf-8") as file:
            told = file.read(4096)
    except (OSError, UnicodeDecodeError):
        return ""
    place = told.removeprefix("gitdir:").strip()
    head, sign, _ = place.partition(os.path.join(".git", "worktrees"))
    return head.rstrip(os.sep) if sign else ""
