"""Command lines of other programs that make a sandbox: bubblewrap, Docker, podman and macOS's `sandbox-exec`.

Pure: words and paths in, argv out. bubblewrap makes the namespaces and the view of a plan; the rest of the plan is
applied inside, by `confine`. A container takes its system from an image, and the child's own files from here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from switchboard_mcp.config.sandbox import SandboxWords
from switchboard_mcp.sandbox.macos import macos_profile
from switchboard_mcp.sandbox.plan import TMP, Launch, SandboxPlan
from switchboard_mcp.sandbox.programs import is_system

MIB = 1 << 20
SANDBOX_EXEC = "/usr/bin/sandbox-exec"
# What `confine` needs inside bubblewrap until it gives all of it up: routes, ports below 1024, terminals, privileges.
CAPABILITIES = ("CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_SETPCAP", "CAP_SYS_ADMIN")
# Variables of the client of Docker or podman itself. A child's own value is passed by value, not by name.
CLIENT_ENV = ("HOME", "PATH", "TMPDIR", "USER", "XDG_RUNTIME_DIR")
CLIENT_PREFIXES = ("CONTAINER_", "CONTAINERS_", "DOCKER_", "REGISTRY_AUTH_FILE")


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
        return ["--perms", "0755", "--size", "4096", "--tmpfs", path, "--remount-ro", path]
    if kind in (
        "dir",
        "pts",
    ):  # `confine` mounts the terminals: `--dev` would take away its rights to the network
        return ["--dir", path]
    if kind == "link":
        return ["--symlink", os.fsdecode(argument), path]
    return [{"ro": "--ro-bind", "rw": "--bind", "pin": "--bind", "dev": "--dev-bind"}[kind], path, path]


def container_argv(
    program: str, name: str, words: SandboxWords, plan: SandboxPlan, launch: Launch, user: tuple[int, int]
) -> list[str]:
    """Return the command line of Docker or podman. `launch` is the child's own, `plan` has its paths."""
    limits = words.limits
    argv = [program, "run", "--rm", "--interactive", "--init", "--name", name]
    argv += ["--network", "bridge" if words.network in ("all", "hosts") else "none", "--ipc", "private"]
    argv += ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    argv += ["--security-opt", "label=disable", "--workdir", plan.launch.cwd]
    argv += ["--user", f"{user[0]}:{user[1]}"]
    argv += ["--userns", "keep-id"] if os.path.basename(program) == "podman" and user[0] else []
    if "memoryMb" in limits:
        argv += ["--memory", f"{limits['memoryMb']}m", "--memory-swap", f"{limits['memoryMb']}m"]
    if "processes" in limits:
        argv += ["--pids-limit", str(limits["processes"])]
    for option, value in _ulimits(limits):
        argv += ["--ulimit", f"{option}={value}:{value}"]
    size = limits.get("tmpMb", 64)
    argv += ["--tmpfs", f"{TMP}:rw,nosuid,nodev,mode=1777,size={size}m", "--shm-size", f"{size}m"]
    for mount in _container_mounts(plan):
        argv += ["--mount", mount]
    for variable in container_env(plan.launch.env):
        argv += ["--env", variable]
    own = plan.launch.argv[0]
    command = launch.argv[0] if is_system(own) else own
    return [*argv, "--entrypoint", command, words.image, *plan.launch.argv[1:]]


def _ulimits(limits: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    yield "core", 0
    for name, option, unit in (
        ("cpuSeconds", "cpu", 1),
        ("openFiles", "nofile", 1),
        ("fileSizeMb", "fsize", MIB),
    ):
        if name in limits:
            yield option, limits[name] * unit


def _container_mounts(plan: SandboxPlan) -> Iterator[str]:
    """Yield the child's own files: the image has the system's."""
    for path in plan.read:
        if not is_system(path) and path not in plan.write:
            yield _bind(path, readonly=True)
    for path in plan.write:
        yield _bind(path, readonly=False)
    for path in plan.protect:
        yield _bind(path, readonly=True)
    for path in plan.hidden:
        yield f"type=tmpfs,{_field('destination', path)},tmpfs-size=4096,tmpfs-mode=0555"


def _bind(path: str, *, readonly: bool) -> str:
    return f"type=bind,{_field('source', path)},{_field('target', path)}{',readonly' if readonly else ''}"


def _field(name: str, value: str) -> str:
    """Return one field of a mount, which is written as CSV."""
    text = f"{name}={value}"
    if any(char in text for char in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


def container_env(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the variables of a child: by name, so other users see no value, unless the client needs its own.

    PATH is the image's.
    """
    for name, value in env.items():
        if name in CLIENT_ENV or name.startswith(CLIENT_PREFIXES):
            if name != "PATH":
                yield f"{name}={value}"
        else:
            yield name


def client_env(env: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the client itself: its own, and those that it passes on by name."""
    own = {
        name: value
        for name, value in environ.items()
        if name in CLIENT_ENV or name.startswith(CLIENT_PREFIXES)
    }
    return {**env, **own}


def seatbelt_argv(words: SandboxWords, plan: SandboxPlan) -> list[str]:
    """Return the command line of `sandbox-exec`, which replaces itself by the program."""
    profile = macos_profile(
        plan.read,
        [*plan.write, plan.launch.env["TMPDIR"]],
        plan.protect,
        words.network,
        hidden=plan.hidden,
        may_spawn=words.processes is True,
        programs=plan.executables,
    )
    return [SANDBOX_EXEC, "-p", profile, *plan.launch.argv]
