"""Measures the memory of a server with its children, and how much the sharing of children saves."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from switchboard_mcp.gateway.status import ChildUse, SessionStatus
from switchboard_mcp.system.processes import tree_memory


class MemoryReport(Struct, frozen=True, kw_only=True):
    """Memory in bytes: `total` of the server, its children and the processes that wait for sessions (PSS).

    `saved` is how much more would be needed if each session had a process of its own of every child that it has used.
    It counts what such a process would not share with the first one, and leaves out that each session would have a
    Switchboard of its own. `children` has the memory of each child process by its id, `shared` what sharing it saves.
    """

    total: int
    saved: int
    children: dict[str, int]
    shared: dict[str, int] = {}


def measure_memory(pid: int, sessions: Sequence[SessionStatus], children: Sequence[ChildUse]) -> MemoryReport:
    """Measure a server with its children and sessions. Takes some milliseconds per process."""
    total = tree_memory(pid).pss + sum(tree_memory(session.pid).pss for session in sessions if session.pid)
    by_child: dict[str, int] = {}
    shared: dict[str, int] = {}
    for child in children:
        if child.pid:
            use = tree_memory(child.pid)
            by_child[child.id] = use.pss
            if child.user_count > 1:
                shared[child.id] = use.own * (child.user_count - 1)
    return MemoryReport(total=total, saved=sum(shared.values()), children=by_child, shared=shared)
