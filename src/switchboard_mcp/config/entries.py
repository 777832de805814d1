"""Reads one child entry, in any of the supported formats, into a `ChildSpec`.

Problems become warnings; the child is then skipped, or kept if it can still work. An entry that lacks its `command` or
`url` is kept too, so hosts see it and a call says what is missing. Not aware of where entries come from.
"""

from __future__ import annotations

import os
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard_mcp.config.documents import find_mistakes, join_key, unknown_key_message
from switchboard_mcp.config.models import ChildEntry, ChildSpec, CommandSpec, ConfigWarning, Setting
from switchboard_mcp.config.variables import expandable_strings, joined_strings

Kind = Literal["stdio", "http", "sse", "ws"]
KINDS: dict[str, Kind] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "remote": "http",
    "sse": "sse",
    "ws": "ws",
    "websocket": "ws",
}
KNOWN_KEYS = frozenset(ChildEntry.__struct_encode_fields__)
COMMAND_KEYS = frozenset(CommandSpec.__struct_encode_fields__)
# Keys that hosts read from the same entries. They have no effect here, and an entry moved from a host must not warn.
HOST_KEYS = frozenset(
    """
    $schema alwaysAllow alwaysLoad auth authProviderType autoApprove available_tools bundled deferTools dev
    disableToolCache disabledTools disabled_tools discoveryCache displayName display_name enabled_tools
    excludeTools filterMapping gallery headersHelper icon includeTools metadata oauthClient oauthClientId
    oauthGrantType oauthPublicClient oidc permissions remoteConfigured required role sandboxEnabled source
    startup_timeout_ms startup_timeout_sec targetAudience targetServiceAccount timeout toolPermissions
    tool_timeout_sec tools trust version
    """.split()
)


class EntryLocation(Struct, frozen=True):
    """The location of an entry: file, key path in it, and the folder that relative paths start from."""

    source: str
    key: str
    folder: str


def read_entry(
    raw: object,
    location: EntryLocation,
    warnings: list[ConfigWarning],
    *,
    name: str | None = None,
    fallback: str = "",
) -> ChildSpec | None:
    """Return the child in `raw`, or None if it is skipped; the reason is added to `warnings`.

    A disabled child is returned with `disabled` set.

    `name` overrides the name in the entry, as the key in a map does; `fallback` is used if the entry has no name.
    """
    try:
        entry = msgspec.convert(_with_command(raw), ChildEntry)
    except msgspec.ValidationError as problem:
        _warn_invalid(raw, location, str(problem), warnings)
        return None
    if name is None:
        name = fallback if entry.name is None else entry.name
    if entry.disabled or not entry.enabled:
        # It may be disabled because something is wrong with it, so nothing is reported.
        off = _build_spec(entry, name.strip(), location, [])
        return replace(off, disabled=True) if off is not None and off.name else None
    spec = _build_spec(entry, name.strip(), location, warnings)
    if spec is None or not _is_valid(spec, location, warnings):
        return None
    missing = _find_missing(spec, location)
    if missing is not None:
        spec = replace(spec, incomplete=str(missing))
        warnings.append(replace(missing, message=f"{missing.message} Until then its calls fail."))
    _warn_unknown_keys(raw, location, warnings)
    _warn_likely_mistakes(spec, location, warnings)
    return spec


def _with_command(raw: object) -> object:
    """Return the entry with an empty `cmd` if its `command` object has none: that is incomplete, not invalid."""
    if isinstance(raw, dict) and isinstance(command := raw.get("command"), dict) and "cmd" not in command:
        return {**raw, "command": {**command, "cmd": ""}}
    return raw


def _warn_invalid(raw: object, location: EntryLocation, reason: str, warnings: list[ConfigWarning]) -> None:
    mistakes = [(mistake.key, mistake.message) for mistake in find_mistakes(raw, ChildEntry)] or [
        ("", reason)
    ]
    for key, message in mistakes:
        path = ".".join(part for part in (location.key, key) if part)
        warnings.append(_warning(location, path, f"{message} The child is skipped until this is corrected."))


def _build_spec(
    entry: ChildEntry, name: str, location: EntryLocation, warnings: list[ConfigWarning]
) -> ChildSpec | None:
    kind = _transport_kind(entry, location, warnings)
    if kind is None:
        return None
    command = entry.command
    nested = isinstance(command, CommandSpec)
    if isinstance(command, CommandSpec):
        program, args, env = command.cmd, command.args or entry.args, {**entry.env, **command.env}
    else:
        program, args, env = command or "", entry.args, entry.env
    return ChildSpec(
        name=name,
        source=location.source,
        key=location.key,
        kind=kind,
        command=program.strip(),
        args=args,
        env={key: _as_text(value) for key, value in env.items() if value is not None},
        url=entry.url.strip(),
        headers=entry.headers,
        oauth=entry.oauth,
        cwd=os.path.normpath(os.path.join(location.folder, entry.cwd)) if entry.cwd else location.folder,
        description=entry.description,
        switchboard_description=entry.switchboard_description,
        rpc_timeout_ms=entry.rpc_timeout_ms,
        nested=nested,
        # Only `wrap` writes these: a program, in a file of its own. Nothing else is treated as a wrapper.
        wraps=entry.wraps if kind == "stdio" and not location.key else "",
    )


def _transport_kind(entry: ChildEntry, location: EntryLocation, warnings: list[ConfigWarning]) -> Kind | None:
    if entry.type:
        kind = KINDS.get(entry.type)
        if kind is None:
            message = "unknown type; use stdio, http, sse or ws. The child is skipped."
            warnings.append(_warning(location, join_key(location.key, "type"), message))
        return kind
    if entry.command:
        return "stdio"
    if entry.url.startswith(("ws://", "wss://")):
        return "ws"
    # Servers with the older HTTP+SSE transport use this path, and hosts rely on it too.
    older = entry.url.partition("?")[0].rstrip("/").endswith("/sse")
    return "sse" if older else "http" if entry.url else "stdio"


def _find_missing(spec: ChildSpec, location: EntryLocation) -> ConfigWarning | None:
    """Return what the entry lacks to be started, or None if it is complete."""
    if spec.kind == "stdio" and not spec.command:
        what = "is missing" if spec.url else "and `url` are both missing"
        return _warning(
            location,
            next(expandable_strings(spec))[0],
            f"`command` {what}; name the program that starts the child.",
        )
    if spec.kind != "stdio" and not spec.url:
        return _warning(
            location,
            join_key(location.key, "url"),
            f"`url` is missing; a child of type {spec.kind} needs it.",
        )
    return None


def _is_valid(spec: ChildSpec, location: EntryLocation, warnings: list[ConfigWarning]) -> bool:
    if not spec.name:
        key, message = location.key or "name", "the name is empty. Give the child a name; it is skipped."
    else:
        # No operating system accepts these; checked here, the message can name the key.
        broken = (
            [key for key, text in expandable_strings(spec) if "\0" in text]
            if "\0" in joined_strings(spec)
            else []
        )
        broken += [
            join_key(join_key(location.key, "env"), name)
            for name in spec.env
            if not name or set(name) & {"=", "\0"}
        ]
        if not broken:
            return True
        key, message = (
            broken[0],
            "contains a NUL character, or is not a valid variable name. The child is skipped.",
        )
    warnings.append(_warning(location, key, message))
    return False


def _warn_unknown_keys(raw: object, location: EntryLocation, warnings: list[ConfigWarning]) -> None:
    if not isinstance(raw, dict):
        return
    _warn_unknown(raw, location.key, KNOWN_KEYS, location, warnings)
    if isinstance(command := raw.get("command"), dict):
        _warn_unknown(command, join_key(location.key, "command"), COMMAND_KEYS, location, warnings)


def _warn_unknown(
    raw: dict[str, object],
    path: str,
    known: frozenset[str],
    location: EntryLocation,
    warnings: list[ConfigWarning],
) -> None:
    if raw.keys() <= known:
        return
    unknown = [key for key in raw if key not in known and key not in HOST_KEYS]
    if not unknown:
        return
    warnings.extend(
        _warning(location, join_key(path, key), f"{unknown_key_message(key, known)} It is ignored.")
        for key in unknown
    )


def _warn_likely_mistakes(spec: ChildSpec, location: EntryLocation, warnings: list[ConfigWarning]) -> None:
    """Warn about settings that will probably fail later. The child is kept."""
    if spec.kind == "stdio" and spec.url:
        message = "ignored because `command` is set. Keep one of the two, or set `type`."
        warnings.append(_warning(location, join_key(location.key, "url"), message))
    first, space, _ = spec.command.partition(" ")
    if space and not spec.args and "/" not in first and "\\" not in first:
        message = "looks like a program with its arguments. Move the arguments to `args`."
        warnings.append(_warning(location, next(expandable_strings(spec))[0], message))


def _as_text(value: Setting) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _warning(location: EntryLocation, key: str, message: str) -> ConfigWarning:
    return ConfigWarning(location.source, key, message)
