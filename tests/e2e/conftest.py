"""Fixtures of the tests with real processes: running gateways that many tests share, and real servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.faults import Serve, check_answers
from tests.e2e.host import Host, Json, switchboard
from tests.e2e.redisserver import RedisServer
from tests.e2e.servers import Servers
from tests.e2e.workspaces import MOCK_CHILD, add_child, configure

# Files whose tests are about the process that a host starts. All others run as users do: in a broker, by default.
SERVED_ALONE = {
    "test_serving_imports": "looks at the modules that this process has loaded",
    "test_hostile_children": "follows the processes below this one",
    "test_orphans": "follows the processes below this one, and expects its end to be theirs",
    "test_soak": "measures the memory and the descriptors of this process",
}


@pytest.fixture(scope="module", autouse=True)
def as_served(request: pytest.FixtureRequest) -> Iterator[None]:
    """Serves the sessions of some files alone."""
    with pytest.MonkeyPatch.context() as patch:
        if Path(request.module.__file__).stem in SERVED_ALONE:
            patch.setenv("SWITCHBOARD_BROKER", "off")
        yield


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serves the sessions of one test alone, because it is about the process that a host starts."""
    monkeypatch.setenv("SWITCHBOARD_BROKER", "off")


@pytest.fixture(params=["alone", "broker"])
def served(request: pytest.FixtureRequest, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test twice: with a session in a process of its own, and with one in the broker of its workspace."""
    way: str = request.param
    monkeypatch.setenv("SWITCHBOARD_BROKER", "on" if way == "broker" else "off")
    configure(workspace, {})
    return way


@pytest.fixture(scope="module")
def mock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A Switchboard with the mock child as `mock_suite`, shared by the tests of a module."""
    workspace = tmp_path_factory.mktemp("mock")
    add_child(workspace, "mock", MOCK_CHILD)
    with switchboard(workspace, env={**os.environ, "XDG_CACHE_HOME": str(workspace / "cache")}) as host:
        host.initialize()
        yield host


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of this test alone."""
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def servers(npm_bin: Callable[[str], str], server_bin: Callable[[str], str], tmp_path: Path) -> Servers:
    """Published servers, each with a folder of its own to work in."""
    return Servers(npm_bin, server_bin, tmp_path)


@pytest.fixture
def shop(workspace: Path) -> Path:
    """A workspace with the mock child, whose `crash` is denied."""
    add_child(workspace, "mock", MOCK_CHILD, description="A pretend browser.")
    configure(workspace, {"suites": {"mock": {"expose": {"deny": ["crash"]}}}})
    return workspace


@pytest.fixture
def mixed(workspace: Path) -> Path:
    """One child that works, and two that do not start."""
    add_child(workspace, "mock", MOCK_CHILD)
    add_child(workspace, "gone", ["no-such-program-anywhere"])
    add_child(workspace, "dies", ["sh", "-c", "echo the key is missing >&2; exit 3"])
    return workspace


@pytest.fixture
def serve(workspace: Path) -> Iterator[Serve]:
    """Starts a Switchboard with the given children; each writes its pids to `NAME.pids`."""
    hosts: list[Host] = []

    def serve(config: Json | None = None, /, **children: list[str]) -> Host:
        for name, command in children.items():
            add_child(workspace, name, command, env={"FAULTY_PIDS": str(workspace / f"{name}.pids")})
        if config is not None:
            configure(workspace, config)
        # What watches files has descriptors of its own, which come at some time after the first answer.
        host = switchboard(workspace, "--no-reload")
        hosts.append(host)
        host.initialize()
        return host

    yield serve
    for host in hosts:
        with host:
            host.close()
            check_answers(host)
