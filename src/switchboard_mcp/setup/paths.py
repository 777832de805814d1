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


class HostPaths(Struct, frozen=True):
    """What the fields of a path stand for here."""

    platform: Platform
    fields: dict[str, str]

    @property
    def workspace(self) -> str:
        """The folder that is set up."""
        return self.fields["workspace"]


def host_paths(workspace: str, environ: Mapping[str, str], platform: str) -> HostPaths:
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
    repository = find_repository(workspace)
    if repository and repository != workspace:
        fields["repository"] = repository
    return HostPaths(known, fields)


def fill(text: str, fields: Mapping[str, str]) -> str:
    """A path with its fields filled in; empty where one of them is not known."""
    names = _FIELD.findall(text)
    if any(name not in fields for name in names):
        return ""
    return _FIELD.sub(lambda found: fields[found[1]], text)


def fill_key(key: tuple[str, ...], fields: Mapping[str, str]) -> tuple[str, ...] | None:
    """A key with its fields filled in."""
    filled = tuple(fill(name, fields) if "{" in name else name for name in key)
    return None if any(not name for name in filled) else filled


def existing_paths(location: ConfigLocation, paths: HostPaths) -> list[str]:
    """The files of a spot that exist."""
    if paths.platform not in location.platforms:
        return []
    for path in candidate_paths(location, paths):
        if "*" in path:
            return sorted(glob.glob(path))
        if os.path.isfile(path):
            return [path]
    return []


def candidate_paths(location: ConfigLocation, here: HostPaths) -> list[str]:
    """The files of a spot, whether they exist or not. An override that is set is the only one."""
    paths = [path for text in location.paths if (path := fill(text, here.fields))]
    overridden = any(
        text.startswith(f"{{{name}}}") for text in location.paths for name in OVERRIDES if name in here.fields
    )
    return paths[:1] if overridden else paths


def existing_files(templates: tuple[str, ...], paths: HostPaths) -> list[str]:
    """The files that exist, of a list of paths."""
    files: list[str] = []
    for text in templates:
        path = fill(text, paths.fields)
        if path:
            files += sorted(glob.glob(path)) if "*" in path else [path] if os.path.isfile(path) else []
    return list(dict.fromkeys(files))


def find_repository(folder: str) -> str:
    """The root of the repository a folder is in; of a linked work tree the main one. Empty outside of git."""
    while True:
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            return folder
        if os.path.isfile(git):
            return _main_work_tree(git) or folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return ""
        folder = parent


def _main_work_tree(pointer: str) -> str:
    try:
        with open(pointer, encoding="utf-8") as file:
            content = file.read(4096)
    except (OSError, UnicodeDecodeError):
        return ""
    git_dir = content.removeprefix("gitdir:").strip()
    head, sign, _ = git_dir.partition(os.path.join(".git", "worktrees"))
    return head.rstrip(os.sep) if sign else ""
