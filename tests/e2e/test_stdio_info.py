"""Servers that hosts have started over stdio, as `status` finds them."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.host import LATEST, SWITCHBOARD, Json
from tests.e2e.workspaces import MOCK_CHILD, add_child
from tests.patience import PATIENCE_S

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": LATEST,
        "capabilities": {},
        "clientInfo": {"name": "codex", "version": "1"},
    },
}


def run(workspace: Path, env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*SWITCHBOARD, *arguments, "--workspace", str(workspace)]
    return subprocess.run(
        command,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
    )


def found(workspace: Path, env: dict[str, str]) -> list[Json]:
    servers: list[Json] = json.loads(run(workspace, env, "status", "--json").stdout)["stdioServers"]
    return servers


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("end", ["disconnects", "is killed"])
def test_a_stdio_server_is_found_while_it_runs_and_not_after(tmp_path: Path, end: str) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    add_child(workspace, "mock", MOCK_CHILD)
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    folder = tmp_path / "state" / "switchboard-mcp" / "servers"
    with subprocess.Popen(
        [*SWITCHBOARD, "serve", "--workspace", str(workspace)],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        server.stdin.flush()
        assert server.stdout.readline()
        deadline = time.monotonic() + PATIENCE_S
        while not (servers := found(workspace, env)):
            assert time.monotonic() < deadline, "the server was not found"
        assert [(one["workspace"], one["client"]) for one in servers] == [(str(workspace), "codex")]
        assert [stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()] == [0o600]
        shown = run(workspace, env, "status")
        assert shown.returncode == 0, shown.stderr
        assert "codex" in shown.stdout
        assert str(servers[0]["pid"]) in shown.stdout
        if end == "is killed":
            server.send_signal(signal.SIGKILL)
        else:
            server.stdin.close()
        server.wait(PATIENCE_S)
        assert len(list(folder.iterdir())) == (end == "is killed")
        assert found(workspace, env) == []
        assert list(folder.iterdir()) == []


def test_a_file_of_a_reused_pid_or_with_other_content_is_ignored(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    folder = tmp_path / "state" / "switchboard-mcp" / "servers"
    folder.mkdir(parents=True)
    old = folder / f"{os.getpid()}.json"
    old.write_text(json.dumps({"pid": os.getpid(), "workspace": str(tmp_path)}))
    os.utime(old, (1, 1))
    (folder / "1.json").write_text("nonsense")
    (folder / "2.json").write_text(json.dumps({"pid": 1, "workspace": str(tmp_path)}))
    assert found(tmp_path, env) == []
