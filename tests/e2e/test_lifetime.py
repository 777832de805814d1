"""From the first byte to the last: answers that are owed are delivered, then Switchboard and its children go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.e2e.host import SWITCHBOARD, Host, Json, switchboard
from tests.e2e.stress import until
from tests.e2e.workspaces import MOCK_CHILD, WHOLE_RESULTS, add_child, configure, faulty, scripted
from tests.patience import PATIENCE_S
from tests.processes import MARK, lives

WITHOUT_UVLOOP = [
    sys.executable,
    "-c",
    "import sys; sys.modules['uvloop'] = None; from switchboard_mcp.__main__ import main; sys.exit(main())",
]
AS_MODULE = [sys.executable, "-m", "switchboard_mcp"]


@pytest.fixture
def mocked(workspace: Path) -> Path:
    """A workspace with the mock child."""
    add_child(workspace, "mock", MOCK_CHILD)
    return workspace


def call(subtool: str, **args: object) -> Json:
    return {"name": "mock_suite", "arguments": {"action": "call", "subtool": subtool, "args": args}}


def begin_endless_call(host: Host) -> None:
    """A call that the child works on until it is stopped."""
    host.ask("tools/call", {**call("slow", seconds=3600, steps=360_000), "_meta": {"progressToken": "t"}})
    host.notification("notifications/progress")


def started_for(host: Host) -> list[psutil.Process]:
    """All processes of a session but that which the host has started, or those of the test's broker."""
    if os.environ.get("SWITCHBOARD_BROKER") == "off":
        return psutil.Process(host.process.pid).children(recursive=True)
    mark, found = os.environ[MARK], []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.pid not in (os.getpid(), host.process.pid):
                found.append(process)
    return [process for process in found if lives(process)]


def check_gone(*processes: psutil.Process | int) -> None:
    """No process is left of a session that has ended; with a broker, soon."""
    if os.environ.get("SWITCHBOARD_BROKER") != "off":
        until(lambda: not any(map(lives, processes)), "the broker has ended, and all that it has started")
    assert not [process for process in processes if lives(process)]


# --- the host hangs up -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start",
    [AS_MODULE, [*SWITCHBOARD, "serve"]],
    ids=lambda start: start[-1][-30:],
)
def test_it_works_and_ends_however_it_is_started(start: list[str], mocked: Path) -> None:
    with Host(start, cwd=mocked) as host:
        host.initialize()
        assert host.tool_names() == ["mock_suite"]
        assert host.call("mock_suite", "echo", message="hello")["content"][0]["text"] == "hello"
        assert host.close() == 0
        assert "Traceback" not in host.stderr


@pytest.mark.usefixtures("served")
def test_the_end_of_stdin_ends_it_with_code_0(mocked: Path) -> None:
    with switchboard(mocked) as host:
        host.initialize()
        host.hang_up()
        assert host.rest() == b""
        assert host.wait() == 0


@pytest.mark.parametrize("command", [SWITCHBOARD, WITHOUT_UVLOOP], ids=["as-installed", "without-uvloop"])
def test_answers_under_way_are_delivered_after_the_end_of_stdin(command: list[str], mocked: Path) -> None:
    with Host(command, cwd=mocked) as host:
        host.introspect("mock_suite")  # a start that takes seconds would be given up when the host has left
        slow = host.ask("tools/call", call("slow", seconds=0.2, steps=1))
        introspection = host.ask("tools/call", {"name": "mock_suite", "arguments": {"action": "introspect"}})
        unknown = host.ask("tools/call", call("no_such_tool"))
        host.hang_up()
        assert host.answer(introspection)["result"]["content"]
        assert host.answer(unknown)["result"]["isError"] is True
        assert host.answer(slow)["result"]["content"][0]["text"] == "done after 1 steps"
        assert host.rest() == b""
        assert host.wait() == 0


@pytest.mark.usefixtures("served")
def test_a_large_answer_is_delivered_whole_after_the_end_of_stdin(workspace: Path) -> None:
    add_child(workspace, "large", faulty("big", "8"))
    configure(workspace, WHOLE_RESULTS)
    with switchboard(workspace) as host:
        host.introspect("large_suite")  # a start that takes seconds would be given up when the host has left
        asked = host.ask(
            "tools/call", {"name": "large_suite", "arguments": {"action": "call", "subtool": "big"}}
        )
        host.hang_up()
        assert len(host.answer(asked)["result"]["content"][0]["text"]) == 8 << 20
        assert host.wait() == 0


def test_a_list_that_waits_for_a_child_is_delivered_after_the_end_of_stdin(mocked: Path) -> None:
    configure(mocked, {"suites": {"mock": {"exposure": "direct"}}})
    with switchboard(mocked) as host:
        asked = host.ask("tools/list")
        host.hang_up()
        assert "echo" in [tool["name"] for tool in host.answer(asked)["result"]["tools"]]
        assert host.wait() == 0


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("action", ["introspect", "call"])
def test_the_end_of_stdin_in_a_start_that_hangs_ends_everything(
    workspace: Path, tmp_path: Path, action: str
) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    add_child(workspace, "late", faulty("slow-start", "3600"), env={"FAULTY_PIDS": str(pids)})
    configure(workspace, {"timeouts": {"rpcMs": 3_600_000}})  # a test that waits for the start fails
    with switchboard(workspace) as host:
        asked = host.ask(
            "tools/call", {"name": "late_suite", "arguments": {"action": action, "subtool": "echo"}}
        )
        pid = int(pids.read_text())  # waits until the child has written it
        host.hang_up()
        answer = host.answer(asked)["result"]
        assert answer["structuredContent"]["error"]["code"] == "shutting_down"
        assert host.wait() == 0
    check_gone(pid)


CURIOUS = """
    class Curious(Child):
        def call(self, request_id, params, line):
            self.under_way = request_id
            send({"id": "q", "method": "elicitation/create", "params": {"message": "Who?"}})

        def hear(self, message):
            self.answer(self.under_way, text("alone" if "error" in message else "answered"))

    Curious().serve()
"""


def test_a_child_that_asks_after_the_end_of_stdin_is_not_waited_for(workspace: Path) -> None:
    add_child(workspace, "curious", scripted(CURIOUS))
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "h"},
    }
    asked = {"name": "curious_suite", "arguments": {"action": "call", "subtool": "echo"}}
    messages: list[Json] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": asked},
    ]
    ran = subprocess.run(
        SWITCHBOARD,
        cwd=workspace,
        input="".join(json.dumps(message) + "\n" for message in messages),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    (answer,) = (answer for answer in answers if answer.get("id") == 2)
    assert answer["result"]["content"][0]["text"] == "alone"


def test_a_last_line_needs_no_newline(mocked: Path) -> None:
    with switchboard(mocked) as host:
        host.write(b'{"jsonrpc":"2.0","id":"last","method":"ping"}')
        host.hang_up()
        assert host.answer("last")["result"] == {}
        assert host.wait() == 0


def test_half_a_message_at_the_end_is_no_hindrance(mocked: Path) -> None:
    for rest in (b'{"jsonrpc":"2.0","id":1,"meth', b"Content-Length: 500\r\n\r\n{", b"Content-Le"):
        with switchboard(mocked) as host:
            host.write(rest)
            host.hang_up()
            host.rest()
            assert host.wait() == 0


def test_requests_may_come_from_a_file_and_answers_go_to_one(mocked: Path) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    asked, answered = mocked / "asked", mocked / "answered"
    asked.write_text(json.dumps(request) + "\n")
    with asked.open() as stdin, answered.open("w") as stdout:
        ran = subprocess.run(
            SWITCHBOARD,
            cwd=mocked,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_S,
            check=False,
        )
    assert ran.returncode == 0
    (answer,) = map(json.loads, answered.read_text().splitlines())
    assert [tool["name"] for tool in answer["result"]["tools"]] == ["mock_suite"]


@pytest.mark.usefixtures("served")
def test_a_host_that_dies_in_a_call_takes_everything_with_it(mocked: Path) -> None:
    with switchboard(mocked) as host:
        begin_endless_call(host)
        children = started_for(host)
        assert children
        host.hang_up()
        assert host.process.stdout is not None
        host.process.stdout.close()
        assert host.wait() == 0
    check_gone(*children)


@pytest.mark.usefixtures("served")
def test_a_host_that_is_killed_takes_everything_with_it(mocked: Path) -> None:
    host_code = (
        "import json, subprocess, sys\n"
        "started = subprocess.Popen(sys.argv[1:2], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "started.stdin.write(sys.argv[2].encode() + b'\\n'); started.stdin.flush()\n"
        "started.stdout.readline(); print(started.pid, flush=True); started.wait()"
    )
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call("echo", message="up")}
    with subprocess.Popen(
        [sys.executable, "-c", host_code, *SWITCHBOARD, json.dumps(request)],
        cwd=mocked,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as host:
        assert host.stdout is not None
        ours = psutil.Process(int(host.stdout.readline()))
        everybody = [ours, *ours.children(recursive=True)]
        host.kill()
    deadline = time.monotonic() + PATIENCE_S
    while alive := [process for process in everybody if lives(process)]:
        assert time.monotonic() < deadline, alive
        psutil.wait_procs(alive, timeout=0.05)


# --- signals ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda n: n.name)
def test_a_signal_ends_it_in_the_middle_of_a_call(mocked: Path, number: signal.Signals) -> None:
    with switchboard(mocked) as host:
        begin_endless_call(host)
        children = started_for(host)
        host.process.send_signal(number)
        host.check_ended_by(number)
        assert "Traceback" not in host.stderr
        host.rest()
    check_gone(*children)


def test_a_signal_ends_it_before_anything_was_asked(mocked: Path) -> None:
    with switchboard(mocked) as host:
        host.result("ping")
        host.process.send_signal(signal.SIGTERM)
        assert host.rest() == b""
        host.check_ended_by(signal.SIGTERM)


def test_a_signal_ends_it_while_a_child_starts(workspace: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    add_child(workspace, "late", faulty("slow-start", "3600"), env={"FAULTY_PIDS": str(pids)})
    with switchboard(workspace) as host:
        host.ask("tools/call", {"name": "late_suite", "arguments": {"action": "introspect"}})
        pid = int(pids.read_text())  # waits until the child has written it
        host.process.send_signal(signal.SIGTERM)
        host.rest()
        host.check_ended_by(signal.SIGTERM)
    check_gone(pid)


def test_ctrl_c_in_a_terminal_reaches_the_children_only_through_us(mocked: Path) -> None:
    with switchboard(mocked) as host:
        host.introspect("mock_suite")
        own_group = os.getpgid(host.process.pid)
        children = started_for(host)
        assert all(os.getpgid(child.pid) != own_group for child in children)


# --- idle ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [SWITCHBOARD, WITHOUT_UVLOOP], ids=["as-installed", "without-uvloop"])
def test_a_call_that_takes_too_long_is_told_so_on_each_loop(command: list[str], mocked: Path) -> None:
    configure(mocked, {"timeouts": {"rpcMs": 1200}})
    with Host(command, cwd=mocked) as host:
        host.initialize()
        error = host.failure("mock_suite", action="call", subtool="slow", args={"seconds": 3600, "steps": 1})
        assert error["code"] == "child_timeout"


def test_an_idle_child_is_stopped_and_started_again_when_needed(workspace: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    add_child(workspace, "mock", ["sh", "-c", f'echo $$ >> {pids}; exec "$@"', "sh", *MOCK_CHILD])
    configure(workspace, {"timeouts": {"idleMs": 200}})
    with switchboard(workspace) as host:
        host.call("mock_suite", "echo", message="first")
        (first,) = map(int, pids.read_text().split())
        until(lambda: not lives(first), "the idle child was stopped")
        assert host.call("mock_suite", "echo", message="second")["content"][0]["text"] == "second"
        assert len(pids.read_text().split()) == 2


def test_a_child_at_work_is_not_idle(mocked: Path) -> None:
    configure(mocked, {"timeouts": {"idleMs": 50}})
    with switchboard(mocked) as host:
        result = host.call("mock_suite", "slow", seconds=0.6, steps=1)
        assert result["content"][0]["text"] == "done after 1 steps"


# --- stdout ----------------------------------------------------------------------------------------------


def test_stdout_carries_protocol_only_whatever_children_and_logs_say(workspace: Path) -> None:
    add_child(workspace, "chatty", faulty("log-lines"))
    add_child(workspace, "loud", faulty("stderr-burst", "1"))
    add_child(workspace, "broken", faulty("exits-at-once"))
    with switchboard(workspace, "--log-level", "debug") as host:
        for suite in ("chatty_suite", "loud_suite", "broken_suite"):
            host.use(suite, action="call", subtool="echo", args={"message": "x"})
        host.hang_up()
        assert host.rest() == b""
        assert host.wait() == 0
        assert all(told.json["jsonrpc"] == "2.0" for told in host.heard)
        assert host.stderr != ""


def test_a_quiet_run_says_nothing_on_stderr_but_what_it_started(mocked: Path) -> None:
    with switchboard(mocked, "--log-level", "warning") as host:
        host.call("mock_suite", "echo", message="x")
        assert host.close() == 0
        assert host.stderr == ""
