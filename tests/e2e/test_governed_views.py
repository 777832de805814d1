"""Governed mode with what changes and what is searched: nothing comes into being that was not approved."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.governed import ran, safe_python, script, serve
from tests.e2e.stress import until
from tests.e2e.test_reload import put
from tests.e2e.workspaces import configure


def entry(workspace: Path, name: str) -> dict[str, object]:
    return {"command": safe_python(), "args": ["-S", str(script(workspace, name))]}


def config(workspace: Path, *names: str, **more: object) -> dict[str, object]:
    return {
        "governance": {"mode": "governed"},
        "mcpServers": {name: entry(workspace, name) for name in names},
        "suites": {name: {"expose": {"allow": ["echo"]}} for name in names},
        "find": {"enabled": True},
        **more,
    }


def approve(workspace: Path, name: str) -> None:
    ran(workspace, "approve", name, "--yes")
    ran(workspace, "lock", name)


def test_a_child_that_is_added_exists_once_it_is_approved_and_not_before(workspace: Path) -> None:
    path = configure(workspace, config(workspace, "one"))
    approve(workspace, "one")
    with serve(workspace) as host:
        assert host.tool_names() == ["one_suite", "switchboard_suite"]
        put(path, config(workspace, "one", "two"))
        until(lambda: "config.reloaded" in host.stderr, "the change")
        assert host.tool_names() == ["one_suite", "switchboard_suite"]
        refused = host.failure("two_suite", action="call", subtool="echo", args={})
        assert refused["code"] == "child_not_allowed"
        approve(workspace, "two")
        until(lambda: "two_suite" in host.tool_names(), "the approved child")
        assert host.call("two_suite", "echo", message="hi")["content"][0]["text"] == "hi"


def test_an_approval_that_is_taken_back_counts_at_once(workspace: Path) -> None:
    configure(workspace, config(workspace, "one"))
    approve(workspace, "one")
    with serve(workspace) as host:
        assert host.call("one_suite", "echo", message="hi")["content"][0]["text"] == "hi"
        ran(workspace, "approve", "--revoke", "one")
        until(lambda: host.tool_names() == ["switchboard_suite"], "the end of the child")
        refused = host.failure("one_suite", action="call", subtool="echo", args={})
        assert refused["code"] == "child_not_allowed"


def test_the_mode_itself_does_not_change_while_serving(workspace: Path) -> None:
    path = configure(workspace, config(workspace, "one"))
    approve(workspace, "one")
    with serve(workspace) as host:
        put(path, {**config(workspace, "one", "two"), "governance": {"mode": "open"}})
        until(lambda: "config.restart_needed" in host.stderr, "the warning")
        assert "two_suite" not in host.tool_names()


def test_find_knows_what_may_be_used_and_nothing_else(workspace: Path) -> None:
    configure(workspace, config(workspace, "one"))
    approve(workspace, "one")
    with serve(workspace) as host:
        found = json.loads(host.call("switchboard_suite", "find", query="echo")["content"][0]["text"])
        assert [match["subtool"] for match in found["matches"]] == ["echo"]
        configured = json.loads((workspace / "switchboard.config.json").read_text())
        configured["suites"]["one"]["expose"]["allow"] = []
        put(workspace / "switchboard.config.json", configured)
        host.notification("notifications/tools/list_changed")
        found = json.loads(host.call("switchboard_suite", "find", query="echo")["content"][0]["text"])
        assert found["matches"] == []
