"""Checks that both sides of a connection have the same rights, neither more nor less.

A process in a sandbox must not start children outside of it by way of the broker, and must not take the broker's place
to get the pipes and variables of a session outside. Used before anything is imported, so it imports only what is
built in.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` takes a millisecond to be imported
import _socket
import errno
import os
import sys

# Lines of `/proc/PID/status` that must be equal.
RIGHTS = ("Uid:", "Gid:", "Groups:", "NoNewPrivs:", "Seccomp", "Cap")
NO_NEW_PRIVILEGES = "NoNewPrivs:\t1"
# The hard limit of a line of `/proc/PID/limits`. A process may change the soft one itself.
LIMIT_NAME, HARD_LIMIT = slice(0, 25), slice(47, 67)
UCRED_BYTES = 12  # pid, uid and gid
SO_PEERPIDFD = 77  # Linux 6.5
IN_SANDBOX = "it runs without the right to gain privileges, perhaps in a sandbox"


class PeerEndedError(OSError):
    """The process on the other side of a connection has ended."""


def peer_of(connection: _socket.socket) -> tuple[int, int]:
    """Return the process that has connected, or has begun to listen, and its user."""
    if sys.platform != "linux":
        raise OSError("This needs Linux.")
    peer = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, UCRED_BYTES)
    return int.from_bytes(peer[0:4], sys.byteorder), int.from_bytes(peer[4:8], sys.byteorder)


def check_peer(connection: _socket.socket) -> str:
    """Return why the process on the other side has other rights than this one; empty if it has the same.

    Raises PeerEndedError if it has ended: its number may be that of another process by now.
    """
    pid, user = peer_of(connection)
    if user != os.getuid():
        return "it belongs to another user"
    try:
        handle = _open_process(connection, pid)
        try:
            theirs, ours = _rights(str(pid)), _rights("self")
            _signal.pidfd_send_signal(handle, 0)  # as long as it lives, the number is its own
        finally:
            os.close(handle)
    except ProcessLookupError:
        raise PeerEndedError(errno.ESRCH, "the process has ended") from None
    except OSError as problem:
        return f"the rights of the process cannot be read: {problem}"
    if theirs != ours:
        names = sorted({line.split(":")[0].strip() for line in theirs ^ ours})
        return f"its sandbox or its rights differ ({', '.join(names[:3])})"
    return IN_SANDBOX if NO_NEW_PRIVILEGES in ours else ""


def is_confined() -> bool:
    """Return True if this process may be in a sandbox that /proc does not show (Landlock), so it shares nothing."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as status:
        return any(line.rstrip() == NO_NEW_PRIVILEGES for line in status)


def hard_limits(process: str = "self") -> list[str]:
    """Return the limits that a process cannot raise."""
    if sys.platform != "linux":
        return []
    with open(f"/proc/{process}/limits", encoding="utf-8") as limits:
        return [f"{line[LIMIT_NAME].strip()}: {line[HARD_LIMIT].strip()}" for line in limits]


def _open_process(connection: _socket.socket, pid: int) -> int:
    """Return a descriptor of the process on the other side. Raises ProcessLookupError if it has ended."""
    if sys.platform != "linux":
        raise OSError("This needs Linux.")
    try:
        handle = connection.getsockopt(_socket.SOL_SOCKET, SO_PEERPIDFD, 4)
    except OSError as problem:
        if problem.errno in (errno.ESRCH, errno.EINVAL):
            raise ProcessLookupError(errno.ESRCH, "the process has ended") from None
        if problem.errno != errno.ENOPROTOOPT:
            raise
        return os.pidfd_open(pid)  # an older kernel
    return int.from_bytes(handle, sys.byteorder)


def _rights(process: str) -> set[str]:
    folder = f"/proc/{process}"
    with open(f"{folder}/status", encoding="utf-8", errors="replace") as status:
        lines = {line.rstrip() for line in status if line.startswith(RIGHTS)}
    lines |= {
        f"namespace {name}: {os.readlink(f'{folder}/ns/{name}')}" for name in os.listdir(f"{folder}/ns")
    }
    lines.add(f"root folder: {os.readlink(f'{folder}/root')}")
    lines.update(hard_limits(process))
    try:
        with open(f"{folder}/attr/current", encoding="utf-8", errors="replace") as label:
            lines.add(f"security label: {label.read()}")
    except OSError:
        pass  # no security module
    return lines
