"""Whatever others write into Redis, messages between machines still arrive, and the relays live."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from tests.e2e.busmachine import Machine, until
from tests.e2e.redisserver import RedisServer, needs_redis
from tests.fuzz.driver import fuzz
from tests.fuzz.grammar import encoded, mutated, near, sometimes, texts

pytestmark = [needs_redis, pytest.mark.soak("fuzz")]
PREFIX = "{switchboard}:"
HASHES = ("agents", "teams", "workflows", "nodes", "names")

value = encoded(
    sometimes(
        {"revision": near(1, -1), "value": near({"name": "x", "role": "lead"}), "node": texts, "at": near(1)}
    )
)
# The names of the real agents are theirs: who may write to Redis at all can redirect them.
names = st.text(max_size=8).filter(lambda name: name not in ("ada", "bob"))
fields = st.dictionaries(
    st.sampled_from(["kind", "message", "seq", "from", "to", "link", "body", "receipt", "x"]),
    value | mutated(value) | st.sampled_from([b"message", b"receipt", b"1", b"-1", b""]),
    min_size=1,
    max_size=5,
)
entries = st.one_of(
    st.tuples(st.sampled_from(HASHES), names, value | mutated(value) | st.binary(max_size=50)),
    st.tuples(st.just("in"), st.sampled_from(["near", "far"]), fields),
    st.tuples(st.just("changes"), st.just(""), fields),
)


class Bus(NamedTuple):
    near: Machine
    far: Machine
    relays: list[subprocess.Popen[str]]
    redis: Any
    sent: list[str]


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    folder = Path(tmp_path_factory.mktemp("fuzz"))
    server = RedisServer(folder / "redis")
    server.start()
    try:
        machines = [Machine(folder / name, server.url) for name in ("near", "far")]
        for machine, agent in zip(machines, ("ada", "bob"), strict=True):
            machine.register(agent)
        with ExitStack() as running, Redis.from_url(server.url) as client:
            relays = [running.enter_context(machine.relay()) for machine in machines]
            until(lambda: machines[0].knows("bob"))
            yield Bus(machines[0], machines[1], relays, client, [])
    finally:
        server.kill()


@fuzz(4)
@given(st.lists(entries, min_size=1, max_size=6))
def test_others_can_write_anything_into_redis(bus: Bus, written: list[Any]) -> None:
    nodes = sorted(key.decode() for key in bus.redis.keys(PREFIX + "in:*"))
    for kind, name, content in written:
        if kind in HASHES:
            bus.redis.hset(PREFIX + kind, name.encode("utf-8", "surrogatepass"), content)
        else:
            stream = PREFIX + "changes" if kind == "changes" else nodes[name == "far"]
            bus.redis.xadd(stream, content)
    text = f"message {len(bus.sent)}"
    bus.sent.append(text)
    done = bus.near.run("mail", "send", "bob", text, "--as", "ada")
    assert done.returncode == 0, done.stderr
    until(lambda: text in bus.far.waiting("bob"))
    assert all(relay.poll() is None for relay in bus.relays)
    status = bus.near.run("bus", "status", "--json")
    assert status.returncode == 0, status.stderr
