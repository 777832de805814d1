"""`switchboard status` and `switchboard dashboard` against a server that runs."""

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
from tests.e2e.host import SWITCHBOARD
from tests.e2e.test_dashboard_api import call, make_workspace
from tests.e2e.web import Web, serving
from tests.patience import PATIENCE_S


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with serving(make_workspace(tmp_path / "ws", mail={}, audit={})) as running:
        yield running


def status(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*SWITCHBOARD, "status", "--workspace", str(folder), *arguments]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL
    )


def test_the_status_has_the_figures_of_the_server(web: Web) -> None:
    call(web)
    call(web, "nope")
    done = status(web.workspace)
    assert "\x1b" not in done.stdout
    _, header, _, pinned = done.stdout.splitlines()
    assert header.split() == "SUITE HEALTH STATE SUBTOOLS SAVED CALLS ERRORS P50 PID".split()
    cells = dict(zip(("SUITE", "HEALTH", "STATE", "SUBTOOLS"), pinned.split(), strict=False))
    assert cells == {"SUITE": "pinned_suite", "HEALTH": "healthy", "STATE": "ready", "SUBTOOLS": "1"}
    assert pinned.split()[-5:-2] == ["2", "1", pinned.split()[-3]]
    assert pinned.split()[-2] == "ms"
    rows = json.loads(status(web.workspace, "--json").stdout)["children"]
    assert [(row["calls"], row["errors"]) for row in rows if row["child"] == "pinned"] == [(2, 1)]


class Terminal:
    """A program on a terminal of 100 columns and 20 rows."""

    def __init__(self, folder: Path, word: str, **environ: str) -> None:
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
