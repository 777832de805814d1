"""Several processes share a workspace: one of them delivers dropped files, in order and once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.mail.messages import Delivery, Draft
from switchboard_mcp.mail.store import dropped_files, file_operations
from switchboard_mcp.mail.store.clocks import system_clocks
from switchboard_mcp.mail.store.directory import StoreDirectory, Transaction
from switchboard_mcp.mail.store.filenames import Lease
from switchboard_mcp.mail.store.index import inbox_comparison, inbox_index
from switchboard_mcp.mail.store.maintenance import cleanup, lease_record, sweeper
from switchboard_mcp.mail.store.maintenance.sweeper import SweeperLock
from switchboard_mcp.mail.store.store import MessageStore
from tests import patience


def drop(workspace: Path, name: str) -> None:
    message = {
        "id": name,
        "action": "status_update",
        "sender": "lead",
        "recipient": "coder",
        "payload": "hi",
        "createdAt": "2025-01-01T00:00:00.000Z",
    }
    inbox = workspace / ".switchboard" / "inbox" / "coder"
    (inbox / f".{name}").write_text(json.dumps(message))
    os.replace(inbox / f".{name}", inbox / f"{name}.json")


class _Watched:
    """Stores of one workspace that watch it, and the files they have delivered."""

    def __init__(self) -> None:
        self.delivered: list[str] = []
        self.changed = asyncio.Event()

    def report(self, delivery: Delivery) -> None:
        assert delivery.problem is None
        self.delivered.append(str(delivery.id))
        self.changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(patience.PATIENCE_S):
            while len(self.delivered) < count:
                self.changed.clear()
                await self.changed.wait()


async def _open(stack: AsyncExitStack, workspace: Path, count: int, watched: _Watched) -> list[MessageStore]:
    stores = []
    for _ in range(count):
        store = await MessageStore.open(str(workspace), report=watched.report)
        stores.append(await stack.enter_async_context(store))
    for agent in ("lead", "coder"):
        await stores[0].register(agent)
    return stores


async def test_dropped_files_keep_their_order_though_many_processes_watch(workspace: Path) -> None:
    watched = _Watched()
    names = [f"msg_{number:03d}" for number in range(60)]
    async with AsyncExitStack() as stack:
        stores = await _open(stack, workspace, 4, watched)
        for name in names:
            drop(workspace, name)
            # Readers deliver too, at the same time as the one that sweeps.
            await asyncio.gather(*(store.peek("coder", limit=1) for store in stores))
        await watched.until(len(names))
        waiting = await stores[0].peek("coder", limit=100)
    assert [each.message.id for each in waiting] == names
    assert sorted(watched.delivered) == names


async def test_one_process_writes_a_dropped_file_and_the_others_do_nothing(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = _Watched()
    synced: list[int] = []
    sync = file_operations.sync

    def count(descriptor: int) -> None:
        synced.append(descriptor)
        sync(descriptor)

    async with AsyncExitStack() as stack:
        stores = await _open(stack, workspace, 16, watched)
        for store in stores:
            await store.deliver()
        monkeypatch.setattr(file_operations, "sync", count)
        monkeypatch.setattr("switchboard_mcp.mail.store.file_operations.sync_all", lambda _: False)
        drop(workspace, "msg_one")
        await watched.until(1)
        # Whatever the others had begun is done before this answers.
        for store in stores:
            await store.deliver("coder")
    assert watched.delivered == ["msg_one"]
    # The content, its receipt and key; the folders they are published to; the counter of the order numbers.
    assert len(synced) <= 12


async def test_another_process_sweeps_when_the_first_has_ended(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "TICK_S", 0.05)
    watched = _Watched()
    async with AsyncExitStack() as stack:
        first, *_ = await _open(stack, workspace, 2, watched)
        await first.close()
        drop(workspace, "msg_later")
        await watched.until(1)


async def test_a_stalled_sweeper_is_helped_and_a_deleted_lock_is_made_again(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as store:
        first, second = SweeperLock(), SweeperLock()
        try:
            assert await store.run(first.acquire) == (True, True)
            assert await store.run(first.acquire) == (True, False)
            assert await store.run(second.acquire) == (False, False)
            monkeypatch.setattr(sweeper, "STALLED_S", 0.0)
            assert await store.run(second.acquire) == (True, True)
            monkeypatch.undo()
            (workspace / ".switchboard" / "locks" / "sweeper").unlink()
            assert await store.run(second.acquire) == (True, True)
            assert await store.run(first.acquire) == (False, False)
        finally:
            first.release()
            second.release()


async def test_idle_sweeps_do_not_look_at_the_agents(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "TICK_S", 0.02)
    listed: list[str] = []
    names = file_operations.names

    def listing(folder: int) -> list[str]:
        listed.append(os.readlink(f"/proc/self/fd/{folder}"))
        return names(folder)

    is_due, ticked, loop = lease_record.is_due, asyncio.Semaphore(0), asyncio.get_running_loop()

    def checking(tx: Transaction) -> bool:
        loop.call_soon_threadsafe(ticked.release)
        return is_due(tx)

    async def ticks(count: int) -> None:
        async with asyncio.timeout(patience.PATIENCE_S):
            for _ in range(count):
                await ticked.acquire()

    monkeypatch.setattr(lease_record, "is_due", checking)
    async with await MessageStore.open(str(workspace)) as store:
        for number in range(20):
            await store.register(f"a{number}")
        await store.register("lead")
        await store.send(Draft(action="status_update", payload="x"), sender="lead", recipient="a1")
        await store.claim("a1", lease_s=3600)
        await ticks(2)
        monkeypatch.setattr(file_operations, "names", listing)
        await ticks(5)
        assert listed == []


async def test_the_record_of_leases_is_never_later_than_a_lease(workspace: Path) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as store:

        def work(tx: Transaction) -> None:
            now = tx.clocks.now()
            assert lease_record.is_due(tx)
            with lease_record.rewriting(tx) as record:
                record.add(Lease(1, now.boot, now.uptime + 60_000, now.clock + 60_000))
            assert not lease_record.is_due(tx)
            lease_record.note(tx, Lease(2, now.boot, now.uptime + 90_000, now.clock + 90_000))
            assert not lease_record.is_due(tx)
            lease_record.note(tx, Lease(3, "other", 5, now.clock - 1))
            assert lease_record.is_due(tx)

        await store.run(work)


async def test_a_process_that_starts_is_never_taken_for_one_that_has_ended(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two of its calls, another process looks for what ended processes have left."""
    async with await MessageStore.open(str(workspace), watch=False) as other:
        sweeping = other._directory

        def swept(call: Callable[..., Any]) -> Callable[..., Any]:
            def step(*args: Any, **options: Any) -> Any:
                with monkeypatch.context() as unwatched:
                    for name, real in calls.items():
                        unwatched.setattr(os, name, real)
                    with sweeping.transaction() as tx:
                        assert cleanup.remove_stale_temp_files(tx) == []
                return call(*args, **options)

            return step

        calls = {name: getattr(os, name) for name in ("open", "link", "unlink", "close")}
        with monkeypatch.context() as watched:
            for name, call in calls.items():
                watched.setattr(os, name, swept(call))
            starting = StoreDirectory(str(workspace), system_clocks())
            starting.make()
        assert f"{starting.writer}.lock" in os.listdir(f"{starting.path}/tmp")
        starting.close()


def _count(tx: Transaction) -> int:
    return dropped_files.scan(tx, "coder").count()


async def _send_one(store: MessageStore, text: str) -> str:
    draft = Draft(action="status_update", payload=text)
    return (await store.send(draft, sender="lead", recipient="coder")).id


async def test_files_that_others_add_and_remove_in_a_large_inbox_are_found_without_listing_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropped_files, "MIN_INDEXED", 1)
    monkeypatch.setattr(inbox_index, "LARGE", 10)
    watched = _Watched()
    inbox = workspace / ".switchboard" / "inbox" / "coder"
    async with AsyncExitStack() as stack:
        (sweeping,) = await _open(stack, workspace, 1, watched)
        ids = [await _send_one(sweeping, str(number)) for number in range(20)]
        # Whoever looks may deliver a dropped file first.
        opened = await MessageStore.open(str(workspace), watch=False, report=watched.report)
        looking = await stack.enter_async_context(opened)
        if not await sweeping.run(lambda tx: tx.directory.index.exact):
            pytest.skip("this kernel does not give every change of a folder its own time")
        assert [each.message.id for each in await looking.peek("coder")] == ids

        def listing(*_: object) -> Any:
            raise AssertionError("it was listed")

        drop(workspace, "msg_early")
        await watched.until(1)
        with monkeypatch.context() as no_listing:
            no_listing.setattr(file_operations, "entries", listing)
            no_listing.setattr(inbox_comparison.InboxComparison, "__init__", listing)
            for number in range(5):
                drop(workspace, f"msg_dropped{number}")
                assert [each.message.id for each in await looking.peek("coder")][:20] == ids
                await _send_one(looking, "more")
                await watched.until(number + 2)
            removed = ids.pop(0)
            (inbox / f"{removed}.json").unlink()
            assert [each.message.id for each in await looking.peek("coder")][:19] == ids
            async with asyncio.timeout(patience.PATIENCE_S):
                while len(await looking.peek("coder")) != await looking.run(_count):  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.05)
        assert len(await looking.peek("coder")) == 19 + 6 + 5
        (lost,) = (each for each in (await looking.verify()).findings if each.kind == "lost")
        assert lost.id == removed
