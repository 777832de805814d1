"""Files that change are noticed, told by the kernel or by looking; what nobody cares for is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from switchboard_mcp.system import file_watch, inotify
from switchboard_mcp.system.file_watch import FileWatcher, Places, snapshot
from tests.patience import PATIENCE_S


class Watched:
    """A watch, and how often it has told."""

    def __init__(self) -> None:
        self.told = asyncio.Queue[None]()
        self.watch = FileWatcher(asyncio.get_running_loop(), lambda: self.told.put_nowait(None))

    async def change(self) -> None:
        """Wait for the next one."""
        await asyncio.wait_for(self.told.get(), PATIENCE_S)


@pytest_asyncio.fixture(params=["inotify", "polling"])
async def watched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    monkeypatch.setattr(file_watch, "POLL_S", 0.02)
    monkeypatch.setattr(file_watch, "SOON_S", 0.02)
    monkeypatch.setattr(file_watch, "LATER_S", 0.05)
    if request.param == "polling":
        monkeypatch.setattr(inotify, "open_inotify", lambda: -1)
    found = Watched()
    yield found
    found.watch.stop()


def places(folder: Path, *names: str) -> Places:
    return {str(folder): frozenset(names)}


async def test_a_file_that_is_made_written_replaced_or_removed_is_noticed(
    watched: Watched, tmp_path: Path
) -> None:
    watched.watch.watch(places(tmp_path, "config.json"))
    path = tmp_path / "config.json"
    path.write_text("1")
    await watched.change()
    path.write_text("22")
    await watched.change()
    (tmp_path / "other").write_text("333")
    (tmp_path / "other").replace(path)
    await watched.change()
    path.unlink()
    await watched.change()


async def test_a_folder_that_appears_is_noticed_and_patterns_count(watched: Watched, tmp_path: Path) -> None:
    watched.watch.watch(places(tmp_path, "mcp*"))
    (tmp_path / "mcps").mkdir()
    await watched.change()


async def test_uninteresting_changes_are_not_sent(watched: Watched, tmp_path: Path) -> None:
    watched.watch.watch(places(tmp_path, "config.json"))
    (tmp_path / "noise.log").write_text("x")
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "config.json").write_text("x")
    await watched.change()
    assert watched.told.empty()


async def test_other_places_can_be_looked_at_later(watched: Watched, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    watched.watch.watch(places(one, "x"))
    watched.watch.watch({**places(two, "x"), **places(tmp_path / "missing", "x")})
    (one / "x").write_text("1")
    (two / "x").write_text("1")
    await watched.change()
    assert watched.told.empty()


async def test_without_room_for_a_watch_it_looks_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "POLL_S", 0.02)
    monkeypatch.setattr(inotify, "add_watch", lambda *_: -1)
    found = Watched()
    found.watch.watch(places(tmp_path, "x"))
    polled = [found.watch.is_polling]
    (tmp_path / "x").write_text("1")
    await found.change()
    monkeypatch.undo()
    found.watch.watch(places(tmp_path, "x"))
    polled.append(found.watch.is_polling)
    found.watch.stop()
    assert polled == [True, False]


def test_a_stamp_tells_files_apart_and_folders_that_are_gone_are_left_out(tmp_path: Path) -> None:
    seen = snapshot({**places(tmp_path, "x"), **places(tmp_path / "gone", "x")})
    assert seen == {}
    (tmp_path / "x").write_text("1")
    first = snapshot(places(tmp_path, "x"))
    (tmp_path / "y").write_text("2")
    (tmp_path / "y").replace(tmp_path / "x")
    assert snapshot(places(tmp_path, "x")) != first
