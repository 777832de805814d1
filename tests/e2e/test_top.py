"""`switchboard top` and `status` against a server that runs: piped, for programs, and on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.host import SWITCHBOARD
from tests.e2e.test_dashboard_api import api, call, make_workspace
from tests.e2e.web import Web, serving
from tests.patience import PATIENCE_S


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with serving(make_workspace(tmp_path / "ws", mail={}, audit={})) as running:
        yield running


def top(folder: Path, *arguments: str, word: str = "top") -> subprocess.CompletedProcess[str]:
    command = [*SWITCHBOARD, word, "--workspace", str(folder), *arguments]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL
    )


def test_piped_it_tells_everything_once_and_whether_all_is_well(web: Web) -> None:
    done = top(web.workspace)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "2 suites" in done.stdout
    api(web, "children/missing/start", {})
    done = top(web.workspace)
    assert done.returncode == 1
    assert "→ Install the program" in done.stdout


def test_a_program_gets_json(web: Web) -> None:
    answer = json.loads(top(web.workspace, "--json").stdout)
    assert sorted(row["child"] for row in answer["children"]) == ["missing", "pinned"]
    assert answer["history"] == []


def test_the_status_has_the_figures_of_the_server(web: Web) -> None:
    call(web)
    call(web, "nope")
    done = top(web.workspace, word="status")
    assert "\x1b" not in done.stdout
    _, header, _, pinned = done.stdout.splitlines()
    assert header.split() == "SUITE HEALTH STATE SUBTOOLS SAVED CALLS ERRORS P50 PID".split()
    cells = dict(zip(("SUITE", "HEALTH", "STATE", "SUBTOOLS"), pinned.split(), strict=False))
    assert cells == {"SUITE": "pinned_suite", "HEALTH": "healthy", "STATE": "ready", "SUBTOOLS": "1"}
    assert pinned.split()[-5:-2] == ["2", "1", pinned.split()[-3]]
    assert pinned.split()[-2] == "ms"
    rows = json.loads(top(web.workspace, "--json", word="status").stdout)["children"]
    assert [(row["calls"], row["errors"]) for row in rows if row["child"] == "pinned"] == [(2, 1)]


def test_without_a_server_it_says_how_to_start_one(tmp_path: Path) -> None:
    done = top(make_workspace(tmp_path / "ws"))
    assert done.returncode == 2
    assert "switchboard serve --http" in done.stderr


class Terminal:
    """A program on a terminal of 100 columns and 20 rows."""

    def __init__(self, folder: Path) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(SWITCHBOARD[0], [*SWITCHBOARD, "top", "--workspace", str(folder)])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 100, 0, 0))
        self.seen = ""

    def until(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen[-2000:]!r}"
            if select.select([self.fd], [], [], 0.2)[0]:
                self.seen += os.read(self.fd, 65_536).decode("utf-8", "replace")

    def press(self, key: str) -> None:
        self.seen = ""
        os.write(self.fd, key.encode())

    def end(self) -> int:
        while True:
            try:
                if not os.read(self.fd, 65_536):
                    break
            except OSError:
                break
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_on_a_terminal_it_follows_calls_sorts_by_key_and_leaves_the_screen_as_it_was(web: Web) -> None:
    screen = Terminal(web.workspace)
    screen.until("by trouble")
    screen.press("s")
    screen.until("by calls")
    call(web)
    screen.until("pinned echo")
    screen.press("q")
    screen.until("\x1b[?1049l")
    assert screen.end() == 0


def test_it_ends_with_the_server(web: Web) -> None:
    screen = Terminal(web.workspace)
    screen.until("by trouble")
    web.process.terminate()
    screen.until("The server is gone.")
    assert screen.end() == 0
