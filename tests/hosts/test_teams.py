"""The real Claude Code with an agent team: its members and Switchboard's agents write to each other.

The program runs in a terminal, since only there it has teams; a scripted model decides what the lead and the member do.
"""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.host import switchboard
from tests.e2e.workspaces import configure
from tests.hosts.model import Dialect, listening
from tests.hosts.programs import ClaudeCode, Stdio
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.e2e]
Json = dict[str, Any]
KEY = "sk-ant-none"


class TeamScript:
    """A model: the lead starts a member, the member writes to `coder` as soon as it can."""

    url = ""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._calls = 0
        self.got_answer = threading.Event()
        self.results: list[str] = []

    def answer(self, dialect: Dialect, asked: Json) -> list[Json]:
        text = json.dumps(asked["messages"])
        if not asked.get("tools"):
            return dialect.say("A title")
        results = dialect.read(asked).results
        if "START-A-MEMBER" in text:
            prompt = {"name": "researcher", "description": "looks", "prompt": "WRITE-TO-CODER"}
            agent = {**prompt, "subagent_type": "general-purpose", "run_in_background": True}
            return dialect.say("Started") if results else self._call(dialect, "Agent", agent)
        if "WRITE-TO-CODER" in text:
            self.results += results
            if "The answer is 42" in text:
                self.got_answer.set()
            if not results and self._is_listed():
                message = {"to": "coder", "message": "What is the answer?", "summary": "question"}
                return self._call(dialect, "SendMessage", message)
        return dialect.say("Nothing to say")

    def _is_listed(self) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for file in self._home.glob(".claude/teams/*/config.json"):
                if '"coder"' in file.read_text():
                    return True
            time.sleep(0.05)
        return False

    def _call(self, dialect: Dialect, tool: str, arguments: Json) -> list[Json]:
        self._calls += 1
        events = dialect.call(tool, arguments)
        for event in events:
            if "content_block" in event:
                event["content_block"]["id"] = f"toolu_{self._calls}"
        return events


@contextmanager
def in_a_terminal(command: list[str], folder: Path, environ: dict[str, str]) -> Iterator[None]:
    """Run a program in a terminal, and read what it draws."""
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        command, cwd=folder, env=environ, stdin=inside, stdout=inside, stderr=inside, start_new_session=True
    )
    os.close(inside)
    ended = threading.Event()

    def draw() -> None:
        while not ended.is_set():
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    os.read(terminal, 65_536)
                except OSError:
                    return

    reader = threading.Thread(target=draw)
    reader.start()
    try:
        yield
    finally:
        process.terminate()
        process.wait()
        ended.set()
        reader.join()
        os.close(terminal)


def test_a_member_of_a_real_team_and_an_agent_write_to_each_other(tmp_path: Path) -> None:
    home = tmp_path / "home"
    claude = ClaudeCode(home)
    configure(claude.project, {"mail": {"enabled": True, "claudeTeams": True}})
    model = TeamScript(home)
    with listening(model), switchboard(claude.project, env={**os.environ, "HOME": str(home)}) as host:
        claude.configure(Stdio(["true"]), model.url)
        project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        settings = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "projects": {str(claude.project): project},
        }
        claude.write(".claude.json", {**settings, "customApiKeyResponses": {"approved": [KEY[-20:]]}})
        environ = claude.environment() | {"ANTHROPIC_API_KEY": KEY, "TERM": "xterm-256color"}
        environ["CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS"] = "1"
        arguments = [
            "START-A-MEMBER",
            "--allowedTools",
            "Agent,SendMessage",
            "--permission-mode",
            "acceptEdits",
        ]
        host.initialize()
        host.call("mail_suite", "register_chat_agent", name="coder")
        with in_a_terminal([*claude.command(), *arguments], claude.project, environ):
            deadline = time.monotonic() + PATIENCE_S
            messages: list[Json] = []
            while not messages and time.monotonic() < deadline:
                messages = host.call("mail_suite", "wait_for_mail")["structuredContent"]["messages"]
            assert [message["payload"] for message in messages] == ["What is the answer?"]
            assert messages[0]["from"].startswith("researcher-")
            assert messages[0]["verified"] is False
            host.call("mail_suite", "claim_messages")
            done = {"id": messages[0]["id"], "outcome": "done", "result": "The answer is 42"}
            host.call("mail_suite", "ack_message", **done)
            assert model.got_answer.wait(PATIENCE_S)
        assert "Message sent to coder's inbox" in model.results[0]
