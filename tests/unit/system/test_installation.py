"""The command that adds an extra fits the installation."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import pytest

from switchboard_mcp.system import installation
from switchboard_mcp.system.installation import DISTRIBUTION, Installation, Kind, current_installation
from tests.cases import each_case

PYTHON = "/opt/my env/bin/python"
NAME = "switchboard-gateway"


@each_case(
    ("kind", "more", "command"),
    [
        ("venv", {}, f"'{PYTHON}' -m pip install '{NAME}[http]'"),
        ("venv", {"has_pip": False}, f"uv pip install --python '{PYTHON}' '{NAME}[http]'"),
        ("venv", {"source": "/src/it"}, f"'{PYTHON}' -m pip install '/src/it[http]'"),
        ("venv", {"source": "git+https://h/x@abc"}, f"'{PYTHON}' -m pip install '{NAME}[http] @ git+https://h/x@abc'"),
        ("pipx", {}, f"pipx inject {NAME} '{NAME}[http]'"),
        ("pipx", {"source": "/src/it"}, f"pipx inject {NAME} '/src/it[http]'"),
        ("uv tool", {}, f"uv tool install '{NAME}[http]'"),
        ("uv tool", {"extras": ("fast", "http")}, f"uv tool install '{NAME}[fast,http]'"),
        ("uv tool", {"extras": ("fast",), "source": "/src/it"}, "uv tool install '/src/it[fast,http]'"),
        ("system", {}, f"'{PYTHON}' -m pip install '{NAME}[http]'"),
        ("managed system", {}, f"pipx install '{NAME}[http]'"),
        ("image", {}, f"RUN '{PYTHON}' -m pip install '{NAME}[http]'"),
    ],
)  # fmt: skip
def test_each_kind_of_installation_has_its_command(kind: Kind, more: dict[str, object], command: str) -> None:
    assert Installation(kind=kind, python=PYTHON, **more).command("http") == command  # type: ignore[arg-type]


def test_without_an_extra_the_command_repairs_the_installation() -> None:
    assert Installation(kind="venv", python="/p").command("") == f"/p -m pip install {NAME}"


def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str = "", text: str = "{}") -> Kind:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    if name:
        (tmp_path / name).write_text(text)
    return current_installation().kind


def test_the_kind_is_known_by_what_the_installer_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prefix(tmp_path, monkeypatch) == "venv"
    receipt = f'[tool]\nrequirements = [{{ name = "{DISTRIBUTION}", extras = ["fast"] }}]\n'
    assert prefix(tmp_path, monkeypatch, "uv-receipt.toml", receipt) == "uv tool"
    assert current_installation().extras == ("fast",)
    assert prefix(tmp_path, monkeypatch, "pipx_metadata.json") == "pipx"
    monkeypatch.setattr(installation, "IMAGE_PREFIX", str(tmp_path))
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/.dockerenv")
    assert current_installation().kind == "image"


def test_a_python_that_the_system_manages_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert current_installation().kind == "system"
    (tmp_path / "EXTERNALLY-MANAGED").touch()
    assert current_installation().kind == "managed system"


def test_no_message_names_an_installer_that_may_not_fit(repo: Path) -> None:
    sources = [path for path in (repo / "src").rglob("*.py") if path.name != "installation.py"]
    assert [path for path in sources if "pip install" in path.read_text()] == []
