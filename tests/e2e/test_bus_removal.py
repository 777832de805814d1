"""Agents and machines that are removed, streams with a limit, and servers that the bus does not support."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from switchboard_mcp.bus import redis_client
from switchboard_mcp.bus.node import BusNode
from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.bus.relay import BusRelay
from switchboard_mcp.config.sections import BusSettings
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.observability.log import Log
from tests import patience
from tests.e2e.busmachine import Machine
from tests.e2e.redisserver import RedisServer, needs_redis

pytestmark = needs_redis


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.kill()


async def _until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(patience.PATIENCE_S):
        while True:
            if await true():
                return
            await asyncio.sleep(0.02)


@asynccontextmanager
async def _machines(redis: RedisServer, folder: Path) -> AsyncIterator[list[tuple[MessageStore, BusRelay]]]:
    async with AsyncExitStack() as stack:
        machines = []
        for name in ("ada", "bob"):
            (folder / name).mkdir()
            store = await stack.enter_async_context(await MessageStore.open(str(folder / name)))
            await store.register(name)
            await store.update(lambda state, name=name: state.update(agents={name: {"name": name}}))  # type: ignore[misc]
            machines.append(
                (store, BusRelay(store, BusClient(BusSettings(url=redis.url)), Log(level="error")))
            )
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(relay.run()) for _, relay in machines]
            yield machines
            for task in running:
                task.cancel()


async def test_an_agent_that_is_removed_on_its_machine_is_removed_on_all(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with _machines(redis, tmp_path) as ((ada, _), (bob, _)):

        async def both_know() -> bool:
            return "bob" in await ada.agents() and "ada" in await bob.agents()

        async def known() -> bool:
            return "bob" in (await ada.state()).get("agents", {})

        await _until(both_know)
        await _until(known)
        await bob.remove_agent("bob")

        async def gone() -> bool:
            return (
                "bob" not in await ada.agents() and redis.ask("HEXISTS", "{switchboard}:names", "bob") == ":0"
            )

        await _until(gone)
        assert "bob" not in (await ada.state())["agents"]
        # The name is free: another machine may use it.
        await ada.register("bob")
        await ada.update(lambda state: state["agents"].update(bob={"name": "bob"}))

        async def back() -> bool:
            return "bob" in await bob.agents()

        await _until(back)


async def test_a_machine_that_is_gone_can_be_forgotten(redis: RedisServer) -> None:
    client = BusClient(BusSettings(url=redis.url))
    try:
        gone = BusNode("0123456789ab", "0123456789ab")
        assert await client.renew_lease(gone.id, "token", "machine", 60_000, b"{}")
        await client.create_stream(gone.id)
        await client.claim_names(gone.id, ["zoe"])
        assert await client.forget_node(gone.id) == ["zoe"]
        for key in ("names", "nodes", "presence", f"in:{gone.id}", f"alive:{gone.id}"):
            assert redis.ask("EXISTS", f"{{switchboard}}:{key}") == ":0", key
    finally:
        await client.close()


async def test_the_stream_of_dead_letters_has_a_limit(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_client, "MAX_DEAD", 100)
    client = BusClient(BusSettings(url=redis.url))
    try:
        for _ in range(10):
            await client.send([("dead", {"reason": "x"})] * 100)
        assert 100 <= await client.stream_length("dead") <= 300
    finally:
        await client.close()


async def _is_refused(machine: Machine) -> bool:
    status = machine.status()
    return status is not None and status.state == "refused"


@pytest.mark.parametrize("mode", ["cluster", "sentinel"])
async def test_a_cluster_and_a_sentinel_are_refused_before_anything_is_stored(
    tmp_path: Path, mode: str
) -> None:
    server = RedisServer(tmp_path / "redis")
    if mode == "cluster":
        server.start("--cluster-enabled", "yes")
    else:
        config = tmp_path / "sentinel.conf"
        config.write_text("")
        server.start_sentinel(config)
    if mode == "cluster":
        server.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")  # so that it would store what it gets
    client = BusClient(BusSettings(url=server.url))
    name, value = ("ada", b"{}")
    commands: list[Callable[[], Awaitable[object]]] = [
        client.require_single_server,
        lambda: client.claim_names("a" * 12, [name]),
        lambda: client.set_shared("presence", name, value),
        lambda: client.send([("a" * 12, {"kind": "letter"})]),
        lambda: client.publish("events", [value], 10),
    ]
    try:
        for command in commands:
            with pytest.raises(SwitchboardError) as refused:
                await command()
            assert refused.value.failure.code == "bus_refused"
            assert mode in refused.value.failure.message.lower()
        if mode == "cluster":
            assert server.ask("DBSIZE") == ":0"
        machine = Machine(tmp_path / "machine", server.url)
        with machine.relay():
            await _until(lambda: _is_refused(machine))
            shown = machine.run("doctor").stdout
        assert mode in shown.lower()
        assert "single Redis server" in shown
        if mode == "cluster":
            assert server.ask("DBSIZE") == ":0"
    finally:
        await client.close()
        server.kill()
