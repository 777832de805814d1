"""A start above the limit of the health gate: shown, and an exception of one child if a person accepts it."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from switchboard_mcp.children.locking.lock_file import merge
from switchboard_mcp.children.locking.pinning import Pins
from switchboard_mcp.cli.governance.lock import (
    CurrentTools,
    LockReport,
    add_start_remarks,
    approve_slow_starts,
    slow_starts,
)
from switchboard_mcp.config.files.lock_models import LockedChild, LockFile
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import ChildSpec, Config
from switchboard_mcp.config.sections import GovernanceSettings
from switchboard_mcp.observability.log import Log

HASH = "sha256:" + "0" * 64


def entry() -> LockedChild:
    return LockedChild(launch=HASH, instructions_hash=HASH)


def test_a_slow_start_is_shown_and_becomes_an_exception_if_it_is_accepted(tmp_path: Path) -> None:
    governed = structs.replace(
        load_workspace(str(tmp_path), None, {}), config=Config(governance=GovernanceSettings(mode="governed"))
    )
    current = {
        "slow": CurrentTools(entry(), start_ms=8_000),
        "refused": CurrentTools(entry(), start_ms=6_000),
        "quick": CurrentTools(entry(), start_ms=400),
    }
    slow = slow_starts(governed, current)
    assert slow == ["slow", "refused"]
    assert slow_starts(load_workspace(str(tmp_path), None, {}), current) == []
    approve_slow_starts(current, ["slow"])
    reports = [LockReport(child=name, status="locked") for name in current]
    add_start_remarks(reports, current, slow)
    said = {report.child: " ".join(report.remarks) for report in reports}
    assert "16.0 s now" in said["slow"]
    assert "switchboard lock --accept refused" in said["refused"]
    assert not said["quick"]
    children = {name: child.entry for name, child in current.items() if child.entry is not None}
    again = merge(children["slow"], entry())  # locked once more, without another decision
    lock = LockFile(schema_version=1, children={**children, "slow": again})
    pins = Pins(lock, str(tmp_path), Log(write=lambda line: True), governed=True)
    limits = {
        name: pin.start_limit_s
        for name in current
        if (pin := pins.pin_for(ChildSpec(name=name, source=str(tmp_path)))) is not None
    }
    assert limits == {"slow": 16.0, "refused": 0.0, "quick": 0.0}
