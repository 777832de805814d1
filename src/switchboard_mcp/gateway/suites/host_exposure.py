"""Exposure `auto` for a host that is known: what it is shown of each child, by its traits and by measured tokens.

Without anything known about a host, a child whose exposure is `auto` is direct if its tools cost less than its suite
(`SuiteCost`). What a known host does by itself changes that:

- A host that loads tools after a search, and loads those at once that ask for it, gets the cheaper form of each child,
  marked to be loaded, within a budget.
- One that loads tools after a search, and has no such mark, gets single tools: its search finds them by their own
  descriptions, and no call is needed to open a suite. The budget bounds the cost with a model that it does not defer
  tools for, which is not known here.
- Limits on names and numbers of tools turn single tools into suites.

Pure, apart from `candidates`, which measures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from switchboard_mcp.hosts.traits import HostTraits

if TYPE_CHECKING:
    from switchboard_mcp.gateway.suites.child_suite import ChildSuite

# About 2 % of the smallest context in use, 200,000 tokens.
ALWAYS_LOAD_TOKENS = 4_000
# 10 % of it: a list of this size is what Claude Code's own setting `auto` loads without a search.
SEARCHED_TOKENS = 20_000
NEVER_RAN = "it has not run yet, so its tools are not known"

Shown = Literal["suite", "direct"]


class Candidate(Struct, frozen=True, kw_only=True):
    """One child with its measured costs in tokens. `expected` is that of the suite in a typical session."""

    child: str
    suite: str
    exposure: Literal["suite", "direct", "auto"]
    tools: int = 0
    flat: int = 0
    suite_tokens: int = 0
    expected: float = 0.0
    longest_name: int = 0
    pinned: int = 0
    built_in: bool = False
    always_load: bool = False

    def tokens(self, shown: Shown) -> int:
        """Return the tokens of what is listed."""
        return self.flat if shown == "direct" else self.suite_tokens

    def count(self, shown: Shown) -> int:
        """Return how many tools are listed."""
        return self.tools if shown == "direct" else 1 + self.pinned


class Choice(Struct, frozen=True, kw_only=True, rename="camel"):
    """How one child is shown to a host, and why."""

    child: str
    suite: str
    shown: Shown
    always_load: bool = False
    tools: int
    tokens: int
    reason: str


class HostExposure(Struct, frozen=True):
    """The suites, by name, that a host is shown otherwise than hosts that nothing is known about."""

    direct: frozenset[str] = frozenset()
    suites: frozenset[str] = frozenset()
    always_load: frozenset[str] = frozenset()


NO_CHOICE = HostExposure()


def candidates(suites: Iterable[ChildSuite]) -> list[Candidate]:
    """Measure all suites of a view."""
    return [_candidate(suite) for suite in suites]


def _candidate(suite: ChildSuite) -> Candidate:
    weight = suite.cost().weight
    names = [tool.name for tool in suite.permitted(suite.child.inventory.known_tools())]
    return Candidate(
        child=suite.source,
        suite=suite.name,
        exposure=suite.exposure,
        tools=len(names),
        flat=weight.flat,
        suite_tokens=weight.suite,
        expected=weight.expected,
        longest_name=max(map(len, names), default=0),
        pinned=len(suite.pinned_tools()),
        built_in=suite.built_in,
        always_load=suite.always_load,
    )


def decide(measured: Sequence[Candidate], host: HostTraits) -> list[Choice]:
    """Return how each child is shown to a host."""
    choices = [_by_cost(candidate, host) for candidate in measured]
    if host.defers_tools and not host.loads_marked and host.defers_from <= _count(choices):
        choices = _as_searched_tools(measured, choices, host)
    if host.max_tools:
        choices = _within_count(measured, choices, host)
    return _marked(measured, choices) if host.loads_marked else choices


def exposure_for(measured: Sequence[Candidate], host: HostTraits) -> HostExposure:
    """Return the decisions for a host in the form that lists are built from."""
    choices = decide(measured, host)
    return HostExposure(
        direct=frozenset(choice.suite for choice in choices if choice.shown == "direct"),
        suites=frozenset(choice.suite for choice in choices if choice.shown == "suite"),
        always_load=frozenset(choice.suite for choice in choices if choice.always_load),
    )


def _by_cost(candidate: Candidate, host: HostTraits) -> Choice:
    shown: Shown = "suite"
    longest = candidate.longest_name + len(host.name_prefix)
    if candidate.exposure != "auto":
        shown, reason = candidate.exposure, "set in the config, or the default"
    elif not candidate.flat:
        reason = NEVER_RAN
    elif host.name_chars and longest > host.name_chars:
        reason = f"a name of its tools has {longest} characters with the prefix, and {host.name_chars} are possible"
    else:
        shown = "direct" if candidate.flat <= candidate.expected else "suite"
        reason = f"its tools cost {candidate.flat:,} tokens, its suite {candidate.expected:,.0f} in a typical session"
    return _choice(candidate, shown, reason, always_load=candidate.always_load)


def _as_searched_tools(
    measured: Sequence[Candidate], choices: Sequence[Choice], host: HostTraits
) -> list[Choice]:
    """Show small children as single tools, which a host finds by a search, within the budget."""
    left = SEARCHED_TOKENS - sum(choice.tokens for choice in choices if choice.shown == "direct")
    chosen = {choice.suite: choice for choice in choices}
    for candidate in sorted(measured, key=lambda candidate: candidate.flat):
        fits = not host.name_chars or candidate.longest_name + len(host.name_prefix) <= host.name_chars
        if (
            candidate.exposure == "auto"
            and candidate.flat
            and fits
            and chosen[candidate.suite].shown == "suite"
        ):
            if candidate.flat > left:
                reason = f"the host searches for tools, but {candidate.flat:,} tokens exceed what is left of the budget"
                chosen[candidate.suite] = replace(chosen[candidate.suite], reason=reason)
                continue
            left -= candidate.flat
            reason = "the host searches for tools: it finds single ones, and no call opens a suite"
            chosen[candidate.suite] = _choice(candidate, "direct", reason)
    return list(chosen.values())


def _within_count(measured: Sequence[Candidate], choices: Sequence[Choice], host: HostTraits) -> list[Choice]:
    """Turn the children with most tools into suites until the host can take the list."""
    chosen = {choice.suite: choice for choice in choices}
    for candidate in sorted(measured, key=lambda candidate: -candidate.tools):
        if _count(chosen.values()) <= host.max_tools:
            break
        if candidate.exposure == "auto" and chosen[candidate.suite].shown == "direct":
            reason = f"the host takes {host.max_tools} tools, and single tools would exceed that"
            chosen[candidate.suite] = _choice(candidate, "suite", reason)
    return list(chosen.values())


def _marked(measured: Sequence[Candidate], choices: Sequence[Choice]) -> list[Choice]:
    """Mark what is loaded without a search: built-in suites first, then what costs least, within the budget."""
    left = ALWAYS_LOAD_TOKENS
    chosen = {choice.suite: choice for choice in choices}
    for candidate in sorted(
        measured,
        key=lambda candidate: (
            not candidate.always_load,
            not candidate.built_in,
            candidate.tokens(chosen[candidate.suite].shown),
        ),
    ):
        choice = chosen[candidate.suite]
        if not choice.always_load and (
            (candidate.exposure != "auto" and not candidate.built_in) or choice.tokens > left
        ):
            continue
        left -= choice.tokens
        reason = f"{choice.reason}; loaded without a search, within {ALWAYS_LOAD_TOKENS:,} tokens"
        chosen[candidate.suite] = replace(choice, always_load=True, reason=reason)
    return list(chosen.values())


def _choice(candidate: Candidate, shown: Shown, reason: str, *, always_load: bool = False) -> Choice:
    return Choice(
        child=candidate.child,
        suite=candidate.suite,
        shown=shown,
        always_load=always_load,
        tools=candidate.count(shown),
        tokens=candidate.tokens(shown),
        reason=reason,
    )


def _count(choices: Iterable[Choice]) -> int:
    return sum(choice.tools for choice in choices)
