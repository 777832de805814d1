"""The secrets file fills variables of the entries that name them, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.config.files.secrets_file import (
    SECRETS_FILE,
    append_secrets,
    parse_secrets,
    read_secrets,
)
from switchboard_mcp.config.load import load_workspace
from switchboard_mcp.config.models import ChildSpec, ConfigWarning
from switchboard_mcp.config.variables import expand, missing_variables, secret_values
from tests.cases import each_case

NAMES = st.from_regex(r"[A-Z][A-Z_]{0,8}", fullmatch=True)


@given(st.dictionaries(NAMES, st.text(min_size=1), max_size=4))
def test_a_written_file_is_read_back(values: dict[str, str]) -> None:
    values = {
        name: value.replace("\r", "").encode("utf-8", "replace").decode() for name, value in values.items()
    }
    data = append_secrets(b"", values)
    assert parse_secrets(data) == values
    assert append_secrets(data, values) == data


@each_case(
    ("text", "expected"),
    [
        ("A='x y'\n", {"A": "x y"}),
        ('A="x y"\n', {"A": "x y"}),
        ("A=x\n", {"A": "x"}),
        ("export A=x\r\nB='y'\r\n", {"A": "x", "B": "y"}),
        ("# A='x'\n\n  B=y\nC=\n", {"C": ""}),
        ("A='it'\\''s'\n", {"A": "it's"}),
        ("KEY='-----BEGIN\nabc\n-----END'\nB=1", {"KEY": "-----BEGIN\nabc\n-----END", "B": "1"}),
        ("A='open\nB=1\n", {"B": "1"}),
        ("no variable\nA-B=x\n", {}),
    ],
)
def test_lines_as_a_shell_writes_them_are_understood(text: str, expected: dict[str, str]) -> None:
    assert parse_secrets(text.encode()) == expected


def workspace(folder: Path, secrets: str, **env: str) -> Path:
    (folder / ".switchboard").mkdir(mode=0o700)
    path = folder / SECRETS_FILE
    path.write_text(secrets)
    path.chmod(0o600)
    servers = {"one": {"command": "c", "env": env}, "two": {"command": "d"}}
    (folder / "switchboard.config.json").write_text(json.dumps({"mcpServers": servers}))
    return path


def load(folder: Path, environ: dict[str, str]) -> tuple[dict[str, ChildSpec], list[ConfigWarning]]:
    loaded = load_workspace(str(folder), None, environ)
    return {spec.name: spec for spec in loaded.children}, loaded.warnings


def test_a_child_gets_the_variables_that_its_entry_names_and_no_others(tmp_path: Path) -> None:
    workspace(tmp_path, "TOKEN='s3cret-value-1'\nOTHER='s3cret-value-2'\n", KEY="${TOKEN}")
    specs, warnings = load(tmp_path, {})
    assert warnings == []
    assert dict(specs["one"].stored) == {"TOKEN": "s3cret-value-1"}
    assert dict(specs["two"].stored) == {}
    filled = expand(specs["one"], {})
    assert isinstance(filled, ChildSpec)
    assert filled.env == {"KEY": "s3cret-value-1"}
    assert missing_variables(specs["one"], {}) == []
    assert secret_values(specs["one"], {}) == ["s3cret-value-1"]
    assert "s3cret" not in repr(specs["one"])
    assert "TOKEN" not in os.environ


def test_the_environment_comes_first(tmp_path: Path) -> None:
    workspace(tmp_path, "TOKEN='from-the-file'\n", KEY="${TOKEN}")
    specs, _ = load(tmp_path, {"TOKEN": "from-the-environment"})
    filled = expand(specs["one"], {"TOKEN": "from-the-environment"})
    assert isinstance(filled, ChildSpec)
    assert filled.env == {"KEY": "from-the-environment"}


def test_a_variable_that_is_nowhere_is_named_with_both_places(tmp_path: Path) -> None:
    workspace(tmp_path, "OTHER='x'\n", KEY="${TOKEN}")
    _, warnings = load(tmp_path, {})
    assert [warning.key for warning in warnings] == ["mcpServers.one.env.KEY"]
    assert "TOKEN" in warnings[0].message
    assert "secrets.env" in warnings[0].message


@each_case("mode", [0o640, 0o604, 0o620, 0o602, 0o666])
def test_a_file_that_others_can_read_or_write_is_ignored_with_a_warning(tmp_path: Path, mode: int) -> None:
    path = workspace(tmp_path, "TOKEN='x'\n", KEY="${TOKEN}")
    path.chmod(mode)
    specs, warnings = load(tmp_path, {})
    assert dict(specs["one"].stored) == {}
    assert any(f"chmod 600 {path}" in warning.message for warning in warnings)


@each_case("kind", ["link", "folder", "fifo", "large"])
def test_a_special_file_is_ignored_with_a_warning(tmp_path: Path, kind: str) -> None:
    path = workspace(tmp_path, "TOKEN='x'\n")
    other = tmp_path / "other"
    path.rename(other)
    if kind == "link":
        path.symlink_to(other)
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path, 0o600)
    else:
        path.write_bytes(b"A='" + b"x" * 2_000_000 + b"'\n")
        path.chmod(0o600)
    warnings: list[ConfigWarning] = []
    assert read_secrets(str(tmp_path), warnings) == {}
    assert [warning.source for warning in warnings] == [str(path)]
