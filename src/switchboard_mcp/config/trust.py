"""The parts of a project's config that run before anybody asks for them, and the user's yes to them.

A host opens Switchboard in whatever folder it is opened in, a cloned repository included. What such a folder has runs
only when it is called, except for these parts: they stay off until this user has allowed them, with this content, by
`switchboard trust`. The record is outside of the workspace. The user's own workspace needs none, and in governed mode
the approval is the yes. Loaded only if a config has such parts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard_mcp.config.documents import join_key
from switchboard_mcp.config.models import ChildSpec, Config, ConfigWarning, SuiteSettings, Workspace
from switchboard_mcp.config.sections import MiddlewareUse
from switchboard_mcp.system.atomic_write import write_atomically
from switchboard_mcp.system.folder_walk import walk_folders
from switchboard_mcp.system.user_folders import workspace_state_folder
from switchboard_mcp.system.user_key import read_private

MAX_RECORD_BYTES = 1_000_000
# Files of one module or program that belong to its content; more are not looked at.
MAX_FILES = 1_000
MAX_FILE_BYTES = 16_000_000
CODE = (".py", ".pyc", ".so", ".pyd")
COMMAND = "switchboard trust"


class Part(Struct, frozen=True):
    """A part of a config that runs by itself: its key, what it does, and a checksum of its content."""

    key: str
    does: str
    content: str


class TrustRecord(Struct, frozen=True):
    """What the user has allowed in a workspace: content by key."""

    workspace: str
    parts: dict[str, str] = {}


def find_parts(workspace: Workspace) -> list[Part]:
    """Return the parts of a project that run by themselves, with their present content."""
    config = workspace.config
    found = []
    lists = {"middleware": config.middleware}
    lists |= {
        f"{join_key('suites', name)}.middleware": suite.middleware for name, suite in config.suites.items()
    }
    for key, entries in lists.items():
        if entries:
            names = [_name(entry) for entry in entries]
            content = _digest(workspace, [entries], _module_files(workspace, names))
            found.append(Part(key, f"runs {', '.join(names)} inside Switchboard", content))
    if config.mail.channel:
        found.append(
            Part("mail.channel", "lets mail begin turns of your hosts", _digest(workspace, [True], []))
        )
    for spec in workspace.children:
        if spec.kind != "builtin" and is_listed_directly(config, spec.name):
            launch = [
                spec.kind,
                spec.command,
                spec.args,
                spec.env,
                spec.cwd,
                spec.url,
                sorted(spec.headers.items()),
            ]
            content = _digest(workspace, launch, _program_files(workspace, spec))
            runs = spec.url or " ".join([spec.command, *spec.args])
            found.append(Part(_exposure_key(spec.name), f"starts `{runs}` to list its tools", content))
    return found


def is_listed_directly(config: Config, child: str) -> bool:
    """Return True if a host's list has the child's own tools, for which it may have to be started."""
    suite = config.suites.get(child)
    exposure = (suite.exposure if suite is not None else None) or config.exposure
    return exposure == "direct" or (suite is not None and bool(suite.pin))


def withhold(workspace: Workspace, environ: Mapping[str, str]) -> Workspace:
    """Return the workspace without the parts that the user has not allowed, with a warning for each."""
    allowed = read_record(workspace, environ).parts
    off = [part for part in find_parts(workspace) if allowed.get(part.key) != part.content]
    if not off:
        return workspace
    keys = {part.key for part in off}
    config = workspace.config
    suites = dict(config.suites)
    for name, suite in config.suites.items():
        if f"{join_key('suites', name)}.middleware" in keys:
            suites[name] = replace(suite, middleware=[])
    for spec in workspace.children:
        if _exposure_key(spec.name) in keys:
            suites[spec.name] = replace(suites.get(spec.name) or SuiteSettings(), exposure="suite", pin=[])
    config = replace(config, suites=suites)
    if "middleware" in keys:
        config = replace(config, middleware=[])
    children = workspace.children
    if "mail.channel" in keys:
        config = replace(config, mail=replace(config.mail, channel=False))
        children = [replace(spec, channel=False) if spec.channel else spec for spec in children]
    warnings = []
    for part in off:
        why = "has changed since you allowed it" if part.key in allowed else "comes from this folder"
        message = f"is off: it {why}, and {part.does}. `{COMMAND}` allows it."
        warnings.append(ConfigWarning(workspace.source, part.key, message))
    return replace(
        workspace,
        config=config,
        children=children,
        written=workspace.written_config,
        warnings=[*workspace.warnings, *warnings],
        withheld=[part.key for part in off],
    )


def record_file(workspace: Workspace, environ: Mapping[str, str]) -> str:
    """Return the file with what the user has allowed in a workspace; empty if there is no home folder."""
    folder = workspace_state_folder(environ, "trust", workspace.folder)
    return f"{folder}.json" if folder else ""


def read_record(workspace: Workspace, environ: Mapping[str, str]) -> TrustRecord:
    """Return what the user has allowed; nothing if the file is missing, or not this user's alone."""
    nothing = TrustRecord(os.path.realpath(workspace.folder))
    path = record_file(workspace, environ)
    try:
        data = read_private(path, MAX_RECORD_BYTES) if path else None
        record = msgspec.json.decode(data, type=TrustRecord) if data is not None else nothing
    except (OSError, msgspec.MsgspecError):
        return nothing
    return record if record.workspace == nothing.workspace else nothing


def allow(workspace: Workspace, environ: Mapping[str, str], parts: Iterable[Part]) -> str:
    """Record the user's yes to these parts, beside earlier ones. Return the file. Raises OSError."""
    path = record_file(workspace, environ)
    if not path:
        raise OSError("There is no home folder to keep it in. Set HOME.")
    known = read_record(workspace, environ)
    merged = replace(known, parts={**known.parts, **{part.key: part.content for part in parts}})
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    write_atomically(path, msgspec.json.encode(merged))
    return path


def allow_children(workspace: Workspace, environ: Mapping[str, str], names: Iterable[str]) -> None:
    """Record the yes to children that the user has just added by a command: their tools may be listed directly."""
    keys = {_exposure_key(name) for name in names}
    if parts := [part for part in find_parts(workspace) if part.key in keys]:
        allow(workspace, environ, parts)


def _exposure_key(child: str) -> str:
    return f"{join_key('suites', child)}.exposure"


def _name(entry: str | MiddlewareUse) -> str:
    return entry if isinstance(entry, str) else entry.use


def _digest(workspace: Workspace, settings: Sequence[object], files: Iterable[str]) -> str:
    digest = sha256(msgspec.json.encode(settings, order="sorted"))
    for path in sorted(set(files))[:MAX_FILES]:
        name = os.path.relpath(path, os.path.realpath(workspace.folder))
        digest.update(b"\0%b\0" % name.encode("utf-8", "surrogateescape"))
        try:
            with open(path, "rb") as file:
                digest.update(sha256(file.read(MAX_FILE_BYTES)).digest())
        except OSError:
            continue
    return digest.hexdigest()


def _module_files(workspace: Workspace, names: Iterable[str]) -> Iterator[str]:
    """Yield the files of the workspace that names of middleware may mean, wherever Python finds modules."""
    modules = {name.partition(":")[0].partition(".")[0] for name in names if ":" in name}
    if not modules:
        return
    for folder, inside in walk_folders(os.path.realpath(workspace.folder)):
        for module in modules.intersection(inside):
            yield from _code_in(os.path.join(folder, module))
        if any(name.partition(".")[0] in modules and name.endswith(CODE) for name in inside):
            yield from (os.path.join(folder, name) for name in inside if name.endswith(CODE))


def _code_in(package: str) -> Iterator[str]:
    for folder, names in walk_folders(package):
        yield from (os.path.join(folder, name) for name in names if name.endswith(CODE))


def _program_files(workspace: Workspace, spec: ChildSpec) -> Iterator[str]:
    """Yield the files of the workspace that a command line names."""
    for word in (spec.command, *spec.args):
        path = os.path.realpath(os.path.join(spec.cwd or workspace.folder, word.partition("=")[2] or word))
        if "\0" not in word and _is_inside(path, workspace) and os.path.isfile(path):
            yield path


def _is_inside(path: str, workspace: Workspace) -> bool:
    folder = os.path.realpath(workspace.folder)
    return path == folder or path.startswith(folder.rstrip("/") + "/")
