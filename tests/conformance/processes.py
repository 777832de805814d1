"""The fixture, and Switchboard in front of it, as running processes with an address."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.request import urlopen

from tests.conformance.bearer import with_token
from tests.e2e.workspaces import WHOLE_RESULTS, trust_all
from tests.patience import PATIENCE_S

HERE = Path(__file__).resolve().parent
Era = Literal["legacy", "modern", "both"]
Mode = Literal["direct", "suite"]
SWITCHBOARD = str(Path(sys.executable).with_name("switchboard"))
# A start takes a second or two; far more on a busy machine.
START_S = PATIENCE_S
STOP_S = 10.0


def fixture_command(era: Era, *road: str) -> list[str]:
    return [sys.executable, str(HERE / "server.py"), *road, "--era", era]


@contextmanager
def fixture(era: Era = "both") -> Iterator[str]:
    """The address of a fixture that is tested directly."""
    process = subprocess.Popen(fixture_command(era, "--http", "0"), stdout=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address:
                raise RuntimeError("the fixture ended before it listened")
            yield address
        finally:
            stop(process)


@contextmanager
def through_switchboard(
    workspace: Path, era: Era, over: str = "stdio", mode: Mode = "direct"
) -> Iterator[str]:
    """The address of a Switchboard in front of the fixture, whose tools are listed or in a suite."""
    child = child_over_http(era) if over == "http" else child_over_stdio(era)
    with child as entry, switchboard(workspace, entry, mode) as url:
        yield url


@contextmanager
def switchboard(workspace: Path, child: dict[str, Any], mode: Mode = "direct") -> Iterator[str]:
    """The address of a Switchboard with one child."""
    configure(workspace, child, mode)
    info = workspace / ".switchboard" / "server_info.json"
    with (workspace / "stderr.log").open("w") as log:
        process = subprocess.Popen(
            [SWITCHBOARD, "serve", "--http", "127.0.0.1:0", "--workspace", str(workspace)],
            stdin=subprocess.DEVNULL,
            stderr=log,
            env=dict(os.environ),
        )
        with process:
            try:
                url = _address(process, info, workspace / "stderr.log")
                token = (workspace / ".switchboard" / "auth_token").read_text().strip()
                with with_token(url, token, "fixture" if mode == "suite" else "") as open_url:
                    yield open_url
            finally:
                stop(process)


def configure(workspace: Path, child: dict[str, Any], mode: Mode = "direct") -> None:
    """One child, which hosts see as it is or as a suite."""
    config = {
        "mcpServers": {"fixture": child},
        "suites": {"fixture": {"exposure": mode}},
        **WHOLE_RESULTS,
    }
    (workspace / "switchboard.config.json").write_text(json.dumps(config))
    trust_all(workspace)


def client_command(*, direct: bool) -> list[str]:
    """The client for the suite to start: the SDK's own, or the one behind Switchboard."""
    return [sys.executable, str(HERE / "client.py"), *(["--direct"] if direct else [])]


def auth_client_command() -> list[str]:
    """The client of the scenarios about authorization, which is Switchboard."""
    return [sys.executable, str(HERE / "auth_client.py")]


@contextmanager
def child_over_stdio(era: Era) -> Iterator[dict[str, Any]]:
    command = fixture_command(era, "--stdio")
    yield {"command": command[0], "args": command[1:]}


@contextmanager
def child_over_http(era: Era) -> Iterator[dict[str, Any]]:
    with fixture(era) as url:
        yield {"type": "http", "url": url}


def _address(process: subprocess.Popen[bytes], info: Path, log: Path) -> str:
    """From the file in which Switchboard says where it listens, once it answers there."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            told = json.loads(info.read_text())
            base = f"http://{told['host']}:{told['port']}"
            with urlopen(f"{base}/health", timeout=1):
                return f"{base}/mcp"
        except (OSError, ValueError):
            time.sleep(0.05)
    raise RuntimeError(f"Switchboard does not serve:\n{log.read_text()[-3000:]}")


def stop(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
