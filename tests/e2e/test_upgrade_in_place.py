"""Another version is installed over the one that serves: sessions go on, also if they need its files meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.host import Host
from tests.e2e.stress import server_of, until
from tests.e2e.workspaces import MOCK_CHILD, REPO, add_child, configure

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the broker needs Linux")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, which sessions are started from."""
    package = tmp_path / "installed" / "switchboard_mcp"
    shutil.copytree(REPO / "src" / "switchboard_mcp", package, ignore=shutil.ignore_patterns("__pycache__"))
    return package


@pytest.fixture
def host(workspace: Path, package: Path) -> Iterator[Host]:
    """A session that a broker serves."""
    configure(workspace, {"broker": {"enabled": True, "lingerMs": 100}})
    add_child(workspace, "mock", MOCK_CHILD)
    environ = {name: value for name, value in os.environ.items() if name != "SWITCHBOARD_BROKER"}
    env = {**environ, "PYTHONPATH": str(package.parent)}
    with Host([sys.executable, "-P", "-m", "switchboard_mcp"], cwd=workspace, env=env) as opened:
        opened.initialize()
        assert opened.call("mock_suite", "echo", message="x")["content"][0]["text"] == "x"
        assert server_of(opened) != opened.process.pid
        yield opened


def test_a_session_whose_broker_ends_while_the_package_is_away_waits_for_it(
    host: Host, package: Path
) -> None:
    away = package.with_name("away")
    package.rename(away)
    os.kill(server_of(host), signal.SIGKILL)
    asked = host.ask("ping")
    until(lambda: "rejoin" in command_of(host), "the session looks for it")
    away.rename(package)
    assert host.answer(asked)["result"] == {}
    assert host.call("mock_suite", "echo", message="y")["content"][0]["text"] == "y"
    assert "Traceback" not in host.stderr


def command_of(host: Host) -> str:
    """The command line of the process that the host has started: first a shell, then Python."""
    line = Path(f"/proc/{host.process.pid}/cmdline").read_bytes().decode()
    return line if line.startswith(sys.executable) else ""


def test_a_broker_hands_its_sessions_over_when_the_package_has_changed(host: Host, package: Path) -> None:
    before, marker = server_of(host), package / "__init__.py"
    fresh = marker.with_suffix(".new")
    fresh.write_text(marker.read_text())
    fresh.replace(marker)
    until(lambda: server_of(host) not in (before, host.process.pid), "another broker serves")
    assert host.call("mock_suite", "echo", message="y")["content"][0]["text"] == "y"
