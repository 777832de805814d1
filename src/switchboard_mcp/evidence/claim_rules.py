"""The claims of the standard, their rules, and the tests that prove them.

The facts of a workspace are passed in. A unit test checks that the named tests exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from switchboard_mcp.evidence.artifacts import Claim, Fact

STANDARD = "Summit Switchboard (MCP)"
PACKAGE, DISTRIBUTION, LICENCE = "switchboard_mcp", "switchboard-mcp", "MIT"
CLEAN_ROOM = "Written from ideas and public protocol documents only; no code of another project was copied."
Facts = Mapping[str, Fact]


class ClaimRule(Struct, frozen=True):
    """One claim: the names of its facts, its rule and its tests."""

    claim: str
    facts: tuple[str, ...]
    holds: Callable[[Facts], bool]
    tests: tuple[str, ...]


CLAIMS: dict[str, ClaimRule] = {
    "ITEM:CLAIM-01": ClaimRule(
        "MCP Switchboard orchestrates MCP servers.",
        ("allowedChildren", "suites", "directChildren"),
        lambda facts: int(facts["suites"]) + int(facts["directChildren"]) == facts["allowedChildren"],
        (
            "tests/e2e/test_acceptance.py::test_a_child_is_started_by_its_first_use_and_then_reused",
            "tests/e2e/test_acceptance.py::test_a_call_is_forwarded_and_its_result_passed_through",
        ),
    ),
    "ITEM:CLAIM-02": ClaimRule(
        "Select/configure/health-check behaviours.",
        ("children", "allowedChildren", "deniedChildren", "spawnWarnMs", "spawnFailMs"),
        lambda facts: int(facts["allowedChildren"]) + int(facts["deniedChildren"]) == facts["children"],
        (
            "tests/e2e/test_health_gate.py::test_health_check_gate_unhealthy_child_prevents_routing",
            "tests/e2e/test_health_gate.py::test_spawn_time_warn_and_fail_of_the_health_gate",
        ),
    ),
    "ITEM:CLAIM-03": ClaimRule(
        "Aggregation with suite tools + lazy expansion.",
        ("suites", "directTools", "toolsListBytes", "toolsListLimit"),
        lambda facts: (
            int(facts["toolsListBytes"]) <= int(facts["toolsListLimit"]) or facts["directTools"] != 0
        ),
        (
            "tests/e2e/test_acceptance.py::test_the_list_never_holds_the_tools_of_a_child",
            "tests/e2e/test_suite_list.py::test_two_hundred_children_fit_into_fifty_kilobytes",
        ),
    ),
    "ITEM:CLAIM-04": ClaimRule(
        "Token reduction must be measured by Summit harness (no external claims).",
        ("harness", "flatTokens", "suiteTokens", "savedPermille"),
        lambda facts: str(facts["harness"]).startswith(PACKAGE),
        (
            "tests/unit/suites/test_token_estimate.py::test_the_estimate_is_near_the_real_count",
            "tests/e2e/test_evidence.py::test_token_figures_are_those_of_our_own_harness",
        ),
    ),
    "ITEM:CLAIM-05": ClaimRule(
        "Optional Redis Streams durable bus.",
        ("busConfigured", "busRequired"),
        lambda facts: facts["busRequired"] is False,
        ("tests/e2e/test_serving_imports.py::test_serving_loads_nothing_beyond_a_few_cheap_modules",),
    ),
    "SUMMIT:CLAIM-06": ClaimRule(
        "Existing Switchboard = ingestion pipeline.",
        ("package", "standard", "otherPackages"),
        lambda facts: facts["package"] == PACKAGE and facts["otherPackages"] == 0,
        ("tests/unit/evidence/test_claim_rules.py::test_code_paths_are_those_of_switchboard_mcp",),
    ),
    "SUMMIT:CLAIM-07": ClaimRule(
        "MIT license; clean-room implementation required.",
        ("licence", "cleanRoom", "dependencies"),
        lambda facts: facts["licence"] == LICENCE,
        ("tests/unit/evidence/test_claim_rules.py::test_the_licence_is_mit_and_says_so_everywhere",),
    ),
}


def claims(facts: Facts) -> list[Claim]:
    """Evaluate every claim against the facts."""
    return [
        Claim(
            id=number,
            claim=row.claim,
            holds=row.holds(facts),
            facts={name: facts[name] for name in row.facts},
            tests=list(row.tests),
        )
        for number, row in CLAIMS.items()
    ]
