from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from switchboard_mcp.transport.process import reaper
from switchboard_mcp.transport.process.launcher import SpawnError, describe_status
from tests.cases import each_case
from tests.patience import PATIENCE_S
from tests.processes import adopts_orphans, lives
from tests.unit.transport.process.processes import (
    PYTHON,
    TREES,
    Nursery,
    close,
    descriptors,
    eventually,
    exit_status,
    kill,
    parent,
    read_all,
    read_line,
    signals,
    start_owner,
    vanish,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
SLEEP = ["/bin/sleep", "1000"]


def own_children() -> list[int]:
    """The children of this process, which may have some of other tests, and those that nobody has waited for."""
    return reaper.children_by_parent(zombies=True).get(os.getpid(), [])


@pytest_asyncio.fixture
async def nursery() -> AsyncIterator[Nursery]:
    nursery = Nursery()
    yield nursery
    await nursery.close()


class TestWhatCannotStart:
    @each_case("command", ["no-such-program-anywhere", "/no/such/program", "./no-such-program"])
    async def test_a_missing_command(self, nursery: Nursery, command: str) -> None:
        with pytest.raises(SpawnError) as caught:
            await nursery.spawn([command])
        assert (caught.value.code, caught.value.where) == (errno.ENOENT, "exec")
        assert str(caught.value) == "No such file or directory"

    async def test_a_command_that_is_not_executable(self, nursery: Nursery, tmp_path: Path) -> None:
        file = tmp_path / "script"
        file.write_text("#!/bin/sh\n")
        for command, path in ((str(file), ""), ("script", str(tmp_path)), (str(tmp_path), "")):
            with pytest.raises(SpawnError) as caught:
                await nursery.spawn([command], {**os.environ, "PATH": path})
            assert (caught.value.code, caught.value.where) == (errno.EACCES, "exec")

    async def test_a_script_for_no_interpreter(self, nursery: Nursery, tmp_path: Path) -> None:
        file = tmp_path / "script"
        file.write_text("echo hello\n")
        file.chmod(0o755)
        with pytest.raises(SpawnError) as caught:
            await nursery.spawn([str(file)])
        assert caught.value.code == errno.ENOEXEC

    async def test_a_missing_folder(self, nursery: Nursery, tmp_path: Path) -> None:
        with pytest.raises(SpawnError) as caught:
            await nursery.spawn(SLEEP, cwd=str(tmp_path / "gone"))
        assert (caught.value.code, caught.value.where) == (errno.ENOENT, "chdir")

    async def test_a_folder_that_is_a_file(self, nursery: Nursery, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.touch()
        with pytest.raises(SpawnError) as caught:
            await nursery.spawn(SLEEP, cwd=str(file))
        assert (caught.value.code, caught.value.where) == (errno.ENOTDIR, "chdir")

    @each_case(
        ("argv", "env", "cwd"),
        [
            (["/bin/echo", "a\0b"], {}, "/"),
            (["/bin/e\0cho"], {}, "/"),
            (["/bin/echo"], {"A": "x\0y"}, "/"),
            (["/bin/echo"], {"A=B": "x"}, "/"),
            (["/bin/echo"], {"": "x"}, "/"),
            (["/bin/echo"], {}, "/tmp\0"),
            (["/bin/echo", "\ud800"], {}, "/"),
        ],
    )
    async def test_a_command_that_the_system_cannot_pass_on_is_refused(
        self, nursery: Nursery, argv: list[str], env: dict[str, str], cwd: str
    ) -> None:
        with pytest.raises(SpawnError) as caught:
            await nursery.spawn(argv, env, cwd)
        assert caught.value.code == errno.EINVAL

    async def test_an_argument_that_is_too_long(self, nursery: Nursery) -> None:
        with pytest.raises(SpawnError) as caught:
            await nursery.spawn(["/bin/echo", "x" * 200_000])
        assert caught.value.code == errno.E2BIG

    async def test_no_command_at_all(self, nursery: Nursery) -> None:
        with pytest.raises(SpawnError):
            await nursery.spawn([])

    async def test_a_failure_leaves_the_launcher_well(self, nursery: Nursery) -> None:
        with pytest.raises(SpawnError):
            await nursery.spawn(["/no/such/program"])
        process = await nursery.spawn(["/bin/echo", "fine"])
        assert await read_all(process.stdout) == b"fine\n"

    async def test_too_few_descriptors_leave_nothing_open(self, nursery: Nursery) -> None:
        await nursery.spawn(SLEEP)
        highest = max(descriptors())
        fill = [os.open(os.devnull, os.O_RDONLY)]
        while fill[-1] <= highest:  # leave no gap
            fill.append(os.open(os.devnull, os.O_RDONLY))
        before = descriptors()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for spare in range(8):  # a start takes eight
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(before) + 1 + spare, hard))
            try:
                with pytest.raises(OSError, match="Too many open files"):
                    await nursery.spawn(SLEEP)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert descriptors() == before
        for fd in fill:
            os.close(fd)


class TestWhatAChildGets:
    async def test_its_arguments_exactly(self, nursery: Nursery) -> None:
        argv = [
            "/bin/sh",
            "-c",
            "cat /proc/$$/cmdline",
            "",
            "a b",
            "naïve ☕",
            "-x",
            "\n",
            os.fsdecode(b"\xff\xfe"),
        ]
        process = await nursery.spawn(argv)
        assert (await read_all(process.stdout)).split(b"\0")[:-1] == [os.fsencode(each) for each in argv]

    async def test_its_environment_exactly(self, nursery: Nursery) -> None:
        env = {
            "A": "1",
            "EMPTY": "",
            "TEXT": "naïve ☕\nline=2",
            "BYTES": os.fsdecode(b"\xff\xfe"),
            "nämé": "x",
        }
        process = await nursery.spawn(["/bin/cat", "/proc/self/environ"], env)
        args = (await read_all(process.stdout)).split(b"\0")[:-1]
        assert sorted(args) == sorted(os.fsencode(f"{name}={value}") for name, value in env.items())

    async def test_even_no_environment(self, nursery: Nursery) -> None:
        process = await nursery.spawn(["/bin/cat", "/proc/self/environ"], {})
        assert await read_all(process.stdout) == b""

    async def test_an_environment_of_a_mebibyte(self, nursery: Nursery) -> None:
        env = {f"V{number}": "x" * 100_000 for number in range(10)}
        process = await nursery.spawn(["/bin/cat", "/proc/self/environ"], env)
        assert len(await read_all(process.stdout)) == 10 * 100_000 + 10 * len("V0=\0")

    async def test_its_folder(self, nursery: Nursery, tmp_path: Path) -> None:
        folder = tmp_path / os.fsdecode(b"caf\xe9 ")
        folder.mkdir()
        process = await nursery.spawn(["/bin/pwd", "-P"], cwd=str(folder))
        assert await read_all(process.stdout) == os.fsencode(str(folder.resolve())) + b"\n"

    async def test_its_command_is_looked_up_in_its_own_path(self, nursery: Nursery, tmp_path: Path) -> None:
        program = tmp_path / "greet"
        program.write_text("#!/bin/sh\necho hello from here\n")
        program.chmod(0o755)
        process = await nursery.spawn(["greet"], {**os.environ, "PATH": f"/nowhere:{tmp_path}"})
        assert await read_all(process.stdout) == b"hello from here\n"

    async def test_a_relative_command_is_found_from_its_folder(
        self, nursery: Nursery, tmp_path: Path
    ) -> None:
        program = tmp_path / "greet"
        program.write_text("#!/bin/sh\necho hello from here\n")
        program.chmod(0o755)
        process = await nursery.spawn(["./greet"], cwd=str(tmp_path))
        assert await read_all(process.stdout) == b"hello from here\n"

    async def test_pipes_that_are_joined_to_ours(self, nursery: Nursery) -> None:
        process = await nursery.spawn(["/bin/sh", "-c", "read line; echo out $line; echo err $line >&2"])
        os.write(process.stdin, b"hello\n")
        assert await read_all(process.stdout) == b"out hello\n"
        assert await read_all(process.stderr) == b"err hello\n"

    async def test_the_end_of_its_input(self, nursery: Nursery) -> None:
        process = await nursery.spawn(["/bin/cat"])
        os.write(process.stdin, b"last words")
        os.close(process.stdin)
        assert await read_all(process.stdout) == b"last words"
        assert await exit_status(process) == 0

    async def test_no_descriptor_but_three_however_many_we_have(self, nursery: Nursery) -> None:
        leaky = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
        for fd in leaky:
            os.set_inheritable(fd, True)
        other, process = await nursery.spawn(["/bin/cat"]), await nursery.spawn(["/bin/cat"])
        for each in (other, process):
            os.write(each.stdin, b"up\n")
            assert await read_line(each.stdout) == b"up\n"
        args = descriptors(process.pid)
        assert args.keys() == {0, 1, 2}
        assert len(set(args.values())) == 3
        assert set(args.values()).isdisjoint(descriptors(other.pid).values())
        for fd in leaky:
            os.close(fd)

    async def test_default_signals_and_none_blocked(self, nursery: Nursery) -> None:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
        try:
            process = await nursery.spawn(SLEEP)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        assert signals(process.pid, "SigBlk") == 0
        assert signals(process.pid, "SigCgt") == 0
        ignored = signals(process.pid, "SigIgn")
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGCHLD):
            assert not ignored & 1 << (number - 1), number.name

    async def test_a_session_of_its_own(self, nursery: Nursery) -> None:
        process = await nursery.spawn(SLEEP)
        assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid


class TestTheEnd:
    @each_case("code", [0, 1, 3, 127, 255])
    async def test_an_exit_code_is_reported(self, nursery: Nursery, code: int) -> None:
        process = await nursery.spawn(["/bin/sh", "-c", f"exit {code}"])
        status = await exit_status(process)
        assert os.waitstatus_to_exitcode(status) == code
        assert describe_status(status) == f"exited with code {code}"

    @each_case("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGPIPE])
    async def test_a_signal_is_reported(self, nursery: Nursery, number: signal.Signals) -> None:
        process = await nursery.spawn(["/bin/sh", "-c", f"ulimit -c 0; kill -{number:d} $$"])
        assert describe_status(await exit_status(process)) == f"was killed by {number.name}"

    async def test_a_process_that_ends_at_once_has_started_all_the_same(self, nursery: Nursery) -> None:
        process = await nursery.spawn(["/bin/true"])
        assert process.pid > 0
        assert await exit_status(process) == 0

    async def test_a_process_asked_to_end_may_tidy_up(self, nursery: Nursery) -> None:
        process = await nursery.spawn(
            ["/bin/sh", "-c", "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.01; done"]
        )
        await read_line(process.stdout)
        process.end()
        assert describe_status(await exit_status(process)) == "exited with code 5"
        # A copy of the shell that was about to become `sleep` may say it as well.
        assert set((await read_all(process.stdout)).split()) == {b"bye"}

    async def test_a_process_deaf_to_everything_is_killed(self, nursery: Nursery) -> None:
        process, pids = await nursery.spawn_tree("deaf")
        os.close(process.stdin)
        process.end()
        process.end()
        assert describe_status(await exit_status(process)) == "was killed by SIGKILL"
        await vanish(pids)

    @pytest.mark.parametrize("tree", TREES)
    async def test_nothing_is_left_of_a_tree_that_is_ended(self, nursery: Nursery, tree: str) -> None:
        process, pids = await nursery.spawn_tree(tree)
        process.end()
        await exit_status(process)
        assert [pid for pid in pids if lives(pid)] == []

    @pytest.mark.parametrize("tree", TREES)
    async def test_nothing_is_left_of_a_tree_whose_child_is_killed(self, nursery: Nursery, tree: str) -> None:
        process, pids = await nursery.spawn_tree(tree)
        kill(process.pid)
        assert await exit_status(process) == signal.SIGKILL
        assert [pid for pid in pids if lives(pid)] == []

    @pytest.mark.parametrize("tree", TREES)
    async def test_nothing_is_left_of_a_tree_whose_reaper_is_killed(
        self, nursery: Nursery, tree: str
    ) -> None:
        process, pids = await nursery.spawn_tree(tree)
        kill(parent(process.pid))
        assert await exit_status(process) == signal.SIGKILL
        await vanish(pids)

    async def test_output_ends_with_the_child_even_where_a_daemon_holds_the_pipe(
        self, nursery: Nursery
    ) -> None:
        process = await nursery.spawn(["/bin/sh", "-c", "setsid sleep 1000 & echo last words"])
        async with asyncio.timeout(PATIENCE_S):
            assert await read_all(process.stdout) == b"last words\n"


class TestKilledHelpers:
    async def test_after_the_launcher_was_killed_another_child_starts(self, nursery: Nursery) -> None:
        first, pids = await nursery.spawn_tree("deaf")
        launcher = parent(parent(first.pid))
        kill(launcher)
        second = await nursery.spawn(SLEEP)
        assert parent(parent(second.pid)) != launcher
        assert lives(first.pid)
        first.end()
        assert describe_status(await exit_status(first)) == "was killed by SIGKILL"
        await vanish(pids)

    async def test_a_launcher_that_died_long_ago_is_replaced(self, nursery: Nursery) -> None:
        first = await nursery.spawn(SLEEP)
        launcher = parent(parent(first.pid))
        kill(launcher)
        await vanish([launcher])
        for _ in range(3):
            process = await nursery.spawn(["/bin/echo", "hello"])
            assert await read_all(process.stdout) == b"hello\n"

    async def test_a_child_goes_with_its_reaper_even_without_a_launcher(self, nursery: Nursery) -> None:
        process, pids = await nursery.spawn_tree("deaf")
        reaper_pid = parent(process.pid)
        kill(parent(reaper_pid))
        kill(reaper_pid)
        assert await exit_status(process) == signal.SIGKILL
        await vanish([*pids, reaper_pid])

    @pytest.mark.parametrize("order", ["launcher first", "reaper first"])
    async def test_their_descendants_are_ended_however_long_they_take_to_die(
        self, nursery: Nursery, monkeypatch: pytest.MonkeyPatch, order: str
    ) -> None:
        """The kernel closes the sockets of a killed process before its children get another parent."""
        process, pids = await nursery.spawn_tree("daemon")
        looks, before = iter(range(6)), [reaper.children_by_parent(zombies) for zombies in (False, True)]
        really = reaper.children_by_parent
        monkeypatch.setattr(
            reaper,
            "children_by_parent",
            lambda zombies=False: before[zombies] if next(looks, None) is not None else really(zombies),
        )
        both = [parent(process.reaper_pid), process.reaper_pid]
        for pid in both if order == "launcher first" else reversed(both):
            kill(pid)
        await vanish([*pids, *both])

    async def test_no_zombie_stays_of_what_died_before_it_was_seen(self, nursery: Nursery) -> None:
        before = set(own_children())
        process = await nursery.spawn(
            ["/bin/sh", "-c", "for i in 1 2 3; do setsid sleep 1000 & done; echo; wait"]
        )
        await read_line(process.stdout)
        tree = reaper.children_by_parent()[process.pid]
        kill(parent(process.reaper_pid))
        for pid in [*tree, process.pid, process.reaper_pid]:
            kill(pid)
        await eventually(lambda: set(own_children()) <= before)

    async def test_a_killed_reaper_does_not_harm_the_children_of_others(self, nursery: Nursery) -> None:
        victim, pids = await nursery.spawn_tree("daemon")
        other = await nursery.spawn(["/bin/cat"])
        kill(parent(victim.pid))
        await exit_status(victim)
        await vanish(pids)
        os.write(other.stdin, b"still here\n")
        assert await read_line(other.stdout) == b"still here\n"

    async def test_with_many_files_open_a_launcher_can_be_started(self, nursery: Nursery) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 2048:
            pytest.skip("this system allows too few open files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
        opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
        try:
            process = await nursery.spawn(["/bin/echo", "hello"])
            assert await read_all(process.stdout) == b"hello\n"
        finally:
            for fd in opened:
                os.close(fd)
            await exit_status(process)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class TestTheOwner:
    @pytest.mark.parametrize("end", ["process", "group"])
    async def test_nothing_is_left_when_the_owner_is_killed(self, end: str) -> None:
        owner = start_owner()
        assert owner.stdout is not None
        pids = [int(word) for word in (await read_line(owner.stdout.fileno())).split()]
        assert len(pids) >= 4 * len(TREES)
        assert [pid for pid in pids if not lives(pid)] == []
        if end == "group":
            os.killpg(owner.pid, signal.SIGKILL)
        else:
            kill(owner.pid)
        owner.wait()
        await vanish(pids)
        owner.stdout.close()


class TestHousekeeping:
    async def test_fifty_children_leave_no_descriptor_open(self, nursery: Nursery, tmp_path: Path) -> None:
        await exit_status(await nursery.spawn(["/bin/true"]))
        nursery.processes.clear()
        before = len(descriptors())
        for number in range(50):
            if number % 5 == 0:
                with pytest.raises(SpawnError):
                    await nursery.spawn(["/no/such/program"])
                continue
            process = await nursery.spawn(["/bin/cat"])
            os.close(process.stdin)
            assert await exit_status(process) == 0
            close(process.stdout)
            close(process.stderr)
        nursery.processes.clear()
        await eventually(lambda: len(descriptors()) <= before)

    async def test_children_can_be_started_all_at_once(self, nursery: Nursery) -> None:
        started = await asyncio.gather(*(nursery.spawn(["/bin/echo", str(number)]) for number in range(20)))
        assert [await read_all(process.stdout) for process in started] == [b"%d\n" % n for n in range(20)]

    async def test_a_cancelled_wait_for_a_start_leaves_nothing(self, nursery: Nursery) -> None:
        await exit_status(await nursery.spawn(["/bin/true"]))
        before = len(descriptors())
        task = asyncio.create_task(nursery.spawn(SLEEP))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: len(descriptors()) <= before)

    async def test_the_launcher_goes_when_it_is_let_go(self) -> None:
        nursery = Nursery()
        process = await nursery.spawn(SLEEP)
        reaper_pid = parent(process.pid)
        launcher = parent(reaper_pid)
        await nursery.close()
        assert [pid for pid in (process.pid, reaper_pid, launcher) if lives(pid)] == []

    async def test_a_launcher_never_used_is_let_go_in_peace(self) -> None:
        await Nursery().close()

    async def test_orphans_are_adopted_for_as_long_as_any_launcher_is_open(self) -> None:
        first, second = Nursery(), Nursery()
        for nursery, others in ((first, False), (second, True)):
            assert adopts_orphans() is others
            await nursery.spawn(SLEEP)
            assert adopts_orphans() is True
        await first.close()
        assert adopts_orphans() is True
        await second.close()
        assert adopts_orphans() is False


@each_case(
    ("status", "words"),
    [
        (0, "exited with code 0"),
        (3 << 8, "exited with code 3"),
        (9, "was killed by SIGKILL"),
        (11 | 0x80, "was killed by SIGSEGV"),
        (40, "was killed by signal 40"),
    ],
)
def test_a_wait_status_is_put_into_words(status: int, words: str) -> None:
    assert describe_status(status) == words


TRACER = """if True:
    import ctypes, os, sys
    libc = ctypes.CDLL(None, use_errno=True)
    if len(sys.argv) == 1:
        libc.prctl(24, 19, 0, 0, 0)  # root gives up CAP_SYS_PTRACE; others have none
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", os.environ["TRACER"], "again"])
    launcher = int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1])
    for pid in (os.getppid(), launcher):
        print(libc.ptrace(16, pid, None, None), ctypes.get_errno(), flush=True)
    """


async def test_neither_reaper_nor_launcher_can_be_traced_by_a_child(nursery: Nursery) -> None:
    process = await nursery.spawn([*PYTHON, TRACER], {**os.environ, "TRACER": TRACER})
    refused = b"-1 %d\n" % errno.EPERM
    assert await read_all(process.stdout) == refused * 2


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
async def test_a_stopped_reaper_ends_its_tree_when_asked(nursery: Nursery, number: signal.Signals) -> None:
    process, pids = await nursery.spawn_tree("daemon")
    os.kill(process.reaper_pid, number)
    process.end()
    await exit_status(process)
    await vanish([*pids, process.reaper_pid])


async def test_a_process_of_our_own_session_is_not_taken_for_a_stray(nursery: Nursery) -> None:
    """Middleware may start programs; they are not ours to end."""
    other = await asyncio.create_subprocess_exec(*SLEEP)
    process, pids = await nursery.spawn_tree("daemon")
    kill(parent(process.reaper_pid))
    kill(process.reaper_pid)
    await vanish(pids)
    assert lives(other.pid)
    other.kill()
    await other.wait()
