"""API endpoint about the connected sessions: who they are, the tokens they use, and what suites save them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from switchboard_mcp.children.child import Child
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.hosts.traits import HostTraits, traits_of
from switchboard_mcp.server.dashboard.api.routes import ApiRequest
from switchboard_mcp.server.dashboard.state import MAX_SESSIONS, DashboardState
from switchboard_mcp.suites.token_estimate import estimate

# Of JSON, which most of it is.
BYTES_PER_TOKEN = 4
MAX_USED_CHILDREN = 50


class SessionTokens(Struct, frozen=True):
    """Estimated tokens that a session has received: lists of tools, introspections, and results."""

    listed: int
    opened: int
    returned: int


class SessionSavings(Struct, frozen=True, rename="camel"):
    """Estimated tokens that a session has saved.

    The base line is the host without Switchboard: every tool of the same children `listed` in full, or only by
    `name`, if the host is known to search for tools. `tools` is the base line less what was listed and opened,
    `results` what was kept out of the context, `total` both.
    """

    baseline: int
    baseline_is: str
    tools: int
    results: int
    total: int


class SessionRow(Struct, frozen=True, rename="camel", kw_only=True):
    """One session. `title` is the name of a known host, `pid` the process that a stdio host has started."""

    id: str
    client: str
    version: str
    title: str
    transport: str
    pid: int
    principal: str
    profile: str
    protocol: str
    started_at: int
    calls: int
    in_flight: int
    tokens: SessionTokens
    saved: SessionSavings
    children: list[str]


class SharedChild(Struct, frozen=True):
    """A child process that several sessions use. `/api/memory` has the bytes that this saves."""

    id: str
    child: str
    sessions: int


class SessionList(Struct, frozen=True):
    """The oldest sessions, the number of all, and the children that they share."""

    sessions: list[SessionRow]
    total: int
    shared: list[SharedChild]


async def sessions(state: DashboardState, request: ApiRequest) -> SessionList:
    """Return the connected sessions. Those that last for one request are left out."""
    lasting = [session for session in state.gateway.sessions if not session.ephemeral]
    shown = sorted(lasting, key=lambda session: session.identity.opened_at)[:MAX_SESSIONS]
    used = _children_by_session(state)
    baselines: dict[tuple[str, bool], tuple[int, int]] = {}
    rows = [_row(state, session, used.get(session, []), baselines) for session in shown]
    return SessionList(rows, len(lasting), _shared(state))


def _row(
    state: DashboardState,
    session: Session,
    used: list[str],
    baselines: dict[tuple[str, bool], tuple[int, int]],
) -> SessionRow:
    text = state.services.redactor.redact_text
    host = traits_of(session.client, session.client_version)
    tokens = SessionTokens(
        session.listed_bytes // BYTES_PER_TOKEN,
        session.opened_bytes // BYTES_PER_TOKEN,
        max(0, session.answered_bytes - session.opened_bytes) // BYTES_PER_TOKEN,
    )
    return SessionRow(
        id=f"s{session.number}",
        client=text(session.client),
        version=text(session.client_version),
        title=host.title,
        transport=session.transport,
        pid=session.identity.pid,
        principal=session.principal,
        profile=session.profile,
        protocol=session.version,
        started_at=round(session.identity.opened_at * 1000),
        calls=session.sent,
        in_flight=len(session.in_flight),
        tokens=tokens,
        saved=_savings(state, session, host, tokens, baselines),
        children=used[:MAX_USED_CHILDREN],
    )


def _savings(
    state: DashboardState,
    session: Session,
    host: HostTraits,
    tokens: SessionTokens,
    baselines: dict[tuple[str, bool], tuple[int, int]],
) -> SessionSavings:
    is_deferred = host.defers_tools
    key = (session.viewer, is_deferred)
    if key not in baselines:
        suites = state.gateway.view_of(session.viewer).suites.values()
        baselines[key] = _by_name(suites) if is_deferred else (sum(map(_flat, suites)), -1)
    baseline, suite_names = baselines[key]
    if not session.listed_bytes and not session.sent:
        baseline = 0  # it has not used anything yet
    # A host that searches for tools shows its model the names of our tools too, not the list.
    listed = min(tokens.listed, suite_names) if is_deferred else tokens.listed
    tools = baseline - listed - tokens.opened
    results = session.results_saved
    return SessionSavings(baseline, "name" if is_deferred else "listed", tools, results, tools + results)


def _flat(suite: ChildSuite) -> int:
    return suite.cost().weight.flat if suite.child.snapshot is not None else 0


def _by_name(suites: Iterable[ChildSuite]) -> tuple[int, int]:
    """Return the tokens of the names of all tools, and those of the names of the suites."""
    tools = suite_names = 0
    for suite in suites:
        if suite.child.snapshot is not None:
            names = [tool.name for tool in suite.permitted(suite.child.inventory.known_tools())]
            tools += estimate("\n".join(names))
        suite_names += estimate(suite.name)
    return tools, suite_names


def _children_by_session(state: DashboardState) -> dict[Session, list[str]]:
    children: dict[Session, list[str]] = {}
    for id, child in _processes(state):
        for user in child.users:
            if isinstance(user, Session):
                children.setdefault(user, []).append(id)
    return children


def _shared(state: DashboardState) -> list[SharedChild]:
    shared = [
        SharedChild(id, child.name, len(child.users))
        for id, child in _processes(state)
        if len(child.users) > 1
    ]
    return sorted(shared, key=lambda row: -row.sessions)


def _processes(state: DashboardState) -> list[tuple[str, Child]]:
    return [
        (f"{child.name}#{index}" if index else child.name, child)
        for suite in state.gateway.all_suites.values()
        for index, child in enumerate(suite.child.processes() or [suite.child])
    ]
