"""Fixtures for all tests: a workspace and caches of its own, the real servers, no process left behind.

`scripts/setup dev servers npm` brings the real servers. A test that needs one fails without it, since a
skipped promise is a broken one.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.brokers import stop_idle_brokers
from tests.databases import Targets
from tests.postgresserver import PostgresServer

pytest_plugins = ["tests.durations", "tests.process_watch", "tests.soak"]

if TYPE_CHECKING:
    from tests.process_watch import ProcessGuard

REPO = Path(__file__).resolve().parent.parent
# Deadlines are wall time, and a busy machine would fail them; a failure on CI must come back on the next run.
hypothesis.settings.register_profile(
    "switchboard", deadline=None, derandomize="CI" in os.environ, max_examples=50
)
hypothesis.settings.load_profile("switchboard")


# A shell starts background jobs (`make test &`) with SIGINT ignored, and every process started here would inherit that:
# those that are to end at Ctrl-C would not. With a handler of our own, children get the default action.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def published_schema(name: str) -> Any:
    """A schema of the package; `make check` holds it to what the models are."""
    return json.loads(
        (REPO / "src/switchboard_mcp/schemas" / f"switchboard.{name}.schema.json").read_text(encoding="utf-8")
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(REPO / "tests" / "e2e"):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of the repository."""
    return REPO


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty folder to be a user's workspace."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders by number. `mktemp` would list all folders of earlier tests for each, which are thousands."""
    base = tmp_path_factory.mktemp("xdg", numbered=False)
    return (base / str(number) for number in itertools.count())


@pytest.fixture(scope="session", autouse=True)
def isolated_runtime() -> Iterator[Path]:
    """A runtime folder of this run: its sessions never join a broker of the user, and it leaves none behind."""
    folder = Path(tempfile.mkdtemp(prefix="sb-tests-"))
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    yield folder
    left = stop_idle_brokers(folder)
    shutil.rmtree(folder, ignore_errors=True)
    if left:
        pytest.fail(f"brokers with sessions were left behind: {left}", pytrace=False)


@pytest.fixture(autouse=True)
def isolated_cache(homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Caches, state and settings of this test alone, for this process and all it starts."""
    home = next(homes)
    home.mkdir()
    for name in ("CACHE", "CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    return home / "cache"


@pytest.fixture(scope="session")
def postgres_server(process_guard: ProcessGuard) -> Iterator[PostgresServer]:
    """A real PostgreSQL for all tests of this worker; each uses a schema of its own."""
    with process_guard.allowed():
        server = PostgresServer()
        server.start()
    yield server
    with process_guard.allowed():
        server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def targets(request: pytest.FixtureRequest, tmp_path: Path) -> Targets:
    """Makes names of empty databases, on each engine."""
    if request.param == "sqlite":
        return lambda: str(tmp_path / f"{uuid.uuid4().hex[:12]}.db")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return lambda: server.url(f"test_{uuid.uuid4().hex[:12]}")


@pytest.fixture
def database_target(targets: Targets) -> str:
    """Where to open an empty database, on each engine."""
    return targets()


@pytest.fixture(scope="session")
def npm_bin() -> Callable[[str], str]:
    """The path of an installed npm program, e.g. `npm_bin("mcp-server-everything")`."""
    return lambda name: _program(REPO / "tests" / "npm" / "node_modules" / ".bin", name, "npm")


@pytest.fixture(scope="session")
def server_bin() -> Callable[[str], str]:
    """The path of an installed Python server, e.g. `server_bin("mcp-server-git")`."""
    return lambda name: _program(REPO / ".venv-servers" / "bin", name, "servers")


def _program(folder: Path, name: str, part: str) -> str:
    program = folder / name
    if not program.exists():
        pytest.fail(f"{name} is not in {folder}: run `scripts/setup {part}`", pytrace=False)
    return str(program)
