"""A promise that is said to hold is kept by real processes, whatever mechanisms a system lacks."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from switchboard_mcp.config.sandbox import PRESETS
from switchboard_mcp.errors import Failure
from switchboard_mcp.sandbox.plan import Launch
from switchboard_mcp.sandbox.promises import Promise, Support, promises
from tests.unit.sandbox.conftest import OWN_PYTHON, Sandboxed, outcomes, words_of
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
async def test_what_is_said_to_hold_is_kept(
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
