"""`switchboard bus` as somebody uses it who has to mend things, and the events that other programs read."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from redis import Redis

from switchboard_mcp.observability.audit.verification import entries
from tests.e2e.busmachine import Machine, until
from tests.e2e.governed import ON
from tests.e2e.host import SWITCHBOARD, switchboard
from tests.e2e.redisserver import RedisServer, needs_redis

pytestmark = needs_redis


def test_tail_follows_a_stream_while_it_grows(redis: RedisServer, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "one", redis.url)
    machine.run("mail", "agents", "add", "ada")
    command = [*SWITCHBOARD, "bus", "tail", "--follow", "--json"]
    command += ["--workspace", str(machine.folder)]
    with (
        machine.relay(),
        subprocess.Popen(command, env=machine.env, stdout=subprocess.PIPE, text=True) as tail,
    ):
        assert tail.stdout is not None
        for number in range(2):
            sent = machine.ask("mail", "send", "ada", f"note {number}", "--as", "ada")["sent"][0]["id"]
            told = json.loads(json.loads(tail.stdout.readline())["event"])
            assert (told["kind"], told["subject"], told["outcome"]) == ("message", sent, "delivered")
        tail.kill()


def test_all_that_is_recorded_and_every_phase_of_a_workflow_is_told_to_whoever_reads_the_stream(
    redis: RedisServer, tmp_path: Path
) -> None:
    machine = Machine(tmp_path / "one", redis.url)
    machine.env |= ON
    govern(machine)
    machine.run("mail", "agents", "add", "ada")
    machine.run("mail", "agents", "add", "bob")
    machine.run("approve", "kid", "--yes")
    machine.run("lock")
    with switchboard(machine.folder, env=machine.env) as host:
        host.initialize()
        host.call("kid_suite", "echo", message="a word of mine")
        host.failure("stranger_suite", action="call", subtool="echo")
        host.failure("kid_suite", action="call", subtool="hang")
        until(lambda: "quarantined" in outcomes(machine, "child"))
        parts = ("--part", "author=ada", "--part", "reviewer=bob")
        begun = machine.ask("mail", "workflow", "start", "review", *parts, "--as", "ada")
        machine.run("mail", "workflow", "stop", "--reason", "enough", "--as", "ada")
    (machine.folder / "kid.py.words").write_text("Says it again, and tells nobody.")
    with switchboard(machine.folder, env=machine.env) as host:
        host.initialize()
        host.failure("kid_suite", action="call", subtool="echo")
    with machine.relay():
        until(lambda: Counter(recorded(machine)) == Counter(from_record(machine)))
    assert from_record(machine) == recorded(machine)
    told = {(kind, outcome) for kind, _, _, outcome, _ in from_record(machine)}
    assert {("approval", "approved"), ("child", "started"), ("call", "ok")} <= told
    assert {("child", "quarantined"), ("drift", "blocked"), ("decision", "child_not_allowed")} <= told
    phases = [
        (event["phase"], event["outcome"])
        for event in machine.events()
        if event["kind"] == "workflow" and event["subject"] == begun["workflow"]
    ]
    assert phases == [("submit", "running"), ("submit", "stopped")]
    assert "a word of mine" not in json.dumps(machine.tail("events"))
    shared_out(redis, len(machine.events()))


def govern(machine: Machine) -> None:
    server = machine.kid()
    config = {
        "governance": {"mode": "governed"},
        "mail": {"enabled": True},
        "mcpServers": {"kid": server, "stranger": server},
        "suites": {"kid": {"expose": {"allow": ["*"]}, "rpcMs": 300}},
        "health": {"probeMs": 100, "failures": 1},
    }
    (machine.folder / "switchboard.config.json").write_text(json.dumps(config))
    machine.run("approve", "--settings", "--yes")


def recorded(machine: Machine) -> list[tuple[str, str, str, str, str]]:
    """The audit record."""
    return [
        (entry.kind, entry.child, entry.subtool, entry.outcome, entry.args)
        for entry in entries(str(machine.folder / ".switchboard" / "audit"))
        if entry.kind not in ("begin", "torn")
    ]


def outcomes(machine: Machine, kind: str) -> list[str]:
    return [outcome for found, _, _, outcome, _ in recorded(machine) if found == kind]


def from_record(machine: Machine) -> list[tuple[str, str, str, str, str]]:
    """The same, as the stream tells it."""
    names = ("kind", "child", "subtool", "outcome", "args")
    return [
        tuple(event.get(name, "") for name in names) for event in machine.events() if "/audit/" in event["id"]
    ]


def shared_out(redis: RedisServer, count: int) -> None:
    """Two programs of one group share the events, and another group has them all."""
    client: Any = Redis.from_url(redis.url)
    stream = "{switchboard}:events"
    seen: Counter[bytes] = Counter()
    for group, consumers in (("alarm", ("one", "two")), ("archive", ("three",))):
        client.xgroup_create(stream, group, id="0")
        turn = 0
        while told := client.xreadgroup(group, consumers[turn % len(consumers)], {stream: ">"}, count=3):
            found = next(iter(told.values()))[0] if isinstance(told, dict) else told[0][1]
            seen.update(id for id, _ in found)
            client.xack(stream, group, *(id for id, _ in found))
            turn += 1
        assert client.xpending(stream, group)["pending"] == 0
    assert len(seen) == count
    assert set(seen.values()) == {2}
    client.close()
