"""A child that cannot start or cannot talk: its suite stays in the list and tells what is wrong, others are whole."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.e2e.host import Host, Json, switchboard
from tests.e2e.workspaces import (
    MOCK_CHILD,
    add_child,
    configure,
    faulty,
    read_record,
    recorded,
    scripted,
    write_child,
)
from tests.patience import PATIENCE_S

CALL = {"action": "call", "subtool": "echo", "args": {"message": "hello"}}


def assert_others_are_whole(host: Host) -> None:
    assert "mock_suite" in host.tool_names()
    assert host.call("mock_suite", "echo", message="whole")["content"][0]["text"] == "whole"


def failure_of(host: Host, suite: str = "sick_suite") -> Json:
    """The error of a call to the sick child, which must name child and subtool, while the others work."""
    assert suite in host.tool_names()
    error = host.failure(suite, **CALL)
    assert error["child"] == "sick"
    assert error["subtool"] == "echo"
    assert "'sick'" in error["message"]
    assert "'echo'" in error["message"]
    assert error["hint"]
    assert_others_are_whole(host)
    return error


@pytest.fixture
def beside(workspace: Path) -> Path:
    """A workspace with a healthy child, for a sick one to stand beside."""
    add_child(workspace, "mock", MOCK_CHILD)
    return workspace


# --- it cannot be started --------------------------------------------------------------------------------


def test_a_missing_binary_is_named_with_its_file(beside: Path) -> None:
    file = add_child(beside, "sick", ["no-such-program-here"])
    with switchboard(beside) as host:
        error = failure_of(host)
    assert error["code"] == "command_not_found"
    assert error["retryable"] is False
    assert "'no-such-program-here'" in error["message"]
    assert str(file) in error["message"]


def test_a_missing_binary_of_the_config_is_named_with_its_key(beside: Path) -> None:
    config = configure(beside, {"mcpServers": {"sick": {"command": "/no/such/program"}}})
    with switchboard(beside) as host:
        error = failure_of(host)
    assert error["code"] == "command_not_found"
    assert f"{config}: mcpServers.sick" in error["message"]


def test_a_file_that_is_not_executable_is_named(beside: Path) -> None:
    program = beside / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    add_child(beside, "sick", [str(program)])
    with switchboard(beside) as host:
        error = failure_of(host)
    assert error["code"] == "command_not_executable"
    assert str(program) in error["message"]
    assert "executable" in error["hint"]


def test_a_folder_that_is_missing_is_named(beside: Path) -> None:
    add_child(beside, "sick", MOCK_CHILD, cwd="no/such/folder")
    with switchboard(beside) as host:
        error = failure_of(host)
    assert error["code"] == "folder_not_found"
    assert "no/such/folder" in error["message"]


def test_a_missing_variable_is_named_with_file_and_key(beside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    file = add_child(beside, "sick", MOCK_CHILD, env={"TOKEN": "${NO_SUCH_TOKEN}"})
    with switchboard(beside) as host:
        error = failure_of(host)
        assert "NO_SUCH_TOKEN" in host.stderr
    assert error["code"] == "variable_missing"
    assert f"NO_SUCH_TOKEN ({file}: command.env.TOKEN)" in error["message"]


def test_a_remote_child_says_that_it_cannot_be_reached(beside: Path) -> None:
    write_child(beside, "sick", {"name": "sick", "url": "http://127.0.0.1:9/mcp"})
    with switchboard(beside) as host:
        error = failure_of(host)
    assert error["code"] == "child_unreachable"


def test_a_fault_that_was_mended_is_forgotten(beside: Path) -> None:
    program = beside / "program"
    add_child(beside, "sick", [str(program)])
    with switchboard(beside) as host:
        assert host.failure("sick_suite", action="introspect")["code"] == "command_not_found"
        program.write_text(f"#!/bin/sh\nexec {' '.join(MOCK_CHILD)}\n")
        program.chmod(0o755)
        deadline = time.monotonic() + PATIENCE_S
        # It is looked at again after a while, not with every call.
        while (result := host.use("sick_suite", action="introspect")).get("isError"):
            assert time.monotonic() < deadline, result
        assert "click" in result["content"][0]["text"]


# --- it starts, and does not get far ---------------------------------------------------------------------


def test_a_child_that_exits_at_once_is_quoted_with_code_and_stderr(beside: Path) -> None:
    add_child(beside, "sick", faulty("exits-at-once", "7"))
    with switchboard(beside) as host:
        error = failure_of(host)
    assert error["code"] == "child_start_failed"
    assert error["retryable"] is True
    assert "exited with code 7" in error["message"]
    assert error["stderr"] == ["faulty: no licence found", "faulty: giving up"]


def test_the_stderr_of_a_child_is_also_in_the_text_for_the_model(beside: Path) -> None:
    add_child(beside, "sick", faulty("exits-at-once"))
    with switchboard(beside) as host:
        text = host.use("sick_suite", action="introspect")["content"][0]["text"]
    assert "faulty: no licence found" in text


def test_secrets_of_a_child_do_not_show_in_its_stderr(beside: Path) -> None:
    code = 'import os; complain("token is " + os.environ["API_TOKEN"]); sys.exit(1)'
    add_child(beside, "sick", scripted(code), env={"API_TOKEN": "hunter2-hunter2"})
    with switchboard(beside, "--log-level", "debug") as host:
        error = failure_of(host)
        assert "hunter2" not in host.stderr
    assert "hunter2" not in str(error)
    assert error["stderr"][0].startswith("token is ")


def test_a_child_that_never_answers_fails_after_its_time(beside: Path) -> None:
    configure(beside, {"timeouts": {"childSpawnMs": 200}, "suites": {"sick": {"rpcMs": 300}}})
    add_child(beside, "sick", faulty("never-answers"))
    with switchboard(beside) as host:
        error = failure_of(host)
    assert error["code"] == "child_start_timeout"
    assert error["retryable"] is True
    assert "within 0.3 s" in error["message"]
    assert "childSpawnMs" in error["hint"]


def test_a_slow_starter_works_again_and_again(beside: Path) -> None:
    configure(beside, {"timeouts": {"childSpawnMs": 100, "rpcMs": 60_000}})
    add_child(beside, "slow", faulty("slow-start", "1.5"))
    for _ in range(2):
        with switchboard(beside) as host:
            assert host.call("slow_suite", "echo", message="ready")["content"][0]["text"] == "ready"


def test_a_call_that_is_never_answered_fails_after_its_time_and_is_cancelled(
    beside: Path, tmp_path: Path
) -> None:
    code = """
        class Silent(Child):
            def call(self, request_id, params, line):
                if params["name"] != "silent":
                    super().call(request_id, params, line)

        child = Silent()
        child.tools = ("echo", "silent")
        child.serve()
    """
    record = tmp_path / "record"
    add_child(beside, "sick", recorded(scripted(code), record), rpcTimeoutMs=60_000)
    configure(beside, {"suites": {"sick": {"rpcMs": 800}}})
    with switchboard(beside) as host:
        error = host.failure("sick_suite", action="call", subtool="silent")
        assert error["code"] == "child_timeout"
        assert error["message"] == "Child 'sick' did not answer subtool 'silent' within 0.8 s."
        assert "rpcMs" in error["hint"]
        assert host.call("sick_suite", "echo", message="alive")["content"][0]["text"] == "alive"
        assert_others_are_whole(host)
    called, cancelled, probe, _ = read_record(record)[-4:]
    assert (cancelled["method"], probe["method"]) == ("notifications/cancelled", "ping")
    assert cancelled["params"]["requestId"] == called["id"]


def test_a_child_that_answers_garbage_is_quoted(beside: Path) -> None:
    configure(beside, {"suites": {"sick": {"rpcMs": 1500}}, "timeouts": {"childSpawnMs": 1500}})
    add_child(beside, "sick", faulty("garbage"))
    with switchboard(beside) as host:
        error = failure_of(host)
    assert error["code"] == "child_start_timeout"
    assert "something other than MCP messages" in error["message"]


def test_a_child_of_an_unknown_protocol_version_is_refused_with_both_versions(beside: Path) -> None:
    add_child(beside, "sick", faulty("unknown-version"))
    with switchboard(beside) as host:
        error = failure_of(host)
    assert error["code"] == "child_protocol"
    assert error["retryable"] is False
    assert "1999-12-31" in error["message"]
    assert "2025-11-25" in error["message"]


def test_a_child_that_refuses_to_initialize_is_quoted(beside: Path) -> None:
    add_child(beside, "sick", faulty("refuses-initialize"))
    with switchboard(beside) as host:
        error = failure_of(host)
    assert error["code"] == "child_protocol"
    assert "no API key configured" in error["message"]


PICKY = """
class Picky(Child):
    version = VERSION

    def receive(self, message, line):
        asked = (message.get("params") or {}).get("protocolVersion", "")
        if asked:
            with open(RECORD, "a") as record:
                record.write(asked + "\\n")
        if message.get("method") != "initialize" or asked == VERSION:
            super().receive(message, line)
            return
        data = {"supported": SUPPORTED, "requested": asked}
        send({"id": message["id"], "error": {"code": CODE, "message": "Unsupported version", "data": data}})
        if EXITS:
            sys.exit(0)

Picky().serve()
"""


def picky(
    record: Path, version: str, supported: list[str], code: int = -32602, *, exits: bool = False
) -> list[str]:
    """A child that refuses every version but one, and records what it was asked for."""
    head = f"RECORD, VERSION, SUPPORTED, CODE, EXITS = {str(record)!r}, {version!r}, {supported!r}, {code}, {exits}"
    return scripted(f"{head}\n{PICKY}")


def test_a_child_that_names_its_versions_is_asked_again_with_the_newest_common_one_and_remembered(
    workspace: Path, tmp_path: Path
) -> None:
    versions = {
        "2024-11-05": ["2024-11-05"],
        "2025-06-18": ["2023-01-01", "2025-06-18", "2024-11-05", "2031-01-01"],
    }
    expected: dict[str, str] = {}
    for version, supported in versions.items():
        for code in (-32602, -32022, -32000):
            for exits in (False, True):
                name = f"kid-{len(expected)}"
                expected[name] = version
                add_child(workspace, name, picky(tmp_path / name, version, supported, code, exits=exits))
    for start in (1, 2):
        with switchboard(workspace) as host:
            for name in expected:
                assert host.call(f"{name}_suite", "echo", message=name)["content"][0]["text"] == name
        asked = {name: (tmp_path / name).read_text().split() for name in expected}
        assert asked == {name: ["2025-11-25", *[version] * start] for name, version in expected.items()}


def test_a_child_without_a_common_version_is_refused_with_what_it_said(
    workspace: Path, tmp_path: Path
) -> None:
    quoted = {
        "2023-01-01": ["2023-01-01"],
        "Unsupported version": ["2025-11-25"],
        "Unsupported version ": [],
    }
    for number, supported in enumerate(quoted.values()):
        add_child(workspace, f"kid-{number}", picky(tmp_path / "record", "2023-01-01", supported))
    with switchboard(workspace) as host:
        for number, text in enumerate(quoted):
            error = host.failure(f"kid-{number}_suite", **CALL)
            assert error["code"] == "child_protocol"
            assert text.strip() in error["message"]


HEADERS_ONLY = """
import re
buffer = b""
while True:
    head, end, rest = buffer.partition(b"\\r\\n\\r\\n")
    if not end:
        chunk = os.read(0, 65536)
        if COMPLAINS and chunk[:1] == b"{":
            complain("Error: Header must provide a Content-Length property.")
            if EXITS:
                sys.exit(1)
        if not chunk:
            break
        buffer += chunk
        continue
    size = int(re.search(rb"Content-Length: *([0-9]+)", head)[1])
    while len(rest) < size:
        rest += os.read(0, 65536)
    message, buffer = json.loads(rest[:size]), rest[size:]
    if "id" in message:
        body = dump({"id": message["id"], "result": Child().result(message["method"], {})})
        write(b"Content-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
"""


@pytest.mark.parametrize(
    ("complains", "exits"),
    [(False, False), (True, False), (True, True)],
    ids=["in silence", "with a complaint", "and exits"],
)
def test_a_child_that_expects_content_length_is_recognised(
    beside: Path, complains: bool, exits: bool
) -> None:
    # Long enough for a busy machine to have started the child by then.
    configure(beside, {"timeouts": {"childSpawnMs": 5000}, "suites": {"sick": {"rpcMs": 5000}}})
    add_child(beside, "sick", scripted(f"COMPLAINS, EXITS = {complains}, {exits}\n{HEADERS_ONLY}"))
    with switchboard(beside) as host:
        error = failure_of(host)
    assert (error["code"], error["retryable"]) == ("child_protocol", False)
    assert "seems to expect Content-Length headers" in error["message"]
    assert "one JSON message per line" in error["hint"]


def test_an_initialize_of_the_wrong_shape_is_refused(beside: Path) -> None:
    add_child(beside, "sick", faulty("wrong-shapes", "initialize"))
    with switchboard(beside) as host:
        assert failure_of(host)["code"] == "child_protocol"


def test_tools_of_the_wrong_shape_do_not_hide_the_others(beside: Path) -> None:
    add_child(beside, "sick", faulty("wrong-shapes", "tools"))
    with switchboard(beside) as host:
        assert host.subtools("sick_suite") == ["echo", "fine"]
        assert_others_are_whole(host)


def test_a_child_without_tools_says_so(beside: Path) -> None:
    code = "child = Child(); child.tools = (); child.serve()"
    add_child(beside, "sick", scripted(code))
    with switchboard(beside) as host:
        told = host.introspect("sick_suite")
        assert told["tools"] == []
        assert told["more"] == "This child offers no tools."


# --- it dies later ---------------------------------------------------------------------------------------


def test_a_crash_in_a_call_is_told_and_the_next_call_starts_it_anew(beside: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    add_child(beside, "sick", faulty("crashes-on", "2"), env={"FAULTY_PIDS": str(pids)})
    with switchboard(beside) as host:
        assert host.call("sick_suite", "echo", message="first")["content"][0]["text"] == "first"
        error = failure_of(host)
        assert error["code"] == "child_crashed"
        assert "exited with code 3" in error["message"]
        assert error["stderr"] == ["faulty: crashed on call 2"]
        assert error["retryable"] is True
        assert host.call("sick_suite", "echo", message="again")["content"][0]["text"] == "again"
    assert len(pids.read_text().split()) == 2


def test_a_child_that_keeps_failing_is_left_alone_for_a_while(beside: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    add_child(beside, "sick", faulty("exits-at-once"), env={"FAULTY_PIDS": str(pids)})
    with switchboard(beside) as host:
        errors = [host.failure("sick_suite", **CALL) for _ in range(6)]
        assert_others_are_whole(host)
    assert errors[-1]["code"] == "child_backoff"
    assert errors[-1]["retryable"] is True
    assert errors[-1]["retryAfterMs"] > 0
    assert "exited with code 7" in errors[-1]["message"]
    assert len(pids.read_text().split()) < 6


def test_many_calls_at_once_start_one_process(beside: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    add_child(beside, "single", faulty("slow-start", "0.1"), env={"FAULTY_PIDS": str(pids)})
    with switchboard(beside) as host:
        asked = [
            host.ask(
                "tools/call",
                {"name": "single_suite", "arguments": {**CALL, "args": {"message": str(number)}}},
            )
            for number in range(20)
        ]
        texts = [host.answer(id)["result"]["content"][0]["text"] for id in asked]
    assert texts == [str(number) for number in range(20)]
    assert len(pids.read_text().split()) == 1


def test_no_child_is_started_before_it_is_needed(beside: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.touch()
    add_child(beside, "lazy", faulty("slow-start", "0"), env={"FAULTY_PIDS": str(pids)})
    with switchboard(beside) as host:
        host.initialize()
        host.tools()
        assert_others_are_whole(host)
        assert pids.read_text() == ""
        host.introspect("lazy_suite")
        assert len(pids.read_text().split()) == 1


def test_a_child_gets_the_environment_its_own_variables_and_its_folder(
    beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_OUTSIDE", "outside")
    code = """
        import os

        class Tells(Child):
            def call(self, request_id, params, line):
                names = ("FROM_OUTSIDE", "OWN", "FILLED")
                told = [os.environ.get(name) for name in names] + [os.getcwd(), sys.argv[1]]
                self.answer(request_id, {**text("told"), "structuredContent": {"told": told}})

        Tells().serve()
    """
    own = {"OWN": "own", "FILLED": "<${FROM_OUTSIDE}>"}
    file = add_child(beside, "tells", [*scripted(code), "${FROM_OUTSIDE:-none}"], env=own)
    with switchboard(beside) as host:
        told = host.call("tells_suite", "echo")["structuredContent"]["told"]
    assert told == ["outside", "own", "<outside>", os.path.realpath(file.parent), "outside"]
