"""The folders of mail: what is dropped is imported once, what waits is shown, what is moved is settled."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.mail.messages import Delivery, Draft
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.store.surface import dropped
from switchboard_mcp.mail.store.surface import surface as surface_module
from switchboard_mcp.mail.store.surface.surface import FileSurface
from tests import kills
from tests.databases import Targets
from tests.patience import PATIENCE_S


class Office:
    """A store, its surface, and an agent that uses files only."""

    def __init__(
        self, root: Path, store: MessageStore, surface: FileSurface, deliveries: list[Delivery]
    ) -> None:
        self.root = root
        self.store = store
        self.surface = surface
        self.deliveries = deliveries

    def drop(self, name: str, agent: str = "coder", **fields: object) -> Path:
        path = self.root / "inbox" / agent / name
        content = {"sender": "lead", "recipient": agent, "action": "delegate_task", "payload": "Do"} | fields
        path.write_text(json.dumps(content))
        os.utime(path, (1, os.stat(path).st_mtime - 5))
        return path

    def names(self, *parts: str) -> list[str]:
        return sorted(os.listdir(self.root.joinpath(*parts))) if self.root.joinpath(*parts).exists() else []

    async def send(self, payload: str = "Do it", **fields: Any) -> str:
        draft = Draft(action="delegate_task", payload=payload, **fields)
        return (await self.store.send(draft, sender="lead", recipient="coder")).id

    async def waiting(self) -> list[str]:
        return [item.message.payload for item in await self.store.peek("coder", limit=1_000)]


@pytest.fixture
async def office(tmp_path: Path, database_target: str) -> AsyncIterator[Office]:
    deliveries: list[Delivery] = []
    async with await MessageStore.open(
        str(tmp_path), database=database_target, report=deliveries.append, watch=False
    ) as store:
        surface = FileSurface(store)
        for name in ("lead", "coder"):
            await store.register(name)
        await surface.sync()
        yield Office(tmp_path / ".switchboard", store, surface, deliveries)
        await surface.close()


async def test_a_dropped_file_of_any_name_is_imported_once_with_its_receipt(office: Office) -> None:
    office.drop("msg_one.json", payload="one", priority="high", idempotencyKey="k")
    office.drop("task.json", payload="two")
    office.drop(".draft.json", payload="not yet")
    office.drop("half.json.tmp", payload="not yet")
    await office.surface.sync()
    await office.surface.sync()
    assert await office.waiting() == ["one", "two"]
    assert [item.problem for item in office.deliveries] == [None, None]
    assert "receipt_msg_one.json" in office.names("outbox", "lead")
    assert len(office.names("outbox", "lead")) == 2
    shown = [name for name in office.names("inbox", "coder") if name.startswith("msg_")]
    assert len(shown) == 2
    assert {".draft.json", "half.json.tmp"} <= set(office.names("inbox", "coder"))
    (first,) = await office.store.claim("coder")
    assert (first.message.id, first.verified) == ("msg_one", False)
    # The same id again is the same message.
    office.drop("again.json", id="msg_one", payload="changed")
    await office.surface.sync()
    assert await office.waiting() == ["two"]


async def test_invalid_files_are_refused_with_a_reason_and_a_receipt(office: Office) -> None:
    office.drop("msg_odd.json", action="sing")
    office.drop("msg_wrong.json", recipient="lead")
    office.drop("note.txt")
    office.drop("boss.json", sender="overseer")
    link = office.root / "inbox/coder/link.json"
    link.symlink_to("/etc/passwd")
    os.mkfifo(office.root / "inbox/coder/pipe.json")
    (office.root / "inbox/coder/folder.json").mkdir()
    other = office.root / "other.json"
    other.write_text("{}")
    os.link(other, office.root / "inbox/coder/hard.json")
    (office.root / "inbox/coder/deep.json").write_text("[" * 100_000)
    os.utime(office.root / "inbox/coder/deep.json", (1, 1))
    await office.surface.sync()
    assert office.names("inbox", "coder") == []
    assert len([name for name in office.names("deadletter", "coder") if name.endswith(".reason.json")]) == 9
    assert len(office.names("deadletter", "coder")) == 18
    receipt = json.loads((office.root / "outbox/lead/receipt_msg_odd.json").read_text())
    assert receipt["status"] == "refused"
    assert "sing" in receipt["error"]
    assert (await office.store.receipts("lead", ids=["msg_odd"]))[0].status == "refused"
    assert len(await office.store.dead_letters("coder")) == 9
    assert (await office.store.verify()).problems == []


async def test_a_file_that_is_still_being_written_gets_time(office: Office) -> None:
    path = office.root / "inbox/coder/msg_slow.json"
    path.write_text('{"sender": "lead", ')
    await office.surface.sync()
    assert path.exists()
    office.drop("msg_slow.json", payload="whole")
    await office.surface.sync()
    assert await office.waiting() == ["whole"]


async def test_moving_a_shown_file_to_the_archive_settles_it_and_removing_it_does_not(office: Office) -> None:
    first, second = await office.send("first"), await office.send("second")
    await office.surface.sync()
    names = office.names("inbox", "coder")
    assert names == [f"{first}.json", f"{second}.json"]
    content = json.loads((office.root / "inbox/coder" / names[0]).read_text())
    assert (content["id"], content["payload"]) == (first, "first")
    os.rename(office.root / "inbox/coder" / names[0], office.root / "archive/coder" / names[0])
    (office.root / "inbox/coder" / names[1]).unlink()
    await office.surface.sync()
    assert await office.waiting() == ["second"]
    assert office.names("inbox", "coder") == [names[1]]
    assert (await office.store.read("coder", first)).place == "archive"
    assert office.names("archive", "coder") == [names[0]]
    assert office.names("outbox", "lead") == [f"receipt_{first}.json", f"receipt_{second}.json"]


async def test_a_message_that_is_removed_again_and_again_becomes_a_dead_letter(office: Office) -> None:
    message = await office.send()
    for _ in range(surface_module.MAX_REMOVALS):
        await office.surface.sync()
        (office.root / f"inbox/coder/{message}.json").unlink()
    await office.surface.sync()
    await office.surface.sync()
    assert [item.id for item in await office.store.dead_letters("coder")] == [message]
    assert office.names("inbox", "coder") == []


async def test_a_claim_and_a_reader_who_moves_never_both_win(office: Office) -> None:
    first, second = await office.send("first"), await office.send("second")
    await office.surface.sync()
    os.rename(office.root / f"inbox/coder/{first}.json", office.root / f"archive/coder/{first}.json")
    (claimed,) = await office.store.claim("coder")
    assert claimed.message.id == second
    assert office.names("claimed", "coder") == [f"{second}.json"]
    await office.store.release("coder", second, fence=claimed.fence)
    await office.surface.sync()
    assert (office.names("claimed", "coder"), office.names("inbox", "coder")) == ([], [f"{second}.json"])
    (claimed,) = await office.store.claim("coder")
    await office.store.ack("coder", second, fence=claimed.fence, summary="Fine")
    await office.surface.sync()
    assert office.names("claimed", "coder") == []
    assert f"{second}.{claimed.fence}.done.json" in office.names("archive", "coder")
    assert (
        json.loads((office.root / f"outbox/lead/receipt_{second}.done.json").read_text())["summary"] == "Fine"
    )


async def test_known_names_are_never_delivered_again(office: Office) -> None:
    message = await office.send()
    await office.surface.sync()
    content = (office.root / f"inbox/coder/{message}.json").read_bytes()
    (claimed,) = await office.store.claim("coder")
    await office.store.ack("coder", message, fence=claimed.fence)
    (office.root / f"inbox/coder/{message}.json").write_bytes(content)
    (office.root / "inbox/coder/copy.json").write_bytes(content)
    os.utime(office.root / "inbox/coder/copy.json", (1, 1))
    await office.surface.sync()
    assert await office.waiting() == []
    assert office.names("inbox", "coder") == []
    assert len(await office.store.dead_letters("coder")) == 1


async def test_folders_come_back_and_show_the_first_hundred(office: Office) -> None:
    ids = [await office.send(str(number)) for number in range(105)]
    await office.surface.sync()
    assert office.names("inbox", "coder") == [f"{item}.json" for item in ids[:100]]
    for place in ("inbox", "archive", "outbox", "tmp"):
        shutil.rmtree(office.root / place)
    await office.surface.sync()
    assert office.names("inbox", "coder") == [f"{item}.json" for item in ids[:100]]


async def test_exports_keep_the_newest_of_a_folder_and_removed_receipts_stay_away(office: Office) -> None:
    ids = [await office.send(str(number)) for number in range(120)]
    await office.surface.sync()
    assert len(office.names("outbox", "lead")) == 100
    (office.root / f"outbox/lead/receipt_{ids[-1]}.json").unlink()
    await office.surface.sync()
    assert f"receipt_{ids[-1]}.json" not in office.names("outbox", "lead")


async def test_a_folder_that_somebody_makes_is_an_agent_and_the_state_is_exported(office: Office) -> None:
    (office.root / "inbox/shell").mkdir(mode=0o700)
    await office.store.update(lambda state: state.setdefault("agents", {}).update(shell={"name": "shell"}))
    await office.surface.sync()
    assert await office.store.agents() == ["coder", "lead", "shell"]
    assert json.loads((office.root / "state.json").read_text()) == {"agents": {"shell": {"name": "shell"}}}


async def test_a_file_that_its_author_replaces_while_it_is_read_is_a_message_of_its_own(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.drop("a.json", payload="old")
    take = dropped.take_away

    def replace_first(*arguments: Any) -> None:
        monkeypatch.undo()
        office.drop("a.json", payload="new")
        take(*arguments)

    monkeypatch.setattr(dropped, "take_away", replace_first)
    await office.surface.sync()
    await office.surface.sync()
    assert await office.waiting() == ["old", "new"]


async def test_dropped_files_wake_the_recipient_and_a_second_process_takes_over(
    tmp_path: Path, database_target: str
) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        await MessageStore.open(str(tmp_path), database=database_target) as first_store,
        await MessageStore.open(str(tmp_path), database=database_target) as two,
    ):
        await first_store.register("coder")
        first, second = FileSurface(first_store), FileSurface(two)
        await first.start()
        await second.start()
        office = Office(tmp_path / ".switchboard", first_store, first, [])
        for surface in (first, second):
            waiting = asyncio.create_task(two.wait("coder", PATIENCE_S))
            await asyncio.sleep(0)
            office.drop("hello.json", payload="hello")
            assert [item.message.payload for item in await waiting] == ["hello"]
            (claimed,) = await two.claim("coder")
            await two.ack("coder", claimed.message.id, fence=claimed.fence)
            # A command that comes meanwhile asks whoever imports.
            command = FileSurface(two)
            await command.sync()
            await command.close()
            await surface.close()


async def kill_scenario(target: str, folder: str, report: Callable[[object], None]) -> None:
    """Drop, import, refuse, show, claim and settle; run by `tests.kills`."""
    async with await MessageStore.open(folder, database=target, watch=False) as store:
        surface = FileSurface(store)
        for name in ("lead", "coder"):
            await store.register(name)
        await surface.sync()
        office = Office(Path(folder) / ".switchboard", store, surface, [])
        office.drop("msg_one.json", payload="one")
        office.drop("two.json", payload="two")
        office.drop("msg_bad.json", action="sing")
        report("dropped")
        await office.send("three", idempotency_key="three")
        report("sent")
        await surface.sync()
        shown = office.names("inbox", "coder")[0]
        (Path(folder) / f".switchboard/archive/coder/{shown}").unlink(missing_ok=True)
        os.replace(office.root / "inbox/coder" / shown, office.root / "archive/coder" / shown)
        report("moved")
        (claimed,) = await store.claim("coder")
        report(["claimed", claimed.message.payload])
        await surface.sync()
        await store.ack("coder", claimed.message.id, fence=claimed.fence)
        report(["settled", claimed.message.payload])
        await surface.sync()


def complete_files(folder: Path) -> None:
    """Make a file old whose author was killed after writing it: it gets no second to be completed."""
    for path in (folder / ".switchboard").glob("inbox/coder/*.json"):
        if path.stat().st_mtime > time.time() - 4:
            os.utime(path, (1, path.stat().st_mtime - 5))


async def _check(target: str, folder: Path, reports: list[Any]) -> None:
    async with await MessageStore.open(str(folder), database=target, watch=False) as store:
        complete_files(folder)
        surface = FileSurface(store)
        await surface.sync()
        await surface.sync()
        office = Office(folder / ".switchboard", store, surface, [])
        messages = await store.database.read(
            lambda tx: tx.rows(
                "SELECT id, place, outcome FROM message WHERE outcome IS NULL OR outcome <> 'refused'"
            )
        )
        payloads = [(await store.read("coder", message_id)).message.payload for message_id, _, _ in messages]
        assert len(set(payloads)) == len(payloads)
        if "dropped" in reports:
            assert {"one", "two"} <= set(payloads)
            assert len(await store.dead_letters("coder")) == 1
            assert {"receipt_msg_one.json", "receipt_msg_bad.json"} <= set(office.names("outbox", "lead"))
        if "sent" in reports:
            assert "three" in payloads
        assert sum(place == "archive" for _, place, _ in messages) >= ("moved" in reports) + any(
            item[0] == "settled" for item in reports if isinstance(item, list)
        )
        # The folders equal the database.
        waiting = [f"{name}" for name in office.names("inbox", "coder")]
        assert len(waiting) == sum(place == "inbox" for _, place, _ in messages)
        assert len(office.names("claimed", "coder")) == sum(place == "claimed" for _, place, _ in messages)
        assert office.names("tmp") == []
        assert (await store.verify()).problems == []
        await surface.close()


def _attempts(targets: Targets, tmp_path: Path, stride: int) -> int:
    attempts = 0
    for attempt in kills.at_every_step(
        "tests.unit.mail.store.test_surface:kill_scenario", targets, tmp_path, stride=stride, first=5
    ):
        attempts += 1
        asyncio.run(_check(attempt.target, tmp_path, attempt.reports))
        shutil.rmtree(tmp_path / ".switchboard")
    return attempts


def test_a_kill_at_any_step_of_the_surface_loses_and_doubles_nothing(
    targets: Targets, tmp_path: Path
) -> None:
    assert _attempts(targets, tmp_path, 61) > 3


@pytest.mark.soak("crashes")
def test_a_kill_at_every_single_step_of_the_surface(targets: Targets, tmp_path: Path) -> None:
    assert _attempts(targets, tmp_path, 1) > 100
