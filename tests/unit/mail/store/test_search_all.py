"""A search considers every message, however many there are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store import message_search
from switchboard_mcp.mail.store.store import MessageStore


async def _fill(store: MessageStore) -> list[str]:
    for agent in ("lead", "ops", "coder"):
        await store.register(agent)
    drafts = [
        Draft(action="status_update", payload=f"report number{number} of the day") for number in range(60)
    ]
    drafts[0] = Draft(action="request_review", payload="the quaternion parser is wrong")
    sent = await asyncio.gather(
        *(
            store.send(draft, sender="ops" if number % 10 == 5 else "lead", recipient="coder")
            for number, draft in enumerate(drafts)
        )
    )
    return [each.id for each in sent]


def do_harm(file: Path, harm: str) -> None:
    if harm == "corrupt":
        file.write_bytes(b"not a database" * 1000)
    elif harm == "gone":
        file.unlink(missing_ok=True)
    else:
        assert file.exists()


@pytest.mark.parametrize("harm", ["", "corrupt", "gone"])
async def test_the_oldest_message_is_found_among_more_than_are_ranked(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    monkeypatch.setattr(message_search, "MAX_RANKED", 10)
    monkeypatch.setattr(message_search, "BATCH", 7)
    async with await MessageStore.open(str(workspace), watch=False) as store:
        ids = await _fill(store)
        for _ in range(2):
            (found, *_) = await store.search("coder", "quaternion")
            assert found.message.id == ids[0]
            do_harm(workspace / ".switchboard" / "index" / "coder.words.db", harm)
        (claimed,) = await store.claim("coder")
        await store.ack("coder", claimed.message.id, fence=claimed.fence)
        (found, *_) = await store.search("coder", "quaternion")
        assert (found.message.id, found.place) == (ids[0], "archive")
        by_sender = await store.search("coder", "", sender="ops")
        assert {each.message.sender for each in by_sender} == {"ops"}
        assert len(by_sender) == 6
        assert [each.message.id for each in await store.search("coder", "", limit=3)] == ids[:-4:-1]
        assert (await store.search("coder", "numbr59"))[0].message.id == ids[59]  # a typing error
        assert (await store.search("coder", '"quaternion" OR *'))[0].message.id == ids[0]
