"""The mail tools, as a model uses them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from switchboard_mcp.mail.messages import ACTIONS
from switchboard_mcp.mail.terminal import terminal_registry
from switchboard_mcp.mail.terminal.terminal_registry import TerminalEntry
from switchboard_mcp.mail.tools.table import TOOLS
from tests.cases import each_case
from tests.patience import PATIENCE_S
from tests.unit.mail.office import Client, Json, office

LIMIT_CHARS = 13_800  # of the whole list, which hosts carry in every conversation


async def send(sender: Client, recipient: str, payload: str = "p", **more: object) -> Json:
    return await sender.call(
        "send_message", **{"recipient": recipient, "action": "status_update", "payload": payload, **more}
    )


def test_tools_have_short_descriptions_and_closed_schemas() -> None:
    assert sum(len(bytes(tool.definition)) for tool in TOOLS) < LIMIT_CHARS
    for tool in TOOLS:
        assert len(tool.description) < 120, tool.name
        assert tool.description.endswith(".")
        assert b'"additionalProperties":false' in bytes(tool.schema)


def test_only_tools_that_change_nothing_say_so() -> None:
    assert {tool.name for tool in TOOLS if tool.read_only} >= {
        "list_agents",
        "check_inbox",
        "wait_for_mail",
        "get_receipts",
        "search_messages",
    }
    assert not {"send_message", "claim_messages", "ack_message"} & {
        tool.name for tool in TOOLS if tool.read_only
    }


async def test_execute_is_refused_when_it_is_sent_to_an_agent_without_a_terminal(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada, _ = await server.agent("ada"), await server.agent("bob")
        await ada.call("assign_role", role="lead")
        problem = await ada.failure("send_message", recipient="bob", action="execute", payload="ls")
        assert problem["code"] == "mail_forbidden"
        assert "switchboard terminal bob --allow-execute" in problem["hint"]


@each_case("action", ACTIONS)
async def test_every_action_goes_from_sender_to_recipient_and_back_as_a_receipt(
    tmp_path: Path, action: str
) -> None:
    async with office(tmp_path) as server:
        ada, bob = await server.agent("ada"), await server.agent("bob")
        await ada.call("assign_role", role="lead")
        terminal = TerminalEntry(pid=os.getpid(), socket="terminals/bob.sock", allow_execute=True)
        terminal_registry.register(str(tmp_path / ".switchboard"), "bob", terminal)
        sent = await send(ada, "bob", "do it", action=action, metadata={"k": [1]}, priority="high")
        assert sent["status"] == "delivered"
        (receipt,) = (await ada.call("get_receipts"))["receipts"]
        assert (receipt["inReplyTo"], receipt["status"]) == (sent["id"], "delivered")
        (claimed,) = (await bob.call("claim_messages", leaseSeconds=60))["messages"]
        assert (claimed["id"], claimed["action"], claimed["payload"]) == (sent["id"], action, "do it")
        assert (claimed["metadata"], claimed["priority"]) == ({"k": [1]}, "high")
        acked = await bob.call("ack_message", id=sent["id"], outcome="done", summary="did it")
        assert acked == {"id": sent["id"], "outcome": "done", "receipt": "done"}
        (receipt,) = (await ada.call("get_receipts", ids=[sent["id"]]))["receipts"]
        assert receipt["status"] == "done"


async def test_a_result_goes_back_to_the_sender(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada, bob = await server.agent("ada"), await server.agent("bob")
        sent = await send(ada, "bob", action="delegate_task")
        await bob.call("claim_messages")
        acked = await bob.call("ack_message", id=sent["id"], outcome="done", result="42")
        (back,) = (await ada.call("claim_messages"))["messages"]
        assert back["id"] == acked["result"]["id"]
        assert (back["from"], back["action"], back["payload"]) == ("bob", "submit_result", "42")
        assert back["replyTo"] == sent["id"]


async def test_looking_consumes_nothing_and_claiming_does(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada, bob = await server.agent("ada"), await server.agent("bob")
        sent = [await send(ada, "bob", f"{number}") for number in range(3)]
        inbox: Json = {}
        for _ in range(2):
            inbox = await bob.call("check_inbox")
            assert [message["payload"] for message in inbox["messages"]] == ["0", "1", "2"]
            waited = await bob.call("wait_for_mail")
            assert len(waited["messages"]) == 3
        later = await bob.call("check_inbox", after=inbox["messages"][0]["order"])
        assert [message["payload"] for message in later["messages"]] == ["1", "2"]
        claimed = (await bob.call("claim_messages", max=2))["messages"]
        assert [message["payload"] for message in claimed] == ["0", "1"]
        assert (await bob.call("check_inbox"))["unread"] == 1
        whole = await bob.call("check_inbox", id=sent[0]["id"])
        assert (whole["place"], whole["payload"]) == ("claimed", "0")


async def test_a_long_message_is_shown_in_brief_and_claimed_whole(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada, bob = await server.agent("ada"), await server.agent("bob")
        await send(ada, "bob", "x" * 5_000)
        (message,) = (await bob.call("check_inbox"))["messages"]
        assert len(message["payload"]) < 300
        assert message["chars"] == 5_000
        (claimed,) = (await bob.call("claim_messages"))["messages"]
        assert claimed["payload"] == "x" * 5_000


async def test_waiting_ends_when_mail_comes(tmp_path: Path) -> None:
    async with office(tmp_path) as server, office(tmp_path) as other:
        ada, bob = await server.agent("ada"), await other.agent("bob")
        _, answer = bob.begin("tools/call", {"name": "wait_for_mail", "arguments": {"seconds": 20}})
        await bob.call("check_inbox")  # by now it waits
        assert not answer.done()
        await send(ada, "bob", "news")
        async with asyncio.timeout(PATIENCE_S):
            (message,) = (await answer)["result"]["structuredContent"]["messages"]
        assert message["payload"] == "news"


async def test_waiting_in_vain_ends_with_nothing(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada = await server.agent("ada")
        assert await ada.call("wait_for_mail", seconds=1) == {"agent": "ada", "messages": []}


async def test_while_one_waits_progress_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchboard_mcp.mail.tools.messaging.TICK_S", 0.05)
    async with office(tmp_path) as server:
        ada = await server.agent("ada")
        params = {"name": "wait_for_mail", "arguments": {"seconds": 55}, "_meta": {"progressToken": "p"}}
        id, _ = ada.begin("tools/call", params)
        first, second = [await ada.next("notifications/progress") for _ in range(2)]
        assert first["progressToken"] == "p"
        assert first["total"] == 55
        assert second["progress"] > first["progress"]
        ada.cancel(id)
        assert (await ada.call("check_inbox"))["unread"] == 0


async def test_only_what_was_claimed_here_is_settled(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada, bob = await server.agent("ada"), await server.agent("bob")
        sent = await send(ada, "bob")
        problem = await bob.failure("ack_message", id=sent["id"], outcome="done")
        assert problem["code"] == "mail_lease_lost"
        (claimed,) = (await bob.call("claim_messages"))["messages"]
        await bob.leave()
        again = await server.agent("bob")
        wrong = await again.failure("ack_message", id=sent["id"], outcome="done", fence=claimed["fence"] - 1)
        assert wrong["code"] == "mail_lease_lost"
        await again.call("ack_message", id=sent["id"], outcome="failed", fence=claimed["fence"])
        (receipt,) = (await ada.call("get_receipts"))["receipts"]
        assert receipt["status"] == "failed"


async def test_an_unknown_recipient_is_an_error_with_the_nearest_names(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada, _ = await server.agent("ada"), await server.agent("reviewer-2")
        for written in ("reviwer-2", "reviewer2"):
            problem = await ada.failure(
                "send_message", recipient=written, action="status_update", payload="p"
            )
            assert problem["code"] == "mail_recipient_unknown"
            assert problem["nearest"] == ["reviewer-2"]
        problem = await ada.failure("send_message", recipient="../x", action="status_update", payload="p")
        assert problem["code"] == "mail_name_invalid"


async def test_a_message_may_go_to_the_one_agent_of_a_role(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada, bob = await server.agent("ada"), await server.agent("bob")
        await ada.call("assign_role", role="lead")
        args = await ada.call("assign_role", agent="bob", role="Coder 1")
        assert args["role"] == "coder 1"
        assert args["personaFile"] == ".switchboard/personas/coder-1.md"
        sent = await send(ada, "coder 1", action="delegate_task")
        assert sent["recipient"] == "bob"
        (claimed,) = (await bob.call("claim_messages"))["messages"]
        assert claimed["persona"] == args["persona"]
        again = await bob.call("register_chat_agent", name="bob")
        assert (again["role"], again["persona"]) == ("coder 1", args["persona"])
        refused = await bob.failure("assign_role", agent="ada", role="tester")
        assert refused["code"] == "mail_forbidden"
        unknown = await ada.failure("assign_role", agent="bop", role="tester")
        assert unknown["nearest"] == ["bob"]


async def test_a_sender_cannot_set_members_of_the_mail_server(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada, bob = await server.agent("ada"), await server.agent("bob")
        forged = {"verified": "forged", "seal": "forged", "attachment": {"file": "forged"}}
        await send(ada, "bob", metadata={**forged, "k": 1})
        (claimed,) = (await bob.call("claim_messages"))["messages"]
        assert claimed["metadata"] == {"k": 1}
        assert "forged" not in str(claimed)


async def test_the_same_key_is_sent_once(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada, bob = await server.agent("ada"), await server.agent("bob")
        first = await send(ada, "bob", idempotencyKey="k")
        second = await send(ada, "bob", idempotencyKey="k")
        assert second["id"] == first["id"]
        assert second["duplicate"] is True
        assert (await bob.call("check_inbox"))["unread"] == 1


async def test_a_team_is_written_to_at_once_or_by_role(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        clients = {name: await server.agent(name) for name in ("ada", "bob", "cy")}
        ada = clients["ada"]
        await ada.call("assign_role", role="lead")
        await ada.call("assign_role", agent="cy", role="tester")
        made = await ada.call("create_team", team="Core", members=["ada", "bob", "cy"])
        assert made == {"team": "core", "kind": "manual", "members": ["ada", "bob", "cy"]}
        content = {"team": "core", "action": "status_update", "payload": "p"}
        sent = await ada.call("send_team_message", **content)
        assert [one["recipient"] for one in sent["sent"]] == ["bob", "cy"]
        sent = await ada.call("send_team_message", role="tester", **content)
        assert [one["recipient"] for one in sent["sent"]] == ["cy"]
        (first, _) = (await clients["cy"].call("check_inbox"))["messages"]
        assert first["team"] == "core"
        members = (await ada.call("list_agents", team="core", role="tester"))["agents"]
        assert [entry["name"] for entry in members] == ["cy"]
        problem = await ada.failure("send_team_message", **{**content, "team": "croe"})
        assert (problem["code"], problem["nearest"]) == ("mail_team_unknown", ["core"])
        assert (await ada.failure("create_team", team="x", members=["boob"]))["nearest"] == ["bob"]


async def test_in_a_composite_team_one_agent_is_asked_in_the_role_that_is_meant(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada, bob = await server.agent("ada"), await server.agent("bob")
        made = await ada.call("create_team", team="solo", members=["bob"], roles=["coder 1", "tester"])
        assert (made["kind"], made["roles"]) == ("composite", ["coder 1", "tester"])
        content = {"team": "solo", "action": "delegate_task", "payload": "p"}
        await ada.call("send_team_message", role="tester", **content)
        (claimed,) = (await bob.call("claim_messages"))["messages"]
        assert claimed["persona"].startswith("You test.")
        assert claimed["metadata"]["role"] == "tester"
        await ada.call("send_team_message", **content)
        (claimed,) = (await bob.call("claim_messages"))["messages"]
        assert "persona" not in claimed


async def test_messages_are_found_again_by_words(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada, bob = await server.agent("ada"), await server.agent("bob")
        await send(ada, "bob", "the parser is slow")
        await send(ada, "bob", "lunch", action="delegate_task")
        found = (await bob.call("search_messages", query="parser"))["messages"]
        assert [message["payload"] for message in found] == ["the parser is slow"]
        found = (await bob.call("search_messages", action="delegate_task", place="inbox"))["messages"]
        assert [message["payload"] for message in found] == ["lunch"]
        assert (await ada.call("search_messages", query="parser"))["messages"] == []


async def test_a_recipient_that_is_not_here_is_reported_to_the_sender(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        ada, bob = await server.agent("ada"), await server.agent("bob")
        assert "warning" not in await send(ada, "bob")
        await bob.leave()
        assert "offline" in (await send(ada, "bob"))["warning"]


async def test_a_terminal_is_listed_with_its_process(tmp_path: Path) -> None:
    async with office(tmp_path) as server:
        client = await server.client()
        await client.call(
            "register_terminal", name="shell", pid=1, purpose="builds", styling={"color": "green"}
        )
        await client.call("set_status", status="working")
        (entry,) = (await client.call("list_agents"))["agents"]
        assert entry == {
            "name": "shell",
            "kind": "terminal",
            "presence": "online",
            "status": "working",
            "purpose": "builds",
            "pid": 1,
            "styling": {"color": "green"},
        }
