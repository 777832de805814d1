"""The newest receipts of a sender with very many are found without listing its outbox."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store import file_operations, receipts
from switchboard_mcp.mail.store.index import recent_receipts
from switchboard_mcp.mail.store.store import MessageStore


async def _send(store: MessageStore, text: str) -> str:
    draft = Draft(action="status_update", payload=text)
    return (await store.send(draft, sender="lead", recipient="coder")).id


async def _newest(store: MessageStore, limit: int = 4) -> list[str]:
    return [each.in_reply_to for each in await store.receipts("lead", limit=limit)]


async def test_the_newest_receipts_are_found_without_listing_a_large_outbox(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "LARGE_FOLDER_BYTES", 0)
    # So the file that is appended to takes the place of the other one several times.
    monkeypatch.setattr(recent_receipts, "MAX_BYTES", 600)
    listed: list[str] = []
    each_name = file_operations.each_name

    def listing(folder: int) -> Iterator[str]:
        path = Path(os.readlink(f"/proc/self/fd/{folder}"))
        if path.parent.name == "outbox":
            listed.append(path.name)
        return each_name(folder)

    monkeypatch.setattr(file_operations, "each_name", listing)
    async with (
        await MessageStore.open(str(workspace), watch=False) as one,
        await MessageStore.open(str(workspace), watch=False) as two,
    ):
        for agent in ("lead", "coder"):
            await one.register(agent)
        ids = [await _send(one, str(number)) for number in range(5)]
        assert await _newest(one) == ids[:0:-1]
        assert listed == ["lead"]
        ids += [await _send(store, str(number)) for number in range(20) for store in (one, two)]
        assert await _newest(one) == await _newest(two) == ids[:-5:-1]
        (held,) = await two.claim("coder")
        await two.ack("coder", held.message.id, fence=held.fence)
        (newest,) = await one.receipts("lead", limit=1)
        assert (newest.in_reply_to, newest.status) == (ids[0], "done")
        assert listed == ["lead"], "once"
        # More than is known is listed, and so is everything once the files are gone or of another boot.
        assert len(await _newest(one, 45)) == 45
        index = workspace / ".switchboard" / "index"
        for file in index.glob("lead.receipts.*"):
            file.rename(index / file.name.replace("lead.receipts.", "lead.receipts.0"))
        assert await _newest(one) == [ids[0], *ids[:-4:-1]]
        assert listed == ["lead"] * 3
        assert len(os.listdir(index)) == 2, "those of another boot are removed"
        for file in index.glob("lead.receipts.*"):
            file.write_bytes(b"\xff\x00../../x\n" * 9)
        assert await _newest(one) == [ids[0], *ids[:-4:-1]]
