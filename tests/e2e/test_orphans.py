"""No process is left behind, whatever the children are like and however it ends.

Six kinds of children live under one Switchboard; for each way to end there is one run.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.e2e.host import SWITCHBOARD, Host
from tests.e2e.stress import (
    PLAIN,
    alive,
    launchers,
    processes_of,
    reapers,
    recorded,
    serves_again,
    survivors,
    tree,
    until,
)
from tests.e2e.workspaces import add_child, configure, faulty

pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups")
SHELL = shlex.join(PLAIN)


def commands(folder: Path) -> dict[str, list[str]]:
    """The kinds of children."""
    return {
        "plain": PLAIN,
        # A shell gives a job in the background no stdin of its own accord.
        "background": ["sh", "-c", f"exec 3<&0; {SHELL} <&3 & wait"],
        "chain": ["sh", "-c", f"sh -c {shlex.quote(f'{SHELL}; true')}; true"],
        "detached": faulty("detaches", str(folder / "detached.pid")),
        "deaf": faulty("deaf"),
        "daemon": faulty("detaches", str(folder / "daemon.pid"), "twice", "clean", "deaf"),
    }


KINDS = tuple(commands(Path()))


def serve(folder: Path) -> Host:
    """A Switchboard with a group of its own and every kind of child."""
    for name, command in commands(folder).items():
        add_child(folder, name, command)
    return Host(["setsid", *SWITCHBOARD], cwd=folder)


def families(host: Host, folder: Path) -> dict[str, list[psutil.Process]]:
    """Everybody beneath the reaper of each child, by the child's name; the reaper comes first."""
    found: dict[str, list[psutil.Process]] = {}
    order = {" ".join(command): name for name, command in commands(folder).items()}
    for reaper in reapers(host.process.pid):
        beneath = reaper.children(recursive=True)
        name = next(order[line] for line in (" ".join(p.cmdline()) for p in beneath) if line in order)
        found[name] = [reaper, *beneath]
    return found


def call_all(host: Host) -> None:
    ids = {
        name: host.ask(
            "tools/call",
            {
                "name": f"{name}_suite",
                "arguments": {"action": "call", "subtool": "echo", "args": {"message": name}},
            },
        )
        for name in KINDS
    }
    for name, id in ids.items():
        assert host.answer(id)["result"]["content"][0]["text"] == name


def closes_stdin(host: Host) -> None:
    host.hang_up()
    assert host.wait() == 0


def signals(number: signal.Signals) -> Callable[[Host], None]:
    def end(host: Host) -> None:
        host.process.send_signal(number)
        assert host.wait() == (-number if number is signal.SIGKILL else 0)

    return end


def kills_group(host: Host) -> None:
    os.killpg(host.process.pid, signal.SIGKILL)
    host.wait()


def kills_launcher(host: Host) -> None:
    """Who is served goes on being served, and a host that goes still ends them all."""
    (launcher,) = launchers(host.process.pid)
    launcher.kill()
    call_all(host)
    closes_stdin(host)


def kills_reapers(host: Host) -> None:
    """Switchboard lives on, and starts the children anew when they are called."""
    ended = reapers(host.process.pid)
    beneath = [process for reaper in ended for process in tree(reaper.pid)]
    for reaper in ended:
        reaper.kill()
    assert survivors(beneath) == []
    for name in KINDS:
        serves_again(host, f"{name}_suite")
    everybody = processes_of(host)
    closes_stdin(host)
    assert survivors(everybody) == []


ENDINGS: dict[str, Callable[[Host], None]] = {
    "host closes stdin": closes_stdin,
    "SIGTERM": signals(signal.SIGTERM),
    "SIGINT": signals(signal.SIGINT),
    "SIGKILL": signals(signal.SIGKILL),
    "SIGKILL of the group": kills_group,
    "SIGKILL of the launcher": kills_launcher,
    "SIGKILL of the reapers": kills_reapers,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_nobody_survives(tmp_path: Path, ending: str) -> None:
    with serve(tmp_path) as host:
        host.initialize()
        call_all(host)
        everybody = processes_of(host)
        by_kind = families(host, tmp_path)
        for name in ("detached", "daemon"):
            pids = recorded(tmp_path / f"{name}.pid")
            assert set(pids) <= {process.pid for process in by_kind[name]}, "the reaper has lost a daemon"
        ENDINGS[ending](host)
        left = {name: survivors(by_kind[name]) for name in KINDS}
        assert left == {name: [] for name in KINDS}
        assert survivors(everybody) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_child_that_is_still_starting_goes_too(workspace: Path, number: signal.Signals) -> None:
    pids = workspace / "pids"
    add_child(workspace, "slow", faulty("never-answers"), env={"FAULTY_PIDS": str(pids)})
    with Host(SWITCHBOARD, cwd=workspace) as host:
        host.initialize()
        host.ask("tools/call", {"name": "slow_suite", "arguments": {"action": "introspect"}})
        until(lambda: recorded(pids), "the child has started")
        everybody = processes_of(host)
        signals(number)(host)
        assert survivors(everybody) == []


def test_a_host_that_dies_while_a_child_is_starting_leaves_nobody(workspace: Path) -> None:
    pids = workspace / "pids"
    add_child(workspace, "slow", faulty("never-answers"), env={"FAULTY_PIDS": str(pids)})
    with Host(SWITCHBOARD, cwd=workspace) as host:
        host.initialize()
        host.ask("tools/call", {"name": "slow_suite", "arguments": {"action": "introspect"}})
        until(lambda: recorded(pids), "the child has started")
        everybody = processes_of(host)
        assert host.process.stdout is not None
        host.process.stdout.close()
        host.hang_up()
        assert host.wait() == 0
        assert survivors(everybody) == []


def test_a_launcher_that_hangs_does_not_keep_switchboard_from_ending(workspace: Path) -> None:
    add_child(workspace, "plain", PLAIN)
    add_child(workspace, "other", PLAIN)
    with Host(SWITCHBOARD, cwd=workspace) as host:
        host.initialize()
        host.call("plain_suite", "echo", message="x")
        everybody = processes_of(host)
        (launcher,) = launchers(host.process.pid)
        launcher.suspend()
        host.ask("tools/call", {"name": "other_suite", "arguments": {"action": "introspect"}})
        host.request("ping")
        signals(signal.SIGTERM)(host)
        assert survivors(everybody) == []


def test_reapers_need_no_launcher_when_switchboard_is_killed(workspace: Path) -> None:
    add_child(workspace, "daemon", faulty("detaches", str(workspace / "pid"), "twice", "clean", "deaf"))
    with Host(SWITCHBOARD, cwd=workspace) as host:
        host.initialize()
        host.call("daemon_suite", "echo", message="x")
        everybody = processes_of(host)
        (launcher,) = launchers(host.process.pid)
        launcher.kill()
        host.process.kill()
        assert survivors(everybody) == []


def test_without_launcher_and_reaper_the_child_is_still_ended(workspace: Path) -> None:
    add_child(workspace, "deaf", faulty("deaf"))
    with Host(SWITCHBOARD, cwd=workspace) as host:
        host.initialize()
        host.call("deaf_suite", "echo", message="x")
        everybody = tree(host.process.pid)
        (launcher,), (reaper,) = launchers(host.process.pid), reapers(host.process.pid)
        launcher.suspend()  # so that it cannot do the reaper's work
        reaper.kill()
        launcher.kill()
        assert survivors(everybody) == []
        serves_again(host, "deaf_suite")


def test_what_a_child_leaves_when_it_crashes_is_ended_while_switchboard_serves_on(workspace: Path) -> None:
    pid_file = workspace / "pid"
    add_child(workspace, "detached", faulty("detaches", str(pid_file), "twice", "clean"))
    add_child(workspace, "plain", PLAIN)
    with Host(SWITCHBOARD, cwd=workspace) as host:
        host.initialize()
        host.call("detached_suite", "echo", message="x")
        (daemon,) = [psutil.Process(pid) for pid in recorded(pid_file)]
        (reaper,) = reapers(host.process.pid)
        (child,) = [process for process in reaper.children() if process.pid != daemon.pid]
        child.kill()
        assert survivors([daemon, reaper]) == []
        assert host.call("plain_suite", "echo", message="y")["content"][0]["text"] == "y"


def test_what_a_child_leaves_when_it_is_idle_is_ended_too(workspace: Path) -> None:
    pid_file = workspace / "pid"
    add_child(workspace, "detached", faulty("detaches", str(pid_file)))
    configure(workspace, {"timeouts": {"idleMs": 400}})
    with Host(SWITCHBOARD, cwd=workspace) as host:
        host.initialize()
        host.call("detached_suite", "echo", message="x")
        beneath = [process for reaper in reapers(host.process.pid) for process in (reaper, *tree(reaper.pid))]
        assert {process.pid for process in beneath} >= set(recorded(pid_file))
        assert survivors(beneath) == []
        assert [process.pid for process in alive(launchers(host.process.pid))] != []
