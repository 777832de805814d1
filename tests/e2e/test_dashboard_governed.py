"""The dashboard of a governed server: what drifted is blocked until it is approved there, by whoever saw it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.e2e.browser import browser, needs_browser
from tests.e2e.test_dashboard import link_of
from tests.e2e.test_dashboard_api import api, recorded
from tests.e2e.test_dashboard_detail import eventually
from tests.e2e.test_governed_lock import CHILD, ENABLED, READS, add_pinned, cli, govern, offer, tool
from tests.e2e.web import Web, headers_of, modern, serving

HELPER = "h" * 40


def call(web: Web) -> bool:
    """Whether the child's tool can be called."""
    arguments = {"action": "call", "subtool": "echo", "args": {"message": "hi"}}
    message = modern("tools/call", {"name": "kid_suite", "arguments": arguments})
    return not web.ask("POST", "/mcp", message, headers_of(message)).json["result"].get("isError")


def test_drift_is_blocked_until_it_is_approved_and_then_the_running_child_serves(workspace: Path) -> None:
    add_pinned(workspace)
    add_pinned(workspace, "stranger")
    govern(workspace, "kid")
    cli(workspace, "lock")
    offer(workspace, tool(description=READS.replace("file", "folder")))
    with serving(workspace, env=ENABLED) as web:
        rows = {row["child"]: row for row in api(web, "children").json["children"]}
        assert rows["stranger"]["health"] == "absent"
        assert "switchboard approve" in rows["stranger"]["trouble"]["hint"]
        assert not call(web)
        waiting = {item["kind"]: item for item in api(web, "inbox").json["items"]}
        drift, new = waiting["drift"], waiting["child"]
        assert (new["child"], new["command"]) == ("stranger", "switchboard approve stranger")
        assert [(action["name"], action["scope"]) for action in new["actions"]] == [("approve", "admin")]
        assert (drift["child"], drift["command"]) == ("kid", "switchboard lock --accept kid")
        assert "echo" in drift["text"]
        (accept,) = drift["actions"]
        assert (accept["name"], accept["scope"]) == ("accept", "admin")
        result = api(web, "children/kid").json
        locked = len(api(web, "audit?kind=lock").json["entries"])
        assert result["driftChanges"][0]["tool"] == "echo"
        assert accept["body"] == {"mark": result["driftMark"]}
        assert web.ask("POST", accept["path"], accept["body"]).status == 200
        assert [item["kind"] for item in api(web, "inbox").json["items"]] == ["child"]
        assert call(web)
        assert "drift" not in api(web, "children/kid").json
        record = recorded(web, "lock", locked + 1)
        assert (record["who"], record["child"], record["outcome"]) == ("dashboard", "kid", "accepted")
    assert "Everything matches the lock." in cli(workspace, "lock", "--check")


def test_a_lock_that_was_edited_by_hand_is_shown_before_anybody_calls(workspace: Path) -> None:
    add_pinned(workspace)
    govern(workspace, "kid")
    cli(workspace, "lock")
    lock = workspace / "switchboard.lock.json"
    lock.write_text(lock.read_text().replace('"description": "', '"description": "Edited. ', 1))
    with serving(workspace, env=ENABLED) as web:
        (row,) = api(web, "children").json["children"]
        assert "edited by hand" in row["lockTrouble"]["message"]
        assert "switchboard lock --accept kid" in row["trouble"]["hint"]
        assert not call(web)


def test_a_new_child_is_approved_as_it_was_seen_and_then_waits_for_its_lock(workspace: Path) -> None:
    add_pinned(workspace)
    add_pinned(workspace, "stranger")
    tokens = {"helper": {"token": "${HELPER}", "dashboard": "act"}}
    govern(workspace, "kid", sections={"http": {"tokens": tokens}})
    cli(workspace, "lock")
    with serving(workspace, env={**ENABLED, "HELPER": HELPER}) as web:
        (item,) = api(web, "inbox").json["items"]
        (action,) = item["actions"]
        decided = len(api(web, "audit?kind=approval").json["entries"])
        helper = {"Authorization": f"Bearer {HELPER}"}
        assert web.ask("POST", action["look"], {}, helper).status == 403
        seen = web.ask("POST", action["look"], {}).json
        facts = {fact["name"]: fact["value"] for fact in seen["facts"]}
        assert sys.executable.rpartition("/")[2] in facts["configured"]
        assert {"really runs", "pinned", "works in"} <= facts.keys()
        assert web.ask("POST", action["path"], {"mark": seen["mark"]}, helper).status == 403
        approvals = workspace / "switchboard.approvals.json"
        before = approvals.read_text()
        refusal = web.ask("POST", action["path"], {"mark": "of something else"})
        assert (refusal.status, refusal.json["error"]["code"]) == (409, "launch_refused")
        assert approvals.read_text() == before

        assert web.ask("POST", action["path"], {"mark": seen["mark"]}).status == 200
        record = recorded(web, "approval", decided + 2)
        assert (record["who"], record["child"], record["outcome"]) == ("dashboard", "stranger", "approved")
        (item,) = eventually(lambda: [one for one in api(web, "inbox").json["items"] if not one["actions"]])
        assert (item["child"], item["command"]) == ("stranger", "switchboard lock stranger")
    assert "stranger  approved" in cli(workspace, "approve", "--list")


def test_a_child_that_cannot_be_approved_says_why_and_what_to_run(workspace: Path) -> None:
    add_pinned(workspace)
    govern(workspace, "kid")
    cli(workspace, "lock")
    folder = workspace / "mcps" / "shell"
    folder.mkdir(parents=True)
    entry = {"name": "shell", "command": {"cmd": "/bin/sh", "args": ["-c", "true"]}}
    (folder / ".mcp.json").write_text(json.dumps(entry))
    with serving(workspace, env=ENABLED) as web:
        (item,) = api(web, "inbox").json["items"]
        refusal = web.ask("POST", item["actions"][0]["look"], {})
        assert (refusal.status, refusal.json["error"]["code"]) == (409, "launch_refused")
        assert "shell" in refusal.json["error"]["message"]
        assert web.ask("POST", "/api/children/nobody/proposal", {}).status == 404


@needs_browser
def test_whoever_approves_a_child_on_the_page_sees_what_it_runs_first(
    workspace: Path, tmp_path: Path
) -> None:
    add_pinned(workspace)
    add_pinned(workspace, "stranger")
    govern(workspace, "kid")
    cli(workspace, "lock")
    with serving(workspace, env=ENABLED) as web, browser(tmp_path / "profile") as page:
        page.open(link_of(web))
        page.sees("Tokens saved")
        page.view("approvals")
        page.run("await page.locator('#views [data-view=approvals] .badge', {hasText: '1'}).waitFor()")
        page.run("await page.getByRole('button', {name: 'Look and approve'}).click()")
        dialog = "page.locator('dialog[open]')"
        page.run(f"await {dialog}.getByText('really runs').waitFor()")
        assert str(CHILD) in page.run(f"return await {dialog}.innerText()")
        page.run(f"await {dialog}.getByRole('button', {{name: 'Cancel'}}).click()")
        assert "stranger" not in (workspace / "switchboard.approvals.json").read_text()
        page.run("await page.getByRole('button', {name: 'Look and approve'}).click()")
        page.run(f"await {dialog}.getByRole('button', {{name: 'Approve'}}).click()")
        page.sees("'stranger' waits to be locked")
        assert "stranger" in (workspace / "switchboard.approvals.json").read_text()
        assert page.heard == []
