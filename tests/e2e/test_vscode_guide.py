"""The guide for VS Code, run as it stands: its files as VS Code reads them, its commands as a person types them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.host import Host
from tests.e2e.windows import Window
from tests.patience import PATIENCE_S

FILE = re.compile(r"\b[Ii]n `([\w./-]+\.json)`:\n\n```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# VS Code's names: keys of a task, of a profile, and the colours of tabs.
TASK_KEYS = {
    "label",
    "type",
    "command",
    "args",
    "icon",
    "presentation",
    "isBackground",
    "problemMatcher",
    "dependsOn",
}
TASK_KEYS |= {"runOptions"}
PROFILE_KEYS = {"path", "args", "icon", "color", "env", "overrideName"}
COLOR = re.compile(r"terminal\.ansi(Black|Red|Green|Yellow|Blue|Magenta|Cyan|White)")


class Editor:
    """VS Code, as far as it starts programs: from the files of a workspace, with `switchboard` on the PATH."""

    def __init__(self, workspace: Path, page: str) -> None:
        self.workspace = workspace
        (workspace / "bin").mkdir()
        program = workspace / "bin" / "switchboard"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m switchboard_mcp "$@"\n')
        program.chmod(0o755)
        self.path = f"{workspace / 'bin'}:{os.environ['PATH']}"
        self.files: dict[str, Any] = {}
        for name, body in FILE.findall(page):
            file = workspace / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(body)
            self.files[name] = json.loads(body)
        self.commands = SHELL.findall(page)

    def open(self, program: str, args: list[str]) -> Window:
        return Window([program, *args], self.workspace, {"PATH": self.path})

    def run(self, script: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["sh", "-euc", script],
            cwd=self.workspace,
            env={**os.environ, "PATH": self.path},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, (script, done.stderr)
        return done.stdout

    def wait_for_terminals(self, *names: str) -> None:
        bridge = self.workspace / ".switchboard" / "bridge.json"
        until = time.monotonic() + PATIENCE_S
        while not bridge.exists() or not set(names) <= set(json.loads(bridge.read_text())["terminals"]):
            assert time.monotonic() < until
            time.sleep(0.05)


@pytest.fixture
def editor(workspace: Path, repo: Path) -> Editor:
    return Editor(workspace, (repo / "docs" / "hosts" / "vscode.md").read_text())


def test_the_page_has_every_file_and_they_use_the_keys_of_the_editor(editor: Editor) -> None:
    assert list(editor.files) == [
        ".vscode/mcp.json",
        "switchboard.config.json",
        ".vscode/tasks.json",
        ".vscode/settings.json",
        ".github/hooks/switchboard.json",
    ]
    tasks = editor.files[".vscode/tasks.json"]["tasks"]
    assert editor.files[".vscode/tasks.json"]["version"] == "2.0.0"
    labels = {task["label"] for task in tasks}
    for task in tasks:
        assert task.keys() <= TASK_KEYS
        assert set(task.get("dependsOn", ())) <= labels
        assert "icon" not in task or COLOR.fullmatch(task["icon"]["color"])
    for profile in editor.files[".vscode/settings.json"]["terminal.integrated.profiles.linux"].values():
        assert profile.keys() <= PROFILE_KEYS
        assert COLOR.fullmatch(profile["color"])


def test_the_server_of_the_page_starts_with_the_mail_tools(editor: Editor) -> None:
    server = editor.files[".vscode/mcp.json"]["servers"]["switchboard"]
    program = server["command"].replace("/path/to", str(editor.workspace / "bin"))
    args = [word.replace("${workspaceFolder}", str(editor.workspace)) for word in server["args"]]
    with Host([program, *args], cwd=editor.workspace) as host:
        host.initialize()
        assert "mail_suite" in [tool["name"] for tool in host.request("tools/list")["result"]["tools"]]


def test_terminals_roles_and_unread_mail_work_as_the_page_says(editor: Editor) -> None:
    roles, sending, reading = editor.commands
    with ExitStack() as stack:
        windows: dict[str, Window] = {}
        for task in editor.files[".vscode/tasks.json"]["tasks"]:
            if "command" in task:
                assert task["type"] == "process"
                windows[task["label"]] = editor.open(task["command"], task["args"])
                stack.callback(windows[task["label"]].close)
        for name, profile in editor.files[".vscode/settings.json"][
            "terminal.integrated.profiles.linux"
        ].items():
            windows[name] = editor.open(profile["path"], profile["args"])
            stack.callback(windows[name].close)
        editor.wait_for_terminals(*windows)
        windows["coder"].wait_for("\x1b]2;🟢 🔧 coder\x07")
        windows["tester"].wait_for("\x1b]2;🔵 tester\x07")

        listed = editor.run(roles)
        for word in ("🔧 coder", "📦 builder", "coder 1", "writes the code", "runs the tests"):
            assert word in listed
        editor.run(sending)
        windows["coder"].wait_for("\x1b]2;[mail] 🟢 🔧 coder\x07")
        windows["builder"].wait_for("echo built")
        windows["builder"].wait_for("built")

        assert "The parser" in editor.run(reading)
        windows["coder"].wait_for("\x1b]2;🟢 🔧 coder\x07")
        for event, handlers in editor.files[".github/hooks/switchboard.json"]["hooks"].items():
            for handler in handlers:
                assert handler["type"] == "command"
                output = editor.run(
                    handler["command"], json.dumps({"hook_event_name": event, "session_id": "s"})
                )
                answer = json.loads(output)["hookSpecificOutput"]
                assert answer["hookEventName"] == event
                assert "submit_result from coder" in answer.get("reason", answer.get("additionalContext"))
        for window in windows.values():
            window.type("exit\r")
            assert window.ended() == 0
