from __future__ import annotations

import os
from pathlib import Path

import pytest

from switchboard_mcp.config.writing import write_whole


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_is_replaced_whole_with_the_rights_it_should_have(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    path.chmod(0o666)
    write_whole(str(path), b"after", mode)
    assert path.read_bytes() == b"after"
    assert path.stat().st_mode & 0o777 == mode
    assert os.listdir(tmp_path) == ["file"]


def test_what_a_writer_left_that_died_is_not_written_through(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / f"file.{os.getpid()}.new").symlink_to(elsewhere)
    write_whole(str(tmp_path / "file"), b"data")
    assert (tmp_path / "file").read_bytes() == b"data"
    assert not elsewhere.exists()
