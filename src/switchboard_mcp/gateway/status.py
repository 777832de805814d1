"""Status of the children, as shown by `GET /status`, `switchboard status` and the switchboard suite. Starts nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from switchboard_mcp.children.child import Child
from switchboard_mcp.children.lifecycle import Health
from switchboard_mcp.gateway.capabilities import UnannouncedExtensions, unannounced_extensions
from switchboard_mcp.gateway.session import Session
from switchboard_mcp.gateway.suites.child_suite import ChildSuite
from switchboard_mcp.suites.results.counts import ResultCounts

if TYPE_CHECKING:
    from switchboard_mcp.observability.timeline import ChildTimeline

NO_TIMELINES: Mapping[str, ChildTimeline] = {}
SHOWN_REFUSALS = 5
# A server may have thousands of sessions; more names than this would not be read.
MAX_USERS = 50
UNAVAILABLE = frozenset({Health.UNHEALTHY.value, Health.QUARANTINED.value})


class LastProblem(Struct, frozen=True):
    """The last failure of a child."""

    code: str
    message: str


class SandboxRefusal(Struct, frozen=True, rename="camel"):
    """Something that a sandbox has refused, with the setting that would allow it, and how often."""

    message: str
    count: int


class SessionStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """One session. `client` is the name of the host program; `started_at` is in milliseconds since the epoch.

    `pid` is the process that the host has started; 0 if it is a client over HTTP.
    """

    client: str
    version: str = ""
    pid: int = 0
    profile: str = ""
    started_at: int
    calls: int = 0
    """Requests that were sent to children."""
    in_flight: int = 0


def session_statuses(sessions: Iterable[Session]) -> list[SessionStatus]:
    """Return the status of the sessions, oldest first. Those that last for one request are left out."""
    return [
        SessionStatus(
            client=session.client,
            version=session.client_version,
            pid=session.identity.pid,
            profile=session.profile,
            started_at=round(session.identity.opened_at * 1000),
            calls=session.sent,
            in_flight=len(session.in_flight),
        )
        for session in sorted(sessions, key=lambda session: session.identity.opened_at)
        if not session.ephemeral
    ]


class ChildStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Status of one child, or of one of its processes if each host has its own. `subtools` is unset until they are
    known.
    """

    suite: str
    child: str
    kind: str
    state: str
    health: str
    started: bool = False
    known: bool = False
    pid: int = 0
    calls: int = 0
    errors: int = 0
    """Failed calls; `p50` and `p95` are milliseconds of recent calls. Counted by servers only."""
    p50: float | UnsetType = UNSET
    p95: float | UnsetType = UNSET
    in_flight: int = 0
    under_way: int = 0
    """The former name of `inFlight`, removed in the next release."""
    subtools: int | UnsetType = UNSET
    tokens_saved: int = 0
    """Tokens saved: all tools listed directly, less the suite tool, and less an introspection if there was one."""
    results: ResultCounts | UnsetType = UNSET
    """Tokens of results that were kept out of the context, and those of reading on; of this server."""
    failures: int = 0
    retry_after_ms: int = 0
    last_failure: LastProblem | UnsetType = UNSET
    sandbox: str = ""
    """The preset of its sandbox; empty if it has none. `sandboxBroken` names the promises that do not hold here, once
    the child has started; `sandboxDenied` counts what the sandbox has refused; `sandboxRefusals` are the newest."""
    sandbox_broken: list[str] = []
    sandbox_denied: int = 0
    sandbox_refusals: list[SandboxRefusal] = []
    extensions_not_announced: UnannouncedExtensions | UnsetType = UNSET
    """Extensions that are not announced to hosts. Not shown to hosts: the names are the child's."""

    @property
    def is_unavailable(self) -> bool:
        """True if calls to it are refused."""
        return self.health in UNAVAILABLE


class ChildUse(ChildStatus, frozen=True, kw_only=True, rename="camel"):
    """Status of one child, or of one of its processes, with the sessions that use it. Only for the user."""

    id: str
    """Its name, and a number if the child has several processes."""
    per_session: bool = False
    """True if each session has its own process."""
    users: list[SessionStatus] = []
    """Some of the connected sessions that have used it; `userCount` counts all."""
    user_count: int = 0


def child_uses(
    suites: Iterable[ChildSuite],
    timelines: Mapping[str, ChildTimeline] = NO_TIMELINES,
    hidden: Mapping[str, UnannouncedExtensions] | None = None,
) -> list[ChildUse]:
    """Return the status of every child of these suites, and the connected sessions that have used it."""
    suites = list(suites)
    hidden = unannounced_extensions(suites) if hidden is None else hidden
    uses = []
    for suite in suites:
        processes = suite.child.processes() or [suite.child]
        statuses = child_statuses([suite], timelines=timelines, hidden=hidden)
        for index, (child, status) in enumerate(zip(processes, statuses, strict=True)):
            users = [user for user in islice(child.users, MAX_USERS) if isinstance(user, Session)]
            uses.append(
                ChildUse(
                    **asdict(status),
                    id=f"{child.name}#{index}" if index else child.name,
                    per_session=suite.child.per_session,
                    users=session_statuses(users),
                    user_count=len(child.users),
                )
            )
    return uses


def child_statuses(
    suites: Iterable[ChildSuite],
    is_own: Callable[[object], bool] | None = None,
    timelines: Mapping[str, ChildTimeline] = NO_TIMELINES,
    hidden: Mapping[str, UnannouncedExtensions] | None = None,
) -> list[ChildStatus]:
    """Return the status of every child of these suites.

    For a host, `is_own` tells its own processes from those that are kept for others, which are left out, and so is what
    a shared one was refused. A child's call statistics are reported with its first process, and so are the `hidden`
    extensions, to the user alone.
    """
    suites = list(suites)
    if hidden is None:
        hidden = unannounced_extensions(suites) if is_own is None else {}
    statuses = []
    for suite in suites:
        processes = _processes(suite, is_own) or [suite.child]
        timeline = timelines.get(suite.source)
        first = _status_of(suite, processes[0], timeline)
        if timeline is not None and len(processes) == 1 and timeline.calls > first.calls:
            # A child that was rebuilt for a new config has lost its earlier count.
            first = replace(first, calls=timeline.calls)
        if suite.source in hidden:
            first = replace(first, extensions_not_announced=hidden[suite.source])
        found = [first, *(_status_of(suite, child) for child in processes[1:])]
        if is_own is not None:
            pairs = zip(found, processes, strict=True)
            found = [
                replace(status, sandbox_refusals=[]) if child.was_shared else status
                for status, child in pairs
            ]
        statuses += found
    return statuses


def _processes(suite: ChildSuite, is_own: Callable[[object], bool] | None) -> list[Child]:
    processes = suite.child.processes()
    if is_own is None:
        return processes
    return [child for child in processes if child.is_shared or is_own(child.owner)]


def _status_of(suite: ChildSuite, child: Child, timeline: ChildTimeline | None = None) -> ChildStatus:
    health = child.health  # first, since it may change the state
    has_snapshot = child.snapshot is not None
    last = child.last_failure if child.failures or health.value in UNAVAILABLE else None
    redacted = child.redact(last) if last is not None else None
    in_flight = len(child.peer.pending) if child.peer is not None else 0
    sandbox = child.connection.sandbox if child.connection is not None else None
    return ChildStatus(
        suite=suite.name,
        child=child.name,
        kind=child.spec.kind,
        state=child.state.value,
        health=health.value,
        started=child.peer is not None,
        known=has_snapshot,
        pid=child.pid,
        calls=max(0, child.requests - child.lookups),
        errors=timeline.errors if timeline is not None else 0,
        p50=timeline.percentile_ms(0.5) if timeline is not None else UNSET,
        p95=timeline.percentile_ms(0.95) if timeline is not None else UNSET,
        in_flight=in_flight,
        under_way=in_flight,
        subtools=len(suite.permitted(child.inventory.known_tools())) if has_snapshot else UNSET,
        tokens_saved=suite.cost().tokens_saved(suite, opened=child.lookups > 0) if has_snapshot else 0,
        results=suite.result_counts() or UNSET,
        failures=child.failures,
        retry_after_ms=child.retry_after_ms,
        last_failure=LastProblem(redacted.code, redacted.message) if redacted is not None else UNSET,
        sandbox=child.sandbox.preset if child.is_sandboxed else "",
        sandbox_broken=[promise.name for promise in sandbox.plan.broken] if sandbox is not None else [],
        sandbox_denied=child.refusals_total,
        sandbox_refusals=[SandboxRefusal(*refusal) for refusal in child.newest_refusals(SHOWN_REFUSALS)],
    )
