"""Checks that pass directly and need not pass through a proxy, each with its reason.

Everything else must pass, so a line here is a decision, and one that is no longer needed fails the tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.conformance.suite import Loss

ALL = "*"
Reasons = Mapping[tuple[str, str], str]

NO_KEYS = "the suite wants a key by name, and a handshake-era child gives its requests none"
NO_TASKS = "an extension of 2026-07-28, which a handshake-era child does not have"
OWN_STREAM = (
    "the tool closes the stream of its own server: pipes have none, over HTTP Switchboard takes it up unseen"
)

# By suite and era of the child (none where the suite is the server): the scenario and check, and why.
LOSSES: Mapping[tuple[str, str | None], Reasons] = {
    ("2025-11-25", "legacy"): {("server-sse-polling", "ServerDisconnectResume"): OWN_STREAM},
    ("2025-11-25", "modern"): {("server-sse-polling", "ServerDisconnectResume"): OWN_STREAM},
    ("2026-07-28", "legacy"): {
        ("input-required-result-basic-elicitation", ALL): NO_KEYS,
        ("input-required-result-ignore-extra-params", ALL): NO_KEYS,
        ("tasks-lifecycle", ALL): NO_TASKS,
        ("tasks-capability-negotiation", ALL): NO_TASKS,
        ("tasks-wire-fields", ALL): NO_TASKS,
        ("tasks-request-state-removal", ALL): NO_TASKS,
        ("tasks-mrtr-input", ALL): NO_TASKS,
        ("tasks-request-headers", ALL): NO_TASKS,
        ("tasks-dispatch-and-envelope", ALL): NO_TASKS,
        ("tasks-required-task-error", ALL): NO_TASKS,
        ("tasks-mrtr-composition", ALL): NO_TASKS,
    },
}

IN_INTROSPECT = (
    "looks for a tool by name in tools/list; a suite lists one tool, and shows its subtools in introspect"
)
NO_HEADERS = (
    "looks in tools/list for a tool with x-mcp-header arguments; those of a subtool are inside `args`"
)
ONE_TOOL = "compares the order of two tools or more; a suite lists one"
OWN_URI = "the error names the URI that the host has used, which is the suite's"

# What only suites lose, with children of either era, by suite.
SUITE_LOSSES: Mapping[str, Reasons] = {
    "0.1": {("json-schema-2020-12", ALL): IN_INTROSPECT},
    "2025-11-25": {("json-schema-2020-12", ALL): IN_INTROSPECT},
    "2026-07-28": {
        ("json-schema-2020-12", ALL): IN_INTROSPECT,
        ("tools-list", "ToolsListDeterministicOrder"): ONE_TOOL,
        ("http-custom-header-server-validation", ALL): NO_HEADERS,
        ("sep-2164-resource-not-found", "ResourcesNotFoundDataUri"): OWN_URI,
    },
}


def reasons(suite: str, era: str | None, mode: str) -> Reasons:
    """The losses that a run may have, and why."""
    excused = LOSSES.get((suite, era), {})
    if mode != "suite":
        return excused
    return {**excused, **SUITE_LOSSES.get(suite, {})}


def reason(loss: Loss, suite: str, era: str | None, mode: str = "direct") -> str | None:
    """Return the reason if a loss is not caused by Switchboard."""
    excused = reasons(suite, era, mode)
    return excused.get((loss.scenario, loss.check)) or excused.get((loss.scenario, ALL))


def stale(losses: Sequence[Loss], suite: str, era: str | None, mode: str = "direct") -> list[tuple[str, str]]:
    """Reasons that no loss needs any more."""
    lost = {(loss.scenario, check) for loss in losses for check in (loss.check, ALL)}
    return [key for key in reasons(suite, era, mode) if key not in lost]
