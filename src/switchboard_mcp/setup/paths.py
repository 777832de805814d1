"""Locates the config files of hosts on this machine.

Fills in fields such as `{home}` from the environment and the workspace, on each platform. Checks which files exist; the
only file it reads is the pointer of a linked git work tree.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping

from msgspec import Struct

from switchboard_mcp.setup.hosts import ConfigLocation, Platform

_FIELD = re.compile(r"\{([A-Za-z_]+)\}")
# If one of these is set, the file it names is the only one used.
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
    """The platform, and the values of the fields in paths."""

    platform: Platform
    fields: dict[str, str]

    @property
    def workspace(self) -> str:
        """The workspace folder."""
        return self.fields["workspace"]

    def at(self, workspace: str) -> HostPaths:
        """Return the same for another workspace."""
        others = {name: value for name, value in self.fields.items() if name not in ("real", "repository")}
        return HostPaths(self.platform, {**others, **_workspace_fields(workspace)})


def host_paths(workspace: str, environ: Mapping[str, str], platform: str) -> HostPaths:
    """Return the field values for a workspace."""
    system: Platform = "darwin" if platform == "darwin" else "win32" if platform == "win32" else "linux"
    home = environ.get("HOME") or (environ.get("USERPROFILE", "") if system == "win32" else "")
    fields = {name: environ[name] for name in OVERRIDES if environ.get(name)}
    if system == "win32":
        fields |= {name: environ[name] for name in ("APPDATA", "LOCALAPPDATA") if environ.get(name)}
    if home:
        fields["home"] = home
        fields["config"] = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
        fields["data"] = environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
        fields["claude"] = environ.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude")
        if system == "darwin":
            fields["support"] = os.path.join(home, "Library", "Application Support")
    return HostPaths(system, {**fields, **_workspace_fields(workspace), "platform": system})


def _workspace_fields(workspace: str) -> dict[str, str]:
    fields = {"workspace": workspace}
    if (real := os.path.realpath(workspace)) != workspace:
        fields["real"] = real
    repository = find_repository(workspace)
    if repository and repository != workspace:
        fields["repository"] = repository
    return fields


def fill(text: str, fields: Mapping[str, str]) -> str:
    """Fill in the fields of a path. Returns an empty string if one of them is unknown."""
    names = _FIELD.findall(text)
    if any(name not in fields for name in names):
        return ""
    return _FIELD.sub(lambda match: fields[match[1]], text)


def fill_key(key: tuple[str, ...], fields: Mapping[str, str]) -> tuple[str, ...] | None:
    """Fill in the fields of a key. Returns None if one of them is unknown."""
    filled = tuple(fill(name, fields) if "{" in name else name for name in key)
    return None if any(not name for name in filled) else filled


def existing_paths(location: ConfigLocation, paths: HostPaths) -> list[str]:
    """Return the files of a location that exist."""
    if paths.platform not in location.platforms:
        return []
    for path in candidate_paths(location, paths):
        if "*" in path:
            return sorted(glob.glob(path))
        if os.path.isfile(path):
            return [path]
    return []


def candidate_paths(location: ConfigLocation, here: HostPaths) -> list[str]:
    """Return the possible files of a location. If an override is set, it is the only one."""
    paths = [path for text in location.paths if (path := fill(text, here.fields))]
    overridden = any(
        text.startswith(f"{{{name}}}") for text in location.paths for name in OVERRIDES if name in here.fields
    )
    return paths[:1] if overridden else paths


def existing_files(templates: tuple[str, ...], paths: HostPaths) -> list[str]:
    """Return the files that exist, of a list of paths and globs."""
    files: list[str] = []
    for text in templates:
        path = fill(text, paths.fields)
        if path:
            files += sorted(glob.glob(path)) if "*" in path else [path] if os.path.isfile(path) else []
    return list(dict.fromkeys(files))


def find_repository(folder: str) -> str:
    """Return the root of the git repository of a folder; for a linked work tree, the main one. Empty outside of git."""
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
