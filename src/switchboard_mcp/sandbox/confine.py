"""Applies a sandbox plan to the current process, between fork and exec. Linux only.

Loaded by file name in the launcher's bare interpreter (`-I -S`), so it imports the standard library only. `plan`
decides everything; this module only makes the system calls, and any that fails ends the start: nothing is skipped.

    namespaces → view (mounts) → network → limits → capabilities → Landlock → seccomp

Run as a program, it prints which mechanisms this system offers, each found by using it in a forked process. Run inside
bubblewrap with the number of a socket, it reads a program and its plan from it, applies the plan and becomes the
program.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import marshal
import os
import resource
import socket
import stat
import struct
import sys
from collections.abc import Callable
from typing import Any

Plan = dict[str, Any]

NEWNS, NEWIPC, NEWUSER, NEWNET = 0x0002_0000, 0x0800_0000, 0x1000_0000, 0x4000_0000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 0x40000
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC, MOVE_FROM_EMPTY_PATH = 1, os.O_CLOEXEC, 4
MNT_DETACH = 2
CLOSE_RANGE_CLOEXEC = 4
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 24, 28, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECUREBITS = 0b1010_1111  # NOROOT and NO_SETUID_FIXUP, no ambient capabilities, all locked
LAST_CAPABILITY = 40
# The same on every architecture.
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
OPEN_TREE, MOVE_MOUNT, CLOSE_RANGE, OPENAT2, MOUNT_SETATTR = 428, 429, 436, 437, 442
RESOLVE_NO_SYMLINKS = 4
O_PATH = 0o10000000  # the same on every architecture here; other systems have none
OF_SYSTEM = (b"/dev/", b"/etc", b"/proc", b"/sys/", b"/usr")  # no child may write there
SECCOMP = {"x86_64": 317, "aarch64": 277}
CAPSET = {"x86_64": 126, "aarch64": 91}
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
SECCOMP_SET_MODE_FILTER = 1
TSYNC = 1
# Landlock rights that a file, as opposed to a folder, may have: execute, write, read, truncate, ioctl on devices.
FILE_RIGHTS = 0b1100_0000_0000_0111
CHANNEL = 3
SIOCSIFFLAGS, IFF_UP_RUNNING = 0x8914, 0x41
IP_PKTINFO, IPV6_RECVPKTINFO = 8, 49
# Linux 6.18 opens a listener of any size; connections of one child wait here for the event loop.
BACKLOG = 64

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
if sys.platform == "linux":  # other systems have no `prctl`
    # With types, a call takes a third of the time. `c_void_p` takes numbers and bytes.
    _libc.syscall.argtypes = [ctypes.c_long, *[ctypes.c_void_p] * 5]
    _libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


class ConfineError(OSError):
    """A step that failed. `filename` is the step."""


Argument = int | bytes | None


def call(number: int, a: Argument, b: Argument = 0, c: Argument = 0, d: Argument = 0, e: Argument = 0) -> int:
    """Make a system call. Raises OSError."""
    result = int(_libc.syscall(number, a, b, c, d, e))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def check(result: int) -> None:
    """Raise OSError for the result of a function of the C library that failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def machine() -> str:
    """Return the architecture as the kernel names it."""
    return os.uname().machine


def confine(plan: Plan, channel: socket.socket | None) -> None:
    """Confine this process. Sockets of the new network namespace are sent on `channel`. Raises ConfineError."""
    if plan.get("wrapped") and channel is not None:
        close_on_exec(channel)
        os.dup2(channel.fileno(), CHANNEL)  # for the program inside, which goes on with the plan
        return
    steps: tuple[tuple[str, Callable[[], None]], ...] = (
        ("descriptors", lambda: close_on_exec(channel)),
        ("namespaces", lambda: enter_namespaces(plan["namespaces"])),
        ("files", lambda: enter_view(plan["view"])),
        ("network", lambda: open_network(plan["loopback"], plan["listen"], channel)),
        ("limits", lambda: set_limits(plan["limits"])),
        ("privileges", drop_privileges),
        ("landlock", lambda: restrict_files(plan["landlock"])),
        ("seccomp", lambda: filter_calls(plan["seccomp"])),
    )
    for name, step in steps:
        try:
            step()
        except OSError as problem:
            raise ConfineError(problem.errno or errno.EINVAL, problem.strerror, name) from problem


def close_on_exec(channel: socket.socket | None) -> None:
    """Keep every descriptor but the standard streams from the program: one that is inherited defeats all rules."""
    try:
        call(CLOSE_RANGE, 3, 0xFFFF_FFFF, CLOSE_RANGE_CLOEXEC)
    except OSError:
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2:
                try:
                    os.set_inheritable(int(name), False)
                except OSError:
                    pass


def enter_namespaces(flags: int) -> None:
    """Create namespaces. The user keeps his ids in the new user namespace."""
    if not flags:
        return
    uid, gid = os.geteuid(), os.getegid()
    # The launcher cannot be traced, so its /proc files belong to root. The program will be ordinary after exec anyway.
    check(_libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
    check(_libc.unshare(flags))
    if flags & NEWUSER:
        write("/proc/self/setgroups", b"deny")
        write("/proc/self/uid_map", b"%d %d 1" % (uid, uid))
        write("/proc/self/gid_map", b"%d %d 1" % (gid, gid))


def write(path: str, data: bytes) -> None:
    """Write a file of the kernel."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


# The view: a new root folder in which only the mounts of the plan exist.


def enter_view(mounts: list[tuple[str, bytes, Any]]) -> None:
    """Build a root folder from the plan's mounts and make it ours.

    Each mount is (kind, path, argument): `ro` and `rw` show the folder or file of that path, `pin` also does and is
    writable, `kept` is a link that cannot be replaced, `dev` shows a device, `pts` is for new terminals, `tmp` an empty
    file system of so many bytes, `empty` one with at most a folder in it, `link` a symbolic link, `dir` a folder.
    """
    if not mounts:
        return
    if sys.platform != "linux":
        raise OSError("This needs Linux.")
    root = b"/tmp"
    check(_libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None))
    trees = [open_tree(kind, path) for kind, path, _ in mounts]
    mount_tmpfs(root, 1 << 20)
    made = {root}
    for (kind, path, argument), tree in zip(mounts, trees, strict=True):
        place(root + path, kind, tree, argument, made)
    set_flags(os.open(root, O_PATH | os.O_CLOEXEC), ATTR_RDONLY, recursive=False)
    os.chdir(root)
    call(PIVOT_ROOT[machine()], b".", b".")
    check(_libc.umount2(b".", MNT_DETACH))
    os.chdir("/")


def open_tree(kind: str, path: bytes) -> int:
    """Return a detached copy of the mounts at a path, or -1 if the mount does not show a path."""
    if kind not in ("ro", "rw", "pin", "kept", "dev"):
        return -1
    clone = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE
    if kind in ("ro", "dev") and path.startswith(OF_SYSTEM):
        tree = call(OPEN_TREE, AT_FDCWD, path, clone)
    else:
        # The plan has real paths. A link there now was put there meanwhile, and may lead anywhere.
        itself = os.O_NOFOLLOW if kind == "kept" else 0
        how = struct.pack("QQQ", O_PATH | os.O_CLOEXEC | itself, 0, RESOLVE_NO_SYMLINKS)
        place = call(OPENAT2, AT_FDCWD, path, how, len(how))
        tree = call(OPEN_TREE, place, b"", clone | AT_EMPTY_PATH)
        os.close(place)
    flags = ATTR_NOSUID | (ATTR_RDONLY if kind == "ro" else 0) | (0 if kind == "dev" else ATTR_NODEV)
    set_flags(tree, flags, recursive=True)
    return tree


def set_flags(fd: int, flags: int, *, recursive: bool) -> None:
    """Set flags of a mount."""
    attributes = struct.pack("QQQQ", flags, 0, 0, 0)
    where = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    call(MOUNT_SETATTR, fd, b"", where, attributes, len(attributes))


def mount_tmpfs(path: bytes, size: int, mode: int = 0o755) -> None:
    """Mount an empty file system of limited size, in memory."""
    options = b"size=%d,nr_inodes=%d,mode=%o" % (size, max(1024, size >> 12), mode)
    check(_libc.mount(b"tmpfs", path, b"tmpfs", ctypes.c_ulong(MS_NOSUID | MS_NODEV), options))


def mount_terminals(path: bytes) -> None:
    """Mount new terminals. A system that does not let us has none in the sandbox."""
    options = b"newinstance,ptmxmode=0666,mode=0620"
    _libc.mount(b"devpts", path, b"devpts", ctypes.c_ulong(MS_NOSUID), options)


def place(target: bytes, kind: str, tree: int, argument: Any, made: set[bytes]) -> None:
    """Put one mount of the plan at its place in the new root folder. `made` are the folders that exist."""
    if kind == "link":
        make_folder(target[: target.rindex(b"/")], made)
        try:
            os.symlink(argument, target)
        except FileExistsError:
            pass
    elif kind == "dir":
        make_folder(target, made)
    elif kind == "pts":  # of its own: the system's has the terminals of all programs of the user
        make_folder(target, made)
        mount_terminals(target)
    elif kind in ("tmp", "empty"):
        make_folder(target, made)
        mount_tmpfs(target, argument if kind == "tmp" else 4096, 0o1777 if kind == "tmp" else 0o755)
        if kind == "empty":
            if argument:
                os.makedirs(target + argument, 0o755)
            set_flags(os.open(target, O_PATH | os.O_CLOEXEC), ATTR_RDONLY, recursive=False)
    else:
        if kind == "dev":  # a file in a folder that is new
            make_target(target, False, made)
        elif not os.path.lexists(target):
            make_target(target, stat.S_ISDIR(os.fstat(tree).st_mode), made)
        call(MOVE_MOUNT, tree, b"", AT_FDCWD, target, MOVE_FROM_EMPTY_PATH)
        os.close(tree)


def make_folder(path: bytes, made: set[bytes]) -> None:
    """Create a folder and those above it, as far as they do not exist."""
    if path in made:
        return
    made.add(path)
    make_folder(path[: path.rindex(b"/")], made)
    try:
        os.mkdir(path, 0o755)
    except OSError:  # it is part of a mount; what is put into it fails if not
        pass


def make_target(target: bytes, is_folder: bool, made: set[bytes]) -> None:
    """Create an empty folder or file to mount on."""
    make_folder(target if is_folder else target[: target.rindex(b"/")], made)
    if not is_folder:
        os.mknod(target, 0o600)  # a plain file, in one system call


# The network of the new namespace.


def open_network(loopback: bool, ports: list[int], channel: socket.socket | None) -> None:
    """Start the loopback interface; with ports, make every address local and hand out a listener for each.

    A socket stays in the namespace that it was created in, so Switchboard accepts the connections and answers the name
    queries, without a process in between.
    """
    if loopback:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control.fileno(), SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", IFF_UP_RUNNING))
    if not ports or channel is None:
        return
    route_everything_here(socket.AF_INET)
    has_ipv6 = True
    try:
        route_everything_here(socket.AF_INET6)
    except OSError:  # the kernel has none, or this namespace may not use it: then nothing leaves by it
        has_ipv6 = False
    opened = [open_names(socket.AF_INET), *([open_names(socket.AF_INET6)] if has_ipv6 else [])]
    opened += [open_listener(port, has_ipv6) for port in ports]
    socket.send_fds(channel, [b"6" if has_ipv6 else b"4"], [one.fileno() for one in opened])
    for one in opened:
        one.close()


def open_names(family: int) -> socket.socket:
    """Return a socket for name queries to any address, which reports that address."""
    names = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        names.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        names.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)
    else:
        names.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
    names.bind(("", 53))
    return names


def open_listener(port: int, has_ipv6: bool) -> socket.socket:
    """Return a listener for connections to any address, of both families if there is IPv6."""
    listener = socket.socket(socket.AF_INET6 if has_ipv6 else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if has_ipv6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("", port))
    listener.listen(BACKLOG)
    return listener


def route_everything_here(family: int) -> None:
    """Run `ip route add local default dev lo`: the kernel then takes every address of a family for one of ours."""
    if sys.platform != "linux":
        raise OSError("This needs Linux.")
    route = struct.pack("=BBBBBBBBI", family, 0, 0, 0, 255, 4, 254, 2, 0) + struct.pack("=HHI", 8, 4, 1)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.send(struct.pack("=IHHII", 16 + len(route), 24, 0x505, 1, 0) + route)
        code = -struct.unpack_from("=i", netlink.recv(4096), 16)[0]
    if code:
        raise OSError(code, os.strerror(code))


def set_limits(limits: list[tuple[int, int]]) -> None:
    """Set resource limits, never above those that hold already."""
    for number, value in limits:
        _, hard = resource.getrlimit(number)
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (limit, limit))


def drop_privileges() -> None:
    """Give up all capabilities, and for good: root is then a user like others, and setuid programs gain nothing."""
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    _libc.prctl(PR_SET_SECUREBITS, SECUREBITS, 0, 0, 0)  # without CAP_SETPCAP there is nothing to give up
    for number in range(LAST_CAPABILITY + 1):
        _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    if machine() in CAPSET:
        call(CAPSET[machine()], struct.pack("=Ii", 0x2008_0522, 0), bytes(24))
    check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def restrict_files(rules: tuple[bytes, list[tuple[bytes, int]]] | None) -> None:
    """Restrict this process with Landlock. The rules are the ruleset's attributes, and rights by path."""
    if rules is None:
        return
    attributes, paths = rules
    if sys.platform != "linux":
        raise OSError("This needs Linux.")
    handled = int.from_bytes(attributes[:8], sys.byteorder)
    ruleset = call(LANDLOCK_CREATE, attributes, len(attributes), 0)
    for path, rights in paths:
        try:
            fd = os.open(path, O_PATH | os.O_CLOEXEC)
        except OSError:  # it does not exist here, so nothing has to be allowed
            continue
        try:
            call(LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", rights & handled, fd), 0)
        except OSError as problem:
            if problem.errno != errno.EINVAL:
                raise
            # It is a file, which cannot have rights of folders.
            call(LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", rights & handled & FILE_RIGHTS, fd), 0)
        os.close(fd)
    call(LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)


def filter_calls(program: bytes, flags: int = 0) -> None:
    """Install an assembled seccomp filter, with the flag `TSYNC` for all threads of the process."""
    if not program:
        return
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    call(SECCOMP[machine()], SECCOMP_SET_MODE_FILTER, flags, header)


# What this system offers.


def probe() -> dict[str, int]:
    """Return what this system offers: the Landlock ABI (0 if none), and 1 or 0 for each other mechanism."""
    found = {"landlock": 0, "seccomp": 0, "user": 0, "mount": 0, "network": 0, "transparent": 0}
    try:
        found["landlock"] = call(LANDLOCK_CREATE, 0, 0, 1)
        if not works(try_landlock):
            found["landlock"] = 0
    except OSError:
        pass
    found["seccomp"] = works(try_seccomp)
    found["user"] = works(lambda: enter_namespaces(NEWUSER | NEWIPC))
    if found["user"]:
        found["mount"] = works(try_view)
        found["network"] = works(try_network)
        found["transparent"] = works(try_transparent)
    return found


def works(attempt: Callable[[], None]) -> int:
    """Return 1 if an attempt succeeds in a forked process."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            attempt()
            code = 0
        finally:  # whatever it raises, the mechanism cannot be used
            os._exit(code)
    return int(os.waitpid(pid, 0)[1] == 0)


def try_landlock() -> None:
    """Restrict this process to nothing."""
    check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    restrict_files((struct.pack("Q", 0b111), []))


def try_seccomp() -> None:
    """Install a filter that allows everything."""
    if machine() not in SECCOMP:
        raise OSError(errno.ENOSYS, "unknown architecture")
    check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    filter_calls(struct.pack("HBBI", 6, 0, 0, 0x7FFF_0000))


def try_view() -> None:
    """Enter a view of one folder."""
    enter_namespaces(NEWUSER | NEWNS)
    enter_view([("ro", b"/usr", None), ("ro", b"/proc", None), ("tmp", b"/tmp", 1 << 16)])


def try_network() -> None:
    """Enter a network of its own."""
    enter_namespaces(NEWUSER | NEWNET)
    open_network(True, [], None)


def try_transparent() -> None:
    """Enter a network in which every address is local."""
    enter_namespaces(NEWUSER | NEWNET)
    ours, theirs = socket.socketpair()
    open_network(True, [443], theirs)
    ours.close()


def answer_probe(channel: socket.socket) -> None:
    """Send what this system offers, and exit."""
    channel.sendall(b"P" + marshal.dumps(probe()))
    sys.exit()


def probe_inside() -> dict[str, int]:
    """Return what there is inside bubblewrap, which has made the namespaces and the mounts."""
    found = probe() | {"user": 1, "mount": 1, "network": 1}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        return found | {"transparent": works(lambda: open_network(True, [443], theirs))}


def receive_launch(channel: socket.socket) -> Any:
    """Return the command line, environment, folder and plan that arrive on a socket. Raises EOFError."""
    size = int.from_bytes(read_exactly(channel, 4), "big")
    return marshal.loads(read_exactly(channel, size))


def run_inside(number: int) -> None:
    """Apply a plan that arrives on a socket, and become its program. A failure is reported there. Never returns."""
    channel = socket.socket(fileno=number)
    where = "plan"
    try:
        argv, env, cwd, plan = receive_launch(channel)
        where = "sandbox"
        mount_terminals(b"/dev/pts")
        confine(plan, channel)
        where = "chdir"
        os.chdir(cwd)
        where = "exec"
        os.execvpe(argv[0], argv, env)
    except (OSError, ValueError, EOFError) as problem:
        code = getattr(problem, "errno", 0) or errno.EINVAL
        step = f":{problem.filename}" if isinstance(problem, ConfineError) else ""
        channel.sendall(b"E" + f"{code} {where}{step}".encode())
        sys.exit(127)


def read_exactly(channel: socket.socket, size: int) -> bytes:
    """Return the next bytes of a socket. Raises EOFError."""
    data = b""
    while len(data) < size:
        part = channel.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


if __name__ == "__main__" and sys.argv[1:2] == ["inside"]:
    sys.stdout.write(" ".join(f"{name}={value}" for name, value in probe_inside().items()) + "\n")
elif __name__ == "__main__" and sys.argv[1:]:
    run_inside(int(sys.argv[1]))
elif __name__ == "__main__":
    sys.stdout.write(" ".join(f"{name}={value}" for name, value in probe().items()) + "\n")
