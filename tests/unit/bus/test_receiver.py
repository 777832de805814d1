from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest

from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus import receiver
from switchboard_mcp.bus.malformed import MalformedValues
from switchboard_mcp.bus.node import BusNode
from switchboard_mcp.bus.receiver import BusReceiver
from switchboard_mcp.bus.redis_client import BusClient, Fields, StreamEntry
from switchboard_mcp.bus.sequence import SequenceMark
from switchboard_mcp.mail.messages import MailMessage
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.store import MessageStore
from tests.cases import each_case

FROM, EPOCH = "4ee06bf53968", "1c0de1c0de12"


class Replies:
    """Takes what a receiver answers."""

    def __init__(self) -> None:
        self.malformed = MalformedValues()
        self.confirmed = 0

    async def send(self, to: Sequence[tuple[str, Fields]], own: str, acked: Sequence[str]) -> None:
        self.confirmed = max([self.confirmed, *(cast(int, fields.get("upto", 0)) for _, fields in to)])


def letter(number: int, base: int) -> StreamEntry:
    message = MailMessage(
        id=f"msg_{number:016d}_{number:04x}",
        action="status_update",
        sender="ada",
        recipient="bob",
        payload=str(number),
        created_at="2026-07-28T12:00:00.000Z",
    )
    fields = {"kind": "letter", "from": FROM, "epoch": EPOCH, "seq": str(number), "base": str(base)}
    encoded = {name: value.encode() for name, value in fields.items()}
    return StreamEntry(f"{number}-0", {**encoded, "message": msgspec.json.encode(message)})


async def receive(store: MessageStore, replies: Replies, numbers: range, base: int, batch: int) -> None:
    """As a relay that has just started."""
    node = BusNode("0" * 12, "1" * 12)
    inbound = BusReceiver(store, cast(BusClient, replies), node, lambda step: None)
    for first in range(numbers.start, numbers.stop, batch):
        some = range(first, min(first + batch, numbers.stop))
        await inbound.receive([letter(number, base) for number in some])


@each_case("skipped", [0, 4_096])
async def test_no_message_is_stored_twice_after_a_power_failure_of_receiver_and_redis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skipped: int
) -> None:
    monkeypatch.setattr(receiver, "MAX_BATCH", 8)
    monkeypatch.setattr(receiver, "MAX_UNMARKED", 16)
    # The system wrote the first mark to the disk by itself; later ones only if they are synced.
    durable: dict[str, object] = {nodes.received_file(FROM): SequenceMark(EPOCH, 3)}
    save = nodes.save

    def watched(tx: Transaction, name: str, value: object, **options: bool) -> None:
        save(tx, name, value, durable=options["durable"])
        if options["durable"]:
            durable[name] = value

    monkeypatch.setattr(nodes, "save", watched)
    replies = Replies()
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        await store.register("bob")
        await receive(store, replies, range(1, 30), 1, 3)
        first = 30 + skipped  # The sender may have started anew.
        await receive(store, replies, range(first, first + 27), first, 3)
        assert replies.confirmed == first + 26
        # The messages are durable; what was saved of the link since its last durable mark is gone.
        for name, value in durable.items():
            await store.run(lambda tx, name=name, value=value: save(tx, name, value, durable=False))  # type: ignore[misc]
        # Redis lost the last replies too, so the sender sends what it knows no confirmation of.
        await receive(store, replies, range(first + 20, first + 32), first + 20, 3)
        claimed = await store.claim("bob", limit=100)
    payloads = [int(each.message.payload) for each in claimed]
    assert payloads == [*range(1, 30), *range(first, first + 32)]


async def test_an_entry_of_another_epoch_in_a_batch_doubles_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "MAX_UNMARKED", 4)
    replies = Replies()
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        await store.register("bob")
        node = BusNode("0" * 12, "1" * 12)
        inbound = BusReceiver(store, cast(BusClient, replies), node, lambda step: None)
        for number in range(1, 9):
            await inbound.receive([letter(number, 1)])
        forged = letter(50, 50)
        forged.fields["epoch"], forged.fields["message"] = b"2" * 12, b"none"
        # The sender sends again what was not confirmed to it.
        await inbound.receive([forged, *(letter(number, 6) for number in range(6, 12))])
        claimed = await store.claim("bob", limit=100)
    assert [int(each.message.payload) for each in claimed] == [*range(1, 12)]
