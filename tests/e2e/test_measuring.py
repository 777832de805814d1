"""`tokens` and `find` as a user types them: on the workspace's own children, and on a catalog file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases import each_case
from tests.e2e.shell import Done, run
from tests.e2e.workspaces import MOCK_CHILD, add_child, configure, read_record, recorded

CATALOG = {
    "servers": [
        {
            "server": f"server{number}",
            "tools": [
                {
                    "name": f"{verb}_{noun}",
                    "description": f"{verb.title()} a {noun} of the {number}th kind, whatever it may be.",
                    "inputSchema": {
                        "type": "object",
                        "properties": {
                            name: {"type": "string", "description": f"The {name} of the {noun}."}
                            for name in ("title", "place", "reason", "owner")
                        },
                        "required": ["title"],
                    },
                }
                for verb in ("create", "delete", "list")
                for noun in ("ticket", "letter", "garden", "engine", "painting")
            ],
        }
        for number in range(6)
    ]
}


@pytest.fixture
def catalog(tmp_path: Path) -> str:
    path = tmp_path / "catalog.json"
    path.write_text(json.dumps(CATALOG))
    return str(path)


def figures(done: Done) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@each_case("tokenizer", ["estimate", "o200k"])
def test_a_catalog_is_measured(workspace: Path, catalog: str, tokenizer: str) -> None:
    found = figures(run(workspace, "tokens", "--catalog", catalog, "--json", "--tokenizer", tokenizer))
    assert len(found["servers"]) == 6
    assert found["sets"] == 60
    assert found["flat"] > found["suites"]
    assert 0 < found["session"]["p10"] <= found["session"]["median"] < found["listing"]["median"] < 100


def test_the_estimate_is_near_the_real_count(workspace: Path, catalog: str) -> None:
    counted = [
        figures(run(workspace, "tokens", "--catalog", catalog, "--json", "--tokenizer", name))["flat"]
        for name in ("estimate", "o200k")
    ]
    assert counted[0] == pytest.approx(counted[1], rel=0.1)


def test_own_children_are_measured_and_started_only_where_unknown(workspace: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    add_child(workspace, "mock", recorded(MOCK_CHILD, record))
    configure(workspace, {"suites": {"mock": {"expose": {"deny": ["crash"]}}}})
    first = figures(run(workspace, "tokens", "--json"))
    again = figures(run(workspace, "tokens", "--json"))
    assert [server["name"] for server in first["servers"]] == ["mock"]
    assert first["servers"] == again["servers"]
    assert [line["method"] for line in read_record(record)].count("initialize") == 1
    shown = run(workspace, "tokens")
    assert "SERVER" in shown.stdout
    assert "Session:" in shown.stdout


def test_a_child_that_does_not_start_is_told_and_the_rest_is_measured(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    add_child(workspace, "gone", ["no-such-program-anywhere"])
    done = run(workspace, "tokens", "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert list(found["failed"]) == ["gone"]
    assert [server["name"] for server in found["servers"]] == ["mock"]


def test_a_sentence_finds_its_tool_in_a_catalog(workspace: Path, catalog: str) -> None:
    done = run(workspace, "find", "--catalog", catalog, "--json", "remove", "the", "garden")
    matches = figures(done)["matches"]
    assert {match["subtool"] for match in matches} == {"delete_garden"}
    assert matches[0]["signature"].startswith("(title: string")


def test_find_looks_through_what_is_known_and_shows_no_denied_subtool(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    unknown = run(workspace, "find", "crash", "now", "--json")
    assert unknown.returncode == 1
    assert json.loads(unknown.stdout)["unknown"] == ["mock"]
    assert run(workspace, "--dry-run").returncode == 0
    assert [match["subtool"] for match in figures(run(workspace, "find", "crash", "--json"))["matches"]] == [
        "crash"
    ]
    configure(workspace, {"suites": {"mock": {"expose": {"deny": ["crash"]}}}})
    assert run(workspace, "find", "crash").returncode == 1


@each_case("command", ["tokens", "find"])
def test_a_catalog_that_is_none_is_refused_with_its_name(workspace: Path, command: str) -> None:
    done = run(workspace, command, *(["x"] if command == "find" else []), "--catalog", "nowhere.json")
    assert done.returncode == 2
    assert "nowhere.json" in done.stderr
