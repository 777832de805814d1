"""How the children are: what `GET /status` answers and `switchboard status` shows.

Owns the shape, and how a running front is asked for it. Looks only: nothing is started for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from http.client import HTTPConnection, HTTPException

import msgspec
from msgspec import UNSET, Struct, UnsetType

from switchboard_mcp.children.child import Child
from switchboard_mcp.core.lifecycle import Health
from switchboard_mcp.edge import auth
from switchboard_mcp.edge.server_info import ASK_WITHIN_S, ServerInfo
from switchboard_mcp.gateway.childsuite import ChildSuite

PATH = "/status"
MOST_ANSWER_BYTES = 16 * 1024 * 1024
ILL = frozenset({Health.UNHEALTHY.value, Health.QUARANTINED.value})


class Problem(Struct, frozen=True):
    """What went wrong last."""

    code: str
    message: str


class ChildStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One child, or one of its processes where each host has its own. `subtools` is unset while nobody knows them."""

    suite: str
    child: str
    kind: str
    state: str
    health: str
    pid: int = 0
    under_way: int = 0
    subtools: int | UnsetType = UNSET
    failures: int = 0
    retry_after_ms: int = 0
    last_failure: Problem | UnsetType = UNSET

    @property
    def is_ill(self) -> bool:
        """Whether calls to it are refused."""
        return self.health in ILL


class Status(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a running Switchboard says of itself."""

    version: str
    pid: int
    uptime_seconds: int
    sessions: int
    children: list[ChildStatus]


def children(suites: Iterable[ChildSuite]) -> list[ChildStatus]:
    """Every child of these suites."""
    return [_of(suite, child) for suite in suites for child in suite.child.each() or [suite.child]]


def _of(suite: ChildSuite, child: Child) -> ChildStatus:
    health = child.health  # first, since it may change the state
    known = child.knowledge is not None
    last = child.last_failure if child.failures or health.value in ILL else None
    shown = child.hide(last) if last is not None else None
    return ChildStatus(
        suite=suite.name,
        child=child.name,
        kind=child.spec.kind,
        state=child.state.value,
        health=health.value,
        pid=child.pid,
        under_way=len(child.peer.pending) if child.peer is not None else 0,
        subtools=len(suite.permitted(child.offer.known_tools())) if known else UNSET,
        failures=child.failures,
        retry_after_ms=child.retry_after_ms,
        last_failure=Problem(shown.code, shown.message) if shown is not None else UNSET,
    )


def ask(info: ServerInfo, folder: str) -> Status | str:
    """What the front that serves a workspace says; or why it does not."""
    try:
        with open(os.path.join(folder, auth.FILE), encoding="ascii") as file:
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as problem:
        return f"its token cannot be read: {problem}"
    connection = HTTPConnection(info.host, info.port, timeout=ASK_WITHIN_S)
    try:
        connection.request("GET", PATH, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        if response.status != 200:
            return f"it answers with HTTP {response.status}"
        return msgspec.json.decode(response.read(MOST_ANSWER_BYTES), type=Status)
    except (OSError, HTTPException, msgspec.DecodeError, UnicodeDecodeError, ValueError) as problem:
        return str(problem) or type(problem).__name__
    finally:
        connection.close()
