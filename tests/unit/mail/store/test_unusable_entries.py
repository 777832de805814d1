"""One entry that cannot be handled, in any folder of the store, stops neither its agent nor the others."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from switchboard_mcp.errors import Failure, SwitchboardError
from switchboard_mcp.mail.messages import Delivery, DeliveryRule, Draft, MailMessage
from switchboard_mcp.mail.store import dead_letters, dropped_files
from switchboard_mcp.mail.store.maintenance import sweeper
from switchboard_mcp.mail.store.maintenance.retention import prune
from switchboard_mcp.mail.store.store import MessageStore
from tests import patience

NAMES = [
    b"msg_\xff.json",
    b"msg_\xed\xa0\x80.json",
    b"\xfe\xff",
    b"msg_" + b"\xff" * 240 + b".json",
    b"msg_a\nb\x1b[2J.json",
    b"a" * 255,
    "msg_\u202ex.json".encode(),
]
PLACES = ["inbox/coder", "inbox", "claimed/coder", "archive/coder", "deadletter/coder", "outbox/lead",
          "keys/coder", "shipped/coder", "attachments", "locks", "tmp", "claimed", "deadletter"]  # fmt: skip


def dropped(name: str, recipient: str) -> bytes:
    message = {
        "id": name,
        "action": "status_update",
        "sender": "lead",
        "recipient": recipient,
        "payload": "hi",
        "createdAt": "2025-01-01T00:00:00.000Z",
    }
    return json.dumps(message).encode()


@pytest_asyncio.fixture
async def store(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MessageStore]:
    monkeypatch.setattr(dropped_files, "SETTLE_S", 0.0)
    async with await MessageStore.open(str(workspace), watch=False) as opened:
        for agent in ("coder", "lead", "zoe"):
            await opened.register(agent)
        yield opened


async def use_everything(store: MessageStore, workspace: Path) -> list[Delivery]:
    """Use every operation for the agent and another one; each must do its work."""
    root = workspace / ".switchboard"
    sent = await store.send(Draft(action="status_update", payload="hello"), sender="lead", recipient="coder")
    (root / "inbox" / "coder" / "msg_good.json").write_bytes(dropped("msg_good", "coder"))
    (root / "inbox" / "zoe" / "msg_z.json").write_bytes(dropped("msg_z", "zoe"))
    deliveries = await store.deliver()
    assert {each.message.id for each in await store.peek("coder")} == {sent.id, "msg_good"}
    assert [each.message.id for each in await store.wait("zoe", 0.1)] == ["msg_z"]
    assert {each.message.id for each in await store.search("coder", "")} == {sent.id, "msg_good"}
    assert (await store.read("coder", sent.id)).message.payload == "hello"
    for claimed in await store.claim("coder", limit=5):
        await store.ack("coder", claimed.message.id, fence=claimed.fence)
    assert len(await store.receipts("lead")) >= 2
    verdict = await store.verify()
    assert verdict.sound
    msgspec.json.encode(verdict)
    msgspec.json.encode(await store.repair())
    assert (await prune(store, 0.0)).messages == 2
    msgspec.json.encode(deliveries)
    return deliveries


def put_everywhere(workspace: Path, name: bytes) -> None:
    for place in PLACES:
        folder = workspace / ".switchboard" / place
        folder.mkdir(0o700, parents=True, exist_ok=True)
        (folder / os.fsdecode(name)).write_bytes(b"?")


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name[:20]))
async def test_a_name_that_is_no_text_stops_no_operation(
    store: MessageStore, workspace: Path, name: bytes
) -> None:
    put_everywhere(workspace, name)
    deliveries = await use_everything(store, workspace)
    # What is in an inbox is set aside with a reason; the bytes of its name are not needed to read that.
    assert os.listdir(workspace / ".switchboard" / "inbox" / "coder") == []
    assert sum(each.problem is not None for each in deliveries) == 2
    msgspec.json.encode(await store.run(lambda tx: dead_letters.list_dead_letters(tx, "coder")))


async def test_a_message_on_which_a_rule_breaks_is_set_aside_and_the_next_is_delivered(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropped_files, "SETTLE_S", 0.0)

    def rule(message: MailMessage) -> MailMessage | Failure:
        if message.id == "msg_breaks":
            raise ZeroDivisionError
        return message

    rules: list[DeliveryRule] = [rule]
    async with await MessageStore.open(str(workspace), rules=rules, watch=False) as store:
        for agent in ("coder", "lead"):
            await store.register(agent)
        inbox = workspace / ".switchboard" / "inbox" / "coder"
        for name in ("msg_breaks", "msg_good"):
            (inbox / f"{name}.json").write_bytes(dropped(name, "coder"))
        outcomes = {each.file: each.problem for each in await store.deliver("coder")}
        assert outcomes["msg_good.json"] is None
        problem = outcomes["msg_breaks.json"]
        assert problem is not None
        assert "ZeroDivisionError" in problem.message
        assert [each.message.id for each in await store.peek("coder")] == ["msg_good"]


async def test_a_sweep_goes_on_after_an_agent_whose_inbox_cannot_be_handled(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropped_files, "SETTLE_S", 0.0)
    monkeypatch.setattr(sweeper, "TICK_S", 0.05)
    deliver = dropped_files.deliver

    def failing(tx: object, agent: str, rules: object, **options: float) -> object:
        if agent == "coder":
            raise OSError(5, "Input/output error")
        return deliver(tx, agent, rules, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(dropped_files, "deliver", failing)
    delivered = asyncio.Event()

    def report(delivery: Delivery) -> None:
        if delivery.id == "msg_z" and delivery.problem is None:
            delivered.set()

    async with await MessageStore.open(str(workspace), report=report) as store:
        for agent in ("coder", "zoe", "lead"):
            await store.register(agent)
        (workspace / ".switchboard" / "inbox" / "coder" / "msg_c.json").write_bytes(dropped("msg_c", "coder"))
        (workspace / ".switchboard" / "inbox" / "zoe" / "msg_z.json").write_bytes(dropped("msg_z", "zoe"))
        async with asyncio.timeout(patience.PATIENCE_S):
            await delivered.wait()


async def test_a_process_without_descriptors_sets_no_message_aside(
    store: MessageStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = await store.send(Draft(action="status_update", payload="hello"), sender="lead", recipient="coder")
    real = os.open

    def none_left(path: str, *args: int, **options: int) -> int:
        if str(path).startswith("msg_"):
            raise OSError(24, "Too many open files")
        return real(path, *args, **options)

    async with await MessageStore.open(str(workspace), watch=False) as other:
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", none_left)
            with pytest.raises(SwitchboardError):
                await other.peek("coder")
        assert [each.message.id for each in await other.peek("coder")] == [sent.id]
