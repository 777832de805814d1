"""Programs under a pseudo-terminal. Each test runs in a process of its own, since forks want no threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.patience import PATIENCE_S
from tests.processes import lives

BEGIN = """
import os, select, signal, sys, time
from switchboard_mcp.transport.process.pty import TerminalGuard, StartError, PtyProcess

def run(*argv, size=(80, 24), **environ):
    terminal = PtyProcess(argv, {**os.environ, **environ}, size)
    terminal.start()
    return terminal

def written(terminal, until=None):
    data = b""
    while until is None or until not in data:
        select.select([terminal.master], [], [], 20)
        try:
            part = os.read(terminal.master, 4096)
        except OSError:
            break
        if not part:
            break
        data += part
    return data

def code(terminal):
    return os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1])
"""


def script(body: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + body, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_program_has_a_terminal_of_its_own_with_the_size_it_was_given() -> None:
    result = script(
        """
look = "tty; stty size; echo $NOTE; test -t 0 && echo keyboard; exec 3</dev/tty && echo owns"
t = run("sh", "-c", look, size=(91, 33), NOTE="passed")
print(written(t).decode())
print(code(t))
"""
    ).split()
    assert result[0].startswith("/dev/")
    assert result[1:] == ["33", "91", "passed", "keyboard", "owns", "0"]


def test_a_new_size_reaches_the_program() -> None:
    result = script(
        """
t = run("sh", "-c", "trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.1; done")
written(t, b"ready")
t.resize(120, 50)
print(written(t).decode().split())
print(code(t))
"""
    )
    assert "'50', '120'" in result
    assert result.split()[-1] == "5"


def test_keys_arrive_and_the_foreground_is_known() -> None:
    result = script(
        """
t = run("cat")
os.write(t.master, b"hello\\r")
print(b"hello" in written(t, b"hello\\r\\nhello"), t.foreground() == t.pid)
os.write(t.master, b"\\x04")
print(code(t))
"""
    )
    assert result.split() == ["True", "True", "0"]


def test_a_program_that_cannot_be_run_is_reported_and_leaves_nobody(tmp_path: Path) -> None:
    file = tmp_path / "no-program"
    file.write_text("just text")
    result = script(
        """
try:
    run(sys.argv[1])
except StartError as problem:
    print(problem.code)
""",
        str(file),
    )
    assert result.strip() == "13"


def test_without_a_start_the_program_never_runs(tmp_path: Path) -> None:
    script(
        """
t = PtyProcess(["touch", sys.argv[1]], dict(os.environ), (80, 24))
t.hang_up()
assert code(t) in (127, -signal.SIGHUP)  # closing the terminal may signal it before it reads the end of the pipe
""",
        str(tmp_path / "touched"),
    )
    assert not (tmp_path / "touched").exists()


KILLED = """
guard = TerminalGuard(os.open(os.devnull, os.O_RDWR), None)
# One that does not mind being hung up.
t = run("sh", "-c", "trap '' HUP TERM; echo ready; while :; do sleep 0.2; done")
guard.watch(t.pid)
written(t, b"ready")
print(t.pid, guard.pid, flush=True)
if sys.argv[1] == "dismiss":
    t.hang_up()
    t.signal(signal.SIGKILL)
    code(t)
    guard.dismiss()
else:
    time.sleep(60)
"""


def test_a_process_that_ignores_sighup_ends_when_its_owner_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN + KILLED, "kill"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        program, guard = (psutil.Process(int(pid)) for pid in process.stdout.readline().split())
        os.kill(process.pid, signal.SIGKILL)
        gone, alive = psutil.wait_procs([program, guard], timeout=PATIENCE_S)
        assert not alive, gone


def test_the_guard_goes_with_a_farewell() -> None:
    pids = script(KILLED, "dismiss").split()
    assert not any(lives(int(pid)) for pid in pids)
