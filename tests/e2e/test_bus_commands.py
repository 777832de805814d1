"""`switchboard bus` as somebody uses it who has to mend things, and the events that other programs read."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from redis import Redis

from switchboard_mcp.observability.audit.verification import entries
from tests.e2e.busmachine import Machine, until
from tests.e2e.governed import ON
from tests.e2e.host import SWITCHBOARD, switchboard
from tests.e2e.redisserver import RedisServer, needs_redis

pytestmark = needs_redis


def test_a_dead_letter_is_seen_with_its_reason_and_sent_again_by_its_id(
    redis: RedisServer, tmp_path: Path
) -> None:
    near, far = (Machine(tmp_path / name, redis.url) for name in ("near", "far"))
    near.run("mail", "agents", "add", "ada")
    near.run("mail", "agents", "role", "ada", "lead", "--as", "ada")
    # bob is a terminal that lets nobody type.
    far.register("bob", kind="terminal", bridge=True)
    bridge = far.folder / ".switchboard" / "bridge.json"
    terminal = {"pid": os.getpid(), "socket": "", "allowExecute": False}
    bridge.write_text(json.dumps({"version": 1, "terminals": {"bob": terminal}}))
    with near.relay(), far.relay():
        until(lambda: near.knows("bob") and near.agent("bob").get("bridge") is True)
        until(lambda: far.agent("ada").get("role") == "lead")
        for text in ("ls", "pwd"):
            near.run("mail", "send", "bob", text, "--action", "execute", "--as", "ada")
        until(lambda: len(near.tail("dead")) == 2)
        shown = near.run("bus", "tail", "--stream", "dead", "--json").stdout.splitlines()
        dead = [json.loads(line) for line in shown]
        assert [json.loads(each["message"])["payload"] for each in dead] == ["ls", "pwd"]
        assert {each["reason"] for each in dead} == {
            "Terminal 'bob' was started without --allow-execute, so nothing can be typed into it."
        }
        assert "2 dead letters" in near.run("bus", "status").stdout
        bridge.write_text(
            json.dumps({"version": 1, "terminals": {"bob": {**terminal, "allowExecute": True}}})
        )
        wrong = near.run("bus", "replay", "1-1")
        assert wrong.returncode == 1
        assert "no dead letter 1-1" in wrong.stderr
        assert near.ask("bus", "replay", dead[1]["id"]) == {"count": 1}
        until(lambda: far.waiting("bob") == ["pwd"])
        assert [each["entry"] for each in near.tail("dead")] == [dead[0]["id"]]
        # From any machine, and all that are left.
        assert "1 dead letter sent again" in far.run("bus", "replay").stdout
        until(lambda: far.waiting("bob") == ["pwd", "ls"])
        assert near.tail("dead") == []


def test_replaying_ends_though_what_is_sent_again_dies_again(redis: RedisServer, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "one", redis.url)
    with machine.relay():
        until(lambda: (status := machine.status()) is not None and status.state == "connected")
        status = machine.status()
        assert status is not None
        client: Any = Redis.from_url(redis.url)
        with client, client.pipeline() as pipe:
            for _ in range(600):
                letter = {"kind": "letter", "from": "4ee06bf53968", "message": "{}", "to": status.node}
                pipe.xadd("{switchboard}:dead", letter)
            pipe.execute()
        assert machine.ask("bus", "replay") == {"count": 600}
        until(lambda: len(machine.tail("dead")) == 600)


def test_what_was_shipped_to_a_machine_that_never_comes_back_goes_to_where_its_reader_lives_now(
    redis: RedisServer, tmp_path: Path
) -> None:
    near, lost, new = (Machine(tmp_path / name, redis.url) for name in ("near", "lost", "new"))
    near.run("mail", "agents", "add", "ada")
    lost.run("mail", "agents", "add", "bob")
    with near.relay():
        with lost.relay():
            until(lambda: near.knows("bob") and lost.status() is not None)
        near.run("mail", "send", "bob", "are you there?", "--as", "ada")
        until(lambda: any((near.folder / ".switchboard" / "shipped" / "bob").glob("*.json")))
        status = lost.status()
        assert status is not None
        again = ("bus", "replay", "--node", status.node)
        busy = near.run(*again)
        assert busy.returncode == 1
        assert "already" in busy.stderr
    assert near.ask(*again) == {"count": 1}
    assert "0 messages taken back" in near.run(*again).stdout
    # Its reader has to live elsewhere first, or it would go the same way again.
    new.run("mail", "agents", "add", "bob")
    with ExitStack() as stack:
        stack.enter_context(new.relay())
        until(lambda: (status := new.status()) is not None and status.agents == 1)
        stack.enter_context(near.relay())
        until(lambda: new.waiting("bob") == ["are you there?"])


def test_tail_follows_a_stream_while_it_grows(redis: RedisServer, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "one", redis.url)
    machine.run("mail", "agents", "add", "ada")
    command = [*SWITCHBOARD, "bus", "tail", "--stream", "events", "--follow", "--json"]
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
