"""Reads and writes `switchboard.approvals.json`: children and settings approved for governed mode, by checksum.

`switchboard approve` creates the approvals; `policy.launch.rules` and `policy.approved_settings` enforce them. The file
is made for git: it is sorted, and paths in the workspace or home folder begin with a variable. Loaded in governed mode
only. The docstring under a field is its description in the published JSON Schema.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, structs

from switchboard_mcp.config.documents import Unreadable, find_mistakes, join_key, read_document
from switchboard_mcp.config.models import APPROVALS_FILE
from switchboard_mcp.config.sandbox import SandboxSettings
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.system.atomic_write import write_atomically

WORKSPACE, HOME = "${workspace}", "${home}"
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class FilePin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file, or all files of a folder, that a launch depends on."""

    path: str
    """Absolute path. It may begin with `${workspace}` or `${home}`."""
    sha256: Digest
    """Checksum of the content; for a folder, over the names and contents of all files in it."""
    real: str = ""
    """Resolved path, if `path` contains a symbolic link."""
    installed: bool = False
    """Set for a folder of installed packages: all files in it, dependencies included. A start compares the status of
    each file with that of the last reading."""
    names: list[str] = []
    """If set, only entries of the folder with these names or globs are part of the checksum. There may be none."""


class AskApproval(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Approval for natural-language requests to a child."""

    models: list[str] = []
    """Models that may plan: `host` for the model of the host, or an API by its scheme, host and port."""
    confirm: Literal["destructive", "writes"] = "destructive"
    """Minimum level of confirmation by the user; see `ask.confirm` in the config."""
    trust: list[str] = []
    """Subtools that need no confirmation, as in `ask.trust` in the config."""
    role: Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")] = ""
    """Checksum of the `CLAUDE.md` that describes the child to the model; empty if there is none."""


class Approval(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The approved launch of one child."""

    kind: Literal["stdio", "http", "sse", "ws"] = "stdio"
    """Transport of the child."""
    command: str = ""
    """The configured command."""
    args: list[str] = []
    """Patterns for the configured arguments, one each: `*` matches any text that does not begin with a hyphen."""
    launch: list[str] = []
    """Command line that replaces the command and its first `replaces` arguments; the other arguments follow."""
    replaces: Annotated[int, Meta(ge=0)] = 0
    """Number of configured arguments that `launch` replaces."""
    files: list[FilePin] = []
    """Files that must be unchanged since the approval."""
    data: list[str] = []
    """Files and folders that arguments name and that are not pinned, since the child runs nothing there."""
    unpinned: list[str] = []
    """Folders of installed packages that the child uses and that are not pinned, each with the reason."""
    package: str = ""
    """The package that contains the program, for information."""
    env: list[str] = []
    """Names of environment variables that the child's entry may set."""
    env_values: dict[str, str] = {}
    """Variables that influence what runs, each with its only allowed value."""
    variables: list[str] | None = None
    """Names of variables that the child's entry may reference (`${NAME}`). Any, if not set."""
    origin: str = ""
    """Scheme, host and port of a remote child."""
    sandbox: SandboxSettings | None = None
    """Sandbox of the child's process, in the words of the config. A child without it must be approved again; a remote
    child has none."""
    ask: AskApproval | None = None
    """Approval for natural-language requests, if any."""


class LocatedApproval(Struct, frozen=True):
    """An approval and its key path in the file."""

    key: str
    approval: Approval


class Approvals(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `switchboard.approvals.json` of a workspace."""

    version: Literal[1] = 1
    """Version of this file's format."""
    children: dict[str, Approval] = {}
    """Approvals for all platforms, by the child's name: remote children."""
    platforms: dict[str, dict[str, Approval]] = {}
    """Approvals for one platform, such as `linux-x86_64` or `darwin-arm64`, by the child's name: local programs. They
    take
    precedence over approvals for all platforms."""
    settings: dict[str, Digest] = {}
    """Checksums of the approved settings, by section of the config, such as `http` or `suites.github`. Settings at
    their defaults do not count."""

    def find(self, child: str, platform: str) -> LocatedApproval | None:
        """Return the approval of a child on a platform, or None."""
        own = self.platforms.get(platform, {}).get(child)
        if own is not None:
            return LocatedApproval(join_key(join_key("platforms", platform), child), own)
        anywhere = self.children.get(child)
        return LocatedApproval(join_key("children", child), anywhere) if anywhere is not None else None

    def elsewhere(self, child: str, platform: str) -> list[str]:
        """Return the other platforms on which a child is approved."""
        return [name for name in self.everywhere(child) if name not in ("", platform)]

    def everywhere(self, child: str) -> dict[str, Approval]:
        """Return all approvals of a child by platform; an empty name means all platforms."""
        sets = {"": self.children, **self.platforms}
        return {name: own[child] for name, own in sorted(sets.items()) if child in own}

    def names(self) -> set[str]:
        """Return every child that is approved on any platform."""
        return {*self.children, *(child for own in self.platforms.values() for child in own)}

    def without(self, child: str) -> Approvals:
        """Return a copy in which the child is not approved on any platform."""
        platforms = {name: _without(own, child) for name, own in self.platforms.items()}
        return structs.replace(
            self,
            children=_without(self.children, child),
            platforms={name: own for name, own in platforms.items() if own},
        )

    def adding(self, child: str, platform: str, approval: Approval) -> Approvals:
        """Return a copy with a child approved: a program on this platform, a remote child on all.

        Approvals of a program on other platforms are kept; one for all platforms, from older versions, is removed.
        """
        children, own = _without(self.children, child), _without(self.platforms.get(platform, {}), child)
        if approval.kind != "stdio":
            return structs.replace(self.without(child), children={**children, child: approval})
        platforms = {**self.platforms, platform: {**own, child: approval}}
        return structs.replace(self, children=children, platforms=platforms)


def _without(approved: Mapping[str, Approval], child: str) -> dict[str, Approval]:
    return {name: approval for name, approval in approved.items() if name != child}


def current_platform() -> str:
    """Return the platform of this machine. Programs on the same platform may have the same checksums."""
    machine = os.uname()
    return f"{machine.sysname}-{machine.machine}".lower()


class PathVariables(Struct, frozen=True):
    """The variables that paths in the file may begin with."""

    workspace: str
    home: str

    def fill(self, path: str) -> str:
        """Return the absolute path."""
        for word, folder in ((WORKSPACE, self.workspace), (HOME, self.home)):
            if folder and (path == word or path.startswith(word + "/")):
                return folder + path[len(word) :]
        return path

    def shorten(self, path: str) -> str:
        """Return the path as written to the file. A path outside both folders is unchanged."""
        for word, folder in ((WORKSPACE, self.workspace), (HOME, self.home)):
            if folder not in ("", "/") and path.startswith(folder + "/"):
                return word + path[len(folder) :]
        return path


def path_variables(workspace: str, environ: Mapping[str, str]) -> PathVariables:
    """Return the path variables of a workspace."""
    home = environ.get("HOME", "")
    return PathVariables(workspace, os.path.normpath(home) if os.path.isabs(home) else "")


def approvals_path(workspace: str) -> str:
    """Return the path of the approvals file."""
    return os.path.join(workspace, APPROVALS_FILE)


def read_approvals(path: str) -> Approvals:
    """Read the approvals; empty if there is no file. Raises `config_invalid` with all mistakes in it."""
    document = read_document(path)
    if document is None:
        return Approvals()
    if isinstance(document, Unreadable):
        raise _invalid(f"{path}: {document.message}")
    if isinstance(document, dict):
        document.pop("$schema", None)
    try:
        approvals = msgspec.convert(document, Approvals)
    except msgspec.ValidationError as problem:
        messages = [
            f"{path}: {mistake.key}: {mistake.message}" for mistake in find_mistakes(document, Approvals)
        ]
        raise _invalid("\n".join(messages) or f"{path}: {problem}") from None
    sets = {"children": approvals.children}
    sets |= {join_key("platforms", name): own for name, own in approvals.platforms.items()}
    for key, approved in sets.items():
        for name, approval in approved.items():
            if approval.replaces > len(approval.args):
                message = (
                    f"{join_key(join_key(key, name), 'replaces')}: is greater than the number of `args`."
                )
                raise _invalid(f"{path}: {message}")
    return approvals


def render(approvals: Approvals) -> bytes:
    """Return the content of the file. Equal approvals give equal bytes."""
    ordered = Approvals(
        children=dict(sorted(approvals.children.items())),
        platforms={name: dict(sorted(own.items())) for name, own in sorted(approvals.platforms.items())},
        settings=dict(sorted(approvals.settings.items())),
    )
    return msgspec.json.format(msgspec.json.encode(ordered), indent=2) + b"\n"


def write_approvals(path: str, approvals: Approvals) -> None:
    """Write the file atomically."""
    write_atomically(path, render(approvals), 0o666)


def _invalid(message: str) -> SwitchboardError:
    hint = "Correct the file; or remove it, and approve each child again with `switchboard approve CHILD`."
    return refused("config_invalid", message, hint=hint)
