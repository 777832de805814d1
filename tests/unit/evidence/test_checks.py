"""Every check of every claim can fail: a change of a workspace in which all of them hold, for each."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from switchboard_mcp.children.locking.lock_file import lock_path, locked_tool, read_lock, write_lock
from switchboard_mcp.config.files.approvals import approvals_path, read_approvals, write_approvals
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.evidence import collect as collecting
from switchboard_mcp.evidence.artifacts import EvidenceReport, Metrics
from switchboard_mcp.evidence.claim_rules import CLAIMS
from switchboard_mcp.evidence.collect import collect
from switchboard_mcp.policy.approved_settings import approve_settings, section_statuses
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.suites.token_estimate import estimate
from tests.cases import each_case

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "governed"
Json = dict[str, Any]


class Checkout:
    """A copy of the governed example, to be changed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = Path(shutil.copytree(EXAMPLE, folder / "checkout"))
        self.config = self.folder / "switchboard.config.json"
        self.monkeypatch = monkeypatch

    def set(self, approve: bool = True, **sections: Any) -> None:
        """Change sections of the config; with `approve`, they are approved as they are then."""
        document = json.loads(self.config.read_text())
        self.config.write_text(json.dumps({**document, **sections}))
        workspace, file = load_workspace(str(self.folder), None, {}), approvals_path(str(self.folder))
        approvals = read_approvals(file)
        if approve:
            write_approvals(file, approve_settings(approvals, section_statuses(workspace, approvals)))

    def suite(self, **settings: Any) -> None:
        suite = json.loads(self.config.read_text())["suites"]["notes"]
        self.set(suites={"notes": {**suite, **settings}})

    def add_tools(self, count: int, words: str = "") -> None:
        """Lock so many more tools, which are shown directly."""
        path = lock_path(str(self.folder))
        lock = read_lock(path)
        assert lock is not None
        for number in range(count):
            members = {"description": words, "inputSchema": {"type": "object"}}
            lock.children["notes"].tools[f"tool_{number}"] = locked_tool(f"tool_{number}", members)
        write_lock(path, lock)
        self.suite(expose={"allow": ["*"]}, exposure="direct")

    def metrics(self) -> Metrics:
        return collect(load_workspace(str(self.folder), None, {}, originals=True), Redactor(), {}).metrics

    def report(self) -> EvidenceReport:
        return collect(load_workspace(str(self.folder), None, {}, originals=True), Redactor(), {}).report


def rename_child(checkout: Checkout) -> None:
    document = json.loads(checkout.config.read_text())
    checkout.set(mcpServers={"switchboard_ingestion": document["mcpServers"]["notes"]})


def forget_lock(checkout: Checkout) -> None:
    (checkout.folder / "switchboard.lock.json").unlink()


def no_children(checkout: Checkout) -> None:
    checkout.set(mcpServers={})


FAILING: dict[str, Callable[[Checkout], object]] = {
    "allowedChildren": no_children,
    "mode": lambda checkout: checkout.set(governance={"mode": "open"}),
    "routedWithoutFlag": lambda checkout: checkout.set(governance={"mode": "open"}),
    "unapprovedSections": lambda checkout: checkout.set(approve=False, http={"port": 1}),
    "unpinnedChildren": forget_lock,
    "changedChildren": lambda checkout: checkout.set(approve=False, suites={}),
    "unconfiguredChildren": no_children,
    "unpinnedNames": lambda checkout: checkout.suite(expose={"allow": ["list_notes", "never_there"]}),
    "spawnWarnMs": lambda checkout: checkout.set(health={"spawnWarnMs": 2_001}),
    "spawnFailMs": lambda checkout: checkout.set(health={"spawnFailMs": 600_000}),
    "audit": lambda checkout: checkout.set(governance={"mode": "open"}),
    "auditFailure": lambda checkout: checkout.set(audit={"onError": "warn"}),
    "toolsListBytes": lambda checkout: checkout.add_tools(100, "word " * 200),
    "largestAnswer": lambda checkout: checkout.add_tools(200),
    "summaryMaxChars": lambda checkout: checkout.suite(summaryMaxChars=257),
    "harnessPackage": lambda checkout: checkout.monkeypatch.setattr(
        estimate, "__module__", "tiktoken.core"
    ),
    "unmeasuredSuites": lambda checkout: checkout.suite(expose={"allow": []}),
    "busRequired": lambda checkout: checkout.monkeypatch.setattr(
        collecting, "project_metadata", lambda: (["redis>=5"], "MIT")
    ),
    "busInTheClear": lambda checkout: checkout.set(bus={"url": "redis://redis.example:6379/0"}),
    "busPassword": lambda checkout: checkout.set(bus={"url": "rediss://ada:secret@redis.example"}),
    "package": lambda checkout: checkout.monkeypatch.setattr(collecting, "__name__", "switchboard.collect"),
    "otherPackages": lambda checkout: checkout.monkeypatch.setitem(
        sys.modules, "switchboard", ModuleType("switchboard")
    ),
    "namesakes": rename_child,
    "licence": lambda checkout: checkout.monkeypatch.setattr(collecting, "_licence", lambda: "Proprietary"),
}  # fmt: skip


def new_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    return Checkout(tmp_path.resolve(), monkeypatch)


checkout = pytest.fixture(new_checkout, name="checkout")


def test_every_claim_of_the_example_holds(checkout: Checkout) -> None:
    assert [claim.id for claim in checkout.report().claims if not claim.holds] == []


def test_every_check_has_a_change_that_fails_it() -> None:
    assert set(FAILING) == {rule.fact for row in CLAIMS.values() for rule in row.checks}
    assert all(row.checks for row in CLAIMS.values())


@each_case("fact", FAILING, checkout=new_checkout)
def test_each_check_fails_for_a_workspace_that_breaks_its_limit(checkout: Checkout, fact: str) -> None:
    FAILING[fact](checkout)
    claims = {claim.id: claim for claim in checkout.report().claims}
    for number, row in CLAIMS.items():
        for rule, check in zip(row.checks, claims[number].checks, strict=True):
            if rule.fact == fact:
                assert (check.name, check.limit, check.ok) == (rule.name, rule.limit, False)
                assert check.found != check.limit
                assert not claims[number].holds


@each_case(
    ("health", "holds"),
    [
        ({"spawnWarnMs": 2_000, "spawnFailMs": 5_000}, True),
        ({"spawnWarnMs": 1, "spawnFailMs": 1}, True),
        ({"spawnFailMs": 5_001}, False),
    ],
    checkout=new_checkout,
)
def test_a_limit_itself_is_within_the_limit(checkout: Checkout, health: Json, holds: bool) -> None:
    checkout.set(health=health)
    (claim,) = (claim for claim in checkout.report().claims if claim.id == "ITEM:CLAIM-02")
    assert claim.holds is holds


@each_case(
    ("split", "hints", "suites"),
    [
        (False, {}, 1),
        (True, {"list_*": {"readOnly": True}, "*": {"readOnly": False}}, 2),
        ("auto", {"list_*": {"readOnly": True}, "*": {"readOnly": False}}, 2),
        ("auto", {"*": {"readOnly": True}}, 1),
    ],
    checkout=new_checkout,
)
def test_the_twins_of_a_suite_are_counted_as_hosts_see_them(
    checkout: Checkout, split: object, hints: Json, suites: int
) -> None:
    one = checkout.metrics()
    checkout.suite(split=split, hints=hints)
    measured: Json = {}
    for claim in checkout.report().claims:
        measured |= claim.facts
    assert measured["suites"] == suites
    assert measured["directChildren"] == 0
    assert (checkout.metrics().sizes["toolsList"] > one.sizes["toolsList"]) is (suites == 2)
    assert (checkout.metrics().tokens.suites > one.tokens.suites) is (suites == 2)
    assert checkout.metrics().tokens.flat == one.tokens.flat
