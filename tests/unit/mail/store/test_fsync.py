from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.disk.fsync import RETRY_BATCHES, FsyncBatcher


@pytest.fixture
def descriptors(tmp_path: Path) -> Iterator[list[int]]:
    found = [os.open(tmp_path / str(number), os.O_CREAT | os.O_WRONLY) for number in range(10)]
    yield found
    for descriptor in found:
        os.close(descriptor)


@pytest.fixture
def syncer() -> Iterator[FsyncBatcher]:
    made = FsyncBatcher()
    yield made
    made.close()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record single syncs; -1 stands for syncfs."""
    calls: list[int] = []

    def everything(descriptor: int) -> bool:
        calls.append(-1)
        return True

    monkeypatch.setattr(file_operations, "sync", calls.append)
    monkeypatch.setattr(file_operations, "sync_all", everything)
    monkeypatch.setattr(file_operations, "dirty_kb", lambda: 0)
    return calls


def test_few_are_synced_singly(syncer: FsyncBatcher, descriptors: list[int], synced: list[int]) -> None:
    assert syncer.sync(descriptors[:2]) == [None, None]
    assert synced == descriptors[:2]


def test_many_are_synced_at_once(syncer: FsyncBatcher, descriptors: list[int], synced: list[int]) -> None:
    assert syncer.sync(descriptors) == [None] * 10
    assert synced == [-1]


def test_where_others_write_much_each_is_synced(
    syncer: FsyncBatcher, descriptors: list[int], synced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_operations, "dirty_kb", lambda: 10**9)
    assert syncer.sync(descriptors) == [None] * 10
    assert sorted(synced) == sorted(descriptors)


def test_where_everything_cannot_be_synced_each_is_and_it_is_not_tried_again(
    syncer: FsyncBatcher, descriptors: list[int], synced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def cannot(descriptor: int) -> bool:
        tried.append(descriptor)
        return False

    monkeypatch.setattr(file_operations, "sync_all", cannot)
    for _ in range(RETRY_BATCHES + 1):
        assert syncer.sync(descriptors) == [None] * 10
    assert len(synced) == 10 * (RETRY_BATCHES + 1)
    assert len(tried) == 1


def test_an_error_of_everything_is_everybodys(
    syncer: FsyncBatcher, descriptors: list[int], synced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(file_operations, "sync_all", fail)
    assert [problem.errno if problem else 0 for problem in syncer.sync(descriptors)] == [errno.EIO] * 10


def test_an_error_of_one_is_its_own(
    syncer: FsyncBatcher, descriptors: list[int], synced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        if descriptor == descriptors[3]:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(file_operations, "sync", fail)
    monkeypatch.setattr(file_operations, "dirty_kb", lambda: 10**9)
    result = syncer.sync(descriptors)
    assert [number for number, problem in enumerate(result) if problem] == [3]


def test_the_real_calls_sync_real_files(syncer: FsyncBatcher, descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.write(descriptor, b"x")
    for _ in range(3):
        assert syncer.sync(descriptors) == [None] * 10
    assert file_operations.dirty_kb() >= 0
