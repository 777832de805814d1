"""A promise that is said to hold is kept by real processes, whatever mechanisms a system lacks."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from switchboard_mcp.config.sandbox import PRESETS
from switchboard_mcp.errors import Failure
from switchboard_mcp.sandbox.plan import Launch
from switchboard_mcp.sandbox.probing import find_bubblewrap
from switchboard_mcp.sandbox.promises import Promise, Support, promises
from switchboard_mcp.sandbox.runner import SandboxRunner
from switchboard_mcp.transport.process.launcher import Launcher
from tests.unit.sandbox.conftest import OWN_PYTHON, Sandboxed, outcomes, read_all, words_of
from tests.unit.sandbox.test_escapes import ESCAPE, LIMITS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Landlock, seccomp and namespaces are Linux")
ATTEMPTS = {
    "files": [
        "read_ssh_key", "list_home", "write_outside", "truncate_outside", "rename_outside", "read_through_symlink",
        "read_through_proc_root", "read_through_cwd_of_parent", "read_etc_shadow", "hardlink_outside",
        "write_to_terminal_of_others",
    ],
    "attributes": ["stat_outside", "chmod_outside", "utime_outside"],
    "protect": ["write_git_hooks", "rename_git", "write_config"],
    "sockets": ["connect_unix_socket", "connect_broker_socket", "connect_abstract_socket"],
    "others": [
        "read_environ_of_others", "write_memory_of_others", "ptrace_others", "signal_others", "signal_reaper",
        "limit_others", "renice_others", "reschedule_others", "take_descriptor_of_others",
    ],
    "calls": ["io_uring", "bpf", "keyring", "mount", "user_namespace", "type_into_terminal"],
    "privileges": ["setuid_helper"],
    "network": [
        "connect_tcp_loopback", "connect_mptcp_loopback", "fast_open_loopback", "send_udp_loopback",
        "connect_direct_address",
    ],
    "limits": ["take_memory", "open_many_files"],
}  # fmt: skip
# What systems lack: containers without namespaces, old kernels, Ubuntu's restriction, a kernel without Landlock.
LACKING: dict[str, dict[str, Any]] = {
    "nothing": {},
    "mounts": {"mount": False},
    "namespaces": {"user": False, "mount": False, "network": False, "transparent": False},
    "Landlock": {"landlock": 0},
    "Landlock 2": {"landlock": 1, "mount": False},
    "Landlock 6": {"landlock": 5},
    "seccomp": {"seccomp": False},
    "everything": {
        "landlock": 0, "seccomp": False, "user": False, "mount": False, "network": False, "transparent": False,
    },
}  # fmt: skip


async def lack(sandboxed: Sandboxed, name: str) -> Support:
    """Let the runner believe that this system lacks something."""
    support = replace(await sandboxed.runner.support(), **LACKING[name])
    future: asyncio.Future[Support] = asyncio.get_running_loop().create_future()
    future.set_result(support)
    sandboxed.runner.use_support(future)
    return support


@pytest.mark.parametrize("lacking", LACKING)
async def test_every_promise_of_the_status_is_kept(
    sandboxed: Sandboxed, targets: dict[str, Any], lacking: str
) -> None:
    await lack(sandboxed, lacking)
    words = words_of("workspace", network="none", limits=LIMITS)
    only = [name for names in ATTEMPTS.values() for name in names]
    text = await sandboxed.run(words, OWN_PYTHON, "-I", str(ESCAPE), json.dumps({**targets, "only": only}))
    found = outcomes(text)
    assert sandboxed.last is not None
    held = [promise.name for promise in sandboxed.last.plan.promises if promise.holds]
    broken = {name for promise in held for name in ATTEMPTS[promise] if found[name] == "open"}
    assert broken == set()
    assert "privileges" in held
    if lacking == "nothing" and os.geteuid() != 0:
        assert sandboxed.last.plan.broken == []


@pytest.mark.parametrize("lacking", ["mounts", "namespaces", "Landlock 6", "seccomp", "everything"])
async def test_a_required_sandbox_that_cannot_be_kept_does_not_start(
    sandboxed: Sandboxed, lacking: str
) -> None:
    await lack(sandboxed, lacking)
    words = words_of("workspace", required=True)
    launch = Launch([OWN_PYTHON, "-c", ""], dict(os.environ), str(sandboxed.workspace))
    refused = await sandboxed.runner.start("child", words, launch, [], sandboxed.denials.append)
    assert isinstance(refused, Failure)
    assert refused.code == "sandbox_unavailable"
    assert "requires its sandbox" in refused.message
    assert refused.hint


FULL = Support(landlock=7, seccomp=True, user=True, mount=True, network=True, transparent=True)


def by_name(found: list[Promise]) -> dict[str, Promise]:
    return {promise.name: promise for promise in found}


def test_every_promise_has_a_holder_or_a_reason() -> None:
    for lacking in LACKING.values():
        for words in PRESETS.values():
            for promise in promises(words, replace(FULL, **lacking)):
                assert bool(promise.by) != bool(promise.why)


def test_off_promises_nothing() -> None:
    assert promises(PRESETS["off"], FULL) == []


def test_all_promises_hold_with_all_mechanisms() -> None:
    for name in ("strict", "workspace", "browser"):
        assert all(promise.holds for promise in promises(PRESETS[name], FULL))


def test_host_rules_need_a_network_of_its_own() -> None:
    words = words_of("workspace", network="hosts", hosts=["example.com"])
    assert by_name(promises(words, FULL))["network"].holds
    assert not by_name(promises(words, replace(FULL, transparent=False)))["network"].holds
    none = words_of("workspace", network="none")
    assert by_name(promises(none, replace(FULL, network=False)))["network"].by == "seccomp"


def test_the_processes_of_root_are_not_counted() -> None:
    assert not by_name(promises(PRESETS["strict"], replace(FULL, is_root=True)))["limits"].holds


def test_on_another_system_nothing_holds_and_it_says_so() -> None:
    found = promises(PRESETS["workspace"], Support(system="darwin"))
    assert found
    assert all(promise.why == "sandboxes are not applied on darwin" for promise in found)


async def test_a_child_that_would_write_a_home_folder_does_not_start(tmp_path: Path) -> None:
    home = tmp_path / "people" / "me"
    (home / "project").mkdir(parents=True)
    launcher = Launcher(asyncio.get_running_loop())
    environ = {**os.environ, "HOME": str(home)}
    launch = Launch(["/bin/true"], environ, str(home))
    expected = {home: True, home.parent: True, tmp_path: True, home / "project": False}
    for folder, refused in expected.items():
        runner = SandboxRunner(launcher, str(folder), environ, str(tmp_path / "cache"))
        for preset in ("workspace", "browser", "strict"):
            started = await runner.start("kid", PRESETS[preset], launch, environ, lambda _: None)
            is_refused = isinstance(started, Failure)
            assert is_refused is (refused and preset != "strict"), (folder, preset)
            if isinstance(started, Failure):
                assert (started.code, str(home) in started.message) == ("sandbox_unavailable", True)
            else:
                started[0].end()
                await started[0].exited
                for fd in (started[0].stdin, started[0].stdout, started[0].stderr):
                    os.close(fd)
    await launcher.aclose()


HOST_VARIABLES = {
    "CLAUDE_CODE_MESSAGING_SOCKET": "/run/cc-socks/1.sock",
    "CLAUDE_CODE_MESSAGING_TOKEN": "0" * 32,
    "CLAUDE_CODE_SESSION_ID": "kept",
}


async def test_no_child_gets_the_socket_and_token_of_its_host_however_it_is_started(
    sandboxed: Sandboxed,
) -> None:
    print_env = "import json, os; print(json.dumps(dict(os.environ)))"
    argv = [OWN_PYTHON, "-I", "-c", print_env]
    found = {}
    for mechanism in ("linux", "bubblewrap"):
        if mechanism == "linux" or find_bubblewrap() is not None:
            words = words_of("strict", env=["*"], mechanism=mechanism)
            found[mechanism] = json.loads(await sandboxed.run(words, *argv, env=HOST_VARIABLES))
    launcher = Launcher(asyncio.get_running_loop())
    process = await launcher.spawn(argv, {**os.environ, **HOST_VARIABLES}, "/")
    os.close(process.stdin)
    found["no sandbox"] = json.loads(await asyncio.to_thread(read_all, process.stdout))
    os.close(process.stderr)
    await process.exited
    await launcher.aclose()
    for way, variables in found.items():
        assert [name for name in variables if name in HOST_VARIABLES] == ["CLAUDE_CODE_SESSION_ID"], way


async def test_no_child_makes_a_program_that_runs_as_its_owner(sandboxed: Sandboxed) -> None:
    code = """
import json, os, stat
made = []
def attempt(name, action):
    try:
        action()
    except OSError:
        return
    mode = os.stat(name).st_mode
    if mode & (stat.S_ISUID | stat.S_ISGID):
        made.append(name)
os.umask(0)
open("file", "w").close()
attempt("file", lambda: os.chmod("file", 0o6755))
attempt("file", lambda: os.fchmod(os.open("file", os.O_RDWR), 0o4755))
attempt("file", lambda: os.chmod("file", 0o2755, dir_fd=os.open(".", os.O_RDONLY)))
attempt("opened", lambda: os.close(os.open("opened", os.O_CREAT | os.O_WRONLY, 0o4755)))
attempt("made", lambda: os.mknod("made", 0o4755 | stat.S_IFREG))
os.chmod("file", 0o1777)
os.close(os.open("plain", os.O_CREAT | os.O_WRONLY, 0o755))
print(json.dumps([made, oct(os.stat("plain").st_mode & 0o7777)]))
"""
    for preset in ("workspace", "browser"):
        printed = await sandboxed.run(words_of(preset), OWN_PYTHON, "-I", "-c", code)
        assert json.loads(printed) == [[], "0o755"], preset
