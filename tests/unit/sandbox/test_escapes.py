"""The escape matrix: every attempt of `tests/children/escape.py` in every preset, on this machine's kernel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from switchboard_mcp.config.sandbox import SandboxWords
from tests.unit.sandbox.conftest import OWN_PYTHON, Sandboxed, outcomes, words_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Landlock, seccomp and namespaces are Linux")
ESCAPE = Path(__file__).parents[2] / "children" / "escape.py"
LIMITS = {"memoryMb": 4096, "openFiles": 1000, "processes": 100, "fileSizeMb": 100, "tmpMb": 64}
# `hosts` is `workspace` with a rule for a host on the port of the services that the attempts reach for.
EVERY, NONE = {"strict", "workspace", "hosts", "browser"}, set[str]()
WRITERS = {"workspace", "hosts", "browser"}
# The presets in which an attempt succeeds. Each succeeds without a sandbox, unless it is in CLOSED_ANYWAY.
OPEN_IN: dict[str, set[str]] = {
    "read_ssh_key": NONE,
    "list_home": NONE,
    "stat_outside": NONE,
    "write_outside": NONE,
    "truncate_outside": NONE,
    "chmod_outside": NONE,
    "utime_outside": NONE,
    "rename_outside": NONE,
    "read_through_symlink": NONE,
    "read_through_proc_root": NONE,
    "read_through_cwd_of_parent": NONE,
    "hardlink_outside": NONE,
    "write_inside": WRITERS,
    "write_git_hooks": NONE,
    "rename_git": NONE,
    "write_config": NONE,
    "read_mail_store": NONE,
    "write_tmp": EVERY,
    "write_home": EVERY,
    "read_etc_shadow": NONE,
    "see_shared_memory_of_others": NONE,
    "read_inherited_descriptor": NONE,
    "have_open_descriptors": NONE,
    "write_to_terminal_of_others": NONE,
    "create_protected_folder": NONE,
    "attach_memory_of_others": NONE,
    "read_environ_of_others": NONE,
    "read_journal_of_others": NONE,
    "write_memory_of_others": NONE,
    "ptrace_others": NONE,
    "signal_others": NONE,
    "signal_reaper": NONE,
    "limit_others": NONE,
    "renice_others": NONE,
    "reschedule_others": NONE,
    "take_descriptor_of_others": NONE,
    # A browser has the network of the machine: `network: all`.
    "connect_tcp_loopback": {"browser"},
    "connect_mptcp_loopback": NONE,
    "fast_open_loopback": {"browser"},
    "send_udp_loopback": {"browser"},
    "connect_direct_address": {"browser"},
    "send_udp_direct_address": {"browser"},
    "connect_any_address": {"browser"},
    "connect_ipv6_loopback": {"browser"},
    "connect_ipv6_mapped": {"browser"},
    "connect_ipv6_direct_address": {"browser"},
    "connect_ipv6_mptcp": NONE,
    "fast_open_ipv6": {"browser"},
    "send_udp_ipv6": {"browser"},
    "send_raw_packet": NONE,
    "connect_unix_socket": NONE,
    "send_unix_datagram": NONE,
    "send_abstract_datagram": NONE,
    "call_dbus": NONE,
    "connect_broker_socket": NONE,
    "connect_abstract_socket": NONE,
    "open_vsock": NONE,
    "open_packet_socket": NONE,
    "bind_own_loopback": WRITERS,
    "io_uring": NONE,
    "bpf": NONE,
    "keyring": NONE,
    # Chromium's own sandbox is made of them.
    "user_namespace": {"browser"},
    "mount": NONE,
    "setuid_helper": NONE,
    "type_into_terminal": NONE,
    "spawn_program": EVERY,
    "fork_bomb": EVERY if os.geteuid() == 0 else NONE,  # the kernel does not count root's processes
    "take_memory": NONE,
    "take_memory_by_brk": NONE,
    "take_shared_memory": EVERY,  # only a control group could limit it
    "take_memory_file": NONE,
    "fill_shared_memory": NONE,
    "write_large_file": NONE,
    "fill_disk": NONE,
    "open_many_files": NONE,
}
# Attempts that this machine or an ordinary user may refuse without any sandbox.
CLOSED_ANYWAY = {
    "bpf", "call_dbus", "connect_ipv6_direct_address", "connect_ipv6_mptcp", "connect_mptcp_loopback",
    "fast_open_ipv6", "fast_open_loopback", "have_open_descriptors", "io_uring", "keyring", "mount",
    "open_packet_socket", "open_vsock", "ptrace_others", "read_etc_shadow", "read_inherited_descriptor",
    "send_raw_packet", "setuid_helper", "take_descriptor_of_others", "type_into_terminal", "user_namespace",
    "write_memory_of_others",
}  # fmt: skip


def words_in(preset: str, targets: dict[str, Any]) -> SandboxWords:
    if preset != "hosts":
        return words_of(preset, limits=LIMITS)
    hosts = [f"*:{targets['tcp']}", f"192.0.2.7:{targets['tcp']}"]
    return words_of("workspace", limits=LIMITS, network="hosts", hosts=hosts)


@pytest.mark.parametrize("preset", sorted(EVERY))
async def test_each_attempt_ends_as_the_table_says(
    sandboxed: Sandboxed, targets: dict[str, Any], preset: str
) -> None:
    words = words_in(preset, targets)
    text = await sandboxed.run(words, OWN_PYTHON, "-I", str(ESCAPE), json.dumps(targets))
    assert outcomes(text).keys() == OPEN_IN.keys()
    assert surprises(text, preset, targets) == {}
    assert (Path(targets["outside"]) / "file").read_text() == "text"


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
@pytest.mark.parametrize("preset", sorted(EVERY))
async def test_bubblewrap_keeps_the_same_table(
    sandboxed: Sandboxed, targets: dict[str, Any], preset: str
) -> None:
    words = replace(words_in(preset, targets), mechanism="bubblewrap")
    text = await sandboxed.run(words, OWN_PYTHON, "-I", str(ESCAPE), json.dumps(targets))
    found = surprises(text, preset, targets)
    # It always starts the loopback of a network; its processes see a parent of their own.
    assert found.keys() <= {"signal_reaper", "bind_own_loopback"}
    assert sandboxed.last is not None
    assert sandboxed.last.plan.mechanism == "bubblewrap"
    assert (Path(targets["outside"]) / "file").read_text() == "text"


def surprises(text: str, preset: str, targets: dict[str, Any]) -> dict[str, str]:
    """Return the attempts that did not end as the table says."""
    found = outcomes(text)
    # A folder that is not shown may exist empty in the child's own temporary folder; what counts is the real one.
    workspace = Path(targets["workspace"])
    if not (workspace / "new").exists():
        found["write_inside"] = "no effect"
    if (workspace / "switchboard.config.json").read_text() == "{}":
        found["write_config"] = "no effect"
    if not (workspace / ".switchboard" / "mcps").exists():
        found["create_protected_folder"] = "no effect"
    assert not (Path(targets["outside"]) / "new").exists()
    if preset in WRITERS:  # it is there, and empty
        assert outcomes(text).get("create_protected_folder") != "open"
    return {name: result for name, result in found.items() if (result == "open") != (preset in OPEN_IN[name])}


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("preset", ["strict", "workspace", "browser"])
async def test_a_program_on_node_gets_no_further(
    sandboxed: Sandboxed, targets: dict[str, Any], preset: str
) -> None:
    text = await sandboxed.run(words_of(preset), "node", str(ESCAPE.with_suffix(".mjs")), json.dumps(targets))
    assert surprises(text, preset, targets) == {}


@pytest.fixture(scope="session")
def static_program(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    program = tmp_path_factory.mktemp("static") / "escape"
    subprocess.run([compiler, "-static", "-o", str(program), str(ESCAPE.with_suffix(".c"))], check=True)
    return str(program)


@pytest.mark.parametrize("preset", ["strict", "workspace", "browser"])
async def test_a_static_program_gets_no_further(
    sandboxed: Sandboxed, targets: dict[str, Any], preset: str, static_program: str
) -> None:
    names = ("outside", "workspace", "pid", "tcp", "unix", "address6")
    text = await sandboxed.run(words_of(preset), static_program, *(str(targets[name]) for name in names))
    assert surprises(text, preset, targets) == {}


def test_without_a_sandbox_the_attempts_succeed(targets: dict[str, Any], tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path), "HOME": str(tmp_path / "home")}
    names = [name for name in OPEN_IN if name not in CLOSED_ANYWAY and name != "signal_reaper"]
    ran = subprocess.run(
        [
            sys.executable,
            "-I",
            str(ESCAPE),
            json.dumps({**targets, "only": names, "files": 100, "disk": 1 << 20}),
        ],
        capture_output=True,
        text=True,
        env=environ,
        cwd=targets["workspace"],
        check=False,
    )
    found = outcomes(ran.stdout)
    assert {name for name, result in found.items() if result != "open"} == set()
