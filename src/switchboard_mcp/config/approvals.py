"""`switchboard.approvals.json`: which children may run in governed mode, and exactly what each of them is.

Owns the file: its shape, reading and writing. `switchboard approve` makes what is written, `policy.launch.rules` holds
children to it. Made for git: sorted, and paths inside the workspace or the home folder begin with a word for it. Loaded
in governed mode only. The text under a field is its description in the published JSON Schema.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, structs

from switchboard_mcp.config.documents import Unreadable, join_key, read_document
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.system.atomic_write import write_whole

FILE_NAME = "switchboard.approvals.json"
WORKSPACE, HOME = "${workspace}", "${home}"
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class FilePin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One file, or all files of a folder, that a launch depends on."""

    path: str
    """Where it is, absolute; `${workspace}` and `${home}` may stand at its beginning."""
    sha256: Digest
    """Checksum of its content; of a folder, over the names and contents of all files in it."""
    real: str = ""
    """Where it really is, where `path` is a symbolic link or leads through one."""


class AskApproval(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """That a model may turn sentences into calls of the child."""

    models: list[str] = []
    """Who may plan: `host`, which is the model of the host; an API by its scheme, host and port."""
    confirm: Literal["destructive", "writes"] = "destructive"
    """What a person is asked about first, at least; see `ask.confirm` in the config."""
    trust: list[str] = []
    """Subtools that nobody need be asked about, as `ask.trust` in the config names them."""
    role: Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")] = ""
    """Checksum of the `CLAUDE.md` that tells the model about the child; empty where there is none."""


class Approval(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """What one child may be."""

    kind: Literal["stdio", "http", "sse", "ws"] = "stdio"
    """How the child is reached."""
    command: str = ""
    """The command as it is configured."""
    args: list[str] = []
    """The configured arguments, one pattern each: `*` stands for any text that does not begin with a hyphen."""
    launch: list[str] = []
    """What is run in place of the command and the first `replaces` arguments; the other arguments follow."""
    replaces: Annotated[int, Meta(ge=0)] = 0
    """How many of the configured arguments `launch` stands for."""
    files: list[FilePin] = []
    """What must not have changed since."""
    package: str = ""
    """The package it comes from, for readers."""
    env: list[str] = []
    """Names of variables that the child's entry may set."""
    env_values: dict[str, str] = {}
    """Variables that change what runs, each with the one value it may have."""
    variables: list[str] | None = None
    """Names of variables that the child's entry may be filled with (`${NAME}`); any, where it is not set."""
    origin: str = ""
    """Scheme, host and port of a remote child."""
    ask: AskApproval | None = None
    """Requests in natural language, where they were approved too."""


class LocatedApproval(Struct, frozen=True):
    """An approval, and the key it stands under."""

    key: str
    approval: Approval


class Approvals(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One workspace's `switchboard.approvals.json`."""

    version: Literal[1] = 1
    """Version of this file's format."""
    children: dict[str, Approval] = {}
    """What is approved on every machine, by the child's name: remote children."""
    platforms: dict[str, dict[str, Approval]] = {}
    """What is approved on machines of one kind, such as `linux-x86_64` or `darwin-arm64`, by the child's name: children
    that are programs. It counts before what is approved on every machine."""

    def find(self, child: str, platform: str) -> LocatedApproval | None:
        """What is approved of a child on one kind of machine."""
        own = self.platforms.get(platform, {}).get(child)
        if own is not None:
            return LocatedApproval(join_key(join_key("platforms", platform), child), own)
        anywhere = self.children.get(child)
        return LocatedApproval(join_key("children", child), anywhere) if anywhere is not None else None

    def elsewhere(self, child: str, platform: str) -> list[str]:
        """The other kinds of machines that a child is approved on."""
        return [name for name in self.everywhere(child) if name not in ("", platform)]

    def everywhere(self, child: str) -> dict[str, Approval]:
        """All that is approved of a child, by the kind of machine; under an empty name what is on every one."""
        sets = {"": self.children, **self.platforms}
        return {name: own[child] for name, own in sorted(sets.items()) if child in own}

    def names(self) -> set[str]:
        """Every child that is approved on any machine."""
        return {*self.children, *(child for own in self.platforms.values() for child in own)}

    def without(self, child: str) -> Approvals:
        """The same, with the child approved on no machine."""
        platforms = {name: _without(own, child) for name, own in self.platforms.items()}
        return Approvals(
            children=_without(self.children, child),
            platforms={name: own for name, own in platforms.items() if own},
        )

    def adding(self, child: str, platform: str, approval: Approval) -> Approvals:
        """The same, with a child approved: a program on this kind of machine, a remote one on every.

        What is approved of it on other kinds stays; what was on all of them, before there were kinds, does not.
        """
        children, own = _without(self.children, child), _without(self.platforms.get(platform, {}), child)
        if approval.kind != "stdio":
            return structs.replace(self.without(child), children={**children, child: approval})
        platforms = {**self.platforms, platform: {**own, child: approval}}
        return Approvals(children=children, platforms=platforms)


def _without(approved: Mapping[str, Approval], child: str) -> dict[str, Approval]:
    return {name: approval for name, approval in approved.items() if name != child}


def current_platform() -> str:
    """The kind of machine that this is: what runs on one of the same kind may have the same checksums."""
    machine = os.uname()
    return f"{machine.sysname}-{machine.machine}".lower()


class PathVariables(Struct, frozen=True):
    """The folders that paths in the file may begin with."""

    workspace: str
    home: str

    def fill(self, path: str) -> str:
        """The absolute path."""
        for word, folder in ((WORKSPACE, self.workspace), (HOME, self.home)):
            if folder and (path == word or path.startswith(word + "/")):
                return folder + path[len(word) :]
        return path

    def shorten(self, path: str) -> str:
        """The path as it stands in the file; what lies elsewhere stays as it is."""
        for word, folder in ((WORKSPACE, self.workspace), (HOME, self.home)):
            if folder not in ("", "/") and path.startswith(folder + "/"):
                return word + path[len(folder) :]
        return path


def path_variables(workspace: str, environ: Mapping[str, str]) -> PathVariables:
    """The folders here."""
    home = environ.get("HOME", "")
    return PathVariables(workspace, os.path.normpath(home) if os.path.isabs(home) else "")


def approvals_path(workspace: str) -> str:
    """Where the file is."""
    return os.path.join(workspace, FILE_NAME)


def read_approvals(path: str) -> Approvals:
    """What is approved; nothing where there is no file. Raises `config_invalid` with every mistake in it."""
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
        from switchboard_mcp.config.validation_errors import find_mistakes  # Only for files that are wrong.

        messages = [
            f"{path}: {mistake.key}: {mistake.message}" for mistake in find_mistakes(document, Approvals)
        ]
        raise _invalid("\n".join(messages) or f"{path}: {problem}") from None
    sets = {"children": approvals.children}
    sets |= {join_key("platforms", name): own for name, own in approvals.platforms.items()}
    for key, approved in sets.items():
        for name, approval in approved.items():
            if approval.replaces > len(approval.args):
                message = f"{join_key(join_key(key, name), 'replaces')}: is more than there are `args`."
                raise _invalid(f"{path}: {message}")
    return approvals


def render(approvals: Approvals) -> bytes:
    """The text of the file: the same for the same approvals, one line a value."""
    ordered = Approvals(
        children=dict(sorted(approvals.children.items())),
        platforms={name: dict(sorted(own.items())) for name, own in sorted(approvals.platforms.items())},
    )
    return msgspec.json.format(msgspec.json.encode(ordered), indent=2) + b"\n"


def write_approvals(path: str, approvals: Approvals) -> None:
    """Replace the file as a whole, so that nobody ever reads half of it."""
    write_whole(path, render(approvals), 0o666)


def _invalid(message: str) -> SwitchboardError:
    hint = "Correct the file; or remove it, and approve each child again with `switchboard approve CHILD`."
    return refused("config_invalid", message, hint=hint)
