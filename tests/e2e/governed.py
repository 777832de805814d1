"""Governed workspaces as a team sets them up: configured, approved and locked with the commands people use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.policy.launch.file_inspector import find_flaw
from tests.e2e import command_server
from tests.e2e.host import Host, Json, switchboard
from tests.e2e.workspaces import REPO, configure

SWITCH = "SWITCHBOARD_MCP_ENABLED"
ON, OFF = {SWITCH: "true"}, {SWITCH: "false"}
# In the script itself: in its sandbox a child reads nothing outside the workspace.
HEAD = (REPO / "tests/children/plain_child.py").read_text()


def safe_python() -> str:
    """An interpreter that nobody but root and ourselves can change; governed mode runs no other."""
    for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        if not find_flaw(path):
            return path
    pytest.fail("every Python here can be changed by others", pytrace=False)


def script(workspace: Path, name: str, code: str = "Child().serve()") -> Path:
    """A child of a few lines in a file of the workspace, which notes each start beside itself."""
    path = workspace / f"{name}.py"
    path.write_text(f"{HEAD}open(__file__ + '.started', 'a').write('started\\n')\n{code}\n")
    return path


def starts(workspace: Path) -> int:
    """Return how often any such child was started."""
    return sum(len(path.read_text().splitlines()) for path in workspace.glob("*.started"))


def govern(
    workspace: Path, servers: Mapping[str, object], allow: Mapping[str, Sequence[str]], **governance: Any
) -> None:
    """Write the config of a governed workspace."""
    suites = {child: {"expose": {"allow": list(names)}} for child, names in allow.items()}
    settings = {"mode": "governed", **governance}
    configure(workspace, {"governance": settings, "mcpServers": servers, "suites": suites})


def command(
    workspace: Path, *arguments: str, env: Mapping[str, str] = ON
) -> subprocess.CompletedProcess[str]:
    """Run one command of Switchboard."""
    return command_server.run(arguments, workspace, {**os.environ, **env})


def ran(workspace: Path, *arguments: str) -> str:
    """The same, where it must work; gives what it said."""
    done = command(workspace, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def complaint(workspace: Path, *arguments: str, env: Mapping[str, str] = ON) -> Json:
    """The structured error of a command that must fail."""
    done = command(workspace, *arguments, "--json", env=env)
    assert done.returncode == 1, done.stdout + done.stderr
    answer: Json = json.loads(done.stdout)
    error: Json = answer["structuredContent"]["error"] if "structuredContent" in answer else answer["error"]
    return error


def serve(workspace: Path, env: Mapping[str, str] = ON) -> Host:
    """Switchboard in that workspace, greeted."""
    host = switchboard(workspace, env={**os.environ, **env})
    host.initialize()
    return host
