from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest

from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus import sender
from switchboard_mcp.bus.node import BusNode
from switchboard_mcp.bus.redis_client import BusClient, Fields, StreamEntry
from switchboard_mcp.bus.sender import BusSender
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store import dead_letters, quotas
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.store import MessageStore
from tests.cases import each_case

NODE = "4ee06bf53968"
FAR = {"alice": NODE}


class Stream:
    """What was shipped, by number; nothing of it is processed."""

    def __init__(self) -> None:
        self.letters: list[tuple[int, str]] = []
        self.epochs: list[str] = []
        self.receipts: list[str] = []
        self.added = 0
        self.holds = True

    async def send(self, to: Sequence[tuple[str, Fields]]) -> list[str]:
        for _, fields in to:
            self.added += 1
            if fields["kind"] == "receipt":
                self.receipts.append(cast(str, fields["name"]))
                continue
            message = msgspec.json.decode(cast(bytes, fields["message"]))
            self.letters.append((cast(int, fields["seq"]), message["payload"]))
            self.epochs.append(cast(str, fields["epoch"]))
        return [f"{self.added}-0" for _ in to]

    async def is_waiting(self, node: str, id: str, sender: str) -> bool:
        return self.holds

    async def stream_length(self, stream: str) -> int:
        return self.added


class Disk:
    """Writes what is saved, unless it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self._save = nodes.save
        monkeypatch.setattr(nodes, "save", self.save)

    def save(self, tx: Transaction, name: str, value: object, *, durable: bool) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self._save(tx, name, value, durable=durable)


def bus_sender(store: MessageStore, stream: Stream, me: BusNode) -> BusSender:
    """As after a start."""
    return BusSender(store, cast(BusClient, stream), me, lambda step: None)


async def send(store: MessageStore, text: str) -> None:
    await store.send(Draft(action="status_update", payload=text), sender="bob", recipient="alice")


def reply(me: BusNode, **fields: str) -> StreamEntry:
    words = {"from": NODE, "epoch": me.epoch, **fields}
    return StreamEntry("1-1", {name: value.encode() for name, value in words.items()})


async def stored(out: BusSender, me: BusNode, upto: int) -> None:
    await out.on_reply(reply(me, kind="stored", upto=str(upto)))


@each_case("starts_anew", [False, True])
async def test_a_number_is_given_once_though_the_disk_was_full_when_it_was_to_be_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts_anew: bool
) -> None:
    stream, disk = Stream(), Disk(monkeypatch)
    monkeypatch.setattr(sender, "RESERVED_NUMBERS", sender.BATCH)
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        await store.register("alice")
        me = await store.run(nodes.identify)
        out = bus_sender(store, stream, me)
        for number, text in enumerate(("one", "two"), 1):
            disk.full = True
            await send(store, text)
            for _ in range(2):  # It is moved the first time, and known to be under way the second.
                with pytest.raises(SwitchboardError, match="No space"):
                    await out.pump(FAR)
            assert len(stream.letters) == number - 1
            disk.full = False
            await out.pump(FAR)
            await stored(out, me, stream.letters[-1][0])
            if starts_anew:
                out = bus_sender(store, stream, me)
                await out.recover()
    assert [text for _, text in stream.letters] == ["one", "two"]
    assert stream.letters[0][0] < stream.letters[1][0]


@each_case("words", [{"kind": "stored", "upto": "2"}, {"kind": "refused", "seq": "1"}])
@each_case("fault", ["disk full", "cancelled"])
async def test_a_reply_that_could_not_be_acted_on_is_acted_on_when_it_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: dict[str, str], fault: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        await store.register("alice")
        me = await store.run(nodes.identify)
        out = bus_sender(store, Stream(), me)
        await send(store, "one")
        if words["kind"] == "stored":
            await send(store, "two")
        await out.pump(FAR)
        with monkeypatch.context() as broken:
            if fault == "disk full":
                broken.setattr(quotas, "settle", fail)
                broken.setattr(dead_letters, "dead_letter", fail)
                with pytest.raises(SwitchboardError, match="No space"):
                    await out.on_reply(reply(me, **words))
            else:  # another task of the relay failed, before the writer came to it
                broken.setattr(store, "run", lambda _work: asyncio.Event().wait())
                waiting = asyncio.ensure_future(out.on_reply(reply(me, **words)))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
        await out.on_reply(reply(me, **words))
        assert (await store.verify()).counts["shipped"] == 0
        assert not out.links[NODE].window


async def test_a_machine_that_is_gone_gets_every_message_once_however_often_the_connection_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "RESEND_AFTER_S", 0.0)
    stream = Stream()
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        await store.register("alice")
        out = bus_sender(store, stream, await store.run(nodes.identify))
        for text in ("one", "two"):
            await send(store, text)
            await out.pump(FAR)
        for _ in range(5):
            out.on_disconnect()
            await out.pump(FAR)
        assert [text for _, text in stream.letters] == ["one", "two"]
        stream.holds = False  # Redis has lost them.
        out.on_disconnect()
        await out.pump(FAR)
    assert [text for _, text in stream.letters] == ["one", "two"] * 2


async def test_the_stream_of_a_machine_that_confirms_nothing_has_a_limit_over_many_starts_of_its_sender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "MAX_STREAM_LENGTH", 20)
    stream = Stream()
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        await store.register("alice")
        me = await store.run(nodes.identify)
        out = bus_sender(store, stream, me)
        for number in range(6):
            await send(store, str(number))
        for _ in range(10):
            out = bus_sender(store, stream, me)
            await out.recover()
            while await out.pump(FAR):
                pass
        assert 20 <= stream.added <= 26
        stream.added = 0  # It is back, and has read all.
        while await out.pump(FAR):
            pass
        assert stream.added == 6


async def test_a_folder_from_an_older_copy_numbers_its_messages_anew(tmp_path: Path) -> None:
    stream = Stream()
    async with await MessageStore.open(str(tmp_path), watch=False) as store:
        await store.register("alice")
        me = await store.run(nodes.identify)
        out = bus_sender(store, stream, me)
        await send(store, "one")
        await out.pump(FAR)
        # Before the copy was put back, the other machine stored more than this folder knows of.
        await stored(out, me, 40_000)
        assert (await store.verify()).counts["shipped"] == 1
        await out.pump(FAR)
        again = await store.run(nodes.identify)
    assert [text for _, text in stream.letters] == ["one", "one"]
    assert stream.epochs == [me.epoch, again.epoch]
    assert again.id == me.id
    assert again.epoch != me.epoch
