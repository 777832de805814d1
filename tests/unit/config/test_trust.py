"""What a project runs before anybody asks for it is off until this user has allowed it, with this content."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.config import trust
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import Workspace
from switchboard_mcp.config.user_scope import keep_names
from switchboard_mcp.config.workspace_folder import nearest_workspace

A = {"command": "a", "args": ["./server.js"]}


class Clone:
    """A project that somebody else wrote, and the home of its user."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder / "clone", folder / "home"
        self.folder.mkdir()
        self.home.mkdir()
        self.environ = {"HOME": str(self.home)}

    def write(self, **config: object) -> None:
        (self.folder / "switchboard.config.json").write_text(json.dumps(config))

    def load(self, **more: Any) -> Workspace:
        return load_workspace(str(self.folder), None, self.environ, **more)

    def allow(self) -> None:
        workspace = self.load(withhold=False)
        trust.allow(workspace, self.environ, trust.find_parts(workspace))


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_each_part_that_runs_by_itself_is_off_until_it_is_allowed(clone: Clone) -> None:
    popen = {"use": "subprocess:Popen", "options": {"/bin/sh": 1}}
    cases: dict[str, tuple[str, dict[str, object]]] = {
        "middleware": ("middleware", {"middleware": [popen]}),
        "an entry point": ("middleware", {"middleware": ["installed"]}),
        "of a suite": ("suites.x.middleware", {"suites": {"x": {"middleware": ["m:f"]}}}),
        "of a child": ("suites.a.exposure", {"suites": {"a": {"exposure": "direct"}}}),
        "of all children": ("suites.a.exposure", {"exposure": "direct"}),
        "a pin": ("suites.a.exposure", {"suites": {"a": {"pin": ["*"]}}}),
        "channel": ("mail.channel", {"mail": {"enabled": True, "channel": True}}),
    }
    for name, (key, config) in cases.items():
        clone.write(mcpServers={"a": A}, **config)
        off = clone.load()
        assert off.withheld == [key], name
        (warning,) = (each for each in off.warnings if each.key == key)
        assert (warning.key, trust.COMMAND in warning.message) == (key, True), name
        suites = off.config.suites.values()
        assert not any((off.config.middleware, *(suite.middleware or suite.pin for suite in suites))), name
        assert not trust.is_listed_directly(off.config, "a"), name
        assert not any((off.config.mail.channel, *(spec.channel for spec in off.children))), name
        assert [spec.name for spec in off.children if spec.kind != "builtin"] == ["a"], name
        clone.allow()
        on = clone.load()
        assert (on.withheld, on.config) == ([], clone.load(withhold=False).config), name
        os.remove(trust.record_file(on, clone.environ))


def test_changed_content_asks_again(clone: Clone) -> None:
    module, package = clone.folder / "lib" / "mine.py", clone.folder / "src" / "pack" / "inner"
    package.mkdir(parents=True)
    module.parent.mkdir()
    module.write_text("a = 1")
    (module.parent / "beside.py").write_text("b = 1")
    (package / "code.py").write_text("c = 1")
    (clone.folder / "server.js").write_text("1")
    config: dict[str, Any] = {
        "middleware": ["mine:make", "pack.inner:make"],
        "mcpServers": {"a": A},
        "exposure": "direct",
    }
    clone.write(**config)
    clone.allow()
    assert clone.load().withheld == []
    changes = {
        module: ["middleware"],
        module.parent / "beside.py": ["middleware"],
        package / "code.py": ["middleware"],
        clone.folder / "server.js": ["suites.a.exposure"],
        clone.folder / "unrelated.py": [],
    }
    for path, keys in changes.items():
        path.write_text("changed")
        workspace = clone.load()
        assert workspace.withheld == keys, path
        assert all("has changed" in warning.message for warning in workspace.warnings), path
        clone.allow()
    for change, keys in (
        ({"middleware": [{"use": "mine:make", "options": {"x": 1}}]}, ["middleware"]),
        ({"mcpServers": {"a": {"command": "b"}}}, ["suites.a.exposure"]),
        ({"mcpServers": {"a": {**A, "env": {"NODE_OPTIONS": "-r x"}}}}, ["suites.a.exposure"]),
        ({"mcpServers": {"a": A, "b": A}}, ["suites.b.exposure"]),
        ({"introspection": {"budgetTokens": 500}}, []),
    ):
        clone.write(**config | change)
        assert clone.load().withheld == keys, change


def test_the_answer_is_outside_of_the_workspace_and_of_this_user_and_this_folder_alone(clone: Clone) -> None:
    clone.write(middleware=["m:f"])
    clone.allow()
    path = Path(trust.record_file(clone.load(), clone.environ))
    assert path.is_relative_to(clone.home)
    assert path.stat().st_mode & 0o077 == 0
    copied = clone.folder.parent / "copy"
    copied.mkdir()
    (copied / "switchboard.config.json").write_text(json.dumps({"middleware": ["m:f"]}))
    assert load_workspace(str(copied), None, clone.environ).withheld == ["middleware"]
    assert load_workspace(str(clone.folder), None, {}).withheld == ["middleware"]
    other = {"HOME": str(clone.home), "XDG_STATE_HOME": str(clone.folder)}
    assert load_workspace(str(clone.folder), None, other).withheld == ["middleware"]
    path.chmod(0o666)
    assert clone.load().withheld == ["middleware"]


def test_the_users_own_workspace_and_a_governed_one_need_no_yes(clone: Clone) -> None:
    user = clone.home / ".config" / "switchboard"
    user.mkdir(parents=True)
    (user / "switchboard.config.json").write_text(
        json.dumps({"middleware": ["m:f"], "mcpServers": {"mine": A}})
    )
    assert load_workspace(str(user), None, clone.environ).config.middleware == ["m:f"]
    clone.write(mcpServers={"ours": A}, middleware=["evil:f"])
    workspace = clone.load(include_user=True)
    assert workspace.withheld == ["middleware"]
    assert workspace.config.suites["mine"].middleware == ["m:f"]
    clone.write(governance={"mode": "governed"}, middleware=["m"])
    assert (clone.load().withheld, clone.load().config.middleware) == ([], ["m"])


def test_no_entry_of_a_project_takes_a_name_of_the_users(clone: Clone) -> None:
    user = clone.home / ".config" / "switchboard"
    user.mkdir(parents=True)
    (user / "switchboard.config.json").write_text(
        json.dumps(
            {"mcpServers": {"mine": A, "off": {**A, "disabled": True}}, "suites": {"mine": {"split": True}}}
        )
    )
    evil = {"command": "/bin/sh"}
    for more in ({}, {"includeUser": False}):
        clone.write(
            mcpServers=dict.fromkeys(("mine", "off", "thief", "mine_read", "fine"), evil),
            suites={"thief": {"suiteName": "mine_suite"}},
            **more,
        )
        workspace = clone.load(include_user=True)
        commands = {spec.name: spec.command for spec in workspace.children}
        own = {"mine": "a"} if not more else {}
        assert commands == {**own, "thief": "/bin/sh", "mine_read": "/bin/sh", "fine": "/bin/sh"}
        names = {
            name: suite.suite_name for name, suite in workspace.config.suites.items() if suite.suite_name
        }
        assert names.keys() == {"thief", "mine_read"}
        assert not {"mine_suite", "mine_read_suite"}.intersection(names.values())
        said = " ".join(map(str, workspace.warnings))
        assert all(f"'{name}'" in said for name in ("mine", "off", "thief", "mine_read")), said
    clone.write(mcpServers={"mine": {"disabled": True}})
    assert [spec.name for spec in clone.load(include_user=True).children] == []
    project = clone.load()
    assert keep_names(project, project) is not None


def test_a_governed_workspace_holds_for_all_folders_in_it(tmp_path: Path) -> None:
    forms = {
        "switchboard.config.json": '{"governance": {"mode": "governed"}}',
        "switchboard.config.toml": '[governance]\nmode = "governed"\n',
    }
    for number, (name, text) in enumerate(forms.items()):
        top = tmp_path / str(number)
        inner = top / "src" / "deep"
        (inner / "mcps").mkdir(parents=True)
        (top / "src" / ".git").mkdir()
        (top / "src" / "switchboard.config.json").write_text("{}")
        assert nearest_workspace(str(inner)) == str(inner)
        (top / name).write_text(text)
        for folder in (inner, top / "src", top):
            assert nearest_workspace(str(folder)) == str(top), (name, folder)
        assert nearest_workspace(str(inner), str(top)) == str(inner)
        (top / name).write_text(text.replace("governed", "open"))
        assert nearest_workspace(str(inner)) == str(inner)
