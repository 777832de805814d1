"""The files of a workflow, where somebody means harm or the disk does."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.workflows import artifact_files
from switchboard_mcp.mail.workflows.artifact_files import scan, write_record
from switchboard_mcp.mail.workflows.definitions import WorkflowArtifact
from tests.cases import each_case


def test_a_file_is_found_with_its_hash_however_large_its_parts_are(tmp_path: Path) -> None:
    content = os.urandom(3 * 1024 * 1024 + 1)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.bin").write_bytes(content)
    found = scan(str(tmp_path), ["a/b/c.bin", "a/b/c.bin", "a/x"])
    digest = hashlib.sha256(content).hexdigest()
    assert found == {
        "a/b/c.bin": WorkflowArtifact("a/b/c.bin", digest, len(content)),
        "a/x": "there is no such file",
    }


def test_a_file_that_is_too_large_or_a_part_that_is_no_folder_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_files, "MAX_BYTES", 3)
    (tmp_path / "a").write_text("four")
    found = scan(str(tmp_path), ["a", "a/b"])
    assert found["a"] == "it is larger than 3 bytes"
    assert found["a/b"] == "it cannot be read: Not a directory"


@each_case("path", ["../a", "/etc/hostname", ".switchboard/seal.key", "a/../../b", "./a"])
def test_nothing_outside_is_looked_at(tmp_path: Path, path: str) -> None:
    assert scan(str(tmp_path), [path]) == {path: "it is not inside the workspace"}


def test_a_file_that_grows_while_it_is_read_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a"
    file.write_text("first")
    read = os.read

    def slow(descriptor: int, count: int) -> bytes:
        data = read(descriptor, count)
        with file.open("a") as more:
            more.write("!" * 10)
        return data if len(data) < 6 else b""

    monkeypatch.setattr(os, "read", slow)
    assert scan(str(tmp_path), ["a"]) == {"a": "it was modified while being read"}


def test_a_record_takes_the_place_of_an_earlier_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "reviews").mkdir(mode=0o700)
    for data in (b"1", b"2"):
        write_record(str(tmp_path), "r.json", data)
    assert [(each.name, each.read_bytes()) for each in (tmp_path / "reviews").iterdir()] == [("r.json", b"2")]


def test_a_record_is_never_written_through_a_link(tmp_path: Path) -> None:
    server, outside = tmp_path / "desk", tmp_path / "outside"
    server.mkdir(mode=0o700)
    outside.mkdir()
    (server / "reviews").symlink_to(outside)
    with pytest.raises(SwitchboardError):
        write_record(str(server), "r.json", b"1")
    assert list(outside.iterdir()) == []
    (server / "reviews").unlink()
    (server / "reviews").mkdir(mode=0o700)
    (outside / "file").write_text("theirs")
    (server / "reviews" / "r.json").symlink_to(outside / "file")
    write_record(str(server), "r.json", b"1")
    assert (outside / "file").read_text() == "theirs"
