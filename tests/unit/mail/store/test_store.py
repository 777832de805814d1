"""What the message store promises, on both engines."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from switchboard_mcp.database.machine_clocks import MachineClocks
from switchboard_mcp.errors import Failure, SwitchboardError, failure
from switchboard_mcp.mail.messages import Delivery, Draft, FileAttachment, MailMessage, Priority, SharedState
from switchboard_mcp.mail.store import aging, state_documents
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.store.usage import MailQuotas
from tests.databases import Targets
from tests.patience import PATIENCE_S


class Clock:
    """A clock that moves when told to; both engines use it."""

    def __init__(self) -> None:
        self.us = 1_900_000_000_000_000
        self.clocks = MachineClocks("boot", lambda: self.us, lambda: self.us // 1_000)

    def move(self, seconds: float) -> None:
        self.us += int(seconds * 1_000_000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, database_target: str, clock: Clock) -> AsyncIterator[MessageStore]:
    async with await MessageStore.open(
        str(tmp_path), database=database_target, clocks=clock.clocks, watch=False
    ) as opened:
        for name in ("lead", "coder"):
            await opened.register(name)
        yield opened


def draft(payload: str = "Do it", **fields: object) -> Draft:
    return msgspec.convert({"action": "delegate_task", "payload": payload} | fields, Draft)


async def send(store: MessageStore, payload: str = "Do it", **fields: object) -> str:
    return (await store.send(draft(payload, **fields), sender="lead", recipient="coder")).id


def code_of(refusal: pytest.ExceptionInfo[SwitchboardError]) -> str:
    return refusal.value.failure.code


async def test_a_message_is_sent_claimed_and_settled_with_its_receipts(store: MessageStore) -> None:
    sent = await store.send(draft("Write", metadata={"subject": "All"}), sender="lead", recipient="Coder")
    assert (sent.recipient, sent.receipt.status, sent.duplicate) == ("coder", "delivered", False)
    assert (await store.receipts("lead"))[0] == sent.receipt
    (waiting,) = await store.peek("coder")
    assert (waiting.message.id, waiting.place, waiting.verified) == (sent.id, "inbox", True)
    (claimed,) = await store.claim("coder", limit=5)
    assert claimed.message == waiting.message
    assert await store.peek("coder") == []
    acked = await store.ack("coder", sent.id, fence=claimed.fence, summary="Fine", result="Here it is")
    assert await store.ack("coder", sent.id, fence=claimed.fence, summary="Fine", result="Here it is") == (
        msgspec.structs.replace(acked, result=msgspec.structs.replace(acked.result, duplicate=True))
        if acked.result
        else None
    )
    (receipt,) = await store.receipts("lead", ids=[sent.id])
    assert (receipt.status, receipt.summary) == ("done", "Fine")
    (answer,) = await store.peek("lead")
    assert (answer.message.payload, answer.message.reply_to) == ("Here it is", sent.id)
    assert answer.message.thread == sent.id
    assert (await store.read("coder", sent.id)).outcome == "done"


async def test_refusals_have_their_codes_and_change_nothing(store: MessageStore) -> None:
    message = await send(store)
    (claimed,) = await store.claim("coder")
    cases = {
        "mail_recipient_unknown": store.send(draft(), sender="lead", recipient="codr"),
        "mail_name_invalid": store.send(draft(), sender="lead", recipient="../x"),
        "mail_identity": store.send(draft(), sender="overseer", recipient="coder"),
        "mail_too_large": store.send(draft(metadata={"a": "x" * 70_000}), sender="lead", recipient="coder"),
        "mail_message_invalid": store.send(draft(replyTo=""), sender="lead", recipient="coder"),
        "mail_not_found": store.read("coder", "msg_none"),
        "mail_lease_lost": store.ack("coder", message, fence=claimed.fence + 1),
        "mail_claimed": store.withdraw("coder", message, outcome="recalled"),
        "mail_forbidden": store.remove_agent("coder"),
    }
    for code, call in cases.items():
        with pytest.raises(SwitchboardError) as refusal:
            await call
        assert code_of(refusal) == code
    assert (await store.verify()).problems == []


async def test_an_idempotency_key_stores_one_message_per_sender_and_verification(store: MessageStore) -> None:
    first = await store.send(draft("One", idempotencyKey="k"), sender="lead", recipient="coder")
    again = await store.send(draft("Two", idempotencyKey="k"), sender="lead", recipient="coder")
    assert (again.id, again.duplicate) == (first.id, True)
    other = await store.send(draft("Three", idempotencyKey="k"), sender="coder", recipient="coder")
    unverified = await store.send(
        draft("Four", idempotencyKey="k"), sender="lead", recipient="coder", verified=False
    )
    assert len({first.id, other.id, unverified.id}) == 3
    assert len(await store.peek("coder")) == 3


async def test_expired_claims_return_to_their_place_and_the_fifth_is_a_dead_letter(
    store: MessageStore, clock: Clock
) -> None:
    first, second = await send(store, "first"), await send(store, "second")
    fences = []
    for number in range(5):
        (claimed,) = await store.claim("coder", lease_s=10)
        assert (claimed.message.id, claimed.deliveries) == (first, number + 1)
        fences.append(claimed.fence)
        clock.move(11)
    assert fences == sorted(set(fences))
    with pytest.raises(SwitchboardError) as refusal:
        await store.ack("coder", first, fence=fences[0])
    assert code_of(refusal) == "mail_lease_lost"
    assert [item.message.id for item in await store.claim("coder", limit=9)] == [second]
    (dead,) = await store.dead_letters("coder")
    assert (dead.id, "5 times" in dead.reason) == (first, True)
    assert (await store.receipts("lead", ids=[first]))[0].status == "failed"
    await store.requeue("coder", first)
    assert [item.message.id for item in await store.claim("coder")] == [first]


async def test_a_lease_is_renewed_and_released_by_its_holder_alone(store: MessageStore, clock: Clock) -> None:
    message = await send(store)
    (claimed,) = await store.claim("coder", lease_s=10)
    clock.move(9)
    renewed = await store.renew("coder", message, fence=claimed.fence, lease_s=10)
    assert renewed.fence == claimed.fence
    clock.move(9)
    assert await store.claim("coder") == []
    await store.release("coder", message, fence=claimed.fence)
    (again,) = await store.claim("coder")
    assert (again.deliveries, again.fence > claimed.fence) == (1, True)
    for call in (
        store.renew("coder", message, fence=claimed.fence),
        store.release("coder", message, fence=1),
    ):
        with pytest.raises(SwitchboardError) as refusal:
            await call
        assert code_of(refusal) == "mail_lease_lost"


async def test_leases_go_on_after_a_start_of_the_machine(
    tmp_path: Path, database_target: str, clock: Clock
) -> None:
    for boot, uptime_ms in (("first", 5_000_000), ("second", 100)):
        clocks = MachineClocks(boot, lambda: clock.us, lambda uptime_ms=uptime_ms: uptime_ms)  # type: ignore[misc]
        async with await MessageStore.open(
            str(tmp_path), database=database_target, clocks=clocks, watch=False
        ) as store:
            if boot == "first":
                await store.register("coder")
                await store.send(draft(), sender="coder", recipient="coder")
                await store.claim("coder", lease_s=60)
                clock.move(20)
            elif store.database.engine.dialect == "sqlite":
                assert await store.database.read(aging.next_expiry) == 40_000


async def test_rejected_mail_is_a_dead_letter_and_withdrawn_mail_is_never_claimed(
    store: MessageStore,
) -> None:
    rejected, recalled = await send(store, "bad"), await send(store, "wrong")
    await store.withdraw("coder", recalled, outcome="recalled", sender="lead")
    await store.withdraw("coder", recalled, outcome="recalled", sender="lead")
    (claimed,) = await store.claim("coder", limit=9)
    await store.ack("coder", rejected, fence=claimed.fence, outcome="rejected", summary="No\0\ud800")
    assert [(item.id, item.reason) for item in await store.dead_letters("coder")] == [(rejected, "No?")]
    statuses = {item.in_reply_to: item.status for item in await store.receipts("lead")}
    assert statuses == {rejected: "rejected", recalled: "recalled"}


async def test_rules_change_and_refuse_messages_and_skip_answers(tmp_path: Path, targets: Targets) -> None:
    def rule(message: MailMessage, _: SharedState) -> MailMessage | Failure:
        if "bad" in message.payload:
            return failure("mail_forbidden", "Bad.")
        return msgspec.structs.replace(message, persona="You code.", recipient="somebody else")

    rule.skips_answers = True  # type: ignore[attr-defined]
    async with await MessageStore.open(str(tmp_path), database=targets(), rules=[rule]) as store:
        await store.register("coder")
        await store.send(draft("good"), sender="lead", recipient="coder")
        with pytest.raises(SwitchboardError) as refusal:
            await store.send(draft("bad"), sender="lead", recipient="coder")
        assert code_of(refusal) == "mail_forbidden"
        await store.send(draft("bad answer", answers=True), sender="lead", recipient="coder")
        personas = [item.message.persona for item in await store.peek("coder")]
    assert personas == ["You code.", None]


async def test_quotas_refuse_what_does_not_fit_and_count_what_is_settled(
    tmp_path: Path, targets: Targets
) -> None:
    quotas = MailQuotas(waiting=3, stored=5)
    async with await MessageStore.open(str(tmp_path), database=targets(), quotas=quotas) as store:
        for name in ("lead", "coder"):
            await store.register(name)
        sent = [await send(store) for _ in range(3)]
        with pytest.raises(SwitchboardError) as refusal:
            await send(store)
        assert "mail.maxWaiting" in str(refusal.value.failure.hint)
        await store.withdraw("coder", sent[0], outcome="recalled")
        # In one group, the later ones are refused.
        answers = await asyncio.gather(*(send(store) for _ in range(3)), return_exceptions=True)
        assert [type(item) for item in answers] == [str, SwitchboardError, SwitchboardError]
        await store.send(draft(), sender="coder", recipient="lead")
        with pytest.raises(SwitchboardError) as refusal:
            await store.send(draft(), sender="coder", recipient="lead")
        assert "mail.maxStored" in str(refusal.value.failure.hint)
        assert (await store.verify()).problems == []


async def test_attachments_are_read_back_and_checked(store: MessageStore, tmp_path: Path) -> None:
    long = "ä" * 700_000
    await store.send(draft(long), sender="lead", recipient="coder")
    file = FileAttachment(name="a.bin", data=b"\0\1" * 1_000_000)
    await store.send(
        Draft(action="delegate_task", payload="See", attachment=file), sender="lead", recipient="coder"
    )
    first, second = [item.message for item in await store.peek("coder")]
    assert len(first.payload) < 3_000
    assert await store.attachment(first) == long.encode()
    assert await store.attachment(second) == file.data
    for path in (tmp_path / ".switchboard/attachments").iterdir():
        path.unlink()
    if store.database.engine.dialect == "postgresql":
        assert await store.attachment(second) == file.data  # As on another machine.
    else:
        with pytest.raises(SwitchboardError) as refusal:
            await store.attachment(second)
        assert code_of(refusal) == "mail_not_found"


async def test_state_is_changed_in_the_transaction_of_what_is_sent(store: MessageStore) -> None:
    await store.update(lambda item: item.setdefault("teams", {}).update(a={"members": ["lead"]}, b={}))
    await store.update(lambda item: item["teams"].pop("b"))
    assert await store.state() == {"teams": {"a": {"members": ["lead"]}}}

    def work(tx: object) -> None:
        state_documents.update(tx, lambda item: item["teams"].update(c={}))  # type: ignore[arg-type]
        raise KeyError("then it fails")

    with pytest.raises(KeyError):
        await store.write(work)
    assert "c" not in (await store.state())["teams"]


async def test_search_finds_words_senders_threads_and_places_in_small_and_large_mailboxes(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"zebra{first}{second}" for first in "xyz" for second in "abcdefghij"]
    ids = [await send(store, f"{name} of the common words") for name in names]
    reply = await store.send(
        draft("about zebraxh", thread=ids[7], action="status_update"), sender="coder", recipient="coder"
    )
    await store.send(draft("zebraxh for another agent"), sender="coder", recipient="lead")
    await store.withdraw("coder", ids[3], outcome="recalled")
    for limit in (1_000, 10):
        monkeypatch.setattr("switchboard_mcp.mail.store.reading.MAX_RANKED", limit)
        assert {item.message.id for item in await store.search("coder", "zebraxh")} == {ids[7], reply.id}
        assert len(await store.search("coder", "common", limit=50)) >= 10
        assert await store.search("coder", "absent") == []
        assert [item.message.id for item in await store.search("coder", "zebraxd", limit=1)] == [ids[3]]
    assert [item.message.id for item in await store.search("coder", limit=2)] == [reply.id, ids[29]]
    assert [item.message.id for item in await store.search("coder", thread=ids[7])] == [reply.id, ids[7]]
    assert [item.message.id for item in await store.search("coder", sender="coder")] == [reply.id]
    assert [item.message.id for item in await store.search("coder", action="status_update")] == [reply.id]
    assert [item.message.id for item in await store.search("coder", places=("archive",))] == [ids[3]]


async def test_pruning_removes_old_settled_mail_with_its_words_and_attachments(
    store: MessageStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard_mcp.mail.store.reading.MAX_RANKED", 1)
    old, kept, new = [await send(store, text) for text in ("ancient words", "waits", "recent words")]
    assert len(await store.search("coder", "words")) == 2
    await store.withdraw("coder", old, outcome="recalled")
    clock.move(1_000)
    await store.withdraw("coder", new, outcome="recalled")
    assert await store.prune(500) == 1
    assert [item.message.id for item in await store.search("coder", "words")] == [new]
    assert {item.in_reply_to for item in await store.receipts("lead")} == {kept, new}
    assert (await store.verify()).problems == []
    assert (await store.verify()).messages == 2


async def test_deadlines_are_found_once_and_only_for_open_messages(store: MessageStore, clock: Clock) -> None:
    late, settled = [await send(store, item, ackBy="2030-03-17T18:00:00Z") for item in ("late", "settled")]
    await send(store, "later", ackBy="2031-01-01")
    await store.withdraw("coder", settled, outcome="recalled")
    clock.move(1_000)
    (due,) = await store.database.read(aging.overdue)
    assert due.message.message.id == late
    await store.write(lambda tx: aging.clear_deadline(tx, due.message.order))
    assert await store.database.read(aging.overdue) == []


async def test_removing_an_agent_by_force_rejects_its_mail(store: MessageStore) -> None:
    message = await send(store)
    assert await store.remove_agent("coder", force=True) == 1
    assert await store.agents() == ["lead"]
    assert (await store.receipts("lead"))[0].status == "rejected"
    with pytest.raises(SwitchboardError) as refusal:
        await store.read("coder", message)
    assert code_of(refusal) == "mail_recipient_unknown"


async def test_waiting_ends_with_a_message_of_another_process_or_an_expired_lease(
    tmp_path: Path, database_target: str
) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        await MessageStore.open(str(tmp_path), database=database_target) as mine,
        await MessageStore.open(str(tmp_path), database=database_target) as other,
    ):
        await mine.register("coder")
        assert await mine.wait("coder", 0.01) == []
        waiting = asyncio.create_task(mine.wait("coder", PATIENCE_S))
        await asyncio.sleep(0)
        await other.send(draft("wake up"), sender="lead", recipient="coder")
        assert [item.message.payload for item in await waiting] == ["wake up"]
        await other.claim("coder", lease_s=0.2)
        assert [item.message.payload for item in await mine.wait("coder", PATIENCE_S)] == ["wake up"]


async def test_claims_and_listings_keep_the_order_of_each_sender_like_a_model(store: MessageStore) -> None:
    generator = random.Random(7)
    senders = ("a", "b", "c", "d")
    priorities: list[Priority] = ["low", "normal", "normal", "normal", "high", "urgent"]
    ranks = {"low": -1, "normal": 0, "high": 1, "urgent": 2}
    waiting: list[tuple[int, str, int, str]] = []  # order, sender, rank, id
    leased: list[tuple[tuple[int, str, int, str], int]] = []
    stood_in = 0
    for step in range(260):
        kind = generator.random()
        if kind < 0.55:
            sender, priority = generator.choice(senders), generator.choice(priorities)
            sent = await store.send(draft(str(step), priority=priority), sender=sender, recipient="coder")
            waiting.append((step, sender, ranks[priority], sent.id))
        elif kind < 0.85:
            expected = _claim_order(waiting)[:2]
            claimed = await store.claim("coder", limit=2)
            assert [item.message.id for item in claimed] == [item[3] for item in expected], step
            stood_in += sum(item[2] < 1 for item in expected)
            for item, lease in zip(expected, claimed, strict=True):
                waiting.remove(item)
                leased.append((item, lease.fence))
        elif leased:
            item, fence = leased.pop(generator.randrange(len(leased)))
            if generator.random() < 0.5:
                await store.release("coder", item[3], fence=fence)
                waiting.append(item)
            else:
                await store.ack("coder", item[3], fence=fence)
        if step % 20 == 0:
            listed = [item.message.id for item in await store.peek("coder")]
            assert listed == [item[3] for item in _claim_order(waiting)][:100], step
    assert stood_in > 10
    assert (await store.verify()).problems == []


def _claim_order(waiting: list[tuple[int, str, int, str]]) -> list[tuple[int, str, int, str]]:
    """The model: the highest rank, then the oldest; but the oldest of that sender first."""
    left = sorted(waiting)
    order = []
    while left:
        top = min(left, key=lambda item: (-item[2], item[0]))
        oldest = next(item for item in left if item[1] == top[1])
        left.remove(oldest)
        order.append(oldest)
    return order


async def test_messages_of_each_sender_are_accepted_and_claimed_in_order_by_many_clients(
    tmp_path: Path, database_target: str
) -> None:
    async with (
        await MessageStore.open(str(tmp_path), database=database_target) as first_store,
        await MessageStore.open(str(tmp_path), database=database_target) as two,
    ):
        await first_store.register("coder")

        async def send_all(sender: str, store: MessageStore) -> None:
            for number in range(20):
                await store.send(draft(str(number)), sender=sender, recipient="coder")

        claims: list[tuple[int, str, str]] = []

        async def claim_all(store: MessageStore) -> None:
            while len(claims) < 160:
                for item in await store.claim("coder", limit=3):
                    claims.append((item.fence, item.message.sender, item.message.payload))
                    await store.ack("coder", item.message.id, fence=item.fence)

        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(
                *(send_all(f"s{number}", (first_store, two)[number % 2]) for number in range(8)),
                *(claim_all(store) for store in (first_store, two, first_store)),
            )
        by_sender: dict[str, list[int]] = defaultdict(list)
        for _, sender, payload in sorted(claims):
            by_sender[sender].append(int(payload))
        assert by_sender == {f"s{number}": list(range(20)) for number in range(8)}
        assert len({fence for fence, _, _ in claims}) == 160
        assert (await first_store.verify()).problems == []


async def test_a_dead_letter_is_reported_to_whoever_opened_the_store(
    tmp_path: Path, database_target: str, clock: Clock
) -> None:
    deliveries: list[Delivery] = []
    async with await MessageStore.open(
        str(tmp_path), database=database_target, clocks=clock.clocks, report=deliveries.append, watch=False
    ) as store:
        await store.register("coder")
        message = await send(store)
        for _ in range(5):
            await store.claim("coder", lease_s=1)
            clock.move(2)
        assert await store.claim("coder") == []
    assert [(item.agent, item.id) for item in deliveries] == [("coder", message)]
