"""What a project takes over from the user workspace, and what it leaves out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from switchboard_mcp.config.gate import gate_settings
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.watch_paths import watched_files
from switchboard_mcp.system.user_folders import user_workspace
from tests.cases import each_case


class Folders:
    """A user workspace and a project."""

    def __init__(self, folder: Path) -> None:
        self.config, self.project = folder / "config", folder / "project"
        self.user = self.config / "switchboard"
        self.project.mkdir()

    def write(self, folder: Path, **config: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "switchboard.config.json").write_text(json.dumps(config))

    def load(self, default: bool | None = True, **environ: str) -> Workspace:
        environ = {"XDG_CONFIG_HOME": str(self.config), **environ}
        return load_workspace(str(self.project), None, environ, include_user=default)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    made = Folders(tmp_path)
    made.write(made.project, mcpServers={"ours": {"command": "x"}})
    return made


A = {"command": "a"}


@each_case(
    ("environ", "platform", "expected"),
    [
        ({"HOME": "/h"}, "linux", "/h/.config/switchboard"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}, "linux", "/c/switchboard"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}, "darwin", "/c/switchboard"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "c"}, "linux", "/h/.config/switchboard"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": ""}, "linux", "/h/.config/switchboard"),
        ({"HOME": "h"}, "linux", ""),
        ({"HOME": ""}, "linux", ""),
        ({}, "linux", ""),
        ({"HOME": "/h", "APPDATA": "/a"}, "win32", "/a/switchboard"),
        ({"HOME": "/h"}, "win32", ""),
    ],
)
def test_the_place_of_the_user_workspace_never_depends_on_the_current_folder(
    environ: dict[str, str], platform: str, expected: str
) -> None:
    assert user_workspace(environ, platform) == expected


@pytest.mark.parametrize(
    ("project", "user", "default", "expected", "reason"),
    [
        ({}, {}, True, True, ""),
        ({}, {}, False, False, "HTTP server"),
        ({"includeUser": True}, {}, False, True, ""),
        ({"includeUser": False}, {}, True, False, "includeUser is `false`"),
        ({"governance": {"mode": "governed"}}, {}, True, False, "governed"),
        ({"governance": {"mode": "governed"}, "includeUser": True}, {}, True, False, "governed"),
        ({}, {"governance": {"mode": "governed"}}, True, False, "governed"),
        ({}, {"nonsense": 1}, True, False, "nonsense"),
        ({}, {"gate": {"otherwise": "ask"}}, True, False, "gate.otherwise"),
    ],
)
def test_the_user_workspace_is_included_only_if_it_applies(
    folders: Folders,
    project: dict[str, object],
    user: dict[str, object],
    default: bool,
    expected: bool,
    reason: str,
) -> None:
    folders.write(folders.project, mcpServers={"ours": A}, **project)
    folders.write(folders.user, mcpServers={"mine": A}, **user)
    workspace = folders.load(default)
    assert ("mine" in {spec.name for spec in workspace.children}) is expected
    assert workspace.user is not None
    assert reason in workspace.user.left_out
    assert bool(reason) == bool(workspace.user.left_out)
    assert [spec.name for spec in folders.load(None).children] == ["ours"]


def test_a_child_keeps_what_the_user_workspace_sets_for_all_its_suites(folders: Folders) -> None:
    folders.write(
        folders.user,
        mcpServers={"mine": A, "own": A},
        limits={"concurrent": 2},
        timeouts={"rpcMs": 5000},
        middleware=["m:a"],
        sandbox="workspace",
        gate=[{"deny": True, "subtool": ["delete_*"]}, {"allow": True}],
        suites={"own": {"limits": {"concurrent": 9}, "rpcMs": 7000, "middleware": ["m:b"]}},
    )
    config = folders.load().config
    mine, own = config.suites["mine"], config.suites["own"]
    assert mine.limits is not None
    assert own.limits is not None
    assert (mine.limits.concurrent, mine.rpc_ms, mine.middleware) == (2, 5000, ["m:a"])
    assert (own.limits.concurrent, own.rpc_ms, own.middleware) == (9, 7000, ["m:a", "m:b"])
    assert "ours" not in config.suites
    assert mine.sandbox == "workspace"
    (rule,) = gate_settings(config.gate).rules
    assert (rule.deny, rule.subtool, rule.suite) == (True, ["delete_*"], ["mine", "own"])


def test_secrets_fill_the_entries_of_their_own_workspace(folders: Folders) -> None:
    entry = {"command": "a", "args": ["${KEY}", "${workspaceFolder}"]}
    folders.write(folders.project, mcpServers={"ours": entry})
    folders.write(folders.user, mcpServers={"mine": entry})
    for folder, value in ((folders.project, "project"), (folders.user, "user")):
        (folder / ".switchboard").mkdir()
        (folder / ".switchboard" / "secrets.env").write_text(f"KEY='{value}'\n")
        (folder / ".switchboard" / "secrets.env").chmod(0o600)
    stored = {spec.name: dict(spec.stored) for spec in folders.load().children}
    where = str(folders.project)
    assert stored == {
        "ours": {"KEY": "project", "workspaceFolder": where},
        "mine": {"KEY": "user", "workspaceFolder": where},
    }


@pytest.mark.parametrize("made", [False, True])
def test_the_user_workspace_is_watched_and_so_is_the_place_of_a_new_one(folders: Folders, made: bool) -> None:
    folders.config.mkdir()
    if made:
        folders.write(folders.user, mcpServers={"mine": A})
    watched = watched_files(folders.load(), None, {})
    if made:
        assert "switchboard.config.json" in watched[str(folders.user)]
    else:
        assert "switchboard" in watched[str(folders.config)]
