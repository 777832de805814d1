"""A terminal session in tmux, as somebody at a real terminal has it: typing, resize, doorbell, `execute`.

Needs tmux (Debian: `apt-get install tmux`); without it `test_terminal` shows the same in a pseudo-terminal.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.windows import COMMAND
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Tmux:
    """A tmux server of our own with one window."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self._server = ["tmux", "-L", f"switchboard-{uuid.uuid4().hex[:12]}", "-f", "/dev/null"]

    def do(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._server, *arguments],
            cwd=self.workspace,
            env={**os.environ, "PS1": "outer> ", "ENV": "", "TERM": "xterm", "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        return done.stdout

    def start(self, *arguments: str) -> None:
        """A shell, and in it a terminal of ours."""
        self.do("new-session", "-d", "-s", "s", "-x", "80", "-y", "24", "sh", "-i")
        self.shows("outer>")
        self.keys(
            f"clear; PS1='prompt> ' {shlex.join([*COMMAND, 'terminal', 'term', *arguments])}; echo code-$?"
        )

    def keys(self, text: str) -> None:
        self.do("send-keys", "-t", "s", "-l", text)
        self.do("send-keys", "-t", "s", "Enter")

    def screen(self) -> list[str]:
        return [line.rstrip() for line in self.do("capture-pane", "-p", "-t", "s").splitlines()]

    def shows(self, *lines: str) -> list[str]:
        """The screen, once these lines stand on it in this order."""
        until = time.monotonic() + PATIENCE_S
        while True:
            screen = self.screen()
            rest = iter(screen)
            if all(line in rest for line in lines):
                return screen
            assert time.monotonic() < until, "\n".join(screen)
            time.sleep(0.05)

    def about(self, form: str) -> str:
        return self.do("display-message", "-p", "-t", "s", form).strip()

    def becomes(self, form: str, wanted: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while (found := self.about(form)) != wanted:
            assert time.monotonic() < until, found
            time.sleep(0.05)


@pytest.fixture
def tmux(workspace: Path) -> Iterator[Tmux]:
    """A server that is gone afterwards, with everything in it."""
    found = Tmux(workspace)
    yield found
    subprocess.run([*found._server, "kill-server"], capture_output=True, timeout=PATIENCE_S, check=False)


def mail(workspace: Path, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [*COMMAND, "mail", *arguments],
        cwd=workspace,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def desk(workspace: Path) -> Path:
    mail(workspace, "agents", "add", "lead")
    mail(workspace, "agents", "role", "lead", "lead", "--as", "lead")
    return workspace


LINE = "[switchboard] new mail for term: switchboard mail inbox"
EXECUTE = ("--action", "execute", "--as", "lead")


def test_typing_resize_doorbell_and_allowed_execute(tmux: Tmux, desk: Path) -> None:
    tmux.start("--allow-execute", "--", "sh")
    tmux.shows("prompt>")
    tmux.keys("stty size")
    tmux.shows("prompt> stty size", "24 80")
    tmux.do("resize-window", "-t", "s", "-x", "100", "-y", "30")
    tmux.keys("stty size")
    tmux.shows("prompt> stty size", "30 100", "prompt>")

    mail(desk, "send", "term", "the body of it", "--as", "lead")
    screen = tmux.shows("30 100", LINE, "prompt>")
    assert "the body of it" not in "\n".join(screen)
    tmux.becomes("#{pane_title} #{window_bell_flag}", "[mail] term 1")

    mail(desk, "send", "term", "echo typed-$((40 + 2))", *EXECUTE)
    tmux.shows(LINE, "prompt> echo typed-$((40 + 2))", "typed-42", "prompt>")
    tmux.keys("exit 7")
    tmux.shows("typed-42", "prompt> exit 7", "code-7", "outer>")
    tmux.keys("stty -a | grep -c ' echo '")  # the terminal is as it was
    tmux.shows("outer> stty -a | grep -c ' echo '", "1", "outer>")


def test_execute_is_refused_by_a_terminal_that_was_not_started_for_it(tmux: Tmux, desk: Path) -> None:
    tmux.start("--", "sh")
    tmux.shows("prompt>")
    assert "started without --allow-execute" in mail(desk, "send", "term", "echo no", *EXECUTE, code=1)
    tmux.keys("echo still-mine")
    assert "echo no" not in "\n".join(tmux.shows("prompt> echo still-mine", "still-mine", "prompt>"))


def test_a_program_that_draws_its_screen_is_left_as_it_was(tmux: Tmux, desk: Path) -> None:
    (desk / "text").write_text("\n".join(f"line {number}" for number in range(1, 101)))
    tmux.start("--", "less", "text")
    before = tmux.shows("line 1", "line 23")
    mail(desk, "send", "term", "x", "--as", "lead")
    tmux.becomes("#{pane_title}", "[mail] term")
    assert tmux.screen() == before
