"""Who else may write a path: every combination of owner, mode, group and ACL."""

from __future__ import annotations

import os
import stat
import struct
from itertools import product
from pathlib import Path

import pytest

from switchboard_mcp.system import write_access
from switchboard_mcp.system.write_access import WriteAccess, is_private_group, other_writers
from tests.acl import GROUP, STRANGER, USER, acl, set_acl
from tests.cases import each_case


@pytest.fixture(autouse=True)
def private_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only our own group is private here, whatever the machine's groups are."""
    monkeypatch.setattr(write_access, "is_private_group", lambda group, user: group == os.getegid())


@pytest.fixture(params=["file", "folder"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "path"
    path.touch() if request.param == "file" else path.mkdir()
    path.chmod(0o700)
    return path


def writers(path: Path, *, entries: bool = False) -> str:
    return other_writers(str(path), path.lstat(), entries=entries)


@each_case("private", [True, False])
def test_the_mode_counts_for_everybody_but_the_owner_and_his_private_group(
    tmp_path: Path, private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.touch()
    monkeypatch.setattr(write_access, "is_private_group", lambda group, user: private)
    for mode in range(0o1000):
        path.chmod(mode)
        assert bool(writers(path)) == bool(mode & (0o002 if private else 0o022)), oct(mode)


@each_case("ours", [True, False])
@each_case("tag", [USER, GROUP])
def test_a_named_user_or_group_counts_as_far_as_the_mask_allows(tmp_path: Path, tag: int, ours: bool) -> None:
    path = tmp_path / "file"
    path.touch()
    number = (os.geteuid() if tag == USER else os.getegid()) if ours else STRANGER
    for permissions, mask, group in product(range(8), range(8), (0, 2, 4, 6, 7)):
        set_acl(path, acl((tag, permissions, number), group=group, mask=mask))
        expected = permissions & mask & 2 and not ours
        assert bool(writers(path)) == bool(expected), (permissions, mask, group)


def test_an_acl_of_a_file_or_folder_names_who_may_write(path: Path) -> None:
    set_acl(path, acl((USER, 6, STRANGER)))
    assert writers(path) == f"is writable by user {STRANGER} (ACL)"
    set_acl(path, acl((GROUP, 2, STRANGER)))
    assert writers(path) == f"is writable by group {STRANGER} (ACL)"
    set_acl(path, acl((USER, 6, 0), (USER, 4, STRANGER)))
    assert writers(path) == ""


@each_case(
    ("default", "why"),
    [
        (acl((USER, 6, STRANGER)), f"makes new files writable by user {STRANGER} (ACL) (default ACL)"),
        (acl((GROUP, 7, STRANGER)), f"makes new files writable by group {STRANGER} (ACL) (default ACL)"),
        (acl(other=6), "makes new files writable by everybody (default ACL)"),
        (acl((USER, 6, STRANGER), mask=5), ""),
        (acl((USER, 5, STRANGER)), ""),
        (acl(group=6), ""),
    ],
)
def test_a_default_acl_counts_for_what_will_be_created(tmp_path: Path, default: bytes, why: str) -> None:
    tmp_path.chmod(0o700)
    set_acl(tmp_path, default, default=True)
    assert writers(tmp_path) == why


def test_an_acl_of_an_unknown_kind_counts_as_write_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o660)
    for value in (struct.pack("<I", 3), acl()[:-1]):
        monkeypatch.setattr(os, "getxattr", lambda *_, value=value: value, raising=False)
        assert "an ACL that cannot be read" in writers(path)


def test_in_a_sticky_folder_others_may_add_and_not_replace(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert writers(tmp_path) == ""
    assert writers(tmp_path, entries=True) == "is writable by everybody"


def test_a_link_has_an_owner_and_no_mode(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    assert writers(link) == ""


@each_case("kind", [stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK])
def test_files_of_another_user_can_be_changed_by_that_user(kind: int) -> None:
    def owned_by(user: int) -> str:
        return WriteAccess().others(
            "/", os.stat_result((kind | 0o700, 1, 1, 1, user, os.getegid(), 0, 0, 0, 0))
        )

    assert owned_by(os.geteuid() + 4242) == "belongs to another user"
    assert owned_by(0) == owned_by(os.geteuid()) == ""


def test_an_open_file_is_judged_like_its_path(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    set_acl(path, acl((USER, 6, STRANGER)))
    with path.open() as file:
        assert "user" in other_writers(file.fileno(), os.fstat(file.fileno()))


def test_a_group_that_the_system_does_not_know_is_not_private() -> None:
    assert not is_private_group(2**31 - 7, os.getuid())
