from __future__ import annotations

import ast
import asyncio
import os
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from switchboard_mcp.children import remote_transport
from switchboard_mcp.children.context import ChildContext
from switchboard_mcp.children.launch import Launched, launch
from switchboard_mcp.children.registry import ChildRegistry
from switchboard_mcp.config.models import ChildSpec, Config, Workspace
from switchboard_mcp.config.sandbox import PRESETS
from switchboard_mcp.config.sections import GovernanceSettings
from switchboard_mcp.errors import Failure
from switchboard_mcp.policy.launch.file_inspector import FileIdentity, hash_path
from switchboard_mcp.policy.launch.rules import ApprovedLaunch
from tests.unit.policy.launch.launching import Place

SOURCE = Path(__file__).parents[3] / "src" / "switchboard_mcp"
SPEC = ChildSpec(name="kid", source="file", command="tool", args=["--x"], env={"A": "b"}, cwd="/")


class FakeProcess:
    """A process as the launcher gives it; its pid is that of a real one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended = False
        self._pipes = [os.pipe() for _ in range(3)]
        self.stdin, self.stdout, self.stderr = (write for _, write in self._pipes)

    def end(self) -> None:
        self.ended = True

    @property
    def closed(self) -> bool:
        """True once all pipes have ended. Descriptor numbers would not do: they are reused at once."""
        return all(select.select([read], [], [], 0)[0] for read, _ in self._pipes)

    def release(self) -> None:
        """Close what the launch has left open, so nothing leaks into another test."""
        closed = self.closed
        for read, write in self._pipes:
            os.close(read)
            if not closed:
                os.close(write)


class FakeLauncher:
    def __init__(self, pid: int) -> None:
        self.process = FakeProcess(pid)
        self.spawned: list[tuple[list[str], dict[str, str], str]] = []

    async def spawn(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> FakeProcess:
        self.spawned.append((list(argv), dict(env), cwd))
        return self.process


@pytest.fixture
def launchers() -> Iterator[list[FakeLauncher]]:
    """Two launchers whose processes have this test's pid."""
    made = [FakeLauncher(os.getpid()), FakeLauncher(os.getpid())]
    yield made
    for launcher in made:
        launcher.process.release()


class FakeGuard:
    def __init__(self, files: tuple[FileIdentity, ...]) -> None:
        self.files = files

    def approve(self, spec: ChildSpec) -> ApprovedLaunch:
        return ApprovedLaunch(["/approved/tool"], {"ONLY": "this"}, "/approved", self.files)


def services(launcher: FakeLauncher, guard: object = None) -> ChildContext:
    environ = {"HOME": "/home/ada", "SWITCHBOARD_BUS_URL": "redis://:secret@redis"}
    return cast(ChildContext, SimpleNamespace(launcher=launcher, launch_policy=guard, environ=environ))


def start(launcher: FakeLauncher, guard: object = None) -> Launched | Failure:
    return asyncio.run(launch(SPEC, services(launcher, guard), 10.0))


def test_in_open_mode_what_is_configured_is_run_and_not_told_the_address_of_the_bus(
    launchers: list[FakeLauncher],
) -> None:
    launcher = launchers[0]
    outcome = start(launcher)
    assert isinstance(outcome, Launched)
    assert outcome.approved is None
    assert launcher.spawned == [(["tool", "--x"], {"HOME": "/home/ada", "A": "b"}, "/")]


def test_in_governed_mode_the_approved_launch_is_what_is_run(launchers: list[FakeLauncher]) -> None:
    launcher = launchers[0]
    running = hash_path(os.path.realpath(sys.executable)).files
    assert isinstance(start(launcher, FakeGuard(running)), Launched)
    assert launcher.spawned == [(["/approved/tool"], {"ONLY": "this"}, "/approved")]


@pytest.mark.skipif(sys.platform != "linux", reason="tells by /proc what a process runs")
def test_a_process_that_runs_another_file_than_was_read_is_ended(
    tmp_path: Path, launchers: list[FakeLauncher]
) -> None:
    launcher, right = launchers
    other = tmp_path / "other"
    other.write_text("")
    outcome = start(launcher, FakeGuard(hash_path(str(other)).files))
    assert isinstance(outcome, Failure)
    assert outcome.code == "launch_refused"
    assert "was replaced" in outcome.message
    assert launcher.process.ended
    assert launcher.process.closed
    assert isinstance(start(right, FakeGuard(hash_path(os.path.realpath(sys.executable)).files)), Launched)


def test_a_remote_child_is_not_connected_to_without_an_approval(tmp_path: Path) -> None:
    place = Place(tmp_path)
    spec = ChildSpec(name="far", source="file", kind="http", url="https://mcp.example.com/")
    # Without an approval nothing else of the services is looked at, let alone a connection made.
    lonely = cast(ChildContext, SimpleNamespace(launch_policy=place.guard()))
    outcome = asyncio.run(remote_transport.connect(spec, lonely))
    assert isinstance(outcome, Failure)
    assert outcome.code == "child_not_allowed"


def test_a_governed_workspace_without_a_guard_has_no_children(launchers: list[FakeLauncher]) -> None:
    workspace = Workspace(
        folder="/",
        config=Config(governance=GovernanceSettings(mode="governed")),
        children=[SPEC],
        warnings=[],
    )
    with pytest.raises(ValueError, match="without a launch policy"):
        ChildRegistry(workspace, services(launchers[0]))


async def test_a_wrapper_in_a_sandbox_is_always_this_program(launchers: list[FakeLauncher]) -> None:
    evil = {"PYTHONPATH": "/evil"}
    spec = replace(
        SPEC, wraps="elsewhere", command="/evil/tool", args=["wrapper", "--workspace", "/evil"], env=evil
    )
    context = services(launchers[0])
    context.workspace, context.config_file = "/workspace", ""
    launched = await launch(spec, context, 5, PRESETS["workspace"])
    assert isinstance(launched, Launched)
    [(argv, env, cwd)] = launchers[0].spawned
    assert argv[:6] == [sys.executable, "-P", "-m", "switchboard_mcp", "wrapper", "kid"]
    assert "/evil" not in argv
    assert "PYTHONPATH" not in env
    assert cwd == context.workspace


STARTS = {
    # The helper of programs: our own interpreter with our own module.
    "launcher.spawn": {"children/launch.py", "programs/helper_pool.py"},
    "dial": {"children/remote_transport.py"},
    # The program that stands between us and every child, and that program itself.
    "Popen": {"transport/process/launcher.py"},
    # A terminal runs the program that its user names behind `--`, as any shell would.
    "execvpe": {"transport/process/reaper.py", "transport/process/pty.py", "sandbox/confine.py"},
    "fork": {
        "transport/process/reaper.py",
        "transport/process/pty.py",
        "broker/shim.py",
        "sandbox/confine.py",
    },
    # `ps` where there is no /proc; the probe of sandboxes and the import of our package: our own programs.
    "subprocess.run": {
        "transport/process/reaper.py",
        "system/processes.py",
        "sandbox/probing.py",
        "broker/rejoin.py",
    },
    # A session becomes a waiting shell, a broker or its own server: our own interpreter with our own module.
    "execv": {"broker/rejoin.py", "broker/shim.py"},
    # The worker of programs: a binary of the package that the helper uses.
    "execve": {"broker/shim.py", "programs/helper/worker_launcher.py"},
}
NEVER = {
    "system", "popen", "posix_spawnp", "spawnv", "execvp", "execl", "forkpty",
    "create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell", "check_output",
    "check_call", "getoutput", "getstatusoutput",
}  # fmt: skip


def called(node: ast.Call) -> str:
    """What is called, with what it is called on where that makes the difference."""
    if not isinstance(node.func, ast.Attribute):
        return node.func.id if isinstance(node.func, ast.Name) else ""
    name = node.func.attr
    # A link's `spawn` starts a task, and a prompt's `system` is words.
    owner = ast.unparse(node.func.value).rpartition(".")[2]
    if name == "spawn" or (owner, name) in (("prompt", "system"), ("subprocess", "run")):
        return f"{owner}.{name}"
    return name


def test_processes_and_connections_begin_in_one_place_each() -> None:
    found: dict[str, set[str]] = {name: set() for name in STARTS}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                assert called(node) not in NEVER, f"{path}:{node.lineno}"
                if called(node) in found:
                    found[called(node)].add(str(path.relative_to(SOURCE)))
            if isinstance(node, ast.keyword):
                assert node.arg != "shell", path
    assert all(places <= STARTS[name] for name, places in found.items()), found
    assert found["launcher.spawn"]
    assert found["dial"]
