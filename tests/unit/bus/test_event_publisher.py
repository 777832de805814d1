from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from switchboard_mcp.bus import node as nodes
from switchboard_mcp.bus.event_publisher import EventPublisher
from switchboard_mcp.bus.redis_client import BusClient, Fields
from switchboard_mcp.config.sections import AuditSettings as Settings
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store.store import MessageStore, State
from switchboard_mcp.observability.audit.audit_log import AuditLog
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.redaction.redactor import Redactor


class Stream:
    """Takes what is told, unless it is away."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.away = False

    async def append(self, stream: str, entries: Sequence[Fields], most: int) -> None:
        if self.away:
            raise ConnectionError
        self.events += [msgspec.json.decode(cast(bytes, entry["event"])) for entry in entries]


def record(folder: Path, *outcomes: str) -> None:
    audit = AuditLog(
        Settings(), str(folder), Redactor(), masks={}, fail_closed=False, warn=lambda problem: None
    )
    audit.start()
    for outcome in outcomes:
        audit.record(CallRecord("child", child="github", outcome=outcome))
    audit.close()


async def test_lines_of_the_record_and_receipts_are_told_once_and_in_order(tmp_path: Path) -> None:
    record(tmp_path, "started", "failed")
    stream = Stream()
    async with await MessageStore.open(str(tmp_path), watch=False) as post:
        await post.register("bob")
        sent = await post.send(Draft(action="execute", payload=""), sender="ada", recipient="bob")
        me = await post.run(nodes.identify)
        # Each as after another start.
        tellers = [
            EventPublisher(post, cast(BusClient, stream), me, str(tmp_path / ".switchboard/audit"))
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


async def test_what_could_not_be_told_is_told_later(tmp_path: Path) -> None:
    record(tmp_path, "started")
    stream = Stream()
    stream.away = True
    async with await MessageStore.open(str(tmp_path), watch=False) as post:
        events = EventPublisher(
            post,
            cast(BusClient, stream),
            await post.run(nodes.identify),
            str(tmp_path / ".switchboard/audit"),
        )
        try:
            await events.pump()
        except ConnectionError:
            stream.away = False
        await events.pump()
    assert [each["outcome"] for each in stream.events] == ["started"]


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
        me = await post.run(nodes.identify)
        for run, made in (("quick", [3]), ("slow", [0, 1, 1, 3])):
            for count in made:
                phase, status = stages[count]
                now = {"phase": phase, "status": status, "steps": steps[:count]}
                entry = {"startedBy": "lead", "startedAt": "t0", **now}
                await post.update(partial(put, run=run, entry=entry))
                await EventPublisher(post, cast(BusClient, stream), me, "").pump()
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
        await EventPublisher(post, cast(BusClient, stream), await post.run(nodes.identify), "").pump()
    assert {each["subject"] for each in stream.events} == {"words", "number", "none"}
