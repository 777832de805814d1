from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest

from switchboard_mcp.cli.catalogs import by_unique_name, read_catalog
from switchboard_mcp.errors import SwitchboardError
from tests.cases import each_case

TOOL = {"name": "a", "description": "Does it.", "inputSchema": {"type": "object"}}


def written(folder: Path, value: object, name: str = "some.json") -> str:
    path = folder / name
    data = msgspec.json.encode(value)
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(path)


@each_case("name", ["some.json", "some.json.gz"])
def test_servers_are_read_plain_and_gzipped(tmp_path: Path, name: str) -> None:
    value = {"servers": [{"server": "x", "tools": [TOOL], "instructions": None, "licence": "MIT"}]}
    [server] = read_catalog(written(tmp_path, value, name))
    assert (server.title, server.tools[0].view().description) == ("x", "Does it.")


def test_a_list_of_servers_and_a_single_answer_are_catalogs_too(tmp_path: Path) -> None:
    [listed] = read_catalog(written(tmp_path, [{"name": "y", "tools": [TOOL]}]))
    assert listed.title == "y"
    [single] = read_catalog(written(tmp_path, {"tools": [TOOL]}, "weather.json"))
    assert single.title == "weather"


def test_two_servers_of_one_name_are_told_apart(tmp_path: Path) -> None:
    servers = read_catalog(written(tmp_path, {"servers": [{"server": "x", "tools": []}] * 3}))
    assert list(by_unique_name(servers)) == ["x", "x-2", "x-3"]


@each_case(
    ("value", "expected"),
    [({}, "neither 'servers' nor 'tools'"), ({"servers": [{"server": "x"}]}, "tools"), (3, "int")],
)
def test_a_file_that_is_no_catalog_is_refused_with_its_name(
    tmp_path: Path, value: object, expected: str
) -> None:
    path = written(tmp_path, value)
    with pytest.raises(SwitchboardError, match=expected) as refused:
        read_catalog(path)
    assert path in refused.value.failure.message


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(SwitchboardError, match=r"nowhere\.json"):
        read_catalog("nowhere.json")
