"""A feature that is on and whose extra is missing: it is off, and said with the command; the rest works."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchboard_mcp.config import extras
from switchboard_mcp.config.load import load_workspace


def test_a_missing_extra_costs_its_feature_alone_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda package: False)
    sections = {section: {setting: True} for section, setting, _, _ in extras.NEEDED}
    text = (
        str({**sections, "mcpServers": {"kid": {"command": "true"}}})
        .replace("'", '"')
        .replace("True", "true")
    )
    (tmp_path / "switchboard.config.json").write_text(text)
    workspace = load_workspace(str(tmp_path), None, {})
    assert [spec.name for spec in workspace.children] == ["kid"]
    for section, setting, _, extra in extras.NEEDED:
        (warning,) = [warning for warning in workspace.warnings if warning.key == f"{section}.{setting}"]
        assert extra in str(warning)
        assert f"[{extra}]" in warning.remedy or f"{extra}]" in warning.remedy
        assert not getattr(getattr(workspace.config, section), setting)
        assert getattr(getattr(workspace.written_config, section), setting)  # what is approved
