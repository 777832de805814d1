"""The health gate, through real processes: a child that is not well gets no calls, and everybody is told."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.e2e import shell
from tests.e2e.host import Host, Json, switchboard
from tests.e2e.web import serving
from tests.e2e.workspaces import add_child, configure, faulty, scripted
from tests.patience import PATIENCE_S

# Stuck in one call until a file appears; a child with one thread, as many are.
STUCK = """
    import os, time

    class Stuck(Child):
        tools = ("echo", "hang")

        def call(self, request_id, params, line):
            while params["name"] == "hang" and not os.path.exists(sys.argv[1]):
                time.sleep(0.01)
            super().call(request_id, params, line)

    Stuck().serve()
"""


def until_told(host: Host, code: str, **arguments: object) -> Json:
    """Call until the structured error is of this kind."""
    seen: list[str] = []
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        result = host.use("kid_suite", **arguments)
        told: Json = result.get("structuredContent", {}).get("error", {"code": "none"})
        seen.append(told["code"])
        if told["code"] == code:
            return told
    raise AssertionError(f"never {code}: {set(seen)}")


def test_health_check_gate_unhealthy_child_prevents_routing(workspace: Path) -> None:
    """Acceptance test 4 of the Summit Switchboard (MCP) standard, and the way back."""
    freed = workspace / "freed"
    add_child(workspace, "kid", [*scripted(STUCK), str(freed)])
    configure(
        workspace,
        {"suites": {"kid": {"rpcMs": 400}}, "health": {"probeMs": 300, "failures": 1000, "successes": 2}},
    )
    with switchboard(workspace) as host:
        host.initialize()
        assert host.call("kid_suite", "echo", message="well")["content"][0]["text"] == "well"
        assert host.failure("kid_suite", action="call", subtool="hang")["code"] == "child_timeout"
        told = until_told(host, "child_unhealthy", action="call", subtool="echo", args={})
        assert told["child"] == "kid"
        assert told["retryable"] is True
        assert 0 < told["retryAfterMs"] <= 300
        freed.touch()
        until_told(host, "none", action="call", subtool="echo", args={"message": "again"})


def test_a_child_that_stays_stuck_is_stopped_and_the_next_one_serves(workspace: Path) -> None:
    add_child(workspace, "kid", [*scripted(STUCK), str(workspace / "never")])
    health = {"probeMs": 100, "failures": 2, "quarantineMs": 500}
    configure(workspace, {"suites": {"kid": {"rpcMs": 400}}, "health": health})
    with switchboard(workspace) as host:
        host.initialize()
        host.failure("kid_suite", action="call", subtool="hang")
        told = until_told(host, "child_quarantined", action="call", subtool="echo", args={})
        assert 0 < told["retryAfterMs"] <= 500
        until_told(host, "none", action="call", subtool="echo", args={"message": "new"})


def test_spawn_time_warn_and_fail_of_the_health_gate(workspace: Path) -> None:
    """The standard's budget for a start: a warning, then the gate. Here with shorter times."""
    add_child(workspace, "kid", faulty("slow-start", "30"))
    configure(workspace, {"health": {"spawnWarnMs": 100, "spawnFailMs": 600}})
    with switchboard(workspace) as host:
        host.initialize()
        told = host.failure("kid_suite", action="call", subtool="echo")
        assert told["code"] == "child_start_timeout"
        assert "0.6 s" in told["message"]
        assert "health.spawnFailMs" in told["hint"]
        assert "child.start_slow" in host.stderr


def test_a_slow_start_is_told_and_goes_on_where_the_gate_allows_it(workspace: Path) -> None:
    add_child(workspace, "kid", faulty("slow-start", "0.5"))
    configure(workspace, {"health": {"spawnWarnMs": 50}})
    with switchboard(workspace) as host:
        host.initialize()
        assert host.call("kid_suite", "echo", message="there")["content"][0]["text"] == "there"
        assert "child.start_slow" in host.stderr


def status(workspace: Path, *arguments: str) -> tuple[int, Json]:
    """`switchboard status --json`."""
    ran = shell.run(workspace, "status", "--json", *arguments)
    told: Json = json.loads(ran.stdout)
    return ran.returncode, told


def test_status_without_a_server_shows_what_is_configured_and_starts_nothing(workspace: Path) -> None:
    add_child(workspace, "kid", scripted(f"open({str(workspace / 'started')!r}, 'w'); Child().serve()"))
    code, told = status(workspace)
    assert code == 0
    assert told["server"] is None
    (kid,) = told["children"]
    assert (kid["suite"], kid["state"], kid["health"]) == ("kid_suite", "configured", "untried")
    assert "subtools" not in kid
    assert not (workspace / "started").exists()


def test_status_and_doctor_tell_of_an_unhealthy_child_of_the_server_that_runs(workspace: Path) -> None:
    add_child(workspace, "kid", [*scripted(STUCK), str(workspace / "never")])
    configure(workspace, {"suites": {"kid": {"rpcMs": 400}}, "health": {"probeMs": 200, "failures": 10_000}})
    with serving(workspace) as web:
        assert web.ask("GET", "/status", None, {"Authorization": None}).status == 401
        session = web.initialize()
        hang = {"name": "kid_suite", "arguments": {"action": "call", "subtool": "hang"}}
        assert session.result("tools/call", hang)["isError"] is True
        end = time.monotonic() + PATIENCE_S
        while (found := status(workspace))[0] == 0:
            assert time.monotonic() < end
        _, told = found
        assert told["server"]["pid"] == web.process.pid
        (kid,) = told["children"]
        assert (kid["health"], kid["lastFailure"]["code"]) == ("unhealthy", "child_unhealthy")
        assert kid["pid"] > 0
        assert kid["subtools"] == 2
        shown = shell.run(workspace, "status")
        assert "unhealthy" in shown.stdout
        doctor = shell.run(workspace, "doctor")
        assert doctor.returncode == 1
        assert "sends no calls to child 'kid': it is unhealthy" in doctor.stdout
