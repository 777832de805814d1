"""Messages that nobody settles, and the way back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.messages import DeadLetter, Delivery, Draft
from switchboard_mcp.mail.store import dead_letters
from switchboard_mcp.mail.store.filenames import MAX_RETURNS
from switchboard_mcp.mail.store.store import MessageStore
from tests.unit.mail.office import Hours


async def dead(store: MessageStore) -> list[DeadLetter]:
    return await store.run(lambda tx: dead_letters.list_dead_letters(tx, "coder"))


async def requeue(store: MessageStore, dead_id: str) -> None:
    await store.run(lambda tx: dead_letters.requeue(tx, "coder", dead_id))


async def fail_for_ever(store: MessageStore, hours: Hours) -> list[int]:
    """Claim and never settle, as long as there is something; which delivery each was."""
    deliveries = []
    while taken := await store.claim("coder", lease_s=60):
        deliveries += [one.deliveries for one in taken]
        hours.passed += 1
    return deliveries


async def test_a_message_that_nobody_settles_becomes_a_dead_letter_and_its_sender_hears_of_it(
    workspace: Path,
) -> None:
    hours, result = Hours(), list[Delivery]()
    async with await MessageStore.open(
        str(workspace), watch=False, clocks=hours.clocks(), report=result.append
    ) as store:
        await store.register("coder")
        sent = await store.send(Draft(action="delegate_task", payload="x"), sender="lead", recipient="coder")
        assert await fail_for_ever(store, hours) == list(range(1, MAX_RETURNS + 2))
        (message,) = await dead(store)
        assert (message.id, message.reason) == (sent.id, "The message was claimed 5 times and never settled.")
        (receipt,) = await store.receipts("lead", ids=[sent.id])
        assert (receipt.status, receipt.error) == ("failed", message.reason)
        assert [each.id for each in result if each.problem] == [sent.id]
        assert (await store.verify()).sound


async def test_while_it_came_back_it_is_one_message_under_its_id(workspace: Path) -> None:
    hours = Hours()
    async with await MessageStore.open(str(workspace), watch=False, clocks=hours.clocks()) as store:
        await store.register("coder")
        content = Draft(action="delegate_task", payload="x", idempotency_key="k")
        sent = await store.send(content, sender="lead", recipient="coder")
        await store.claim("coder", lease_s=60)
        hours.passed += 1
        await store.run(lambda tx: None)
        (taken,) = await store.claim("coder")
        await store.release("coder", sent.id, fence=taken.fence)
        assert (await store.send(content, sender="lead", recipient="coder")).duplicate
        assert (await store.read("coder", sent.id)).place == "inbox"
        (again,) = await store.claim("coder")
        assert again.deliveries == 2, "who gives a message back has not failed"
        assert (await store.ack("coder", sent.id, fence=again.fence)).outcome == "done"
        assert (await store.verify()).sound


async def test_a_dead_letter_that_is_put_back_is_as_new(workspace: Path) -> None:
    hours = Hours()
    async with await MessageStore.open(str(workspace), watch=False, clocks=hours.clocks()) as store:
        await store.register("coder")
        sent = await store.send(Draft(action="delegate_task", payload="x"), sender="lead", recipient="coder")
        await fail_for_ever(store, hours)
        await requeue(store, sent.id)
        assert await dead(store) == []
        assert list((workspace / ".switchboard" / "deadletter" / "coder").iterdir()) == []
        assert [each.status for each in await store.receipts("lead", ids=[sent.id])] == ["delivered"]
        (taken,) = await store.claim("coder")
        assert (taken.message.id, taken.deliveries) == (sent.id, 1)
        await store.ack("coder", sent.id, fence=taken.fence)
        assert [each.status for each in await store.receipts("lead", ids=[sent.id])] == ["done"]
        with pytest.raises(SwitchboardError, match="has no dead letter"):
            await requeue(store, sent.id)


async def test_what_was_to_be_typed_is_not_put_back(workspace: Path) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as store:
        await store.register("coder")
        sent = await store.send(Draft(action="execute", payload="ls"), sender="lead", recipient="coder")
        await store.ack("coder", sent.id, outcome="rejected")
        with pytest.raises(SwitchboardError, match="cannot be requeued"):
            await requeue(store, sent.id)
        assert [each.id for each in await dead(store)] == [sent.id]


async def test_a_refused_file_that_is_put_back_is_looked_at_again(workspace: Path) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as store:
        await store.register("coder")
        inbox = workspace / ".switchboard" / "inbox" / "coder"
        content = {"id": "msg_a", "action": "status_update", "sender": "lead", "payload": "x"}
        (inbox / "msg_a.json").write_text(json.dumps({**content, "recipient": "tester"}))
        (inbox / "msg_a.json").touch()
        while not (found := await dead(store)):
            await store.deliver()
        assert "`recipient` is 'tester'" in found[0].reason
        file = workspace / ".switchboard" / found[0].file
        with pytest.raises(SwitchboardError, match="`recipient` is 'tester'") as still:
            await requeue(store, found[0].id)
        assert str(file) in (still.value.failure.hint or "")
        assert await dead(store) == found
        file.write_text(json.dumps({**content, "recipient": "coder"}))
        await requeue(store, found[0].id)
        assert [each.message.id for each in await store.peek("coder")] == ["msg_a"]
        assert [each.status for each in await store.receipts("lead", ids=["msg_a"])] == ["delivered"]
        assert await dead(store) == []


async def test_a_file_that_is_named_like_no_message_is_not_put_back(workspace: Path) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as store:
        await store.register("coder")
        folder = workspace / ".switchboard" / "deadletter" / "coder"
        await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True)
        content = {
            "action": "status_update",
            "sender": "lead",
            "payload": "x",
            "id": "msg_a",
            "recipient": "coder",
        }
        (folder / "foreign_1794763083554934_notes.txt").write_text(json.dumps(content))
        with pytest.raises(SwitchboardError, match=r"'notes\.txt' is not msg_"):
            await requeue(store, "foreign_1794763083554934_notes.txt")
