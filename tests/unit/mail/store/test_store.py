"""The store as its users see it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import pytest_asyncio

from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.mail.messages import Draft, MailMessage, Sent
from switchboard_mcp.mail.store import dropped_files, file_operations, watcher
from switchboard_mcp.mail.store.clocks import Clocks, system_clocks
from switchboard_mcp.mail.store.store import MailboxChange, MessageStore
from switchboard_mcp.system import inotify
from tests.patience import PATIENCE_S

T = TypeVar("T")


def draft(payload: str = "hello", **more: object) -> Draft:
    return Draft(action="delegate_task", payload=payload, **more)  # type: ignore[arg-type]


@pytest_asyncio.fixture
async def store(workspace: Path) -> AsyncIterator[MessageStore]:
    async with await MessageStore.open(str(workspace), watch=False) as opened:
        for name in ("lead", "coder 1", "reviewer"):
            await opened.register(name)
        yield opened


async def refused(work: object) -> Failure:
    with pytest.raises(SwitchboardError) as problem:
        await work  # type: ignore[misc]
    return problem.value.failure


def tree(workspace: Path) -> Path:
    return workspace / ".switchboard"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


class TestClaimsAtOnce:
    async def test_claims_share_a_transaction_and_fail_apart(self, store: MessageStore) -> None:
        sent = [
            await store.send(draft(str(number)), sender="lead", recipient="coder 1") for number in range(3)
        ]
        jobs = [
            store.claim("coder 1"),
            store.claim("nobody"),
            store.claim("coder 1"),
            store.claim("reviewer"),
        ]
        first, unknown, second, empty = await asyncio.gather(*jobs, return_exceptions=True)
        assert isinstance(unknown, SwitchboardError)
        assert unknown.failure.code == "mail_recipient_unknown"
        assert isinstance(first, list)
        assert isinstance(second, list)
        assert [each.message.id for each in (*first, *second)] == [each.id for each in sent[:2]]
        assert len({each.fence for each in (*first, *second)}) == 2
        assert empty == []


class TestSending:
    async def test_a_message_is_a_file_with_the_keys_of_the_protocol(
        self, store: MessageStore, workspace: Path
    ) -> None:
        content = draft("do it", reply_to="msg_0", team="t", metadata={"a": 1}, priority="high")
        sent = await store.send(content, sender="lead", recipient="coder 1")
        message = json.loads((tree(workspace) / "inbox" / "coder-1" / f"{sent.id}.json").read_text())
        seal = message["metadata"].pop("seal")
        assert len(seal) == 32
        created = message.pop("createdAt")
        assert created.endswith("Z")
        assert message == {
            "id": sent.id,
            "action": "delegate_task",
            "sender": "lead",
            "recipient": "coder-1",
            "payload": "do it",
            "replyTo": "msg_0",
            "metadata": {"a": 1, "priority": "high", "verified": True},
            "team": "t",
        }

    async def test_its_receipt_is_a_file_with_the_keys_of_the_protocol(
        self, store: MessageStore, workspace: Path
    ) -> None:
        sent = await store.send(draft(), sender="lead", recipient="coder-1")
        receipt = json.loads((tree(workspace) / "outbox" / "lead" / f"receipt_{sent.id}.json").read_text())
        assert receipt.pop("processedAt").endswith("Z")
        assert receipt == {
            "id": f"receipt_{sent.id}",
            "inReplyTo": sent.id,
            "status": "delivered",
            "summary": "Message delivered to 'coder-1' inbox",
            "error": None,
            "recipient": "coder-1",
        }

    async def test_an_unknown_recipient_is_an_error_with_the_nearest_names(self, store: MessageStore) -> None:
        problem = await refused(store.send(draft(), sender="lead", recipient="codr-1"))
        assert problem.code == "mail_recipient_unknown"
        assert problem.nearest == ["coder-1"]

    async def test_many_are_answered_each_on_its_own(self, store: MessageStore) -> None:
        answers = await store.send_to_many(
            draft(), sender="lead", recipients=["coder 1", "nobody", "reviewer"]
        )
        assert [type(each) for each in answers] == [Sent, Failure, Sent]

    async def test_what_ends_a_phase_goes_to_one_reader(self, store: MessageStore) -> None:
        content = draft(metadata={"workflow": "w", "completes": "review"})
        result = await refused(store.send_to_many(content, sender="lead", recipients=["coder 1", "reviewer"]))
        assert result.message == "A message that ends a phase needs one recipient."

    async def test_the_same_key_is_one_message_wherever_it_is_by_now(self, store: MessageStore) -> None:
        content = draft(idempotency_key="k")
        first = await store.send(content, sender="lead", recipient="coder-1")
        answers = await asyncio.gather(
            *(store.send(content, sender="lead", recipient="coder-1") for _ in range(5))
        )
        assert {(each.id, each.duplicate) for each in answers} == {(first.id, True)}
        (taken,) = await store.claim("coder-1")
        assert (await store.send(content, sender="lead", recipient="coder-1")).id == first.id
        await store.ack("coder-1", first.id, fence=taken.fence)
        assert (await store.send(content, sender="lead", recipient="coder-1")).id == first.id
        assert (await store.send(content, sender="reviewer", recipient="coder-1")).duplicate is False
        assert (await store.verify()).counts["inbox"] == 1

    async def test_a_retry_is_a_duplicate_whatever_the_gates_say_by_now(
        self, store: MessageStore, workspace: Path
    ) -> None:
        content = draft(idempotency_key="k")
        first = await store.send(content, sender="lead", recipient="coder-1")
        never = failure("mail_message_invalid", "Not any more.")
        async with await MessageStore.open(
            str(workspace), watch=False, rules=[lambda message: never]
        ) as closed:
            again = await closed.send(content, sender="lead", recipient="coder-1")
            assert (again.id, again.duplicate) == (first.id, True)
            assert await refused(closed.send(draft(), sender="lead", recipient="coder-1")) == never

    async def test_a_large_payload_goes_as_an_attachment_with_its_hash(
        self, store: MessageStore, workspace: Path
    ) -> None:
        text = "ä" * 600_000
        sent = await store.send(draft(text), sender="lead", recipient="coder-1")
        (message,) = await store.peek("coder-1")
        assert len(message.message.payload) < 3_000
        record = message.message.metadata["attachment"]
        assert record["bytes"] == 1_200_000
        assert (tree(workspace) / record["file"]).read_text() == text
        assert (await store.attachment(message.message)).decode() == text
        (tree(workspace) / record["file"]).write_text("other")
        problem = await refused(store.attachment(message.message))
        assert "changed" in problem.message
        assert sent.id == message.message.id

    async def test_what_cannot_be_a_message_is_refused(self, store: MessageStore) -> None:
        for wrong in (
            draft(idempotency_key=""),
            draft(ack_by="soon"),
            draft("\ud800"),
            draft(metadata={"a": object()}),
        ):
            problem = await refused(store.send(wrong, sender="lead", recipient="coder-1"))
            assert problem.code == "mail_message_invalid"
        too_much = draft(metadata={"a": "x" * 70_000})
        assert (
            await refused(store.send(too_much, sender="lead", recipient="coder-1"))
        ).code == "mail_too_large"
        assert await store.peek("coder-1") == []

    async def test_reserved_keys_are_the_desks(self, store: MessageStore) -> None:
        content = draft(
            metadata={"verified": False, "seal": "x", "attachment": {"file": "/etc/passwd"}, "mine": 1}
        )
        await store.send(content, sender="lead", recipient="coder-1")
        (message,) = await store.peek("coder-1")
        assert message.message.metadata == {"mine": 1, "verified": True}

    async def test_a_closed_mail_server_accepts_nothing(self, workspace: Path) -> None:
        store = await MessageStore.open(str(workspace), watch=False)
        await store.register("coder")
        await store.close()
        assert (await refused(store.send(draft(), sender="lead", recipient="coder"))).code == "shutting_down"
        assert names(tree(workspace) / "tmp") == []

    async def test_nothing_is_accepted_after_the_folder_has_vanished(
        self, store: MessageStore, workspace: Path
    ) -> None:
        tree(workspace).rename(workspace / "elsewhere")
        problem = await refused(store.send(draft(), sender="lead", recipient="coder-1"))
        assert problem.code == "mail_not_stored"
        assert "is missing" in problem.message
        assert names(workspace / "elsewhere" / "inbox" / "coder-1") == []
        (workspace / "elsewhere").rename(tree(workspace))
        await store.send(draft(), sender="lead", recipient="coder-1")

    async def test_a_fault_in_a_gate_is_that_senders_alone(
        self, store: MessageStore, workspace: Path
    ) -> None:
        def gate(message: MailMessage) -> MailMessage:
            if message.payload == "bad":
                raise ZeroDivisionError
            return message

        async with await MessageStore.open(str(workspace), watch=False, rules=[gate]) as gated:
            answers = await asyncio.gather(
                gated.send(draft("bad"), sender="lead", recipient="coder-1"),
                gated.send(draft("good"), sender="lead", recipient="coder-1"),
                return_exceptions=True,
            )
        assert [type(each) for each in answers] == [ZeroDivisionError, Sent]


class TestReading:
    async def test_looking_consumes_nothing(self, store: MessageStore, workspace: Path) -> None:
        sent = await store.send(draft(), sender="lead", recipient="coder-1")
        before = names(tree(workspace) / "inbox" / "coder-1")
        for _ in range(3):
            assert [each.message.id for each in await store.peek("coder-1")] == [sent.id]
            assert (await store.read("coder-1", sent.id)).place == "inbox"
        assert names(tree(workspace) / "inbox" / "coder-1") == before

    async def test_a_message_can_be_read_wherever_it_is(self, store: MessageStore) -> None:
        sent = await store.send(draft(), sender="lead", recipient="coder-1")
        (taken,) = await store.claim("coder-1")
        assert (await store.read("coder-1", sent.id)).place == "claimed"
        await store.ack("coder-1", sent.id, fence=taken.fence, outcome="rejected", summary="No.")
        message = await store.read("coder-1", sent.id)
        assert (message.place, message.outcome, message.reason) == ("deadletter", "rejected", "No.")

    async def test_seen_ones_can_be_left_out(self, store: MessageStore) -> None:
        sent = [await store.send(draft(), sender="lead", recipient="coder-1") for _ in range(3)]
        found = await store.peek("coder-1", exclude={sent[0].id, sent[2].id})
        assert [each.message.id for each in found] == [sent[1].id]
        after = (await store.peek("coder-1"))[0].order
        assert len(await store.peek("coder-1", after=after)) == 2
        assert len(await store.peek("coder-1", limit=2)) == 2

    async def test_search_ranks_words_and_filters(self, store: MessageStore) -> None:
        for text in ("fix the parser", "write docs", "parser parser"):
            await store.send(draft(text), sender="lead", recipient="coder-1")
        await store.send(draft("parser"), sender="reviewer", recipient="coder-1")
        found = await store.search("coder-1", "parser", sender="lead")
        assert [each.message.payload for each in found] == ["parser parser", "fix the parser"]
        assert [each.message.sender for each in await store.search("coder-1", limit=1)] == ["reviewer"]
        assert await store.search("coder-1", action="execute") == []

    async def test_receipts_come_newest_first(self, store: MessageStore) -> None:
        one = await store.send(draft(), sender="lead", recipient="coder-1")
        two = await store.send(draft(), sender="lead", recipient="reviewer")
        assert {each.in_reply_to for each in await store.receipts("lead")} == {one.id, two.id}
        assert [each.in_reply_to for each in await store.receipts("lead", ids=[one.id])] == [one.id]
        assert len(await store.receipts("lead", limit=1)) == 1


class TestClaims:
    async def test_a_claimed_message_is_nobody_elses(self, store: MessageStore, workspace: Path) -> None:
        await store.send(draft(), sender="lead", recipient="coder-1")
        async with await MessageStore.open(str(workspace), watch=False) as other:
            taken = await asyncio.gather(
                *(each.claim("coder-1") for each in (store, other) for _ in range(5))
            )
        assert sum(map(len, taken)) == 1
        assert await store.peek("coder-1") == []

    async def test_urgent_ones_come_first_but_no_sender_overtakes_itself(self, store: MessageStore) -> None:
        await store.send(draft("l1", priority="low"), sender="lead", recipient="coder-1")
        await store.send(draft("r1"), sender="reviewer", recipient="coder-1")
        await store.send(draft("l2", priority="urgent"), sender="lead", recipient="coder-1")
        await store.send(draft("r2", priority="high"), sender="reviewer", recipient="coder-1")
        taken = await store.claim("coder-1", limit=10)
        assert [each.message.payload for each in taken] == ["l1", "l2", "r1", "r2"]
        assert [each.fence for each in taken] == sorted({each.fence for each in taken})

    async def test_a_lease_that_is_over_returns_the_message_to_its_place(self, workspace: Path) -> None:
        skew = [0.0]
        base = system_clocks()
        clocks = Clocks(base.boot, base.microseconds, lambda: base.uptime_ms() + int(skew[0] * 1000))
        async with await MessageStore.open(str(workspace), watch=False, clocks=clocks) as store:
            await store.register("coder")
            for text in ("1", "2"):
                await store.send(draft(text), sender="lead", recipient="coder")
            (taken,) = await store.claim("coder", lease_s=60)
            skew[0] = 59
            renewed = await store.renew("coder", taken.message.id, fence=taken.fence, lease_s=60)
            assert renewed.fence == taken.fence
            skew[0] = 118
            assert [each.message.payload for each in await store.claim("coder", limit=5)] == ["2"]
            skew[0] = 120
            (again,) = await store.claim("coder", limit=5)
            assert again.message.id == taken.message.id
            assert again.fence > taken.fence
            for stale in (
                store.ack("coder", taken.message.id, fence=taken.fence),
                store.renew("coder", taken.message.id, fence=taken.fence),
                store.release("coder", taken.message.id, fence=taken.fence),
            ):
                assert (await refused(stale)).code == "mail_lease_lost"
            await store.ack("coder", taken.message.id, fence=again.fence)

    async def test_a_released_message_waits_in_its_old_place(self, store: MessageStore) -> None:
        first = await store.send(draft("1"), sender="lead", recipient="coder-1")
        await store.send(draft("2"), sender="lead", recipient="coder-1")
        (taken,) = await store.claim("coder-1", ids=[first.id])
        await store.release("coder-1", first.id, fence=taken.fence)
        assert [each.message.payload for each in await store.peek("coder-1")] == ["1", "2"]

    async def test_the_same_acknowledgement_twice_is_answered_twice_and_sends_one_result(
        self, store: MessageStore
    ) -> None:
        await store.send(draft(), sender="lead", recipient="coder-1")
        (taken,) = await store.claim("coder-1")
        for _ in range(2):
            await store.ack("coder-1", taken.message.id, fence=taken.fence, result="here")
        (result,) = await store.peek("lead")
        assert result.message.action == "submit_result"
        assert (result.message.reply_to, result.message.payload) == (taken.message.id, "here")
        other = store.ack("coder-1", taken.message.id, fence=taken.fence, outcome="failed")
        assert (await refused(other)).code == "mail_lease_lost"

    async def test_the_outcome_reaches_the_receipt(self, store: MessageStore) -> None:
        sent = await store.send(draft(), sender="lead", recipient="coder-1")
        (taken,) = await store.claim("coder-1")
        await store.ack("coder-1", sent.id, fence=taken.fence, outcome="failed", summary="It broke.")
        (receipt,) = await store.receipts("lead", ids=[sent.id])
        assert (receipt.status, receipt.summary, receipt.error) == ("failed", "It broke.", "It broke.")

    async def test_a_result_that_a_killed_process_has_sent_is_certain_when_it_is_answered(
        self, store: MessageStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sent = await store.send(draft(), sender="lead", recipient="coder-1")
        (taken,) = await store.claim("coder-1")
        content = draft("r", idempotency_key=f"result of {sent.id} {taken.fence}")
        before = await store.send(content, sender="coder-1", recipient="lead")
        synced: list[int] = []
        sync = file_operations.sync_all

        def watched(descriptor: int) -> bool:
            synced.append(descriptor)
            return sync(descriptor)

        monkeypatch.setattr(file_operations, "sync_all", watched)
        acked = await store.ack("coder-1", sent.id, fence=taken.fence, result="r")
        assert acked.result is not None
        assert (acked.result.id, acked.result.duplicate) == (before.id, True)
        assert synced or not file_operations.can_sync_all()

    async def test_to_settle_a_message_no_folder_of_many_is_listed(
        self, store: MessageStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(3):
            await store.send(draft(str(number)), sender="lead", recipient="coder 1")
        # The first message to an agent counts its folders, for its quota.
        await store.send(draft(), sender="coder 1", recipient="lead")
        mine, other = await store.claim("coder 1", limit=2)
        listed: list[str] = []

        def noting(list_folder: Callable[[int], list[T]]) -> Callable[[int], list[T]]:
            def note(folder: int) -> list[T]:
                listed.append(os.path.basename(os.path.dirname(os.readlink(f"/proc/self/fd/{folder}"))))
                return list_folder(folder)

            return note

        monkeypatch.setattr(file_operations, "names", noting(file_operations.names))
        monkeypatch.setattr(file_operations, "entries", noting(file_operations.entries))
        await store.ack("coder 1", mine.message.id, fence=mine.fence, result="done")
        assert listed == []
        async with await MessageStore.open(str(workspace), watch=False) as elsewhere:
            listed.clear()
            await elsewhere.ack("coder 1", other.message.id, fence=other.fence)
        assert listed == ["claimed"]

    async def test_what_another_process_has_moved_is_found_all_the_same(
        self, store: MessageStore, workspace: Path
    ) -> None:
        sent = await store.send(draft(), sender="lead", recipient="coder 1")
        (held,) = await store.claim("coder 1")
        async with await MessageStore.open(str(workspace), watch=False) as elsewhere:
            await elsewhere.release("coder 1", sent.id)
            assert (await store.read("coder 1", sent.id)).place == "inbox"
            (again,) = await elsewhere.claim("coder 1")
        assert (await refused(store.ack("coder 1", sent.id, fence=held.fence))).code == "mail_lease_lost"
        assert (await store.ack("coder 1", sent.id, fence=again.fence)).outcome == "done"

    async def test_a_person_settles_without_a_fence(self, store: MessageStore) -> None:
        sent = await store.send(draft(), sender="lead", recipient="coder-1")
        await store.ack("coder-1", sent.id)
        assert (await store.read("coder-1", sent.id)).place == "archive"
        assert (await refused(store.ack("coder-1", "msg_none"))).code == "mail_not_found"

    async def test_the_order_survives_a_clock_that_is_set_back(self, workspace: Path) -> None:
        base = system_clocks()
        skew = [0]
        clocks = Clocks(base.boot, lambda: base.microseconds() + skew[0], base.uptime_ms)
        for number, step in enumerate((0, -86_400_000_000, -172_800_000_000, 5_000_000)):
            skew[0] = step
            async with await MessageStore.open(str(workspace), watch=False, clocks=clocks) as store:
                await store.register("coder")
                await store.send(draft(str(number)), sender="lead", recipient="coder")
        async with await MessageStore.open(str(workspace), watch=False) as store:
            assert [each.message.payload for each in await store.peek("coder")] == ["0", "1", "2", "3"]


class TestDroppedFiles:
    def drop(self, workspace: Path, name: str = "msg_1", **more: object) -> None:
        content = {
            "id": name,
            "action": "submit_result",
            "sender": "shell",
            "recipient": "coder 1",
            "payload": "x",
        }
        folder = tree(workspace) / "inbox" / "coder-1"
        (folder / f".{name}").write_text(json.dumps(content | more))
        (folder / f".{name}").rename(folder / f"{name}.json")

    async def test_they_are_delivered_in_order_with_receipts_and_marked(
        self, store: MessageStore, workspace: Path
    ) -> None:
        for number in (3, 1, 2):
            self.drop(workspace, f"msg_{number}", priority="normal", idempotencyKey=f"k{number}")
        found = await store.peek("coder-1")
        assert [each.message.id for each in found] == ["msg_3", "msg_1", "msg_2"]
        assert not any(each.verified for each in found)
        assert {each.in_reply_to for each in await store.receipts("shell")} == {"msg_1", "msg_2", "msg_3"}

    async def test_the_same_id_twice_is_one_message(self, store: MessageStore, workspace: Path) -> None:
        self.drop(workspace)
        (taken,) = await store.claim("coder-1")
        self.drop(workspace)
        assert await store.claim("coder-1") == []
        await store.ack("coder-1", "msg_1", fence=taken.fence)
        self.drop(workspace)
        assert await store.peek("coder-1") == []
        assert (await store.verify()).sound

    async def test_nobody_uses_up_the_keys_of_another(self, store: MessageStore, workspace: Path) -> None:
        self.drop(workspace, sender="lead", idempotencyKey="k")
        await store.deliver()
        sent = await store.send(draft(idempotency_key="k"), sender="lead", recipient="coder-1")
        assert sent.duplicate is False

    async def test_the_id_of_another_message_is_refused_and_its_receipt_stays(
        self, store: MessageStore, workspace: Path
    ) -> None:
        sent = await store.send(draft(), sender="lead", recipient="coder-1")
        self.drop(workspace, "msg_2", id=sent.id, sender="lead")
        (result,) = await store.deliver()
        assert result.problem is not None
        assert sent.id in result.problem.message
        assert [each.message.payload for each in await store.peek("coder-1")] == ["hello"]
        assert [each.status for each in await store.receipts("lead", ids=[sent.id])] == ["delivered"]
        assert (await store.verify()).sound

    async def test_the_gates_hold_for_them_too(self, store: MessageStore, workspace: Path) -> None:
        def gate(message: MailMessage) -> MailMessage | Failure:
            if message.payload == "x":
                return failure("mail_message_invalid", "Not now.")
            message.persona = "You are a coder."
            return message

        self.drop(workspace)
        self.drop(workspace, "msg_2", payload="y")
        async with await MessageStore.open(str(workspace), watch=False, rules=[gate]) as gated:
            result = {each.file: each.problem for each in await gated.deliver()}
            problem = await refused(gated.send(draft("x"), sender="lead", recipient="coder-1"))
            assert problem.message == "Not now."
        assert result["msg_2.json"] is None
        assert result["msg_1.json"] is not None
        assert [each.error for each in await store.receipts("shell", ids=["msg_1"])] == ["Not now."]
        assert [each.message.persona for each in await store.peek("coder-1")] == ["You are a coder."]

    async def test_an_agent_may_archive_by_hand(self, store: MessageStore, workspace: Path) -> None:
        sent = await store.send(draft(), sender="lead", recipient="coder-1")
        (tree(workspace) / "archive" / "coder-1").mkdir(mode=0o700)
        os.rename(
            tree(workspace) / "inbox" / "coder-1" / f"{sent.id}.json",
            tree(workspace) / "archive" / "coder-1" / f"{sent.id}.json",
        )
        assert (await store.verify()).sound
        assert (await store.read("coder-1", sent.id)).place == "archive"


@pytest.fixture(params=["inotify", "poll"])
def watching(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Watching with and without inotify."""
    if request.param == "poll":
        monkeypatch.setattr(inotify, "open_inotify", lambda: -1)
        monkeypatch.setattr(watcher, "POLL_S", 0.02)
    return str(request.param)


class TestWaking:
    async def test_a_wait_ends_when_mail_comes_from_another_process(
        self, workspace: Path, watching: str
    ) -> None:
        async with (
            await MessageStore.open(str(workspace)) as store,
            await MessageStore.open(str(workspace), watch=False) as other,
        ):
            await store.register("coder")
            waiting = asyncio.ensure_future(store.wait("coder", 20))
            await asyncio.sleep(0)
            sent = await other.send(draft(), sender="lead", recipient="coder")
            assert [each.message.id for each in await waiting] == [sent.id]
            assert await store.wait("coder", 0.01, exclude=[sent.id]) == []

    async def test_dropped_files_are_delivered_by_whoever_watches(
        self, workspace: Path, watching: str
    ) -> None:
        heard = asyncio.Event()
        async with await MessageStore.open(str(workspace), report=lambda _: heard.set()) as store:
            await store.register("coder-1")
            TestDroppedFiles().drop(workspace)
            async with asyncio.timeout(PATIENCE_S):
                await heard.wait()
            assert [each.in_reply_to for each in await store.receipts("shell")] == ["msg_1"]

    async def test_a_half_written_file_is_delivered_when_it_is_whole(
        self, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dropped_files, "SETTLE_S", 30.0)
        async with await MessageStore.open(str(workspace)) as store:
            await store.register("coder")
            path = tree(workspace) / "inbox" / "coder" / "msg_1.json"
            content = json.dumps(
                {"action": "status_update", "sender": "s", "recipient": "coder", "payload": "x"}
            )
            path.write_text(content[:30])
            assert await store.wait("coder", 0.05) == []
            path.write_text(content)
            assert [each.message.id for each in await store.wait("coder", 20)] == ["msg_1"]

    async def test_listeners_hear_of_mail_receipts_and_state(self, workspace: Path, watching: str) -> None:
        changes: set[tuple[str, str]] = set()
        enough = asyncio.Event()

        def hear(change: MailboxChange) -> None:
            changes.add((change.kind, change.agent))
            if {("inbox", "coder"), ("outbox", "lead"), ("state", "")} <= changes:
                enough.set()

        async with await MessageStore.open(str(workspace)) as store:
            stop = store.subscribe(hear)
            await store.register("coder")
            await store.register("lead")
            await store.send(draft(), sender="lead", recipient="coder")
            await store.update(lambda now: now.update(a=1))
            async with asyncio.timeout(PATIENCE_S):
                await enough.wait()
            stop()
            stop()

    async def test_a_tree_that_is_replaced_is_watched_on(
        self, workspace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(watcher, "POLL_S", 0.02)
        async with await MessageStore.open(str(workspace)) as store:
            await store.register("coder")
            shutil.rmtree(tree(workspace))
            async with await MessageStore.open(str(workspace), watch=False) as other:
                await other.register("coder")
                waiting = asyncio.ensure_future(store.wait("coder", 20))
                await asyncio.sleep(0)
                await other.send(draft("after"), sender="lead", recipient="coder")
                assert [each.message.payload for each in await waiting] == ["after"]


class TestState:
    async def test_changes_of_many_processes_are_all_kept(self, store: MessageStore, workspace: Path) -> None:
        def count(now: dict[str, int]) -> int:
            now["count"] = now.get("count", 0) + 1
            return now["count"]

        async with await MessageStore.open(str(workspace), watch=False) as other:
            answers = await asyncio.gather(
                *(each.update(count) for _ in range(20) for each in (store, other))
            )
        assert sorted(answers) == list(range(1, 41))
        assert (await store.state())["count"] == 40

    async def test_an_unreadable_state_is_set_aside_and_made_anew(
        self, store: MessageStore, workspace: Path
    ) -> None:
        await store.update(lambda now: now.update(teams={"t": ["coder-1"]}))
        await store.update(lambda now: now.update(note=1))
        (tree(workspace) / "state.json").write_bytes(b'{"teams": {')
        found = await store.state()
        assert found["teams"] == {"t": ["coder-1"]}
        assert set(found["agents"]) == {"coder-1", "lead", "reviewer"}
        (aside,) = tree(workspace).glob("state.unreadable.*")
        assert aside.read_bytes() == b'{"teams": {'

    async def test_a_change_that_fails_leaves_the_file_as_it_was(self, store: MessageStore) -> None:
        def change(now: dict[str, int]) -> None:
            now["a"] = 2
            raise KeyError("no")

        await store.update(lambda now: now.update(a=1))
        with pytest.raises(KeyError):
            await store.update(change)
        assert (await store.state())["a"] == 1


class TestVerify:
    async def test_a_message_that_is_gone_or_twice_there_or_torn_is_told(
        self, store: MessageStore, workspace: Path
    ) -> None:
        sent = [await store.send(draft(), sender="lead", recipient="coder-1") for _ in range(4)]
        assert (await store.verify()).sound
        inbox, archive = tree(workspace) / "inbox" / "coder-1", tree(workspace) / "archive" / "coder-1"
        archive.mkdir(mode=0o700)
        (inbox / f"{sent[0].id}.json").unlink()
        shutil.copy(inbox / f"{sent[1].id}.json", archive / f"{sent[1].id}.json")
        os.rename(inbox / f"{sent[2].id}.json", archive / f"{sent[2].id}.json")
        (archive / f"{sent[2].id}.json").write_bytes(b'{"id"')
        verdict = await store.verify()
        assert not verdict.sound
        broken = {(finding.kind, finding.id) for finding in verdict.findings if finding.kind != "foreign"}
        assert broken == {("lost", sent[0].id), ("doubled", sent[1].id), ("torn", sent[2].id)}

    async def test_what_was_dropped_and_is_not_delivered_yet_is_told_as_that(
        self, store: MessageStore, workspace: Path
    ) -> None:
        inbox = tree(workspace) / "inbox" / "coder-1"
        for name in ("msg_a.json", "notes.txt"):
            (inbox / name).write_text("{}")
        verdict = await store.verify()
        assert verdict.sound
        result = sorted(finding.message for finding in verdict.findings)
        assert "is not delivered yet" in result[0]
        assert "will be dead-lettered" in result[1]

    async def test_repair_writes_missing_receipts_and_takes_leftovers_away(
        self, store: MessageStore, workspace: Path
    ) -> None:
        sent = await store.send(draft(), sender="lead", recipient="coder-1")
        (tree(workspace) / "outbox" / "lead" / f"receipt_{sent.id}.json").unlink()
        (tree(workspace) / "tmp" / "abcdef.7").write_text("left")
        (tree(workspace) / "deadletter" / "coder-1").mkdir(mode=0o700)
        (tree(workspace) / "deadletter" / "coder-1" / "foreign_0000000000000001.reason.json").write_text("{}")
        kinds = {finding.kind for finding in await store.repair()}
        assert kinds == {"receipt_missing", "temporary"}
        assert await store.repair() == []
        assert [each.status for each in await store.receipts("lead")] == ["delivered"]

    async def test_a_lost_seal_makes_messages_unverified_but_loses_none(
        self, store: MessageStore, workspace: Path
    ) -> None:
        sent = await store.send(draft(), sender="lead", recipient="coder-1")
        (tree(workspace) / "seal.key").unlink()
        async with await MessageStore.open(str(workspace), watch=False) as other:
            (message,) = await other.peek("coder-1")
        assert (message.message.id, message.verified) == (sent.id, False)
