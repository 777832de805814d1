"""A child that stops, traces or kills the processes that would end it still leaves nobody behind."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.host import SWITCHBOARD, Host
from tests.e2e.stress import alive, processes_of, recorded, survivors, until
from tests.e2e.workspaces import PYTHON, REPO, add_child
from tests.processes import lives, living

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="subreapers")
HOSTILE = [*PYTHON, str(REPO / "tests" / "children" / "hostile.py")]


def hangs_up(host: Host) -> None:
    host.hang_up()
    assert host.wait() == 0


def terminates(host: Host) -> None:
    host.process.terminate()
    assert host.wait() == 0


def is_killed(host: Host) -> None:
    host.process.send_signal(signal.SIGKILL)
    assert host.wait() == -signal.SIGKILL


ENDINGS: dict[str, Callable[[Host], None]] = {
    "host closes stdin": hangs_up,
    "SIGTERM": terminates,
    "SIGKILL": is_killed,
}
ATTACKS = [
    f"{verb} {target}"
    for verb in ("stops", "keeps-stopping", "traces", "kills")
    for target in ("reaper", "launcher", "both")
]
# Each attack and each ending at least once; the others are in `make soak`.
QUICK = {
    ("stops both", "SIGTERM"),
    ("stops reaper", "SIGKILL"),
    ("keeps-stopping both", "host closes stdin"),
    ("traces both", "SIGTERM"),
    ("kills reaper", "SIGKILL"),
    ("kills launcher", "SIGTERM"),
    ("kills both", "host closes stdin"),
}
# With Switchboard killed in the same moment, nobody is left who could act: docs/adr/0003-reapers.md says so.
# A process without CAP_SYS_PTRACE cannot trace them: tests/unit/transport/process.
NOT_COVERED = {(f"{verb} both", "SIGKILL") for verb in ("keeps-stopping", "traces", "kills")}


def attacked(workspace: Path) -> bool:
    """Return True after the attack; a child that kills its reaper may be ended before it can say so."""
    pids = recorded(workspace / "pid")
    return (workspace / "done").exists() or (bool(pids) and not any(map(lives, pids)))


@pytest.mark.parametrize(
    ("attack", "ending"),
    [
        pytest.param(attack, ending, marks=() if (attack, ending) in QUICK else pytest.mark.soak("crashes"))
        for attack in ATTACKS
        for ending in ENDINGS
        if (attack, ending) not in NOT_COVERED
    ],
)
def test_a_child_that_attacks_its_reaper_leaves_nobody(workspace: Path, attack: str, ending: str) -> None:
    add_child(workspace, "hostile", [*HOSTILE, attack, str(workspace)])
    with Host(SWITCHBOARD, cwd=workspace) as host:
        host.initialize()
        assert host.call("hostile_suite", "echo", message="x")["content"][0]["text"] == "x"
        everybody = processes_of(host)
        assert set(recorded(workspace / "pid")) <= {process.pid for process in everybody}
        (workspace / "go").touch()
        until(lambda: attacked(workspace), "the attack")
        ENDINGS[ending](host)
        assert survivors(everybody) == []


@pytest.mark.parametrize(
    "attack", [pytest.param("kills reaper", marks=pytest.mark.soak("crashes")), "kills both"]
)
def test_what_a_child_left_is_ended_while_switchboard_serves_on(workspace: Path, attack: str) -> None:
    add_child(workspace, "hostile", [*HOSTILE, attack, str(workspace)])
    with Host(SWITCHBOARD, cwd=workspace) as host:
        host.initialize()
        host.call("hostile_suite", "echo", message="x")
        beneath = processes_of(host)[1:]
        (workspace / "go").touch()
        until(lambda: attacked(workspace), "the attack")
        assert survivors(living(recorded(workspace / "pid"))) == []
        if attack == "kills both":
            assert survivors(beneath) == []
        (workspace / "go").unlink()
        until(lambda: not host.call("hostile_suite", "echo", message="y").get("isError"), "it serves again")
        everybody = processes_of(host)
        hangs_up(host)
        assert survivors(everybody) == []
        assert alive(everybody) == []
