from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from switchboard_mcp.observability.audit.reader import Reader
from switchboard_mcp.observability.audit.segments import segment_name


def write(folder: Path, number: int, *seqs: int, end: str = "\n") -> None:
    with (folder / segment_name(number)).open("a") as file:
        file.write("\n".join(f'{{"seq":{seq},"at":0,"kind":"call"}}' for seq in seqs) + end)


def told(reader: Reader) -> list[int]:
    return [entry.seq for entry in reader.read_new()]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    found = Reader(str(tmp_path))
    yield found
    found.close()


def test_each_record_is_reported_once_over_any_number_of_files(tmp_path: Path, reader: Reader) -> None:
    write(tmp_path, 1, 1, 2)
    write(tmp_path, 2, 3)
    assert told(reader) == [1, 2, 3]
    assert told(reader) == []
    write(tmp_path, 2, 4)
    write(tmp_path, 3, 5)
    write(tmp_path, 4, 6)
    assert told(reader) == [4, 5, 6]
    write(tmp_path, 4, 7)
    assert told(reader) == [7]


def test_a_file_that_goes_while_it_is_read_is_read_to_its_end(tmp_path: Path, reader: Reader) -> None:
    write(tmp_path, 1, 1)
    assert told(reader) == [1]
    write(tmp_path, 1, 2)
    write(tmp_path, 2, 3)
    (tmp_path / segment_name(1)).unlink()
    assert told(reader) == [2, 3]


def test_half_a_line_is_reported_once_it_is_whole(tmp_path: Path, reader: Reader) -> None:
    write(tmp_path, 1, 1, end='\n{"seq":2,"at":0,')
    assert told(reader) == [1]
    with (tmp_path / segment_name(1)).open("a") as file:
        file.write('"kind":"call"}\n')
    assert told(reader) == [2]


def test_half_a_line_that_is_set_aside_leaves_its_place_to_the_next(tmp_path: Path, reader: Reader) -> None:
    write(tmp_path, 1, 1, end='\n{"seq":2,"at":0,"kind":"a rather long one that never')
    assert told(reader) == [1]
    file = tmp_path / segment_name(1)
    file.write_text(file.read_text().partition("\n")[0] + "\n")
    assert told(reader) == []
    write(tmp_path, 1, 2, 3)
    assert told(reader) == [2, 3]


def test_a_missing_record_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        told(Reader(str(tmp_path / "nowhere")))
