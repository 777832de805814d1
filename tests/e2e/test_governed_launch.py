"""Governed mode through a real host: what is not approved does not exist, and what runs is what was approved.

The tests of the standard, Summit Switchboard (MCP), carry its own names: acceptance 1 to 3 and threat 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.config.files.approvals import current_platform
from tests.e2e.governed import (
    OFF,
    command,
    complaint,
    govern,
    ran,
    safe_python,
    script,
    serve,
    starts,
)
from tests.e2e.host import Host, Json
from tests.e2e.test_remote_children import child as web_child
from tests.e2e.test_serving_imports import CALL, INTROSPECT, LIST, loaded
from tests.e2e.workspaces import MOCK_CHILD, add_child

TALKATIVE = """
class Talkative(Child):
    def page(self, cursor):
        return {"tools": [tool("echo"), tool("surroundings"), tool("hidden")]}

    def call(self, id, params, line):
        seen = {"env": dict(os.environ), "cwd": os.getcwd()}
        self.answer(id, text(json.dumps(seen) if params["name"] == "surroundings" else params["name"]))

Talkative().serve()
"""


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with two configured children, of which one is approved and locked."""
    workspace = tmp_path_factory.mktemp("team").resolve()
    script(workspace, "good", TALKATIVE)
    script(workspace, "stranger")
    servers = {
        "good": {"command": safe_python(), "args": ["good.py"], "env": {"TOKEN": "t0ken-value"}},
        "stranger": {"command": safe_python(), "args": ["stranger.py"]},
    }
    govern(workspace, servers, {"good": ["echo", "surroundings"], "stranger": ["echo"]})
    ran(workspace, "approve", "good", "--yes")
    ran(workspace, "lock")
    return workspace


@pytest.fixture(scope="module")
def host(team: Path) -> Iterator[Host]:
    """A host of that workspace, the switch being on."""
    with serve(team) as host:
        yield host


# --- the standard's own tests ---------------------------------------------------------------------------


def test_acceptance_1_tools_list_returns_only_suite_tools_when_lazy_mode_is_enabled(host: Host) -> None:
    (tool,) = host.tools()
    assert tool["name"] == "good_suite"
    assert set(tool["inputSchema"]["properties"]) == {"action", "subtool", "args"}


def test_acceptance_2_list_subtools_returns_child_tools_cached_and_size_limited(
    host: Host, team: Path
) -> None:
    before = starts(team)
    for _ in range(3):
        told = host.use("good_suite", op="list_subtools")["content"][0]["text"]
        assert [entry["name"] for entry in json.loads(told)["tools"]] == ["echo", "surroundings"]
        assert len(told) < 5_000
    assert starts(team) == before


def test_acceptance_3_deny_by_default_an_unconfigured_child_or_tool_fails_with_a_structured_error(
    host: Host, team: Path
) -> None:
    unconfigured = host.error("tools/call", {"name": "nobody_suite", "arguments": {"action": "introspect"}})
    assert unconfigured["data"]["error"]["code"] == "unknown_tool"
    not_approved = host.failure("stranger_suite", action="call", subtool="echo", args={})
    assert not_approved["code"] == "child_not_allowed"
    assert str(team / "switchboard.approvals.json") in not_approved["message"]
    assert "`switchboard approve stranger`" in not_approved["hint"]
    not_listed = host.failure("good_suite", action="call", subtool="hidden", args={})
    assert not_listed["code"] == "subtool_denied"
    assert starts(team) == len((team / "good.py.started").read_text().splitlines())


INJECTIONS: dict[str, dict[str, Any]] = {
    "command": {"command": "node; touch pwned; rm -rf x"},
    "argument": {"command": "node", "args": ["good.py", "; rm -rf x; touch pwned"]},
    "substitution": {"command": "node", "args": ["$(touch pwned)"]},
    "backticks": {"command": "node", "args": ["`touch pwned`"]},
    "newline": {"command": "node", "args": ["good.py\ntouch pwned"]},
    "shell": {"command": "sh", "args": ["-c", "touch pwned"]},
    "hidden-shell": {"command": "/usr/bin/env", "args": ["sh", "-c", "touch pwned"]},
    "code": {"command": "python3", "args": ["-c", "open('pwned', 'w')"]},
    "node-code": {"command": "node", "args": ["-e", "require('fs').writeFileSync('pwned', '')"]},
    "relative": {"command": "./touch-pwned", "args": []},
    "climbing": {"command": "/usr/bin/../../bin/touch", "args": ["pwned"]},
    "loader": {"command": "node", "args": ["good.py"], "env": {"LD_PRELOAD": "/tmp/evil.so"}},
}


def test_threat_1_reject_injection_fixture_rm_rf(team: Path, tmp_path: Path) -> None:
    workspace = tmp_path.resolve() / "attacked"
    workspace.mkdir()
    tool = workspace / "touch-pwned"
    tool.write_text("#!/bin/sh\ntouch pwned\n")
    tool.chmod(0o755)
    govern(workspace, INJECTIONS, {name: ["*"] for name in INJECTIONS})
    checked = command(workspace, "approve", "--list", "--json")
    assert checked.returncode == 1
    listed = json.loads(checked.stdout)["children"]
    assert {child["child"] for child in listed} == set(INJECTIONS)
    for child in listed:
        assert child["error"]["code"] == "launch_refused"
        place = f"{workspace}/switchboard.config.json: mcpServers.{child['child']}."
        assert place in child["error"]["message"]
    assert complaint(workspace, "approve", "argument", "--yes")["code"] == "launch_refused"
    with serve(workspace) as host:
        assert host.tools() == []
        for name in INJECTIONS:
            error = host.failure(f"{name}_suite", action="call", subtool="echo", args={})
            assert error["code"] == "launch_refused"
            assert f"mcpServers.{name}." in error["message"]
    assert not (workspace / "pwned").exists()


# --- the same wherever it is asked ----------------------------------------------------------------------


def test_a_host_and_the_command_line_are_told_the_same(host: Host, team: Path) -> None:
    told = host.failure("stranger_suite", action="introspect")
    assert complaint(team, "call", "stranger_suite", "echo") == told
    assert complaint(team, "introspect", "stranger") == told
    found = json.loads(command(team, "find", "echo", "stranger", "--json").stdout)
    assert {match["suite"] for match in found["matches"]} == {"good_suite"}


def test_while_the_switch_is_off_everything_is_listed_and_nothing_is_routed(team: Path) -> None:
    before = starts(team)
    with serve(team, OFF) as host:
        assert host.tool_names() == ["good_suite"]
        call = host.failure("good_suite", action="call", subtool="echo", args={})
        assert call["code"] == "governance_disabled"
        assert call["child"] == "good"
        assert f"{team}/switchboard.config.json: governance.mode" in call["message"]
        assert host.failure("good_suite", action="introspect") == call
        assert host.failure("good_suite", op="list_subtools") == call
    assert complaint(team, "call", "good", "echo", env=OFF) == call
    assert complaint(team, "introspect", "good", env=OFF) == call
    searched = complaint(team, "find", "echo", env=OFF)
    assert {**searched, "child": "good"} == call
    assert starts(team) == before


# --- what runs ------------------------------------------------------------------------------------------


def test_a_child_gets_allowlisted_variables_and_no_others(host: Host) -> None:
    result = host.call("good_suite", "surroundings")
    seen: Json = json.loads(result["content"][0]["text"])
    allowed = {"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER", "TOKEN"}
    # What the interpreter sets for itself is not handed on.
    assert set(seen["env"]) - {"LC_CTYPE", "__CF_USER_TEXT_ENCODING"} <= allowed
    assert seen["env"]["TOKEN"] == "t0ken-value"
    assert "t0ken-value" not in (Path(seen["cwd"]) / "switchboard.approvals.json").read_text()


def test_a_script_changed_after_approval_does_not_run_until_it_is_approved_again(workspace: Path) -> None:
    workspace = workspace.resolve()
    path = script(workspace, "kid")
    govern(workspace, {"kid": {"command": safe_python(), "args": ["kid.py"]}}, {"kid": ["echo"]})
    ran(workspace, "approve", "kid", "--yes")
    ran(workspace, "lock")
    before = starts(workspace)
    path.write_text(path.read_text() + "# one more line\n")
    with serve(workspace) as host:
        error = host.failure("kid_suite", action="call", subtool="echo", args={"message": "x"})
    assert error["code"] == "launch_refused"
    where = f"{workspace}/switchboard.approvals.json: platforms.{current_platform()}.kid.files[1].sha256"
    assert f"{where}: {path} is not what was approved" in error["message"]
    assert starts(workspace) == before
    assert "changed since: files" in ran(workspace, "approve", "kid", "--yes")
    with serve(workspace) as host:
        assert host.call("kid_suite", "echo", message="x").get("isError") is not True


def test_a_script_exchanged_between_check_and_start_is_noticed_before_any_call(workspace: Path) -> None:
    workspace = workspace.resolve()
    # It stands in for an attacker who is quick: while it starts, the file is replaced by a copy of itself.
    swap = """
import shutil
if os.path.exists("swap"):
    shutil.copy(__file__, "copy")
    os.replace("copy", __file__)
"""
    script(workspace, "kid", swap + "Child().serve()")
    govern(workspace, {"kid": {"command": safe_python(), "args": ["kid.py"]}}, {"kid": ["echo"]})
    # A sandbox would not let it write its own program.
    settings = json.loads((workspace / "switchboard.config.json").read_text())
    settings["suites"]["kid"]["sandbox"] = "off"
    (workspace / "switchboard.config.json").write_text(json.dumps(settings))
    ran(workspace, "approve", "kid", "--yes")
    ran(workspace, "lock")
    (workspace / "swap").touch()
    with serve(workspace) as host:
        error = host.failure("kid_suite", action="call", subtool="echo", args={"message": "x"})
    assert error["code"] == "launch_refused"
    assert "changed while the child was starting" in error["message"]


def test_a_published_server_behind_npx_runs_as_its_script(
    workspace: Path, repo: Path, isolated_cache: Path
) -> None:
    workspace = workspace.resolve()
    (workspace / "node_modules").symlink_to(repo / "tests" / "npm" / "node_modules")
    entry = {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"]}
    govern(workspace, {"everything": entry}, {"everything": ["echo"]})
    shown = ran(workspace, "approve", "everything", "--yes")
    assert "really runs" in shown
    assert "/server-everything/dist/index.js" in shown
    ran(workspace, "lock")
    (child,) = json.loads(ran(workspace, "doctor", "--json"))["children"]
    assert child["program"].endswith("/node")
    with serve(workspace) as host:
        assert host.subtools("everything_suite") == ["echo"]
        assert "hi" in host.call("everything_suite", "echo", message="hi")["content"][0]["text"]


def test_a_remote_child_is_reached_at_the_approved_address_and_no_other(workspace: Path) -> None:
    with web_child("shop.py", "streamable") as url:
        govern(workspace, {"far": {"url": url}}, {"far": ["add"]})
        assert "connects to  http://127.0.0.1:" in ran(workspace, "approve", "far", "--yes")
        ran(workspace, "lock")
        with serve(workspace) as host:
            assert host.subtools("far_suite") == ["add"]
            assert host.call("far_suite", "add", a=1, b=2)["content"][0]["text"] == "3"
    govern(workspace, {"far": {"url": "http://127.0.0.1:9/mcp"}}, {"far": ["echo"]})
    with serve(workspace) as host:
        assert host.tools() == []
        error = host.failure("far_suite", action="introspect")
    assert error["code"] == "launch_refused"
    assert "mcpServers.far.url: is not what was approved" in error["message"]


# --- approve --------------------------------------------------------------------------------------------


def test_approve_shows_lists_and_takes_back(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = workspace.resolve()
    script(workspace, "kid")
    govern(workspace, {"kid": {"command": safe_python(), "args": ["kid.py", "${ROOT}"]}}, {})
    monkeypatch.setenv("ROOT", "/data")
    alone = command(workspace, "approve", "kid")
    assert alone.returncode == 2
    assert "really runs" in alone.stdout
    assert "--yes" in alone.stderr
    assert not (workspace / "switchboard.approvals.json").exists()
    told = json.loads(ran(workspace, "approve", "kid", "--yes", "--json"))
    assert told["approved"] is told["changed"] is True
    assert told["approval"]["args"] == ["kid.py", "*"]
    text = (workspace / "switchboard.approvals.json").read_text()
    assert str(workspace) not in text
    assert "nothing to do" in ran(workspace, "approve", "kid")
    assert "approved" in ran(workspace, "approve", "--list")
    on_a_mac = json.loads(text.replace(current_platform(), "darwin-other"))
    (workspace / "switchboard.approvals.json").write_text(json.dumps(on_a_mac))
    elsewhere = command(workspace, "approve", "--list")
    assert elsewhere.returncode == 1
    assert f"on {current_platform()}, only on darwin-other" in elsewhere.stdout
    assert "as before: darwin-other" in ran(workspace, "approve", "kid", "--yes")
    both = json.loads((workspace / "switchboard.approvals.json").read_text())
    assert both["platforms"] == {**on_a_mac["platforms"], **json.loads(text)["platforms"]}
    assert "no longer approved" in ran(workspace, "approve", "--revoke", "kid")
    listing = command(workspace, "approve", "--list")
    assert listing.returncode == 1
    assert "not approved" in listing.stdout
    assert starts(workspace) == 0


# --- what it costs those who do not use it --------------------------------------------------------------


def test_open_mode_loads_nothing_of_it(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    modules = {
        name for name in loaded(workspace, [*LIST, INTROSPECT, CALL]) if name.startswith("switchboard_mcp.")
    }
    governed = {
        name for name in modules if ".policy.launch" in name or name.endswith((".posture", ".governed"))
    }
    assert not governed | (modules & {"switchboard_mcp.config.files.approvals"})
    assert "switchboard_mcp.policy.access" in modules
