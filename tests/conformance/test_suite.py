"""How the results of the conformance suite are read and compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.conformance import suite
from tests.conformance.suite import Check, Loss, compare, read, verdicts


def check(name: str, status: str, **more: str) -> dict[str, str]:
    return {"id": f"id-of-{name}", "name": name, "status": status, **more}


def test_checks_are_known_by_their_name_and_repeated_ones_are_counted() -> None:
    checks = [check("A", "SUCCESS"), check("B", "FAILURE", errorMessage="no"), check("A", "WARNING")]
    assert verdicts(checks) == {
        "A": Check("SUCCESS"),
        "B": Check("FAILURE", "no"),
        "A #2": Check("WARNING"),
    }


def test_what_is_only_told_is_no_verdict() -> None:
    assert verdicts([check("A", "INFO"), check("A", "SUCCESS")]) == {"A": Check("SUCCESS")}


def test_a_check_that_was_not_observed_is_known_by_its_id() -> None:
    assert verdicts([check("NotObserved", "FAILURE")]) == {"id-of-NotObserved": Check("FAILURE")}


def test_a_folder_is_a_scenario(tmp_path: Path) -> None:
    for folder in (
        "server-tools-list-2026-11-15T10-04-33-519Z",
        "server-server-stateless-2026-11-15T10-04-34-001Z",
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "checks.json").write_text(json.dumps([check("A", "SUCCESS")]))
    assert list(read(tmp_path, "server-")) == ["server-stateless", "tools-list"]


def test_a_check_that_passes_directly_must_pass() -> None:
    direct = {"s": {"A": "SUCCESS", "B": "SUCCESS", "C": "SUCCESS"}}
    proxied = {"s": {"A": Check("SUCCESS"), "B": Check("WARNING", "late")}}
    assert compare(direct, proxied) == [Loss("s", "B", "WARNING", "late"), Loss("s", "C", "MISSING", "")]


def test_a_scenario_that_did_not_run_is_lost() -> None:
    assert compare({"s": {"A": "SUCCESS"}}, {}) == [Loss("s", "A", "MISSING", "")]


def test_what_does_not_pass_directly_need_not_pass() -> None:
    direct = {"s": {"A": "FAILURE", "B": "WARNING", "C": "SKIPPED"}}
    assert compare(direct, {"s": {"A": Check("FAILURE"), "B": Check("FAILURE")}}) == []


def test_a_new_failure_is_a_loss() -> None:
    assert compare({"s": {}}, {"s": {"A": Check("FAILURE", "broke")}}) == [Loss("s", "A", "FAILURE", "broke")]


def test_a_scenario_that_hangs_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "RUN_S", 0.01)
    endless = [sys.executable, "-c", "import time; time.sleep(600)", "--scenario", "s"]
    found = suite.collect(endless, tmp_path, "")
    assert [(name, check.status) for name, checks in found.items() for check in checks.values()] == [
        ("s", "FAILURE")
    ]
