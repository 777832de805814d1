"""Decides what each host sees after `init`: the servers that it had before, with the limits that it had.

Each host gets a profile, named like the host, that hides the servers of the others. Servers that are added to the
workspace later belong to no host, and all of them see those. Reads and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from switchboard_mcp.setup.dialects import HostServer
from switchboard_mcp.setup.discovery import ServerMap
from switchboard_mcp.setup.hosts import ANY_FILE, BY_NAME

# The profile of the entry in a file of the project that several hosts read.
PROJECT = "project"


class MovedServer(Struct, frozen=True):
    """A server of one file, and the child that it becomes."""

    source: ServerMap
    server: HostServer
    child: str
    profile: str = ""


class HostProfile(Struct, frozen=True):
    """The profile of one host: the children it does not see, and the limits on the subtools of others."""

    name: str
    hide: list[str]
    expose: dict[str, dict[str, list[str]]] = {}

    def settings(self) -> dict[str, object]:
        """Return the members of the profile in the config."""
        members = {"hide": self.hide, "expose": self.expose}
        return {name: value for name, value in members.items() if value}


def profile_name(source: ServerMap, replaces_user: bool = True) -> str:
    """Return the profile of the entry in a file; empty if the host of the file is unknown.

    The host's own profile also shows what the user workspace has for it. An entry that does not replace that of the
    user has another profile, since the host has both.
    """
    if source.host.name == ANY_FILE.name:
        return ""
    if source.shared:
        return PROJECT
    return source.host.name if source.of_user or replaces_user else project_profile(source.host.name)


def project_profile(host: str) -> str:
    """Return the profile of a host's entry that stands beside that of the user."""
    return f"{host}-{PROJECT}"


def is_host_profile(name: str) -> bool:
    """Return True for a name that `init` gives to a profile."""
    return name == PROJECT or name.removesuffix(f"-{PROJECT}") in BY_NAME


def host_profiles(
    moved: Iterable[MovedServer],
    hosts_of: Mapping[str, Sequence[str]],
    hidden_before: Mapping[str, Sequence[str]],
    connected: Iterable[str] = (),
) -> list[HostProfile]:
    """Return the profiles of all hosts from which servers move, and those of earlier runs that change.

    `hosts_of` has the hosts of existing children, `hidden_before` the hidden children of existing profiles.
    `connected` are hosts that get an entry without servers of their own: they see everything.
    """
    seen: dict[str, set[str]] = {}
    expose: dict[str, dict[str, dict[str, list[str]]]] = {}
    children: set[str] = set()
    for outcome in moved:
        children.add(outcome.child)
        name = outcome.profile
        if not name:
            continue
        shown = seen.setdefault(name, set())
        if not outcome.server.disabled:
            shown.add(outcome.child)
            if tools := limits(outcome.server):
                expose.setdefault(name, {})[outcome.child] = tools
    profiles = []
    for name in sorted({*seen, *hidden_before, *connected}):
        # A host without servers of its own was connected by name, so it is meant to see everything.
        others = children | hosts_of.keys() if name in seen else children if name in hidden_before else set()
        own = seen.get(name, set()) | {child for child, hosts in hosts_of.items() if name in hosts}
        hide = sorted({*hidden_before.get(name, ()), *others} - own)
        profiles.append(HostProfile(name, hide, expose.get(name, {})))
    return profiles


def limits(server: HostServer) -> dict[str, list[str]]:
    """Return the allowed and denied tools of a server, as in `expose`."""
    return {name: tools for name, tools in (("allow", server.allow), ("deny", server.deny)) if tools}
