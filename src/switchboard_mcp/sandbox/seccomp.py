"""Assembles the system call filter of a sandbox. Pure: bytes from numbers.

Refused calls return an error instead of killing the process, since a killed child explains nothing. Those with a
fallback in libraries are `ENOSYS`, the others `EPERM`. A table per architecture; there is no filter for others.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache

EPERM, EACCES, ENOSYS, EAFNOSUPPORT, EPROTONOSUPPORT = 1, 13, 38, 97, 93
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
AUDIT_ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}

# Number on x86_64 and on aarch64; -1 if it does not exist there.
CALLS: dict[str, tuple[int, int]] = {
    "access": (21, -1),
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "arch_prctl": (158, -1),
    "bpf": (321, 280),
    "brk": (12, 214),
    "chmod": (90, -1),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "close": (3, 57),
    "creat": (85, -1),
    "delete_module": (176, 106),
    "epoll_ctl": (233, 21),
    "epoll_pwait": (281, 22),
    "epoll_wait": (232, -1),
    "execve": (59, 221),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "faccessat": (269, 48),
    "fanotify_init": (300, 262),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fcntl": (72, 25),
    "finit_module": (313, 273),
    "fork": (57, -1),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "fstat": (5, 80),
    "futex": (202, 98),
    "getpid": (39, 172),
    "getrandom": (318, 278),
    "gettid": (186, 178),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, -1),
    "iopl": (172, -1),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "lookup_dcookie": (212, 18),
    "lseek": (8, 62),
    "madvise": (28, 233),
    "membarrier": (324, 283),
    "migrate_pages": (256, 238),
    "mknod": (133, -1),
    "mknodat": (259, 33),
    "mmap": (9, 222),
    "modify_ldt": (154, -1),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "munmap": (11, 215),
    "name_to_handle_at": (303, 264),
    "nanosleep": (35, 101),
    "newfstatat": (262, 79),
    "nfsservctl": (180, 42),
    "open": (2, -1),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "openat": (257, 56),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "poll": (7, -1),
    "ppoll": (271, 73),
    "prctl": (157, 167),
    "pread64": (17, 67),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "read": (0, 63),
    "readv": (19, 65),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "restart_syscall": (219, 128),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sched_getaffinity": (204, 123),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_yield": (24, 124),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "sigaltstack": (131, 132),
    "socket": (41, 198),
    "statx": (332, 291),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vfork": (58, -1),
    "vhangup": (153, 58),
    "wait4": (61, 260),
    "waitid": (247, 95),
    "write": (1, 64),
    "writev": (20, 66),
}
MOUNTING = (
    "chroot", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount", "open_tree",
    "pivot_root", "umount2",
)  # fmt: skip
REFUSED = (
    *MOUNTING, "acct", "adjtimex", "clock_adjtime", "clock_settime", "delete_module", "fanotify_init", "finit_module",
    "init_module", "ioperm", "iopl", "kexec_file_load", "kexec_load", "lookup_dcookie", "migrate_pages", "modify_ldt",
    "move_pages", "name_to_handle_at", "nfsservctl", "open_by_handle_at", "process_madvise", "process_mrelease",
    "process_vm_readv", "process_vm_writev", "ptrace", "quotactl", "quotactl_fd", "reboot", "setdomainname",
    "sethostname", "setns", "settimeofday", "swapoff", "swapon", "syslog", "unshare", "vhangup",
)  # fmt: skip
ABSENT = (
    "add_key", "bpf", "clone3", "io_uring_enter", "io_uring_register", "io_uring_setup", "kcmp", "keyctl",
    "openat2", "perf_event_open", "pidfd_getfd", "request_key", "userfaultfd",
)  # fmt: skip
# Chromium's own sandbox needs a user namespace inside ours.
OWN_SANDBOX = frozenset(("unshare", "chroot"))
TIOCSTI, TIOCLINUX = 0x5412, 0x541C  # type into a terminal
CLONE_NEW = 0x7E02_0000  # every namespace
CLONE_THREAD = 0x0001_0000
WRITING_FLAGS = 0o1_103  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, the same on both architectures
CREATING_FLAGS = 0o20_000_100  # O_CREAT and O_TMPFILE: without them there is no mode
SET_ID = 0o6_000  # setuid and setgid, for the owner or group of a file that others may run
SCTP, MPTCP = 132, 262  # TCP under another number, which rules for TCP do not see

# Classic BPF.
LOAD, EQUAL, ANY_BIT, AT_LEAST, RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
ALLOW, ERRNO, KILL = 0x7FFF_0000, 0x0005_0000, 0x8000_0000
NUMBER_AT, ARCH_AT = 0, 4
X32 = 0x4000_0000

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


@cache
def assemble(
    machine: str, families: tuple[int, ...], *, may_spawn: bool = True, own_sandbox: bool = False
) -> bytes:
    """Return the filter for an architecture, with the socket families it allows; empty for an unknown one."""
    if machine not in AUDIT_ARCH:
        return b""
    column = list(AUDIT_ARCH).index(machine)
    program: list[Instruction] = [
        (LOAD, 0, 0, ARCH_AT),
        (EQUAL, 1, 0, AUDIT_ARCH[machine]),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
    ]
    if machine == "x86_64":
        program += [(AT_LEAST, 0, 1, X32), (RETURN, 0, 0, ERRNO | ENOSYS)]
    allowed = OWN_SANDBOX if own_sandbox else frozenset()
    for names, code in ((REFUSED, EPERM), (ABSENT, ENOSYS)):
        for name in names:
            if name not in allowed and CALLS[name][column] >= 0:
                program += [(EQUAL, 0, 1, CALLS[name][column]), (RETURN, 0, 0, ERRNO | code)]
    for name, checks in _argument_checks(sorted(set(families)), may_spawn, own_sandbox).items():
        if CALLS[name][column] >= 0:
            program += [(EQUAL, 0, len(checks), CALLS[name][column]), *checks]
    program.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("HBBI", *one) for one in program)


@cache
def assemble_only(machine: str, names: tuple[str, ...], *, kill: bool, may_signal: int = 0) -> bytes:
    """Return the filter that allows the named calls and no others; empty for an unknown architecture.

    Any other call kills the process, or returns `EPERM`. `kill` reaches one process only, `clone` makes threads only,
    `clone3` is `ENOSYS` for the fallback of the C library, `openat` opens for reading only, and `prlimit64` concerns
    the caller alone.
    """
    if machine not in AUDIT_ARCH:
        return b""
    column = list(AUDIT_ARCH).index(machine)
    refused = (RETURN, 0, 0, KILL if kill else ERRNO | EPERM)
    checks: dict[str, list[Instruction]] = {
        "clone": [_load(0), (ANY_BIT, 1, 0, CLONE_THREAD), refused, (RETURN, 0, 0, ALLOW)],
        "clone3": [(RETURN, 0, 0, ERRNO | ENOSYS)],
        "openat": [
            _load(2),
            (ANY_BIT, 0, 1, WRITING_FLAGS),
            (RETURN, 0, 0, ERRNO | EACCES),
            (RETURN, 0, 0, ALLOW),
        ],
        "kill": [_load(0), (EQUAL, 1, 0, may_signal), refused, (RETURN, 0, 0, ALLOW)],
        "prlimit64": [_load(0), (EQUAL, 1, 0, 0), refused, (RETURN, 0, 0, ALLOW)],
    }
    program: list[Instruction] = [
        (LOAD, 0, 0, ARCH_AT),
        (EQUAL, 1, 0, AUDIT_ARCH[machine]),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
    ]
    for name in names:
        steps = checks.get(name, [(RETURN, 0, 0, ALLOW)])
        if CALLS[name][column] >= 0:
            program += [(EQUAL, 0, len(steps), CALLS[name][column]), *steps]
    program.append(refused)
    return b"".join(struct.pack("HBBI", *one) for one in program)


def _argument_checks(
    families: Sequence[int], may_spawn: bool, own_sandbox: bool
) -> dict[str, list[Instruction]]:
    """Return the checks of calls whose arguments decide. Each list ends with a return."""
    mine_only = [_load(0), (EQUAL, 1, 0, 0), (RETURN, 0, 0, ERRNO | EPERM), (RETURN, 0, 0, ALLOW)]
    # The first argument says what the second one is: a process, a group or a user.
    checks: dict[str, list[Instruction]] = {
        "ioctl": [
            _load(1),
            (EQUAL, 1, 0, TIOCSTI),
            (EQUAL, 0, 1, TIOCLINUX),
            (RETURN, 0, 0, ERRNO | EPERM),
            (RETURN, 0, 0, ALLOW),
        ],
        "prlimit64": mine_only,
        "sched_setaffinity": mine_only,
        "sched_setattr": mine_only,
        "sched_setparam": mine_only,
        "sched_setscheduler": mine_only,
        "chmod": _without_set_id(1),
        "fchmod": _without_set_id(1),
        "fchmodat": _without_set_id(2),
        "fchmodat2": _without_set_id(2),
        "creat": _without_set_id(1),
        "mknod": _without_set_id(1),
        "mknodat": _without_set_id(2),
        "open": _created_without_set_id(1),
        "openat": _created_without_set_id(2),
        "setpriority": _process_only(0),
        "ioprio_set": _process_only(1),
        "socket": [
            _load(2),
            (EQUAL, 1, 0, MPTCP),
            (EQUAL, 0, 1, SCTP),
            (RETURN, 0, 0, ERRNO | EPROTONOSUPPORT),
            _load(0),
            *((EQUAL, len(families) - index, 0, family) for index, family in enumerate(families)),
            (RETURN, 0, 0, ERRNO | EAFNOSUPPORT),
            (RETURN, 0, 0, ALLOW),
        ],
    }
    clone: list[Instruction] = []
    if not own_sandbox:
        clone += [(ANY_BIT, 0, 1, CLONE_NEW), (RETURN, 0, 0, ERRNO | EPERM)]
    if not may_spawn:
        clone += [(ANY_BIT, 1, 0, CLONE_THREAD), (RETURN, 0, 0, ERRNO | EPERM)]
        for name in ("fork", "vfork"):
            checks[name] = [(RETURN, 0, 0, ERRNO | EPERM)]
    if clone:
        checks["clone"] = [_load(0), *clone, (RETURN, 0, 0, ALLOW)]
    return checks


def _without_set_id(argument: int) -> list[Instruction]:
    """Return checks that an argument, a mode, has no setuid or setgid bit. The mode in `openat2` cannot be seen."""
    return [_load(argument), (ANY_BIT, 0, 1, SET_ID), (RETURN, 0, 0, ERRNO | EPERM), (RETURN, 0, 0, ALLOW)]


def _created_without_set_id(flags: int) -> list[Instruction]:
    """Return the same checks for the mode behind flags, which counts if a file is created."""
    return [_load(flags), (ANY_BIT, 0, 3, CREATING_FLAGS), *_without_set_id(flags + 1)]


def _process_only(kind: int) -> list[Instruction]:
    """Return checks that the first argument says `process` and the second one is 0, the caller."""
    return [
        _load(0),
        (EQUAL, 0, 2, kind),
        _load(1),
        (EQUAL, 1, 0, 0),
        (RETURN, 0, 0, ERRNO | EPERM),
        (RETURN, 0, 0, ALLOW),
    ]


def _load(argument: int) -> Instruction:
    """Return the load of an argument's low word, on a little-endian machine."""
    return (LOAD, 0, 0, 16 + 8 * argument)
