"""Parses the server entries of all hosts into one form, and renders the entry for Switchboard.

Knows the dialects: key names, nested forms, units. An entry that cannot be moved gets a reason. Not aware of files;
what is special about a single host is in `hosts`.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from switchboard_mcp.config.discover import WORKSPACE_FOLDER
from switchboard_mcp.config.entries import KINDS
from switchboard_mcp.setup.hosts import Host
from switchboard_mcp.setup.variable_syntax import UntranslatableError, translate

Kind = Literal["stdio", "http", "sse", "ws"]
ENTRY_NAME = "switchboard"
# VS Code, Cursor and Switchboard replace this with the open folder.
OPEN_FOLDER = f"${{{WORKSPACE_FOLDER}}}"
# Features that only the host provides; without them, the server would behave differently.
_HOST_ONLY = {
    "envFile": "takes variables from `envFile`, which only this host reads",
    "headersHelper": "takes headers from a program (`headersHelper`)",
    "http_headers_helper": "takes headers from a program (`http_headers_helper`)",
    "authProviderType": "uses a login of the host (`authProviderType`)",
    "sandboxEnabled": "runs in the host's own sandbox",
    "remoteConfigured": "is managed remotely",
}
_APPROVALS = ("autoApprove", "alwaysAllow", "trust", "default_tools_approval_mode", "toolPermissions")
_ALLOWED = ("includeTools", "enabled_tools", "available_tools")
_DENIED = ("excludeTools", "disabled_tools", "disabledTools")


class HostServer(Struct, frozen=True, kw_only=True):
    """A server in a form that does not depend on the host. `cwd` is empty or absolute."""

    kind: Kind
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    oauth: object = None
    cwd: str = ""
    allow: list[str] = []
    deny: list[str] = []
    disabled: bool = False
    timeout_ms: int | None = None
    description: str = ""

    @property
    def launch_key(self) -> object:
        """Return the parts that must be equal for two entries to run the same server."""
        return (
            self.kind, self.command, self.args, sorted(self.env.items()), self.url, sorted(self.headers.items()),
            self.cwd,
        )  # fmt: skip

    @property
    def merge_key(self) -> object:
        """Return the parts that must be equal for two entries to be one child if all hosts see the same."""
        return (self.launch_key, sorted(self.allow), sorted(self.deny))


class ParsedEntry(Struct, frozen=True, kw_only=True):
    """A parsed entry: a server, or the reason why it cannot be moved.

    `forwarded` are variables that the host passes to the server.
    """

    server: HostServer | None = None
    skip_reason: str = ""
    # If the entry is Switchboard itself: the folder it serves, or `.` for the folder it is started in.
    serves_folder: str = ""
    notes: list[str] = []
    forwarded: list[str] = []


class NotMovableError(Exception):
    """An entry cannot be moved; the message is the reason."""


def parse_entry(host: Host, raw: object, fields: Mapping[str, str]) -> ParsedEntry:
    """Parse an entry of a host."""
    if not isinstance(raw, dict):
        return ParsedEntry(skip_reason="it is not a valid entry")
    try:
        entry = _flattened(raw)
        if folder := served_folder(entry):
            return ParsedEntry(serves_folder=folder, skip_reason="it is Switchboard")
        _require_movable(host, entry)
        return _parse(host, entry, fields)
    except (NotMovableError, UntranslatableError) as problem:
        return ParsedEntry(skip_reason=str(problem))


def served_folder(entry: Mapping[str, object]) -> str:
    """Return the folder that an entry for Switchboard serves; empty if the entry is another server."""
    words = [*_strings(entry.get("command") or entry.get("cmd")), *_strings(entry.get("args"))]
    ours = any(
        os.path.basename(word.replace("\\", "/")) in ("switchboard", "switchboard.exe")
        or word == "switchboard_mcp"
        for word in words[:4]
    )
    if not ours:
        return ""
    named = [after for word, after in itertools.pairwise(words) if word == "--workspace"]
    return os.path.normpath(named[0]) if named and named[0] != OPEN_FOLDER else "."


def _flattened(raw: Mapping[str, object]) -> dict[str, object]:
    """Flatten nested forms: `transport: {…}` of Cline, `command: {path, args, env}` of older Zed and our own."""
    entry = dict(raw)
    for key in ("transport", "command"):
        inner = entry.get(key)
        if isinstance(inner, dict):
            del entry[key]
            entry = {**inner, **entry}
            entry.setdefault("command", inner.get("path") or inner.get("cmd"))
    return entry


def _require_movable(host: Host, entry: Mapping[str, object]) -> None:
    for key, reason in _HOST_ONLY.items():
        if entry.get(key):
            raise NotMovableError(reason)
    if host.immovable_reason is not None and (reason := host.immovable_reason(entry)):
        raise NotMovableError(reason)
    if entry.get("environment_id") or entry.get("source") == "extension":
        raise NotMovableError("it is managed by the host")


def _parse(host: Host, entry: Mapping[str, object], fields: Mapping[str, str]) -> ParsedEntry:
    def expand(value: object) -> str:
        return translate(_text(value), host.syntax, fields)

    command_line = _strings(entry.get("command") or entry.get("cmd"))
    url = expand(next((entry[key] for key in ("httpUrl", "url", "serverUrl", "uri") if entry.get(key)), ""))
    if not command_line and not url:
        raise NotMovableError("it has neither a command nor a URL")
    if url and not url.startswith(("http://", "https://", "ws://", "wss://", "${")):
        raise NotMovableError("its URL is of a kind that only this host supports")
    notes: list[str] = []
    kind = _kind(host, entry, url, bool(command_line))
    forwarded = _forwarded_variables(entry.get("env_vars"))
    headers = {name: expand(value) for name, value in _headers(entry).items()} | _env_headers(entry)
    folder = expand(entry.get("cwd") or entry.get("working_directory") or "")
    if entry.get("oauth") and isinstance(entry["oauth"], dict):
        notes.append("it has a registered OAuth client (`oauth`)")
    if any(entry.get(key) for key in _APPROVALS):
        notes.append("its approvals no longer apply: the host will ask again for Switchboard's tools")
    command = expand(command_line[0]) if command_line else ""
    server = HostServer(
        kind=kind,
        command=command,
        args=[expand(word) for word in (*command_line[1:], *_strings(entry.get("args")))],
        env={
            name: expand(value)
            for name, value in _map(entry.get("env") or entry.get("environment") or entry.get("envs")).items()
            if value is not None
        },
        url="" if kind == "stdio" else url,
        headers={} if kind == "stdio" else headers,
        oauth=_oauth(entry.get("oauth"), expand),
        cwd=_absolute_folder(folder, fields["workspace"]),
        allow=_tools(host, entry),
        deny=sorted({name for key in _DENIED for name in _strings(entry.get(key))}),
        disabled=entry.get("disabled") is True or entry.get("enabled") is False,
        timeout_ms=_timeout(host, entry),
        description=_text(entry.get("description") or ""),
    )
    return ParsedEntry(server=server, notes=notes, forwarded=forwarded)


def _kind(host: Host, entry: Mapping[str, object], url: str, has_program: bool) -> Kind:
    declared = _text(entry.get("type") or "")
    if has_program:
        return "stdio"
    if entry.get("httpUrl"):
        return "http"
    # opencode's `remote` does not say which transport; the URL decides.
    if declared in KINDS and KINDS[declared] != "stdio" and declared != "remote":
        return KINDS[declared]
    if host.remote_kind:
        return host.remote_kind
    if url.startswith("ws"):
        return "ws"
    return "sse" if url.partition("?")[0].rstrip("/").endswith("/sse") else "http"


def _headers(entry: Mapping[str, object]) -> dict[str, str]:
    options = entry.get("requestOptions")
    raw = _map(entry.get("headers")) | _map(entry.get("http_headers"))
    if isinstance(options, dict):
        raw |= _map(options.get("headers"))
    headers = {name: _text(value) for name, value in raw.items() if value is not None}
    if key := entry.get("apiKey"):
        headers.setdefault("Authorization", f"Bearer {_text(key)}")
    return headers


def _env_headers(entry: Mapping[str, object]) -> dict[str, str]:
    """Return the headers that Codex fills from variables, with keys of their own."""
    headers = {name: f"${{{variable}}}" for name, variable in _map(entry.get("env_http_headers")).items()}
    if variable := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    return headers


def _oauth(value: object, expand: Callable[[object], str]) -> object:
    """Return a pre-registered OAuth client in our own format."""
    if value is False:
        return False
    if not isinstance(value, dict):
        return None
    client = {
        "clientId": value.get("clientId") or value.get("client_id") or value.get("CLIENT_ID"),
        "clientSecret": value.get("clientSecret") or value.get("client_secret") or value.get("CLIENT_SECRET"),
        "callbackPort": value.get("callbackPort") or value.get("callback_port"),
    }
    settings = {
        name: item if isinstance(item, int) else expand(item) for name, item in client.items() if item
    }
    return settings or None


def _tools(host: Host, entry: Mapping[str, object]) -> list[str]:
    allowed = {name for key in _ALLOWED for name in _strings(entry.get(key))}
    if host.tools_key:
        allowed |= set(_strings(entry.get(host.tools_key))) - {"*"}
    return sorted(allowed)


def _timeout(host: Host, entry: Mapping[str, object]) -> int | None:
    timeout = host.call_timeout
    if timeout is None:
        return None
    value = entry.get(timeout.key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    return int(value * timeout.unit_ms)


def _forwarded_variables(value: object) -> list[str]:
    """Return the variables that Codex passes to the server."""
    names = value if isinstance(value, list) else []
    variables = [name.get("name") if isinstance(name, dict) else name for name in names]
    return [name for name in variables if isinstance(name, str)]


def _absolute_folder(folder: str, workspace: str) -> str:
    if not folder or folder.startswith(("/", "~", "${")) or re.match(r"[A-Za-z]:", folder):
        return folder
    return os.path.normpath(os.path.join(workspace, folder))


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    return [_text(word) for word in value] if isinstance(value, list) else []


def _map(value: object) -> dict[str, object]:
    return {str(name): item for name, item in value.items()} if isinstance(value, dict) else {}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def portable_command(host: Host) -> list[str]:
    """Return a command line that works on every machine: the program by name, serving the open project."""
    return ["switchboard", *(["--workspace", OPEN_FOLDER] if host.starts_elsewhere else [])]
