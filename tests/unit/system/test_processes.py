from __future__ import annotations

import os
import subprocess

import pytest

from switchboard_mcp.system.processes import is_running


def test_a_process_runs_until_it_has_ended() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert is_running(os.getpid())
    assert not is_running(ended.pid)


def test_somebody_elses_runs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    assert is_running(1)


@pytest.mark.parametrize("pid", [0, -1, 2**40, "12", None])
def test_what_is_no_number_of_a_process_runs_nowhere(pid: object) -> None:
    assert not is_running(pid)
