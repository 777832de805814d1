"""Nothing accepted is lost, doubled or out of order, whatever happens to Redis, the network, a relay or a clock.

SWITCHBOARD_BUS_MESSAGES sets how many messages each case sends; without it few, so that all cases are quick.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from switchboard_mcp.bus.redis_client import GROUP, BusClient
from switchboard_mcp.config.sections import BusSettings
from tests.e2e.busworld import COUNT, FAR, NEAR, PATIENCE_S, SENDERS, History, Proxy, Took, World, until
from tests.e2e.redisserver import RedisServer, needs_redis

Fault = Callable[[World], Coroutine[None, None, None]]
pytestmark = [needs_redis, pytest.mark.timeout(4 * PATIENCE_S)]
SOAK = pytest.mark.soak("crashes")


async def nothing(world: World) -> None:
    """All is well."""


async def part_sent(world: World, share: float) -> None:
    """Wait until this share of all messages has been accepted."""

    async def sent() -> bool:
        return sum(map(len, world.history.accepted.values())) >= COUNT * share

    await until(sent, 0.005)


async def happened(true: Callable[[], bool]) -> None:
    """Wait until a relay has met the fault."""

    async def met() -> bool:
        return true()

    await until(met)


async def redis_killed(world: World) -> None:
    for share in (0.2, 0.5):
        await part_sent(world, share)
        world.redis.kill()
        await part_sent(world, share + 0.2)
        await asyncio.to_thread(world.redis.start)


async def redis_loses_its_last_second(world: World) -> None:
    for share in (0.3, 0.6):
        await part_sent(world, share)
        world.redis.kill()
        log = max((world.redis.folder / "appendonlydir").glob("*.incr.aof"))
        os.truncate(log, log.stat().st_size * 2 // 3)
        await asyncio.to_thread(world.redis.start)


async def redis_comes_back_empty(world: World) -> None:
    await part_sent(world, 0.5)
    world.redis.kill()
    for file in (world.redis.folder / "appendonlydir").iterdir():
        file.unlink()
    await asyncio.to_thread(world.redis.start)


async def redis_out_of_memory(world: World) -> None:
    await part_sent(world, 0.2)
    world.redis.ask("CONFIG", "SET", "maxmemory", "1mb")
    await part_sent(world, 0.8)
    await happened(lambda: world.redis.errors("OOM") > 0)
    world.redis.ask("CONFIG", "SET", "maxmemory", "0")


async def cut_off(world: World) -> None:
    await part_sent(world, 0.3)
    world.proxy.open = False
    world.proxy.hang_up()
    await part_sent(world, 0.6)
    await happened(lambda: world.proxy.lost["open"] > 0)
    world.proxy.open = True


async def relays_not_heard(world: World) -> None:
    await part_sent(world, 0.3)
    world.proxy.up = False
    await part_sent(world, 0.6)
    await happened(lambda: world.proxy.lost["up"] > 0)
    world.proxy.hang_up()
    world.proxy.up = True


async def redis_not_heard(world: World) -> None:
    await part_sent(world, 0.3)
    world.proxy.down = False
    await part_sent(world, 0.6)
    await happened(lambda: world.proxy.lost["down"] > 0)
    world.proxy.hang_up()
    world.proxy.down = True


async def entries_vanish(world: World) -> None:
    """As when a replica that was behind becomes the master, and no connection tells of it."""
    await part_sent(world, 0.3)
    wire = BusClient(BusSettings(url=world.redis.url))
    world.relays["b"].signal(signal.SIGSTOP)
    found: list[str] = []

    async def enough() -> bool:
        nonlocal found
        stream, found = await world.undelivered("b", wire)
        if len(found) > 3:
            await wire.delete_entries(stream, found[1:3])
        return len(found) > 3

    try:
        await until(enough)
    finally:
        world.relays["b"].signal(signal.SIGCONT)
        await wire.close()


async def keys_are_lost(world: World) -> None:
    """Everything at once, then each half of the keys, then all entries of the streams; no connection ends."""
    client: Any = Redis.from_url(world.redis.url)
    try:
        await part_sent(world, 0.2)
        await client.flushall()
        for share, first in ((0.4, 0), (0.5, 1)):
            await part_sent(world, share)
            await happened(lambda: world.redis.keys("in:*") == 2)
            await client.delete(*sorted(await client.keys("*"))[first::2])
        await part_sent(world, 0.6)
        for key in await client.keys("*:in:*"):
            await client.xtrim(key, maxlen=0, approximate=False)
    finally:
        await client.aclose()


async def entries_are_forged(world: World) -> None:
    """Numbers and confirmations far ahead of those in use, doubles, entries of a machine that is none, huge ones."""
    client: Any = Redis.from_url(world.redis.url)
    near, far = (f"{{switchboard}}:in:{world.node(place)}" for place in ("a", "b"))
    ours = {"from": world.node("a"), "epoch": world.epoch("a")}
    ahead = {"seq": 10**12, "base": 10**12, "message": b"none"}
    forged: list[tuple[str, dict[str, object]]] = [
        (near, {"kind": "stored", "from": world.node("b"), "epoch": ours["epoch"], "upto": 10**15}),
        (near, {"kind": "resend", "from": world.node("b"), "epoch": ours["epoch"], "seq": 0}),
        (far, {"kind": "letter", **ours, **ahead}),
        (far, {"kind": "letter", **ours, "from": "f" * 12, **ahead, "epoch": "e" * 12}),
        (far, {"kind": "letter", **ours, **ahead, "message": b"x" * 8_000_000}),
        (far, {"kind": "receipt", **ours, "agent": "bob", "name": "../bob", "receipt": b"\xff" * 1000}),
        (far, {"x" * 10_000: "x"}),
    ]
    try:
        for share in (0.3, 0.5):
            await part_sent(world, share)
            for key, fields in forged:
                await client.xadd(key, fields)
            for key in (near, far):
                for _, entry in await client.xrange(key, count=20):
                    await client.xadd(key, entry)
        memory = await client.memory_usage("{switchboard}:dead", samples=0)
        assert (memory or 0) < 1_000_000
    finally:
        await client.aclose()


async def clocks_jump(world: World) -> None:
    """Both clocks jump by an hour, apart from each other, while Redis is away."""
    await part_sent(world, 0.3)
    world.redis.kill()
    for relay, ahead_s in ((world.relays["a"], 3600), (world.relays["b"], -3600)):
        relay.ahead_s = ahead_s
        relay.kill()
    await part_sent(world, 0.5)
    await asyncio.to_thread(world.redis.start)


async def disk_full(world: World) -> None:
    """The receiver cannot write a byte; what it was given is given to it again."""
    await part_sent(world, 0.3)
    wire = BusClient(BusSettings(url=world.redis.url))
    stream, pid = wire.key("in", world.node("b")), world.relays["b"].pid
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    async def again() -> bool:
        given = await wire._redis.xpending_range(stream, GROUP, min="-", max="+", count=100)
        return any(each["times_delivered"] > 1 for each in given)

    try:
        await until(again)
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await wire.close()


async def relays_killed_at_random(world: World) -> None:
    for share in (0.1, 0.3, 0.5, 0.7):
        await part_sent(world, share)
        for relay in world.relays.values():
            relay.kill()


async def live(world: World, fault: Fault) -> None:
    """Messages both ways while the fault happens; then everything must have arrived, and nothing be wrong."""
    each = COUNT // SENDERS
    sent = asyncio.Event()

    async def send() -> None:
        async with asyncio.TaskGroup() as senders:
            for sender in NEAR:
                senders.create_task(world.send("a", sender, "bob", each))
            for sender in FAR:
                senders.create_task(world.send("b", sender, "alice", each))
        sent.set()

    try:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            tasks.create_task(fault(world))
            tasks.create_task(world.receive("b", "bob", sent))
            tasks.create_task(world.receive("a", "alice", sent))
    except TimeoutError:
        pytest.fail(f"it does not end: {world.history.faults()[:20]}")
    await world.settle()
    await world.receipts_home()
    # What Redis forgets of its events is forgotten; of letters and receipts nothing is.
    if fault not in (redis_loses_its_last_second, redis_comes_back_empty, keys_are_lost):
        await world.all_told()
    assert await world.findings() == []


async def in_a_world(
    tmp_path: Path, fault: Fault, *, ahead_s: int = 0, dies: str = "", at: Sequence[str] = ()
) -> World:
    redis = RedisServer(tmp_path / "redis")
    redis.start()
    try:
        async with Proxy(redis.port).serving() as proxy:
            world = World(tmp_path, redis, proxy, ahead_s)
            if dies:
                world.relays[dies].dies_at = list(at)
            async with world.living():
                await live(world, fault)
            return world
    finally:
        redis.kill()


def test_the_checker_tells_of_what_is_lost_doubled_out_of_order_or_made_up() -> None:
    def faults(*ids: str) -> list[str]:
        history = History()
        history.accepted["ada", "bob"] = [(id, id) for id in ("1", "2", "3")]
        history.took = [Took(id, "ada", "bob", id, 1) for id in ids]
        return history.faults()

    assert faults("1", "2", "3") == []
    order = "ada to bob: not in the order they were sent"
    assert faults("1", "3") == ["2 was accepted and never handed out", order]
    assert faults("1", "2", "2", "3") == ["2 was handed out 2 times", order]
    assert faults("1", "3", "2") == [order]
    assert faults("1", "2", "3", "4")[0] == "4 was not sent by ada to bob"


@pytest.mark.parametrize(
    "fault",
    [
        redis_killed,
        relays_killed_at_random,
        *(
            pytest.param(fault, marks=SOAK)
            for fault in (
                nothing,
                redis_loses_its_last_second,
                redis_comes_back_empty,
                redis_out_of_memory,
                cut_off,
                relays_not_heard,
                redis_not_heard,
                entries_vanish,
                keys_are_lost,
                entries_are_forged,
            )
        ),
        pytest.param(
            disk_full, marks=[SOAK, pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit")]
        ),
    ],
)
async def test_no_fault_of_redis_or_the_network_breaks_a_promise(tmp_path: Path, fault: Fault) -> None:
    await in_a_world(tmp_path, fault)


@SOAK
@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize(
    "step", ["taken", "shipped", "read", "stored", "noted", "confirmed", "put_away", "filed"]
)
async def test_a_relay_that_dies_between_two_steps_breaks_no_promise(
    tmp_path: Path, side: str, step: str
) -> None:
    # Once is enough where many steps are tried; a large run has several, at different places.
    deaths = [f"{step}:{passed}" for passed in (1, 4, 9)[: 1 if COUNT < 1000 else 3]]
    world = await in_a_world(tmp_path, nothing, dies=side, at=deaths)
    assert world.relays[side].deaths == len(deaths)


@SOAK
async def test_clocks_that_are_apart_and_jump_by_an_hour_break_no_promise(tmp_path: Path) -> None:
    await in_a_world(tmp_path, clocks_jump, ahead_s=300)
