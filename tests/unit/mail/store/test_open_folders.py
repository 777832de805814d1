"""Folders that stay open between transactions: used again while they are the same, and never for another folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store.directory import MAX_KEPT_FOLDERS
from switchboard_mcp.mail.store.open_folders import OpenFolders
from switchboard_mcp.mail.store.store import MessageStore


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "inbox").mkdir(mode=0o700)
    return tmp_path


def folder_of(descriptor: int) -> tuple[int, int]:
    info = os.fstat(descriptor)
    return info.st_dev, info.st_ino


def inode_of(path: Path) -> tuple[int, int]:
    info = path.stat()
    return info.st_dev, info.st_ino


def test_a_folder_is_opened_once(place: Path) -> None:
    folders = OpenFolders()
    root = folders.open((), str(place))
    inbox = folders.open(("inbox",), "inbox", root)
    (place / "inbox/file").touch()
    assert (folders.open((), str(place)), folders.open(("inbox",), "inbox", root)) == (root, inbox)
    folders.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(inbox)


def test_a_folder_that_took_the_place_of_another_is_opened(place: Path) -> None:
    folders = OpenFolders()
    folders.open(("inbox",), str(place / "inbox"))
    (place / "inbox").rename(place / "before")
    (place / "inbox").mkdir(mode=0o700)
    assert folder_of(folders.open(("inbox",), str(place / "inbox"))) == inode_of(place / "inbox")
    folders.close()


def test_a_folder_that_is_gone_is_missing_and_found_when_it_is_back(place: Path) -> None:
    folders = OpenFolders()
    folders.open(("inbox",), str(place / "inbox"))
    (place / "inbox").rmdir()
    with pytest.raises(FileNotFoundError):
        folders.open(("inbox",), str(place / "inbox"))
    (place / "inbox").mkdir(mode=0o700)
    assert folder_of(folders.open(("inbox",), str(place / "inbox"))) == inode_of(place / "inbox")
    folders.close()


def test_a_link_to_an_open_folder_is_not_taken_for_it(place: Path) -> None:
    folders = OpenFolders()
    folders.open(("inbox",), str(place / "inbox"))
    (place / "inbox").rename(place / "moved")
    (place / "inbox").symlink_to("moved")
    with pytest.raises(OSError, match=r"Not a directory|symbolic link"):
        folders.open(("inbox",), str(place / "inbox"))
    folders.close()


def test_an_open_folder_that_others_may_write_since_is_refused(place: Path) -> None:
    folders = OpenFolders()
    folders.open(("inbox",), str(place / "inbox"))
    (place / "inbox").chmod(0o777)
    with pytest.raises(SwitchboardError, match="can be written by others"):
        folders.open(("inbox",), str(place / "inbox"))
    folders.close()


def test_the_folders_that_were_used_last_stay_open(place: Path) -> None:
    folders = OpenFolders()
    opened = {}
    for name in ("a", "b", "c"):
        (place / name).mkdir(mode=0o700)
        opened[name] = folders.open((name,), str(place / name))
    folders.open(("a",), str(place / "a"))
    folders.close(keep=2)
    assert folders.open(("a",), str(place / "a")) == opened["a"]
    assert folders.open(("c",), str(place / "c")) == opened["c"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened["b"])
    folders.close()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_store_with_many_agents_keeps_some_folders_open_and_none_at_its_end(workspace: Path) -> None:
    before = open_descriptors()
    async with await MessageStore.open(str(workspace), watch=False) as store:
        for number in range(MAX_KEPT_FOLDERS):
            await store.register(f"agent-{number}")
            await store.claim(f"agent-{number}")
        # Locks, the journal and such.
        assert open_descriptors() < before + MAX_KEPT_FOLDERS + 30
    assert open_descriptors() <= before


async def test_a_mailbox_that_was_moved_away_gets_no_more_messages(workspace: Path) -> None:
    draft = Draft(action="status_update", payload="hello")
    async with await MessageStore.open(str(workspace), watch=False) as store:
        for name in ("lead", "coder"):
            await store.register(name)
        await store.send(draft, sender="lead", recipient="coder")
        inbox = workspace / ".switchboard/inbox/coder"
        inbox.rename(workspace / "moved")
        with pytest.raises(SwitchboardError, match="no agent 'coder'"):
            await store.send(draft, sender="lead", recipient="coder")
        await store.register("coder")
        sent = await store.send(draft, sender="lead", recipient="coder")
        assert [path.name for path in inbox.iterdir()] == [f"{sent.id}.json"]
        assert len(list((workspace / "moved").iterdir())) == 1
