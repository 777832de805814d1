"""Confines the helper process and its worker: limits, no privileges, Landlock, and filters of system calls.

The worker may use the calls in `WORKER_CALLS` and is killed for any other; it reads libraries only. The helper gives up
opening files and starting processes once its worker runs. A kernel without Landlock or seccomp leaves these steps out,
and on systems other than Linux only the limits hold; any other step that fails ends the start.
"""

from __future__ import annotations

import marshal
import os
import resource
import shlex
import struct
import sys
import sysconfig

from switchboard_mcp.sandbox import confine, seccomp

EXECUTE, READ_FILE, READ_DIR = 1, 4, 8
READ = READ_FILE | READ_DIR
RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}  # number of bits; 16 from 5
GET_ACTION_AVAIL = 2  # of seccomp(2)
ALL_TCP, SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store", "/etc/ld.so.cache")
PROGRAMS = ("/bin", "/usr/bin", "/usr/local/bin")
LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker_launcher.py")

THREADS = ("clone", "clone3", "futex", "gettid", "rseq", "set_robust_list", "sched_yield", "sigaltstack")
MEMORY = ("brk", "madvise", "mmap", "mprotect", "mremap", "munmap")
BOTH = (
    "read", "write", "futex", *MEMORY, *THREADS, "clock_gettime", "clock_nanosleep", "close", "exit", "exit_group",
    "fstat", "getpid", "getrandom", "lseek", "membarrier", "nanosleep", "newfstatat", "poll", "ppoll", "readv",
    "restart_syscall", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sched_getaffinity", "writev",
)  # fmt: skip
WORKER_CALLS = (
    *BOTH, "access", "arch_prctl", "execve", "faccessat", "openat", "prctl", "pread64", "prlimit64",
    "set_tid_address", "statx",
)  # fmt: skip
HELPER_CALLS = (*BOTH, "epoll_ctl", "epoll_pwait", "epoll_wait", "fcntl", "kill", "wait4", "waitid")

MIB = 1024 * 1024
# The worker needs about 300 MiB of addresses besides the memory of the program.
ADDRESSES = 1024 * MIB
# Descriptors of the helper: pipes, the client's event loop, and those of its threads.
OPEN_FILES = 64


def limits(memory_mb: int) -> list[tuple[int, int]]:
    """Return the resource limits of both processes, for the memory that a program may use."""
    return [
        (resource.RLIMIT_AS, ADDRESSES + 4 * memory_mb * MIB),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
    ]


def worker_plan(binary: str, memory_mb: int, abi: int) -> dict[str, object]:
    """Return the plan of the worker for `worker_launcher`."""
    readable = [(path, READ) for path in LIBRARIES]
    loaders = [(os.path.realpath(path), READ | EXECUTE) for path in _loaders()]
    return {
        "limits": limits(memory_mb),
        "landlock": landlock(abi, [*readable, *loaders, (binary, READ_FILE | EXECUTE)]),
        "seccomp": seccomp.assemble_only(confine.machine(), WORKER_CALLS, kill=True)
        if has_seccomp()
        else b"",
    }


def _loaders() -> list[str]:
    loaders = []
    for folder in ("/lib64", "/lib", "/lib/ld-linux-aarch64.so.1"):
        if os.path.isfile(folder):
            loaders.append(folder)
        elif os.path.isdir(folder):
            loaders += [f"{folder}/{name}" for name in os.listdir(folder) if name.startswith("ld-")]
    return loaders


def landlock(abi: int, rules: list[tuple[str, int]]) -> tuple[bytes, list[tuple[bytes, int]]] | None:
    """Return the rules for an ABI of Landlock, which also refuse TCP and signals where it can; None without it."""
    if not abi:
        return None
    handled = (1 << RIGHTS_BY_ABI.get(abi, 16)) - 1
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    attributes = struct.pack("QQQ", handled, ALL_TCP if abi >= 4 else 0, SCOPES if abi >= 6 else 0)[:size]
    return attributes, [(os.fsencode(path), rights) for path, rights in rules]


def landlock_abi() -> int:
    """Return the ABI of Landlock that this kernel offers, 0 if none."""
    try:
        return confine.call(confine.LANDLOCK_CREATE, 0, 0, 1)
    except OSError:
        return 0


def has_seccomp() -> bool:
    """Return True if this kernel can kill a process by a filter, on an architecture that there is a filter for."""
    if sys.platform != "linux" or confine.machine() not in confine.SECCOMP:
        return False
    try:
        confine.call(confine.SECCOMP[confine.machine()], GET_ACTION_AVAIL, 0, struct.pack("I", seccomp.KILL))
    except OSError:
        return False
    return True


def worker_command(binary: str, memory_mb: int) -> str:
    """Return the program that the client starts as its worker: a script in memory that confines it, then becomes it."""
    if sys.platform != "linux":
        return binary
    plan = marshal.dumps(worker_plan(binary, memory_mb, landlock_abi())).hex()
    words = [os.path.realpath(sys.executable), "-I", "-S", LAUNCHER, confine.__file__, plan, binary]
    script = f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'
    descriptor = os.memfd_create("worker", 0)
    os.write(descriptor, script.encode())
    return f"/proc/self/fd/{descriptor}"


def enter_first(memory_mb: int) -> list[str]:
    """Give up privileges, and files other than programs and libraries; before the worker is started.

    Returns the names of what holds now.
    """
    confine.set_limits(limits(memory_mb))
    if sys.platform != "linux":
        return ["limits"]
    confine.drop_privileges()
    held = ["limits", "privileges"]
    folders = {
        *LIBRARIES, *PROGRAMS, sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable)),
        os.path.dirname(os.path.dirname(os.path.dirname(LAUNCHER))), sysconfig.get_path("scripts"),
    }  # fmt: skip
    rules = landlock(landlock_abi(), [(path, READ | EXECUTE) for path in sorted(folders)])
    if rules is not None:
        # It also holds for the threads that start later, and those of the client are started by the pool.
        confine.restrict_files(rules)
        held.append("landlock")
    return held


def enter_last(worker: int) -> list[str]:
    """Give up opening files, sockets and processes, in all threads; after the worker was started.

    The client ends a worker that computes on after its time, so this process may signal that one.
    """
    if not has_seccomp():
        return []
    rules = seccomp.assemble_only(confine.machine(), HELPER_CALLS, kill=False, may_signal=worker)
    confine.filter_calls(rules, confine.TSYNC)
    return ["seccomp"]
