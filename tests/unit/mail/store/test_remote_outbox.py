"""Messages for agents on other machines, in transit and returned."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest
import pytest_asyncio

from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import Transaction
from switchboard_mcp.mail.store.remote import remote_outbox
from switchboard_mcp.mail.store.remote.remote_outbox import MessageInTransit, Shipment
from switchboard_mcp.mail.store.store import MessageStore


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    async with await MessageStore.open(str(tmp_path), watch=False) as opened:
        await opened.register("far")
        await opened.send(Draft(action="status_update", payload="p"), sender="near", recipient="far")
        yield opened


def is_locked(store: MessageStore, agent: str) -> bool:
    descriptor = os.open(os.path.join(store.path, "locks", f"{agent}.lock"), os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@pytest.mark.parametrize(
    ("move", "place"), [(remote_outbox.archive_shipped, "archive"), (remote_outbox.return_to_inbox, "inbox")]
)
async def test_what_is_on_its_way_is_moved_under_its_readers_lock(
    store: MessageStore,
    monkeypatch: pytest.MonkeyPatch,
    move: Callable[[Transaction, Iterable[MessageInTransit]], None],
    place: str,
) -> None:
    taken = await store.run(lambda tx: Shipment("0" * 12).ship(tx, ["far"], 1, 10, 1_000_000))
    seen: list[bool] = []
    before = file_operations.move

    def watched(folder: int, name: str, target_folder: int, target: str) -> None:
        seen.append(is_locked(store, "far"))
        before(folder, name, target_folder, target)

    monkeypatch.setattr(file_operations, "move", watched)
    await store.run(lambda tx: move(tx, [parcel.shipped for parcel in taken]))
    assert seen == [True]
    assert (await store.verify()).counts[place] == 1
