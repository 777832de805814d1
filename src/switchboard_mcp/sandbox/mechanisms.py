"""The command line of bubblewrap. Pure.

bubblewrap makes the namespaces and the view of a plan; the rest of the plan is applied inside, by `confine`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

# What `confine` needs inside bubblewrap until it gives all of it up: routes, ports below 1024, terminals, privileges.
CAPABILITIES = ("CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_SETPCAP", "CAP_SYS_ADMIN")


def bubblewrap_argv(
    program: str, mounts: Iterable[tuple[str, bytes, Any]], own_network: bool, command: Sequence[str]
) -> list[str]:
    """Return the command line of bubblewrap for the view of a plan."""
    argv = [program, "--unshare-user", "--unshare-ipc", "--unshare-pid", "--die-with-parent", "--clearenv"]
    argv += ["--unshare-net"] if own_network else []
    for name in CAPABILITIES:
        argv += ["--cap-add", name]
    for kind, path, argument in mounts:
        argv += _bubblewrap_mount(kind, os.fsdecode(path), argument)
    return [*argv, "--remount-ro", "/", "--chdir", "/", "--", *command]


def _bubblewrap_mount(kind: str, path: str, argument: Any) -> list[str]:
    if path == "/proc":  # of its own processes only
        return ["--proc", path]
    if kind == "tmp":
        return ["--perms", "1777", "--size", str(argument), "--tmpfs", path]
    if kind == "empty":
        inside = ["--dir", path + os.fsdecode(argument)] if argument else []
        return ["--perms", "0755", "--size", "4096", "--tmpfs", path, *inside, "--remount-ro", path]
    if kind in (
        "dir",
        "pts",
    ):  # `confine` mounts the terminals: `--dev` would take away its rights to the network
        return ["--dir", path]
    if kind == "kept":  # bubblewrap follows links: it cannot mount on one
        return []
    if kind == "link":
        return ["--symlink", os.fsdecode(argument), path]
    return [{"ro": "--ro-bind", "rw": "--bind", "pin": "--bind", "dev": "--dev-bind"}[kind], path, path]
