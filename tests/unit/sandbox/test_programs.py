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
    _, read = find(tmp_path, "sh", str(script))
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


def environment(folder: Path, home: Path) -> Path:
    """A virtual environment; returns its packages."""
    make(folder / "pyvenv.cfg", f"home = {home}\n", 0o644)
    make(folder / "bin" / "server", f"#!{folder}/bin/python\n")
    packages = folder / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    return packages


def test_a_virtual_environment_needs_its_python(tmp_path: Path) -> None:
    base, env = tmp_path / "base", tmp_path / "env"
    python = make(base / "bin" / "python3")
    make(base / "lib" / "python3.11" / "os.py")
    environment(env, base / "bin")
    (env / "bin" / "python").symlink_to(python)
    _, read = find(tmp_path, str(env / "bin" / "server"))
    assert {str(env), os.path.realpath(base)} <= set(read)


def test_the_content_of_a_package_opens_no_folder(tmp_path: Path) -> None:
    """Whatever files a package has, a child reads its package, its environment and interpreters only."""
    secret = tmp_path / "secret"
    make(secret / "id_rsa", "x", 0o644)
    make(secret / "tool", "x")
    make(secret / "lib" / "node_modules" / "x", "")
    make(secret / "bin" / "server", "x")
    packages = environment(tmp_path / "env", secret / "bin")
    make(packages / "x.pth", f"{secret}\n{tmp_path}\n", 0o644)
    make(packages / "x.egg-link", f"{secret}\n.", 0o644)
    modules = tmp_path / "installed" / "node_modules"
    fake = modules / "pkg"
    make(environment(fake, secret / "bin") / "a.pth", f"{secret}\n", 0o644)
    make(fake / "package.json", "{}")
    cases = {
        "pth": tmp_path / "env" / "bin" / "server",
        "pyvenv.cfg of a package": fake / "bin" / "server",
    }
    for number, first_line in enumerate(
        (
            f"#!{secret}/id_rsa",
            f"#!{secret}/bin/server",
            f"#!/usr/bin/env {secret}/tool",
            f"#!/usr/bin/env -u {secret}/tool sh",
            f"#!{secret}/../secret/bin/server x",
        )
    ):
        cases[first_line] = make(fake / "bin" / f"cli{number}", f"{first_line}\n")
    link = tmp_path / "installed" / "bin" / "linked"
    link.parent.mkdir()
    link.symlink_to(secret / "bin" / "server")
    cases["a link out of the folder"] = link
    opened = {}
    for name, program in cases.items():
        found = find_program([str(program)], {"PATH": "/usr/bin:/bin"}, "/", str(tmp_path / "installed"))
        opened[name] = [
            path for path in found.read if str(secret).startswith(path) or path.startswith(str(secret))
        ]
    assert {name: paths for name, paths in opened.items() if paths} == {}


def test_sources_of_editable_installs_are_found_for_a_person_to_allow(tmp_path: Path) -> None:
    source = tmp_path / "my source"
    source.mkdir()
    packages = environment(tmp_path / "env", Path("/usr/bin"))
    url = source.as_uri()
    for name, origin in {
        "mine": f'{{"url": "{url}", "dir_info": {{"editable": true}}}}',
        "copied": f'{{"url": "{url}", "dir_info": {{}}}}',
        "far": '{"url": "https://x.test/a", "dir_info": {"editable": true}}',
        "broken": "{",
    }.items():
        make(packages / f"{name}-1.0.dist-info" / "direct_url.json", origin, 0o644)
    found = find_program([str(tmp_path / "env" / "bin" / "server")], {}, "/")
    (tmp_path / "env" / "bin" / "python").symlink_to("/usr/bin/env")
    assert str(source) not in found.read
    found = find_program([str(tmp_path / "env" / "bin" / "python")], {}, "/")
    assert found.editable == {"mine": str(source)}


def test_files_that_arguments_name_open_nothing_but_the_script_that_runs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make(home / ".ssh" / "config")
    make(home / "dev" / "package.json")
    settings = make(home / "dev" / "a" / "b" / "settings.ini")
    script = make(tmp_path / "app" / "dist" / "index.js")
    make(tmp_path / "app" / "package.json")
    for interpreter in ("node", "python3", "sh", "perl", "bun"):
        make(tmp_path / "tools" / interpreter)
    ssh = str(home / ".ssh" / "config")
    further = ["--ssh-config", ssh, "--settings", str(settings), f"--x={ssh}", ssh]
    app = str(tmp_path / "app")
    loose = str(make(home / "dev" / "a" / "server.py"))
    cases: dict[tuple[str, ...], list[str]] = {
        ("true", *further): [],
        ("python3", "-I", "-m", "json.tool", *further): [],
        ("python3", "-I", "-c", "pass", *further): [],
        ("node", "--env-file", ssh, str(script), *further): [app],
        ("env", "A=1", "node", str(script), *further): [app],
        ("bun", "run", str(script), *further): [app],
        ("python3", "-X", "dev", loose, *further): [str(home / "dev" / "a")],
    }
    opened = {}
    for argv in cases:
        found = find_program(list(argv), {"PATH": f"{tmp_path}/tools:/usr/bin:/bin"}, "/")
        opened[argv] = [
            path for path in found.read if not is_system(path) and not path.startswith(f"{tmp_path}/tools")
        ]
    assert opened == cases


def test_a_shim_needs_its_version_manager(tmp_path: Path) -> None:
    shim = make(tmp_path / ".pyenv" / "shims" / "python3", "#!/usr/bin/env sh\n")
    _, read = find(tmp_path, str(shim))
    assert str(tmp_path / ".pyenv") in read


def test_a_script_in_the_home_folder_does_not_open_it(tmp_path: Path) -> None:
    home = Path(os.path.realpath(os.path.expanduser("~")))
    for folder in (home, home.parent, Path("/")):
        assert package_folder(str(folder / "server.py")) == str(folder / "server.py")
