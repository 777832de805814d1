"""Finds servers in the config files of hosts. Changes nothing.

Reads the known files of each host and files named on the command line, and applies lists of disabled servers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from switchboard_mcp.config.documents import Unreadable
from switchboard_mcp.setup.dialects import OPEN_FOLDER, ParsedEntry, parse_entry
from switchboard_mcp.setup.edit import formats
from switchboard_mcp.setup.edit.formats import Format
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from switchboard_mcp.setup.hosts import ANY_FILE, HOSTS, SERVERS, ConfigLocation, Host
from switchboard_mcp.setup.journal import read
from switchboard_mcp.setup.paths import HostPaths, candidate_paths, existing_paths, fill, fill_key

# The only host with servers in a YAML list.
_YAML_LIST_HOST = next(
    host for host in HOSTS if any(location.form == "yaml-list" for location in host.locations)
)
# Scopes of files that belong to a project, or whose owner is unknown. All others belong to the user.
PROJECT_SCOPES = ("project", "local", "file")
# Claude Code keeps more than settings in its file; a larger file was named by mistake.
MAX_BYTES = 64 * 1024 * 1024


class ServerMap(Struct, frozen=True, kw_only=True):
    """A map of servers in a file. `data` is the content of the whole file, or None if it does not exist yet."""

    host: Host
    scope: str
    path: str
    form: Format
    key: tuple[str, ...]
    data: bytes | None
    shared: str = ""

    @property
    def text(self) -> str:
        """The text of the whole file."""
        return formats.decode(self.data or b"")

    @property
    def of_user(self) -> bool:
        """True if its servers belong to the user, whichever project is open."""
        return self.scope not in PROJECT_SCOPES


class DiscoveredServer(Struct, frozen=True, kw_only=True):
    """One entry of a file."""

    source: ServerMap
    name: str
    parsed: ParsedEntry


class Discovery(Struct, kw_only=True):
    """The result of the search. `problems` are messages about files that could not be read."""

    sources: list[ServerMap]
    servers: list[DiscoveredServer]
    problems: list[str]


def discover_servers(
    paths: HostPaths, hosts: Sequence[str], files: Sequence[str], *, named: bool, team: bool = False
) -> Discovery:
    """Find the servers in the files of these hosts and in the named files.

    If hosts were `named` explicitly, one without a file gets a location for a new one. With `team`, only files of the
    project are read.
    """
    discovery = Discovery(sources=[], servers=[], problems=[])
    for path in files:
        _read_named_file(os.path.abspath(path), paths, discovery)
    for host in HOSTS:
        if host.name not in hosts:
            continue
        before = len(discovery.sources)
        locations = [location for location in host.locations if not team or location.scope == "project"]
        for location in locations:
            for path in existing_paths(location, paths):
                _read_location(host, location, os.path.realpath(path), paths, discovery)
        if named and len(discovery.sources) == before:
            _add_missing_file(host, locations, paths, discovery)
        if named and all(source.of_user for source in discovery.sources[before:]):
            _add_project_file(host, locations, paths, discovery)
    return discovery


def read_bytes(path: str) -> bytes | Unreadable | None:
    """Return the content of a file, or None if it does not exist."""
    try:
        if os.path.exists(path) and (not os.path.isfile(path) or os.path.getsize(path) > MAX_BYTES):
            return Unreadable("is not a regular file, or it is too large.")
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
    # A server of the user works in the project that is open, not in the one in which `init` runs.
    fields = {**paths.fields, "workspace": OPEN_FOLDER} if source.of_user else paths.fields
    for name, raw in entries.items():
        parsed = parse_entry(source.host, raw, fields)
        if parsed.server is not None and name in disabled:
            parsed = structs.replace(parsed, server=structs.replace(parsed.server, disabled=True))
        discovery.servers.append(DiscoveredServer(source=source, name=name, parsed=parsed))


def _is_server_map(text: str) -> bool:
    """Return True if a document is itself a map of servers."""
    whole = formats.read_servers(text, "json", ())
    return bool(whole) and all(
        isinstance(entry, dict) and ("command" in entry or "url" in entry) for entry in whole.values()
    )


def _disabled_names(source: ServerMap, names: Iterable[str], paths: HostPaths) -> set[str]:
    """Return the names of servers that are disabled outside of their entries."""
    host = source.host
    disabled: set[str] = set()
    for listed in host.disabled:
        key = fill_key(listed.key, paths.fields)
        if key is not None and (not listed.scopes or source.scope in listed.scopes):
            disabled |= _names(_read_value(source, fill(listed.file, paths.fields), key))
    if host.allowlist:
        allowed = _read_value(source, "", host.allowlist)
        disabled |= set(names) - _names(allowed) if isinstance(allowed, list) else set()
    return disabled


def _read_value(source: ServerMap, file: str, key: tuple[str, ...]) -> object:
    """Return the value at a key of a JSON file; of the same file if `file` is empty."""
    data = read_bytes(file) if file else source.data
    if not isinstance(data, bytes):
        return None
    try:
        return formats.read_servers(formats.decode(data), "json", key[:-1]).get(key[-1])
    except UnsafeEditError:
        if not file:
            raise
        return None


def _names(value: object) -> set[str]:
    return {name for name in value if isinstance(name, str)} if isinstance(value, list) else set()


def _add_missing_file(
    host: Host, locations: Sequence[ConfigLocation], paths: HostPaths, discovery: Discovery
) -> None:
    """Add a location for a new file, for a host that was named and has none."""
    for location in locations:
        existing = [path for path in candidate_paths(location, paths) if "*" not in path]
        if paths.platform in location.platforms and existing and location.scope != "local":
            key = (
                fill_key(location.keys[0] if () in location.keys else location.keys[-1], paths.fields)
                or SERVERS
            )
            form = location.form
            discovery.sources.append(
                ServerMap(
                    host=host,
                    scope=location.scope,
                    path=os.path.realpath(existing[0]),
                    form=form,
                    key=key,
                    data=None,
                    shared=location.shared,
                )
            )
            return


def _add_project_file(
    host: Host, locations: Sequence[ConfigLocation], paths: HostPaths, discovery: Discovery
) -> None:
    """Add a location for an entry that holds in this project, for a host that was named: a private one if possible."""
    for location in locations[::-1]:  # the last one is the one that the host would write
        key = fill_key(location.keys[-1], paths.fields)
        candidates = candidate_paths(location, paths)
        if location.scope == "local" and key is not None and candidates:
            path = os.path.realpath(candidates[0])
            data = read_bytes(path)
            if not isinstance(data, Unreadable):
                source = ServerMap(
                    host=host, scope="local", path=path, form=location.form, key=key, data=data
                )
                discovery.sources.append(source)
            return
    _add_missing_file(
        host, [candidate for candidate in locations if candidate.scope == "project"], paths, discovery
    )


def _read_named_file(path: str, paths: HostPaths, discovery: Discovery) -> None:
    real = os.path.realpath(path)
    for host in HOSTS:
        for location in host.locations:
            if real in map(os.path.realpath, existing_paths(location, paths)):
                _read_location(host, location, real, paths, discovery)
    if any(source.path == real for source in discovery.sources):
        return
    data = read_bytes(real)
    if not isinstance(data, bytes):
        reason = data.message if isinstance(data, Unreadable) else "does not exist. Name an existing file."
        discovery.problems.append(f"{path} {reason}")
        return
    try:
        source = guess_source(real, data)
    except UnsafeEditError as problem:
        discovery.problems.append(f"{path} {problem} It is left alone.")
        return
    if source is None:
        discovery.problems.append(f"{path} contains no servers in a known format, such as `mcpServers`.")
    else:
        _add_source(source, paths, discovery)


def guess_source(path: str, data: bytes) -> ServerMap | None:
    """Return the servers in a file whose host is unknown, or None if its format is not recognized."""
    text = formats.decode(data)
    form = formats.guess_format(path)
    candidates = [(SERVERS, ANY_FILE), *((key, host) for host in HOSTS for key in host.guess_keys)]
    for key, owner in candidates:
        if form == "yaml" and len(key) > 1:
            continue
        for dialect in ("yaml-list", "yaml") if form == "yaml" else (form,):
            if _readable_servers(text, dialect, key):
                host = _YAML_LIST_HOST if dialect == "yaml-list" else owner
                return ServerMap(host=host, scope="file", path=path, form=dialect, key=key, data=data)
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
