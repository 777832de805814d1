"""The assembled filter, run by an interpreter of classic BPF: every listed call is refused, others are allowed."""

from __future__ import annotations

import struct

from switchboard_mcp.sandbox import seccomp
from switchboard_mcp.sandbox.seccomp import (
    ABSENT,
    ALLOW,
    CALLS,
    ENOSYS,
    EPERM,
    ERRNO,
    KILL,
    REFUSED,
    assemble,
)
from tests.cases import each_case

MACHINES = ["x86_64", "aarch64"]
FAMILIES = (seccomp.AF_UNIX, seccomp.AF_INET, seccomp.AF_INET6)
READ = {"x86_64": 0, "aarch64": 63}


def run(program: bytes, machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    """Return the action of a filter for a call."""
    words = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, arch or seccomp.AUDIT_ARCH[machine], 0, *words)
    instructions = [struct.unpack_from("HBBI", program, at) for at in range(0, len(program), 8)]
    value = at = 0
    while True:
        code, if_true, if_false, operand = instructions[at]
        at += 1
        if code == seccomp.LOAD:
            value = struct.unpack_from("<I", data, operand)[0]
        elif code == seccomp.RETURN:
            return int(operand)
        else:
            tests = {
                seccomp.EQUAL: value == operand,
                seccomp.AT_LEAST: value >= operand,
                seccomp.ANY_BIT: bool(value & operand),
            }
            at += if_true if tests[code] else if_false


def number(name: str, machine: str) -> int:
    return CALLS[name][MACHINES.index(machine)]


@each_case("machine", MACHINES)
def test_listed_calls_are_refused_and_others_allowed(machine: str) -> None:
    program = assemble(machine, FAMILIES)
    for name in REFUSED:
        if number(name, machine) >= 0:
            assert run(program, machine, number(name, machine)) == ERRNO | EPERM, name
    for name in ABSENT:
        assert run(program, machine, number(name, machine)) == ERRNO | ENOSYS, name
    assert run(program, machine, READ[machine]) == ALLOW


@each_case("machine", MACHINES)
@each_case(
    ("name", "arguments", "allowed"),
    [
        ("socket", (1, 1, 0), True),
        ("socket", (2, 1, 6), True),
        ("socket", (10, 2, 0), True),
        ("socket", (16, 3, 0), False),
        ("socket", (17, 3, 0), False),
        ("socket", (40, 1, 0), False),
        ("socket", (2, 1, 262), False),
        ("socket", (2, 1, 132), False),
        ("prlimit64", (0, 7), True),
        ("prlimit64", (4711, 7), False),
        ("setpriority", (0, 0, 5), True),
        ("setpriority", (0, 4711, 5), False),
        ("setpriority", (2, 0, 5), False),
        ("ioprio_set", (1, 0), True),
        ("ioprio_set", (1, 4711), False),
        ("ioprio_set", (3, 0), False),
        ("sched_setaffinity", (0,), True),
        ("sched_setaffinity", (4711,), False),
        ("ioctl", (0, 0x5401), True),
        ("ioctl", (0, 0x5412), False),
        ("ioctl", (0, 0x541C), False),
        ("clone", (0x1200011,), True),
        ("clone", (0x3D0F00,), True),
        ("clone", (0x10000000,), False),
        ("clone", (0x00020000,), False),
    ],
)
def test_arguments_decide(machine: str, name: str, arguments: tuple[int, ...], allowed: bool) -> None:
    action = run(assemble(machine, FAMILIES), machine, number(name, machine), *arguments)
    assert (action == ALLOW) == allowed


@each_case("machine", MACHINES)
def test_a_child_that_may_not_spawn_has_threads_only(machine: str) -> None:
    program = assemble(machine, FAMILIES, may_spawn=False)
    assert run(program, machine, number("clone", machine), 0x3D0F00) == ALLOW
    assert run(program, machine, number("clone", machine), 0x1200011) == ERRNO | EPERM
    if machine == "x86_64":
        assert run(program, machine, number("fork", machine)) == ERRNO | EPERM
        assert run(program, machine, number("vfork", machine)) == ERRNO | EPERM


def test_calls_of_another_architecture_are_refused() -> None:
    program = assemble("x86_64", FAMILIES)
    assert run(program, "x86_64", 0, arch=0x40000003) == KILL
    assert run(program, "x86_64", 0x40000000 | 41, 2, 1, 0) == ERRNO | ENOSYS


def test_a_browser_may_build_its_own_sandbox() -> None:
    program = assemble("x86_64", FAMILIES, own_sandbox=True)
    assert run(program, "x86_64", number("unshare", "x86_64"), 0x10000000) == ALLOW
    assert run(program, "x86_64", number("clone", "x86_64"), 0x10000011) == ALLOW
    assert run(program, "x86_64", number("mount", "x86_64")) == ERRNO | EPERM


def test_an_unknown_architecture_has_no_filter() -> None:
    assert assemble("riscv64", FAMILIES) == b""
