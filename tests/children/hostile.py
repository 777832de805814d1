"""A child that attacks the processes that would end it: `hostile.py ATTACK FOLDER`.

At its start it leaves a daemon that has left session and group, ignores signals, and waits for the file `go` in the
folder. Then the daemon attacks the reaper, the launcher or both, and writes the file `done`. The child itself ignores
SIGTERM and the end of its input. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.children.plain_child import Child

PTRACE_ATTACH = 16


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def send(number: signal.Signals) -> Callable[[int], None]:
    def attack(pid: int) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    return attack


def trace(pid: int) -> None:
    """Attach as a debugger, which stops it. Fails without the right to do so."""
    ctypes.CDLL(None, use_errno=True).ptrace(PTRACE_ATTACH, pid, None, None)


stop, kill = send(signal.SIGSTOP), send(signal.SIGKILL)


def attack(name: str, reaper: int, launcher: int, done: Callable[[], None]) -> None:
    verb, _, target = name.partition(" ")
    targets = {"reaper": [reaper], "launcher": [launcher], "both": [launcher, reaper]}[target]
    if verb == "keeps-stopping":
        done()
        while True:  # as fast as it can, whoever continues them
            for pid in targets:
                stop(pid)
    for pid in targets:
        {"stops": stop, "kills": kill, "traces": trace}[verb](pid)
    done()
    time.sleep(3600)


def run_daemon(name: str, folder: Path, reaper: int) -> None:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    launcher = parent(reaper)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    (folder / "pid").write_text(str(os.getpid()))
    while not (folder / "go").exists():
        time.sleep(0.01)
    attack(name, reaper, launcher, (folder / "done").touch)


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    reaper = os.getppid()
    if os.fork() == 0:
        run_daemon(name, folder, reaper)
    os.wait()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Child().serve()
    time.sleep(3600)


main()
