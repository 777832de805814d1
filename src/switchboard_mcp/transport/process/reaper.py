"""The program between Switchboard and each child process, so no process is ever left behind.

Run by file name in a bare interpreter (`-I -S`): it imports the standard library only. One *launcher* serves a
Switchboard; for each child it forks a *reaper*. Bytes never pass through here: the child gets the pipes themselves.

    Switchboard ── launcher ── reaper ── child ── whatever the child starts
         └──────── lifeline ──────┘

The lifeline is a socket. The reaper reports on it, in lines: `started PID REAPER_PID`, `error ERRNO WHERE`,
`exited STATUS`. When it ends (Switchboard closed it, or died however abruptly) the reaper kills everything below itself
and exits. Each reaper is a subreaper, so even a daemonised grandchild stays below it; the launcher and Switchboard are
subreapers too, in case a child kills those below them. A child that stops a reaper or the launcher gains nothing: their
parent continues them, or kills a reaper and then what it was responsible for; if the parent has died, the kernel
continues them.

On systems without subreapers (macOS) the child's process group is killed, and whatever is below it at that moment; a
daemon that has left both survives. That has not been tested.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import signal
import socket
import sys
import time
from os import _exit
from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
# Time to clean up after SIGTERM. Switchboard has already waited, after closing stdin.
TERM_GRACE_S = 0.3
POLL_S = 0.01
# A process that cannot be killed (another user's, or stuck in the kernel) is still waited for, but polled rarely.
SLOW_POLL_S = 0.5
SLOW_POLL_AFTER_S = 2.0
# A reaper needs TERM_GRACE_S and a moment. One that takes longer after Switchboard has gone is stopped or traced.
REAPER_PATIENCE_S = 3.0
CONTINUE_S = 0.05
FDS_IN_REQUEST = 5  # stdin, stdout, stderr, lifeline, and with a sandbox the channel for its sockets
# Python ignores the first two, a reaper handles or ignores the others; a child must start with the defaults.
CHANGED_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM)

LATER = {"later": True}  # in place of a plan that follows
# argv, environment, folder, and perhaps the file of the sandbox module with its plan
Request = tuple[list[bytes], dict[bytes, bytes], bytes, "tuple[str, dict[str, Any]] | None"]


def become_subreaper(adopts: bool = True) -> None:
    """Adopt orphaned descendants from now on, or no longer, if the kernel supports it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0)


def resist_children() -> None:
    """Be continued by the kernel when the parent dies, and refuse to be traced by processes of the same user."""
    if sys.platform == "linux":
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def children_by_parent(zombies: bool = False) -> dict[int, list[int]]:
    """Map every process to its living children (and zombies), from /proc, or from `ps` if there is no /proc."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return children_by_ps(zombies)
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            if zombies or state not in b"ZX":
                children.setdefault(int(parent), []).append(int(name))
    return children


def children_by_ps(zombies: bool = False) -> dict[int, list[int]]:
    """Map processes to their children on macOS and other systems without /proc; empty if there is no `ps`."""
    import subprocess

    children: dict[int, list[int]] = {}
    try:
        output = subprocess.run(
            ["/bin/ps", "-axo", "pid=,ppid=,stat="], capture_output=True, check=False
        ).stdout
    except OSError:
        return children
    for line in output.splitlines():
        pid, parent, state = line.split()[:3]
        if zombies or state[:1] not in b"ZX":
            children.setdefault(int(parent), []).append(int(pid))
    return children


def descendants_of(roots: list[int], children: dict[int, list[int]]) -> list[int]:
    """Return all descendants of `roots`."""
    descendants: list[int] = []
    todo = list(roots)
    while todo:
        below = children.get(todo.pop(), [])
        descendants += below
        todo += below
    return descendants


def signal_all(pids: list[int], number: int) -> None:
    """Signal each process, ignoring those that have exited."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def signal_group(leader: int, number: int) -> None:
    """Signal a process group, if it still exists."""
    try:
        os.killpg(leader, number)
    except OSError:
        pass


def reap() -> tuple[dict[int, int], bool]:
    """Collect our children that have exited, pid to wait status; also return True if any child is left.

    Every descendant of a subreaper becomes its child in the end, so if the kernel knows no child, no process is left.
    Reading /proc can miss a process that is forked meanwhile; this cannot.
    """
    ended: dict[int, int] = {}
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return ended, True
            ended[pid] = status
    except ChildProcessError:
        return ended, False


def open_sigchld_pipe() -> int:
    """Return a descriptor that becomes readable when a child of ours exits."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return wake_read


def serve(control: socket.socket) -> None:
    """Run the launcher: fork a reaper per request until Switchboard is gone and all reapers have exited."""
    os.setsid()
    become_subreaper()
    resist_children()
    wake = open_sigchld_pipe()
    reapers: set[int] = set()
    while True:
        ready, _, _ = select.select([control.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 512)
            reap_reapers(reapers)
        if control.fileno() in ready:
            request, fds = receive(control)
            if request is None:
                break
            if request[3] is not None:
                load_sandbox(request[3][0])
            pid = os.fork()
            if pid == 0:
                control.close()
                os.close(wake)
                run_reaper(request, fds)
                _exit(0)
            reapers.add(pid)
            for fd in fds:
                os.close(fd)
    finish(reapers, wake)


def finish(reapers: set[int], wake: int) -> None:
    """Wait for all reapers after Switchboard has gone. Those that do not end are killed with everything below us."""
    began = time.monotonic()
    while reap_reapers(reapers):
        signal_all(list(reapers), signal.SIGCONT)
        spent = time.monotonic() - began
        if spent > REAPER_PATIENCE_S:
            signal_all(descendants_of([os.getpid()], children_by_parent()), signal.SIGKILL)
        pause = CONTINUE_S if spent < REAPER_PATIENCE_S + SLOW_POLL_AFTER_S else SLOW_POLL_S
        if select.select([wake], [], [], pause)[0]:
            os.read(wake, 512)


def reap_reapers(reapers: set[int]) -> bool:
    """Collect reapers that have exited and kill the trees of those that were killed; False if no process is left."""
    ended, any_left = reap()
    reapers.difference_update(ended)
    if ended and any_left:
        children = children_by_parent()
        strays = [pid for pid in children.get(os.getpid(), []) if pid not in reapers]
        signal_all(strays + descendants_of(strays, children), signal.SIGKILL)
    return any_left


def receive(control: socket.socket) -> tuple[Request | None, list[int]]:
    """Read one request with its descriptors; None at the end of the stream."""
    head, fds, _flags, _address = socket.recv_fds(control, 4, FDS_IN_REQUEST)
    if len(head) < 4:
        return None, fds
    size = int.from_bytes(head, "big")
    body = b""
    while len(body) < size:
        part = control.recv(size - len(body))
        if not part:
            return None, fds
        body += part
    return marshal.loads(body), fds


def run_reaper(request: Request, fds: list[int]) -> None:
    """Run the reaper: start the child, wait for its exit or the end of the lifeline, kill what is left, report."""
    os.setsid()
    become_subreaper()
    resist_children()
    lifeline = socket.socket(fileno=fds[3])
    wake = open_sigchld_pipe()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    problem_read, problem_write = os.pipe()
    child = os.fork()
    if child == 0:
        exec_child(request, fds, problem_write)
    os.close(problem_write)
    for fd in (*fds[:3], *fds[4:]):
        os.close(fd)
    problem = os.read(problem_read, 100)
    os.close(problem_read)
    if problem:
        report(lifeline, b"error " + problem)
        return
    report(lifeline, b"started %d %d" % (child, os.getpid()))
    status: int | None = None
    while status is None:
        ready, _, _ = select.select([lifeline.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 512)
            status = reap()[0].get(child)
        if lifeline.fileno() in ready:
            break
    report(lifeline, b"exited %d" % kill_tree(child, status))
    if os.getppid() > 1:  # the launcher, which the child may have stopped
        signal_all([os.getppid()], signal.SIGCONT)


def exec_child(request: Request, fds: list[int], problem_write: int) -> None:
    """Execute the child in the forked process. Never returns."""
    argv, env, cwd, sandbox = request
    where = b"exec"
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in CHANGED_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for target in range(3):
            os.dup2(fds[target], target)
        for fd in fds[:4]:
            os.close(fd)
        if sandbox is not None:
            where = b"sandbox"
            argv, env, cwd = enter_sandbox(request, socket.socket(fileno=fds[4]))
        where = b"chdir"
        os.chdir(cwd)
        where = b"exec"
        os.execvpe(argv[0], argv, env)
    except OSError as problem:
        step = os.fsencode(f":{problem.filename}") if where == b"sandbox" else b""
        os.write(problem_write, b"%d %b%b" % (problem.errno or errno.EINVAL, where, step))
    # A NUL byte, an equals sign in a variable's name, an empty argv, or a Switchboard that has sent no plan.
    except (ValueError, IndexError, EOFError):
        os.write(problem_write, b"%d %b" % (errno.EINVAL, where))
    finally:  # this process must never continue as a second reaper
        _exit(127)


def enter_sandbox(request: Request, channel: socket.socket) -> tuple[list[bytes], dict[bytes, bytes], bytes]:
    """Confine this process by a plan; return the program to become, with its environment and folder.

    The plan may be still in the making while this process is forked: `LATER` stands for it then, and it arrives on the
    channel. The module is loaded by its file: this interpreter has no packages.
    """
    argv, env, cwd, sandbox = request
    assert sandbox is not None
    file, plan = sandbox
    confine = load_sandbox(file)
    if not plan:
        confine.answer_probe(channel)
    if plan == LATER:
        argv, env, cwd, plan = confine.receive_launch(channel)
    confine.confine(plan, channel)
    channel.close()
    return argv, env, cwd


def load_sandbox(file: str) -> Any:
    """Return the module that applies sandbox plans. Loaded in the launcher with the first plan, for all after it."""
    if "sandbox" not in sys.modules:
        from importlib.util import module_from_spec, spec_from_file_location

        spec = spec_from_file_location("sandbox", file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules["sandbox"] = module
    return sys.modules["sandbox"]


def kill_tree(child: int, status: int | None) -> int:
    """Kill everything below us: SIGTERM, a grace period, SIGKILL, until nothing is left. Return the child's status."""
    number = signal.SIGTERM
    began = time.monotonic()
    signalled: set[int] = set()
    while True:
        ended, any_left = reap()
        status = ended.get(child, status)
        if not any_left:
            if sys.platform != "linux":  # without subreapers the group may have survived
                signal_group(child, signal.SIGKILL)
            return status or 0
        left = descendants_of([os.getpid()], children_by_parent())
        if status is None and child not in left:
            left.append(child)  # no /proc here
        spent = time.monotonic() - began
        if number == signal.SIGTERM and spent > TERM_GRACE_S:
            number = signal.SIGKILL
            signalled.clear()
        new = [pid for pid in left if pid not in signalled]
        signal_all(new, number)
        if child in new:
            signal_group(child, number)
        signalled.update(new)
        time.sleep(POLL_S if spent < SLOW_POLL_AFTER_S else SLOW_POLL_S)


def report(lifeline: socket.socket, line: bytes) -> None:
    """Send a report to Switchboard, if it is still there."""
    try:
        lifeline.sendall(line + b"\n")
    except OSError:
        pass


if __name__ == "__main__":
    # The parent may have many files open, so the number may be too large for select.
    inherited = int(sys.argv[1])
    control = os.dup(inherited)
    os.close(inherited)
    serve(socket.socket(fileno=control))
