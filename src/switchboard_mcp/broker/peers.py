"""Checks that a client of the broker has the rights that the broker has, neither more nor less.

A process in a sandbox must not start children outside of it by way of the broker.
"""

from __future__ import annotations

import os
import socket
import sys

NAMESPACES = ("user", "mnt", "pid", "net")
# Lines of `/proc/PID/status` that must be equal.
RIGHTS = ("Uid:", "Gid:", "Groups:", "NoNewPrivs:", "Seccomp:", "CapEff:", "CapBnd:")
NO_NEW_PRIVILEGES = "NoNewPrivs:\t1"


def check_peer(connection: socket.socket) -> str:
    """Return why a client may not use this process; empty if it may."""
    if sys.platform != "linux":
        raise OSError("This needs Linux.")
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, user = (int.from_bytes(peer[at : at + 4], sys.byteorder) for at in (0, 4))
    if user != os.getuid():
        return "it belongs to another user"
    try:
        theirs, ours = (_rights(number) for number in (str(pid), "self"))
    except OSError as problem:
        return f"the rights of the process cannot be read: {problem}"
    if theirs != ours:
        return "its sandbox or its rights differ"
    if NO_NEW_PRIVILEGES in theirs:  # perhaps a sandbox that /proc does not show (Landlock)
        return "it runs without the right to gain privileges, perhaps in a sandbox"
    return ""


def _rights(process: str) -> list[str]:
    with open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as status:
        lines = [line.rstrip() for line in status if line.startswith(RIGHTS)]
    lines += [os.readlink(f"/proc/{process}/ns/{name}") for name in NAMESPACES]
    try:
        with open(f"/proc/{process}/attr/current", encoding="utf-8", errors="replace") as label:
            lines.append(label.read())
    except OSError:
        lines.append("no security module")
    return lines
