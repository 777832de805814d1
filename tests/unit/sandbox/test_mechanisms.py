"""bubblewrap for the same words."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from switchboard_mcp.config.sandbox import (
    PRESETS,
    SandboxWords,
)
from switchboard_mcp.errors import Failure
from switchboard_mcp.sandbox.mechanisms import bubblewrap_argv
from switchboard_mcp.sandbox.plan import Launch, Places, SandboxPlan, make_plan
from switchboard_mcp.sandbox.promises import Support, mechanism_of, promises
from switchboard_mcp.transport.process.launcher import SpawnError
from tests.unit.sandbox.conftest import OWN_PYTHON, Sandboxed, words_of
from tests.unit.sandbox.test_promises import FULL

CONTAINER: dict[str, Any] = {"mechanism": "docker", "image": "node:22-slim"}


@pytest.fixture
def place(tmp_path: Path) -> Places:
    workspace = tmp_path / "work,space"
    (workspace / ".git").mkdir(parents=True)
    (workspace / ".switchboard").mkdir()
    return Places(str(workspace), str(tmp_path / "home"), str(tmp_path / "cache"))


def plan_for(place: Places, words: SandboxWords, support: Support, *argv: str) -> tuple[SandboxPlan, Launch]:
    env = {"PATH": os.environ["PATH"], "HOME": "/root", "TOKEN": "secret", "DOCKER_HOST": "inner"}
    launch = Launch(list(argv or ("/bin/true", "--flag")), env, place.workspace)
    return make_plan(words, launch, ["PATH", "HOME"], place, support, "x86_64"), launch


def pairs(argv: list[str], option: str) -> list[str]:
    return [value for name, value in itertools.pairwise(argv) if name == option]


class TestBubblewrap:
    def test_every_kind_of_mount_has_its_option(self) -> None:
        mounts: list[tuple[str, bytes, Any]] = [
            ("ro", b"/usr", None), ("rw", b"/w", None), ("dev", b"/dev/null", None), ("tmp", b"/tmp", 4096),
            ("empty", b"/w/h", None), ("link", b"/bin", b"usr/bin"), ("dir", b"/run", None), ("ro", b"/proc", None),
        ]  # fmt: skip
        argv = bubblewrap_argv("/usr/bin/bwrap", mounts, True, ["program", "argument"])
        text = " ".join(argv)
        for part in (
            "--ro-bind /usr /usr", "--bind /w /w", "--dev-bind /dev/null /dev/null", "--dir /run", "--proc /proc",
            "--perms 1777 --size 4096 --tmpfs /tmp", "--tmpfs /w/h --remount-ro /w/h", "--symlink usr/bin /bin",
            "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--die-with-parent", "--clearenv",
        ):  # fmt: skip
            assert part in text
        assert text.endswith("--remount-ro / --chdir / -- program argument")
        assert "--unshare-net" not in bubblewrap_argv("/usr/bin/bwrap", mounts, False, [])

    def test_it_is_used_if_it_is_named_or_if_only_it_works(self) -> None:
        only = replace(FULL, mount=False, bubblewrap=replace(FULL, pids=True))
        assert mechanism_of(PRESETS["workspace"], only) == "bubblewrap"
        assert all(promise.holds for promise in promises(PRESETS["workspace"], only))
        assert mechanism_of(PRESETS["workspace"], FULL) == "linux"
        assert mechanism_of(words_of("workspace", mechanism="linux"), only) == "linux"

    @pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
    async def test_a_program_that_does_not_exist_is_reported(self, sandboxed: Sandboxed) -> None:
        words = words_of("workspace", mechanism="bubblewrap")
        with pytest.raises(SpawnError) as caught:
            await sandboxed.run(words, "/no/such/program")
        assert caught.value.where == "exec"
        assert caught.value.code == 2

    @pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
    async def test_arguments_and_variables_arrive_as_they_are(self, sandboxed: Sandboxed) -> None:
        words = words_of("workspace", mechanism="bubblewrap", env=["*"])
        code = "import os, sys; print(sys.argv[1], os.environ['ODD'], os.getcwd())"
        text = await sandboxed.run(words, OWN_PYTHON, "-c", code, "-- $x é", env={"ODD": "a\nb"})
        assert text == f"-- $x é a\nb {sandboxed.workspace}\n"

    @pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
    async def test_the_process_of_its_program_is_found(self, sandboxed: Sandboxed) -> None:
        words = words_of("workspace", mechanism="bubblewrap")
        launch = Launch([OWN_PYTHON, "-c", "input()"], dict(os.environ), str(sandboxed.workspace))
        started = await sandboxed.runner.start("child", words, launch, [], sandboxed.denials.append)
        assert not isinstance(started, Failure)
        process, sandbox = started
        assert os.readlink(f"/proc/{sandbox.program_pid(process.pid)}/exe") == OWN_PYTHON
        process.end()
        await process.exited
        for fd in (process.stdin, process.stdout, process.stderr):
            os.close(fd)


@pytest.mark.skipif(sys.platform != "linux", reason="the missing mechanism is one of Linux")
async def test_a_named_mechanism_that_is_missing_refuses_the_start(
    sandboxed: Sandboxed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard_mcp.sandbox.runner.find_programs", dict)
    monkeypatch.setattr("switchboard_mcp.sandbox.runner.find_bubblewrap", lambda: None)
    launch = Launch([OWN_PYTHON, "-c", ""], dict(os.environ), str(sandboxed.workspace))
    words = words_of("workspace", mechanism="bubblewrap")
    refused = await sandboxed.runner.start("child", words, launch, [], print)
    assert isinstance(refused, Failure)
    assert "`bwrap` is not installed" in refused.message
