"""The program that stands between Switchboard and each child process, so that no process is ever left behind.

Run by file name in a bare interpreter (`-I -S`): it imports the standard library only. One *launcher* serves a
Switchboard; for each child it forks a *keeper*. Bytes never pass through here: the child gets the pipes themselves.

    Switchboard ── launcher ── keeper ── child ── whatever the child starts
         └──────── lifeline ──────┘

The lifeline is a socket. The keeper reports on it, in lines: `started PID`, `error ERRNO WHERE`, `exited STATUS`. When
it ends (Switchboard closed it, or died however abruptly) the keeper ends everything beneath itself and goes. Each
keeper is a subreaper, so that even a daemonised grandchild stays beneath it; the launcher is one too, for the case that
a keeper is killed. Where the system has no subreapers (macOS), the child's process group is what is ended, and whoever
is beneath it at that moment; a daemon that has left both survives. That has not been tested.
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

PR_SET_CHILD_SUBREAPER = 36
# After TERM a process may tidy up this long; Switchboard itself has waited before, after closing stdin.
TERM_GRACE_S = 0.3
POLL_S = 0.01
# Who cannot be killed at all (another user's, or stuck in the kernel) is still waited for, without heating the room.
PATIENT_POLL_S = 0.5
PATIENT_AFTER_S = 2.0
FDS_IN_REQUEST = 4  # stdin, stdout, stderr, lifeline
# Python ignores the first two, a keeper handles or ignores the others; a child begins with none of that.
CHANGED_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM)

Request = tuple[list[bytes], dict[bytes, bytes], bytes]  # argv, environment, folder


def become_subreaper() -> None:
    """Adopt orphans from below, where the kernel can."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def family() -> dict[int, list[int]]:
    """Every living process by its parent, from one look at /proc, or at what `ps` says where there is none."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return family_by_ps()
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            if state not in b"ZX":
                children.setdefault(int(parent), []).append(int(name))
    return children


def family_by_ps() -> dict[int, list[int]]:
    """The same on macOS and other systems without /proc; empty where there is no `ps` either."""
    import subprocess

    children: dict[int, list[int]] = {}
    try:
        told = subprocess.run(
            ["/bin/ps", "-axo", "pid=,ppid=,stat="], capture_output=True, check=False
        ).stdout
    except OSError:
        return children
    for line in told.splitlines():
        pid, parent, state = line.split()[:3]
        if state[:1] not in b"ZX":
            children.setdefault(int(parent), []).append(int(pid))
    return children


def beneath(roots: list[int], children: dict[int, list[int]]) -> list[int]:
    """All descendants of `roots`."""
    found: list[int] = []
    todo = list(roots)
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def signal_all(pids: list[int], number: int) -> None:
    """Signal each; who is gone already is fine."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def signal_group(leader: int, number: int) -> None:
    """Signal a process group, if there is still one."""
    try:
        os.killpg(leader, number)
    except OSError:
        pass


def reap() -> tuple[dict[int, int], bool]:
    """Collect every child of ours that has ended, pid to wait status, and tell whether any is left.

    To a subreaper everybody beneath it becomes a child in the end, so when the kernel knows of no child, nobody is
    left at all. A look at /proc can miss who is forked meanwhile; this cannot.
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


def hear_of_children() -> int:
    """A descriptor that becomes readable when a child of ours has ended."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return wake_read


def serve(control: socket.socket) -> None:
    """The launcher: fork a keeper for each request until Switchboard is gone, and the keepers after it."""
    os.setsid()
    become_subreaper()
    wake = hear_of_children()
    keepers: set[int] = set()
    while True:
        ready, _, _ = select.select([control.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 512)
            bury(keepers)
        if control.fileno() in ready:
            request, fds = receive(control)
            if request is None:
                break
            pid = os.fork()
            if pid == 0:
                control.close()
                os.close(wake)
                keep(request, fds)
                os._exit(0)
            keepers.add(pid)
            for fd in fds:
                os.close(fd)
    while bury(keepers):
        os.read(wake, 512)


def bury(keepers: set[int]) -> bool:
    """Forget keepers that have ended. One that was killed leaves its tree to us: end that. False: nobody is left."""
    ended, any_left = reap()
    keepers.difference_update(ended)
    if ended and any_left:
        children = family()
        strays = [pid for pid in children.get(os.getpid(), []) if pid not in keepers]
        signal_all(strays + beneath(strays, children), signal.SIGKILL)
    return any_left


def receive(control: socket.socket) -> tuple[Request | None, list[int]]:
    """One request with its descriptors, or None at the end."""
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


def keep(request: Request, fds: list[int]) -> None:
    """The keeper: start the child, wait for its end or the lifeline's, end what is left, report."""
    os.setsid()
    become_subreaper()
    lifeline = socket.socket(fileno=fds[3])
    wake = hear_of_children()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    problem_read, problem_write = os.pipe()
    child = os.fork()
    if child == 0:
        become(request, fds, problem_write)
    os.close(problem_write)
    for fd in fds[:3]:
        os.close(fd)
    problem = os.read(problem_read, 100)
    os.close(problem_read)
    if problem:
        report(lifeline, b"error " + problem)
        return
    report(lifeline, b"started %d" % child)
    status: int | None = None
    while status is None:
        ready, _, _ = select.select([lifeline.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 512)
            status = reap()[0].get(child)
        if lifeline.fileno() in ready:
            break
    report(lifeline, b"exited %d" % end_all(child, status))


def become(request: Request, fds: list[int], problem_write: int) -> None:
    """In the forked process: turn into the child. Never returns."""
    argv, env, cwd = request
    where = b"exec"
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in CHANGED_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for target in range(3):
            os.dup2(fds[target], target)
        for fd in fds:
            os.close(fd)
        where = b"chdir"
        os.chdir(cwd)
        where = b"exec"
        os.execvpe(argv[0], argv, env)
    except OSError as problem:
        os.write(problem_write, b"%d %b" % (problem.errno or errno.EINVAL, where))
    except (ValueError, IndexError):  # a NUL byte somewhere, an equals sign in a variable's name, no argv
        os.write(problem_write, b"%d %b" % (errno.EINVAL, where))
    finally:  # whatever happens, this process must not go on as a second keeper
        os._exit(127)


def end_all(child: int, status: int | None) -> int:
    """End everything beneath: TERM, a moment, KILL, until nothing is left. Gives the child's wait status."""
    number = signal.SIGTERM
    began = time.monotonic()
    asked: set[int] = set()
    while True:
        ended, any_left = reap()
        status = ended.get(child, status)
        if not any_left:
            if sys.platform != "linux":  # without subreapers the group may live on
                signal_group(child, signal.SIGKILL)
            return status or 0
        left = beneath([os.getpid()], family())
        if status is None and child not in left:
            left.append(child)  # no /proc here
        spent = time.monotonic() - began
        if number == signal.SIGTERM and spent > TERM_GRACE_S:
            number = signal.SIGKILL
            asked.clear()
        new = [pid for pid in left if pid not in asked]
        signal_all(new, number)
        if child in new:
            signal_group(child, number)
        asked.update(new)
        time.sleep(POLL_S if spent < PATIENT_AFTER_S else PATIENT_POLL_S)


def report(lifeline: socket.socket, line: bytes) -> None:
    """Tell Switchboard, if it is still there."""
    try:
        lifeline.sendall(line + b"\n")
    except OSError:
        pass


if __name__ == "__main__":
    # The number came from a process that may have many files open; select takes small ones only.
    given = int(sys.argv[1])
    control = os.dup(given)
    os.close(given)
    serve(socket.socket(fileno=control))
