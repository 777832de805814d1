"""Whatever stands in Redis under a key of ours: relays go on, and the commands show what they can."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from switchboard_mcp.bus.node import identify, is_node_id
from switchboard_mcp.bus.redis_client import KEY_TYPES, LAST_ID, NODE_KEY_TYPES, BusClient
from switchboard_mcp.bus.relay import BusRelay
from switchboard_mcp.cli.commands.bus import _read_redis
from switchboard_mcp.config.sections import BusSettings
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.observability.log import Log
from tests.e2e.busmachine import Machine, until
from tests.e2e.redisserver import RedisServer, needs_redis
from tests.patience import PATIENCE_S

pytestmark = needs_redis
T = TypeVar("T")
PREFIX = "{switchboard}:"
HASHES = [key for key, kind in KEY_TYPES.items() if kind == "hash"]
STREAMS = [key for key, kind in KEY_TYPES.items() if kind == "stream"]


class World:
    """ada and bob on two machines whose relays run on one loop, and a client that writes whatever it likes."""

    def __init__(self, folder: Path, redis: RedisServer) -> None:
        self.redis: Any = Redis.from_url(redis.url)
        self.settings = BusSettings(url=redis.url)
        self._runner = asyncio.Runner()
        self.posts: dict[str, MessageStore] = {}
        self.nodes: dict[str, str] = {}
        self.relays: list[BusRelay] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.run(self._start(folder))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asyncio.wait_for(work, PATIENCE_S * 2))

    async def _start(self, folder: Path) -> None:
        for name in ("ada", "bob"):
            (folder / name).mkdir()
            self.posts[name] = await MessageStore.open(str(folder / name))
            await self.posts[name].register(name)
            self.nodes[name] = (await self.posts[name].run(identify)).id
            self.relays.append(BusRelay(self.posts[name], BusClient(self.settings), Log(level="error")))
            self._tasks.append(asyncio.ensure_future(self.relays[-1].run()))
        for post in self.posts.values():
            while True:
                if await post.agents() == ["ada", "bob"]:
                    break
                await asyncio.sleep(0.02)

    def close(self) -> None:
        async def end() -> None:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
            for post in self.posts.values():
                await post.close()

        self.run(end())
        self._runner.close()
        self.redis.close()

    def all_keys(self) -> list[str]:
        """Every key that a relay reads."""
        own = [f"{name}:{node}" for name in NODE_KEY_TYPES for node in self.nodes.values()]
        return [PREFIX + key for key in (*KEY_TYPES, *own)]

    async def mail_flows(self) -> None:
        """Messages go both ways, and each is stored once."""
        for sender, reader in (("ada", "bob"), ("bob", "ada")):
            sent = await self.posts[sender].send(
                Draft(action="status_update", payload="still there?"), sender=sender, recipient=reader
            )
            while True:
                claimed = await self.posts[reader].claim(reader, limit=100)
                for one in claimed:
                    await self.posts[reader].ack(reader, one.message.id, fence=one.fence)
                if sent.id in [one.message.id for one in claimed]:
                    break
                assert not any(task.done() for task in self._tasks)
                await asyncio.sleep(0.02)

    async def commands_work(self) -> None:
        client = BusClient(self.settings)
        await _read_redis(client)
        for stream in (*STREAMS, *(f"in:{node}" for node in self.nodes.values())):
            await client.last_entries(stream, 1000)
        await client.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("malformed")
    redis = RedisServer(folder / "redis")
    redis.start()
    world = World(folder, redis)
    yield world
    world.close()
    redis.kill()


def fill(redis: Any, key: str, kind: str) -> None:
    """Replace a key by one of another type."""
    redis.delete(key)
    match kind:
        case "string":
            redis.set(key, b"\xff junk")
        case "list":
            redis.rpush(key, b"junk")
        case "set":
            redis.sadd(key, b"junk")
        case "zset":
            redis.zadd(key, {b"junk": 1})
        case "hash":
            redis.hset(key, b"junk", b"junk")
        case "stream":
            redis.xadd(key, {b"junk": b"junk"})


@pytest.mark.parametrize("kind", ["string", "list", "set", "zset", "hash", "stream"])
def test_a_key_of_another_type_stops_no_mail(world: World, kind: str) -> None:
    for key in world.all_keys():
        fill(world.redis, key, kind)
    world.run(world.mail_flows())
    world.run(world.commands_work())


def test_a_stream_that_takes_no_more_entries_stops_no_mail(world: World) -> None:
    for key in [PREFIX + key for key in STREAMS] + [f"{PREFIX}in:{node}" for node in world.nodes.values()]:
        world.redis.delete(key)
        world.redis.xadd(key, {"kind": "junk"}, id=LAST_ID)
    world.run(world.mail_flows())
    world.run(world.commands_work())


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20))
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
members = st.dictionaries(
    st.sampled_from(["node", "fence", "revision", "value", "here", "seen", "host", "folder"]), anything
)
values = st.one_of(
    st.binary(max_size=40),
    anything.map(lambda value: json.dumps(value).encode()),
    members.map(lambda value: json.dumps(value).encode()),
    st.sampled_from(
        [b"[" * 100_000, b"9" * 400, b'{"revision":1e400,"value":{}}', b'"' + b"a" * 2_000_000 + b'"']
    ),
)
names = st.one_of(st.sampled_from([b"ada", b"bob"]), st.binary(min_size=1, max_size=20))
fields = st.dictionaries(
    st.sampled_from(
        "kind from epoch seq base message attachment again agent name receipt upto names reason to".split()
    ).map(str.encode)
    | st.binary(min_size=1, max_size=8),
    st.one_of(
        values,
        st.sampled_from(b"letter receipt stored refused resend filed 0 1 -1 99999999999999999999".split()),
        st.sampled_from([b"4ee06bf53968", b"ada", b"../../x", b"a\0b", b"receipt_msg_1_a.done.json"]),
    ),
    min_size=1,
    max_size=8,
)
hash_writes = st.tuples(st.sampled_from(HASHES), names, values)
stream_writes = st.tuples(st.sampled_from([*STREAMS, "in:ada", "in:bob"]), fields)
string_writes = st.tuples(st.sampled_from(["fence", "alive:ada", "alive:bob"]), values, st.none())


def is_forged(write: tuple[Any, ...]) -> bool:
    """Whether a write is a valid claim of a name by another machine: that would be believed."""
    if write[0] != "names":
        return False
    try:
        node = json.loads(write[2]).get("node")
    except (ValueError, AttributeError, RecursionError):
        return False
    return isinstance(node, str) and is_node_id(node)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    writes=st.lists(
        st.one_of(hash_writes, stream_writes, string_writes).filter(lambda write: not is_forged(write)),
        min_size=20,
        max_size=60,
    )
)
def test_values_of_any_content_stop_no_mail(world: World, writes: list[tuple[Any, ...]]) -> None:
    for write in writes:
        key = write[0]
        for name, node in world.nodes.items():
            key = key.replace(f":{name}", f":{node}")
        if len(write) == 2:
            world.redis.xadd(PREFIX + key, write[1])
        elif write[2] is None:
            world.redis.set(PREFIX + key, write[1])
        else:
            world.redis.hset(PREFIX + key, write[1], write[2])
    world.run(world.mail_flows())
    world.run(world.commands_work())


def test_the_commands_show_what_they_can_and_name_what_they_skip(redis: RedisServer, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "one", redis.url)
    machine.run("mail", "agents", "add", "ada")
    client: Any = Redis.from_url(redis.url)
    with machine.relay(), client:
        until(lambda: bool(client.hget(PREFIX + "agents", "ada")))
        client.hset(PREFIX + "nodes", b"\xff", b"junk")
        client.hset(PREFIX + "nodes", b"4ee06bf53968", b'{"host": ["a list"]}')
        client.hset(PREFIX + "names", b"zoe", b"[" * 100_000)
        client.hset(PREFIX + "presence", b"ada", b"\xff")
        client.hset(PREFIX + "agents", b"ada", b'{"revision": "x", "value": 7}')
        client.hset(
            PREFIX + "agents", b"eve", b'{"revision": 1, "value": {"role": 7, "skills": "x", "name": []}}'
        )
        client.hset(PREFIX + "teams", b"team", b'{"revision": 1, "value": {"members": 7}}')
        client.hset(PREFIX + "workflows", b"run", b'{"revision": 1, "value": {"steps": 7, "parts": []}}')
        fill(client, PREFIX + "dead", "string")
        until(lambda: (status := machine.status()) is not None and status.malformed >= 2)
        shown = machine.run("bus", "status")
        assert shown.returncode == 0, shown.stdout + shown.stderr
        assert "names/zoe" in shown.stdout
        assert "malformed value" in shown.stdout
        status = machine.ask("bus", "status")
        assert status["redis"]["machines"][0]["agents"] == ["ada"]
        for words in (("agents",), ("teams",), ("workflow", "list"), ("verify",)):
            ran = machine.run("mail", *words)
            assert "Traceback" not in ran.stderr
            assert "internal" not in ran.stderr, ran.stderr
        for stream in ("in", "dead", "changes", "events"):
            client.delete(f"{PREFIX}{stream}")
            client.xadd(
                f"{PREFIX}{stream}" if stream != "in" else f"{PREFIX}in:{status['relay']['node']}",
                {b"\xff": b"\xff"},
            )
            tail = machine.run("bus", "tail", "--stream", stream)
            assert tail.returncode == 0, tail.stderr
            assert machine.run("bus", "tail", "--stream", stream, "--json").returncode == 0
        # Replaced by what stands here, and everything else as well.
        until(lambda: b'"revision":2' in (client.hget(PREFIX + "agents", "ada") or b""))
    assert "bus.malformed" in machine.said
