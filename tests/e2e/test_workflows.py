"""A review between real processes: two hosts on the official SDK, one over pipes, and a shell that has only files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.mail.store.store import MessageStore
from tests.e2e.agents import shell
from tests.e2e.host import SWITCHBOARD, Json, switchboard
from tests.e2e.sdk import Sdk, sdk_host
from tests.e2e.workspaces import configure

# Drops what is no business of the workflow's phase, and says what its receipt tells.
DROPPER = r"""
set -eu
desk=.switchboard
drop() {
  printf '{"id":"%s","sender":"%s","recipient":"%s","action":"%s","payload":"p","createdAt":"%s"}\n' \
    "$1" "$2" "$3" "$4" "$(date -u +%Y-%m-%dT%H:%M:%S.000Z)" > $desk/inbox/$3/.$1
  mv $desk/inbox/$3/.$1 $desk/inbox/$3/$1.json
  while ! grep -q '"status"' $desk/outbox/$2/receipt_$1.json 2>/dev/null; do sleep 0.05; done
  sed -n 's/.*"status": *"\([a-z]*\)".*/\1/p' $desk/outbox/$2/receipt_$1.json
}
drop msg_conflict passer-by reviewer delegate_task
drop msg_early author reviewer delegate_task
drop msg_news passer-by reviewer status_update
"""


@pytest.fixture
def desk(workspace: Path) -> Path:
    configure(workspace, {"mail": {"enabled": True}})
    return workspace


async def use(host: Sdk, tool: str, **args: Any) -> Json:
    """A subtool of the mail suite; what it told, or its error."""
    result = await host.client.call_tool("mail_suite", {"action": "call", "subtool": tool, "args": args})
    assert result.structured_content is not None, result.content
    told: Json = result.structured_content
    return told


async def test_a_review_round_between_processes_keeps_its_order_whoever_comes_and_how(desk: Path) -> None:
    async with (
        sdk_host(SWITCHBOARD, cwd=desk, mode="auto") as author,
        sdk_host(SWITCHBOARD, cwd=desk, mode="legacy") as reviewer,
    ):
        with switchboard(desk) as lead:
            lead.initialize()
            lead.call("mail_suite", "register_chat_agent", name="lead")
            lead.call("mail_suite", "assign_role", role="lead")
            await use(author, "register_chat_agent", name="author")
            await use(reviewer, "register_chat_agent", name="reviewer")
            lead.call("mail_suite", "assign_role", agent="author", role="coder 1")
            lead.call("mail_suite", "assign_role", agent="reviewer", role="reviewer")

            begun = lead.call("mail_suite", "start_workflow", workflow="review", subject="the cache")
            id = begun["structuredContent"]["workflow"]
            (task,) = (await use(author, "wait_for_mail"))["messages"]
            assert (task["from"], task["action"]) == ("lead", "delegate_task")

            # Without the artifact the phase does not end.
            request = desk / ".switchboard" / "reviews" / f"{id}.request-1.md"
            blocked = (await use(author, "complete_workflow_phase", phase="submit"))["error"]
            assert blocked["code"] == "mail_artifact_missing"
            assert request.name in blocked["message"]
            request.write_text("Caches answers for a minute.")
            assert (await use(author, "complete_workflow_phase", phase="submit"))["phase"] == "review"
            (asked,) = (await use(reviewer, "wait_for_mail"))["messages"]
            assert (asked["from"], asked["action"]) == ("author", "request_review")
            (claimed,) = (await use(reviewer, "claim_messages"))["messages"]
            assert claimed["persona"].startswith("You review.")

            # Who is in it is left in peace, by MCP and by files.
            with switchboard(desk) as stranger:
                stranger.initialize()
                stranger.call("mail_suite", "register_chat_agent", name="stranger")
                task = {"recipient": "reviewer", "action": "delegate_task", "payload": "p"}
                busy = stranger.failure("mail_suite", action="call", subtool="send_message", args=task)
            assert busy["code"] == "mail_agent_busy"
            assert id in busy["message"]
            async with shell(desk, DROPPER) as script:
                assert [await script.line() for _ in range(3)] == ["refused", "refused", "delivered"]

            # A review may be left out for a reason, which everybody can read.
            early = (await use(author, "complete_workflow_phase", phase="conclude"))["error"]
            assert early["code"] == "mail_workflow_refused"
            skipped = {"workflow": id, "phase": "review", "skipReason": "two lines, seen by three people"}
            lead.call("mail_suite", "complete_workflow_phase", **skipped)
            done = await use(author, "complete_workflow_phase", phase="conclude", note="merged")
            assert done["status"] == "finished"
            told = json.loads((desk / done["record"]).read_bytes())["workflow"]["steps"]
        assert [(step["phase"], step["how"], step["by"]) for step in told] == [
            ("submit", "completed", "author"),
            ("review", "skipped", "lead"),
            ("conclude", "completed", "author"),
        ]
        assert told[1]["reason"] == "two lines, seen by three people"
        assert told[0]["artifacts"][0]["sha256"] == hashlib.sha256(request.read_bytes()).hexdigest()
    async with await MessageStore.open(str(desk), watch=False) as post:
        verdict = await post.verify()
    assert verdict.is_sound, verdict.problems


def test_reservations_are_known_to_every_process_and_named_with_their_holder(desk: Path) -> None:
    with switchboard(desk) as one, switchboard(desk) as two:
        for host, name in ((one, "ada"), (two, "bob")):
            host.initialize()
            host.call("mail_suite", "register_chat_agent", name=name)
        one.call("mail_suite", "reserve_paths", paths=["src/*.py"], minutes=10)
        clash = two.failure(
            "mail_suite", action="call", subtool="reserve_paths", args={"paths": ["src/main.py"]}
        )
        assert clash["code"] == "mail_paths_reserved"
        assert "src/*.py is reserved by 'ada' until 20" in clash["message"]
        one.call("mail_suite", "release_paths")
        two.call("mail_suite", "reserve_paths", paths=["src/main.py"])
