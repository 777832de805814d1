"""The official conformance suite: what passes directly, passes through Switchboard.

Directly means the fixture as the server under test, and the official SDK's client as the client under test. One server
run, some scenarios of a client and one of authorization are quick; the other runs are in `make soak`. The suite gives
its peers fractions of a second, which a busy machine may miss: they need a quiet one.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conformance import processes, suite
from tests.conformance.losses import reason, stale

pytestmark = [pytest.mark.e2e]
SOAK = pytest.mark.soak("conformance")

# Every suite, era and way to show tools, but not all with each other: `run.py --through` does that.
RUNS = [
    ("0.1", "legacy", "direct"),
    ("2025-11-25", "legacy", "direct"),
    ("2025-11-25", "modern", "suite"),
    ("2026-07-28", "legacy", "suite"),
    ("2026-07-28", "modern", "direct"),
    ("2026-07-28", "modern", "suite"),
]
# One of each kind of scenario, without those that measure time.
QUICK_SERVER = {
    "2025-11-25": ("tools-call-elicitation", "resources-subscribe"),
    "2026-07-28": (
        "input-required-result-multi-round",
        "resources-read-text",
        "tools-call-with-progress",
        "tools-list",
    ),
}
QUICK_CLIENT = ("http-standard-headers", "sep-2322-client-request-state")
# The most that happens: more scopes after a call, and a client with a key of its own.
AUTHORIZATION = [
    ("auth-2026-07-28", "auth/scope-step-up"),
    pytest.param("auth-extensions", "auth/client-credentials-jwt", marks=SOAK),
]


@SOAK
@pytest.mark.parametrize("name", suite.SUITES)
def test_the_fixture_gives_the_expected_verdicts(name: str) -> None:
    with processes.fixture() as url:
        assert suite.statuses(suite.run(name, url)) == suite.expected(name)


@SOAK
@pytest.mark.parametrize("name", suite.CLIENT_SUITES)
def test_the_sdk_as_client_gives_the_expected_verdicts(name: str) -> None:
    results = suite.run_client(name, processes.client_command(direct=True))
    assert suite.statuses(results) == suite.expected(name)


@SOAK
@pytest.mark.parametrize(("name", "era", "mode"), RUNS)
def test_what_passes_directly_passes_through_switchboard(
    name: str, era: processes.Era, mode: processes.Mode, workspace: Path
) -> None:
    with processes.through_switchboard(workspace, era, mode=mode) as url:
        assert not unexcused(name, era, suite.run(name, url), mode)


@pytest.mark.parametrize("name", QUICK_SERVER)
def test_a_scenario_of_each_kind_passes_through_switchboard(name: str, workspace: Path) -> None:
    era: processes.Era = "modern" if name == "2026-07-28" else "legacy"
    with processes.through_switchboard(workspace, era) as url:
        results = suite.run_scenarios(name, url, QUICK_SERVER[name])
    assert lost_of(name, results, QUICK_SERVER[name]) == []


def test_a_scenario_of_each_kind_passes_with_switchboard_as_client() -> None:
    results = suite.run_client("client-2026-07-28", processes.client_command(direct=False), QUICK_CLIENT)
    assert lost_of("client-2026-07-28", results, QUICK_CLIENT) == []


def lost_of(name: str, results: suite.Results, scenarios: Sequence[str]) -> list[suite.Loss]:
    """Return what some scenarios have lost."""
    expected = suite.expected(name)
    return suite.compare({scenario: expected[scenario] for scenario in scenarios}, results)


@SOAK
@pytest.mark.parametrize("name", suite.CLIENT_SUITES)
def test_switchboard_is_as_good_a_client_as_the_sdk(name: str) -> None:
    assert not unexcused(name, None, suite.run_client(name, processes.client_command(direct=False)))


@pytest.mark.parametrize(("name", "scenario"), AUTHORIZATION)
def test_switchboard_authorizes_as_the_suite_wants_it(name: str, scenario: str) -> None:
    results = suite.run_client(name, processes.auth_client_command(), [scenario])
    assert results[scenario]
    assert {check.status for check in results[scenario].values()} == {suite.SUCCESS}, results


def test_every_scenario_about_authorization_is_run_or_left_out_with_a_reason() -> None:
    listed = subprocess.run([*suite.program("npm-0.2"), "list"], capture_output=True, text=True, check=True)
    scenarios = set(re.findall(r"- (auth/\S+)", listed.stdout + listed.stderr))
    run = {scenario for auth in suite.AUTH_SUITES.values() for scenario in auth.scenarios}
    assert scenarios == run | set(suite.LEFT_OUT)


def unexcused(
    name: str, era: str | None, results: suite.Results, mode: processes.Mode = "direct"
) -> list[str]:
    """What passes directly and is lost here without a reason, and reasons that nothing needs any more."""
    losses = suite.compare(suite.expected(name), results)
    lost = [loss for loss in losses if reason(loss, name, era, mode) is None]
    texts = [f"{loss.scenario} {loss.check}: {loss.status} {loss.message}" for loss in lost]
    return texts + [f"{key} is excused in losses.py, and not lost" for key in stale(losses, name, era, mode)]
