"""What becomes of letters that cannot be stored, of names whose machine is gone, and of streams that grow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.bus import receiver
from switchboard_mcp.bus.node import identify
from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.bus.relay import BusRelay
from switchboard_mcp.config.sections import BusSettings
from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.mail.messages import Draft, MailMessage
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.observability.log import Log
from tests.e2e.redisserver import RedisServer, needs_redis
from tests.patience import PATIENCE_S

pytestmark = needs_redis


async def soon(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await true():
                return
            await asyncio.sleep(0.02)


@asynccontextmanager
async def joined(
    redis: RedisServer, folder: Path, refuse: Callable[[MailMessage], bool]
) -> AsyncIterator[list[MessageStore]]:
    """ada's and bob's stores with their relays; bob's does not take what `refuse` is true of."""

    def gate(message: MailMessage) -> MailMessage | Failure:
        return failure("mail_forbidden", "Not here.") if refuse(message) else message

    async with AsyncExitStack() as stack:
        posts = []
        for name in ("ada", "bob"):
            (folder / name).mkdir()
            opened = await MessageStore.open(str(folder / name), rules=[gate] if name == "bob" else [])
            posts.append(await stack.enter_async_context(opened))
            await posts[-1].register(name)
        async with asyncio.TaskGroup() as tasks:
            relays = [
                tasks.create_task(
                    BusRelay(post, BusClient(BusSettings(url=redis.url)), Log(level="error")).run()
                )
                for post in posts
            ]
            try:
                for post in posts:
                    await soon(lambda post=post: _knows_both(post))  # type: ignore[misc]
                yield posts
            finally:
                for relay in relays:
                    relay.cancel()


async def _knows_both(post: MessageStore) -> bool:
    return await post.agents() == ["ada", "bob"]


async def test_a_letter_its_machine_will_not_have_is_dead_told_to_its_sender_and_can_be_sent_again(
    redis: RedisServer, tmp_path: Path
) -> None:
    strict = [True]
    async with joined(redis, tmp_path, lambda m: strict[0] and m.payload == "bad") as (ada, bob):
        ids = [
            (await ada.send(Draft(action="execute", payload=text), sender="ada", recipient="bob")).id
            for text in ("one", "bad", "two")
        ]

        async def rejected() -> bool:
            return any(each.status == "rejected" for each in await ada.receipts("ada", ids=[ids[1]]))

        async def others() -> bool:
            return [letter.message.payload for letter in await bob.peek("bob")] == ["one", "two"]

        await soon(rejected)
        await soon(others)
        assert (await ada.read("bob", ids[1])).reason == "Not here."
        wire = BusClient(BusSettings(url=redis.url))
        (dead,) = await wire.last_entries("dead", 10)
        assert dead.text("reason") == "Not here."
        strict[0] = False
        kept = ("to", "reason", "seq", "base")
        fields = {name: value for name, value in dead.fields.items() if name not in kept}
        for _ in range(2):  # twice is once
            await wire.send([(dead.text("to"), fields)])

        async def there() -> bool:
            return len(await bob.peek("bob")) == 3

        await soon(there)
        await wire.close()
        assert (await bob.verify()).sound


async def test_a_message_of_another_machine_s_overseer_arrives_unverified(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with joined(redis, tmp_path, lambda message: False) as (ada, bob):
        draft = Draft(action="status_update", payload="p")
        await ada.send(draft, sender="overseer", recipient="bob", from_dashboard=True)
        await ada.send(draft, sender="ada", recipient="bob")

        async def there() -> bool:
            return len(await bob.peek("bob")) == 2

        await soon(there)
        found = [(stored.message.sender, stored.verified) for stored in await bob.peek("bob")]
        assert found == [("overseer", False), ("ada", True)]


async def test_a_letter_that_nobody_can_store_is_dead_after_a_few_tries_and_keeps_back_no_other(
    redis: RedisServer, tmp_path: Path
) -> None:
    def trap(message: MailMessage) -> bool:
        if message.payload == "bad":
            raise RuntimeError("nobody foresaw this")
        return False

    async with joined(redis, tmp_path, trap) as (ada, bob):
        for text in ("one", "bad", "two"):
            await ada.send(Draft(action="execute", payload=text), sender="ada", recipient="bob")

        async def there() -> bool:
            return [letter.message.payload for letter in await bob.peek("bob")] == ["one", "two"]

        await soon(there)
        wire = BusClient(BusSettings(url=redis.url))
        (dead,) = await wire.last_entries("dead", 10)
        assert "after repeated attempts" in dead.text("reason")
        await wire.close()


async def test_a_letter_waits_for_its_folder_however_often_it_was_tried(
    redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "MAX_DELIVERIES", 1)
    tried: list[MailMessage] = []

    def count(message: MailMessage) -> bool:
        tried.append(message)
        return False

    async with joined(redis, tmp_path, count) as (ada, bob):
        inbox, aside = tmp_path / "bob" / ".switchboard" / "inbox" / "bob", tmp_path / "aside"
        inbox.rename(aside)
        inbox.symlink_to(aside)
        await ada.send(Draft(action="execute", payload="one"), sender="ada", recipient="bob")

        async def often() -> bool:
            return len(tried) > 2

        async def there() -> bool:
            return len(await bob.peek("bob")) == 1

        await soon(often)
        inbox.unlink()
        aside.rename(inbox)
        await soon(there)


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "filed", "agent": "a\0b", "names": "receipt_msg_1_a.done.json"},
        {"kind": "filed", "agent": "a" * 300, "names": "receipt_msg_1_a.done.json"},
        {"kind": "letter", "from": "a\0b", "seq": 1, "base": 1, "message": "{}"},
        {"kind": "letter", "from": "4ee06bf53968", "seq": "9" * 5000, "message": "{}"},
    ],
)
async def test_an_entry_that_makes_no_sense_keeps_back_no_letter(
    redis: RedisServer, tmp_path: Path, entry: dict[str, str | bytes | int]
) -> None:
    async with joined(redis, tmp_path, lambda message: False) as (ada, bob):
        wire = BusClient(BusSettings(url=redis.url))
        await wire.send([((await bob.run(identify)).id, entry)])
        await ada.send(Draft(action="execute", payload="one"), sender="ada", recipient="bob")

        async def there() -> bool:
            return len(await bob.peek("bob")) == 1

        await soon(there)
        assert await wire.stream_length("dead") == (entry["kind"] == "letter")
        await wire.close()


async def test_trimming_keeps_what_any_group_still_needs(redis: RedisServer) -> None:
    wire = BusClient(BusSettings(url=redis.url))
    client: Any = wire._redis
    key = wire.key("in", "n")
    await wire.create_stream("n")
    await client.xgroup_create(key, "slow", id="0")
    for number in range(10):
        await wire.send([("n", {"kind": "letter", "seq": number})])
    entries = await wire.read("n", "one", 10, 1)
    await wire.send([], "n", [entry.id for entry in entries[:4] + entries[5:]])
    await client.xreadgroup("slow", "two", {key: ">"}, count=7)
    await client.xack(key, "slow", *(entry.id for entry in entries[:7]))
    await wire.trim("n")
    left = [entry.id for entry in await wire.entries_after("in:n", "0-0", 100)]
    assert left == [entry.id for entry in entries[4:]]
    await wire.send([], "n", [entries[4].id])
    await wire.trim("n")
    # The slow group has read seven, and needs what comes behind.
    left = [entry.id for entry in await wire.entries_after("in:n", "0-0", 100)]
    assert left == [entry.id for entry in entries[6:]]
    assert (await wire.claim_idle("n", "three", 0, 10)) == []
    await wire.close()


async def test_what_a_dead_consumer_was_given_is_taken_over_in_its_order(redis: RedisServer) -> None:
    wire = BusClient(BusSettings(url=redis.url))
    await wire.create_stream("n")
    for number in range(5):
        await wire.send([("n", {"kind": "letter", "seq": number})])
    given = await wire.read("n", "dead", 3, 1)
    taken = await wire.claim_idle("n", "heir", 0, 10)
    assert [entry.id for entry in taken] == [entry.id for entry in given]
    assert {entry.deliveries for entry in taken} == {2}
    assert [entry.number("seq") for entry in await wire.read("n", "heir", 10, 1)] == [3, 4]
    await wire.close()


async def test_a_name_is_had_by_one_machine_until_that_has_been_silent_for_its_lease(
    redis: RedisServer,
) -> None:
    wire = BusClient(BusSettings(url=redis.url))
    await wire.renew_lease("first", "t1", "m1", 60_000, b"{}")
    assert b"first" in (await wire.claim_names("first", ["ada"]))[0]
    assert b"first" in (await wire.claim_names("second", ["ada"]))[0]
    await wire.release_lease("first", "t1", "m1")
    taken = (await wire.claim_names("second", ["ada"]))[0]
    assert b"second" in taken
    assert b'"fence":2' in taken
    await wire.close()


async def test_a_copied_folder_is_not_the_same_machine_but_a_new_start_on_it_is(redis: RedisServer) -> None:
    wire = BusClient(BusSettings(url=redis.url))
    assert await wire.renew_lease("n", "token-1", "here/boot", 60_000, b"{}")
    assert not await wire.renew_lease("n", "token-2", "elsewhere/boot", 60_000, b"{}")
    assert await wire.renew_lease("n", "token-3", "here/boot", 60_000, b"{}")
    await wire.close()


async def test_a_prefix_that_could_leave_its_keys_is_refused() -> None:
    with pytest.raises(SwitchboardError, match=r"bus\.prefix"):
        BusClient(BusSettings(url="redis://127.0.0.1:1", prefix="a}:b"))
