"""The TypeScript SDK's client as host: version 2 with and without its probe, and version 1."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.host import SWITCHBOARD, Json
from tests.e2e.servers import Servers
from tests.e2e.workspaces import MOCK_CHILD, add_child
from tests.patience import PATIENCE_S

SCRIPT = Path(__file__).parent / "ts" / "host.mjs"
CLIENTS = [("client", "legacy"), ("client", "auto"), ("sdk", "legacy")]


@pytest.fixture(params=CLIENTS, ids=["v2", "v2-probing", "v1"])
def flavour(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Which package, and how it negotiates."""
    pair: tuple[str, str] = request.param
    return pair


def converse(flavour: tuple[str, str], command: list[str], cwd: Path, calls: list[Json]) -> Json:
    """What the client saw of a server."""
    node = shutil.which("node")
    assert node, "node is missing: the tests need Node 20 or later"
    sdk, mode = flavour
    plan = {"sdk": sdk, "mode": mode, "command": command, "cwd": str(cwd), "calls": calls}
    ran = subprocess.run(
        [node, str(SCRIPT), json.dumps(plan)], capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    seen: Json = json.loads(ran.stdout)
    # Progress that was under way when the call was cancelled.
    assert [error for error in seen["errors"] if "unknown token" not in error] == []
    return seen


def suite_call(suite: str, subtool: str, **args: Any) -> Json:
    return {"name": suite, "arguments": {"action": "call", "subtool": subtool, "args": args}}


def test_it_connects_lists_introspects_and_calls(flavour: tuple[str, str], workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    seen = converse(
        flavour,
        SWITCHBOARD,
        workspace,
        [
            {"name": "mock_suite", "arguments": {"action": "introspect"}},
            suite_call("mock_suite", "click", selector="#a"),
            {**suite_call("mock_suite", "slow", seconds=3600, steps=360_000), "untilProgress": True},
            suite_call("mock_suite", "log", message="hello", level="error"),
            suite_call("mock_suite", "clock"),
            {"name": "no_suite", "arguments": {}},
        ],
    )
    assert seen["server"]["name"] == "switchboard"
    assert "introspect" in seen["instructions"]
    assert [tool["name"] for tool in seen["tools"]] == ["mock_suite"]
    introspected, clicked, cancelled, _, unknown, refused = seen["results"]
    told = json.loads(introspected["content"][0]["text"])
    assert "click" in [tool["name"] for tool in told["tools"]]
    assert clicked["structuredContent"] == {"ok": True, "name": "click", "args": {"selector": "#a"}}
    assert {"progress": 1, "total": 360_000, "message": "step 1 of 360000"} in seen["progress"]
    assert "seen enough" in cancelled["message"]
    if flavour[1] != "auto":  # a host of the modern era hears log messages only where it asks for them
        assert seen["logs"] == [{"level": "error", "logger": "mock/mock-child", "data": "hello"}]
    assert unknown["isError"] is True
    assert unknown["structuredContent"]["error"]["nearest"] == ["click"]
    assert refused["code"] == -32602


def test_results_equal_those_of_a_direct_connection(
    flavour: tuple[str, str], servers: Servers, workspace: Path
) -> None:
    names = ("everything", "filesystem")
    for name in names:
        add_child(workspace, name, servers.command(name))
    calls = {name: servers.calls(name) for name in names}
    through = [
        suite_call(f"{name}_suite", call.subtool, **call.args) for name in names for call in calls[name]
    ]
    seen = converse(flavour, SWITCHBOARD, workspace, through)
    assert [tool["name"] for tool in seen["tools"]] == [f"{name}_suite" for name in names]
    expected: list[Json] = []
    for name in names:
        asked = [{"name": call.subtool, "arguments": call.args} for call in calls[name]]
        expected += converse((flavour[0], "legacy"), servers.command(name), workspace, asked)["results"]
    assert seen["results"] == expected
