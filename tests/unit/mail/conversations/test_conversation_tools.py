"""Threads, copies, recalls, progress and files, as agents use them with the tools."""

from __future__ import annotations

import base64
from pathlib import Path

from switchboard_mcp.config.sections import MailSettings
from tests.unit.mail.office import Client, Json, office


async def send(sender: Client, recipient: str, payload: str = "p", **more: object) -> Json:
    return await sender.call(
        "send_message", **{"recipient": recipient, "action": "delegate_task", "payload": payload, **more}
    )


async def take(client: Client) -> Json:
    (message,) = (await client.call("claim_messages"))["messages"]
    found: Json = message
    return found


async def test_a_thread_holds_task_copy_question_answer_and_result_and_only_its_members_read_it(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as desk:
        lead, coder, late, stranger = [await desk.agent(name) for name in ("lead", "coder", "late", "eve")]
        task = await send(lead, "coder", "Write the parser", subject="Parser", cc=["late"])
        assert task["copies"] == ["late"]
        for reader in (lead, coder, late):
            thread = await reader.call("read_thread", id=task["id"])
            assert thread["members"] == ["coder", "late", "lead"]
            assert [each["action"] for each in thread["messages"]] == ["delegate_task"]  # never the copy
        await take(coder)
        asked = await coder.call("update_message", id=task["id"], state="input-required", note="Which one?")
        question = await take(lead)
        assert (question["id"], question["metadata"]["state"]) == (asked["note"], "input-required")
        assert question["metadata"]["subject"] == "Parser"
        await send(lead, "coder", "The second", replyTo=question["id"], action="status_update")
        await coder.call("ack_message", id=task["id"], outcome="done", result="Done")

        for reader in (lead, coder, late):
            thread = await reader.call("read_thread", id=(await newest(reader))["id"])
            assert thread["thread"] == task["id"]
            assert thread == await reader.call("read_thread", id=task["id"])
            assert (thread["subject"], thread["members"]) == ("Parser", ["coder", "late", "lead"])
            said = [each["payload"] for each in thread["messages"]]
            assert said == ["Write the parser", "Which one?", "The second", "Done"]
            assert thread["messages"][0]["state"] == "done"
        for way in (task["id"], asked["note"]):
            assert (await stranger.failure("read_thread", id=way))["code"] == "mail_not_found"
        # Naming a message as the one it answers, or a thread in the metadata, does not let anybody in.
        forged = await send(stranger, "late", "Hello", replyTo=task["id"], metadata={"thread": task["id"]})
        assert [
            each["payload"] for each in (await stranger.call("read_thread", id=forged["id"]))["messages"]
        ] == ["Hello"]
        assert len((await lead.call("read_thread", id=task["id"]))["messages"]) == 4


async def newest(client: Client) -> Json:
    found: Json = (await client.call("search_messages", limit=1))["messages"][0]
    return found


async def test_a_copy_is_news_and_not_a_task_and_a_repeated_send_stores_it_once(tmp_path: Path) -> None:
    async with office(tmp_path) as desk:
        lead, coder, late = [await desk.agent(name) for name in ("lead", "coder", "late")]
        await send(lead, "coder", cc=["late"], idempotencyKey="k")
        sent = await send(lead, "coder", cc=["late", "lead", "coder", "nobody"], idempotencyKey="k")
        assert sent["duplicate"]
        assert sent["copies"][0] == "late"
        assert sent["copies"][1]["error"]["code"] == "mail_recipient_unknown"
        (copy,) = (await late.call("claim_messages", max=10))["messages"]
        assert copy["action"] == "status_update"
        assert copy["metadata"]["copyOf"] == sent["id"]
        assert copy["metadata"]["copiedAction"] == "delegate_task"
        assert (await coder.call("check_inbox"))["unread"] == 1


async def test_everyone_gets_a_message_within_the_limit_of_recipients(tmp_path: Path) -> None:
    async with office(tmp_path, MailSettings(enabled=True, max_recipients=2)) as desk:
        lead, *_ = [await desk.agent(name) for name in ("lead", "coder", "tester")]
        sent = await send(lead, "everyone", action="status_update")
        assert [each["recipient"] for each in sent["sent"]] == ["coder", "tester"]
        await desk.agent("fourth")
        problem = await lead.failure("send_message", recipient="*", action="status_update", payload="p")
        assert (problem["code"], "mail.maxRecipients is 2" in problem["message"]) == ("mail_quota", True)
        many = {"recipient": "coder", "action": "status_update", "payload": "p", "cc": ["tester", "fourth"]}
        assert (await lead.failure("send_message", **many))["code"] == "mail_quota"


async def test_news_renews_the_lease_and_at_most_one_unread_note_waits(tmp_path: Path) -> None:
    async with office(tmp_path) as desk:
        lead, coder = await desk.agent("lead"), await desk.agent("coder")
        sent = await send(lead, "coder")
        claimed = await take(coder)
        renewed = await coder.call("update_message", id=sent["id"], leaseSeconds=3_600)
        assert renewed["expiresAt"] > claimed["expiresAt"]
        assert (await lead.call("check_inbox"))["unread"] == 0
        for note in ("half", "most"):
            await coder.call("update_message", id=sent["id"], note=note)
        (waiting,) = (await lead.call("check_inbox"))["messages"]
        assert (waiting["payload"], waiting["replyTo"]) == ("most", sent["id"])
        problem = await lead.failure("update_message", id=sent["id"])
        assert problem["code"] == "mail_lease_lost"


async def test_a_file_goes_along_byte_by_byte(tmp_path: Path) -> None:
    content = bytes(range(256)) * 3
    (tmp_path / "shot.png").write_bytes(content)
    async with office(tmp_path, reserved=("remote",)) as desk:
        lead, coder, remote = await desk.agent("lead"), await desk.agent("coder"), await desk.client("remote")
        by_data = {"name": "data.bin", "data": base64.b64encode(content).decode()}
        for file, name, kind in (
            ({"path": "shot.png"}, "shot.png", "image/png"),
            (by_data, "data.bin", "application/octet-stream"),
        ):
            sent = await send(lead, "coder", file=file)
            message = await take(coder)
            assert (message["attachment"]["name"], message["attachment"]["mediaType"]) == (name, kind)
            shown = await coder.call("check_inbox", id=sent["id"], file=True)
            assert base64.b64decode(shown["data"]) == content
            assert (tmp_path / ".switchboard" / message["attachment"]["file"]).read_bytes() == content
        await remote.call("list_agents")
        for client, file, code in (
            (lead, {"path": "../outside"}, "mail_unsafe"),
            (lead, {"path": ".switchboard/seal.key"}, "mail_unsafe"),
            (lead, {"name": "a/b", "data": ""}, "mail_message_invalid"),
            (lead, {"name": "a", "data": "%"}, "mail_message_invalid"),
            (lead, {"name": "a"}, "mail_message_invalid"),
            (remote, {"path": "shot.png"}, "mail_forbidden"),
        ):
            arguments = {"recipient": "coder", "action": "status_update", "payload": "p", "file": file}
            assert (await client.failure("send_message", **arguments))["code"] == code, file


async def test_sent_messages_are_searched_and_shown_too(tmp_path: Path) -> None:
    async with office(tmp_path) as desk:
        lead, _, other = [await desk.agent(name) for name in ("lead", "coder", "other")]
        sent = await send(lead, "coder", "The blue parser")
        await send(other, "coder", "The blue painter")
        assert (await lead.call("search_messages", query="blue"))["messages"] == []
        (found,) = (await lead.call("search_messages", query="blue", box="sent"))["messages"]
        assert (found["id"], found["to"]) == (sent["id"], "coder")
        assert (await lead.call("check_inbox", id=sent["id"]))["to"] == "coder"
        assert (await other.failure("check_inbox", id=sent["id"]))["code"] == "mail_not_found"
