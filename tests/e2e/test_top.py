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

from switchboard_mcp.system.processes import other_people_run_programs
from tests.e2e.host import SWITCHBOARD, Host
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

    def __init__(self, folder: Path, word: str = "top", **environ: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            command = [*SWITCHBOARD, word, "--workspace", str(folder)]
            os.execve(SWITCHBOARD[0], command, {**os.environ, **environ})
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


def test_servers_of_hosts_come_and_go_on_a_terminal_with_and_without_an_http_server(
    web: Web, tmp_path: Path
) -> None:
    alone, state = make_workspace(tmp_path / "alone"), {"XDG_STATE_HOME": str(tmp_path / "state")}
    for folder in (web.workspace, alone):
        serve = [*SWITCHBOARD, "serve", "--workspace", str(folder)]
        with Host(serve, extra=state) as first:
            first.initialize()
            server_file = tmp_path / "state" / "switchboard-mcp" / "servers" / f"{first.process.pid}.json"
            deadline = time.monotonic() + PATIENCE_S
            while not server_file.exists() and time.monotonic() < deadline:  # written once the host is served
                time.sleep(0.05)
            screen = Terminal(folder, **state)
            screen.until("test-host")
            screen.until(str(first.process.pid))
            with Host(serve, extra=state) as second:
                second.initialize()
                screen.until(str(second.process.pid))
            screen.press("j")  # forgets what was seen
            screen.until(str(first.process.pid))
            screen.press("q")
            screen.until("\x1b[?1049l")
            assert screen.end() == 0


def test_the_dashboard_opens_in_a_browser_if_there_is_a_desktop_and_nobody_can_read_the_link(
    web: Web, tmp_path: Path
) -> None:
    visited = tmp_path / "visited"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {visited}.new && mv {visited}.new {visited}\n')
    browser.chmod(0o755)
    desktop = {"BROWSER": f"{browser} %s", "DISPLAY": ":77"}
    screen = Terminal(web.workspace, "dashboard", **desktop)
    if other_people_run_programs():
        screen.until(f"{web.url}/#")
    else:
        screen.until("Opened the dashboard")
        start, _, code = visited.read_text().partition("#")
        assert start == f"{web.url}/"
        assert web.ask("POST", "/api/login", {"code": code}, {"Authorization": None}).status == 200
        assert code not in screen.seen
    assert screen.end() == 0
    # Piped, the link is printed.
    piped = subprocess.run(
        [*SWITCHBOARD, "dashboard", "--workspace", str(web.workspace)],
        env={**os.environ, **desktop},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert piped.stdout.startswith(f"{web.url}/#")
