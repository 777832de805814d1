"""Hostile files in the store: refused or dead-lettered, and nothing outside is touched."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.messages import Delivery, Draft, Sent
from switchboard_mcp.mail.store import dropped_files
from switchboard_mcp.mail.store.maintenance.retention import prune
from switchboard_mcp.mail.store.signing import MAX_FILE_BYTES
from switchboard_mcp.mail.store.store import MessageStore

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make devices and give files away")
OLD = (1_000_000_000, 1_000_000_000)


def draft(payload: str = "hello") -> Draft:
    return Draft(action="status_update", payload=payload)


def said(**changes: object) -> bytes:
    message = {
        "id": "msg_1_a",
        "action": "status_update",
        "sender": "lead",
        "recipient": "coder",
        "payload": "hi",
        "createdAt": "2025-01-01T00:00:00.000Z",
    }
    return json.dumps(message | changes).encode()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Things of the user's that are nobody's business."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.json").write_bytes(said(payload="secret"))
    return folder


def picture(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(path): (
            path.read_bytes() if path.is_file() else b"",
            path.stat().st_mtime_ns,
            path.stat().st_mode,
        )
        for path in sorted([folder, *folder.rglob("*")])
    }


@pytest_asyncio.fixture
async def store(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MessageStore]:
    # Nothing here is still being written.
    monkeypatch.setattr(dropped_files, "SETTLE_S", 0.0)
    async with await MessageStore.open(str(workspace), watch=False) as opened:
        await opened.register("coder")
        await opened.register("lead")
        yield opened


def inbox(workspace: Path) -> Path:
    return workspace / ".switchboard" / "inbox" / "coder"


NAMES = ["", " ", ".", "..", "../coder", "a/b", "a\\b", "coder\0", "coder\n", " coder", "coder  1", "x" * 65, "ünter",
         "coder.lock", "~root", "$HOME", "café", "coder/../lead", "\u202ecoder"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_outside_the_allowlist_is_refused_everywhere(
    store: MessageStore, name: str, workspace: Path
) -> None:
    before = picture(workspace)
    for request in (
        store.send(draft(), sender="lead", recipient=name),
        store.send(draft(), sender=name, recipient="coder"),
        store.register(name),
        store.peek(name),
        store.claim(name),
        store.ack(name, "msg_1", fence=1),
        store.receipts(name),
    ):
        with pytest.raises(SwitchboardError) as refused:
            await request
        assert refused.value.failure.code == "mail_name_invalid"
    assert picture(workspace) == before


@pytest.mark.parametrize("message_id", ["../../../etc/passwd", "msg_*", "", "msg_a.b", "x" * 5000])
async def test_an_id_is_never_a_path(store: MessageStore, message_id: str) -> None:
    for request in (store.read("coder", message_id), store.ack("coder", message_id)):
        with pytest.raises(SwitchboardError) as refused:
            await request
        assert refused.value.failure.code == "mail_not_found"
    assert await store.receipts("lead", ids=[message_id]) == []


def symlink(target: Path, outside: Path) -> None:
    target.symlink_to(outside / "secret.json")


def dangling(target: Path, outside: Path) -> None:
    target.symlink_to(outside / "made-by-the-desk")


def hard_link(target: Path, outside: Path) -> None:
    target.hardlink_to(outside / "secret.json")


def fifo(target: Path, outside: Path) -> None:
    os.mkfifo(target)


def folder(target: Path, outside: Path) -> None:
    target.mkdir()
    (target / "msg_inner.json").write_bytes(said())


def huge(target: Path, outside: Path) -> None:
    with target.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)


def device(target: Path, outside: Path) -> None:
    os.mknod(target, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero has no end


def foreign_owner(target: Path, outside: Path) -> None:
    target.write_bytes(said())
    os.chown(target, 12345, 12345)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (symlink, "symbolic link"),
        (dangling, "symbolic link"),
        (hard_link, "hard link"),
        (fifo, "not a regular file"),
        (folder, "not a regular file"),
        (huge, "larger than"),
        pytest.param(device, "not a regular file", marks=needs_root),
        pytest.param(foreign_owner, "another user", marks=needs_root),
    ],
)
@pytest.mark.parametrize("name", ["msg_evil.json", "msg_0000000000000001_0123456789abcdef.json", "notes.txt"])
async def test_what_is_no_plain_file_of_ours_becomes_a_dead_letter_and_is_not_followed(
    store: MessageStore,
    workspace: Path,
    outside: Path,
    make: Callable[[Path, Path], None],
    reason: str,
    name: str,
) -> None:
    make(inbox(workspace) / name, outside)
    before = picture(outside)
    (result,) = await store.deliver("coder")
    assert result.problem is not None
    assert reason in result.problem.message
    assert await store.peek("coder") == []
    assert list(inbox(workspace).iterdir()) == []
    assert picture(outside) == before
    dead = sorted(path.name for path in (workspace / ".switchboard" / "deadletter" / "coder").iterdir())
    assert len(dead) == 2
    assert dead[0].endswith(".reason.json")
    assert dead[1].endswith(name)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (said()[:-1] + b"\0", "not JSON"),
        (said(action="rm"), "Invalid enum value 'rm'"),
        (said(extra=1), "extra"),
        (said(payload=1), "Expected `str`"),
        (said(recipient="lead"), "the file is in the inbox of 'coder'"),
        (said(sender="../lead"), "`sender` is not a valid agent name"),
        (said(id="../../x"), "`id` must be"),
        (said(createdAt="yesterday"), "`createdAt` must be"),
        (said(priority="now"), "`priority` must be"),
        (said(metadata=[1]), "metadata"),
        (said(payload="x" * 1_048_577), "`payload` is larger"),
        (said(metadata={"a": "x" * 70_000}), "`metadata` is larger"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_malformed_message_becomes_a_dead_letter_with_the_reason(
    store: MessageStore, workspace: Path, data: bytes, reason: str
) -> None:
    (inbox(workspace) / "msg_bad.json").write_bytes(data)
    (result,) = await store.deliver("coder")
    assert result.problem is not None
    assert reason in result.problem.message
    (why,) = (workspace / ".switchboard" / "deadletter" / "coder").glob("*.reason.json")
    assert json.loads(why.read_text())["reason"] == result.problem.message
    assert (await store.verify()).sound


async def test_the_sender_of_a_refused_file_hears_why(store: MessageStore, workspace: Path) -> None:
    (inbox(workspace) / "msg_bad.json").write_bytes(said(id="msg_bad", action="rm"))
    await store.deliver()
    (receipt,) = await store.receipts("lead")
    assert (receipt.in_reply_to, receipt.status) == ("msg_bad", "refused")
    assert "action" in str(receipt.error)
    (inbox(workspace) / "msg_bad.json").write_bytes(said(id="msg_bad"))
    await store.deliver()
    (receipt,) = await store.receipts("lead")
    assert receipt.status == "delivered", "a corrected one is welcome"


async def test_a_file_that_is_still_being_written_is_left_alone(
    store: MessageStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropped_files, "SETTLE_S", 1000.0)
    slow = inbox(workspace) / "msg_slow.json"
    slow.write_bytes(said(id="msg_slow")[:20])
    (inbox(workspace) / ".hidden").write_bytes(b"{")
    (inbox(workspace) / "msg_half.json.tmp").write_bytes(b"{")
    assert await store.deliver() == []
    slow.write_bytes(said(id="msg_slow"))
    (result,) = await store.deliver()
    assert result.id == "msg_slow"


async def test_who_says_to_be_verified_is_not(store: MessageStore, workspace: Path) -> None:
    claim = {"verified": True, "seal": "0" * 32}
    native = "msg_1700000000000000_0123456789abcdef"
    (inbox(workspace) / f"{native}.json").write_bytes(said(id=native, metadata=claim))
    (message,) = await store.peek("coder")
    assert message.message.id == native
    assert message.verified is False
    assert message.message.verified is False


async def test_a_sealed_message_cannot_be_played_to_somebody_else(
    store: MessageStore, workspace: Path
) -> None:
    sent = await store.send(draft(), sender="lead", recipient="coder")
    original = inbox(workspace) / f"{sent.id}.json"
    for copy in (workspace / ".switchboard/inbox/lead" / original.name, original.with_name("msg_2_b.json")):
        copy.write_bytes(original.read_bytes())
    assert await store.peek("lead") == []
    found = await store.peek("coder")
    assert sorted(each.verified for each in found) in ([True], [False, True])
    assert [each.message.id for each in found if each.verified] == [sent.id]


async def test_a_message_that_is_changed_after_delivery_is_no_longer_verified(
    store: MessageStore, workspace: Path
) -> None:
    sent = await store.send(draft("pay 1"), sender="lead", recipient="coder")
    path = inbox(workspace) / f"{sent.id}.json"
    assert [each.verified for each in await store.peek("coder")] == [True]
    path.write_bytes(path.read_bytes().replace(b"pay 1", b"pay 9"))
    taken = await store.claim("coder")
    assert [each.verified for each in taken] == [False]


async def test_an_inbox_that_leads_elsewhere_is_not_written_to(
    store: MessageStore, workspace: Path, outside: Path
) -> None:
    (workspace / ".switchboard" / "inbox" / "mole").symlink_to(outside, target_is_directory=True)
    before = picture(outside)
    with pytest.raises(SwitchboardError) as refused:
        await store.send(draft(), sender="lead", recipient="mole")
    assert refused.value.failure.code == "mail_unsafe"
    assert "mole" not in await store.agents()
    await store.deliver()
    await store.repair()
    result = [finding.path for finding in (await store.verify()).findings]
    assert "inbox/mole" in result
    assert picture(outside) == before


@pytest.mark.parametrize("place", ["inbox", "archive", "claimed", "tmp", "locks", "outbox", "deadletter"])
async def test_a_folder_of_the_mail_server_that_leads_elsewhere_is_not_followed(
    workspace: Path, outside: Path, place: str
) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as store:
        await store.register("coder")
    (workspace / ".switchboard" / place).rename(workspace / "moved")
    (workspace / ".switchboard" / place).symlink_to(outside, target_is_directory=True)
    before = picture(outside)
    result = await refusals(workspace)
    assert picture(outside) == before
    assert set(result) <= {"mail_unsafe", "mail_not_found", "mail_recipient_unknown"}
    assert result, "nobody noticed"


async def refusals(workspace: Path) -> list[str]:
    """Do everything there is to do; the codes it was refused with."""
    result: list[str] = []

    async def attempt(work: Awaitable[object]) -> object:
        try:
            return await work
        except SwitchboardError as refused:
            result.append(refused.failure.code)
            return None

    store = await attempt(MessageStore.open(str(workspace), watch=False))
    if not isinstance(store, MessageStore):
        return result
    async with store:
        sent = await attempt(store.send(draft(), sender="lead", recipient="coder"))
        await attempt(store.claim("coder"))
        await attempt(store.ack("coder", sent.id if isinstance(sent, Sent) else "msg_1", outcome="rejected"))
        await attempt(store.receipts("lead"))
        await attempt(store.repair())
        await attempt(store.verify())
    return result


async def test_a_tree_that_is_a_link_or_open_to_others_is_refused(workspace: Path, outside: Path) -> None:
    (workspace / ".switchboard").symlink_to(outside, target_is_directory=True)
    before = picture(outside)
    with pytest.raises(SwitchboardError) as refused:
        await MessageStore.open(str(workspace))
    assert refused.value.failure.code == "mail_unsafe"
    assert picture(outside) == before
    (workspace / ".switchboard").unlink()
    (workspace / ".switchboard").mkdir()
    (workspace / ".switchboard").chmod(0o777)
    with pytest.raises(SwitchboardError, match="can be written by others"):
        await MessageStore.open(str(workspace))


async def test_a_folder_that_differs_in_case_is_the_agent_s(store: MessageStore, workspace: Path) -> None:
    (workspace / ".switchboard" / "inbox" / "Coder").mkdir(mode=0o700)
    (workspace / ".switchboard" / "inbox" / "Coder" / "msg_x.json").write_bytes(said())
    sent = await store.send(draft(), sender="LEAD", recipient="Coder")
    assert sent.recipient == "coder"
    assert await store.agents() == ["coder", "lead"]
    await store.deliver()
    assert [each.message.id for each in await store.peek("CODER")] == [sent.id, "msg_1_a"]
    assert "inbox/Coder" not in [finding.path for finding in (await store.verify()).findings]


async def test_the_tree_is_for_its_owner_alone(store: MessageStore, workspace: Path) -> None:
    await store.send(draft(), sender="lead", recipient="coder")
    modes = {path: mode & 0o777 for path, (_, _, mode) in picture(workspace / ".switchboard").items()}
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}


async def test_a_file_system_without_locks_is_named_at_once(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(descriptor: int, how: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("switchboard_mcp.mail.store.file_operations.fcntl.flock", none)
    with pytest.raises(SwitchboardError, match="does not support file locks"):
        await MessageStore.open(str(workspace))


async def test_every_dropped_file_is_reported(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropped_files, "SETTLE_S", 0.0)
    result: list[Delivery] = []
    async with await MessageStore.open(str(workspace), watch=False, report=result.append) as store:
        await store.register("coder")
        (inbox(workspace) / "msg_a.json").write_bytes(said(id="msg_a"))
        (inbox(workspace) / "msg_b.json").write_bytes(b"no")
        await store.peek("coder")
    assert {each.file: each.problem is None for each in result} == {"msg_a.json": True, "msg_b.json": False}


@pytest.mark.parametrize("claimed", [True, False])
@pytest.mark.parametrize(
    "changes",
    [{"sender": "../../../outside"}, {"id": "msg_/../../../../outside/x"}, {"recipient": "../../../outside"}],
)
async def test_a_message_that_was_changed_leads_nobody_out_of_the_tree(
    store: MessageStore, workspace: Path, outside: Path, changes: dict[str, str], claimed: bool
) -> None:
    sent = await store.send(draft(), sender="lead", recipient="coder")
    (taken,) = await store.claim("coder")
    if not claimed:
        await store.ack("coder", sent.id, fence=taken.fence)
    (file,) = (workspace / ".switchboard" / ("claimed" if claimed else "archive") / "coder").iterdir()
    file.write_bytes(json.dumps(json.loads(file.read_bytes()) | changes).encode())
    before = picture(outside)
    if claimed:
        with pytest.raises(SwitchboardError, match="has ended"):
            await store.ack("coder", sent.id, fence=taken.fence)
    await store.repair()
    await prune(store, 0)
    assert picture(outside) == before
    assert file.exists()


async def test_a_key_that_came_with_a_checkout_signs_nothing(workspace: Path) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as store:
        await store.register("coder")
        await store.register("lead")
        await store.send(draft(), sender="lead", recipient="coder")
    key = workspace / ".switchboard" / "seal.key"
    assert key.stat().st_mode & 0o777 == 0o600
    for mode in (0o644, 0o640, 0o604):  # as version control writes it
        key.chmod(mode)
        async with await MessageStore.open(str(workspace), watch=False) as store:
            with pytest.raises(SwitchboardError, match="came with a checkout"):
                await store.peek("coder")
            with pytest.raises(SwitchboardError, match="came with a checkout"):
                await store.send(draft(), sender="lead", recipient="coder")
    key.unlink()
    async with await MessageStore.open(str(workspace), watch=False) as store:
        (message,) = await store.peek("coder")
    assert not message.verified
