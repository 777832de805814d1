from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.messages import Draft, Receipt
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.terminal import terminal_mail
from switchboard_mcp.mail.terminal.terminal_mail import TerminalMail
from switchboard_mcp.mail.terminal.terminal_registry import TerminalEntry, TerminalLease
from tests.cases import each_case
from tests.patience import PATIENCE_S


class FakeKeys:
    """A terminal that writes down what happens to it."""

    def __init__(self) -> None:
        self.bracketed = False
        self.free = True
        self.pressed = b""
        self.asked = asyncio.Event()
        self.rung: asyncio.Queue[str] = asyncio.Queue()

    def is_free(self) -> bool:
        self.asked.set()
        return self.free

    def press(self, keys: bytes) -> None:
        self.pressed += keys

    def ring(self, agent: str) -> None:
        self.rung.put_nowait("ring")

    def quiet(self, agent: str) -> None:
        self.rung.put_nowait("quiet")


class Room:
    """A terminal `term`, its lead, and the store."""

    def __init__(self, store: MessageStore, keys: FakeKeys, folder: Path) -> None:
        self.store = store
        self.keys = keys
        self.folder = folder

    async def send(
        self, text: str, action: str = "execute", sender: str = "lead", verified: bool = True
    ) -> str:
        draft = Draft(action=action, payload=text)  # type: ignore[arg-type]
        return (await self.store.send(draft, sender=sender, recipient="term", verified=verified)).id

    async def ended(self, id: str, sender: str = "lead") -> Receipt:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                (receipt,) = await self.store.receipts(sender, ids=[id])
                if receipt.status != "delivered":
                    return receipt
                await asyncio.sleep(0.01)

    def record(self) -> list[dict[str, object]]:
        log = self.folder / ".switchboard" / "terminals" / "term.log"
        return [json.loads(line) for line in log.read_text().splitlines()]


@asynccontextmanager
async def room(workspace: Path, *, allow: bool = True, earlier: str = "") -> AsyncIterator[Room]:
    async with await MessageStore.open(str(workspace)) as store:
        for name in ("lead", "term"):
            await store.register(name)
        await store.update(agent_registry.assign_role("lead", "lead", "lead"))
        keys = FakeKeys()
        found = Room(store, keys, workspace)
        if earlier:
            await found.send(earlier)
        place = TerminalLease(store.path, "term")
        entry = TerminalEntry(pid=1, socket=place.address, allow_execute=allow)
        mail = TerminalMail(store, place, entry, keys)
        await mail.prepare()
        task = asyncio.ensure_future(mail.run())
        try:
            yield found
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            place.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_mail, "BEFORE_ENTER_S", 0.0)
    monkeypatch.setattr(terminal_mail, "LOOK_AGAIN_S", 0.01)


async def test_a_message_of_a_verified_lead_is_typed_settled_and_recorded(workspace: Path) -> None:
    async with room(workspace) as here:
        id = await here.send("make test\n")
        assert (await here.ended(id)).status == "done"
        assert here.keys.pressed == b"make test\r"
        here.keys.bracketed = True
        await here.ended(await here.send("a\nb"))
        assert here.keys.pressed == b"make test\r\x1b[200~a\rb\x1b[201~\r"
        lines = here.record()
    assert [(line["outcome"], line["from"]) for line in lines] == [("typed", "lead")] * 2
    assert lines[0]["id"] == id


@each_case(
    ("how", "expected"),
    [
        ({"verified": False}, "Only verified senders"),
        ({"sender": "bob"}, "Only leads"),
        ({"text": "a\x1b[201~; rm x"}, "U+001B"),
        ({"text": "a\nb"}, "several lines"),
    ],
)
async def test_a_message_that_may_not_be_typed_is_rejected_with_the_reason(
    workspace: Path, how: dict[str, object], expected: str
) -> None:
    async with room(workspace) as here:
        sent = {"text": "ls", "sender": "lead", "verified": True} | how
        id = await here.send(str(sent["text"]), sender=str(sent["sender"]), verified=bool(sent["verified"]))
        receipt = await here.ended(id, str(sent["sender"]))
        assert receipt.status == "rejected"
        assert expected in receipt.summary
        assert here.keys.pressed == b""
        assert here.record()[-1]["outcome"] == "rejected"


async def test_without_leave_nothing_is_typed(workspace: Path) -> None:
    async with room(workspace, allow=False) as here:
        assert "without --allow-execute" in (await here.ended(await here.send("ls"))).summary
        assert here.keys.pressed == b""


async def test_mail_older_than_the_terminal_is_never_typed(workspace: Path) -> None:
    async with room(workspace, earlier="rm old") as here:
        await here.ended(await here.send("ls"))
        assert here.keys.pressed == b"ls\r"
        assert [message.message.payload for message in await here.store.peek("term")] == ["rm old"]


async def test_more_than_a_person_can_follow_is_rejected(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal_mail, "MAX_TYPED", 2)
    async with room(workspace) as here:
        sent = [await here.send(f"echo {number}") for number in range(4)]
        ends = [await here.ended(id) for id in sent]
        assert [end.status for end in ends] == ["done", "done", "rejected", "rejected"]
        assert "more than 2 messages" in ends[-1].summary
        assert here.keys.pressed == b"echo 0\recho 1\r"


async def test_somebody_who_types_is_waited_for_and_then_left_in_peace(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with room(workspace) as here:
        here.keys.free = False
        id = await here.send("ls")
        await here.keys.asked.wait()
        assert here.keys.pressed == b""
        here.keys.free = True
        assert (await here.ended(id)).status == "done"
        monkeypatch.setattr(terminal_mail, "PATIENCE_S", 0.05)
        here.keys.free = False
        assert "a person is typing" in (await here.ended(await here.send("pwd"))).summary
        assert here.keys.pressed == b"ls\r"


async def test_a_message_that_cannot_be_recorded_is_not_typed(workspace: Path) -> None:
    async with room(workspace) as here:
        (workspace / ".switchboard" / "terminals" / "term.log").mkdir()
        assert "cannot be logged" in (await here.ended(await here.send("ls"))).summary
        assert here.keys.pressed == b""


async def test_the_bell_rings_for_new_mail_once_and_is_quiet_when_it_is_read(workspace: Path) -> None:
    async with room(workspace) as here, asyncio.timeout(PATIENCE_S):
        assert await here.keys.rung.get() == "quiet"  # nothing is there
        id = await here.send("news", "status_update", sender="bob", verified=False)
        while (heard := await here.keys.rung.get()) != "ring":
            assert heard == "quiet"
        await here.store.claim("term", ids=[id])
        assert await here.keys.rung.get() == "quiet"
        assert here.keys.pressed == b""
