"""The official conformance suite: what passes directly, passes through Switchboard.

Directly means the fixture as the server under test, and the official SDK's client as the client under test. The suite
gives its peers fractions of a second, which a busy machine may miss: a verdict that differs is asked for once more,
of a client only the scenarios that have one.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.conformance import processes, suite
from tests.conformance.losses import reason, stale

pytestmark = [pytest.mark.e2e]

# Every suite, era and way to show tools, but not all with each other: `run.py --through` does that.
RUNS = [
    ("0.1", "legacy", "direct"),
    ("2025-11-25", "legacy", "direct"),
    ("2025-11-25", "modern", "suite"),
    ("2026-07-28", "legacy", "suite"),
    ("2026-07-28", "modern", "direct"),
    ("2026-07-28", "modern", "suite"),
]
# The most that happens: more scopes after a call, and a client with a key of its own.
AUTHORIZATION = [
    ("auth-2026-07-28", "auth/scope-step-up"),
    ("auth-extensions", "auth/client-credentials-jwt"),
]


@pytest.mark.parametrize("name", suite.SUITES)
def test_the_fixture_gives_the_expected_verdicts(name: str) -> None:
    with processes.fixture() as url:
        first = suite.statuses(suite.run(name, url))
        assert first == suite.expected(name) or suite.statuses(suite.run(name, url)) == suite.expected(name)


@pytest.mark.parametrize("name", suite.CLIENT_SUITES)
def test_the_sdk_as_client_gives_the_expected_verdicts(name: str) -> None:
    command, expected = processes.client_command(direct=True), suite.expected(name)
    results = suite.run_client(name, command)
    if differing := [
        scenario for scenario, checks in suite.statuses(results).items() if checks != expected.get(scenario)
    ]:
        results |= suite.run_client(name, command, differing)
    assert suite.statuses(results) == expected


@pytest.mark.parametrize(("name", "era", "mode"), RUNS)
def test_what_passes_directly_passes_through_switchboard(
    name: str, era: processes.Era, mode: processes.Mode, workspace: Path
) -> None:
    with processes.through_switchboard(workspace, era, mode=mode) as url:
        if unexcused(name, era, suite.run(name, url), mode):
            assert not unexcused(name, era, suite.run(name, url), mode)


@pytest.mark.parametrize("name", suite.CLIENT_SUITES)
def test_switchboard_is_as_good_a_client_as_the_sdk(name: str) -> None:
    command = processes.client_command(direct=False)
    results = suite.run_client(name, command)
    if lost := {loss.scenario for loss in suite.compare(suite.expected(name), results)}:
        results |= suite.run_client(name, command, sorted(lost))
    assert not unexcused(name, None, results)


@pytest.mark.parametrize(("name", "scenario"), AUTHORIZATION)
def test_switchboard_authorizes_as_the_suite_wants_it(name: str, scenario: str) -> None:
    for attempt in (1, 2):
        results = suite.run_client(name, processes.auth_client_command(), [scenario])
        failed = {
            check: verdict for check, verdict in results[scenario].items() if verdict.status != suite.SUCCESS
        }
        assert results[scenario]
        if not failed:
            break
        assert attempt == 1, failed


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
