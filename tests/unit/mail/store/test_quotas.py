"""How many messages and bytes may wait for an agent and be stored, and what the check costs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from switchboard_mcp.config.sections import MailSettings
from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.messages import MAX_PAYLOAD_BYTES, Draft, MailMessage
from switchboard_mcp.mail.store import dropped_files, file_operations, quotas
from switchboard_mcp.mail.store.delivery_rules import quotas_of
from switchboard_mcp.mail.store.directory import Quotas
from switchboard_mcp.mail.store.maintenance.retention import prune
from switchboard_mcp.mail.store.remote import remote_inbox
from switchboard_mcp.mail.store.store import MessageStore
from tests.unit.mail.office import Hours

BIG = "x" * 10_000


def draft(payload: str = "hello") -> Draft:
    return Draft(action="status_update", payload=payload)


async def opened(workspace: Path, hours: Hours | None = None, **limits: int) -> MessageStore:
    clocks = (hours or Hours()).clocks()
    store = await MessageStore.open(str(workspace), watch=False, clocks=clocks, quotas=Quotas(**limits))
    for name in ("lead", "coder", "other"):
        await store.register(name)
    return store


async def send(store: MessageStore, payload: str = "hello", recipient: str = "coder") -> Failure | None:
    (outcome,) = await store.send_to_many(draft(payload), sender="lead", recipients=[recipient])
    return outcome if isinstance(outcome, Failure) else None


async def settle(store: MessageStore, agent: str = "coder") -> None:
    (claimed,) = await store.claim(agent)
    await store.ack(agent, claimed.message.id, fence=claimed.fence)


def test_the_defaults_of_the_store_are_those_of_the_settings() -> None:
    assert quotas_of(MailSettings()) == Quotas()


@pytest.mark.parametrize(
    ("limits", "payload", "fit", "setting"),
    [
        ({"waiting": 3}, "hello", 3, "mail.maxWaiting"),
        ({"waiting_bytes": 25_000}, BIG, 2, "mail.maxWaitingBytes"),
        ({"stored": 3}, "hello", 3, "mail.maxStored"),
        ({"stored_bytes": 25_000}, BIG, 2, "mail.maxStoredBytes"),
        ({"waiting_bytes": 2_500_000}, "x" * (MAX_PAYLOAD_BYTES + 1), 2, "mail.maxWaitingBytes"),
        ({"stored_bytes": 2_500_000}, "x" * (MAX_PAYLOAD_BYTES + 1), 2, "mail.maxStoredBytes"),
    ],
)
async def test_what_is_beyond_a_quota_is_refused_with_the_setting_that_allows_more(
    workspace: Path, limits: dict[str, int], payload: str, fit: int, setting: str
) -> None:
    async with await opened(workspace, None, **limits) as store:
        for _ in range(fit):
            assert await send(store, payload) is None
        for _ in range(3):
            problem = await send(store, payload)
            assert problem is not None
            assert problem.code == "mail_quota"
            assert str(problem.hint).endswith(f"raise {setting}.")
        of_workspace = "Stored" in setting
        assert (await send(store, payload, "other") is not None) == of_workspace
        assert len(await store.peek("coder")) == fit
        assert (await store.verify()).sound
        await settle(store)
        # A settled message makes room for its agent; in the workspace it stays until it is pruned.
        assert (await send(store, payload) is None) == (not of_workspace)
        if of_workspace:
            await prune(store, -60.0)
            assert await send(store, payload) is None


async def test_processes_count_together(workspace: Path) -> None:
    async with await opened(workspace, waiting=10) as one, await opened(workspace, waiting=10) as two:
        results = await asyncio.gather(*(send(store) for store in (one, two) for _ in range(10)))
        assert [each is None for each in results].count(True) == 10


async def test_messages_are_counted_in_the_workspace_a_few_at_a_time_and_none_is_forgotten(
    workspace: Path,
) -> None:
    stored = 10 * quotas.STEPS
    record = workspace / ".switchboard/locks/stored.usage"

    def counted() -> int:
        return msgspec.json.decode(record.read_bytes(), type=quotas.Usage).messages

    async with await opened(workspace, stored=stored) as one, await opened(workspace, stored=stored) as two:
        # The first count finds those that are not delivered yet too.
        for _ in range(11):
            await send(one)
        before = counted()
        for store in [one, two] * 5:
            await send(store)
        assert counted() == before
        await send(two)
        assert counted() == before + 11
        await send(one, "x" * (2 * Quotas().stored_bytes // quotas.STEPS))
        assert counted() == before + 12


async def test_a_result_and_a_repeated_message_are_never_refused(workspace: Path) -> None:
    async with await opened(workspace, waiting=1) as store:
        await store.send(draft(), sender="lead", recipient="coder")
        await store.send(draft(), sender="coder", recipient="lead")
        (claimed,) = await store.claim("coder")
        acked = await store.ack("coder", claimed.message.id, fence=claimed.fence, result="done")
        assert acked.result is not None
        keyed = Draft(action="status_update", payload="once", idempotency_key="k")
        first = await store.send(keyed, sender="lead", recipient="coder")
        again = await store.send(keyed, sender="lead", recipient="coder")
        assert (again.id, again.duplicate) == (first.id, True)


async def test_a_dropped_file_beyond_the_quota_is_refused_with_a_receipt(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropped_files, "SETTLE_S", 0.0)
    async with await opened(workspace, waiting=1) as store:
        await send(store)
        content = {"sender": "lead", "recipient": "coder", "action": "status_update", "payload": "p"}
        (workspace / ".switchboard/inbox/coder/msg_1.json").write_text(json.dumps(content))
        (delivery,) = await store.deliver("coder")
        assert delivery.problem is not None
        assert delivery.problem.code == "mail_quota"
        receipt = json.loads((workspace / ".switchboard/outbox/lead/receipt_msg_1.json").read_text())
        assert (receipt["status"], "is full" in receipt["error"]) == ("refused", True)


async def test_a_message_of_another_machine_beyond_the_quota_is_refused_alone(workspace: Path) -> None:
    async with await opened(workspace, waiting=2) as store:
        await send(store)
        messages = [
            remote_inbox.RemoteMessage(
                MailMessage(
                    id=f"msg_{number}",
                    action="status_update",
                    sender="far",
                    recipient=recipient,
                    payload="p",
                    created_at="2026-01-01T00:00:00Z",
                )
            )
            for number, recipient in enumerate(["coder", "coder", "other"])
        ]
        results = await store.commit(lambda tx: remote_inbox.receive(tx, messages, ()), numbers=3)
        assert [None if each is None else each.code for each in results] == [None, "mail_quota", None]
        assert len(await store.peek("other")) == 1


class Counted:
    """Counts the calls of a function of a module."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        self.calls = 0
        original: Callable[..., Any] = getattr(module, name)

        def counted(*args: Any, **more: Any) -> Any:
            self.calls += 1
            return original(*args, **more)

        monkeypatch.setattr(module, name, counted)


async def test_a_send_lists_no_folder_however_many_messages_there_are(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await opened(workspace) as store:
        # Without records, all is counted once.
        await asyncio.gather(*(send(store) for _ in range(30)))
        listed = [Counted(monkeypatch, file_operations, name) for name in ("names", "entries")]
        await asyncio.gather(*(send(store) for _ in range(300)))
        assert [each.calls for each in listed] == [0, 0]
        assert (await store.run(lambda tx: quotas.count_waiting(tx, "coder"))).messages == 330


async def test_refusing_counts_the_folders_at_most_once_a_minute(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = Hours()
    async with await opened(workspace, hours, waiting=2) as store:
        await send(store)
        await send(store)
        hours.passed = 1
        counted = Counted(monkeypatch, quotas, "count_waiting")
        assert None not in [await send(store) for _ in range(50)]
        assert counted.calls == 1


async def test_what_was_moved_by_hand_or_lost_by_a_crash_is_noticed_before_a_message_is_refused(
    workspace: Path,
) -> None:
    hours = Hours()
    async with await opened(workspace, hours, waiting=2) as store:
        for _ in range(2):
            await send(store)
        tree = workspace / ".switchboard"
        (tree / "archive/coder").mkdir(mode=0o700)
        for path in (tree / "inbox/coder").glob("msg_*"):
            path.rename(tree / "archive/coder" / path.name)
        hours.passed = 1
        assert await send(store) is None
        for torn in (b"", b"{", b"\0" * 128):
            (tree / "locks/coder.lock").write_bytes(torn)
            usage = await store.run(lambda tx: quotas.count_waiting(tx, "coder"))
            assert usage.messages == 1
            assert await send(store) is None
            await settle(store)


@pytest.mark.parametrize("outcome", ["done", "rejected"])
async def test_a_message_is_settled_with_its_receipt_though_the_disk_is_too_full_to_count_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, outcome: Literal["done", "rejected"]
) -> None:
    def full(descriptor: int, usage: quotas.Usage) -> None:
        raise OSError(28, "No space left on device")

    hours = Hours()
    async with await opened(workspace, hours, waiting=1) as store:
        await send(store)
        (claimed,) = await store.claim("coder")
        with monkeypatch.context() as disk:
            disk.setattr(quotas, "_write", full)
            await store.ack("coder", claimed.message.id, fence=claimed.fence, outcome=outcome)
        assert [receipt.status for receipt in await store.receipts("lead")] == [outcome]
        hours.passed = 1
        assert await send(store) is None


@pytest.mark.parametrize("payload", [BIG, "x" * (MAX_PAYLOAD_BYTES + 1), '"attachment":{"bytes":999999}'])
async def test_the_record_agrees_with_the_folders(workspace: Path, payload: str) -> None:
    async with await opened(workspace, stored=1000, stored_bytes=10_000_000) as store:
        await send(store, payload)
        await send(store, payload)
        await settle(store)
        counts = {
            "coder.lock": lambda tx: quotas.count_waiting(tx, "coder"),
            "stored.usage": quotas.count_stored,
        }
        for name, count in counts.items():
            record = msgspec.json.decode(
                (workspace / ".switchboard/locks" / name).read_bytes(), type=quotas.Usage
            )
            found = await store.run(count)
            assert record.messages == found.messages
            shared = (
                MAX_PAYLOAD_BYTES + 1 if name == "stored.usage" and len(payload) > MAX_PAYLOAD_BYTES else 0
            )
            assert record.bytes == found.bytes + shared  # equal attachments are one file
    assert os.stat(workspace / ".switchboard/locks/stored.usage").st_mode & 0o077 == 0
