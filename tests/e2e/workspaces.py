"""Workspaces as users write them: files of children, a configuration, and the children the tests run."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
from pathlib import Path
from typing import Any

from switchboard_mcp.config import trust
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.errors import SwitchboardError

REPO = Path(__file__).resolve().parent.parent.parent
# Without the site packages, which no test child needs, a child starts in half the time.
PYTHON = [sys.executable, "-S"]
MOCK_CHILD = [*PYTHON, str(REPO / "examples" / "mock-child" / "server.py")]


def faulty(mode: str, *arguments: str) -> list[str]:
    """The command of a child with one fault."""
    return [*PYTHON, str(REPO / "tests" / "children" / "faulty.py"), mode, *arguments]


def scripted(code: str) -> list[str]:
    """A child of a few lines, written where it is needed: `Child`, `send`, `text`, `tool` are at hand."""
    head = f"import sys; sys.path.insert(0, {str(REPO)!r})\nfrom tests.children.plain_child import *\n"
    return [*PYTHON, "-c", head + textwrap.dedent(code)]


def add_child(workspace: Path, name: str, command: list[str], **more: Any) -> Path:
    """Put a child's own file where it is discovered."""
    env = more.pop("env", {})
    entry = {"name": name, "command": {"cmd": command[0], "args": command[1:], "env": env}, **more}
    return write_child(workspace, name, entry)


def write_child(workspace: Path, folder: str, entry: object) -> Path:
    """Put anything into the file of a child; text goes as it is."""
    path = workspace / "mcps" / folder / ".mcp.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(entry if isinstance(entry, str) else json.dumps(entry))
    trust_all(workspace)
    return path


def trust_all(workspace: Path) -> None:
    """Give the user's yes to what the config runs by itself, as `switchboard trust --yes` does."""
    with contextlib.suppress(SwitchboardError):
        loaded = load_workspace(str(workspace), None, os.environ, withhold=False)
        if parts := trust.find_parts(loaded):
            trust.allow(loaded, os.environ, parts)


# Results are passed as they come, however long they are.
WHOLE_RESULTS = {"results": {"compact": "off", "maxTokens": 0}}


def configure(workspace: Path, config: object) -> Path:
    """Write the workspace's configuration; text goes as it is. A broker ends soon after its last session."""
    path = workspace / "switchboard.config.json"
    if isinstance(config, dict) and os.environ.get("SWITCHBOARD_BROKER") == "on":
        config = {"broker": {"enabled": True, "lingerMs": 50}, **config}
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    trust_all(workspace)
    return path


def recorded(command: list[str], file: Path) -> list[str]:
    """The command, with all that is sent to it also written to a file: once it answers, the file has it."""
    return ["sh", "-c", 'tee "$0" | exec "$@"', str(file), *command]


def read_record(file: Path) -> list[dict[str, Any]]:
    """The messages in such a file."""
    return [json.loads(line) for line in file.read_text().splitlines()]
