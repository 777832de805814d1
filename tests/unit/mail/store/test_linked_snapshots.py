"""Snapshots made with hard links (`cp -al`, rsnapshot) give every file of the store a second name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from switchboard_mcp.mail.messages import Draft, Sent
from switchboard_mcp.mail.presence import Presence
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.store import MessageStore


def snapshot(workspace: Path) -> None:
    """Link every file below `.switchboard` into another folder, like `cp -al`."""
    source, target = workspace / ".switchboard", workspace / "snapshot"
    for folder, _, names in os.walk(source):
        copy = target / Path(folder).relative_to(source)
        copy.mkdir(parents=True)
        for name in names:
            os.link(Path(folder) / name, copy / name)


async def _send(store: MessageStore, text: str, **more: str) -> Sent:
    draft = Draft(action="status_update", payload=text, idempotency_key=more.get("key"))
    return await store.send(draft, sender="lead", recipient="coder")


@pytest.mark.parametrize("fresh", [False, True], ids=["same process", "new process"])
async def test_a_snapshot_with_hard_links_changes_nothing(workspace: Path, fresh: bool) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as store:
        for agent in ("lead", "coder"):
            await store.register(agent)
        await store.update(lambda state: state.update(teams={"core": {"members": ["lead"]}}))
        waiting = await _send(store, "waits", key="k")
        (held,) = await store.claim("coder", ids=[(await _send(store, "held")).id])
        (done,) = await store.claim("coder", ids=[(await _send(store, "done")).id])
        await store.ack("coder", done.message.id, fence=done.fence)
        large = await _send(store, "x" * 2_000_000)
        if not fresh:
            snapshot(workspace)
            await _check(store, waiting, held.message.id, held.fence, done.message.id, large)
    if fresh:
        snapshot(workspace)
        async with await MessageStore.open(str(workspace)) as store:
            await _check(store, waiting, held.message.id, held.fence, done.message.id, large)


async def _check(store: MessageStore, waiting: Sent, held: str, fence: int, done: str, large: Sent) -> None:
    assert [each.problem for each in await store.deliver()] == []
    assert [each.message.id for each in await store.peek("coder")] == [waiting.id, large.id]
    assert (await _send(store, "waits", key="k")).duplicate
    assert (await store.state())["teams"] == {"core": {"members": ["lead"]}}
    assert len(await store.attachment((await store.read("coder", large.id)).message)) == 2_000_000
    assert {receipt.in_reply_to for receipt in await store.receipts("lead")} == {
        waiting.id, held, done, large.id
    }  # fmt: skip
    await store.renew("coder", held, fence=fence)
    await store.ack("coder", held, fence=fence)
    assert {each.message.id for each in await store.search("coder", places=("archive",))} == {held, done}
    verdict = await store.verify()
    assert verdict.findings == []
    assert verdict.counts["deadletter"] == 0
    assert await store.repair() == []
    for claimed in await store.claim("coder", limit=5):
        await store.ack("coder", claimed.message.id, fence=claimed.fence)
    assert (await store.verify()).counts["archive"] == 4
    presence = Presence(store.path)
    assert presence.acquire("coder") is not None


async def test_a_move_that_was_interrupted_is_finished_beside_a_snapshot(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as store:
        for agent in ("lead", "coder"):
            await store.register(agent)
        sent = await _send(store, "one")
        (held,) = await store.claim("coder")
        root = workspace / ".switchboard"
        (name,) = os.listdir(root / "claimed" / "coder")
        os.link(root / "claimed" / "coder" / name, root / "inbox" / "coder" / f"{sent.id}.json")
        snapshot(workspace)
        monkeypatch.setattr("switchboard_mcp.mail.store.dropped_files.SETTLE_S", 0.0)
        verdict = await store.verify()
        assert [finding.kind for finding in verdict.findings] == ["half_moved"]
        assert verdict.sound
        assert await store.deliver("coder") == []
        assert await store.peek("coder") == []
        await store.ack("coder", sent.id, fence=held.fence)
        assert (await store.verify()).findings == []


def test_a_file_with_other_names_is_read_only_if_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    os.link(tmp_path / "a", tmp_path / "b")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert isinstance(file_operations.read(folder, "a", 10), file_operations.FileContent)
        assert file_operations.read_unshared(folder, "a", 10) == file_operations.LINKED
    finally:
        os.close(folder)
