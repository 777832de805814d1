"""Identity of clients, notifications and warnings of the mail server."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from switchboard_mcp.config.sections import MailSettings
from switchboard_mcp.mail.presence import Presence
from tests.patience import PATIENCE_S
from tests.unit.mail.office import office


async def test_an_agent_sends_and_reads_only_after_it_has_a_name(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        client = await server.client()
        for tool, arguments in {
            "check_inbox": {},
            "claim_messages": {},
            "send_message": {"recipient": "x", "action": "execute", "payload": "p"},
            "set_status": {"status": "working"},
            "get_receipts": {},
        }.items():
            assert (await client.failure(tool, **arguments))["code"] == "mail_not_registered"
        assert await client.call("list_agents") == {"you": None, "agents": []}


async def test_one_connection_is_one_agent(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        client = await server.agent("Coder 1")
        assert (await client.call("register_terminal", name="coder-1", pid=1))["name"] == "coder-1"
        problem = await client.failure("register_chat_agent", name="coder 2")
        assert problem["code"] == "mail_identity"
        assert "'coder-1'" in problem["message"]
        assert "coder-2" not in [agent["name"] for agent in (await client.call("list_agents"))["agents"]]


async def test_a_name_that_can_be_no_folder_is_refused(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        client = await server.client()
        for name in ("../up", "a/b", "ä", ".", "a\u0000b"):
            assert (await client.failure("register_chat_agent", name=name))["code"] == "mail_name_invalid"


async def test_a_sender_that_is_another_is_refused_and_nothing_sent(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada, bob = await server.agent("ada"), await server.agent("bob")
        content = {"recipient": "bob", "action": "status_update", "payload": "p"}
        assert (await ada.failure("send_message", sender="bob", **content))["code"] == "mail_identity"
        assert (await bob.call("check_inbox"))["unread"] == 0
        await ada.call("send_message", sender="Ada", **content)
        (message,) = (await bob.call("check_inbox"))["messages"]
        assert message["from"] == "ada"


async def test_a_name_is_taken_while_another_process_is_that_agent(tmp_path: Path) -> None:
    async with office(tmp_path) as server, office(tmp_path) as other:
        ada = await server.agent("ada")
        late = await other.client()
        assert (await late.failure("register_chat_agent", name="ada"))["code"] == "mail_name_taken"
        await ada.leave()
        assert (await late.call("register_chat_agent", name="ada"))["name"] == "ada"


async def test_in_one_process_the_later_connection_is_the_agent_and_the_earlier_is_reported(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as server:
        earlier = await server.agent("ada")
        later = await server.agent("ada")
        problem = await earlier.failure("check_inbox")
        assert problem["code"] == "mail_not_registered"
        assert "Another connection" in problem["message"]
        await earlier.leave()
        assert (await later.call("check_inbox"))["agent"] == "ada"
        (entry,) = (await later.call("list_agents"))["agents"]
        assert entry["presence"] == "online"


async def test_a_token_of_ones_own_is_ones_name(tmp_path: Path) -> None:
    async with office(tmp_path, reserved=("Ada",)) as server:
        ada, again = await server.client("Ada"), await server.client("Ada")
        assert (await ada.call("check_inbox"))["agent"] == "ada"
        assert (await again.call("register_chat_agent", name="ada"))["name"] == "ada"
        problem = await ada.failure("register_chat_agent", name="bob")
        assert problem["code"] == "mail_identity"
        stranger = await server.client()
        assert (await stranger.failure("register_chat_agent", name="ada"))["code"] == "mail_identity"
        await ada.leave()
        assert (await again.call("check_inbox"))["agent"] == "ada"
        (entry,) = (await again.call("list_agents"))["agents"]
        assert entry["presence"] == "online"


async def test_hosts_that_cannot_be_told_apart_are_nobody(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        anybody = await server.client(one=False)
        assert (await anybody.failure("register_chat_agent", name="ada"))["code"] == "mail_identity"
        problem = await anybody.failure("check_inbox")
        assert problem["code"] == "mail_identity"
        assert "http.tokens" in problem["hint"]


async def test_new_mail_is_announced_to_its_agent_and_to_nobody_else(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada, bob = await server.agent("ada"), await server.agent("bob")
        for client in (ada, bob):
            await client.ask("resources/subscribe", uri="switchboard://inbox/bob")
        await ada.call("send_message", recipient="bob", action="status_update", payload="hi")
        result = await bob.next("notifications/resources/updated")
        assert result == {"uri": "switchboard://inbox/bob"}
        inbox = await bob.read("switchboard://inbox/bob")
        assert [message["payload"] for message in inbox["messages"]] == ["hi"]
        assert ada.told.empty()
        answer = await ada.ask("resources/read", uri="switchboard://inbox/bob")
        assert answer["error"]["data"]["error"]["code"] == "mail_identity"


async def test_mail_of_another_process_is_reported_too(tmp_path: Path) -> None:
    async with office(tmp_path) as server, office(tmp_path) as other:
        bob = await server.agent("bob")
        await bob.ask("resources/subscribe", uri="switchboard://inbox/bob")
        ada = await other.agent("ada")
        await ada.call("send_message", recipient="bob", action="status_update", payload="hi")
        assert (await bob.next("notifications/resources/updated"))["uri"] == "switchboard://inbox/bob"


async def test_subscribers_learn_of_new_agents_and_their_status(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada = await server.agent("ada")
        await ada.ask("resources/subscribe", uri="switchboard://agents")
        bob = await server.agent("bob")
        await ada.next("notifications/resources/updated")
        await bob.call("set_status", status="blocked", note="no key")
        await ada.next("notifications/resources/updated")
        agents = {entry["name"]: entry for entry in (await ada.read("switchboard://agents"))["agents"]}
        assert (agents["bob"]["status"], agents["bob"]["note"]) == ("blocked", "no key")
        await bob.leave()
        await ada.next("notifications/resources/updated")
        agents = {entry["name"]: entry for entry in (await ada.read("switchboard://agents"))["agents"]}
        assert agents["bob"]["presence"] == "offline"


async def test_the_workflow_of_another_is_followed_wherever_that_one_is(tmp_path: Path) -> None:
    async with office(tmp_path) as server, office(tmp_path) as other:
        ada = await server.agent("ada")
        await ada.ask("resources/subscribe", uri="switchboard://workflow/bob")
        await other.agent("bob")
        assert (await ada.next("notifications/resources/updated"))["uri"] == "switchboard://workflow/bob"


async def test_resources_nobody_has_are_unknown(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada = await server.agent("ada")
        assert (await ada.ask("resources/read", uri="switchboard://else"))["error"]["code"] == -32002
        assert (await ada.read("switchboard://workflow/ada"))["agent"] == "ada"


async def test_mail_that_waits_while_nobody_was_woken_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard_mcp.mail.server.WARNING_CACHE_S", 0.0)
    async with office(tmp_path, MailSettings(enabled=True, unread_warn_ms=100)) as server:
        ada, _ = await server.agent("ada"), await server.agent("bob")
        await ada.call("send_message", recipient="bob", action="delegate_task", payload="p")
        result = await ada.next("notifications/message")
        assert result["level"] == "warning"
        assert "'bob'" in result["data"]
        assert "it was not notified" in result["data"]
        assert server.log.count(b"mail.unread_overdue") == 1
        agents = {entry["name"]: entry for entry in (await ada.call("list_agents"))["agents"]}
        assert agents["bob"]["starving"] is True
        again = await ada.call("send_message", recipient="bob", action="delegate_task", payload="p")
        assert "it was not notified" in again["warning"]


async def test_a_mail_server_that_cannot_be_opened_says_why_and_lives(tmp_path: Path) -> None:
    (tmp_path / ".switchboard").write_text("a file where the folder should be")
    async with office(tmp_path) as server:
        client = await server.client()
        problem = await client.failure("register_chat_agent", name="ada")
        assert problem["code"].startswith("mail_")
        assert ".switchboard" in problem["message"]
        (tmp_path / ".switchboard").unlink()
        assert (await client.call("register_chat_agent", name="ada"))["name"] == "ada"


async def test_a_dropped_file_that_is_no_message_is_logged(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada = await server.agent("ada")
        (tmp_path / ".switchboard" / "inbox" / "ada" / "msg_1_x.json").write_text("{")
        await server.log.until(b"mail.refused")
        assert (await ada.call("check_inbox"))["messages"] == []


async def test_a_dropped_file_has_the_persona_and_is_marked_unverified(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada = await server.agent("ada")
        await ada.call("assign_role", role="tester")
        draft = {
            "id": f"msg_{time.time_ns() // 1000}_drop",
            "action": "delegate_task",
            "sender": "shell",
            "recipient": "ada",
            "payload": "try it",
            "createdAt": "2026-01-01T00:00:00.000Z",
        }
        temporary = tmp_path / "draft"
        temporary.write_text(json.dumps(draft))
        temporary.rename(tmp_path / ".switchboard" / "inbox" / "ada" / f"{draft['id']}.json")
        (message,) = (await ada.call("wait_for_mail"))["messages"]
        assert (message["from"], message["verified"]) == ("shell", False)
        (claimed,) = (await ada.call("claim_messages"))["messages"]
        assert claimed["persona"].startswith("You test.")


async def test_claims_of_a_busy_agent_are_recorded_twice_at_first_and_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[str] = []
    loop, twice = asyncio.get_running_loop(), asyncio.Event()

    def record(_: Presence, agent: str) -> None:
        recorded.append(agent)
        if len(recorded) == 2:
            loop.call_soon_threadsafe(twice.set)

    monkeypatch.setattr("switchboard_mcp.mail.server.NOTIFIED_S", 0.01)
    monkeypatch.setattr(Presence, "record_notified", record)
    async with office(tmp_path) as server:
        for _ in range(10):
            server.server.note_notified("ada")
        await asyncio.wait_for(twice.wait(), PATIENCE_S)
    assert recorded == ["ada", "ada"]
