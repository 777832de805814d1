from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.store import file_operations
from tests.acl import STRANGER, USER, acl, set_acl


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture(params=["renameat2", "link"])
def moving(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "link":
        monkeypatch.setattr(file_operations, "_renameat2", None)


@pytest.mark.usefixtures("moving")
class TestMove:
    def test_a_file_gets_its_new_name(self, folder: int, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("x")
        file_operations.move(folder, "a", folder, "b")
        assert [path.name for path in tmp_path.iterdir()] == ["b"]

    def test_nothing_is_overwritten(self, folder: int, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("x")
        (tmp_path / "b").write_text("y")
        with pytest.raises(FileExistsError):
            file_operations.move(folder, "a", folder, "b")
        assert (tmp_path / "b").read_text() == "y"
        assert (tmp_path / "a").read_text() == "x"

    def test_what_is_gone_is_told(self, folder: int) -> None:
        with pytest.raises(FileNotFoundError):
            file_operations.move(folder, "a", folder, "b")


class TestCreate:
    def test_what_is_there_is_not_written_to(self, folder: int, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("x")
        (tmp_path / "b").symlink_to("elsewhere")
        for name in ("a", "b"):
            with pytest.raises(FileExistsError):
                file_operations.create(folder, name, b"y")
        assert (tmp_path / "a").read_text() == "x"
        assert not (tmp_path / "elsewhere").exists()

    def test_a_file_is_its_owners_alone(self, folder: int, tmp_path: Path) -> None:
        os.close(file_operations.create(folder, "a", b"y"))
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


class TestRead:
    def test_a_file_of_the_largest_size_is_read_and_a_larger_one_is_not(
        self, folder: int, tmp_path: Path
    ) -> None:
        (tmp_path / "a").write_bytes(b"12345")
        found = file_operations.read(folder, "a", 5)
        assert isinstance(found, file_operations.FileContent)
        assert found.data == b"12345"
        assert file_operations.read(folder, "a", 4) == file_operations.RejectedFile(
            "it is larger than 4 bytes"
        )

    def test_what_is_not_there_is_gone(self, folder: int) -> None:
        assert file_operations.read(folder, "a", 5) == file_operations.RejectedFile("it is gone", gone=True)


class TestLock:
    def test_somebody_who_never_lets_go_is_named(self, folder: int, tmp_path: Path) -> None:
        with (
            file_operations.lock(folder, "l", str(tmp_path)),
            pytest.raises(SwitchboardError, match="has held the lock"),
            file_operations.lock(folder, "l", str(tmp_path), timeout_s=0.01),
        ):
            raise AssertionError("two hold the same lock")

    def test_a_link_is_no_lock(self, folder: int, tmp_path: Path) -> None:
        (tmp_path / "l").symlink_to("elsewhere")
        with pytest.raises(OSError, match="symbolic links"), file_operations.lock(folder, "l", str(tmp_path)):
            raise AssertionError("a link was followed")
        assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("code", "kind", "expected"),
    [
        (errno.ENOSPC, "mail_not_stored", "No space is left"),
        (errno.EDQUOT, "mail_not_stored", "No space is left"),
        (errno.EROFS, "mail_not_stored", "is not writable"),
        (errno.EACCES, "mail_not_stored", "is not writable"),
        (errno.ENOENT, "mail_not_stored", "is missing"),
        (errno.ESTALE, "mail_not_stored", "is missing"),
        (errno.ELOOP, "mail_unsafe", "a link or a file in place of a folder"),
        (errno.EMFILE, "mail_not_stored", "Too many open files"),
        (errno.EIO, "mail_not_stored", "Input/output error"),
    ],
)
def test_every_trouble_of_the_system_is_told_with_the_folder(code: int, kind: str, expected: str) -> None:
    problem = file_operations.failure_for(OSError(code, os.strerror(code), "inbox"), "/w/.switchboard")
    assert problem.code == kind
    assert expected in problem.message
    assert "/w/.switchboard" in problem.message


def test_a_folder_that_an_acl_opens_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mail").mkdir(mode=0o700)
    os.close(file_operations.open_folder(str(tmp_path / "mail")))
    set_acl(tmp_path / "mail", acl((USER, 7, STRANGER), group=0, other=0))
    with pytest.raises(SwitchboardError, match="can be written by others"):
        file_operations.open_folder(str(tmp_path / "mail"))
