"""Retention removes messages settled long ago, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from switchboard_mcp.config.sections import MailSettings
from switchboard_mcp.mail.messages import MAX_PAYLOAD_BYTES, Draft, Outcome, Sent
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.maintenance.cleanup import StoreFinding
from switchboard_mcp.mail.store.maintenance.repair import repair
from switchboard_mcp.mail.store.maintenance.retention import (
    Pruned,
    find_prunable,
    prune,
    remove_messages,
    would_prune,
)
from switchboard_mcp.mail.store.store import MessageStore
from tests.unit.mail.office import Hours, office

HOUR = 3_600.0


@pytest.fixture
def hours() -> Hours:
    return Hours()


@pytest_asyncio.fixture
async def store(workspace: Path, hours: Hours) -> AsyncIterator[MessageStore]:
    async with await MessageStore.open(str(workspace), watch=False, clocks=hours.clocks()) as opened:
        for name in ("lead", "coder"):
            await opened.register(name)
        yield opened


async def send(store: MessageStore, payload: str = "x", key: str | None = None) -> Sent:
    content = Draft(action="delegate_task", payload=payload, idempotency_key=key)
    return await store.send(content, sender="lead", recipient="coder")


async def settle(store: MessageStore, sent: Sent, outcome: Outcome = "done") -> None:
    await store.ack("coder", sent.id, outcome=outcome)


def names(workspace: Path) -> list[str]:
    """Every file of messages, without their parts that differ from run to run."""
    root = workspace / ".switchboard"
    places = ("inbox", "claimed", "archive", "deadletter", "outbox", "keys", "attachments")
    return sorted(
        path.parent.relative_to(root).as_posix() for p in places for path in (root / p).rglob("*.*")
    )


async def test_what_was_settled_long_ago_goes_with_all_that_belongs_to_it(
    store: MessageStore, workspace: Path, hours: Hours
) -> None:
    large = "y" * (MAX_PAYLOAD_BYTES + 1)
    await settle(store, await send(store, large, key="k"))
    await settle(store, await send(store), "failed")
    hours.passed += 2
    assert (await would_prune(store, HOUR)).messages == 2
    assert len(names(workspace)) == 7
    assert await would_prune(store, 3 * HOUR) == Pruned()
    done = await prune(store, HOUR)
    assert (done.messages, done.receipts, done.attachments) == (2, 4, 1)
    assert done.bytes > len(large)
    assert names(workspace) == []
    assert list((workspace / ".switchboard" / "keys" / "coder").iterdir()) == []
    assert (await store.verify()).sound
    assert not (await send(store, key="k")).duplicate


async def test_what_has_not_ended_stays(store: MessageStore, workspace: Path, hours: Hours) -> None:
    large = "y" * (MAX_PAYLOAD_BYTES + 1)
    await settle(store, await send(store, large))
    await settle(store, await send(store), "rejected")
    await send(store, large)
    await send(store)
    hours.passed += 1
    await store.claim("coder", lease_s=86_400)
    hours.passed += 1
    before = names(workspace)
    done = await prune(store, HOUR)
    assert (done.messages, done.receipts, done.attachments) == (1, 2, 0)
    assert sorted([*names(workspace), "archive/coder", "outbox/lead", "outbox/lead"]) == before
    assert (await store.verify()).counts == {
        "inbox": 1,
        "claimed": 1,
        "shipped": 0,
        "archive": 0,
        "deadletter": 1,
    }
    assert (await store.verify()).sound


async def test_an_attachment_that_is_sent_again_is_as_new(store: MessageStore, workspace: Path) -> None:
    large = "y" * (MAX_PAYLOAD_BYTES + 1)
    await send(store, large)
    (file,) = (workspace / ".switchboard" / "attachments").iterdir()
    earlier = file.stat().st_ino
    await send(store, large)
    (file,) = (workspace / ".switchboard" / "attachments").iterdir()
    assert file.stat().st_ino != earlier


async def test_the_receipt_of_a_refused_file_goes_in_its_time(
    store: MessageStore, workspace: Path, hours: Hours, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard_mcp.mail.store.dropped_files.SETTLE_S", 0.0)
    (workspace / ".switchboard" / "inbox" / "coder" / "msg_a.json").write_text(
        '{"id":"msg_a","sender":"lead","action":"sing","payload":"la","recipient":"coder"}'
    )
    await store.deliver()
    assert "outbox/lead" in names(workspace)
    assert (await prune(store, HOUR)).receipts == 0
    hours.passed += 2
    assert (await prune(store, HOUR)).receipts == 1
    assert set(names(workspace)) == {"deadletter/coder"}


async def test_what_another_machine_has_yet_to_say_or_to_hear_is_waited_for(
    store: MessageStore, workspace: Path, hours: Hours
) -> None:
    root = workspace / ".switchboard"
    shipped = await send(store)
    (root / "archive" / "coder").mkdir(mode=0o700)
    name = f"{shipped.id}.json"
    (root / "inbox" / "coder" / name).rename(root / "archive" / "coder" / name)
    (root / "elsewhere").mkdir(mode=0o700)
    (root / "elsewhere" / "coder").write_text("{}")
    hours.passed += 2
    assert (await prune(store, HOUR)).messages == 0
    (root / "elsewhere" / "lead").write_text("{}")
    (root / "elsewhere" / "coder").unlink()
    assert (await prune(store, HOUR)) == Pruned()
    (root / "elsewhere" / "lead").unlink()
    assert (await prune(store, HOUR)).messages == 1


async def test_a_server_does_so_by_itself_where_days_are_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard_mcp.mail.server.MAX_CHECK_S", 0.01)
    monkeypatch.setattr("switchboard_mcp.mail.server.DAY_S", 0.01)
    async with office(tmp_path, MailSettings(enabled=True, keep_days=1)) as server:
        ada, bob = await server.agent("ada"), await server.agent("bob")
        await ada.call("send_message", recipient="bob", action="delegate_task", payload="p")
        ((message,),) = (await bob.call("claim_messages")).values()
        await bob.call("ack_message", id=message["id"], outcome="done")
        await server.log.until(b"mail.pruned")
        assert list((tmp_path / ".switchboard" / "archive" / "bob").iterdir()) == []


async def test_who_mends_meanwhile_leaves_no_receipt_of_what_is_gone(
    store: MessageStore, hours: Hours, monkeypatch: pytest.MonkeyPatch
) -> None:
    await settle(store, await send(store))
    hours.passed += 2
    mended: list[list[StoreFinding]] = []
    plain = Transaction.sync_folders

    def meanwhile(self: Transaction) -> None:
        plain(self)
        if not mended:
            mended.append([])
            mended.append(repair(self))

    def work(tx: Transaction) -> None:
        found = find_prunable(tx, tx.clocks.microseconds() / 1e6 - HOUR)
        with monkeypatch.context() as patch:
            patch.setattr(Transaction, "sync_folders", meanwhile)
            remove_messages(tx, found, Pruned())

    await store.run(work)
    assert [each.kind for each in mended[1]] == ["receipt_missing"] * 2
    assert (await store.verify()).sound
