"""Presence of agents, from locks, file times and live processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from switchboard_mcp.mail.presence import ACTIVE_S, Presence
from switchboard_mcp.mail.store.reading import Waiting
from tests.cases import each_case

HOLD = """
import sys
from switchboard_mcp.mail.store.reading import Waiting
from switchboard_mcp.mail.presence import Presence
hold = Presence(sys.argv[1]).acquire("ada")
print("held" if hold else "taken", flush=True)
sys.stdin.read()
"""


def new_presence(tmp_path: Path) -> Presence:
    return Presence(str(tmp_path))


presence = pytest.fixture(new_presence, name="presence")


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_name_is_one_holders_until_it_lets_go(presence: Presence) -> None:
    assert presence.status("ada") == ("offline", 0.0)
    hold = presence.acquire("ada")
    assert hold is not None
    assert presence.acquire("ada") is None
    assert presence.status("ada")[0] == "online"
    hold.release()
    hold.release()
    assert presence.status("ada")[0] == "offline"
    assert presence.status("ada")[1] > 0
    again = presence.acquire("ada")
    assert again is not None
    again.release()


def test_a_name_is_free_the_moment_its_process_is_killed(presence: Presence, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert presence.acquire("ada") is None
        process.kill()
        process.wait()
        hold = presence.acquire("ada")
        assert hold is not None
        hold.release()


def test_a_holder_that_is_silent_for_long_is_idle(presence: Presence, tmp_path: Path) -> None:
    hold = presence.acquire("ada")
    assert hold is not None
    age(tmp_path / "presence" / "ada", ACTIVE_S + 1)
    assert presence.status("ada")[0] == "idle"
    presence.record_activity("ada")
    assert presence.status("ada")[0] == "online"
    hold.release()


def test_one_that_holds_nothing_is_here_while_it_does_something(presence: Presence, tmp_path: Path) -> None:
    presence.record_activity("ada")
    assert presence.status("ada")[0] == "online"
    age(tmp_path / "presence" / "ada", ACTIVE_S + 1)
    assert presence.status("ada")[0] == "offline"


def test_a_process_stands_for_its_agent_while_it_lives(presence: Presence) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert presence.status("ada", process.pid)[0] == "idle"
        presence.record_activity("ada")
        assert presence.status("ada", process.pid)[0] == "online"
        process.communicate(b"\n")
    assert presence.status("ada", process.pid)[0] == "offline"


def test_unread_mail_is_overdue_when_nobody_was_told(presence: Presence) -> None:
    assert presence.unclaimed("ada", 10, Waiting()).unread == 0
    waits = Waiting(2, time.time() - 60)
    waiting = presence.unclaimed("ada", 10, waits)
    assert waiting.unread == 2
    assert 60 <= waiting.oldest_s < 120
    assert waiting.overdue
    assert not presence.unclaimed("ada", 3600, waits).overdue
    presence.record_notified("ada")
    assert not presence.unclaimed("ada", 10, waits).overdue


def test_mail_that_came_after_the_last_call_is_overdue_too(presence: Presence, tmp_path: Path) -> None:
    presence.record_notified("ada")
    age(tmp_path / "presence" / "ada.woken", 100)
    assert presence.unclaimed("ada", 10, Waiting(1, time.time() - 60)).overdue


@each_case("trap", ["link", "hard link", "fifo", "folder", "linked folder"], presence=new_presence)
def test_foreign_files_are_not_touched(presence: Presence, tmp_path: Path, trap: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    victim = outside / "ada"
    victim.write_text("mine")
    age(victim, 1000)
    before = victim.stat()
    place = tmp_path / "presence"
    if trap == "linked folder":
        place.symlink_to(outside)
    else:
        place.mkdir()
    if trap == "link":
        (place / "ada").symlink_to(victim)
    elif trap == "hard link":
        os.link(victim, place / "ada")
    elif trap == "fifo":
        os.mkfifo(place / "ada")
    elif trap == "folder":
        (place / "ada").mkdir()
    presence.record_activity("ada")
    with pytest.raises(OSError):  # noqa: PT011  which one differs
        presence.acquire("ada")
    assert presence.status("ada") == ("offline", 0.0)
    assert victim.stat().st_mtime == before.st_mtime


@each_case("name", ["../ada", "a/b", "", ".", "ada.woken.woken"], presence=new_presence)
def test_an_invalid_name_stands_for_no_agent(presence: Presence, name: str) -> None:
    presence.record_activity(name)
    assert presence.status(name) == ("offline", 0.0)
    assert not (Path(presence._root) / "presence").exists()


@each_case("pid", [-1, 0, 2**40], presence=new_presence)
def test_an_entry_without_a_process_stands_for_no_agent(presence: Presence, pid: int) -> None:
    assert presence.status("ada", pid) == ("offline", 0.0)
