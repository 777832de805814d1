"""Settings of suites in the config file of the workspace that they belong to."""

from __future__ import annotations

import json
from pathlib import Path

from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.setup.suite_settings import owner_of, write_suites


def test_the_settings_of_a_child_of_the_user_are_written_to_the_user_workspace(tmp_path: Path) -> None:
    user, project = tmp_path / "config" / "switchboard", tmp_path / "project"
    for folder, name in ((user, "mine"), (project, "ours")):
        child = folder / ".switchboard" / "mcps" / name
        child.mkdir(parents=True)
        (child / ".mcp.json").write_text(json.dumps({"name": name, "command": {"cmd": "cat"}}))
        folder.chmod(0o700)
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    workspace = load_workspace(str(project), None, environ, include_user=True)
    owners = {spec.name: owner_of(spec, workspace).folder for spec in workspace.children}
    assert owners == {"mine": str(user), "ours": str(project)}
    for spec in workspace.children:
        write_suites(owner_of(spec, workspace), {spec.name: {"sandbox": {"preset": "strict"}}})
    again = load_workspace(str(project), None, environ, include_user=True)
    assert again.warnings == []
    assert {name for name, suite in again.config.suites.items() if suite.sandbox} == {"mine", "ours"}
