"""Shared state when Redis comes back empty, or from an older copy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.bus import relay_status
from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.bus.shared_state import SharedState
from switchboard_mcp.config.sections import BusSettings
from switchboard_mcp.mail.store.store import MessageStore, State
from tests.e2e.busmachine import Machine, until
from tests.e2e.redisserver import RedisServer, needs_redis

pytestmark = needs_redis
BEGUN = {"id": "w1", "phase": "build", "completed": ["plan"]}
DONE = {"id": "w1", "phase": "review", "completed": ["plan", "build"]}


class _Machine:
    def __init__(self, store: MessageStore, client: BusClient) -> None:
        self.store = store
        self.shared = SharedState(store, client)

    async def change(self, part: str, name: str, value: dict[str, Any] | None) -> None:
        def apply(state: State) -> None:
            table = state.setdefault(part, {})
            if value is None:
                table.pop(name, None)
            else:
                table[name] = value

        await self.store.update(apply)

    async def parts(self) -> dict[str, Any]:
        state = await self.store.state()
        return {part: state.get(part, {}) for part in ("agents", "teams", "workflows")}


@asynccontextmanager
async def _machines(redis: RedisServer, folder: Path, count: int = 3) -> AsyncIterator[list[_Machine]]:
    async with AsyncExitStack() as stack:
        machines = []
        for number in range(count):
            (folder / f"m{number}").mkdir()
            store = await MessageStore.open(str(folder / f"m{number}"), watch=False)
            await stack.enter_async_context(store)
            client = BusClient(BusSettings(url=redis.url))
            stack.push_async_callback(client.close)
            machines.append(_Machine(store, client))
        yield machines


async def _sync(machines: list[_Machine], rounds: int = 3) -> None:
    for _ in range(rounds):
        for machine in machines:
            await machine.shared.sync()


async def _fill(machines: list[_Machine]) -> None:
    await machines[0].change("agents", "ada", {"name": "ada", "role": "lead"})
    await machines[1].change("teams", "core", {"members": ["ada"]})
    await machines[2].change("workflows", "w1", BEGUN)
    await machines[2].change("workflows", "w0", BEGUN)
    await _sync(machines)
    await machines[2].change("workflows", "w1", DONE)
    await machines[2].change("workflows", "w0", None)
    await _sync(machines)


Loss = Callable[[RedisServer, dict[str, str]], None]


def _empty(redis: RedisServer, _: dict[str, str]) -> None:
    assert redis.ask("FLUSHALL") == "+OK"


def _older(redis: RedisServer, copy: dict[str, str]) -> None:
    assert redis.ask("FLUSHALL") == "+OK"
    for name, value in copy.items():
        redis.ask("HSET", "{switchboard}:workflows", name, value)


@pytest.mark.parametrize("loss", [_empty, _older])
async def test_a_redis_that_comes_back_empty_or_older_takes_nothing_away_from_the_machines(
    redis: RedisServer, tmp_path: Path, loss: Loss
) -> None:
    async with _machines(redis, tmp_path) as machines:
        await _fill(machines)
        before = [await machine.parts() for machine in machines]
        assert before[0]["workflows"] == {"w1": DONE}
        begun = '{"revision":1,"value":{"id":"w1","phase":"build","completed":["plan"]}}'
        loss(redis, {"w1": begun, "w0": begun})
        await _sync(machines)
        assert [await machine.parts() for machine in machines] == before
        # Redis holds everything again: a machine that joins now learns all of it.
        async with _machines(redis, tmp_path / "redis", 1) as (late,):
            await late.shared.sync()
            learned = await late.parts()
        assert learned["workflows"] == {"w1": DONE}
        assert learned["teams"] == before[0]["teams"]
        assert learned["agents"]["ada"]["role"] == "lead"
        assert not any(machine.shared.conflicts for machine in machines)


async def test_two_values_of_one_revision_end_as_one_value_and_are_reported(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with _machines(redis, tmp_path, 2) as machines:
        await machines[0].change("workflows", "w1", BEGUN)
        await _sync(machines)
        await machines[0].change("workflows", "w1", DONE)
        await machines[0].shared.sync()
        # Only the first machine knows revision 2 when Redis loses it; the second makes one of its own.
        _empty(redis, {})
        await machines[1].change("workflows", "w1", {**BEGUN, "note": "x"})
        await machines[1].shared.sync()
        await _sync(machines)
        first, second = [await machine.parts() for machine in machines]
        assert first["workflows"] == second["workflows"]
        assert "workflows/w1" in [*machines[0].shared.conflicts, *machines[1].shared.conflicts]


def test_doctor_says_that_redis_was_emptied_and_got_everything_back(
    redis: RedisServer, tmp_path: Path
) -> None:
    machine = Machine(tmp_path / "machine", redis.url)
    machine.register("ada", role="lead")

    def is_shared() -> bool:
        return redis.ask("HEXISTS", "{switchboard}:agents", "ada") == ":1"

    def is_reported() -> bool:
        status = machine.status()
        return status is not None and bool(status.lost_at and status.restored)

    with machine.relay():
        until(is_shared)
        assert relay_status.describe_loss(machine.status()) == ""
        _empty(redis, {})
        until(is_reported)
        assert is_shared()
        assert "Redis had lost data" in machine.run("doctor").stdout
        assert "Redis had lost data" in machine.run("bus", "status").stdout
