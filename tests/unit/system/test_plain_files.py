"""Files of a workspace that somebody else may have written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from switchboard_mcp.children.locking.lock_file import read_lock
from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail import hooks
from switchboard_mcp.mail.hooks import HookInput
from switchboard_mcp.server.http import auth
from switchboard_mcp.system.plain_files import read_plain
from tests.cases import each_case


def test_only_plain_files_are_read_and_only_so_much(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"12345")
    assert read_plain(str(tmp_path / "plain"), 3) == b"123"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("plain")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "link", "endless", ".", "none"):
        with pytest.raises(OSError, match=r"No such|plain|links"):
            read_plain(str(tmp_path / name), 3)


def test_no_folder_on_the_way_is_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "inner").mkdir(parents=True)
    (real / "inner" / "file").write_bytes(b"1")
    (tmp_path / "root").symlink_to(real)
    (real / "linked").symlink_to("inner")
    assert read_plain(str(tmp_path / "root" / "inner" / "file"), 3, str(tmp_path / "root")) == b"1"
    with pytest.raises(OSError, match="symbolic link"):
        read_plain(str(tmp_path / "root" / "linked" / "file"), 3, str(tmp_path / "root"))


@each_case("endless", [True, False])
def test_nothing_in_a_cloned_workspace_stops_a_reader_or_fills_its_memory(
    tmp_path: Path, endless: bool
) -> None:
    folder = tmp_path / ".switchboard"
    folder.mkdir(parents=True)

    def plant(path: Path) -> None:
        if endless:
            path.symlink_to("/dev/zero")
        else:
            os.mkfifo(path)

    for name in ("state.json", "server_info.json", "auth_token"):
        plant(folder / name)
    plant(tmp_path / "lock.json")
    assert hooks.agent_of(str(tmp_path), "", {}, HookInput()) == ""
    with pytest.raises(OSError, match=r"plain|links"):
        auth.read_token(str(folder))
    with pytest.raises(SwitchboardError):
        read_lock(str(tmp_path / "lock.json"))
