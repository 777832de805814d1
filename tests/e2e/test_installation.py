"""What an error prints about a missing extra works as it stands: run in real installations of every kind."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.workspaces import REPO
from tests.patience import PATIENCE_S

UV = str(Path(sys.executable).with_name("uv"))


def run(*command: str, env: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=10 * PATIENCE_S, check=False
    )
    if done.returncode and any(word in done.stderr for word in ("connect", "network", "resolve", "offline")):
        pytest.skip(f"no packages here: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A home of its own for pipx and uv, with uv on the path."""
    home = tmp_path / "home"
    home.mkdir()
    path = os.pathsep.join((str(home / ".local" / "bin"), str(Path(UV).parent), os.environ["PATH"]))
    programs = str(home / ".local" / "bin")
    pipx = {"PIPX_HOME": str(home / "pipx"), "PIPX_BIN_DIR": programs}
    uv = {"UV_TOOL_DIR": str(home / "tools"), "UV_TOOL_BIN_DIR": programs}
    return {**os.environ, "HOME": str(home), "PATH": path, **pipx, **uv}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("dist")
    options = ("--no-build-isolation", "--offline", "--python", sys.executable, "--wheel")
    run(UV, "build", *options, "--out-dir", str(folder), str(REPO), env=os.environ)
    (found,) = folder.glob("*.whl")
    return str(found)


SOAK = pytest.mark.soak("servers")


@pytest.mark.parametrize(
    "kind",
    ["venv without pip", *(pytest.param(kind, marks=SOAK) for kind in ("venv", "uv tool", "pipx"))],
)
def test_the_printed_command_adds_the_extra(
    kind: str, wheel: str, env: dict[str, str], tmp_path: Path
) -> None:
    place = tmp_path / "place"
    if kind == "venv":
        run(sys.executable, "-m", "venv", str(place), env=env)
        run(str(place / "bin" / "pip"), "install", "--quiet", wheel, env=env)
    elif kind == "venv without pip":
        run(UV, "venv", "--quiet", "--python", sys.executable, str(place), env=env)
        run(UV, "pip", "install", "--quiet", "--python", str(place), wheel, env=env)
    elif kind == "uv tool":
        run(UV, "tool", "install", "--quiet", "--python", sys.executable, f"{wheel}[fast]", env=env)
    else:
        pipx = shutil.which("pipx")
        if pipx is None:
            pytest.skip("pipx is not installed")
        run(pipx, "install", "--python", sys.executable, wheel, env=env)
    folder = place / "bin" if "venv" in kind else tmp_path / "home" / ".local" / "bin"
    program = shutil.which("switchboard", path=str(folder))
    assert program is not None
    command = [program, "serve", "--http", "nowhere"]
    before = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "not installed" in before.stderr
    printed = before.stderr.partition("Install it: ")[2].splitlines()[0]
    run(*shlex.split(printed), env=env)
    after = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "not installed" not in after.stderr
    assert "nowhere" in after.stderr
    if kind == "uv tool":  # what was there before is there still
        python = str(Path(program).resolve().with_name("python"))
        run(python, "-c", "import uvloop", env=env)
