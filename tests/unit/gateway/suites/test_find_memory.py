"""What is learned from searches is kept apart for each principal, bounded, survives a crash and can be deleted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from switchboard_mcp.gateway.suites import find_memory
from switchboard_mcp.gateway.suites.find_memory import RELATED_S, FindMemory, forget, memory_folder
from switchboard_mcp.suites.learned_choices import Choice
from switchboard_mcp.system import work_thread

SHOWN = [("github_suite", "create_issue"), ("github_suite", "star")]
WORDS = ("file", "bug")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def settle() -> None:
    """Wait until the work thread has done what was submitted."""
    await work_thread.run(work_thread.OWN, lambda: None)


async def test_a_call_after_a_search_is_learned_once_and_by_every_process(tmp_path: Path) -> None:
    memory = FindMemory(str(tmp_path / "find"), Clock())
    memory.note_search("", WORDS, SHOWN)
    for _ in range(3):
        memory.note_call("", "github_suite", "create_issue")
    await settle()
    other_process = FindMemory(str(tmp_path / "find"), Clock())
    assert await other_process.shares("", ("bug",)) == {("github_suite", "create_issue"): 1.0}
    (name,) = os.listdir(tmp_path / "find")
    assert stat.S_IMODE(os.stat(tmp_path / "find" / name).st_mode) == 0o600


async def test_nothing_is_learned_from_other_calls_later_calls_or_other_principals(tmp_path: Path) -> None:
    clock = Clock()
    memory = FindMemory(str(tmp_path), clock)
    memory.note_search("ada", WORDS, SHOWN)
    memory.note_call("ada", "github_suite", "not_shown")
    memory.note_call("bob", "github_suite", "create_issue")
    clock.now = RELATED_S + 1
    memory.note_call("ada", "github_suite", "create_issue")
    await settle()
    assert os.listdir(tmp_path) == []


async def test_what_one_principal_chose_does_not_change_the_search_of_another(tmp_path: Path) -> None:
    memory = FindMemory(str(tmp_path), Clock())
    memory.note_search("ada", WORDS, SHOWN)
    memory.note_call("ada", "github_suite", "star")
    await settle()
    assert await memory.shares("bob", WORDS) == {}
    assert await memory.shares("ada", WORDS) == {("github_suite", "star"): 1.0}


def test_a_line_left_unfinished_by_a_crash_spoils_no_other(tmp_path: Path) -> None:
    memory = FindMemory(str(tmp_path), Clock())
    memory.append("", Choice("s", "one", ("word",)))
    (file,) = tmp_path.iterdir()
    with file.open("ab") as half:
        half.write(b'\n["s","tw')
    memory.append("", Choice("s", "three", ("word",)))
    assert memory.choices("").shares(("word",)) == {("s", "one"): 0.5, ("s", "three"): 0.5}


def test_a_file_keeps_its_latest_choices_when_it_grows_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_memory, "MAX_BYTES", 20_000)
    memory = FindMemory(str(tmp_path), Clock())
    for number in range(1_500):
        memory.append("", Choice("s", f"tool_{number}", ("word",)))
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size <= 21_000
    assert ("s", "tool_1499") in memory.choices("").shares(("word",))


async def test_what_was_forgotten_is_gone_for_a_running_server_too(tmp_path: Path) -> None:
    memory = FindMemory(str(tmp_path), Clock())
    memory.note_search("", WORDS, SHOWN)
    memory.note_call("", "github_suite", "star")
    await settle()
    assert await memory.shares("", WORDS) != {}
    assert forget(str(tmp_path)) == 1
    assert await memory.shares("", WORDS) == {}
    assert forget(str(tmp_path / "missing")) == 0


def test_each_workspace_has_a_folder_of_its_own(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    assert memory_folder(environ, "/one") != memory_folder(environ, "/two")
    assert memory_folder({}, "/one") == ""
