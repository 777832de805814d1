"""Commands and whoever reads them: pipes that close, terminals, Ctrl-C, locales."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.shell import COMMAND, answered, parsed, run
from tests.e2e.workspaces import MOCK_CHILD, add_child, faulty, read_record, recorded
from tests.patience import PATIENCE_S


def test_a_reader_that_goes_early_is_met_with_silence(shop: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as out:
        done = subprocess.run(
            [*COMMAND, "list"], cwd=shop, stdout=out, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False
        )
    assert done.stderr == b""


def test_colour_is_for_those_who_ask_when_nobody_looks(shop: Path) -> None:
    assert "\x1b[" not in answered(run(shop, "list"))
    assert "\x1b[" in answered(run(shop, "list", CLICOLOR_FORCE="1"))
    assert "\x1b[" not in answered(run(shop, "list", CLICOLOR_FORCE="1", NO_COLOR="1"))


def test_a_locale_without_umlauts_breaks_nothing(shop: Path) -> None:
    poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert (
        parsed(run(shop, "call", "mock", "echo", "message=ü", "--json", **poor))["content"][0]["text"] == "ü"
    )
    assert "? 9 subtools" in answered(run(shop, "introspect", "mock", **poor))


class AtTerminal:
    """A command whose stderr, and on demand stdout, is a terminal."""

    def __init__(self, workspace: Path, *arguments: str, stdout: bool = False) -> None:
        self.shown = b""
        self._terminal, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=workspace,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
            stdin=subprocess.DEVNULL,
            stdout=theirs if stdout else subprocess.PIPE,
            stderr=theirs,
        )
        os.close(theirs)

    def read_until(self, seen: Callable[[bytes], bool]) -> None:
        """Read what the terminal shows until it is there."""
        while not seen(self.shown):
            try:
                data = os.read(self._terminal, 65536)
            except OSError:  # how a terminal says that everybody has gone
                data = b""
            assert data, f"it ended with {self.shown!r}"
            self.shown += data

    def finish(self) -> tuple[int, bytes]:
        """Exit code and stdout."""
        out = b""
        if self.process.stdout is not None:
            out = self.process.stdout.read()
            self.process.stdout.close()
        code = self.process.wait(timeout=PATIENCE_S)
        try:
            while data := os.read(self._terminal, 65536):
                self.shown += data
        except OSError:
            pass
        os.close(self._terminal)
        return code, out


def test_progress_is_shown_on_a_terminal_and_taken_away_again(shop: Path) -> None:
    command = AtTerminal(shop, "call", "mock", "slow", "seconds=2", "steps=2")
    command.read_until(lambda shown: "mock slow · 1/2 · step 1 of 2".encode() in shown)
    assert command.finish() == (0, b"done after 2 steps\n")
    assert command.shown.endswith(b"\x1b[1A\r\x1b[J")


def test_ctrl_c_tells_the_child_and_leaves_nothing(workspace: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    add_child(workspace, "mock", recorded(MOCK_CHILD, record))
    command = AtTerminal(workspace, "call", "mock", "slow", "seconds=60", "steps=600")
    command.read_until(lambda shown: b"step 1 of 600" in shown)
    command.process.send_signal(signal.SIGINT)
    assert command.finish() == (130, b"")
    methods = [message["method"] for message in read_record(record)]
    assert methods.index("notifications/cancelled") > methods.index("tools/call")
    assert b"Traceback" not in command.shown


@pytest.mark.parametrize("arguments", [("--dry-run",), ("introspect", "silent")])
def test_ctrl_c_ends_a_wait_for_a_child(workspace: Path, arguments: tuple[str, ...]) -> None:
    add_child(workspace, "silent", faulty("never-answers"))
    command = AtTerminal(workspace, *arguments)
    command.read_until(lambda shown: b"silent" in shown)
    command.process.send_signal(signal.SIGINT)
    assert command.finish() == (130, b"")
    assert b"Traceback" not in command.shown


def test_ctrl_c_ends_doctor_with_the_results_it_has(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    add_child(workspace, "gone", ["no-such-program-anywhere"])
    add_child(workspace, "silent", faulty("never-answers"))
    command = AtTerminal(workspace, "doctor")
    command.read_until(lambda shown: "✓ mock".encode() in shown and b"silent" in shown)
    command.process.send_signal(signal.SIGINT)
    code, out = command.finish()
    text = out.decode()
    assert code == 130
    assert "✓ mock_suite" in text
    assert "'no-such-program-anywhere'" in text
    assert "silent_suite" not in text
    assert "\nInterrupted: 1 problem, 1 child ready; not checked: silent.\n" in text
    assert b"Traceback" not in command.shown


def test_a_child_gives_no_orders_to_the_terminal(shop: Path) -> None:
    command = AtTerminal(shop, "call", "mock", "echo", "message=\x1b[31mred\x07", stdout=True)
    code, _ = command.finish()
    assert code == 0
    assert "\ufffd[31mred\ufffd".encode() in command.shown
    assert b"\x1b[31m" not in command.shown
