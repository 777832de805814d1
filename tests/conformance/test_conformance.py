"""The official conformance suite: what the fixture passes directly, it passes through Switchboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import processes, suite
from tests.conformance.losses import allowed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.mark.parametrize("name", suite.SUITES)
def test_the_fixture_gives_the_expected_verdicts(name: str) -> None:
    with processes.fixture() as url:
        results = suite.run(name, url)
    assert suite.statuses(results) == suite.expected(name)


@pytest.mark.skip(reason="waits for `switchboard serve --http` and `exposure: direct`")
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("name", suite.SUITES)
def test_what_passes_directly_passes_through_switchboard(
    name: str, era: processes.Era, workspace: Path
) -> None:
    with processes.switchboard(workspace, processes.child_over_stdio(era)) as url:
        results = suite.run(name, url)
    lost = {(loss.scenario, loss.check): loss for loss in suite.compare(suite.expected(name), results)}
    excused = allowed(name, era)
    unexcused = [loss for key, loss in lost.items() if key not in excused]
    assert not unexcused, "\n".join(
        f"{loss.scenario} {loss.check}: {loss.status} {loss.message}" for loss in unexcused
    )
    assert excused.keys() <= lost.keys(), "a loss that is no loss any more is still excused"
