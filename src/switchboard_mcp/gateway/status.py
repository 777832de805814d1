"""How the children are, as values: what `GET /status`, `switchboard status` and the switchboard suite show.

Looks only: nothing is started for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from switchboard_mcp.children.child import Child
from switchboard_mcp.children.lifecycle import Health
from switchboard_mcp.gateway.suites.child_suite import ChildSuite

if TYPE_CHECKING:
    from switchboard_mcp.observability.timeline import ChildTimeline

NO_TALLIES: Mapping[str, ChildTimeline] = {}
ILL = frozenset({Health.UNHEALTHY.value, Health.QUARANTINED.value})


class LastProblem(Struct, frozen=True):
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
    started: bool = False
    known: bool = False
    pid: int = 0
    calls: int = 0
    errors: int = 0
    """Calls that failed, and how long the last ones took in milliseconds, where a server counts that."""
    p50: float | UnsetType = UNSET
    p95: float | UnsetType = UNSET
    under_way: int = 0
    subtools: int | UnsetType = UNSET
    tokens_saved: int = 0
    """What a host has saved: the tools listed flat, less the suite tool, and less a look inside where there was one."""
    failures: int = 0
    retry_after_ms: int = 0
    last_failure: LastProblem | UnsetType = UNSET

    @property
    def is_ill(self) -> bool:
        """Whether calls to it are refused."""
        return self.health in ILL


def children(
    suites: Iterable[ChildSuite],
    principal: str | None = None,
    tallies: Mapping[str, ChildTimeline] = NO_TALLIES,
) -> list[ChildStatus]:
    """Every child of these suites; where a principal is given, of processes kept for one host only its own. What was
    seen of a child's calls is told with its first process.
    """
    told = []
    for suite in suites:
        kept = _processes(suite, principal) or [suite.child]
        tally = tallies.get(suite.source)
        first = _of(suite, kept[0], tally)
        if tally is not None and len(kept) == 1 and tally.calls > first.calls:
            # A child that was made anew for another config has forgotten the calls of before.
            first = replace(first, calls=tally.calls)
        told += [first, *(_of(suite, child) for child in kept[1:])]
    return told


def saved_by(suite: ChildSuite) -> int:
    """Tokens that a suite has saved a host, as far as its child is known."""
    if suite.child.snapshot is None:
        return 0
    opened = any(child.lookups for child in suite.child.processes() or [suite.child])
    return suite.cost().tokens_saved(suite, opened=opened)


def _processes(suite: ChildSuite, principal: str | None) -> list[Child]:
    kept = suite.child.processes()
    if principal is None or kept == [suite.child]:
        return kept
    return [child for child in kept if getattr(child.owner, "principal", "") == principal]


def _of(suite: ChildSuite, child: Child, tally: ChildTimeline | None = None) -> ChildStatus:
    health = child.health  # first, since it may change the state
    known = child.snapshot is not None
    last = child.last_failure if child.failures or health.value in ILL else None
    shown = child.redact(last) if last is not None else None
    return ChildStatus(
        suite=suite.name,
        child=child.name,
        kind=child.spec.kind,
        state=child.state.value,
        health=health.value,
        started=child.peer is not None,
        known=known,
        pid=child.pid,
        calls=max(0, child.requests - child.lookups),
        errors=tally.errors if tally is not None else 0,
        p50=tally.percentile_ms(0.5) if tally is not None else UNSET,
        p95=tally.percentile_ms(0.95) if tally is not None else UNSET,
        under_way=len(child.peer.pending) if child.peer is not None else 0,
        subtools=len(suite.permitted(child.inventory.known_tools())) if known else UNSET,
        tokens_saved=suite.cost().tokens_saved(suite, opened=child.lookups > 0) if known else 0,
        failures=child.failures,
        retry_after_ms=child.retry_after_ms,
        last_failure=LastProblem(shown.code, shown.message) if shown is not None else UNSET,
    )
