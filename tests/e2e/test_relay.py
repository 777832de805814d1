"""What passes between host and child beside calls: progress, cancellation, logs, changes of the tool list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cases import each_case
from tests.e2e.host import Host, Json, switchboard
from tests.e2e.workspaces import MOCK_CHILD, add_child, faulty, read_record, recorded, scripted


def slow(seconds: float, steps: int) -> Json:
    args = {"seconds": seconds, "steps": steps}
    return {"name": "mock_suite", "arguments": {"action": "call", "subtool": "slow", "args": args}}


# --- progress --------------------------------------------------------------------------------------------


@each_case("token", [7, "seven", "a b é", 0])
def test_progress_carries_the_token_of_the_host(mock: Host, token: int | str) -> None:
    result = mock.result("tools/call", {**slow(0.003, 3), "_meta": {"progressToken": token}})
    assert result["content"][0]["text"] == "done after 3 steps"
    steps = [step for step in mock.notifications("notifications/progress") if step["progressToken"] == token]
    assert steps[-3:] == [
        {"progressToken": token, "progress": step, "total": 3, "message": f"step {step} of 3"}
        for step in (1, 2, 3)
    ]
    assert type(steps[-1]["progressToken"]) is type(token)


def test_progress_comes_before_the_answer_and_grows(mock: Host) -> None:
    already = len(mock.heard)
    asked = mock.ask("tools/call", {**slow(0.004, 4), "_meta": {"progressToken": "order"}})
    mock.answer(asked)
    heard = [told.json for told in mock.heard[already:]]
    values = [message["params"]["progress"] for message in heard[:-1]]
    assert heard[-1]["id"] == asked
    assert values == sorted(values)
    assert values[-1] == 4


def test_without_a_token_no_progress_is_sent(mock: Host) -> None:
    already = len(mock.heard)
    mock.answer(mock.ask("tools/call", slow(0.002, 2)))
    assert len(mock.heard) == already + 1


def test_each_of_two_calls_gets_its_own_progress(mock: Host) -> None:
    first = mock.ask("tools/call", {**slow(0.02, 2), "_meta": {"progressToken": "first"}})
    second = mock.ask("tools/call", {**slow(0.03, 3), "_meta": {"progressToken": "second"}})
    mock.answer(first)
    mock.answer(second)
    told = mock.notifications("notifications/progress")
    for token, total in (("first", 2), ("second", 3)):
        assert {step["total"] for step in told if step["progressToken"] == token} == {total}


def test_the_child_never_sees_the_token_of_the_host(workspace: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    add_child(workspace, "mock", recorded(MOCK_CHILD, record))
    with switchboard(workspace) as host:
        for token in ("mine", 1):
            host.result("tools/call", {**slow(0, 1), "_meta": {"progressToken": token, "kept": True}})
    metas = [sent["params"]["_meta"] for sent in read_record(record) if sent["method"] == "tools/call"]
    assert all(meta["kept"] is True for meta in metas)
    tokens = [meta["progressToken"] for meta in metas]
    assert len(set(tokens)) == 2
    assert "mine" not in tokens


def test_a_host_that_waits_for_a_start_is_told_so(workspace: Path) -> None:
    add_child(workspace, "late", faulty("slow-start", "2.2"))
    with switchboard(workspace) as host:
        asked = host.ask(
            "tools/call",
            {
                "name": "late_suite",
                "arguments": {"action": "call", "subtool": "echo", "args": {"message": "there"}},
                "_meta": {"progressToken": "wait"},
            },
        )
        told = host.notification("notifications/progress")
        assert told["progressToken"] == "wait"
        assert "Starting child 'late'" in told["message"]
        assert 0 <= told["progress"] < 1
        assert host.answer(asked)["result"]["content"][0]["text"] == "there"


# --- cancellation ----------------------------------------------------------------------------------------


@each_case("id", [41, "forty-one"])
def test_a_cancelled_call_reaches_the_child_and_is_not_answered(
    workspace: Path, tmp_path: Path, id: int | str
) -> None:
    record = tmp_path / "record"
    add_child(workspace, "mock", recorded(MOCK_CHILD, record))
    with switchboard(workspace) as host:
        host.ask("tools/call", {**slow(3600, 360_000), "_meta": {"progressToken": "t"}}, id=id)
        host.notification("notifications/progress")
        host.notify("notifications/cancelled", {"requestId": id, "reason": "no longer needed"})
        assert host.call("mock_suite", "echo", message="next")["content"][0]["text"] == "next"
        answered = [told.json.get("id") for told in host.heard]
    assert id not in answered
    sent = read_record(record)
    (called,) = (message for message in sent if message.get("params", {}).get("name") == "slow")
    (cancelled,) = (message for message in sent if message["method"] == "notifications/cancelled")
    assert cancelled["params"] == {"requestId": called["id"], "reason": "no longer needed"}


def test_a_call_that_waits_for_its_child_to_start_can_be_cancelled(workspace: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    add_child(workspace, "late", recorded(faulty("slow-start", "0.3"), record))
    call = {"action": "call", "subtool": "echo", "args": {"message": "unwanted"}}
    with switchboard(workspace) as host:
        host.ask("tools/call", {"name": "late_suite", "arguments": call}, id="unwanted")
        host.notify("notifications/cancelled", {"requestId": "unwanted"})
        assert host.call("late_suite", "echo", message="wanted")["content"][0]["text"] == "wanted"
        assert "unwanted" not in [told.json.get("id") for told in host.heard]
    calls = [sent for sent in read_record(record) if sent["method"] == "tools/call"]
    assert [call["params"]["arguments"] for call in calls] == [{"message": "wanted"}]


def test_cancelling_one_call_leaves_the_others(mock: Host) -> None:
    kept = mock.ask("tools/call", slow(0.05, 1))
    mock.ask("tools/call", slow(3600, 1), id="dropped")
    mock.notify("notifications/cancelled", {"requestId": "dropped"})
    assert mock.answer(kept)["result"]["content"][0]["text"] == "done after 1 steps"


# --- logs ------------------------------------------------------------------------------------------------


def log(host: Host, level: str, message: Any = "said") -> None:
    host.call("mock_suite", "log", level=level, message=message)


def test_a_log_message_of_a_child_says_which_child_it_is_from(mock: Host) -> None:
    mock.result("logging/setLevel", {"level": "debug"})
    log(mock, "notice", {"any": ["JSON", 1.5, None]})
    told = mock.notification("notifications/message")
    assert told == {"level": "notice", "logger": "mock/mock-child", "data": {"any": ["JSON", 1.5, None]}}


def test_a_level_set_by_the_host_holds_back_what_is_beneath_it(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    with switchboard(workspace) as host:
        log(host, "debug")
        assert host.notification("notifications/message")["level"] == "debug"
        assert host.result("logging/setLevel", {"level": "warning"}) == {}
        for level in ("debug", "notice", "warning", "critical"):
            log(host, level)
        assert [told["level"] for told in host.notifications("notifications/message")] == [
            "debug",
            "warning",
            "critical",
        ]


def test_a_level_set_before_a_child_starts_reaches_it(workspace: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    add_child(workspace, "mock", recorded(MOCK_CHILD, record))
    with switchboard(workspace) as host:
        host.result("logging/setLevel", {"level": "error"})
        log(host, "info")
        assert host.notifications("notifications/message") == []
    levels = [sent["params"] for sent in read_record(record) if sent["method"] == "logging/setLevel"]
    assert levels == [{"level": "error"}]


# --- changes ---------------------------------------------------------------------------------------------


def test_a_changed_tool_list_reaches_the_host_and_shows(workspace: Path) -> None:
    add_child(workspace, "changing", faulty("list-changed"))
    with switchboard(workspace) as host:
        host.initialize()
        assert host.subtools("changing_suite") == ["echo"]
        host.call("changing_suite", "echo", message="change")
        host.notification("notifications/tools/list_changed")
        assert host.subtools("changing_suite") == ["echo", "after_1"]
        (suite,) = host.tools()
        assert "after_1" in suite["description"]
        assert host.call("changing_suite", "after_1", message="new")["content"][0]["text"] == "new"


def test_what_a_child_asks_of_its_client_is_answered(workspace: Path) -> None:
    add_child(workspace, "asking", faulty("asks-back"))
    with switchboard(workspace) as host:
        result = host.call("asking_suite", "echo", message="x")
    ping, roots, odd = result["structuredContent"]["heard"]
    assert ping["result"] == {}
    assert roots["id"] == "roots"
    assert roots["result"]["roots"] == [{"uri": workspace.as_uri(), "name": workspace.name}]
    assert odd["error"]["code"] == -32601


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_child_is_spoken_to_in_the_version_it_knows(workspace: Path, version: str) -> None:
    add_child(workspace, "old", scripted(f"child = Child(); child.version = {version!r}; child.serve()"))
    with switchboard(workspace) as host:
        assert host.initialize("2024-11-05")["protocolVersion"] == "2024-11-05"
        assert host.call("old_suite", "echo", message=version)["content"][0]["text"] == version


def test_the_handshake_with_a_child_is_complete(workspace: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    add_child(workspace, "mock", recorded([*MOCK_CHILD, "--page-size", "4"], record))
    with switchboard(workspace) as host:
        assert len(host.subtools("mock_suite")) == 10
    hello, ready, *pages = read_record(record)
    assert hello["method"] == "initialize"
    assert hello["params"]["protocolVersion"] == "2025-11-25"
    assert hello["params"]["clientInfo"]["name"] == "switchboard"
    assert hello["params"]["capabilities"] == {}
    assert ready["method"] == "notifications/initialized"
    assert [page["params"].get("cursor") for page in pages] == [None, "4", "8"]
