"""The overseer's name is the dashboard's alone, whichever way a name comes in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail import agent_registry
from switchboard_mcp.mail.messages import Delivery, Draft
from switchboard_mcp.mail.store.store import MessageStore
from tests.cases import each_case
from tests.unit.mail.office import import_files, office

WRITTEN = ("overseer", "Overseer", "OVERSEER")
DRAFT = Draft(action="status_update", payload="hello")


@each_case("written", WRITTEN)
@each_case("token", ["", "overseer", "Overseer"])
async def test_no_client_registers_as_the_overseer_with_or_without_a_token(
    tmp_path: Path, written: str, token: str
) -> None:
    async with office(tmp_path) as server:
        client = await server.client(token)
        chat = await client.failure("register_chat_agent", name=written)
        terminal = await client.failure("register_terminal", name=written, pid=1)
        assert [chat["code"], terminal["code"]] == ["mail_identity", "mail_identity"]
        assert "reserved for the person at the dashboard" in chat["message"]


async def test_a_token_of_that_name_is_no_agent(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        client = await server.client("overseer")
        assert (await client.failure("check_inbox"))["code"] == "mail_identity"


@each_case("written", WRITTEN)
async def test_the_store_sends_in_that_name_for_the_dashboard_only(workspace: Path, written: str) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as store:
        await store.register("ada")
        await store.register("overseer")
        for verified in (True, False):
            with pytest.raises(SwitchboardError, match="reserved for the person at the dashboard"):
                await store.send(DRAFT, sender=written, recipient="ada", verified=verified)
        sent = await store.send(DRAFT, sender="overseer", recipient="ada", from_dashboard=True)
        assert (await store.read("ada", sent.id)).verified
        back = await store.send(DRAFT, sender="ada", recipient="overseer")
        with pytest.raises(SwitchboardError, match="reserved"):
            await store.ack(written, back.id, result="done")


def test_no_team_has_that_name() -> None:
    with pytest.raises(SwitchboardError, match="reserved"):
        agent_registry.create_team("ada", "overseer", ["ada"], [])


@each_case("written", WRITTEN)
async def test_a_dropped_file_in_that_name_is_refused(
    workspace: Path, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliveries: list[Delivery] = []
    async with await MessageStore.open(str(workspace), watch=False, report=deliveries.append) as store:
        await store.register("ada")
        content = {"sender": written, "recipient": "ada", "action": "status_update", "payload": "hello"}
        (workspace / ".switchboard/inbox/ada/msg_1.json").write_text(json.dumps(content))
        await import_files(store, monkeypatch)
        assert deliveries[0].problem is not None
        assert "reserved for the person at the dashboard" in deliveries[0].problem.message
        assert await store.peek("ada") == []
