"""The capabilities that hosts are told of: our own, those of a child that is shown directly, and other extensions.

An extension that Switchboard does not know is announced if hosts can use it: if `ToolListCache.extension_child` is the
child that declares it. Its methods go to that child.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from switchboard_mcp.children.catalog import ServerSnapshot
from switchboard_mcp.config.sections import CHANNEL_CAPABILITY
from switchboard_mcp.protocol import apps, skills, versions
from switchboard_mcp.protocol.client_requests import TASKS
from switchboard_mcp.protocol.jsonrpc import decode_members

# Announced whatever the children have. A host learns capabilities once, while children start, are updated and are added
# to the config later; a list that changes then is only heard of by a host that was told of it. They are true at any
# time: we answer the methods ourselves, if need be with an empty list or completion.
CAPABILITIES: dict[str, dict[str, bool]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
# Capabilities whose meaning differs between protocol version families; True if they are the stateless ones.
VERSION_SPECIFIC = {"tasks": False}
# Where servers declare what the specification does not have.
EXTENDING = ("extensions", "experimental")
# Those that have rules of their own.
KNOWN = frozenset({TASKS, apps.EXTENSION, skills.EXTENSION, CHANNEL_CAPABILITY})


def other_extensions(snapshot: ServerSnapshot | None) -> dict[str, dict[str, Raw]]:
    """Return the extensions of a child that have no rules of their own, by the capability that declares them."""
    found: dict[str, dict[str, Raw]] = {}
    for name in EXTENDING:
        try:
            raw = snapshot.capabilities.get(name) if snapshot is not None else None
            declared = decode_members(raw) if raw is not None else {}
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if own := {key: value for key, value in declared.items() if key not in KNOWN}:
            found[name] = own
    return found


def server_capabilities(direct: ServerSnapshot | None, *, stateless: bool) -> dict[str, object]:
    """Return the capabilities for a host of the given protocol version family, without those of `EXTENDING`.

    `direct` is the only child whose own tools are listed, if there is one: hosts may use what it offers beyond ours.
    """
    if direct is None:
        return dict(CAPABILITIES)
    passed_on = {
        name: value
        for name, value in direct.capabilities.items()
        if name not in EXTENDING
        if name not in VERSION_SPECIFIC
        or (VERSION_SPECIFIC[name] is stateless is versions.is_stateless(direct.protocol))
    }
    return {**passed_on, **CAPABILITIES}
