"""`switchboard.approvals.json`: which children may run in governed mode, and exactly what each of them is.

Owns the file: its shape, reading and writing. `switchboard approve` makes what is written, `policy.launch` holds
children to it. Made for git: sorted, and paths inside the workspace or the home folder begin with a word for it. Loaded
in governed mode only. The text under a field is its description in the published JSON Schema.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from switchboard_mcp.config.documents import Unreadable, join, read_document
from switchboard_mcp.config.writing import write_whole
from switchboard_mcp.errors import SwitchboardError, failure

FILE_NAME = "switchboard.approvals.json"
WORKSPACE, HOME = "${workspace}", "${home}"
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Pin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One file, or all files of a folder, that a launch depends on."""

    path: str
    """Where it is, absolute; `${workspace}` and `${home}` may stand at its beginning."""
    sha256: Digest
    """Checksum of its content; of a folder, over the names and contents of all files in it."""
    real: str = ""
    """Where it really is, where `path` is a symbolic link or leads through one."""


class Asking(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """That a model may turn sentences into calls of the child."""

    models: list[str] = []
    """Who may plan: `host`, which is the model of the host; an API by its scheme, host and port."""
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
    files: list[Pin] = []
    """What must not have changed since."""
    package: str = ""
    """The package it comes from, for readers."""
    env: list[str] = []
    """Names of variables that the child's entry may set."""
    env_values: dict[str, str] = {}
    """Variables that change what runs, each with the one value it may have."""
    origin: str = ""
    """Scheme, host and port of a remote child."""
    ask: Asking | None = None
    """Requests in natural language, where they were approved too."""


class Approvals(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One workspace's `switchboard.approvals.json`."""

    version: Literal[1] = 1
    """Version of this file's format."""
    children: dict[str, Approval] = {}
    """What is approved, by the child's name."""


class Words(Struct, frozen=True):
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


def words(workspace: str, environ: Mapping[str, str]) -> Words:
    """The folders here."""
    home = environ.get("HOME", "")
    return Words(workspace, os.path.normpath(home) if os.path.isabs(home) else "")


def approvals_file(workspace: str) -> str:
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
        from switchboard_mcp.config.mistakes import mistakes  # Only for files that are wrong.

        found = [f"{path}: {mistake.key}: {mistake.message}" for mistake in mistakes(document, Approvals)]
        raise _invalid("\n".join(found) or f"{path}: {problem}") from None
    for name, approval in approvals.children.items():
        if approval.replaces > len(approval.args):
            key = join(join("children", name), "replaces")
            raise _invalid(f"{path}: {key}: is more than there are `args`.")
    return approvals


def render(approvals: Approvals) -> bytes:
    """The text of the file: the same for the same approvals, one line a value."""
    members = msgspec.to_builtins(approvals)
    members["children"] = dict(sorted(members["children"].items()))
    return msgspec.json.format(msgspec.json.encode(members), indent=2) + b"\n"


def write_approvals(path: str, approvals: Approvals) -> None:
    """Replace the file as a whole, so that nobody ever reads half of it."""
    write_whole(path, render(approvals), 0o666)


def _invalid(message: str) -> SwitchboardError:
    hint = "Correct the file, or write it anew with `switchboard approve CHILD`."
    return SwitchboardError(failure("config_invalid", message, hint=hint))
