"""What mail promises, held by one body of tests for agents of one folder and for agents that only Redis joins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import pytest_asyncio

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.messages import Draft, Receipt, StoredMessage
from switchboard_mcp.mail.store.store import MessageStore
from tests.e2e.redisserver import RedisServer, needs_redis
from tests.patience import PATIENCE_S

T = TypeVar("T")


class Office:
    """ada and bob, each with the store that her or his programs use: one and the same, or two."""

    def __init__(self, ada: MessageStore, bob: MessageStore) -> None:
        self.ada = ada
        self.bob = bob

    async def send(self, text: str, **more: object) -> str:
        draft = Draft(action="delegate_task", payload=text, **more)  # type: ignore[arg-type]
        return (await self.ada.send(draft, sender="ada", recipient="bob")).id

    async def arrived(self, count: int) -> list[StoredMessage]:
        """What waits for bob, when there is so much."""
        return await soon(lambda: self.bob.peek("bob", limit=1000), lambda found: len(found) >= count)

    async def receipt(self, id: str, status: str) -> Receipt:
        """ada's receipt of a message, when it says this."""
        found = await soon(
            lambda: self.ada.receipts("ada", ids=[id]), lambda some: any(r.status == status for r in some)
        )
        return found[0]


async def soon(look: Callable[[], Awaitable[T]], enough: Callable[[T], bool]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if enough(found := await look()):
                return found
            await asyncio.sleep(0.02)


@asynccontextmanager
async def one_folder(folder: Path) -> AsyncIterator[Office]:
    async with await MessageStore.open(str(folder)) as post:
        await post.register("ada")
        await post.register("bob")
        yield Office(post, post)


@asynccontextmanager
async def over_redis(folder: Path) -> AsyncIterator[Office]:
    from switchboard_mcp.bus.redis_client import BusClient
    from switchboard_mcp.bus.relay import BusRelay
    from switchboard_mcp.config.sections import BusSettings
    from switchboard_mcp.observability.log import Log

    redis = RedisServer(folder / "redis")
    redis.start()
    async with AsyncExitStack() as stack:
        stack.callback(redis.kill)
        posts = []
        for name in ("ada", "bob"):
            (folder / name).mkdir()
            posts.append(await stack.enter_async_context(await MessageStore.open(str(folder / name))))
            await posts[-1].register(name)
        async with asyncio.TaskGroup() as tasks:
            relays = [
                tasks.create_task(
                    BusRelay(post, BusClient(BusSettings(url=redis.url)), Log(level="error")).run()
                )
                for post in posts
            ]
            for post in posts:
                await soon(post.agents, lambda found: found == ["ada", "bob"])
            try:
                yield Office(*posts)
            finally:
                for relay in relays:
                    relay.cancel()


@pytest_asyncio.fixture(params=[one_folder, pytest.param(over_redis, marks=needs_redis)])
async def office(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Office]:
    async with request.param(tmp_path) as office:
        yield office


async def test_a_message_arrives_as_it_was_sent(office: Office) -> None:
    id = await office.send("Grüße 👋", priority="high", reply_to="msg_1", metadata={"a": [1]}, team="red")
    (stored,) = await office.arrived(1)
    message = stored.message
    assert (message.id, message.payload, message.sender, message.recipient) == (id, "Grüße 👋", "ada", "bob")
    assert (message.priority, message.reply_to, message.team) == ("high", "msg_1", "red")
    assert message.metadata["a"] == [1]
    assert stored.verified


async def test_messages_of_one_pair_are_claimed_in_the_order_they_were_sent(office: Office) -> None:
    sent = [await office.send(str(number)) for number in range(20)]
    await office.arrived(20)
    claimed = await office.bob.claim("bob", limit=20)
    assert [one.message.id for one in claimed] == sent


async def test_a_claimed_message_is_nobody_elses_and_its_end_reaches_the_sender(office: Office) -> None:
    id = await office.send("do it")
    await office.arrived(1)
    (one,) = await office.bob.claim("bob")
    assert await office.bob.claim("bob") == []
    await office.bob.ack("bob", id, fence=one.fence, outcome="failed", summary="no such file")
    receipt = await office.receipt(id, "failed")
    assert receipt.summary == "no such file"


async def test_a_result_goes_back_as_a_message_that_names_the_one_it_answers(office: Office) -> None:
    id = await office.send("what is 6 times 7?")
    await office.arrived(1)
    (one,) = await office.bob.claim("bob")
    await office.bob.ack("bob", id, fence=one.fence, result="42")
    (answer,) = await office.ada.wait("ada", 20)
    assert (answer.message.payload, answer.message.reply_to, answer.message.sender) == ("42", id, "bob")
    await office.receipt(id, "done")


async def test_a_rejected_message_is_a_dead_letter_with_its_reason(office: Office) -> None:
    id = await office.send("rm -rf /")
    await office.arrived(1)
    (one,) = await office.bob.claim("bob")
    await office.bob.ack("bob", id, fence=one.fence, outcome="rejected", summary="never")
    assert (await office.bob.read("bob", id)).reason == "never"
    await office.receipt(id, "rejected")


async def test_the_same_key_twice_is_one_message(office: Office) -> None:
    first = await office.send("once", idempotency_key="k")
    await office.arrived(1)
    assert await office.send("once", idempotency_key="k") == first
    last = await office.send("and another")
    assert [message.message.id for message in await office.arrived(2)] == [first, last]


async def test_a_message_that_is_not_settled_in_time_is_handed_out_again_with_a_higher_fence(
    office: Office,
) -> None:
    id = await office.send("slow")
    await office.arrived(1)
    (first,) = await office.bob.claim("bob", lease_s=0.05)
    (second,) = await soon(lambda: office.bob.claim("bob"), bool)
    assert second.fence > first.fence
    with pytest.raises(SwitchboardError, match="has ended"):
        await office.bob.ack("bob", id, fence=first.fence)
    await office.bob.ack("bob", id, fence=second.fence)
    await office.receipt(id, "done")


async def test_a_payload_too_large_for_a_message_is_read_whole_by_its_recipient(office: Office) -> None:
    text = "0123456789" * 150_000
    await office.send(text)
    (message,) = await office.arrived(1)
    assert await office.bob.attachment(message.message) == text.encode()


async def test_a_file_dropped_by_hand_reaches_its_recipient_unverified(office: Office) -> None:
    content = {
        "id": "msg_by-hand",
        "action": "status_update",
        "sender": "ada",
        "recipient": "bob",
        "payload": "hi",
    }
    inbox = Path(office.ada.path) / "inbox" / "bob"
    (inbox / ".msg_by-hand.tmp").write_text(json.dumps(content))
    (inbox / ".msg_by-hand.tmp").rename(inbox / "msg_by-hand.json")
    (message,) = await office.arrived(1)
    assert (message.message.id, message.message.payload, message.verified) == ("msg_by-hand", "hi", False)


async def test_nobody_can_be_written_to_who_does_not_exist(office: Office) -> None:
    with pytest.raises(SwitchboardError) as refused:
        await office.ada.send(Draft(action="execute", payload=""), sender="ada", recipient="bobb")
    assert refused.value.failure.code == "mail_recipient_unknown"
    assert refused.value.failure.nearest == ["bob"]


async def test_roles_and_teams_are_known_to_everybody(office: Office) -> None:
    await office.ada.update(agent_registry.register("ada", role="lead"))
    await office.ada.update(agent_registry.register("bob", role="reviewer"))
    await office.ada.update(agent_registry.create_team("ada", "crew", ["ada", "bob"], []))
    state = await soon(office.bob.state, lambda state: "crew" in agent_registry.teams(state))
    assert agent_registry.teams(state)["crew"].members == ["ada", "bob"]
    state = await soon(office.bob.state, lambda state: agent_registry.agents(state)["bob"].role == "reviewer")
    assert agent_registry.agents(state)["ada"].role == "lead"


async def test_every_accepted_message_is_in_one_place(office: Office) -> None:
    for number in range(10):
        await office.send(str(number))
    await office.arrived(10)
    for one in await office.bob.claim("bob", limit=5):
        await office.bob.ack("bob", one.message.id, fence=one.fence)
    for post in (office.ada, office.bob):
        verdict = await post.verify()
        assert verdict.sound, verdict.findings
