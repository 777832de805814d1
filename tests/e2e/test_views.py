"""Who sees what, with real processes: profiles on the command line and per token, the switchboard suite, auto and pins,
and looking at children without starting them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import shell
from tests.e2e.host import switchboard
from tests.e2e.shell import parsed
from tests.e2e.stress import server_of, tree
from tests.e2e.test_reload import holding, put
from tests.e2e.web import serving
from tests.e2e.workspaces import MOCK_CHILD, add_child, configure, faulty

ADA, BOB = "a" * 32, "b" * 32
PROFILES = {
    "reader": {"suites": ["mock"], "expose": {"mock": {"allow": ["echo", "add"]}}},
    "nobody": {"suites": []},
}


@pytest.fixture
def office(workspace: Path) -> Path:
    """Two children, and profiles."""
    add_child(workspace, "mock", MOCK_CHILD, description="A pretend browser.")
    add_child(workspace, "kid", holding("k"))
    configure(workspace, {"profiles": PROFILES, "find": {"enabled": True}})
    return workspace


def run(folder: Path, *arguments: str, code: int = 0) -> Any:
    """What a command answers as JSON."""
    return parsed(shell.run(folder, *arguments, "--json"), code)


def test_a_host_that_is_started_with_a_profile_sees_that_and_no_more(office: Path) -> None:
    with switchboard(office, "--profile", "reader") as host:
        host.initialize()
        assert host.tool_names() == ["mock_suite"]
        assert host.subtools("mock_suite") == ["echo", "add"]
        told = host.failure("mock_suite", action="call", subtool="crash", args={})
        assert told["code"] == "subtool_unknown"
        hidden = host.error("tools/call", {"name": "kid_suite", "arguments": {"action": "introspect"}})
        assert "Unknown tool 'kid_suite'" in hidden["message"]


def test_commands_take_a_profile_and_refuse_one_that_is_not_there(office: Path) -> None:
    assert [tool["name"] for tool in run(office, "list", "--profile", "reader")["tools"]] == ["mock_suite"]
    opened = run(office, "introspect", "mock", "--profile", "reader")
    assert [tool["name"] for tool in opened["tools"]] == ["echo", "add"]
    found = run(office, "find", "echo", "a", "text", "or", "crash", "--profile", "reader")
    assert {match["subtool"] for match in found["matches"]} <= {"echo", "add"}
    refused = run(office, "list", "--profile", "raeder", code=2)["error"]
    assert "Did you mean reader?" in refused["message"]


def test_each_token_has_its_own_view_over_http(office: Path) -> None:
    tokens = {"ada": {"token": ADA, "profile": "reader"}, "bob": BOB}
    configure(office, {"profiles": PROFILES, "http": {"tokens": tokens}})
    with serving(office) as web:
        ada, bob = web.initialize(token=ADA), web.initialize(token=BOB)
        assert [tool["name"] for tool in ada.result("tools/list")["tools"]] == ["mock_suite"]
        assert [tool["name"] for tool in bob.result("tools/list")["tools"]] == ["kid_suite", "mock_suite"]
        call = {"name": "mock_suite", "arguments": {"action": "call", "subtool": "fail", "args": {}}}
        refused = ada.result("tools/call", call)["structuredContent"]["error"]
        assert refused["code"] == "subtool_unknown"
        assert "structuredContent" not in bob.result("tools/call", call)


def test_a_change_of_the_config_reaches_hosts_over_http(office: Path) -> None:
    config = configure(office, {})
    with serving(office) as web:
        session = web.initialize()
        with session.listen() as stream:
            put(config, {"suites": {"kid": {"suiteName": "renamed"}}})
            stream.until("notifications/tools/list_changed")
        assert [tool["name"] for tool in session.result("tools/list")["tools"]] == ["mock_suite", "renamed"]


def test_what_is_found_can_be_called_in_the_next_step(office: Path) -> None:
    with switchboard(office) as host:
        host.initialize()
        host.introspect("mock_suite")
        found = json.loads(
            host.call("switchboard_suite", "find", query="add two numbers")["content"][0]["text"]
        )
        best = found["matches"][0]
        assert (best["suite"], best["subtool"]) == ("mock_suite", "add")
        assert "a" in best["signature"]
        assert host.call(best["suite"], best["subtool"], a=2, b=3)["structuredContent"] == {"sum": 5}
        assert "kid_suite" in found["notSearched"]
        host.call("mock_suite", "fail")
        status = host.call("switchboard_suite", "status")["structuredContent"]["children"]
        (mock,) = [child for child in status if child["child"] == "mock"]
        assert (mock["started"], mock["health"]) == (True, "healthy")
        assert mock["calls"] >= 2


def test_recent_names_a_child_that_does_not_start(office: Path) -> None:
    add_child(office, "broken", ["sh", "-c", "exit 3"])
    with switchboard(office) as host:
        host.initialize()
        host.use("broken_suite", action="introspect")
        errors = host.call("switchboard_suite", "recent")["structuredContent"]["errors"]
        assert "broken" in {error["child"] for error in errors}


def test_auto_and_pins_with_a_real_child(workspace: Path) -> None:
    add_child(workspace, "kid", holding("k"))
    add_child(workspace, "mock", MOCK_CHILD)
    configure(workspace, {"suites": {"kid": {"exposure": "auto"}, "mock": {"pin": ["echo"]}}})
    with switchboard(workspace) as host:
        host.initialize()
        assert host.tool_names() == ["kid_suite", "mock_suite", "echo"]
        host.call("kid_suite", "hold", message="x")
        host.notification("notifications/tools/list_changed")
        assert host.tool_names() == ["mock_suite", "hold", "look", "echo"]
        said = host.result("tools/call", {"name": "hold", "arguments": {"message": "direct"}})
        assert said["content"][0]["text"] == "k:direct"
        said = host.result("tools/call", {"name": "echo", "arguments": {"message": "pinned"}})
        assert said["content"][0]["text"] == "pinned"


# --- the catalog --------------------------------------------------------------------------------------


def test_a_child_that_is_freshly_known_is_not_started_to_be_looked_at(office: Path) -> None:
    with switchboard(office) as host:
        host.initialize()
        first = host.introspect("mock_suite")
    with switchboard(office) as host:
        host.initialize()
        assert host.introspect("mock_suite") == first
        assert "child.started" not in host.stderr
        assert not [process for process in tree(server_of(host)) if "server.py" in str(process.cmdline())]
        host.call("mock_suite", "echo", message="now")
        assert "child.started" in host.stderr


def test_a_program_that_has_changed_is_started_to_be_looked_at(workspace: Path) -> None:
    script = workspace / "server.py"
    script.write_text(Path(MOCK_CHILD[-1]).read_text())
    add_child(workspace, "own", [*MOCK_CHILD[:-1], str(script)])
    run(workspace, "introspect", "own")
    future = script.stat().st_mtime + 100
    os.utime(script, (future, future))
    with switchboard(workspace) as host:
        host.initialize()
        host.introspect("own_suite")
        assert "child.started" in host.stderr


def test_list_refresh_asks_every_child_and_tells_of_those_that_fail(office: Path) -> None:
    add_child(office, "slow", faulty("slow-start", "30"))
    told = run(office, "list", "--refresh", "--timeout", "3", code=1)
    known = {child["child"]: child["subtools"] for child in told["children"]}
    assert known["kid"] == 2
    assert known["mock"]
    assert known["slow"] is None
    assert list(told["failed"]) == ["slow"]
    assert told["failed"]["slow"]["code"] == "child_start_timeout"


# --- doctor -------------------------------------------------------------------------------------------


def test_doctor_finds_what_was_left_open_and_left_behind(office: Path) -> None:
    folder = office / ".switchboard"
    folder.mkdir()
    (folder / "auth_token").write_text("secret-of-a-start\n")
    (folder / "auth_token").chmod(0o644)
    told = run(office, "doctor", code=1)
    assert told["ok"] is False
    messages = [finding["message"] for finding in told["findings"]]
    assert any("auth_token" in message and "0644" in message for message in messages)
    assert all(finding["remedy"] for finding in told["findings"])
    assert "secret-of-a-start" not in json.dumps(told)
