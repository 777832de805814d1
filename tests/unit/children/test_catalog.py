"""What children offer, remembered between runs: how long it counts as fresh, and how much is kept."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from switchboard_mcp.children.catalog import (
    MAX_AGE_S,
    MAX_ENTRIES,
    TEMP_FILE_MAX_AGE_S,
    Catalog,
    ServerSnapshot,
    read_tools,
    remove_stale_files,
)
from switchboard_mcp.config.models import ChildSpec

DAY_S = 86_400.0


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def spec(folder: Path, *args: str, **more: object) -> ChildSpec:
    return replace(
        ChildSpec(name="kid", source="x", command="python3", args=list(args), cwd=str(folder)), **more
    )


@pytest.fixture
def clock() -> Clock:
    return Clock(2_000_000_000.0)  # files that a test writes are older


def test_a_recent_report_is_fresh_and_an_old_one_is_not(tmp_path: Path, clock: Clock) -> None:
    catalog, kid = Catalog("", clock), spec(tmp_path)
    assert not catalog.is_fresh(kid, DAY_S)
    catalog.store(kid, ServerSnapshot())
    clock.now += DAY_S - 1
    assert catalog.is_fresh(kid, DAY_S)
    clock.now += 2
    assert not catalog.is_fresh(kid, DAY_S)
    assert not catalog.is_fresh(kid, 0)


def test_a_clock_that_was_set_back_makes_nothing_fresh(tmp_path: Path, clock: Clock) -> None:
    catalog, kid = Catalog("", clock), spec(tmp_path)
    catalog.store(kid, ServerSnapshot())
    clock.now -= 10
    assert not catalog.is_fresh(kid, DAY_S)


def test_the_age_is_that_of_the_file_for_the_next_run(tmp_path: Path, clock: Clock) -> None:
    folder, kid = tmp_path / "cache", spec(tmp_path)
    Catalog(str(folder)).store(kid, ServerSnapshot())
    (file,) = folder.iterdir()
    os.utime(file, (clock.now - 100, clock.now - 100))
    later = Catalog(str(folder), clock)
    assert later.is_fresh(kid, 101)
    assert not later.is_fresh(kid, 99)


@pytest.mark.parametrize("args", [["server.py"], ["-m", "thing", "./server.py"]])
def test_a_script_that_is_newer_makes_it_stale(tmp_path: Path, clock: Clock, args: list[str]) -> None:
    (tmp_path / "server.py").touch()
    catalog, kid = Catalog("", clock), spec(tmp_path, *args)
    catalog.store(kid, ServerSnapshot())
    assert catalog.is_fresh(kid, DAY_S)
    os.utime(tmp_path / "server.py", (clock.now + 1, clock.now + 1))
    assert not catalog.is_fresh(kid, DAY_S)


def test_a_program_that_is_newer_makes_it_stale(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "run").touch()
    catalog, kid = Catalog("", clock), spec(tmp_path, command="./run")
    catalog.store(kid, ServerSnapshot())
    os.utime(tmp_path / "run", (clock.now + 1, clock.now + 1))
    assert not catalog.is_fresh(kid, DAY_S)


def test_two_children_of_one_name_are_kept_apart_and_forgotten_one_by_one(tmp_path: Path) -> None:
    catalog = Catalog("")
    old, new = spec(tmp_path, "a"), spec(tmp_path, "b")
    catalog.store(old, ServerSnapshot(instructions="old"))
    assert catalog.get(new) is None
    catalog.store(new, ServerSnapshot(instructions="new"))
    catalog.discard(old)
    known = catalog.get(new)
    assert known is not None
    assert known.instructions == "new"
    assert catalog.get(old) is None


def test_old_entries_too_many_entries_and_what_was_left_half_way_are_removed(tmp_path: Path) -> None:
    now = 2_000_000_000.0
    ages = {
        "fresh": 0.0,
        "old": MAX_AGE_S + 1,
        f"half.{os.getpid()}": TEMP_FILE_MAX_AGE_S + 1,
        "writing.7": TEMP_FILE_MAX_AGE_S - 1,
    }
    for name, age in ages.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now - age, now - age))
    assert remove_stale_files(str(tmp_path), now) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"fresh", "writing.7"}
    for number in range(MAX_ENTRIES):
        (tmp_path / f"{number}").touch()
        os.utime(tmp_path / f"{number}", (now - 10 - number, now - 10 - number))
    assert remove_stale_files(str(tmp_path), now) == 1
    assert not (tmp_path / f"{MAX_ENTRIES - 1}").exists()


def test_a_folder_that_is_not_there_is_tidy(tmp_path: Path) -> None:
    assert remove_stale_files(str(tmp_path / "none"), 0.0) == 0


def test_writing_tidies_up_once(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    os.utime(tmp_path / "old", (1, 1))
    catalog = Catalog(str(tmp_path))
    catalog.store(spec(tmp_path), ServerSnapshot())
    assert len(list(tmp_path.iterdir())) == 1


def test_a_start_that_took_too_long_is_remembered_and_makes_nothing_fresh(
    tmp_path: Path, clock: Clock
) -> None:
    folder, kid = str(tmp_path / "cache"), spec(tmp_path)
    Catalog(folder).store(kid, ServerSnapshot(longest_start_ms=900))
    (file,) = (tmp_path / "cache").iterdir()
    os.utime(file, (clock.now - 100, clock.now - 100))
    Catalog(folder, clock).remember_slow_start(kid, 8000)
    later = Catalog(folder, clock)
    known = later.get(kid)
    assert known is not None
    assert known.longest_start_ms == 8000
    assert later.is_fresh(kid, 101)
    assert not later.is_fresh(kid, 99)
    later.remember_slow_start(kid, 10)
    assert known.longest_start_ms == 8000


def test_a_slow_start_of_a_child_never_seen_is_not_remembered(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.remember_slow_start(spec(tmp_path), 8000)
    assert catalog.get(spec(tmp_path)) is None


def test_a_tool_is_cut_for_a_list_and_whole_when_it_is_asked_for_by_name() -> None:
    text = "A long manual.\u200b " * 3_000
    schema = {"type": "object", "properties": {"p": {"type": "string", "description": text}}}
    raw = Raw(msgspec.json.encode({"name": "t", "description": text, "inputSchema": schema}))
    for cut_first in (False, True):
        (tool,) = read_tools([raw])
        if cut_first:
            assert len(tool.sanitized().description or "") < 10_000
        whole = tool.whole()
        clean = text.replace("\u200b", "")
        assert whole.description == clean
        assert msgspec.json.decode(whole.input_schema)["properties"]["p"]["description"] == clean  # type: ignore[arg-type]
