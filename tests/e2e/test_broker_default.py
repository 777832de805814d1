"""Sessions share a broker without being told to, and nobody notices more of it than less memory."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from switchboard_mcp.broker import joining, shim
from tests.brokers import brokers_of
from tests.e2e.host import SWITCHBOARD, Host, Json, switchboard
from tests.e2e.stress import until
from tests.e2e.workspaces import add_child, configure, scripted
from tests.processes import MARK, lives

# Tells what it was started with, and ends by itself if it is asked to.
CHILD = scripted(
    """
    import os
    class Kid(Child):
        tools = ("who", "variable", "folder", "end")
        def receive(self, message, line):
            if message["method"] == "initialize":
                self.capabilities = message["params"]["capabilities"]
                if "roots" in self.capabilities:
                    self.tools = (*self.tools, "roots")
            super().receive(message, line)
        def call(self, request_id, params, line):
            name, args = params["name"], params["arguments"]
            if name == "end":
                os._exit(3)
            said = {
                "who": lambda: f"{os.getpid()} {json.dumps(self.capabilities)}",
                "variable": lambda: os.environ.get(args["name"], ""),
                "folder": os.getcwd,
                "roots": lambda: "roots",
            }[name]()
            self.answer(request_id, text(said))
    Kid().serve()
    """
)


@pytest.fixture
def desk(workspace: Path) -> Path:
    """A workspace without any configuration, with one child."""
    add_child(workspace, "kid", CHILD)
    return workspace


@pytest.fixture
def hosts() -> Iterator[ExitStack]:
    """Ends the sessions of a test."""
    with ExitStack() as stack:
        yield stack


def joined(stack: ExitStack, desk: Path, *args: str, capabilities: Json | None = None, **env: str) -> Host:
    host = stack.enter_context(switchboard(desk, *args, env={**os.environ, **env}))
    host.initialize(capabilities=capabilities)
    return host


def say(host: Host, subtool: str, **args: str) -> str:
    text: str = host.call("kid_suite", subtool, **args)["content"][0]["text"]
    return text


def pid_of(host: Host) -> int:
    return int(say(host, "who").split()[0])


def capabilities_told(host: Host) -> Json:
    told: Json = json.loads(say(host, "who").split(" ", 1)[1])
    return told


def log_lines(host: Host) -> list[str]:
    """The lines without what differs from start to start."""
    return [re.sub(r"^\S+ |\b\d+\b", "", line) for line in host.stderr.splitlines()]


def test_answers_log_lines_and_exit_codes_are_those_of_a_session_alone(
    desk: Path, hosts: ExitStack, tmp_path: Path
) -> None:
    (desk / "switchboard.config.yaml").write_text("")  # gives a warning
    heard: list[object] = []
    for way in ("on by default", "off"):
        env = {
            "XDG_CACHE_HOME": str(tmp_path / way),
            **({"SWITCHBOARD_BROKER": "off"} if way == "off" else {}),
        }
        host = joined(hosts, desk, capabilities={"roots": {}}, **env)
        if way != "off":
            assert len(brokers_of(desk)) == 1
        answers = [
            host.tools(),
            host.subtools("kid_suite"),
            capabilities_told(host),
            say(host, "folder"),
            host.failure("kid_suite", action="call", subtool="nope", args={})["code"],
            host.failure("kid_suite", action="call", subtool="end", args={})["code"],
            say(host, "folder"),
        ]
        pid = pid_of(host)
        code = host.close()
        assert not lives(pid), "children have ended when the process of the host has"
        heard.append((answers, log_lines(host), code))
    assert heard[0] == heard[1]


def test_the_only_session_that_is_started_again_has_new_children(desk: Path, hosts: ExitStack) -> None:
    first = joined(hosts, desk)
    pid, (broker,) = pid_of(first), brokers_of(desk)
    second = joined(hosts, desk)
    assert pid_of(second) == pid
    assert first.close() == 0
    assert lives(pid), "another session uses it"
    assert second.close() == 0
    assert not lives(pid)
    third = joined(hosts, desk)
    assert brokers_of(desk) == [broker], "the broker has waited for it"
    assert pid_of(third) != pid


def test_a_session_uses_the_config_as_it_is_when_it_starts(desk: Path, hosts: ExitStack) -> None:
    first = joined(hosts, desk, "--log-level", "warning")
    assert first.tool_names() == ["kid_suite"]
    configure(desk, {"suites": {"kid": {"suiteName": "other_suite"}}})
    second = joined(hosts, desk, "--log-level", "debug")
    assert second.tool_names() == ["other_suite"]
    assert len(brokers_of(desk)) == 1
    second.call("other_suite", "who")
    until(lambda: "child.started" in second.stderr, "the line about the child that it uses")
    assert "debug" in second.stderr
    assert "child.started" not in first.stderr
    configure(desk, {"mail": {"enabled": True}})
    third = joined(hosts, desk)
    assert "mail_suite" in third.tool_names()
    (line,) = [line for line in third.stderr.splitlines() if "broker.none" in line]
    assert "mail" in line
    assert "switchboard broker restart" in line
    configure(desk, {"mial": {}})
    with switchboard(desk) as broken:
        assert broken.wait() == 2
        assert "mial" in broken.stderr
    assert first.tool_names() == ["kid_suite"]


def test_a_child_is_told_what_its_host_can_do(desk: Path, hosts: ExitStack) -> None:
    able: Json = {"roots": {}, "sampling": {}}
    one, two = joined(hosts, desk), joined(hosts, desk, capabilities=able)
    three, four = joined(hosts, desk), joined(hosts, desk, capabilities=able)
    assert [capabilities_told(host) for host in (one, two, three, four)] == [{}, able, {}, able]
    assert pid_of(one) == pid_of(three) != pid_of(two) == pid_of(four)
    assert say(four, "roots") == "roots"
    assert one.failure("kid_suite", action="call", subtool="roots", args={})["code"] == "subtool_unknown"
    assert len(brokers_of(desk)) == 1


ASKS = scripted(
    """
    import os
    class Kid(Child):
        tools = ("roots",)
        def receive(self, message, line):
            if message["method"] == "notifications/initialized":
                send({"id": "r", "method": "roots/list"})
            super().receive(message, line)
        def hear(self, message):
            self.heard = message["result"]["roots"][0]["uri"]
        def call(self, request_id, params, line):
            self.answer(request_id, text(f"{os.getpid()} {getattr(self, 'heard', '')}"))
    Kid().serve()
    """
)


def test_a_child_that_asks_for_roots_when_it_starts_has_those_of_its_host(
    workspace: Path, hosts: ExitStack
) -> None:
    add_child(workspace, "kid", ASKS)
    processes = set()
    started = [hosts.enter_context(switchboard(workspace)) for _ in range(2)]
    for number, host in enumerate(started):
        host.replies["roots/list"] = {"roots": [{"uri": f"file:///{number}"}]}
        host.initialize(capabilities={"roots": {}})
        pid = say(host, "roots").split()[0]
        until(lambda host=host, n=number: say(host, "roots").endswith(f"file:///{n}"), "its own roots")  # type: ignore[misc]
        assert say(host, "roots").split()[0] == pid, "it stays the process that it was started with"
        processes.add(pid)
    assert len(processes) == 2
    assert say(started[0], "roots").endswith("file:///0")
    assert len(brokers_of(workspace)) == 1


def test_the_first_host_may_be_killed_with_its_whole_group(desk: Path, hosts: ExitStack) -> None:
    start = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    first = Host([sys.executable, "-c", f"import os; os.setsid()\n{start}", *SWITCHBOARD], cwd=desk)
    hosts.enter_context(first)
    first.initialize()
    second = joined(hosts, desk)
    pid = pid_of(second)
    assert pid_of(first) == pid
    (broker,) = brokers_of(desk)
    assert os.getsid(broker) != os.getsid(first.process.pid)
    os.killpg(first.process.pid, signal.SIGKILL)
    first.wait()
    assert pid_of(second) == pid
    assert brokers_of(desk) == [broker]
    assert Path(f"/proc/{broker}/cwd").resolve() == desk.resolve()


def test_a_host_may_pass_next_to_no_environment_and_odd_names(desk: Path, hosts: ExitStack) -> None:
    env = {name: os.environ[name] for name in (MARK, "XDG_RUNTIME_DIR")}
    env["a.b-c"] = "odd"  # which a shell would drop
    host = hosts.enter_context(switchboard(desk, env=env))
    host.initialize()
    assert say(host, "variable", name="a.b-c") == "odd"
    (broker,) = brokers_of(desk)
    os.kill(broker, signal.SIGKILL)
    assert say(host, "variable", name="a.b-c") == "odd"
    (next_broker,) = brokers_of(desk)
    assert next_broker != broker
    host.process.send_signal(signal.SIGTERM)
    assert host.wait() == 0


LIMIT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\n"


def test_a_process_that_may_be_in_a_sandbox_starts_no_broker(desk: Path, hosts: ExitStack) -> None:
    start = [sys.executable, "-c", LIMIT + "os.execv(sys.argv[1], sys.argv[1:])", *SWITCHBOARD]
    host = hosts.enter_context(Host(start, cwd=desk))
    host.initialize()
    assert pid_of(host)
    assert "perhaps in a sandbox" in host.stderr
    assert host.process.pid in (parent.pid for parent in psutil.Process(pid_of(host)).parents())


def fail(*args: object) -> int:
    raise OSError("not here")


@pytest.mark.parametrize(
    ("replaced", "value", "arguments", "quiet"),
    [
        ("has_pipes", lambda: False, [], True),
        ("os.getpid", lambda: 1, [], True),
        ("os.getppid", lambda: 1, [], True),
        ("can_splice", lambda: False, [], False),
        ("os.splice", fail, [], False),
        ("is_confined", lambda: True, [], False),
        ("can_splice", lambda: True, ["--no-reload"], True),
    ],
)
def test_where_no_broker_can_be_none_is_started_and_only_what_surprises_is_logged(
    monkeypatch: pytest.MonkeyPatch, replaced: str, value: object, arguments: list[str], quiet: bool
) -> None:
    monkeypatch.setattr(joining, "has_pipes", lambda: True)
    monkeypatch.setattr(shim, "start_broker", fail)
    owner, _, name = replaced.rpartition(".")
    monkeypatch.setattr(os if owner else joining, name, value)
    with pytest.raises(shim.NoBrokerError) as problem:
        joining.start_and_join(arguments, os.environ)
    monkeypatch.undo()
    assert isinstance(problem.value, joining.NoBrokerHereError) is quiet
    assert "not here" not in str(problem.value)
