"""Switchboard's commands as a user types them: real processes, and how they must end."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.e2e import command_server
from tests.e2e.command_server import COMMAND

__all__ = ["COMMAND", "Done", "answered", "complaint", "parsed", "run"]

Done = subprocess.CompletedProcess[str]


def run(workspace: Path, *arguments: str, stdin: str | None = None, **environ: str) -> Done:
    """One command, to its end."""
    return command_server.run(arguments, workspace, {**os.environ, **environ}, stdin)


def answered(done: Done, code: int = 0) -> str:
    """Return stdout of a command that succeeds."""
    assert done.returncode == code, done.stderr
    return done.stdout


def parsed(done: Done, code: int = 0) -> Any:
    """The same, where that is JSON on one line."""
    out = answered(done, code)
    assert out.count("\n") == 1
    return json.loads(out)


def complaint(done: Done, code: int) -> str:
    """Return stderr of a command that fails as expected, without a traceback."""
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("switchboard: ")
    assert "Traceback" not in done.stderr
    return done.stderr
