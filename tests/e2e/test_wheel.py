"""What is published: a wheel and a source archive that install into an empty environment and serve from there."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from switchboard_mcp import __version__
from tests.cases import each_case
from tests.e2e.host import Host
from tests.e2e.test_remote_children import child as web_child
from tests.e2e.workspaces import MOCK_CHILD, REPO, add_child
from tests.patience import PATIENCE_S

UV = str(Path(sys.executable).with_name("uv"))
# More than that, and something has slipped in that nobody who installs it needs.
MOST_WHEEL_BYTES = 2_000_000


def run(*command: str, cwd: Path = REPO) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both, the wheel made from the source archive: what is missing there is missing in both."""
    folder = tmp_path_factory.mktemp("dist")
    options = ("--no-build-isolation", "--offline", "--python", sys.executable)
    run(UV, "build", *options, "--out-dir", str(folder))
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that had nothing in it, not even pip."""
    venv = tmp_path_factory.mktemp("empty") / "venv"
    run(UV, "venv", "--quiet", "--python", sys.executable, str(venv))
    install = [UV, "pip", "install", "--python", str(venv), "-c", str(REPO / "requirements" / "core.lock")]
    if subprocess.run([*install, "--offline", str(wheel)], capture_output=True, check=False).returncode:
        run(*install, str(wheel))
    return venv


def names_in(venv: Path) -> list[str]:
    (site,) = venv.glob("lib/python*/site-packages")
    return sorted(path.name.partition("-")[0] for path in site.glob("*.dist-info"))


def test_the_wheel_is_small_and_brings_few_dependencies(wheel: Path, installed: Path) -> None:
    size, names = wheel.stat().st_size, names_in(installed)
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
        unpacked = sum(entry.file_size for entry in archive.infolist())
    others = [name for name in names if name != "switchboard_gateway"]
    print(
        f"\n{wheel.name}: {size:,} bytes, {unpacked:,} unpacked, {len(files)} files; "
        f"{len(others)} dependencies: {', '.join(others)}"
    )
    clients = {"anyio", "h11", "httpcore2", "httpx2", "idna", "truststore", "typing_extensions", "websockets"}
    assert set(names) - clients == {"jmespath", "msgspec", "pyyaml", "switchboard_gateway"}
    assert size < MOST_WHEEL_BYTES
    assert not [name for name in files if name.endswith(".pyc") or name.startswith("tests")]
    assert "switchboard_mcp/py.typed" in files


def test_every_schema_is_in_the_wheel_and_can_be_printed(
    wheel: Path, installed: Path, workspace: Path
) -> None:
    program = str(installed / "bin" / "switchboard")
    names = json.loads(run(program, "schema", "--json", cwd=workspace))
    sources = {path.name: path for path in (REPO / "src" / "switchboard_mcp" / "schemas").iterdir()}
    with zipfile.ZipFile(wheel) as archive:
        assert {f"switchboard_mcp/schemas/{name}" for name in sources} <= set(archive.namelist())
    assert {f"switchboard.{name}.schema.json" for name in names} == set(sources)
    for name in names:
        assert (
            run(program, "schema", name, cwd=workspace)
            == sources[f"switchboard.{name}.schema.json"].read_text()
        )


def test_what_is_installed_serves_a_child(installed: Path, workspace: Path) -> None:
    program = str(installed / "bin" / "switchboard")
    assert run(program, "--version", cwd=workspace) == f"switchboard {__version__}\n"
    add_child(workspace, "mock", MOCK_CHILD)
    with Host([program], cwd=workspace) as host:
        host.initialize()
        assert host.tool_names() == ["mock_suite"]
        assert host.call("mock_suite", "echo", message="from a wheel")["content"][0]["text"] == "from a wheel"
    assert "mock_suite" in run(program, "list", cwd=workspace)


@each_case("transport", ["streamable", "sse"])
def test_remote_servers_work_without_an_extra(installed: Path, workspace: Path, transport: str) -> None:
    with web_child("shop.py", transport) as url:
        kind = {"sse": "sse"}.get(transport, "http")
        servers = {"far": {"type": kind, "url": url}}
        (workspace / "switchboard.config.json").write_text(json.dumps({"mcpServers": servers}))
        program = str(installed / "bin" / "switchboard")
        assert "3" in run(program, "call", "far", "add", "a=1", "b=2", cwd=workspace)


def test_what_needs_an_extra_says_which(installed: Path, workspace: Path) -> None:
    program = str(installed / "bin" / "switchboard")
    command = [program, "serve", "--http", "0"]
    done = subprocess.run(
        command, cwd=workspace, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 2
    assert "[http]" in done.stderr


def test_the_source_archive_has_what_a_build_needs_and_no_tests(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/switchboard_mcp/__init__.py"} <= names
    assert not [name for name in names if name.startswith(("tests", ".venv", "bench"))]
