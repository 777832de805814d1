"""The message desk between real processes: hosts on the official SDK, plain shell scripts, and files as the truth."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.mail.store.store import MessageStore
from tests.e2e.agents import CODER, shell
from tests.e2e.host import SWITCHBOARD, Json, switchboard
from tests.e2e.sdk import Sdk, sdk_host
from tests.e2e.shell import run
from tests.e2e.web import HostSession, Web, headers_of, modern, serving
from tests.e2e.workspaces import configure
from tests.patience import PATIENCE_S

TOKENS = {"ada": "token-of-ada-0123456789", "bob": "token-of-bob-0123456789"}


@pytest.fixture
def desk(workspace: Path) -> Path:
    """A workspace with mail, its tools in a suite."""
    configure(workspace, {"mail": {"enabled": True}})
    return workspace


async def use(host: Sdk, tool: str, **args: Any) -> Json:
    """A subtool of the mail suite, by the SDK."""
    arguments = {"action": "call", "subtool": tool, "args": args}
    result = await host.client.call_tool("mail_suite", arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    text: Json = result.structured_content
    return text


async def receipt(host: Sdk, id: str) -> str:
    (found,) = (await use(host, "get_receipts", ids=[id]))["receipts"]
    status: str = found["status"]
    return status


async def test_two_sdk_hosts_and_a_shell_script_complete_a_round_with_receipts(desk: Path) -> None:
    (desk / "work.txt").write_text("done")
    async with (
        sdk_host(SWITCHBOARD, cwd=desk, mode="legacy") as lead,
        sdk_host(SWITCHBOARD, cwd=desk, mode="auto") as reviewer,
        shell(desk, CODER) as coder,
    ):
        await use(lead, "register_chat_agent", name="lead", interface="sdk")
        await use(lead, "assign_role", role="lead")
        await use(reviewer, "register_chat_agent", name="reviewer", interface="sdk")
        await use(lead, "assign_role", agent="reviewer", role="reviewer")
        assert await coder.line() == "ready"

        task = await use(
            lead, "send_message", recipient="coder", action="delegate_task", payload="Write work.txt"
        )
        assert task["status"] == await receipt(lead, task["id"]) == "delivered"
        assert await coder.line() == f"task {task['id']} from lead"
        request = (await coder.line()).removeprefix("asked ")
        assert await coder.line() == "delivered"

        (waiting,) = (await use(reviewer, "wait_for_mail"))["messages"]
        assert (waiting["id"], waiting["from"], waiting["verified"]) == (request, "coder", False)
        (review,) = (await use(reviewer, "claim_messages"))["messages"]
        assert review["persona"].startswith("You review.")
        assert review["replyTo"] == task["id"]
        verdict = await use(
            reviewer,
            "send_message",
            recipient="lead",
            action="submit_result",
            payload="approve",
            replyTo=task["id"],
        )
        await use(reviewer, "ack_message", id=request, outcome="done", summary="approved")
        assert await coder.line() == "reviewed"

        (result,) = (await use(lead, "wait_for_mail"))["messages"]
        assert (result["id"], result["from"], result["replyTo"]) == (verdict["id"], "reviewer", task["id"])
        await use(lead, "claim_messages")
        await use(lead, "ack_message", id=verdict["id"], outcome="done")
        assert await receipt(reviewer, verdict["id"]) == "done"
    async with await MessageStore.open(str(desk), watch=False) as post:
        found = await post.verify()
    assert found.is_sound, found.problems
    assert found.messages == 3


async def test_hosts_of_either_era_hear_of_mail_by_following_their_inbox(desk: Path) -> None:
    async with sdk_host(SWITCHBOARD, cwd=desk, mode="auto") as bob:
        await use(bob, "register_chat_agent", name="bob")
        with switchboard(desk) as ada:
            ada.initialize()
            ada.call("mail_suite", "register_chat_agent", name="ada")
            ada.result("resources/subscribe", {"uri": "switchboard://inbox/ada"})
            async with bob.client.listen(resource_subscriptions=["switchboard://inbox/bob"]) as heard:
                content = {"recipient": "bob", "action": "status_update", "payload": "hi"}
                ada.call("mail_suite", "send_message", **content)
                async with asyncio.timeout(PATIENCE_S):
                    event = await anext(aiter(heard))
                assert "switchboard://inbox/bob" in str(event)
            await use(bob, "send_message", recipient="ada", action="status_update", payload="hi")
            result = ada.notification("notifications/resources/updated")
            assert result["uri"] == "switchboard://inbox/ada"


def test_without_mail_there_is_nothing_of_it(workspace: Path) -> None:
    configure(workspace, {})
    with switchboard(workspace) as host:
        host.initialize()
        assert host.tools() == []
        assert host.result("resources/list")["resources"] == []
    assert not (workspace / ".switchboard").exists()


def test_where_it_is_shown_directly_the_tools_themselves_are_listed(workspace: Path) -> None:
    configure(workspace, {"mail": {"enabled": True, "exposure": "direct"}})
    with switchboard(workspace) as host:
        assert "register_chat_agent" in host.initialize()["instructions"]
        names = host.tool_names()
        assert {"register_terminal", "send_message", "wait_for_mail", "ack_message"} <= set(names)
        result = host.result("tools/call", {"name": "register_chat_agent", "arguments": {"name": "ada"}})
        assert result["structuredContent"]["name"] == "ada"
        (resource,) = host.result("resources/list")["resources"]
        assert resource["uri"] == "switchboard://agents"


def test_as_a_suite_it_is_introspected_called_and_denied_like_any_child(workspace: Path) -> None:
    suite = {"expose": {"deny": ["create_team"]}}
    configure(workspace, {"mail": {"enabled": True}, "suites": {"mail": suite}})
    with switchboard(workspace) as host:
        host.initialize()
        (tool,) = host.tools()
        assert tool["name"] == "mail_suite"
        assert "register_terminal" in tool["description"]
        assert "create_team" not in host.subtools("mail_suite")
        denied = host.failure("mail_suite", action="call", subtool="create_team", args={})
        assert denied["code"] == "subtool_denied"
        wrong = host.failure("mail_suite", action="call", subtool="send_message", args={"payload": 5})
        assert wrong["code"] == "arguments_invalid"
        templates = host.result("resources/templates/list")["resourceTemplates"]
        assert {entry["uriTemplate"] for entry in templates} == {
            "switchboard://inbox/{agent}",
            "switchboard://workflow/{agent}",
        }
        host.call("mail_suite", "register_chat_agent", name="ada")
        (content,) = host.result("resources/read", {"uri": "switchboard://inbox/ada"})["contents"]
        assert json.loads(content["text"])["unread"] == 0


def test_a_long_wait_tells_progress_and_can_be_cancelled(desk: Path) -> None:
    with switchboard(desk) as host:
        host.initialize()
        host.call("mail_suite", "register_chat_agent", name="ada")
        arguments = {"action": "call", "subtool": "wait_for_mail", "args": {"seconds": 55}}
        id = host.ask(
            "tools/call", {"name": "mail_suite", "arguments": arguments, "_meta": {"progressToken": "w"}}
        )
        result = host.notification("notifications/progress")
        assert (result["progressToken"], result["total"]) == ("w", 55)
        host.notify("notifications/cancelled", {"requestId": id})
        assert host.result("ping") == {}


def test_a_name_is_free_again_when_its_host_was_killed(desk: Path) -> None:
    with switchboard(desk) as first, switchboard(desk) as second:
        for host in (first, second):
            host.initialize()
        first.call("mail_suite", "register_chat_agent", name="ada")
        taken = second.failure(
            "mail_suite", action="call", subtool="register_chat_agent", args={"name": "ada"}
        )
        assert taken["code"] == "mail_name_taken"
        first.process.kill()
        first.process.wait()
        second.call("mail_suite", "register_chat_agent", name="ada")


@pytest.mark.parametrize("exposure", ["suite", "direct"])
def test_commands_know_the_desk_as_a_child(workspace: Path, exposure: str) -> None:
    configure(workspace, {"mail": {"enabled": True, "exposure": exposure}})
    for command in (["doctor"], ["list"], ["--dry-run"]):
        ran = run(workspace, *command)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "mail_suite" in ran.stdout


def test_in_governed_mode_mail_is_a_setting_that_is_approved(workspace: Path) -> None:
    configure(workspace, {"mail": {"enabled": True}, "governance": {"mode": "governed"}})
    assert "mail (not approved)" in run(workspace, "list").stderr
    assert run(workspace, "approve", "--settings", "--yes").returncode == 0
    with switchboard(workspace, env={**os.environ, "SWITCHBOARD_MCP_ENABLED": "true"}) as host:
        host.initialize()
        assert host.tool_names() == ["mail_suite"]
        result = host.call("mail_suite", "register_chat_agent", name="ada")
        assert result["structuredContent"]["name"] == "ada"


# --- over HTTP ----------------------------------------------------------------------------------------


@pytest.fixture
def web(workspace: Path) -> Iterator[Web]:
    configure(workspace, {"mail": {"enabled": True}, "http": {"tokens": TOKENS}})
    with serving(workspace) as running:
        yield running


def suite_call(tool: str, **args: Any) -> Json:
    return {"name": "mail_suite", "arguments": {"action": "call", "subtool": tool, "args": args}}


def called(session: HostSession, tool: str, **args: Any) -> Json:
    result = session.result("tools/call", suite_call(tool, **args))
    text: Json = result["structuredContent"]
    return text


def stateless(web: Web, who: str, tool: str, /, **args: Any) -> Json:
    """One request of the era without handshakes; with nobody's name it has the token of this start."""
    message = modern("tools/call", suite_call(tool, **args))
    token = {"Authorization": f"Bearer {TOKENS[who]}"} if who else {}
    answer = web.post(message, {**headers_of(message), **token})
    result: Json = answer.json["result"]["structuredContent"]
    return result


def test_over_http_the_token_says_who_one_is_in_both_eras(web: Web) -> None:
    ada = web.initialize(token=TOKENS["ada"])
    assert called(ada, "check_inbox")["agent"] == "ada"
    assert stateless(web, "bob", "check_inbox")["agent"] == "bob"
    sent = called(ada, "send_message", recipient="bob", action="delegate_task", payload="p")
    (claimed,) = stateless(web, "bob", "claim_messages")["messages"]
    assert claimed["id"] == sent["id"]
    assert stateless(web, "bob", "ack_message", id=sent["id"], outcome="done")["receipt"] == "done"
    refused = stateless(web, "bob", "register_chat_agent", name="ada")
    assert refused["error"]["code"] == "mail_identity"
    forged = stateless(
        web, "bob", "send_message", sender="ada", recipient="ada", action="execute", payload="p"
    )
    assert forged["error"]["code"] == "mail_identity"


def test_over_http_the_common_token_is_a_name_for_each_session_and_none_without(web: Web) -> None:
    first, second = web.initialize(), web.initialize()
    assert called(first, "register_chat_agent", name="cy")["name"] == "cy"
    assert called(second, "register_chat_agent", name="eve")["name"] == "eve"
    assert called(first, "check_inbox")["agent"] == "cy"
    assert called(second, "register_chat_agent", name="ada")["error"]["code"] == "mail_identity"
    assert stateless(web, "", "register_chat_agent", name="x")["error"]["code"] == "mail_identity"
    assert stateless(web, "", "check_inbox")["error"]["code"] == "mail_identity"
    assert web.ask("DELETE", "/mcp", None, first.headers).status == 200
    third = web.initialize()
    assert called(third, "register_chat_agent", name="cy")["name"] == "cy"


def test_a_modern_host_over_http_hears_of_mail_while_it_listens(web: Web) -> None:
    stateless(web, "ada", "check_inbox")
    message = modern(
        "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["switchboard://inbox/ada"]}}
    )
    token = {"Authorization": f"Bearer {TOKENS['ada']}"}
    with web.open("POST", "/mcp", message, {**headers_of(message), **token}) as stream:
        result = stream.until("notifications/subscriptions/acknowledged")
        assert result["notifications"]["resourceSubscriptions"] == ["switchboard://inbox/ada"]
        stateless(web, "bob", "send_message", recipient="ada", action="status_update", payload="p")
        assert stream.until("notifications/resources/updated")["uri"] == "switchboard://inbox/ada"


def test_stdio_and_http_share_one_desk(web: Web) -> None:
    with switchboard(web.workspace) as host:
        host.initialize()
        host.call("mail_suite", "register_chat_agent", name="cy")
        content = {"recipient": "ada", "action": "status_update", "payload": "p"}
        assert host.call("mail_suite", "send_message", **content).get("isError")  # ada has not been here yet
        ada = web.initialize(token=TOKENS["ada"])
        called(ada, "check_inbox")
        assert "isError" not in host.call("mail_suite", "send_message", **content)
        (message,) = called(ada, "wait_for_mail")["messages"]
        assert message["from"] == "cy"
        agents = {entry["name"]: entry for entry in called(ada, "list_agents")["agents"]}
        assert agents["cy"]["presence"] == agents["ada"]["presence"] == "online"


def test_serving_with_mail_leaves_no_process_and_ends_at_once(desk: Path) -> None:
    with switchboard(desk) as host:
        host.initialize()
        host.call("mail_suite", "register_chat_agent", name="ada")
        children = Path(f"/proc/{host.process.pid}/task/{host.process.pid}/children")
        assert not children.exists() or _not_reapers(children.read_text().split()) == []
        assert host.close() == 0


def _not_reapers(pids: list[str]) -> list[str]:
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}") and b"reaper" not in _command(pid)]


def _command(pid: str) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
