from __future__ import annotations

import os
from pathlib import Path

import pytest

from switchboard_mcp.system.atomic_write import write_atomically
from tests.cases import each_case


@each_case("mode", [0o600, 0o644])
def test_a_file_is_replaced_whole_with_the_rights_it_should_have(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    path.chmod(0o666)
    write_atomically(str(path), b"after", mode)
    assert path.read_bytes() == b"after"
    assert path.stat().st_mode & 0o777 == mode
    assert os.listdir(tmp_path) == ["file"]


def test_two_writers_with_the_same_process_number_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, replace = str(tmp_path / "file"), os.replace

    def after_another(fresh: str, target: str) -> None:
        monkeypatch.setattr(os, "replace", replace)
        write_atomically(path, b"the other's")
        replace(fresh, target)

    monkeypatch.setattr(os, "replace", after_another)
    write_atomically(path, b"mine")
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_nothing_is_left_of_what_could_not_be_put_in_place(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomically(str(tmp_path / "folder"), b"data")
    assert os.listdir(tmp_path) == ["folder"]
