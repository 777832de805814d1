"""Events over Redis with mail off: what a server does is published over stdio and HTTP, now or when Redis is back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.busmachine import Machine, until
from tests.e2e.governed import ON
from tests.e2e.host import switchboard
from tests.e2e.redisserver import RedisServer, needs_redis
from tests.e2e.web import call, serving

pytestmark = needs_redis


def quiet_machine(folder: Path, url: str, **config: object) -> Machine:
    """A machine without mail whose child can be called."""
    machine = Machine(folder, url)
    server = machine.kid()
    settings: dict[str, Any] = {
        "mcpServers": {"kid": server},
        "suites": {"kid": {"expose": {"deny": ["secret_*"]}, "rpcMs": 300}},
        "health": {"probeMs": 100, "failures": 1},
        **config,
    }
    (machine.folder / "switchboard.config.json").write_text(json.dumps(settings))
    return machine


def seen(machine: Machine) -> set[tuple[str, str, str]]:
    """What was published, as kind, child and outcome."""
    return {(event["kind"], event.get("child", ""), event["outcome"]) for event in machine.events()}


def test_calls_refusals_and_the_states_of_children_are_published_over_stdio_though_mail_is_off(
    redis: RedisServer, tmp_path: Path
) -> None:
    machine = quiet_machine(tmp_path / "one", redis.url)
    with switchboard(machine.folder, env=machine.env) as host:
        host.initialize()
        host.call("kid_suite", "echo", message="a word of mine")
        host.failure("kid_suite", action="call", subtool="secret_door")
        host.failure("kid_suite", action="call", subtool="hang")
        wanted = {("call", "kid", "ok"), ("child", "kid", "started"), ("child", "kid", "quarantined")}
        until(lambda: wanted <= seen(machine))
        until(lambda: any(kind == "decision" for kind, _, _ in seen(machine)))
        until(lambda: machine.ask("bus", "status")["events"]["published"] >= 4)
        status = machine.ask("bus", "status")
        assert status["problem"] is None
        assert status["relay"]["mail"] is False
        assert "only events are published" in machine.run("bus", "status").stdout
    assert "a word of mine" not in json.dumps(machine.tail("events"))
    assert not (machine.folder / ".switchboard" / "inbox").exists()


def test_the_status_says_that_nothing_is_published_and_how_much_waits(
    redis: RedisServer, tmp_path: Path
) -> None:
    machine = quiet_machine(tmp_path / "one", redis.url)
    # A command that runs a child, and no server.
    assert machine.run("call", "kid", "echo", "message=hi").returncode == 0
    status = machine.run("bus", "status")
    assert status.returncode == 1
    assert "no publisher has run here yet: nothing is published" in status.stdout
    assert machine.ask("bus", "status")["events"]["waiting"] >= 2


def test_the_same_is_published_over_http(redis: RedisServer, tmp_path: Path) -> None:
    machine = quiet_machine(tmp_path / "one", redis.url)
    with serving(machine.folder, env=machine.env) as web:
        web.initialize().result("tools/call", call("echo", "hi", suite="kid_suite"))
        until(lambda: {("call", "kid", "ok"), ("child", "kid", "started")} <= seen(machine))
        assert web.ask("GET", "/health").json["bus"]["state"] == "connected"


def test_approvals_and_drift_are_published_in_governed_mode_without_mail(
    redis: RedisServer, tmp_path: Path
) -> None:
    machine = quiet_machine(
        tmp_path / "one",
        redis.url,
        governance={"mode": "governed"},
        suites={"kid": {"expose": {"allow": ["*"]}}},
    )
    machine.env |= ON
    machine.run("approve", "--settings", "--yes")
    machine.run("approve", "kid", "--yes")
    machine.run("lock")
    (machine.folder / "kid.py.words").write_text("Says it again, and tells nobody.")
    with switchboard(machine.folder, env=machine.env) as host:
        host.initialize()
        host.failure("kid_suite", action="call", subtool="echo")
        until(lambda: {("approval", "kid", "approved"), ("drift", "kid", "blocked")} <= seen(machine))


def test_what_happened_while_redis_was_away_is_published_when_it_is_back_even_by_a_later_server(
    redis: RedisServer, tmp_path: Path
) -> None:
    machine = quiet_machine(tmp_path / "one", redis.url)
    redis.kill()
    with switchboard(machine.folder, env=machine.env) as host:
        host.initialize()
        for number in range(5):
            host.call("kid_suite", "echo", message=str(number))
        until(lambda: (status := machine.status()) is not None and status.state == "away")
        until(lambda: machine.ask("bus", "status")["events"]["waiting"] >= 6)
        assert "cannot be used" in machine.run("bus", "status").stdout
        until(lambda: "bus.away" in host.stderr)
    redis.start()
    with switchboard(machine.folder, env=machine.env) as host:
        host.initialize()
        until(lambda: sum(event["kind"] == "call" for event in machine.events()) == 5)
        until(lambda: machine.ask("bus", "status")["events"]["waiting"] == 0)
    ids = [event["id"] for event in machine.events()]
    assert len(ids) == len(set(ids))


def test_a_workspace_without_a_bus_keeps_no_events(tmp_path: Path) -> None:
    machine = quiet_machine(tmp_path / "one", "")
    with switchboard(machine.folder, env=machine.env) as host:
        host.initialize()
        host.call("kid_suite", "echo", message="hi")
    assert not (machine.folder / ".switchboard" / "bus").exists()


def test_a_relay_that_cannot_start_is_named_in_the_log(tmp_path: Path) -> None:
    machine = quiet_machine(tmp_path / "one", "http://nowhere")
    with switchboard(machine.folder, env=machine.env) as host:
        host.initialize()
        until(lambda: "no events are published" in host.stderr)
