"""Phases ended by messages, for agents that only have files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.config.sections import MailSettings
from switchboard_mcp.mail.messages import Delivery, Receipt
from switchboard_mcp.mail.store.opening import open_mail
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.workflows import engine
from tests.unit.mail.office import office


class Village:
    """A lead at a shell; an author and a reviewer with nothing but files."""

    def __init__(
        self, store: MessageStore, workspace: Path, deliveries: list[Delivery] | None = None
    ) -> None:
        self.store, self.workspace = store, workspace
        self.deliveries = deliveries if deliveries is not None else []
        self.count = 0

    async def start(self) -> str:
        agents = {"author": "ada", "reviewer": "bob"}
        return (await engine.start(self.store, "lead", "review", agents=agents)).run.id

    def write(self, id: str, name: str) -> None:
        (self.workspace / ".switchboard" / "reviews" / f"{id}.{name}.md").write_text("words")

    def drop(self, sender: str, metadata: dict[str, Any], action: str = "submit_result") -> str:
        self.count += 1
        id = f"msg_{sender}_{self.count}"
        content = {"sender": sender, "recipient": "lead", "action": action, "payload": "as asked"}
        inbox = self.workspace / ".switchboard" / "inbox" / "lead"
        (inbox / ".draft").write_text(json.dumps({**content, "metadata": metadata}))
        (inbox / ".draft").rename(inbox / f"{id}.json")
        return id

    async def say(self, sender: str, metadata: dict[str, Any], action: str = "submit_result") -> Receipt:
        """Return the receipt of a message."""
        id = self.drop(sender, metadata, action)
        await self.store.import_files()
        (receipt,) = await self.store.receipts(sender, ids=[id])
        return receipt

    async def run(self, id: str) -> Any:
        return engine.find(await engine.send_pending_notices(self.store), "", id)


@pytest.fixture
async def village(workspace: Path) -> AsyncIterator[Village]:
    deliveries: list[Delivery] = []
    async with await open_mail(
        str(workspace), MailSettings(), watch=False, report=deliveries.append
    ) as store:
        for name in ("lead", "ada", "bob"):
            await store.register(name)
        await store.import_files()
        yield Village(store, workspace, deliveries)


async def test_a_whole_review_is_led_by_files(village: Village) -> None:
    id = await village.start()
    (request,) = await village.store.peek("ada")
    assert f'"metadata":{{"workflow":"{id}","completes":"submit"}}' in request.message.payload
    village.write(id, "request-1")
    assert (await village.say("ada", {"workflow": id, "completes": "submit"})).status == "delivered"
    assert (await village.run(id)).actor == "bob"
    (request,) = await village.store.peek("bob")
    assert request.message.action == "request_review"
    village.write(id, "review-1")
    content = {"workflow": id, "completes": "review", "next": "conclude", "artifacts": []}
    assert (await village.say("bob", content)).status == "delivered"
    assert (await village.say("ada", {"workflow": id, "completes": "conclude"})).status == "delivered"
    run = await village.run(id)
    assert run.status == "finished"
    assert [(step.phase, step.by, step.unverified) for step in run.steps] == [
        ("submit", "ada", True),
        ("review", "bob", True),
        ("conclude", "ada", True),
    ]
    assert run.steps[0].note == "as asked"
    actions = [message.message.action for message in await village.store.peek("lead")]
    assert actions == ["submit_result"] * 4, "three messages, and how it ended"


@pytest.mark.parametrize(
    ("sender", "metadata", "why"),
    [
        ("ada", {"completes": "submit"}, "request-1.md (there is no such file)"),
        ("ada", {"completes": "review"}, "Complete 'submit' first"),
        ("bob", {"completes": "submit"}, "and all may send status_update"),
        ("eve", {"completes": "submit"}, "'eve' has no part"),
        ("ada", {"completes": 3}, "metadata for ending a phase"),
        ("ada", {"completes": "submit", "artifacts": ["/etc/passwd"]}, "cannot be an artifact"),
    ],
)
async def test_a_message_that_may_not_end_the_phase_is_refused_with_the_reason(
    village: Village, sender: str, metadata: dict[str, Any], why: str
) -> None:
    id = await village.start()
    receipt = await village.say(sender, {"workflow": id, **metadata})
    assert receipt.status == "refused"
    assert why in (receipt.error or "")
    assert (await village.run(id)).steps == []


async def test_a_phase_is_left_out_by_a_message_for_a_reason(village: Village) -> None:
    id = await village.start()
    content = {"workflow": id, "completes": "submit", "skipReason": "two lines"}
    assert (await village.say("lead", content, "status_update")).status == "delivered"
    (step,) = (await village.run(id)).steps
    assert (step.how, step.by, step.reason) == ("skipped", "lead", "two lines")


@pytest.mark.parametrize("metadata", [{}, {"completes": "submit"}])
async def test_the_id_of_a_message_that_ended_a_phase_opens_no_other_way(
    village: Village, metadata: dict[str, Any]
) -> None:
    id = await village.start()
    village.write(id, "request-1")
    message = village.drop("ada", {"workflow": id, "completes": "submit"})
    await village.store.import_files()
    more = {"id": message, "sender": "ada", "recipient": "bob", "action": "delegate_task", "payload": "x"}
    file = village.workspace / ".switchboard" / "inbox" / "bob" / f"{message}.json"
    file.write_text(json.dumps({**more, "metadata": {"workflow": id, **metadata}}))
    village.deliveries.clear()
    await village.store.import_files()
    (result,) = village.deliveries
    assert result.problem is not None
    assert result.problem.code == "mail_workflow_refused"


async def test_a_server_tells_whose_turn_it_is_after_such_a_message(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        await server.agent("lead")
        bob = await server.agent("bob")
        store = await server.server.store()
        await store.register("ada")
        village = Village(store, tmp_path)
        id = await village.start()
        village.write(id, "request-1")
        waiting = asyncio.create_task(bob.call("wait_for_mail", seconds=20))
        village.drop("ada", {"workflow": id, "completes": "submit"})
        (request,) = (await waiting)["messages"]
        assert request["action"] == "request_review"
        village.write(id, "review-1")
        content = {"workflow": id, "completes": "review", "next": "conclude"}
        message = {"recipient": "lead", "action": "submit_result", "payload": "Good", "metadata": content}
        await bob.call("send_message", **message)
        assert [each.message.metadata["phase"] for each in await store.peek("ada")] == ["submit", "conclude"]
        assert not (await village.run(id)).steps[-1].unverified
