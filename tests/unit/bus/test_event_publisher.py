from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus.event_publisher import EventPublisher
from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.config.sections import EVENT_LOG
from switchboard_mcp.config.sections import AuditSettings as Settings
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store.store import MessageStore, State
from switchboard_mcp.observability.audit.audit_log import AuditLog
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.redaction.redactor import Redactor
from tests.cases import each_case


class Stream:
    """Takes what is told, unless it is away."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.away = False

    async def publish(self, stream: str, events: Sequence[bytes], most: int) -> None:
        if self.away:
            raise ConnectionError
        self.events += map(msgspec.json.decode, events)


def record(folder: Path, *outcomes: str, settings: Settings | None = None) -> None:
    audit = AuditLog(
        settings or Settings(),
        str(folder),
        Redactor(),
        masks={},
        fail_closed=False,
        warn=lambda problem: None,
    )
    audit.start()
    for outcome in outcomes:
        audit.record(CallRecord("child", child="github", outcome=outcome))
    audit.close()


async def test_lines_of_the_record_and_receipts_are_reported_once_and_in_order(tmp_path: Path) -> None:
    record(tmp_path, "started", "failed")
    stream = Stream()
    async with await MessageStore.open(str(tmp_path), watch=False) as post:
        await post.register("bob")
        sent = await post.send(Draft(action="execute", payload=""), sender="ada", recipient="bob")
        me = nodes.identify(post.path)
        # Each as after another start.
        tellers = [
            EventPublisher(post.path, cast(BusClient, stream), me, str(tmp_path / ".switchboard/audit"), post)
            for _ in range(3)
        ]
        for events in tellers[:2]:
            await events.pump()
            await events.pump()
        record(tmp_path, "quarantined")
        await tellers[2].pump()
    published = [(each["kind"], each.get("child", ""), each["outcome"]) for each in stream.events]
    assert published == [
        ("child", "github", "started"),
        ("child", "github", "failed"),
        ("message", "", "delivered"),
        ("child", "github", "quarantined"),
    ]
    assert stream.events[2]["subject"] == sent.id
    assert stream.events[0]["at"][:2] == "20"
    assert len({each["id"] for each in stream.events}) == 4


async def test_a_notice_that_failed_is_sent_later(tmp_path: Path) -> None:
    record(tmp_path, "started")
    stream = Stream()
    stream.away = True
    async with await MessageStore.open(str(tmp_path), watch=False) as post:
        events = EventPublisher(
            post.path,
            cast(BusClient, stream),
            nodes.identify(post.path),
            str(tmp_path / ".switchboard/audit"),
            post,
        )
        try:
            await events.pump()
        except ConnectionError:
            stream.away = False
        await events.pump()
    assert [each["outcome"] for each in stream.events] == ["started"]


async def test_events_are_bounded_on_disk_and_those_dropped_are_counted(
    tmp_path: Path,
) -> None:
    folder = tmp_path / EVENT_LOG.path
    small = msgspec.structs.replace(EVENT_LOG, max_bytes=4096, keep=2)
    stream = Stream()
    async with await MessageStore.open(str(tmp_path), watch=False) as post:
        publisher = EventPublisher(post.path, cast(BusClient, stream), nodes.identify(post.path), "")
        record(tmp_path, "first", settings=small)
        await publisher.pump()
        for number in range(40):
            record(tmp_path, *(f"{number}.{each}" for each in range(5)), settings=small)
        assert sum(path.stat().st_size for path in folder.glob("*.jsonl")) < 3 * 4096
        while await publisher.pump():
            pass
    outcomes = [each["outcome"] for each in stream.events if each["kind"] == "child"]
    (lost,) = [each["count"] for each in stream.events if each["kind"] == "lost"]
    assert outcomes[0] == "first"
    assert outcomes[-1] == "39.4"
    # Beginnings of files count as lines too.
    assert 0 <= lost + len(outcomes) - 201 <= 60
    assert publisher.lost == lost
    assert len(list(folder.glob("*.jsonl"))) == 1


async def test_the_position_of_an_earlier_release_is_continued(tmp_path: Path) -> None:
    record(tmp_path, "old")
    stream = Stream()
    log = tmp_path / ".switchboard/audit/audit-000001.jsonl"
    async with await MessageStore.open(str(tmp_path), watch=False) as post:
        saved = {"file": 1, "offset": log.stat().st_size, "told_until": 0.0, "recent": [], "phases": {}}
        nodes.save(post.path, "events.json", saved, durable=False)
        record(tmp_path, "new")
        me = nodes.identify(post.path)
        await EventPublisher(post.path, cast(BusClient, stream), me, str(log.parent), post).pump()
    assert [each["outcome"] for each in stream.events] == ["new"]


@each_case(
    "data",
    [b"{}\n", b"\xff\n", b"[" * 100_000, b"x" * 3_000_000, b'{"seq":1,"at":%d,"kind":"call"}\n' % 10**30],
)
async def test_a_log_with_lines_of_another_kind_is_read_past_them(tmp_path: Path, data: bytes) -> None:
    record(tmp_path, "one")
    folder = tmp_path / ".switchboard/audit"
    (folder / "audit-000002.jsonl").write_bytes(data)
    whole = (folder / "audit-000001.jsonl").read_bytes()
    (folder / "audit-000003.jsonl").write_bytes(whole.replace(b'"one"', b'"two"'))
    stream = Stream()
    async with await MessageStore.open(str(tmp_path), watch=False) as post:
        me = nodes.identify(post.path)
        publisher = EventPublisher(post.path, cast(BusClient, stream), me, str(folder), post)
        for _ in range(5):
            await publisher.pump()
    assert [each["outcome"] for each in stream.events] == ["one", "two"]


def put(state: State, run: str, entry: Mapping[str, object]) -> None:
    state.setdefault("workflows", {})[run] = entry


async def test_every_step_of_a_workflow_is_told_however_many_there_were_since_the_last_time(
    tmp_path: Path,
) -> None:
    stream = Stream()
    steps = [
        {"phase": "submit", "how": "completed", "by": "ada", "at": "t1", "to": "review"},
        {"phase": "review", "how": "skipped", "by": "lead", "at": "t2", "to": "conclude"},
        {"phase": "conclude", "how": "completed", "by": "ada", "at": "t3", "to": "end"},
    ]
    stages = [("submit", "running"), ("review", "running"), ("conclude", "running"), ("conclude", "finished")]

    async with await MessageStore.open(str(tmp_path), watch=False) as post:
        me = nodes.identify(post.path)
        for run, made in (("quick", [3]), ("slow", [0, 1, 1, 3])):
            for count in made:
                phase, status = stages[count]
                now = {"phase": phase, "status": status, "steps": steps[:count]}
                entry = {"startedBy": "lead", "startedAt": "t0", **now}
                await post.update(partial(put, run=run, entry=entry))
                await EventPublisher(post.path, cast(BusClient, stream), me, "", post).pump()
    for run in ("quick", "slow"):
        published = [each for each in stream.events if each["subject"] == run]
        assert [(each["phase"], each["outcome"]) for each in published] == stages
        assert [(each["who"], each["at"]) for each in published] == [
            ("lead", "t0"),
            ("ada", "t1"),
            ("lead", "t2"),
            ("ada", "t3"),
        ]
    assert len({each["id"] for each in stream.events}) == 8


async def test_steps_that_are_none_are_no_trouble(tmp_path: Path) -> None:
    stream = Stream()
    async with await MessageStore.open(str(tmp_path), watch=False) as post:
        for run, steps in (("words", ["x"]), ("number", 3), ("none", None)):
            entry = {"phase": "submit", "status": "running", "steps": steps}
            await post.update(partial(put, run=run, entry=entry))
        await EventPublisher(post.path, cast(BusClient, stream), nodes.identify(post.path), "", post).pump()
    assert {each["subject"] for each in stream.events} == {"words", "number", "none"}


async def test_receipts_are_published_once_and_those_of_a_settlement_too(tmp_path: Path) -> None:
    stream = Stream()
    async with await MessageStore.open(str(tmp_path), watch=False) as post:
        await post.register("bob")
        me = nodes.identify(post.path)
        events = EventPublisher(post.path, cast(BusClient, stream), me, "", post)
        sent = [
            await post.send(Draft(action="execute", payload=""), sender="ada", recipient="bob")
            for _ in range(3)
        ]
        for message in sent:
            await post.ack("bob", message.id)
            for _ in range(3):
                await events.pump()
    published = [(each["subject"], each["outcome"]) for each in stream.events]
    assert sorted(published) == sorted((each.id, how) for each in sent for how in ("delivered", "done"))
    assert len({each["id"] for each in stream.events}) == 6
