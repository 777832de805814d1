"""The official conformance suite: what passes directly, passes through Switchboard.

Directly means the fixture as the server under test, and the official SDK's client as the client under test. The suite
gives its peers fractions of a second, which a busy machine may miss: a verdict that differs is asked for once more,
of a client only the scenarios that have one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import processes, suite
from tests.conformance.losses import reason, stale

pytestmark = [pytest.mark.e2e]


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


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("name", suite.SUITES)
def test_what_passes_directly_passes_through_switchboard(
    name: str, era: processes.Era, workspace: Path
) -> None:
    with processes.through_switchboard(workspace, era) as url:
        if unexcused(name, era, suite.run(name, url)):
            assert not unexcused(name, era, suite.run(name, url))


@pytest.mark.parametrize("name", suite.CLIENT_SUITES)
def test_switchboard_is_as_good_a_client_as_the_sdk(name: str) -> None:
    command = processes.client_command(direct=False)
    results = suite.run_client(name, command)
    if lost := {loss.scenario for loss in suite.compare(suite.expected(name), results)}:
        results |= suite.run_client(name, command, sorted(lost))
    assert not unexcused(name, None, results)


def unexcused(name: str, era: str | None, results: suite.Results) -> list[str]:
    """What passes directly and is lost here without a reason, and reasons that nothing needs any more."""
    losses = suite.compare(suite.expected(name), results)
    lost = [loss for loss in losses if reason(loss, name, era) is None]
    told = [f"{loss.scenario} {loss.check}: {loss.status} {loss.message}" for loss in lost]
    return told + [f"{key} is excused in losses.py, and not lost" for key in stale(losses, name, era)]
