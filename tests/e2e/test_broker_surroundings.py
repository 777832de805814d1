"""Surroundings in which no broker can be had: each gives one line in the log, and a session that works all the same."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from switchboard_mcp import __version__
from switchboard_mcp.broker import address, joining, shim
from switchboard_mcp.broker.broker_client import broker_pid
from tests.e2e.host import SWITCHBOARD, Host
from tests.e2e.stress import server_of, until
from tests.e2e.workspaces import MOCK_CHILD, add_child, configure
from tests.patience import PATIENCE_S


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime folder of this test, and a process with pipes as a host gives it."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setattr(joining, "has_pipes", lambda: True)
    return folder / "switchboard"


def reason(*arguments: str) -> str:
    """Why no broker can be had."""
    with pytest.raises(shim.NoBrokerError) as problem:
        joining.start_and_join([*arguments], os.environ)
    return str(problem.value)


@contextmanager
def listening(folder: Path, workspace: Path, reply: bytes) -> Iterator[None]:
    """A socket in the place of the broker's, whose owner answers as it likes."""
    folder.mkdir(mode=0o700)
    name = address.broker_name(os.path.realpath(workspace), None, os.environ)

    def answer() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            size = int.from_bytes(connection.recv(4), "big")
            while size > 0:
                size -= len(connection.recv(size))
            connection.sendall(reply)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address.socket_address(str(folder / name)))
        listener.listen()
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S)


def test_a_socket_of_another_user_is_not_used(
    folder: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(folder, workspace, b"ok\n"):
        monkeypatch.setattr(address, "_is_private", lambda folder, user: True)
        owner = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)
        assert "another user" in reason("--workspace", str(workspace))
        monkeypatch.undo()


def test_a_broker_of_another_protocol_is_not_used(folder: Path, workspace: Path) -> None:
    with listening(folder, workspace, b"no the message does not follow the protocol\n"):
        assert "protocol" in reason("--workspace", str(workspace))


def test_a_missing_runtime_folder_is_named(
    folder: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "_is_private", lambda folder, user: False)
    assert "XDG_RUNTIME_DIR" in reason("--workspace", str(workspace))


@pytest.mark.parametrize(
    "problem", [OSError(28, "No space left on device"), PermissionError(13, "Permission denied")]
)
def test_a_full_or_closed_runtime_folder_is_named(
    folder: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, problem: OSError
) -> None:
    def fail(*args: object) -> bool:
        raise problem

    monkeypatch.setattr(shim, "start_broker", fail)
    assert str(problem.strerror) in reason("--workspace", str(workspace))


@pytest.mark.parametrize("ending", ["", ".lock", ".log"])
def test_a_file_that_cannot_be_made_is_named(folder: Path, workspace: Path, ending: str) -> None:
    name = address.broker_name(os.path.realpath(workspace), None, os.environ)
    blocked = folder / f"{name}{ending}"
    blocked.mkdir(parents=True)
    folder.chmod(0o700)
    assert str(blocked) in reason("--workspace", str(workspace))


@pytest.fixture
def shared(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose sessions share a broker, with the mock child."""
    monkeypatch.setenv("SWITCHBOARD_BROKER", "on")
    configure(workspace, {})
    add_child(workspace, "mock", MOCK_CHILD)
    return workspace


def test_a_runtime_folder_with_a_long_path_has_a_broker(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    with Host(SWITCHBOARD, cwd=shared) as host:
        host.initialize()
        assert host.call("mock_suite", "echo", message="x")["content"][0]["text"] == "x"
        assert [path.name for path in (folder / "switchboard").iterdir() if path.is_socket()]


def test_the_broker_keeps_no_file_in_the_workspace_which_may_be_on_a_network_disk(shared: Path) -> None:
    before = {*shared.rglob("*")}
    with Host(SWITCHBOARD, cwd=shared) as host:
        host.initialize()
        host.call("mock_suite", "echo", message="x")
        assert {
            path for path in shared.rglob("*") if not path.is_relative_to(shared / ".switchboard")
        } == before


def test_at_the_limit_of_open_files_further_sessions_are_served_alone(shared: Path) -> None:
    limited = "import os, resource, sys; n = resource.RLIMIT_NOFILE; resource.setrlimit(n, (56, 56))\n"
    start = [sys.executable, "-c", limited + "os.execv(sys.argv[1], sys.argv[1:])", *SWITCHBOARD]
    with ExitStack() as stack:
        lines: list[str] = []
        while not lines:
            host = stack.enter_context(Host(start, cwd=shared))
            host.initialize()
            assert host.call("mock_suite", "echo", message="x")["content"][0]["text"] == "x"
            lines = [line for line in host.stderr.splitlines() if "broker.none" in line]
        assert "ulimit -n" in lines[0] or "Too many open files" in lines[0]


def test_a_process_that_goes_without_reading_the_reply_ends_its_session(shared: Path) -> None:
    with Host(SWITCHBOARD, cwd=shared) as host:
        host.initialize()
        folder = address.runtime_folder(os.environ)
        name = address.broker_name(os.path.realpath(shared), None, os.environ)
        ours, theirs = socket.socketpair(), socket.socketpair()
        journal = os.memfd_create("test")
        hello = shim.encode_hello("join", __version__, ["--workspace", str(shared)], os.environ)
        connection = shim.connect(address.socket_address(os.path.join(folder, name)))
        descriptors = (ours[1].fileno(), theirs[1].fileno(), 2, journal)
        shim.send_hello(connection, hello, descriptors)
        until(lambda: select.select([connection.fileno()], [], [], 0)[0], "the reply")
        connection.close()
        os.close(journal)
        for pair in (ours, theirs):
            pair[1].close()
            pair[0].settimeout(PATIENCE_S)
            assert pair[0].recv(1) == b"", "the broker has closed it"
            pair[0].close()


def test_a_broker_that_hangs_is_named_and_further_sessions_are_served_alone(shared: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(Host(SWITCHBOARD, cwd=shared))
        first.initialize()
        broker = server_of(first)
        lock = Path(socket_of(shared) + ".lock")
        lock.write_bytes(b"")  # as if its disk had been full
        os.kill(broker, signal.SIGSTOP)
        try:
            second = stack.enter_context(Host(SWITCHBOARD, cwd=shared))
            second.initialize()
            (line,) = [line for line in second.stderr.splitlines() if "broker.none" in line]
            assert f"pid {broker}" in line
            assert server_of_process(second)
            assert broker_pid(socket_of(shared)) == broker
        finally:
            os.kill(broker, signal.SIGCONT)
        for host in (first, second) * 3:
            assert host.call("mock_suite", "echo", message="x")["content"][0]["text"] == "x"


def socket_of(workspace: Path) -> str:
    """The socket of the broker of a workspace."""
    name = address.broker_name(os.path.realpath(workspace), None, os.environ)
    return os.path.join(address.runtime_folder(os.environ), name)


def server_of_process(host: Host) -> bool:
    """Whether the process that the host has started serves it itself: it has not become a shell."""
    return Path(f"/proc/{host.process.pid}/comm").read_text().strip() != "sh"
