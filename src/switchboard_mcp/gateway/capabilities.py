"""The capabilities that hosts are told of: our own, and those of a child that is shown directly."""

from __future__ import annotations

from switchboard_mcp.children.catalog import ServerSnapshot
from switchboard_mcp.protocol import versions

CAPABILITIES: dict[str, dict[str, bool]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
# Capabilities whose meaning differs between protocol version families; True if they are the stateless ones.
VERSION_SPECIFIC = {"tasks": False, "extensions": True}


def server_capabilities(direct: ServerSnapshot | None, *, stateless: bool) -> dict[str, object]:
    """Return the capabilities for a host of the given protocol version family.

    `direct` is the only child whose own tools are listed, if there is one: hosts may use what it offers beyond ours.
    """
    if direct is None:
        return dict(CAPABILITIES)
    passed_on = {
        name: value
        for name, value in direct.capabilities.items()
        if name not in VERSION_SPECIFIC
        or (VERSION_SPECIFIC[name] is stateless is versions.is_stateless(direct.protocol))
    }
    return {**passed_on, **CAPABILITIES}
