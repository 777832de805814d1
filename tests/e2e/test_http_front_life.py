"""The HTTP front begins and ends: its address, its files, signals, and calls that are under way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.cases import each_case
from tests.e2e.web import (
    Web,
    call,
    headers_of,
    modern,
    serving,
    start,
    stop,
)
from tests.e2e.workspaces import PYTHON, REPO, add_child, configure
from tests.patience import PATIENCE_S


def test_where_it_serves_is_in_a_file_until_it_ends(workspace: Path) -> None:
    folder = workspace / ".switchboard"
    with serving(workspace) as web:
        answer = json.loads((folder / "server_info.json").read_text())
        assert answer["port"] == web.port
        assert answer["host"] == "127.0.0.1"
        assert answer["transport"] == "sse"
        assert answer["pid"] == web.process.pid
        assert [answer[f"{name}Endpoint"] for name in ("mcp", "sse", "messages", "health")] == [
            "/mcp",
            "/sse",
            "/messages",
            "/health",
        ]
        assert answer["startedAt"].endswith("Z")
        assert stop(web.process) == 0
    assert not (folder / "server_info.json").exists()
    assert not (folder / "auth_token").exists()


@each_case(
    ("address", "bound", "host"),
    [
        ("127.0.0.1:0", "127.0.0.1", "127.0.0.1"),
        ("0.0.0.0:0", "0.0.0.0", "127.0.0.1"),
        ("0:0", "0.0.0.0", "127.0.0.1"),
        ("[::]:0", "::", "::1"),
        ("[0::0]:0", "::", "::1"),
        ("[::1]:0", "::1", "::1"),
        ("127.0.0.5:0", "127.0.0.5", "127.0.0.5"),
    ],
)
def test_the_address_is_true_and_one_that_others_can_reach_is_a_warning(
    workspace: Path, address: str, bound: str, host: str
) -> None:
    with start(workspace, address, log=workspace / "log") as process:
        try:
            web = Web(process, workspace, workspace / "log")
            info = json.loads((workspace / ".switchboard" / "server_info.json").read_text())
            assert (info["bindAddress"], info["host"]) == (bound, host)
            assert web.ask("GET", "/health").status == 200  # where the file says
            listening = {
                (connection.laddr.ip, connection.laddr.port)
                for connection in psutil.Process(process.pid).net_connections()
                if connection.status == psutil.CONN_LISTEN
            }
            assert listening == {(bound, info["port"])}
        finally:
            stop(process)
    log = (workspace / "log").read_text()
    assert f"{info['port']}/mcp" in log
    assert ("http.exposed" in log) is (bound in ("0.0.0.0", "::"))


@each_case("left", ["a dead process", "another program", "no JSON"])
def test_a_file_left_behind_is_replaced(workspace: Path, left: str) -> None:
    folder = workspace / ".switchboard"
    folder.mkdir(mode=0o700)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        pid = other.pid
        if left == "a dead process":
            other.communicate()
        info = {"port": 9, "host": "127.0.0.1", "pid": pid, "startedAt": "2025-01-01T00:00:00.000Z"}
        (folder / "server_info.json").write_text("{" if left == "no JSON" else json.dumps(info))
        with serving(workspace) as web:
            assert web.ask("GET", "/health").status == 200
        if other.poll() is None:
            other.communicate()


def test_a_second_front_for_a_workspace_is_refused(workspace: Path) -> None:
    with serving(workspace) as web:
        log = workspace / "second.log"
        with start(workspace, f"127.0.0.1:{web.port}", log=log) as second:
            assert second.wait(PATIENCE_S) == 1
        assert f"process {web.process.pid}" in log.read_text()
        # The first one's files are untouched.
        assert web.ask("GET", "/health").status == 200
        assert (workspace / ".switchboard" / "auth_token").read_text().strip() == web.token


def test_an_address_that_is_taken_is_named(workspace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with serving(workspace) as web, start(other, str(web.port), log=other / "log") as second:
        assert second.wait(PATIENCE_S) == 1
        assert f"127.0.0.1:{web.port}" in (other / "log").read_text()


@each_case("address", ["nonsense", "1:2:3", "70000", "host:", ":80"])
def test_an_address_that_is_none_is_wrong_usage(workspace: Path, address: str) -> None:
    with start(workspace, address, log=workspace / "log") as process:
        assert process.wait(PATIENCE_S) == 2


def test_without_the_packages_it_needs_it_says_which(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('gone', name='uvicorn')")
    with start(workspace, "0", env={"PYTHONPATH": str(tmp_path)}, log=workspace / "log") as process:
        assert process.wait(PATIENCE_S) == 2
    output = (workspace / "log").read_text()
    assert "uvicorn" in output
    assert "[http]" in output


def test_host_and_port_come_from_the_config_where_none_is_named(workspace: Path) -> None:
    configure(workspace, {"http": {"port": 0, "host": "localhost"}})
    with start(workspace, "", log=workspace / "log") as process:
        try:
            assert Web(process, workspace, workspace / "log").ask("GET", "/health").status == 200
        finally:
            stop(process)


@each_case("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_lets_calls_finish(workspace: Path, tmp_path: Path, number: signal.Signals) -> None:
    add_child(workspace, "gate", [*PYTHON, str(REPO / "tests" / "children" / "gate.py")])
    file = tmp_path / "go on"
    with serving(workspace) as web:
        session = web.initialize()
        listen = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="l")
        with (
            web.open("POST", "/mcp", listen, headers_of(listen)) as listening,
            session.listen() as own,
            web.open("GET", "/sse") as older,
            session.open("tools/call", call("wait", str(file), token=1)) as stream,
        ):
            listening.until("notifications/subscriptions/acknowledged")
            stream.until("notifications/progress")
            web.process.send_signal(number)
            until_refused(web)
            file.touch()
            assert stream.events()[-1].json["result"]["content"][0]["text"] == "found"
            result = listening.events()[-1].json["result"]
            assert result["_meta"] == {"io.modelcontextprotocol/subscriptionId": "l"}
            assert [event for event in own.events() if event.data] == []
            assert [event.name for event in older.events()] == ["endpoint"]
        assert web.process.wait(PATIENCE_S) == 0


def until_refused(web: Web) -> None:
    """Until nobody is let in any more."""
    while True:
        try:
            web.socket().close()
        except ConnectionError:
            return
