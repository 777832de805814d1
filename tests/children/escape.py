"""Tries to leave a sandbox in every way that the matrix lists, and prints the outcome of each as one line of JSON.

Run as `escape.py JSON`, with the targets of the attempts. Imports the standard library only. "open" means that the
attempt succeeded; anything else is the error.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

TARGETS: dict[str, Any] = json.loads(sys.argv[1])
ATTEMPTS: dict[str, Callable[[], Any]] = {}
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
AARCH64 = os.uname().machine == "aarch64"


def attempt(function: Callable[[], Any]) -> Callable[[], Any]:
    ATTEMPTS[function.__name__] = function
    return function


def syscall(number: int, *words: object) -> int:
    given = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    result = int(libc.syscall(ctypes.c_long(number), *given))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def target(*parts: str) -> str:
    return os.path.join(TARGETS["outside"], *parts)


def inside(*parts: str) -> str:
    return os.path.join(TARGETS["workspace"], *parts)


def write(path: str) -> None:
    with open(path, "w") as file:
        file.write("x")


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(1)


# Files


@attempt
def read_ssh_key() -> None:
    read(target(".ssh", "id"))


@attempt
def list_home() -> None:
    os.listdir(target())


@attempt
def stat_outside() -> None:
    os.stat(target(".ssh", "id"))


@attempt
def write_outside() -> None:
    write(target("new"))


@attempt
def truncate_outside() -> None:
    os.truncate(target("file"), 0)


@attempt
def chmod_outside() -> None:
    os.chmod(target("file"), 0o600)


@attempt
def utime_outside() -> None:
    os.utime(target("file"), (1, 1))


@attempt
def rename_outside() -> None:
    os.rename(target("file"), target("file2"))
    os.rename(target("file2"), target("file"))


@attempt
def read_through_symlink() -> None:
    link = inside("link-to-key")
    if not os.path.lexists(link):
        os.symlink(target(".ssh", "id"), link)
    read(link)


@attempt
def read_through_proc_root() -> None:
    read("/proc/self/root" + target(".ssh", "id"))


@attempt
def read_through_cwd_of_parent() -> None:
    read(f"/proc/{TARGETS['pid']}/root" + target(".ssh", "id"))


@attempt
def hardlink_outside() -> None:
    os.link(target("file"), inside("hardlink"))


@attempt
def write_inside() -> None:
    write(inside("new"))


@attempt
def write_git_hooks() -> None:
    write(inside(".git", "hooks", "pre-commit"))


@attempt
def rename_git() -> None:
    os.rename(inside(".git"), inside("git2"))


@attempt
def write_config() -> None:
    write(inside("switchboard.config.json"))


@attempt
def read_mail_store() -> None:
    read(inside(".switchboard", "message"))


@attempt
def write_tmp() -> None:
    write(os.path.join(os.environ["TMPDIR"], "mine"))


@attempt
def write_home() -> None:
    write(os.path.join(os.environ["HOME"], "mine"))


@attempt
def read_etc_shadow() -> None:
    read("/etc/shadow")


@attempt
def see_shared_memory_of_others() -> None:
    read("/dev/shm/" + TARGETS["shm"])


@attempt
def read_inherited_descriptor() -> None:
    os.pread(TARGETS["fd"], 1, 0)


@attempt
def have_open_descriptors() -> None:
    """Find a descriptor that is neither a standard stream nor the one that lists the folder."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and not os.readlink(f"/proc/self/fd/{name}").endswith("/fd"):
            return
    raise OSError(errno.EBADF, "none")


@attempt
def attach_memory_of_others() -> None:
    if libc.shmget(TARGETS["sysv"], 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "")


@attempt
def write_to_terminal_of_others() -> None:
    os.close(os.open(TARGETS["terminal"], os.O_RDWR | os.O_NOCTTY))


@attempt
def create_protected_folder() -> None:
    os.makedirs(inside(".switchboard", "mcps"))


# Other processes


@attempt
def read_environ_of_others() -> None:
    if not read(f"/proc/{TARGETS['pid']}/environ"):
        raise OSError(errno.EACCES, "empty")


@attempt
def read_journal_of_others() -> None:
    if not read(f"/proc/{TARGETS['pid']}/fd/{TARGETS['journal']}"):
        raise OSError(errno.EACCES, "empty")


@attempt
def write_memory_of_others() -> None:
    os.close(os.open(f"/proc/{TARGETS['pid']}/mem", os.O_RDWR))


@attempt
def ptrace_others() -> None:
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(16, TARGETS["pid"], 0, 0) < 0:  # PTRACE_ATTACH
        raise OSError(ctypes.get_errno(), "")
    os.waitpid(TARGETS["pid"], 0)


@attempt
def signal_others() -> None:
    os.kill(TARGETS["pid"], signal.SIGCONT)


@attempt
def signal_reaper() -> None:
    os.kill(os.getppid(), signal.SIGCONT)


@attempt
def limit_others() -> None:
    old = resource.prlimit(TARGETS["pid"], resource.RLIMIT_NOFILE)
    resource.prlimit(TARGETS["pid"], resource.RLIMIT_NOFILE, old)


@attempt
def renice_others() -> None:
    os.setpriority(os.PRIO_PROCESS, TARGETS["pid"], os.getpriority(os.PRIO_PROCESS, TARGETS["pid"]))


@attempt
def reschedule_others() -> None:
    os.sched_setaffinity(TARGETS["pid"], os.sched_getaffinity(TARGETS["pid"]))


@attempt
def take_descriptor_of_others() -> None:
    syscall(438, syscall(434, TARGETS["pid"], 0), 0, 0)


# Sockets


def reach(address: tuple[str, int], family: int = socket.AF_INET, protocol: int = 0) -> None:
    """Connect and read a byte: with host rules a refused connection is accepted, then reset."""
    with socket.socket(family, socket.SOCK_STREAM, protocol) as sock:
        sock.settimeout(3)
        sock.connect(address)
        if not sock.recv(1):
            raise OSError(errno.ECONNRESET, "closed")


def fast_open(address: tuple[str, int], family: int = socket.AF_INET) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 3, 0))
        sock.sendto(b"x", 0x20000000, address)
        if not sock.recv(1):
            raise OSError(errno.ECONNRESET, "closed")


def echo(address: tuple[str, int], family: int = socket.AF_INET) -> None:
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.5)
        sock.connect(address)
        sock.send(b"x")
        sock.recv(1)


@attempt
def connect_tcp_loopback() -> None:
    reach(("127.0.0.1", TARGETS["tcp"]))


@attempt
def connect_mptcp_loopback() -> None:
    reach(("127.0.0.1", TARGETS["tcp"]), protocol=262)


@attempt
def fast_open_loopback() -> None:
    fast_open(("127.0.0.1", TARGETS["tcp"]))


@attempt
def send_udp_loopback() -> None:
    echo(("127.0.0.1", TARGETS["udp"]))


@attempt
def connect_direct_address() -> None:
    reach((TARGETS["address"], TARGETS["tcp"]))


@attempt
def send_udp_direct_address() -> None:
    echo((TARGETS["address"], TARGETS["udp"]))


@attempt
def connect_any_address() -> None:
    reach(("0.0.0.0", TARGETS["tcp"]))


@attempt
def connect_ipv6_loopback() -> None:
    reach(("::1", TARGETS["tcp"]), socket.AF_INET6)


@attempt
def connect_ipv6_mapped() -> None:
    reach(("::ffff:127.0.0.1", TARGETS["tcp"]), socket.AF_INET6)


@attempt
def connect_ipv6_direct_address() -> None:
    reach((TARGETS["address6"], TARGETS["tcp"]), socket.AF_INET6)


@attempt
def connect_ipv6_mptcp() -> None:
    reach(("::1", TARGETS["tcp"]), socket.AF_INET6, 262)


@attempt
def fast_open_ipv6() -> None:
    fast_open(("::1", TARGETS["tcp"]), socket.AF_INET6)


@attempt
def send_udp_ipv6() -> None:
    echo(("::1", TARGETS["udp"]), socket.AF_INET6)


@attempt
def send_raw_packet() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


@attempt
def connect_unix_socket() -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(TARGETS["unix"])


@attempt
def connect_broker_socket() -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(".switchboard/control.sock")  # the whole path may be too long


@attempt
def connect_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("\0" + TARGETS["abstract"])


@attempt
def send_unix_datagram() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", TARGETS["unix"] + "-datagram")


@attempt
def send_abstract_datagram() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", "\0" + TARGETS["abstract"] + "-datagram")


@attempt
def call_dbus() -> None:
    """Authenticate at the session bus, as every client of it does."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(3)
        sock.connect(TARGETS["dbus"])
        sock.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
        if not sock.recv(100).startswith(b"OK"):
            raise OSError(errno.EACCES, "refused")


@attempt
def open_vsock() -> None:
    socket.socket(40, socket.SOCK_STREAM).close()


@attempt
def open_packet_socket() -> None:
    socket.socket(17, socket.SOCK_RAW).close()


@attempt
def bind_own_loopback() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        socket.create_connection(server.getsockname(), 3).close()


# The kernel


@attempt
def io_uring() -> None:
    syscall(425, 1, ctypes.create_string_buffer(120))


@attempt
def bpf() -> None:
    syscall(280 if AARCH64 else 321, 0, 0, 0)


@attempt
def keyring() -> None:
    syscall(
        217 if AARCH64 else 248, ctypes.c_char_p(b"user"), ctypes.c_char_p(b"k"), ctypes.c_char_p(b"v"), 1, -3
    )


@attempt
def user_namespace() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0 if libc.unshare(0x10000000) == 0 else 1)
    if os.waitpid(pid, 0)[1]:
        raise OSError(errno.EPERM, "")


@attempt
def mount() -> None:
    if libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None) < 0:
        raise OSError(ctypes.get_errno(), "")
    libc.umount2(b"/tmp", 2)


@attempt
def setuid_helper() -> None:
    """Gain privileges: they would show as effective capabilities of a setuid program, or in this process."""
    status = open("/proc/self/status").read()  # noqa: SIM115
    effective = next(line for line in status.splitlines() if line.startswith("CapEff")).split()[1]
    if "NoNewPrivs:\t1" in status and int(effective, 16) == 0:
        raise OSError(errno.EPERM, "")


@attempt
def type_into_terminal() -> None:
    import fcntl

    master, slave = os.openpty()
    try:
        fcntl.ioctl(slave, 0x5412, b"x")
    finally:
        os.close(master)
        os.close(slave)


@attempt
def spawn_program() -> None:
    subprocess.run(["/bin/true"], check=True)


# Limits


@attempt
def fork_bomb() -> None:
    """Start more processes than the limit; all of them end with this one."""
    pids = []
    try:
        for _ in range(TARGETS["forks"]):
            pid = os.fork()
            if pid == 0:
                time.sleep(1000)
                os._exit(0)
            pids.append(pid)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@attempt
def take_memory() -> None:
    region = mmap.mmap(-1, TARGETS["memory"], flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    region.close()


@attempt
def take_memory_by_brk() -> None:
    libc.sbrk.restype = ctypes.c_void_p
    if libc.sbrk(ctypes.c_ssize_t(TARGETS["memory"])) == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "")
    libc.sbrk(ctypes.c_ssize_t(-TARGETS["memory"]))


@attempt
def take_shared_memory() -> None:
    region = mmap.mmap(-1, TARGETS["memory"], flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    region.close()


@attempt
def take_memory_file() -> None:
    fd = os.memfd_create("large")
    try:
        os.ftruncate(fd, TARGETS["disk"])
    finally:
        os.close(fd)


@attempt
def fill_shared_memory() -> None:
    with open("/dev/shm/big", "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, TARGETS["disk"])
        finally:
            os.unlink(file.name)


@attempt
def write_large_file() -> None:
    with open(inside("large"), "wb") as file:
        try:
            os.truncate(file.fileno(), TARGETS["disk"])
        finally:
            os.unlink(file.name)


@attempt
def fill_disk() -> None:
    with open(os.path.join(os.environ["TMPDIR"], "big"), "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, TARGETS["disk"])
        finally:
            os.unlink(file.name)


@attempt
def open_many_files() -> None:
    opened = []
    try:
        for _ in range(TARGETS["files"]):
            opened.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        for fd in opened:
            os.close(fd)


def outcome(function: Callable[[], Any]) -> str:
    try:
        function()
    except TimeoutError:
        return "timeout"
    except OSError as problem:
        return errno.errorcode.get(problem.errno or 0, str(problem)) or "error"
    except subprocess.SubprocessError as problem:
        return type(problem).__name__
    return "open"


signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
names = TARGETS.get("only") or list(ATTEMPTS)
print(json.dumps({name: outcome(ATTEMPTS[name]) for name in names}), flush=True)
