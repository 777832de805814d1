from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.store import MessageStore


async def _send(store: MessageStore, text: str = "hello") -> str:
    draft = Draft(action="status_update", payload=text)
    return (await store.send(draft, sender="lead", recipient="coder")).id


async def test_an_agent_is_removed_from_inboxes_and_state_and_its_history_stays(workspace: Path) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as store:
        for agent in ("lead", "coder"):
            await store.register(agent)
        await store.update(
            lambda state: state.update(
                agents={"lead": {"name": "lead"}, "coder": {"name": "coder"}},
                teams={"core": {"members": ["lead", "coder"]}},
            )
        )
        settled = await _send(store)
        (claimed,) = await store.claim("coder")
        await store.ack("coder", settled, fence=claimed.fence)
        assert await store.remove_agent("coder") == 0
        assert await store.agents() == ["lead"]
        state = await store.state()
        assert list(state["agents"]) == ["lead"]
        assert state["teams"] == {"core": {"members": ["lead"]}}
        with pytest.raises(SwitchboardError) as unknown:
            await _send(store)
        assert unknown.value.failure.code == "mail_recipient_unknown"
        verdict = await store.verify()
        assert verdict.findings == []
        assert verdict.counts["archive"] == 1
        await store.register("coder")
        assert await store.peek("coder") == []


async def test_unsettled_messages_keep_an_agent_unless_they_are_rejected(workspace: Path) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as store:
        for agent in ("lead", "coder"):
            await store.register(agent)
        ids = {await _send(store, "one"), await _send(store, "two")}
        await store.claim("coder")
        with pytest.raises(SwitchboardError, match="not settled"):
            await store.remove_agent("coder")
        assert await store.agents() == ["coder", "lead"]
        assert await store.remove_agent("coder", force=True) == 2
        assert await store.agents() == ["lead"]
        receipts = await store.receipts("lead")
        assert {(each.in_reply_to, each.status) for each in receipts} == {(id, "rejected") for id in ids}
        assert (await store.verify()).sound


async def test_a_read_only_store_can_be_read_and_verified(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as store:
        for agent in ("lead", "coder"):
            await store.register(agent)
        sent = await _send(store)
        (workspace / ".switchboard" / "inbox" / "coder" / "msg_dropped.json").write_text("{}")
    real = os.open

    def read_only(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, *args, **options)

    def refuse(*args: object, **_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", read_only)
    monkeypatch.setattr(file_operations, "move", refuse)
    async with await MessageStore.open(str(workspace)) as store:
        assert [each.message.id for each in await store.peek("coder")] == [sent]
        assert [each.message.id for each in await store.wait("coder", 0.05)] == [sent]
        assert (await store.read("coder", sent)).message.payload == "hello"
        assert [each.message.id for each in await store.search("coder", "hello")] == [sent]
        assert [each.in_reply_to for each in await store.receipts("lead")] == [sent]
        assert (await store.verify()).sound
        with pytest.raises(SwitchboardError) as refused:
            await _send(store)
        assert refused.value.failure.code == "mail_not_stored"
