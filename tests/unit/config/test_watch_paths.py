"""Where the files of a workspace are, and where new ones would appear."""

from __future__ import annotations

from pathlib import Path

from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.watch_paths import watched_files
from switchboard_mcp.system.globs import inspected_folders


def test_every_level_of_a_pattern_is_looked_at_as_far_as_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "mcps" / "a").mkdir(parents=True)
    (tmp_path / "mcps" / ".hidden").mkdir()
    (tmp_path / "mcps" / "file").touch()
    found = set(inspected_folders(str(tmp_path), "mcps/*/.mcp.json"))
    assert found == {
        (str(tmp_path), "mcps"),
        (str(tmp_path / "mcps"), "*"),
        (str(tmp_path / "mcps" / "a"), ".mcp.json"),
    }
    assert set(inspected_folders(str(tmp_path), "none/*/.mcp.json")) == {(str(tmp_path), "none")}


def test_two_stars_look_into_every_folder_below(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    found = set(inspected_folders(str(tmp_path), "**/x.json"))
    for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
        assert {(str(folder), "*"), (str(folder), "x.json")} <= found


def test_an_absolute_pattern_starts_at_the_root(tmp_path: Path) -> None:
    found = dict(inspected_folders("/elsewhere", f"{tmp_path}/x.json"))
    assert found[str(tmp_path)] == "x.json"


def test_config_approvals_and_children_are_watched_for(tmp_path: Path) -> None:
    found = watched_files(load_workspace(str(tmp_path), None, {}), None, {})
    assert found == {
        str(tmp_path): frozenset(
            {
                "switchboard.config.json",
                "switchboard.config.toml",
                "switchboard.approvals.json",
                "switchboard.lock.json",
                "mcp-descriptions.json",
                ".switchboard",
                "mcps",
            }
        )
    }


def test_a_config_elsewhere_is_watched_where_it_is_and_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "one.json").write_text("{}")
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "config.json"
    link.symlink_to(tmp_path / "real" / "one.json")
    folder = tmp_path / "work"
    folder.mkdir()
    found = watched_files(load_workspace(str(folder), str(link), {}), str(link), {})
    assert found[str(tmp_path / "links")] == {"config.json"}
    assert found[str(tmp_path / "real")] == {"one.json"}
    assert "switchboard.config.json" not in found[str(folder)]


def test_the_home_folder_is_filled_in(tmp_path: Path) -> None:
    (tmp_path / "switchboard.config.json").write_text('{"discoverGlobs": ["~/servers/*.json"]}')
    (tmp_path / "home").mkdir()
    home = {"HOME": str(tmp_path / "home")}
    found = watched_files(load_workspace(str(tmp_path), None, home), None, home)
    assert found[str(tmp_path / "home")] == {"servers"}
