"""How a process gets its sandbox: the plan is made while it is forked, and a start that fails leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from switchboard_mcp.config.sandbox import PRESETS
from switchboard_mcp.sandbox import runner
from switchboard_mcp.sandbox.plan import SandboxPlan, make_plan
from switchboard_mcp.sandbox.probing import CONFINE
from switchboard_mcp.transport.process.launcher import REAPER, LauncherProcess, SpawnError, encode_launch
from switchboard_mcp.transport.process.reaper import children_by_parent, descendants_of
from tests.patience import PATIENCE_S
from tests.unit.sandbox.conftest import Sandboxed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
STRICT = PRESETS["strict"]
NO_STEPS: dict[str, object] = {
    "namespaces": 0, "view": [], "loopback": False, "listen": [], "limits": [], "landlock": None, "seccomp": b"",
}  # fmt: skip


async def test_the_plan_is_made_while_the_process_is_forked(
    sandboxed: Sandboxed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        await sandboxed.run(STRICT, "/bin/echo", "first") == "first\n"
    )  # the launcher works, and the probe is done
    events: list[str] = []
    send = LauncherProcess.send

    def note_request(self: LauncherProcess, request: bytes, fds: list[int]) -> None:
        events.append("request")
        send(self, request, fds)

    def note_plan(*args: object) -> SandboxPlan:
        events.append("plan")
        return make_plan(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(LauncherProcess, "send", note_request)
    monkeypatch.setattr(runner, "make_plan", note_plan)
    assert await sandboxed.run(STRICT, "/bin/echo", "-- $x é", env={"A": "b"}) == "-- $x é\n"
    assert events == ["request", "plan"]


async def test_a_plan_that_cannot_be_made_leaves_no_process(
    sandboxed: Sandboxed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await sandboxed.run(STRICT, "/bin/echo", "first") == "first\n"

    def fail(*_args: object) -> SandboxPlan:
        raise OSError("no plan")

    with monkeypatch.context() as patch:
        patch.setattr(runner, "make_plan", fail)
        with pytest.raises(OSError, match="no plan"):
            await sandboxed.run(STRICT, "/bin/echo", "x")
    assert await sandboxed.run(STRICT, "/bin/echo", "second") == "second\n"


async def test_a_launcher_that_is_killed_with_the_request_is_replaced(
    sandboxed: Sandboxed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await sandboxed.run(STRICT, "/bin/echo", "first") == "first\n"
    killed: list[int] = []

    def kill_and_plan(*args: object) -> SandboxPlan:
        if not killed:
            found = launchers()
            killed.extend([*found, *descendants_of(found, children_by_parent())])
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
        return make_plan(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "make_plan", kill_and_plan)
    assert await sandboxed.run(STRICT, "/bin/echo", "second") == "second\n"
    assert killed


def launchers() -> list[int]:
    """The launchers of this process."""
    own = children_by_parent().get(os.getpid(), [])
    return [pid for pid in own if REAPER.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_the_program_inside_bubblewrap_takes_its_launch_from_a_socket(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-I", "-S", CONFINE, str(theirs.fileno())]
        ours.sendall(
            encode_launch(
                ["/bin/sh", "-c", 'echo "$1 $A $PWD"', "sh", "é"], {"A": "b"}, str(tmp_path), NO_STEPS
            )
        )
        done = subprocess.run(
            command,
            pass_fds=[theirs.fileno()],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        )
    assert done.stdout == f"é b {tmp_path}\n"


def test_a_launch_that_is_no_text_of_the_system_is_refused() -> None:
    with pytest.raises(SpawnError):
        encode_launch(["\ud800x"], {}, "/", NO_STEPS)
