"""One of several replicas: one question at a time for all that wait, and what it does while Redis is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from switchboard_mcp.bus.malformed import MalformedValues
from switchboard_mcp.bus.replicas import replicas as module
from switchboard_mcp.bus.replicas.counters import ReplicaCounters, TokenRequest
from switchboard_mcp.bus.replicas.replicas import PROBE, RedisReplicas, child_key
from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.errors import SwitchboardError, failure
from switchboard_mcp.observability.log import Log
from tests.patience import PATIENCE_S

KID = ChildSpec(name="kid", source="test", command="kid")


class FakeCounters(ReplicaCounters):
    """Redis as far as it is asked here; `open` is cleared to keep it from answering."""

    shown = "redis://test"

    def __init__(self) -> None:
        self.malformed = MalformedValues()
        self.there = True
        self.open = asyncio.Event()
        self.open.set()
        self.questions: list[dict[str, int]] = []
        self.notices: dict[str, tuple[bytes, int]] = {}
        self.looks = 0
        self.closed = False

    async def take_tokens(self, requests: Sequence[TokenRequest]) -> list[tuple[int, float]]:
        self.looks += list(requests) == [PROBE]
        if list(requests) != [PROBE]:
            self.questions.append({request.key: request.count for request in requests})
        await self._answer()
        return [(min(request.count, request.burst), 2.0) for request in requests]

    async def set_quarantine(self, child: str, notice: bytes, for_ms: int) -> None:
        await self._answer()
        self.notices[child] = (notice, for_ms)

    async def clear_quarantine(self, child: str) -> None:
        await self._answer()
        self.notices.pop(child, None)

    async def quarantine(self, child: str) -> tuple[bytes, float] | None:
        await self._answer()
        found = self.notices.get(child)
        return (found[0], found[1] / 1000) if found is not None else None

    async def _answer(self) -> None:
        await self.open.wait()
        if not self.there:
            raise SwitchboardError(failure("bus_unreachable", "Redis at redis://test cannot be used."))

    async def close(self) -> None:
        self.closed = True


class Calls:
    """Calls of one suite that wait."""

    calls_per_minute, burst = 60, 5

    def __init__(self, key: str, waiting: int = 0) -> None:
        self.key = key
        self.waiting = waiting
        self.heard: list[tuple[int, float] | str] = []

    def next_batch(self) -> int:
        waiting, self.waiting = self.waiting, 0
        return waiting

    def on_granted(self, granted: int, wait_s: float) -> None:
        self.heard.append((granted, wait_s))

    def decide_locally(self) -> None:
        self.heard.append("alone")


class World:
    def __init__(self, counters: FakeCounters, name: str = "a") -> None:
        self.said: list[bytes] = []
        self.counters = counters
        self.replicas = RedisReplicas(name, counters, Log("info", write=self.said.append))

    def logged(self, event: str) -> int:
        return sum(event.encode() in line for line in self.said)


@asynccontextmanager
async def running() -> AsyncIterator[World]:
    world = World(FakeCounters())
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(world.replicas.run())
        await settle()
        yield world
        task.cancel()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_DELAY_S", 0.01)
    monkeypatch.setattr(module, "MAX_RETRY_DELAY_S", 0.01)


async def test_all_that_came_while_a_question_was_under_way_are_in_one() -> None:
    async with running() as world:
        one, other = Calls("one", 1), Calls("other")
        world.counters.open.clear()
        world.replicas.count(one)
        await settle()
        for _ in range(100):
            one.waiting += 1
            world.replicas.count(one)
            other.waiting += 1
            world.replicas.count(other)
        world.counters.open.set()
        await settle()
        assert world.counters.questions == [{"one": 1}, {"one": 100, "other": 100}]
        assert one.heard == [(1, 2.0), (5, 2.0)]
        assert other.heard == [(5, 2.0)]


async def test_while_redis_is_away_everybody_is_alone_until_it_is_back_and_that_is_said_once() -> None:
    async with running() as world:
        calls = Calls("one", 1)
        world.counters.there = False
        world.replicas.count(calls)
        await settle()
        assert calls.heard == ["alone"]
        assert not world.replicas.reachable
        assert await world.replicas.verdict(KID) is None
        looks = world.counters.looks
        await until(lambda: world.counters.looks > looks + 2)
        world.counters.there = True
        await until(lambda: world.replicas.reachable)
        assert (world.logged("replicas.away"), world.logged("replicas.back")) == (1, 1)
        world.replicas.count(calls)
        await settle()
        assert calls.heard[1:] == [(0, 2.0)]


async def test_a_redis_that_does_not_answer_in_time_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPLICA_TIMEOUT_S", 0.05)
    async with running() as world:
        counted, late = Calls("one", 1), Calls("two", 1)
        world.counters.open.clear()
        world.replicas.count(counted)
        await settle()
        world.replicas.count(late)
        await until(lambda: late.heard)
        assert (counted.heard, late.heard) == (["alone"], ["alone"])
        assert len(world.counters.questions) == 1
        world.counters.open.set()


async def test_who_waits_when_it_ends_is_answered() -> None:
    async with running() as world:
        counted, waiting = Calls("one", 1), Calls("two", 1)
        world.counters.open.clear()
        world.replicas.count(counted)
        await settle()
        world.replicas.count(waiting)
    assert (counted.heard, waiting.heard) == (["alone"], ["alone"])
    assert not world.replicas.reachable
    assert world.counters.closed


async def test_a_quarantine_is_for_the_others_and_ends_with_trust() -> None:
    async with running() as world:
        other = World(world.counters, "b").replicas
        world.replicas.gave_up(KID, 5, "no licence", 60.0)
        await settle()
        assert await world.replicas.verdict(KID) is None  # who has said it knows better
        verdict = await other.verdict(KID)
        assert verdict is not None
        assert (verdict.replica, verdict.failures, verdict.problem) == ("a", 5, "no licence")
        assert 50 < verdict.left_s <= 60
        world.replicas.trusts(KID)
        await settle()
        assert await other.verdict(KID) is None


async def test_what_could_not_be_said_is_said_when_redis_is_back_if_it_is_still_true() -> None:
    async with running() as world:
        world.counters.there = False
        world.replicas.gave_up(KID, 5, "no licence", 60.0)
        over = ChildSpec(name="over", source="test")
        world.counters.notices[child_key(over)] = (b"of another replica", 1000)
        world.replicas.gave_up(over, 5, "no licence", 0.0)
        await settle()
        assert child_key(KID) not in world.counters.notices
        world.counters.there = True
        await until(lambda: world.replicas.reachable)
        await settle()
        assert list(world.counters.notices) == [child_key(over), child_key(KID)]
        assert world.counters.notices[child_key(over)] == (b"of another replica", 1000)


async def test_a_notice_that_cannot_be_read_says_nothing() -> None:
    async with running() as world:
        world.counters.notices[child_key(KID)] = (b"quarantined", 1000)
        assert await world.replicas.verdict(KID) is None


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"cwd": "/elsewhere"}, True),
        ({"source": "/elsewhere/.mcp.json"}, True),
        ({"args": ["--new"]}, False),
        ({"env": {"KEY": "${KEY}"}}, False),
        ({"name": "other"}, False),
    ],
)
def test_a_child_is_the_same_on_another_replica_while_it_is_configured_alike(
    change: dict[str, object], same: bool
) -> None:
    assert (child_key(msgspec.structs.replace(KID, **change)) == child_key(KID)) is same
