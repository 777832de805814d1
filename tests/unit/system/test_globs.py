from __future__ import annotations

from pathlib import Path

import pytest

from switchboard_mcp.system import globs
from tests.cases import each_case


def new_tree(tmp_path: Path) -> Path:
    for name in (
        "mcps/b/.mcp.json",
        "mcps/a/.mcp.json",
        "mcps/.hidden/.mcp.json",
        "mcps/a/deep/er/.mcp.json",
        "mcps/x1.json",
        "mcps/x2.json",
        ".switchboard/mcps/c/.mcp.json",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (tmp_path / "mcps/empty").mkdir()
    return tmp_path


tree = pytest.fixture(new_tree, name="tree")


@each_case(
    ("pattern", "found"),
    [
        ("mcps/*/.mcp.json", ["mcps/a/.mcp.json", "mcps/b/.mcp.json"]),
        ("./mcps//*/.mcp.json", ["mcps/a/.mcp.json", "mcps/b/.mcp.json"]),
        (".switchboard/mcps/*/.mcp.json", [".switchboard/mcps/c/.mcp.json"]),
        ("mcps/.*/.mcp.json", ["mcps/.hidden/.mcp.json"]),
        ("mcps/?/.mcp.json", ["mcps/a/.mcp.json", "mcps/b/.mcp.json"]),
        ("mcps/[!a]/.mcp.json", ["mcps/b/.mcp.json"]),
        ("mcps/x[0-1].json", ["mcps/x1.json"]),
        ("mcps/*.json", ["mcps/x1.json", "mcps/x2.json"]),
        ("mcps/a/.*", ["mcps/a/.mcp.json"]),
        ("mcps/a/*", []),
        ("mcps/a", []),
        ("mcps/**/.mcp.json", ["mcps/a/.mcp.json", "mcps/a/deep/er/.mcp.json", "mcps/b/.mcp.json"]),
        ("**/**/er/.mcp.json", ["mcps/a/deep/er/.mcp.json"]),
        ("**", ["mcps/x1.json", "mcps/x2.json"]),
        ("mcps/x1.json", ["mcps/x1.json"]),
        ("MCPS/*/.mcp.json", []),
        ("nowhere/*/x", []),
        ("", []),
        (".", []),
    ],
    tree=new_tree,
)
def test_a_pattern_finds_these_files_in_this_order(tree: Path, pattern: str, found: list[str]) -> None:
    assert globs.find_files(str(tree), pattern) == [str(tree / name) for name in found]


def test_an_absolute_pattern_does_not_start_at_the_folder(tree: Path) -> None:
    assert globs.find_files("/nowhere", f"{tree}/mcps/a/.mcp.json") == [f"{tree}/mcps/a/.mcp.json"]


def test_a_parent_folder_can_be_named(tree: Path) -> None:
    assert globs.find_files(str(tree / "mcps"), "../mcps/x1.json") == [f"{tree}/mcps/../mcps/x1.json"]


def test_linked_folders_are_entered_by_a_star_but_not_by_two(tree: Path) -> None:
    (tree / "links").mkdir()
    (tree / "links/loop").symlink_to(tree)
    (tree / "links/a").symlink_to(tree / "mcps/a")
    assert globs.find_files(str(tree), "links/*/.mcp.json") == [str(tree / "links/a/.mcp.json")]
    assert globs.find_files(str(tree), "links/**/.mcp.json") == []


def test_a_link_that_leads_nowhere_is_found_so_that_it_can_be_told(tree: Path) -> None:
    (tree / "mcps/empty/.mcp.json").symlink_to("gone")
    assert str(tree / "mcps/empty/.mcp.json") in globs.find_files(str(tree), "mcps/*/.mcp.json")
