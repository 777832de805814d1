from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace

import pytest

from switchboard_mcp.system.processes import is_running, other_people_run_programs
from tests.cases import each_case


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


@each_case(("owners", "others"), [([0, 33, 65534], False), ([0, 4242], False), ([0, 4242, 4243], True)])
def test_other_people_are_those_with_programs_that_are_not_the_systems(
    monkeypatch: pytest.MonkeyPatch, owners: list[int], others: bool
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    monkeypatch.setattr(os, "listdir", lambda path: [*map(str, range(len(owners))), "meminfo", "77777"])

    def stat(file: os.PathLike[str] | str, **_: object) -> SimpleNamespace:
        path = os.fspath(file)
        number = int(path.rpartition("/")[2]) if path[-1].isdigit() else 0
        if number >= len(owners):
            raise FileNotFoundError
        return SimpleNamespace(st_uid=owners[number])

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os.path, "isdir", lambda path: True)
    assert other_people_run_programs() is others


@each_case("pid", [0, -1, 2**40, "12", None])
def test_an_invalid_process_id_does_not_run(pid: object) -> None:
    assert not is_running(pid)
