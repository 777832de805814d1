"""The address of a broker: equal for sessions that may share children, and in a folder of the user alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from switchboard_mcp.broker import address, shim
from switchboard_mcp.broker.hello import decode_hello
from tests.cases import each_case


@each_case(
    ("name", "noise"),
    [
        ("TERM", True),
        ("SHLVL", True),
        ("VSCODE_PID", True),
        ("CLAUDE_CODE_SSE_PORT", True),
        ("npm_config_cache", True),
        ("CLAUDE_CODE_MESSAGING_TOKEN", True),
        ("GEMINI_SESSION_ID", True),
        ("OPENCODE_PID", True),
        ("CLAUDE_CODE_OAUTH_TOKEN", False),
        ("OPENCODE_API_KEY", False),
        ("npm_config__authToken", False),
        ("CODEX_API_KEY", False),
        ("PATH", False),
        ("HOME", False),
        ("LANG", False),
        ("SSH_AUTH_SOCK", False),
        ("AWS_PROFILE", False),
        ("XDG_RUNTIME_DIR", False),
        ("TERMINAL_COLOUR", False),
        ("MY_TERM", False),
        ("", False),
    ],
)
def test_variables_of_terminals_do_not_count_and_all_others_do(name: str, noise: bool) -> None:
    assert address.is_noise(name) is noise
    with_it, without = {"A": "1", name: "x"}, {"A": "1"}
    same = address.broker_name("/w", None, with_it) == address.broker_name("/w", None, without)
    assert same is noise


def test_a_folder_that_a_host_adds_to_the_path_for_each_session_does_not_count() -> None:
    paths = [f"/home/u/.codex/tmp/arg0/codex-arg0{name}:/usr/bin:/bin" for name in ("Ab1", "Cd2")]
    cleaned = [address.without_noise({"PATH": path}) for path in (*paths, "/usr/bin:/bin")]
    assert cleaned == [{"PATH": "/usr/bin:/bin"}] * 3


def test_each_workspace_config_file_and_inherited_limit_has_a_broker_of_its_own() -> None:
    names = {
        address.broker_name("/w", None, {}),
        address.broker_name("/v", None, {}),
        address.broker_name("/w", "/c", {}),
    }
    before = os.umask(0o027)
    try:
        names.add(address.broker_name("/w", None, {}))
    finally:
        os.umask(before)
    assert len(names) == 4
    # In a process of its own, since a limit that was lowered stays low.
    code = (
        "import os, resource; from switchboard_mcp.broker.address import inherited_limits as limits\n"
        "seen = [limits(), limits()]; files = resource.RLIMIT_NOFILE\n"
        "resource.setrlimit(files, (64, 64)); seen.append(limits())\n"
        "os.nice(1); seen.append(limits())\n"
        "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)); seen.append(limits())\n"
        "print(len({*map(tuple, seen)}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "4\n"


@each_case("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_can_enter_is_not_used(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(0o700)
    folder = tmp_path / "switchboard"
    assert address.runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)}) == ""
    assert address.runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)}, create=True) == str(folder)
    folder.chmod(mode)
    assert address.runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)}, create=True) == ""
    tmp_path.chmod(mode)
    assert not address.runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)}, create=True).startswith(
        str(tmp_path)
    )


def test_a_link_in_place_of_the_folder_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    (tmp_path / "switchboard").symlink_to(elsewhere)
    assert address.runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)}, create=True) == ""


def test_a_path_that_is_too_long_for_a_socket_is_named_by_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    place = address.socket_address(str(folder / "sb-1"))
    assert len(place) < address.MAX_SOCKET_PATH
    Path(place).touch()
    assert (folder / "sb-1").exists()
    os.close(int(place.split("/")[4]))
    assert address.socket_address("/short") == "/short"


def test_the_first_message_is_read_as_it_was_written() -> None:
    environ = {"A": "1=2", "B": "", "C": "\udcff"}
    hello = decode_hello(shim.encode_hello("join", "1.2", ["--profile", "a b"], environ))
    assert hello is not None
    assert (hello.kind, hello.version, hello.arguments) == ("join", "1.2", ["--profile", "a b"])
    assert hello.environ == environ
    assert hello.folder == os.getcwd()


@each_case(
    "data",
    [
        b"",
        b"\0",
        b"1\0join\0",
        b"2\0join\x001\0/\x000\0",
        b"1\0dance\x001\0/\x000\0",
        b"1\0join\x001\0/\x009\0",
    ],
)
def test_any_other_message_is_none(data: bytes) -> None:
    assert decode_hello(data) is None
