"""Looking for servers in the files of the hosts. Changes nothing.

Owns which files are read, what is switched off elsewhere in them, and what host a named file belongs to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, structs

from switchboard_mcp.config.documents import Unreadable
from switchboard_mcp.setup.dialects import EntryReading, read_entry
from switchboard_mcp.setup.edit import formats
from switchboard_mcp.setup.edit.formats import Format
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from switchboard_mcp.setup.hosts import ANY_FILE, HOSTS, SERVERS, ConfigLocation, Host
from switchboard_mcp.setup.journal import read
from switchboard_mcp.setup.paths import Places, candidates, filled, key_of, paths_of

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
    reading: EntryReading


class Discovery(Struct, kw_only=True):
    """Everything that was found. `troubles` are files that could not be read, each with what to do."""

    sources: list[ServerMap]
    findings: list[DiscoveredServer]
    troubles: list[str]


def look(
    here: Places, hosts: Sequence[str], files: Sequence[str], *, named: bool, team: bool = False
) -> Discovery:
    """Look into the files of these hosts, and into files that were named. A host that was `named` may have none yet.

    For a `team`, only files of the project count.
    """
    survey = Discovery(sources=[], findings=[], troubles=[])
    for path in files:
        _look_at_named(os.path.abspath(path), here, survey)
    for host in HOSTS:
        if host.name not in hosts:
            continue
        before = len(survey.sources)
        spots = [spot for spot in host.spots if not team or spot.scope == "project"]
        for spot in spots:
            for path in paths_of(spot, here):
                _look_at(host, spot, os.path.realpath(path), here, survey)
        if named and len(survey.sources) == before:
            _add_absent(host, spots, here, survey)
    return survey


def read_bytes(path: str) -> bytes | Unreadable | None:
    """The content of a file; None where there is none."""
    try:
        if os.path.exists(path) and (not os.path.isfile(path) or os.path.getsize(path) > MAX_BYTES):
            return Unreadable("is no plain file, or too large.")
        return read(path)
    except OSError as problem:
        return Unreadable(f"cannot be read ({problem.strerror}). Check its permissions.")


def _look_at(host: Host, spot: ConfigLocation, path: str, here: Places, survey: Discovery) -> None:
    data = read_bytes(path)
    if data is None:
        return
    if isinstance(data, Unreadable):
        survey.troubles.append(f"{host.title}: {path} {data.message}")
        return
    keys = [key for key in (key_of(key, here.fields) for key in spot.keys) if key is not None]
    if not keys:
        return
    try:
        text = formats.decode(data)
        key = next((key for key in keys if formats.servers(text, spot.form, key)), keys[-1])
        if not key and not _is_bare(text):
            key = keys[0]
        if spot.scope == "local" and not formats.servers(text, spot.form, key):
            return
        _take(
            ServerMap(
                host=host, scope=spot.scope, path=path, form=spot.form, key=key, data=data, shared=spot.shared
            ),
            here,
            survey,
        )
    except UnsafeEditError as problem:
        survey.troubles.append(f"{host.title}: {path} {problem} It is left alone.")


def _take(source: ServerMap, here: Places, survey: Discovery) -> None:
    if any(other.path == source.path and other.key == source.key for other in survey.sources):
        return
    found = formats.servers(source.text, source.form, source.key)
    survey.sources.append(source)
    off = _switched_off(source, found, here)
    for name, raw in found.items():
        reading = read_entry(source.host, raw, here.fields)
        if reading.server is not None and name in off:
            reading = structs.replace(reading, server=structs.replace(reading.server, disabled=True))
        survey.findings.append(DiscoveredServer(source=source, name=name, reading=reading))


def _is_bare(text: str) -> bool:
    """Whether a document is itself a map of servers."""
    whole = formats.servers(text, "json", ())
    return bool(whole) and all(
        isinstance(entry, dict) and ("command" in entry or "url" in entry) for entry in whole.values()
    )


def _switched_off(source: ServerMap, found: Iterable[str], here: Places) -> set[str]:
    """Names that are switched off outside of their entries."""
    if source.host.name == "gemini":
        mcp = formats.servers(source.text, "json", ("mcp",))
        only = mcp.get("allowed")
        beside = set(found) - _names(only) if isinstance(only, list) else set()
        return _names(mcp.get("excluded")) | beside
    return _off_in_claude(source, here) if source.host.name == "claude-code" else set()


def _off_in_claude(source: ServerMap, here: Places) -> set[str]:
    """Servers are switched off by project, in Claude Code's own file and in its settings."""
    off: set[str] = set()
    if source.scope != "project":
        project = formats.servers(source.text, "json", ("projects", here.workspace))
        return _names(project.get("disabledMcpServers"))
    for template in ("{workspace}/.claude/settings.json", "{workspace}/.claude/settings.local.json"):
        data = read_bytes(filled(template, here.fields))
        if isinstance(data, bytes):
            try:
                whole = formats.servers(formats.decode(data), "json", ())
            except UnsafeEditError:
                continue
            off |= _names(whole.get("disabledMcpjsonServers"))
    return off


def _names(value: object) -> set[str]:
    return {name for name in value if isinstance(name, str)} if isinstance(value, list) else set()


def _add_absent(host: Host, spots: Sequence[ConfigLocation], here: Places, survey: Discovery) -> None:
    """A host that was asked for and has no file yet gets one."""
    for spot in spots:
        paths = [path for path in candidates(spot, here) if "*" not in path]
        if here.platform in spot.platforms and paths and spot.scope != "local":
            key = key_of(spot.keys[0] if () in spot.keys else spot.keys[-1], here.fields) or SERVERS
            form = spot.form
            survey.sources.append(
                ServerMap(
                    host=host,
                    scope=spot.scope,
                    path=os.path.realpath(paths[0]),
                    form=form,
                    key=key,
                    data=None,
                )
            )
            return


def _look_at_named(path: str, here: Places, survey: Discovery) -> None:
    real = os.path.realpath(path)
    for host in HOSTS:
        for spot in host.spots:
            if real in map(os.path.realpath, paths_of(spot, here)):
                _look_at(host, spot, real, here, survey)
    if any(source.path == real for source in survey.sources):
        return
    data = read_bytes(real)
    if not isinstance(data, bytes):
        reason = data.message if isinstance(data, Unreadable) else "is not there. Name an existing file."
        survey.troubles.append(f"{path} {reason}")
        return
    try:
        source = guess(real, data)
    except UnsafeEditError as problem:
        survey.troubles.append(f"{path} {problem} It is left alone.")
        return
    if source is None:
        survey.troubles.append(f"{path} holds no servers in a form that is known, such as `mcpServers`.")
    else:
        _take(source, here, survey)


def guess(path: str, data: bytes) -> ServerMap | None:
    """Whose form a file has that no host is known to have."""
    text = formats.decode(data)
    form = formats.format_of(path)
    by_name: Mapping[str, Host] = {host.name: host for host in HOSTS}
    for key, name in _GUESSES:
        if form == "yaml" and len(key) > 1:
            continue
        for each in ("yaml-list", "yaml") if form == "yaml" else (form,):
            found = _servers_or_none(text, each, key)
            if found:
                host = by_name["continue"] if each == "yaml-list" else by_name.get(name, ANY_FILE)
                return ServerMap(host=host, scope="file", path=path, form=each, key=key, data=data)
    if form == "json" and _is_bare(text):
        return ServerMap(host=ANY_FILE, scope="file", path=path, form="json", key=(), data=data)
    return None


def _servers_or_none(text: str, form: Format, key: tuple[str, ...]) -> dict[str, object]:
    try:
        found = formats.servers(text, form, key)
    except UnsafeEditError:
        if form.startswith("yaml"):
            return {}
        raise
    return found if all(isinstance(entry, dict) for entry in found.values()) else {}
