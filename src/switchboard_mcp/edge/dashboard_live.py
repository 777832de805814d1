"""Calls as they end, while somebody watches.

Takes the place of the audit record in every suite's chain, and gives suites without a chain one for the time, so that
nothing is counted, timed or kept while nobody looks. What is recorded goes on to the audit record where there is one.
Arguments are never kept here.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from switchboard_mcp.config.limits import NO_LIMITS
from switchboard_mcp.config.models import Config
from switchboard_mcp.config.models import Suite as SuiteConfig
from switchboard_mcp.gateway.chain import Chain
from switchboard_mcp.gateway.childsuite import ChildSuite
from switchboard_mcp.gateway.gateway import Gateway

if TYPE_CHECKING:
    from switchboard_mcp.children.services import Services
    from switchboard_mcp.errors import Failure
    from switchboard_mcp.observe.audit import Audit

# Enough to scroll through; older calls are the audit record's.
MOST_CALLS = 1_000
# The last ones of a child, of which median and the slow end are told.
MOST_TIMES = 256
GOOD = frozenset({"ok", "allowed"})


class LiveCall(Struct, frozen=True, omit_defaults=True):
    """One call, look or decision, without its arguments."""

    seq: int
    at: int
    kind: str
    who: str
    child: str
    subtool: str = ""
    outcome: str = ""
    ms: float = -1.0


class Tally:
    """What was seen of one child since somebody looks."""

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.times: deque[float] = deque(maxlen=MOST_TIMES)

    def latency(self) -> dict[str, float]:
        """Median and p95 in milliseconds; empty where nothing was seen."""
        if not self.times:
            return {}
        ordered = sorted(self.times)
        last = len(ordered) - 1
        return {"p50": round(ordered[last // 2], 2), "p95": round(ordered[round(last * 0.95)], 2)}


class Live:
    """See the module. Stands in for an `Audit`, for chains."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._real = services.audit
        self._restore: dict[int, tuple[ChildSuite, Chain | None, Audit | None, Callable[[], float]]] = {}
        self.pending: list[tuple[str, str, str, str, bytes, str, float, float]] = []
        self.calls: deque[LiveCall] = deque(maxlen=MOST_CALLS)
        self.tallies: dict[str, Tally] = {}
        self.seq = 0
        self.clock = time.time
        self.deny = self._real is not None and self._real.deny

    @property
    def trouble(self) -> Failure | None:
        """The record's own."""
        return self._real.trouble if self._real is not None else None

    def refusal(self) -> Failure | None:
        """The record's own."""
        return self._real.refusal() if self._real is not None else None

    def record(
        self,
        kind: str,
        who: str = "",
        child: str = "",
        subtool: str = "",
        args: bytes = b"",
        outcome: str = "",
        seconds: float = -1.0,
    ) -> None:
        """As the record takes it."""
        self.pending.append((kind, who, child, subtool, args, outcome, seconds, self.clock()))
        if len(self.pending) == 1:
            self.rouse()

    def rouse(self) -> None:
        """Something is there: look at it before the next turn of the loop ends."""
        self._services.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Keep what is shown, and hand everything on."""
        batch = self.pending[:]
        self.pending.clear()
        if not batch:
            return
        text = self._services.redactor.text
        for kind, who, child, subtool, _, outcome, seconds, at in batch:
            self.seq += 1
            ms = round(seconds * 1000, 3) if seconds >= 0 else -1.0
            # A subtool that does not exist is named by whoever asked for it.
            shown = text(subtool)[:200]
            self.calls.append(LiveCall(self.seq, int(at * 1000), kind, who, child, shown, outcome, ms))
            if kind == "call":
                tally = self.tallies.setdefault(child, Tally())
                tally.calls += 1
                tally.errors += outcome not in GOOD
                if ms >= 0:
                    tally.times.append(ms)
        real = self._real
        if real is not None:
            quiet = not real.pending
            real.pending.extend(batch)
            if quiet:
                real.rouse()

    def begin(self, gateway: Gateway, config: Config) -> None:
        """Somebody looks; again for suites that a new config has brought since."""
        for suite in _suites(gateway):
            if id(suite) in self._restore:
                continue
            had = suite.chain
            if had is None:
                settings = config.suites.get(suite.source) or SuiteConfig()
                suite.chain = Chain(suite, settings, NO_LIMITS, self._services, (), None)
            chain = cast(Any, suite.chain)
            self._restore[id(suite)] = (suite, had, chain.audit, chain.now)
            chain.audit = self
            if chain.gates is None:  # which go by the loop's own clock; some loops' knows milliseconds only
                chain.now = time.monotonic

    def end(self) -> None:
        """Nobody looks any more: all is as it was, and nothing is lost."""
        for suite, had, audit, now in self._restore.values():
            if suite.chain is not None:
                suite.chain.audit, suite.chain.now = audit, now
            suite.chain = had
        self._restore.clear()
        self.flush()
        self.tallies.clear()

    def since(self, seq: int) -> Iterable[LiveCall]:
        """Those that came after."""
        return [call for call in self.calls if call.seq > seq]


def _suites(gateway: Gateway) -> list[ChildSuite]:
    """Every suite that hosts call through, each once."""
    found = {id(suite): suite for suite in gateway.all.values()}
    for view in gateway.every_view():
        found |= {id(suite): suite for suite in view.suites.values()}
    return list(found.values())
