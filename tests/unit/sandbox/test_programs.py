"""The files that a command line needs, beyond those of the system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from switchboard_mcp.sandbox import programs
from switchboard_mcp.sandbox.programs import find_program, is_system, package_folder, which


def make(path: Path, text: str = "", mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def find(tmp_path: Path, *argv: str, path: str = "/usr/bin:/bin") -> tuple[list[str], list[str]]:
    found = find_program(list(argv), {"PATH": path}, str(tmp_path))
    return found.executables, [one for one in found.read if not is_system(one)]


def test_a_system_program_needs_nothing_more(tmp_path: Path) -> None:
    executables, read = find(tmp_path, "true")
    assert executables
    assert read == []


def test_a_program_in_bin_does_not_open_the_root_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_is_installation", lambda prefix: True)  # as with /lib/node_modules
    script = make(tmp_path / "server", "#!/bin/sh\n")
    for argv in (["/bin/sh"], [str(script)]):
        assert "/" not in find_program(argv, {}, str(tmp_path)).read


def test_a_program_in_bin_of_the_home_folder_does_not_open_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(os.path.realpath(tmp_path))
    monkeypatch.setenv("HOME", str(home))
    program = make(home / "bin" / "server")
    (home / "lib" / "node_modules").mkdir(parents=True)
    assert str(home) not in find_program([str(program)], {}, "/").read


def test_a_missing_program_needs_nothing(tmp_path: Path) -> None:
    assert find(tmp_path, "no-such-program") == ([], [])
    assert which("./no", "", str(tmp_path)) == ""


def test_a_script_as_argument_needs_its_package(tmp_path: Path) -> None:
    make(tmp_path / "server" / "package.json", "{}")
    script = make(tmp_path / "server" / "dist" / "index.js")
    _, read = find(tmp_path, "true", str(script))
    assert read == [os.path.realpath(tmp_path / "server")]


def test_a_program_that_npm_installed_needs_all_packages_beside_it(tmp_path: Path) -> None:
    script = make(tmp_path / "node_modules" / "@a" / "b" / "index.js", "#!/usr/bin/env sh\n")
    link = tmp_path / "node_modules" / ".bin" / "b"
    link.parent.mkdir()
    link.symlink_to(script)
    executables, read = find(tmp_path, str(link))
    assert executables[0] == str(link)
    assert any(os.path.basename(path) == "sh" for path in executables)
    assert os.path.realpath(tmp_path / "node_modules") in read


def test_a_virtual_environment_needs_its_python_and_editable_sources(tmp_path: Path) -> None:
    base, env = tmp_path / "base", tmp_path / "env"
    python = make(base / "bin" / "python3")
    (env / "bin").mkdir(parents=True)
    (env / "bin" / "python").symlink_to(python)
    make(env / "pyvenv.cfg", f"home = {base / 'bin'}\n", 0o644)
    source = tmp_path / "source"
    source.mkdir()
    make(env / "lib" / "python3.11" / "site-packages" / "_x.pth", f"{source}\nimport sys\n", 0o644)
    _, read = find(tmp_path, str(env / "bin" / "python"))
    assert {str(env), os.path.realpath(base), str(source)} <= set(read)


def test_a_shim_needs_its_version_manager(tmp_path: Path) -> None:
    shim = make(tmp_path / ".pyenv" / "shims" / "python3", "#!/usr/bin/env sh\n")
    _, read = find(tmp_path, str(shim))
    assert str(tmp_path / ".pyenv") in read


def test_a_script_in_the_home_folder_does_not_open_it(tmp_path: Path) -> None:
    home = Path(os.path.realpath(os.path.expanduser("~")))
    assert package_folder(str(home / "server.py")) == str(home / "server.py")
