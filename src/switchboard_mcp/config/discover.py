"""Finds the children of a workspace: `mcpServers` in the config first, then the files that match its globs.

Globs are processed in order, the files of one glob sorted by path; the first child with a name wins. `entries` reads
the single entries.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from switchboard_mcp.config import models, sections
from switchboard_mcp.config.documents import Unreadable, join_key, read_document
from switchboard_mcp.config.entries import EntryLocation, read_entry
from switchboard_mcp.config.files.secrets_file import SECRETS_FILE, read_secrets
from switchboard_mcp.config.models import DEFAULT_GLOBS, ChildSpec, Config, ConfigWarning, StoredVariables
from switchboard_mcp.config.variables import missing_variables, unsupported_references, used_variables
from switchboard_mcp.suites.fuzzy import did_you_mean
from switchboard_mcp.system import globs

# The variable for the folder of the workspace; for a child of the user, the project it is used in.
WORKSPACE_FOLDER = "workspaceFolder"
ELSEWHERE = (
    "elsewhere"  # value of `wraps` if the wrapped child is defined in another file, under the same name
)
# These file names say nothing about the child; the name of the folder does.
_PLAIN_NAMES = (".mcp.json", "mcp.json", ".mcp.toml", "mcp.toml")


class _Result(Struct):
    """The children found so far. `mentioned` also holds the names of skipped, disabled and broken ones."""

    children: dict[str, ChildSpec]
    warnings: list[ConfigWarning]
    mentioned: set[str]
    originals: bool = False
    disabled: dict[str, ChildSpec] = {}


def discover(
    folder: str,
    config: Config,
    environ: Mapping[str, str],
    *,
    source: str = "",
    originals: bool = False,
    root: str = "",
) -> tuple[list[ChildSpec], list[ChildSpec], list[ConfigWarning]]:
    """Return the children of `folder`, those that are disabled, and warnings. `source` is the config file.

    With `originals`, each wrapped child is replaced by the child it wraps. `root` is the value of `${workspaceFolder}`.
    """
    source = source or os.path.join(folder, "switchboard.config.json")
    result = _Result({}, [], set(), originals)
    if config.mail.enabled:
        _add(_mail_child(source, config), result)
    if config.find.enabled:
        _add(_switchboard_child(source), result)
    if config.programs.enabled:
        _add(_program_child(source), result)
    _read_map(config.mcp_servers, EntryLocation(source, "mcpServers", folder), result)
    for path in _matched_files(folder, config, environ, source, result.warnings):
        _read_file(path, result)
    _store_variables(folder, root or folder, result)
    for spec in result.children.values():
        _check_variables(spec, environ, result.warnings)
    _check_suites(config, source, result)
    disabled = [spec for name, spec in result.disabled.items() if name not in result.children]
    return list(result.children.values()), disabled, result.warnings


def _mail_child(source: str, config: Config) -> ChildSpec:
    """Return the built-in mail child."""
    return ChildSpec(
        name=sections.MAIL_NAME,
        source=source,
        key="mail",
        kind="builtin",
        description=sections.MAIL_DESCRIPTION,
        rpc_timeout_ms=sections.MAIL_LONGEST_CALL_MS,
        channel=config.mail.channel,
    )


def _switchboard_child(source: str) -> ChildSpec:
    """Return the built-in child for search and status."""
    return ChildSpec(
        name=models.SWITCHBOARD_NAME,
        source=source,
        key="find",
        kind="builtin",
        description=models.SWITCHBOARD_DESCRIPTION,
    )


def _program_child(source: str) -> ChildSpec:
    """Return the built-in child that runs programs."""
    return ChildSpec(
        name=sections.PROGRAM_NAME,
        source=source,
        key="programs",
        kind="builtin",
        description=sections.PROGRAM_DESCRIPTION,
        rpc_timeout_ms=sections.LONGEST_RUN_MS,
    )


def _matched_files(
    folder: str, config: Config, environ: Mapping[str, str], source: str, warnings: list[ConfigWarning]
) -> list[str]:
    paths: dict[str, None] = {}
    for index, pattern in enumerate(config.discover_globs):
        home = environ.get("HOME", "") if pattern.startswith("~/") else ""
        matched = globs.find_files(folder, home + pattern[1:] if home else pattern)
        if not matched and pattern not in DEFAULT_GLOBS:
            message = f"{pattern!r} matches no file. Correct or remove it; globs are relative to {folder}."
            warnings.append(ConfigWarning(source, f"discoverGlobs[{index}]", message))
        paths.update(dict.fromkeys(matched))
    return list(paths)


def _read_file(path: str, result: _Result) -> None:
    document = read_document(path)
    if document is None:
        # The glob has just matched it: it was deleted, or it is a dangling link.
        document = Unreadable("is a dangling link. Remove the link, or restore the file.")
    folder, file_name = os.path.split(path)
    if isinstance(document, Unreadable):
        result.mentioned.add(_fallback_name(folder, file_name))
        result.warnings.append(ConfigWarning(path, "", f"{document.message} The file is skipped."))
    elif isinstance(document, dict) and "mcpServers" in document:
        servers = document["mcpServers"]
        if isinstance(servers, dict):
            _read_map(servers, EntryLocation(path, "mcpServers", folder), result)
        else:
            message = "expected an object with one member per child. The file is skipped."
            result.warnings.append(ConfigWarning(path, "mcpServers", message))
    else:
        fallback = _fallback_name(folder, file_name)
        own = document.get("name") if isinstance(document, dict) else None
        result.mentioned.add(own if isinstance(own, str) else fallback)
        spec = read_entry(document, EntryLocation(path, "", folder), result.warnings, fallback=fallback)
        if spec is not None and spec.wraps and result.originals:
            spec = _read_original(spec, result.warnings)
        _add(spec, result)


def _read_original(spec: ChildSpec, warnings: list[ConfigWarning]) -> ChildSpec | None:
    """Return the child that a wrapper wraps, or None if it is defined elsewhere or cannot be read."""
    if spec.wraps == ELSEWHERE:
        return None
    folder = os.path.dirname(spec.source)
    path = os.path.join(folder, spec.wraps)
    document = read_document(path)
    if document is None or isinstance(document, Unreadable):
        why = document.message if isinstance(document, Unreadable) else "does not exist."
        warnings.append(ConfigWarning(path, "", f"the original of the wrapped child '{spec.name}' {why}"))
        return None
    original = read_entry(document, EntryLocation(path, "", folder), warnings, name=spec.name)
    if original is None or original.disabled:
        return None
    return replace(original, wraps="")  # otherwise wrappers would start each other forever


def _read_map(servers: Mapping[str, object], location: EntryLocation, result: _Result) -> None:
    result.mentioned.update(servers)
    for name, raw in servers.items():
        own = EntryLocation(location.source, join_key(location.key, name), location.folder)
        _add(read_entry(raw, own, result.warnings, name=name), result)


def _add(spec: ChildSpec | None, result: _Result) -> None:
    if spec is None:
        return
    if spec.disabled:
        result.disabled.setdefault(spec.name, spec)
        return
    first = result.children.setdefault(spec.name, spec)
    if first is spec:
        return
    if spec.wraps == ELSEWHERE:
        result.children[spec.name] = spec  # the wrapper replaces the child it wraps
    elif first.wraps != ELSEWHERE:
        place = f"{first.source}: {first.key}" if first.key else first.source
        message = (
            f"a child named '{spec.name}' already exists in {place}. This one is skipped; rename one of them."
        )
        result.warnings.append(ConfigWarning(spec.source, spec.key or "name", message))


def _fallback_name(folder: str, file_name: str) -> str:
    if file_name in _PLAIN_NAMES:
        return os.path.basename(folder)
    return file_name.rpartition(".")[0].removesuffix(".mcp") or file_name


def _store_variables(folder: str, root: str, result: _Result) -> None:
    """Give each child the variables of the secrets file that its entry references, and the folder it works in."""
    secrets = {**read_secrets(folder, result.warnings), WORKSPACE_FOLDER: root}
    for name, spec in result.children.items():
        named = {use.variable for use in used_variables(spec)} & secrets.keys()
        if named:
            stored = StoredVariables({variable: secrets[variable] for variable in named})
            result.children[name] = replace(spec, stored=stored)


def _check_variables(spec: ChildSpec, environ: Mapping[str, str], warnings: list[ConfigWarning]) -> None:
    for gap in missing_variables(spec, environ):
        places = (
            f"in the environment of Switchboard, or in {SECRETS_FILE}: switchboard secret set {gap.variable}"
        )
        message = f"the variable {gap.variable} is not set. Set it {places}"
        warnings.append(ConfigWarning(spec.source, gap.key, message, child=spec.name))
    for odd in unsupported_references(spec):
        message = (
            f"{odd.variable} is not expanded. Write ${{VAR}}, and set VAR in the environment of Switchboard."
        )
        warnings.append(ConfigWarning(spec.source, odd.key, message, child=spec.name))


def _check_suites(config: Config, source: str, result: _Result) -> None:
    for name in config.suites:
        if name in result.children or name in result.mentioned:
            continue
        message = f"there is no child named '{name}'.{did_you_mean(name, result.children)}"
        result.warnings.append(ConfigWarning(source, join_key("suites", name), message))
