"""Other mechanisms for the same words. Docker, podman and `sandbox-exec` have not been run: their argv is compared."""

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
    SandboxSettings,
    SandboxWords,
    effective,
    sandbox_mistakes,
)
from switchboard_mcp.errors import Failure
from switchboard_mcp.sandbox.mechanisms import bubblewrap_argv, client_env, container_argv, seatbelt_argv
from switchboard_mcp.sandbox.plan import Launch, Places, SandboxPlan, make_plan
from switchboard_mcp.sandbox.promises import Support, mechanism_of, promises
from switchboard_mcp.transport.process.launcher import SpawnError
from tests.unit.sandbox.conftest import OWN_PYTHON, Sandboxed, words_of
from tests.unit.sandbox.test_promises import FULL

CONTAINER: dict[str, Any] = {"mechanism": "docker", "image": "node:22-slim"}
DOCKER = replace(FULL, programs={"docker": "/usr/bin/docker", "podman": "/usr/bin/podman"})
MAC = Support(system="darwin", programs={"seatbelt": "/usr/bin/sandbox-exec"})


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


class TestContainers:
    def test_the_words_become_options(self, place: Places) -> None:
        words = words_of("workspace", **CONTAINER, network="none")
        plan, launch = plan_for(place, words, DOCKER)
        argv = container_argv("/usr/bin/docker", "name", words, plan, launch, (1000, 100))
        assert argv[:2] == ["/usr/bin/docker", "run"]
        assert {"--rm", "--interactive", "--init", "--read-only"} <= set(argv)
        assert pairs(argv, "--network") == ["none"]
        assert pairs(argv, "--cap-drop") == ["ALL"]
        assert pairs(argv, "--user") == ["1000:100"]
        assert pairs(argv, "--memory") == pairs(argv, "--memory-swap") == ["8192m"]
        assert pairs(argv, "--pids-limit") == ["512"]
        assert pairs(argv, "--ulimit") == ["core=0:0", "nofile=4096:4096", f"fsize={2048 << 20}:{2048 << 20}"]
        assert pairs(argv, "--workdir") == [place.workspace]
        assert argv[-4:] == ["--entrypoint", "/bin/true", "node:22-slim", "--flag"]

    def test_files_are_mounted_protected_and_hidden(self, place: Places) -> None:
        words = words_of("workspace", **CONTAINER)
        plan, launch = plan_for(place, words, DOCKER)
        mounts = pairs(container_argv("docker", "name", words, plan, launch, (0, 0)), "--mount")
        folder = place.workspace  # its name has a comma, which is quoted
        assert f'type=bind,"source={folder}","target={folder}"' in mounts
        assert f'type=bind,"source={folder}/.git","target={folder}/.git",readonly' in mounts
        assert any(one.startswith(f'type=tmpfs,"destination={folder}/.switchboard"') for one in mounts), (
            mounts
        )
        assert not any("source=/usr" in one for one in mounts)

    def test_values_of_variables_are_not_in_the_command_line(self, place: Places) -> None:
        words = words_of("workspace", **CONTAINER)
        plan, launch = plan_for(place, words, DOCKER)
        argv = container_argv("docker", "name", words, plan, launch, (0, 0))
        assert "secret" not in " ".join(argv)
        variables = pairs(argv, "--env")
        assert "TOKEN" in variables
        assert f"HOME={place.cache}" in variables
        assert "DOCKER_HOST=inner" in variables
        assert not any(one.startswith("PATH") for one in variables)
        own = client_env(plan.launch.env, {"HOME": "/home/me", "DOCKER_HOST": "outer", "OTHER": "x"})
        assert (own["HOME"], own["DOCKER_HOST"], own["TOKEN"]) == ("/home/me", "outer", "secret")
        assert "OTHER" not in own

    def test_podman_keeps_the_user_and_a_program_of_the_child_keeps_its_path(
        self, place: Places, tmp_path: Path
    ) -> None:
        program = tmp_path / "server"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        words = words_of("workspace", mechanism="podman", image="alpine")
        plan, launch = plan_for(place, words, DOCKER, str(program))
        argv = container_argv("/usr/bin/podman", "name", words, plan, launch, (1000, 1000))
        assert pairs(argv, "--userns") == ["keep-id"]
        assert pairs(argv, "--entrypoint") == [str(program)]

    @pytest.mark.parametrize(
        ("network", "option"), [("none", "none"), ("loopback", "none"), ("all", "bridge")]
    )
    def test_networks(self, place: Places, network: str, option: str) -> None:
        words = words_of("workspace", **CONTAINER, network=network)
        plan, launch = plan_for(place, words, DOCKER)
        argv = container_argv("docker", "name", words, plan, launch, (0, 0))
        assert pairs(argv, "--network") == [option]

    def test_promises_are_marked_as_not_tested_and_host_rules_do_not_hold(self) -> None:
        words = words_of("workspace", **CONTAINER, network="hosts", hosts=["a.com"], processes=["git"])
        found = {promise.name: promise for promise in promises(words, DOCKER)}
        assert found["files"].by == "docker, not tested"
        assert {name for name, promise in found.items() if not promise.holds} == {"network", "processes"}


class TestSeatbelt:
    def test_the_profile_has_the_paths_of_the_plan(self, place: Places) -> None:
        words = words_of("workspace", mechanism="seatbelt")
        plan, _ = plan_for(place, words, MAC)
        argv = seatbelt_argv(words, plan)
        assert argv[:2] == ["/usr/bin/sandbox-exec", "-p"]
        assert argv[3:] == ["/bin/true", "--flag"]
        profile = argv[2]
        assert "(deny default)" in profile
        assert f'(subpath "{place.cache}/tmp")' in profile
        lines = profile.splitlines()
        assert f'(deny file-write* (subpath "{place.workspace}/.git"))' in lines
        assert f'(deny file-read* file-write* (subpath "{place.workspace}/.switchboard"))' in lines

    def test_it_is_used_only_if_it_is_named(self) -> None:
        assert not any(promise.holds for promise in promises(PRESETS["workspace"], MAC))
        found = {one.name: one for one in promises(words_of("workspace", mechanism="seatbelt"), MAC)}
        assert found["files"].by == "seatbelt, not tested"
        assert {name for name, promise in found.items() if not promise.holds} == {"limits"}


@pytest.mark.skipif(sys.platform != "linux", reason="the missing mechanisms are those of Linux")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"mechanism": "seatbelt"}, "exists on macOS only"),
        ({"mechanism": "podman", "image": "x"}, "`podman` is not installed"),
        ({"mechanism": "docker"}, "needs an `image`"),
    ],
)
async def test_a_named_mechanism_that_is_missing_refuses_the_start(
    sandboxed: Sandboxed, words: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = {"docker": "/usr/bin/docker"}
    monkeypatch.setattr("switchboard_mcp.sandbox.runner.find_programs", lambda: programs)
    launch = Launch([OWN_PYTHON, "-c", ""], dict(os.environ), str(sandboxed.workspace))
    refused = await sandboxed.runner.start("child", words_of("workspace", **words), launch, [], print)
    assert isinstance(refused, Failure)
    assert reason in refused.message


def test_a_container_needs_an_image() -> None:
    assert [key for key, _ in sandbox_mistakes(SandboxSettings(mechanism="docker"))] == ["image"]
    assert [key for key, _ in sandbox_mistakes(SandboxSettings(mechanism="linux", image="-v"))] == ["image"]
    settings = SandboxSettings(mechanism="docker", image="alpine")
    assert not list(sandbox_mistakes(settings))
    words = effective(settings, SandboxSettings(network="none"))
    assert (words.mechanism, words.image, words.preset) == ("docker", "alpine", "workspace")
