"""Files of brokers that were killed: removed by the next one, unless somebody holds or takes the lock."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import pytest

from switchboard_mcp.broker import shim
from switchboard_mcp.broker.leftovers import remove_leftovers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the broker needs Linux")

NAME = "sb-0123abcd-0123456789abcdef"
OTHER = "sb-0123abcd-fedcba9876543210"


def leave(folder: Path, name: str) -> Path:
    """Make the files of a broker that was killed; return its lock."""
    for file in (name, f"{name}.log", f"{name}.lock"):
        (folder / file).write_text("1")
    return folder / f"{name}.lock"


def take(lock: Path) -> int:
    descriptor = os.open(lock, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def names(folder: Path) -> set[str]:
    return set(os.listdir(folder))


def test_files_of_brokers_that_were_killed_are_removed_and_those_of_running_ones_stay(tmp_path: Path) -> None:
    leave(tmp_path, NAME)
    held = take(leave(tmp_path, OTHER))
    remove_leftovers(str(tmp_path))
    assert names(tmp_path) == {OTHER, f"{OTHER}.log", f"{OTHER}.lock"}
    os.close(held)
    remove_leftovers(str(tmp_path))
    assert names(tmp_path) == set()


def test_other_files_and_links_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "runtime"
    folder.mkdir()
    target = leave(tmp_path, "mine")
    (folder / f"{NAME}.lock").symlink_to(target)
    (folder / f"{OTHER}.lock").mkdir()
    (folder / "notes.lock").write_text("")
    before = names(folder)
    remove_leftovers(str(folder))
    assert names(folder) == before
    assert target.exists()
    remove_leftovers(str(folder / "missing"))


def test_a_lock_that_was_removed_and_made_anew_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = leave(tmp_path, NAME)
    flock, held = fcntl.flock, list[int]()

    def overtaken(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        lock.unlink()
        held.append(take(leave(tmp_path, NAME)))  # another broker starts between `open` and `flock`
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    remove_leftovers(str(tmp_path))
    assert names(tmp_path) == {NAME, f"{NAME}.log", f"{NAME}.lock"}
    os.close(held[0])


def test_a_broker_that_starts_while_its_files_are_removed_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(tmp_path, NAME)
    path = str(tmp_path / NAME)
    monkeypatch.setattr(shim, "_spawn", lambda *_: None)
    flock = fcntl.flock

    def overtaken(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        remove_leftovers(str(tmp_path))  # between `open` and `flock` of the process that starts a broker
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    assert not shim.start_broker(path, path, lambda listener, lock: 0, {})
    assert names(tmp_path) == set()
    assert shim.start_broker(path, path, lambda listener, lock: 0, {})
    assert names(tmp_path) == {NAME, f"{NAME}.log", f"{NAME}.lock"}
