"""The claims of the standard, their checks, and the tests that prove them.

The facts of a workspace are passed in. A unit test checks that the named tests exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from switchboard_mcp.evidence.artifacts import Check, Claim, Fact
from switchboard_mcp.gateway.suites.suite_tools import MAX_LIST_BYTES

STANDARD = "Summit Switchboard (MCP)"
PACKAGE, LICENCE = "switchboard_mcp", "MIT"
CLEAN_ROOM = "Written from ideas and public protocol documents only; no code of another project was copied."
Facts = Mapping[str, Fact]


class CheckRule(Struct, frozen=True):
    """One check: a fact, and what it must be."""

    name: str
    fact: str
    limit: Fact = 0
    rule: Literal["at most", "at least", "is"] = "at most"

    def check(self, facts: Facts) -> Check:
        """Compare the fact with the limit."""
        value = facts[self.fact]
        ok = value == self.limit
        if self.rule != "is":
            assert isinstance(value, int)
            assert isinstance(self.limit, int)
            ok = value <= self.limit if self.rule == "at most" else value >= self.limit
        return Check(name=self.name, rule=self.rule, found=value, limit=self.limit, ok=ok)


class ClaimRule(Struct, frozen=True):
    """One claim of the standard: its checks, the names of further facts, and its tests."""

    claim: str
    checks: tuple[CheckRule, ...]
    facts: tuple[str, ...]
    tests: tuple[str, ...]
    proves: str  # what it says about this workspace, for a person


# The budgets of the standard.
MAX_SPAWN_WARN_MS = 2_000
MAX_SPAWN_FAIL_MS = 5_000
MAX_SUBTOOLS = 200
# So that the summaries of a whole answer fit into the budget of `tools/list`.
MAX_SUMMARY_CHARS = MAX_LIST_BYTES // MAX_SUBTOOLS

CLAIMS: dict[str, ClaimRule] = {
    "ITEM:CLAIM-01": ClaimRule(
        "MCP Switchboard orchestrates MCP servers.",
        (CheckRule("children that may run", "allowedChildren", 1, "at least"),),
        ("children", "deniedChildren", "suites", "directChildren"),
        (
            "tests/e2e/test_acceptance.py::test_a_child_is_started_by_its_first_use_and_then_reused",
            "tests/e2e/test_acceptance.py::test_a_call_is_forwarded_and_its_result_passed_through",
        ),
        "children may run, each behind its suite",
    ),
    "ITEM:CLAIM-02": ClaimRule(
        "Select/configure/health-check behaviours.",
        (
            CheckRule("mode", "mode", "governed", "is"),
            CheckRule("calls are routed without the flag", "routedWithoutFlag", False, "is"),
            CheckRule("sections of the config that are not as approved", "unapprovedSections"),
            CheckRule("children that exist and are not pinned as they are", "unpinnedChildren"),
            CheckRule("approved children whose files or settings are not those approved", "changedChildren"),
            CheckRule("approved or pinned children that are not configured", "unconfiguredChildren"),
            CheckRule("allowed names that are not pinned", "unpinnedNames"),
            CheckRule("milliseconds until a slow start is logged", "spawnWarnMs", MAX_SPAWN_WARN_MS),
            CheckRule("milliseconds until a start fails the health gate", "spawnFailMs", MAX_SPAWN_FAIL_MS),
            CheckRule("every decision and call is recorded", "audit", True, "is"),
            CheckRule("calls while nothing can be recorded", "auditFailure", "deny", "is"),
        ),
        ("approvedSlowStarts",),
        (
            "tests/e2e/test_health_gate.py::test_health_check_gate_unhealthy_child_prevents_routing",
            "tests/e2e/test_health_gate.py::test_spawn_time_warn_and_fail_of_the_health_gate",
            "tests/e2e/test_governed_settings.py::test_a_config_that_decides_for_the_approver_serves_nothing",
        ),
        "only what is approved, pinned and healthy runs, and every call is recorded",
    ),
    "ITEM:CLAIM-03": ClaimRule(
        "Aggregation with suite tools + lazy expansion.",
        (
            CheckRule("bytes of tools/list", "toolsListBytes", MAX_LIST_BYTES),
            CheckRule("subtools of one child in one answer", "largestAnswer", MAX_SUBTOOLS),
            CheckRule("characters of a summary", "summaryMaxChars", MAX_SUMMARY_CHARS),
        ),
        ("suites", "directTools"),
        (
            "tests/e2e/test_acceptance.py::test_the_list_never_holds_the_tools_of_a_child",
            "tests/e2e/test_suite_list.py::test_two_hundred_children_fit_into_fifty_kilobytes",
        ),
        "lists of tools and subtools are within their limits",
    ),
    "ITEM:CLAIM-04": ClaimRule(
        "Token reduction must be measured by Summit harness (no external claims).",
        (
            CheckRule("package of the harness", "harnessPackage", PACKAGE, "is"),
            CheckRule("suites without token figures", "unmeasuredSuites"),
        ),
        ("harness", "flatTokens", "suiteTokens", "savedPermille"),
        (
            "tests/unit/suites/test_token_estimate.py::test_the_estimate_is_near_the_real_count",
            "tests/e2e/test_evidence.py::test_token_figures_are_those_of_our_own_harness",
        ),
        "what suites save is measured, for every child",
    ),
    "ITEM:CLAIM-05": ClaimRule(
        "Optional Redis Streams durable bus.",
        (
            CheckRule("an installation requires a client of Redis", "busRequired", False, "is"),
            CheckRule("a bus that is neither encrypted nor on this machine", "busInTheClear", False, "is"),
            CheckRule("a password of the bus in the config", "busPassword", False, "is"),
        ),
        ("busConfigured",),
        (
            "tests/e2e/test_serving_imports.py::test_serving_loads_nothing_beyond_a_few_cheap_modules",
            "tests/e2e/test_bus_events.py::test_the_same_is_published_over_http",
            "tests/e2e/test_bus_events.py::test_what_happened_while_redis_was_away_is_published_when_it_is_back_even_by_a_later_server",
        ),
        "Redis is not needed; a bus is encrypted or on this machine, without a password in the config",
    ),
    "SUMMIT:CLAIM-06": ClaimRule(
        "Existing Switchboard = ingestion pipeline.",
        (
            CheckRule("package of the code", "package", PACKAGE, "is"),
            CheckRule("other packages of that name in the process", "otherPackages"),
            CheckRule("children that are named like Switchboard itself", "namesakes"),
        ),
        ("standard",),
        ("tests/unit/evidence/test_claim_rules.py::test_code_paths_are_those_of_switchboard_mcp",),
        "nothing else in the process or among the children has the name of this program",
    ),
    "SUMMIT:CLAIM-07": ClaimRule(
        "MIT license; clean-room implementation required.",
        (CheckRule("licence of the installed distribution", "licence", LICENCE, "is"),),
        ("cleanRoom", "dependencies"),
        ("tests/unit/evidence/test_claim_rules.py::test_the_licence_is_mit_and_says_so_everywhere",),
        "the installed distribution has the MIT licence",
    ),
}


# Claims about approvals and about the lock, where token figures come from; open mode needs neither.
GOVERNANCE_CLAIMS = frozenset({"ITEM:CLAIM-02", "ITEM:CLAIM-04"})


def not_claimed(evaluated: list[Claim]) -> list[str]:
    """Return the claims that a workspace in open mode does not make. With approvals, it is a governed one opened."""
    return [claim.id for claim in evaluated if claim.id in GOVERNANCE_CLAIMS and not claim.holds]


def claims(facts: Facts) -> list[Claim]:
    """Evaluate every claim against the facts."""
    results = []
    for number, row in CLAIMS.items():
        checks = [rule.check(facts) for rule in row.checks]
        results.append(
            Claim(
                id=number,
                claim=row.claim,
                holds=all(check.ok for check in checks),
                checks=checks,
                facts={name: facts[name] for name in row.facts},
                tests=list(row.tests),
            )
        )
    return results
