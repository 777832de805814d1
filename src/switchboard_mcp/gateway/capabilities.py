"""The capabilities that are announced to hosts: our own, those of a child that is shown directly, and other extensions.

An extension that Switchboard does not know is announced if hosts can use it: if `find_extension_child` returns the
child that declares it. Its methods go to that child.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.children.catalog import ServerSnapshot
from switchboard_mcp.config.sections import CHANNEL_CAPABILITY
from switchboard_mcp.protocol import apps, skills, versions
from switchboard_mcp.protocol.client_requests import TASKS
from switchboard_mcp.protocol.jsonrpc import decode_members

if TYPE_CHECKING:
    from switchboard_mcp.gateway.suites.child_suite import ChildSuite

# Announced whatever the children have. A host learns capabilities once, while children start, are updated and are added
# to the config later; only hosts that know the capability handle a list that changes then. They are true at any
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

# Of the names in a report, which are the child's.
MAX_NAMES, MAX_NAME_CHARS = 20, 100


class UnannouncedExtensions(Struct, frozen=True):
    """Extensions of a child that are not announced to hosts, since their methods would not reach it."""

    names: list[str]
    reason: str

    def __str__(self) -> str:
        verb = "extension is" if len(self.names) == 1 else "extensions are"
        return (
            f"{len(self.names)} {verb} not announced to hosts, since {self.reason}: {', '.join(self.names)}"
        )


def other_extensions(snapshot: ServerSnapshot | None) -> dict[str, dict[str, Raw]]:
    """Return the extensions of a child that have no rules of their own, by the capability that declares them."""
    extensions: dict[str, dict[str, Raw]] = {}
    for name in EXTENDING:
        try:
            raw = snapshot.capabilities.get(name) if snapshot is not None else None
            declared = decode_members(raw) if raw is not None else {}
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if own := {key: value for key, value in declared.items() if key not in KNOWN}:
            extensions[name] = own
    return extensions


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


def find_extension_child(suites: Iterable[ChildSuite], *, stateless: bool) -> ChildSuite | None:
    """Return the child of a view that receives methods that MCP does not define, or None.

    It is the only direct child; without one, the only child that declares an extension we do not know, in the host's
    protocol version family. Nothing may restrict it: such a method could be another way to a denied tool.
    """
    suites = list(suites)
    candidate = _only([suite for suite in suites if suite.direct])
    if candidate is None:
        candidate = _only([suite for suite in suites if other_extensions(suite.child.snapshot)])
        if candidate is not None and not is_of_family(candidate, stateless=stateless):
            return None
    return candidate if candidate is not None and not is_restricted(candidate) else None


def unannounced_extensions(suites: Iterable[ChildSuite]) -> dict[str, UnannouncedExtensions]:
    """Return the extensions that are not announced to any host, by child, each with the reason."""
    suites = list(suites)
    declared = {suite.source: other_extensions(suite.child.snapshot) for suite in suites}
    extending = [suite for suite in suites if declared[suite.source]]
    extensions = {}
    for suite in extending:
        stateless = is_of_family(suite, stateless=True)
        if find_extension_child(suites, stateless=stateless) is suite:
            continue
        direct = _only([other for other in suites if other.direct])
        others = [other.source for other in extending if other is not suite]
        if is_restricted(suite):
            reason = "allow and deny lists, or governed mode, restrict this child"
        elif direct is not None and direct is not suite:
            reason = f"their methods go to the direct child '{direct.source}'"
        else:
            reason = (
                f"'{others[0]}' declares extensions too" if others else "their methods have no destination"
            )
        names = [name[:MAX_NAME_CHARS] for members in declared[suite.source].values() for name in members]
        extensions[suite.source] = UnannouncedExtensions(names[:MAX_NAMES], reason)
    return extensions


def is_of_family(suite: ChildSuite, *, stateless: bool) -> bool:
    """Return True if a child is known to have a protocol version of this family."""
    snapshot = suite.child.snapshot
    return snapshot is not None and versions.is_stateless(snapshot.protocol) is stateless


def is_restricted(suite: ChildSuite) -> bool:
    """Return True for a child that only receives what was locked, or what allow and deny lists apply to."""
    return suite.child.inventory.governed or suite.access.restricts


def _only(suites: list[ChildSuite]) -> ChildSuite | None:
    return suites[0] if len(suites) == 1 else None
