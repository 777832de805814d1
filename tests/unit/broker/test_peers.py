"""Both sides of the broker's socket must have the same rights: a process in a sandbox is on neither."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from switchboard_mcp.broker.peers import PeerEndedError, check_peer, peer_of
from tests.cases import each_case

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the broker needs Linux")

UNSHARE = "libc.unshare({flag:#x}) and fail()"
# Each leaves a process with other rights than this one.
RESTRICTIONS = {
    "no new privileges": "libc.prctl(38, 1, 0, 0, 0) and fail()",
    "seccomp": """
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]
allow = struct.pack("HBBI", 6, 0, 0, 0x7FFF0000)
libc.prctl(22, 2, ctypes.byref(Filter(1, allow)), 0, 0) and fail()""",
    "capability": "libc.prctl(24, 0, 0, 0, 0) and fail()",
    "groups": "os.setgroups([54321])",
    "hard limit": "resource.setrlimit(resource.RLIMIT_CPU, (600, 601))",
    "chroot": "os.chroot('.')",
    "user": UNSHARE.format(flag=0x10000000),
    "mount": UNSHARE.format(flag=0x00020000),
    "pid": UNSHARE.format(flag=0x20000000),
    "network": UNSHARE.format(flag=0x40000000),
    "ipc": UNSHARE.format(flag=0x08000000),
    "host name": UNSHARE.format(flag=0x04000000),
    "control groups": UNSHARE.format(flag=0x02000000),
    "none": "",
}
# Restricts itself, connects or listens by a relative path, and waits. Exits with 77 if this user cannot.
PROCESS = """
import ctypes, os, resource, socket, struct, sys
libc = ctypes.CDLL(None)
def fail():
    os._exit(77)
peer = socket.socket(socket.AF_UNIX)
try:
    exec(sys.argv[2])
except (OSError, ValueError):
    fail()
if sys.argv[1] == "connect":
    peer.connect("socket")
else:
    peer.bind("socket")
    peer.listen()
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def restricted(role: str, restriction: str, folder: Path) -> Iterator[None]:
    """A process on one side of the socket in a folder; skips if it cannot be restricted so."""
    command = [sys.executable, "-I", "-c", PROCESS, role, restriction]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe) as process:
        assert process.stdout
        if not process.stdout.readline():
            assert process.wait() == 77
            pytest.skip("this user may not do that")
        yield
        process.communicate()


@each_case("role", ["connect", "listen"])
@each_case("name", RESTRICTIONS)
def test_a_process_with_other_rights_is_on_neither_side(
    name: str, role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as own:
        if role == "connect":
            own.bind("socket")
            own.listen()
        with restricted(role, RESTRICTIONS[name], tmp_path):
            if role == "connect":
                peer = own.accept()[0]
            else:
                own.connect("socket")
                peer = own
            with peer:
                problem = check_peer(peer)
    assert bool(problem) is (name != "none"), problem


def test_a_process_is_not_taken_for_the_next_one_with_its_number(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    connect = "import socket,sys; socket.socket(fileno=int(sys.argv[1])).connect(sys.argv[2])"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(path)
        listener.listen()
        command = [sys.executable, "-I", "-c", connect, str(client.fileno()), path]
        subprocess.run(command, pass_fds=[client.fileno()], check=True)
        with listener.accept()[0] as peer, successor_of(peer_of(peer)[0]), pytest.raises(PeerEndedError):
            check_peer(peer)


@contextmanager
def successor_of(pid: int) -> Iterator[None]:
    """A process with the number of one that has ended; skips if this user cannot have it."""
    for _ in range(50):  # others start processes too
        try:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        except OSError:
            pytest.skip("only root can choose the number of a process")
        with subprocess.Popen([sys.executable, "-I", "-c", "input()"], stdin=subprocess.PIPE) as process:
            try:
                if process.pid == pid:
                    yield
                    return
            finally:
                process.kill()
    pytest.skip("other processes took the number")


def test_a_socket_of_this_process_has_its_rights() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert peer_of(one) == (os.getpid(), os.getuid())
        assert check_peer(one) == ""
