"""Looking for servers in the files of the hosts. Changes nothing.

Owns which files are read, what is switched off elsewhere in them, and what host a named file belongs to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, structs

from switchboard_mcp.config.documents import Unreadable
from switchboard_mcp.setup.dialects import ParsedEntry, parse_entry
from switchboard_mcp.setup.edit import formats
from switchboard_mcp.setup.edit.formats import Format
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from switchboard_mcp.setup.hosts import ANY_FILE, HOSTS, SERVERS, ConfigLocation, Host
from switchboard_mcp.setup.journal import read
from switchboard_mcp.setup.paths import HostPaths, candidate_paths, existing_paths, fill, fill_key

# Where servers stand in a file that nobody is known to have written, and whose form that is.
_GUESSES: tuple[tuple[tuple[str, ...], str], ...] = (
    (SERVERS, ""),
    (("servers",), "vscode"),
    (("context_servers",), "zed"),
    (("mcp_servers",), "codex"),
    (("amp.mcpServers",), "amp"),
    (("extensions",), "goose"),
    (("mcp", "servers"), "opencode"),
    (("mcp",), "opencode"),
)


# Claude Code keeps more in its file than settings; what is larger than this was named by mistake.
MAX_BYTES = 64 * 1024 * 1024


class ServerMap(Struct, frozen=True, kw_only=True):
    """One map of servers in one file. `data` is the whole file as it was read; None where there is none yet."""

    host: Host
    scope: str
    path: str
    form: Format
    key: tuple[str, ...]
    data: bytes | None
    shared: str = ""

    @property
    def text(self) -> str:
        """The whole file."""
        return formats.decode(self.data or b"")


class DiscoveredServer(Struct, frozen=True, kw_only=True):
    """One entry in one file."""

    source: ServerMap
    name: str
    parsed: ParsedEntry


class Discovery(Struct, kw_only=True):
    """Everything that was found. `troubles` are files that could not be read, each with what to do."""

    sources: list[ServerMap]
    servers: list[DiscoveredServer]
    problems: list[str]


def discover_servers(
    paths: HostPaths, hosts: Sequence[str], files: Sequence[str], *, named: bool, team: bool = False
) -> Discovery:
    """Look into the files of these hosts, and into files that were named. A host that was `named` may have none yet.

    For a `team`, only files of the project count.
    """
    discovery = Discovery(sources=[], servers=[], problems=[])
    for path in files:
        _read_named_file(os.path.abspath(path), paths, discovery)
    for host in HOSTS:
        if host.name not in hosts:
            continue
        before = len(discovery.sources)
        spots = [spot for spot in host.locations if not team or spot.scope == "project"]
        for spot in spots:
            for path in existing_paths(spot, paths):
                _read_location(host, spot, os.path.realpath(path), paths, discovery)
        if named and len(discovery.sources) == before:
            _add_missing_file(host, spots, paths, discovery)
    return discovery


def read_bytes(path: str) -> bytes | Unreadable | None:
    """The content of a file; None where there is none."""
    try:
        if os.path.exists(path) and (not os.path.isfile(path) or os.path.getsize(path) > MAX_BYTES):
            return Unreadable("is no plain file, or too large.")
        return read(path)
    except OSError as problem:
        return Unreadable(f"cannot be read ({problem.strerror}). Check its permissions.")


def _read_location(
    host: Host, location: ConfigLocation, path: str, paths: HostPaths, discovery: Discovery
) -> None:
    data = read_bytes(path)
    if data is None:
        return
    if isinstance(data, Unreadable):
        discovery.problems.append(f"{host.title}: {path} {data.message}")
        return
    keys = [key for key in (fill_key(key, paths.fields) for key in location.keys) if key is not None]
    if not keys:
        return
    try:
        text = formats.decode(data)
        key = next((key for key in keys if formats.read_servers(text, location.form, key)), keys[-1])
        if not key and not _is_server_map(text):
            key = keys[0]
        if location.scope == "local" and not formats.read_servers(text, location.form, key):
            return
        _add_source(
            ServerMap(
                host=host,
                scope=location.scope,
                path=path,
                form=location.form,
                key=key,
                data=data,
                shared=location.shared,
            ),
            paths,
            discovery,
        )
    except UnsafeEditError as problem:
        discovery.problems.append(f"{host.title}: {path} {problem} It is left alone.")


def _add_source(source: ServerMap, paths: HostPaths, discovery: Discovery) -> None:
    if any(other.path == source.path and other.key == source.key for other in discovery.sources):
        return
    entries = formats.read_servers(source.text, source.form, source.key)
    discovery.sources.append(source)
    disabled = _disabled_names(source, entries, paths)
    for name, raw in entries.items():
        parsed = parse_entry(source.host, raw, paths.fields)
        if parsed.server is not None and name in disabled:
            parsed = structs.replace(parsed, server=structs.replace(parsed.server, disabled=True))
        discovery.servers.append(DiscoveredServer(source=source, name=name, parsed=parsed))


def _is_server_map(text: str) -> bool:
    """Whether a document is itself a map of servers."""
    whole = formats.read_servers(text, "json", ())
    return bool(whole) and all(
        isinstance(entry, dict) and ("command" in entry or "url" in entry) for entry in whole.values()
    )


def _disabled_names(source: ServerMap, names: Iterable[str], paths: HostPaths) -> set[str]:
    """Names that are switched off outside of their entries."""
    if source.host.name == "gemini":
        mcp = formats.read_servers(source.text, "json", ("mcp",))
        only = mcp.get("allowed")
        beside = set(names) - _names(only) if isinstance(only, list) else set()
        return _names(mcp.get("excluded")) | beside
    return _disabled_in_claude(source, paths) if source.host.name == "claude-code" else set()


def _disabled_in_claude(source: ServerMap, paths: HostPaths) -> set[str]:
    """Servers are switched off by project, in Claude Code's own file and in its settings."""
    disabled: set[str] = set()
    if source.scope != "project":
        project = formats.read_servers(source.text, "json", ("projects", paths.workspace))
        return _names(project.get("disabledMcpServers"))
    for template in ("{workspace}/.claude/settings.json", "{workspace}/.claude/settings.local.json"):
        data = read_bytes(fill(template, paths.fields))
        if isinstance(data, bytes):
            try:
                whole = formats.read_servers(formats.decode(data), "json", ())
            except UnsafeEditError:
                continue
            disabled |= _names(whole.get("disabledMcpjsonServers"))
    return disabled


def _names(value: object) -> set[str]:
    return {name for name in value if isinstance(name, str)} if isinstance(value, list) else set()


def _add_missing_file(
    host: Host, locations: Sequence[ConfigLocation], paths: HostPaths, discovery: Discovery
) -> None:
    """A host that was asked for and has no file yet gets one."""
    for spot in locations:
        existing = [path for path in candidate_paths(spot, paths) if "*" not in path]
        if paths.platform in spot.platforms and existing and spot.scope != "local":
            key = fill_key(spot.keys[0] if () in spot.keys else spot.keys[-1], paths.fields) or SERVERS
            form = spot.form
            discovery.sources.append(
                ServerMap(
                    host=host,
                    scope=spot.scope,
                    path=os.path.realpath(existing[0]),
                    form=form,
                    key=key,
                    data=None,
                )
            )
            return


def _read_named_file(path: str, paths: HostPaths, discovery: Discovery) -> None:
    real = os.path.realpath(path)
    for host in HOSTS:
        for spot in host.locations:
            if real in map(os.path.realpath, existing_paths(spot, paths)):
                _read_location(host, spot, real, paths, discovery)
    if any(source.path == real for source in discovery.sources):
        return
    data = read_bytes(real)
    if not isinstance(data, bytes):
        reason = data.message if isinstance(data, Unreadable) else "is not there. Name an existing file."
        discovery.problems.append(f"{path} {reason}")
        return
    try:
        source = guess_source(real, data)
    except UnsafeEditError as problem:
        discovery.problems.append(f"{path} {problem} It is left alone.")
        return
    if source is None:
        discovery.problems.append(f"{path} holds no servers in a form that is known, such as `mcpServers`.")
    else:
        _add_source(source, paths, discovery)


def guess_source(path: str, data: bytes) -> ServerMap | None:
    """Whose form a file has that no host is known to have."""
    text = formats.decode(data)
    form = formats.guess_format(path)
    by_name: Mapping[str, Host] = {host.name: host for host in HOSTS}
    for key, name in _GUESSES:
        if form == "yaml" and len(key) > 1:
            continue
        for each in ("yaml-list", "yaml") if form == "yaml" else (form,):
            entries = _readable_servers(text, each, key)
            if entries:
                host = by_name["continue"] if each == "yaml-list" else by_name.get(name, ANY_FILE)
                return ServerMap(host=host, scope="file", path=path, form=each, key=key, data=data)
    if form == "json" and _is_server_map(text):
        return ServerMap(host=ANY_FILE, scope="file", path=path, form="json", key=(), data=data)
    return None


def _readable_servers(text: str, form: Format, key: tuple[str, ...]) -> dict[str, object]:
    try:
        entries = formats.read_servers(text, form, key)
    except UnsafeEditError:
        if form.startswith("yaml"):
            return {}
        raise
    return entries if all(isinstance(entry, dict) for entry in entries.values()) else {}
