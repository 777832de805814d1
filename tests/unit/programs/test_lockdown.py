"""The confinement of helper and worker, tried with native calls, as an interpreter that was taken over could make."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from switchboard_mcp.programs.helper import lockdown
from switchboard_mcp.sandbox import confine
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

KILLED = -signal.SIGSYS
# An operation, and its result in the worker and in the helper: 0, an error, or the end of the process.
TABLE = {
    "read a file": (errno.EACCES, errno.EPERM),
    "read a library": (0, errno.EPERM),
    "write a file": (errno.EACCES, errno.EPERM),
    "list a folder": (errno.EACCES, errno.EPERM),
    "run a program": (errno.EACCES, errno.EPERM),
    "fork": (KILLED, errno.EPERM),
    "socket": (KILLED, errno.EPERM),
    "signal the parent": (KILLED, errno.EPERM),
    "raise a limit": (errno.EPERM, errno.EPERM),
    "delete a file": (KILLED, errno.EPERM),
    "trace": (KILLED, errno.EPERM),
    "share memory": (KILLED, errno.EPERM),
}


def attempt(operation: str, path: str) -> None:
    """Try one operation. Raises OSError."""
    import resource

    actions: dict[str, Callable[[], object]] = {
        "read a file": lambda: os.open(path, os.O_RDONLY),
        "read a library": lambda: os.open("/etc/ld.so.cache", os.O_RDONLY),
        "write a file": lambda: os.open(path, os.O_WRONLY),
        "list a folder": lambda: os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY),
        "run a program": lambda: os.execve("/bin/ls", ["ls"], {}),
        "fork": os.fork,
        "socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "signal the parent": lambda: os.kill(os.getppid(), 0),
        "raise a limit": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE),
        "delete a file": lambda: os.unlink(path),
        "trace": lambda: confine.call(101 if confine.machine() == "x86_64" else 117, 0, 0, 0, 0),
        "share memory": lambda: os.memfd_create("x"),
    }
    actions[operation]()


def confine_worker() -> None:
    plan = lockdown.worker_plan("/bin/true", 64, lockdown.landlock_abi())
    confine.drop_privileges()
    confine.restrict_files(plan["landlock"])  # type: ignore[arg-type]
    confine.filter_calls(plan["seccomp"])  # type: ignore[arg-type]


def confine_helper() -> None:
    confine.drop_privileges()
    lockdown.enter_last(os.getpid())


def result(role: Callable[[], None], operation: str, path: str) -> int:
    """Return the outcome of an operation in a forked process: an error number, or minus a signal."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            role()
            attempt(operation, path)
            code = 0
        except OSError as problem:
            code = problem.errno or 254
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(confine.machine() not in confine.SECCOMP, reason="no filter for this architecture")
def test_a_worker_and_a_helper_that_were_taken_over_reach_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("secret")
    ran = subprocess.run(
        [sys.executable, __file__, str(file)], capture_output=True, text=True, timeout=PATIENCE_S, check=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    outcomes = dict(line.split("\t") for line in ran.stdout.splitlines())
    has_landlock = bool(lockdown.landlock_abi())
    for operation, (worker, helper) in TABLE.items():
        assert outcomes[f"helper {operation}"] == str(helper), operation
        if has_landlock or worker == KILLED:
            # A limit of another process is either refused or the end.
            allowed = {str(worker), str(KILLED)} if operation == "raise a limit" else {str(worker)}
            assert outcomes[f"worker {operation}"] in allowed, operation
    assert file.read_text() == "secret"


if __name__ == "__main__":
    for name, role in (("worker", confine_worker), ("helper", confine_helper)):
        for operation in TABLE:
            print(f"{name} {operation}\t{result(role, operation, sys.argv[1])}", flush=True)
