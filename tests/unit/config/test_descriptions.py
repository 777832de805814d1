"""Texts about children in the `mcp-descriptions.json` of a workspace."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from switchboard_mcp.config.files.descriptions import ChildDescription, read_descriptions
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import ConfigWarning
from tests.cases import each_case

SOURCES = ("switchboardDescription", "suites", "file", "description")


@each_case("present", [each for size in range(5) for each in itertools.combinations(SOURCES, size)], ids=str)
def test_the_first_source_that_has_a_text_describes_the_suite(
    tmp_path: Path, present: tuple[str, ...]
) -> None:
    entry = {"command": "x", **{key: f"from {key}" for key in present if key in (SOURCES[0], SOURCES[3])}}
    suites = {"suites": {"kid": {"description": "from suites"}}} if "suites" in present else {}
    (tmp_path / "switchboard.config.json").write_text(json.dumps({"mcpServers": {"kid": entry}} | suites))
    if "file" in present:
        own = {"mcps": {"kid": {"switchboard": "from file"}, "other": {"switchboard": "from another"}}}
        (tmp_path / "mcp-descriptions.json").write_text(json.dumps(own))
    workspace = load_workspace(str(tmp_path), None, {})
    (spec,) = workspace.children
    suite = workspace.config.suites.get("kid")
    described = spec.switchboard_description or (suite.description if suite else "") or spec.description
    assert described == (f"from {present[0]}" if present else "")
    assert workspace.warnings == []
    assert "other" not in workspace.config.suites


def test_an_entry_of_the_bundled_library_can_be_copied(tmp_path: Path) -> None:
    entry = {"packages": ["x"], "urls": [], "switchboard": "S", "claude": "C"}
    (tmp_path / "mcp-descriptions.json").write_text(json.dumps({"$schema": "x", "mcps": {"a": entry}}))
    warnings: list[ConfigWarning] = []
    assert read_descriptions(str(tmp_path), warnings) == {"a": ChildDescription("S", "C")}
    assert warnings == []


@each_case(
    ("text", "key"),
    [
        ("{", ""),
        ("[]", "mcps"),
        ("{}", "mcps"),
        ('{"mcps": []}', "mcps"),
        ('{"mcps": {"bad": 1, "good": {"switchboard": "S"}}}', "mcps.bad"),
        ('{"mcps": {"bad": {"switchboard": 1}, "good": {"switchboard": "S"}}}', "mcps.bad.switchboard"),
        ('{"mcps": {"bad": {"claude": ["x"]}, "good": {"switchboard": "S"}}}', "mcps.bad.claude"),
    ],
)
def test_a_wrong_entry_is_named_and_the_others_count(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "mcp-descriptions.json"
    path.write_text(text)
    (tmp_path / "switchboard.config.json").write_text('{"mcpServers": {"good": {"command": "x"}}}')
    workspace = load_workspace(str(tmp_path), None, {})
    (warning,) = workspace.warnings
    assert (warning.source, warning.key) == (str(path), key)
    assert "is ignored." in warning.message
    if "good" in text:
        assert workspace.config.suites["good"].description == "S"
