"""Acceptance tests 1, 2 and 4 of the Summit Switchboard (MCP) standard, by name.

The official SDK's client is the host, children are real processes, and the workspace is governed, approved and locked.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.governed import ON, govern, ran, safe_python, script, starts
from tests.e2e.host import SWITCHBOARD
from tests.e2e.sdk import Mode, Sdk, sdk_host, text_of
from tests.e2e.workspaces import configure
from tests.patience import PATIENCE_S

MANY = 450
LARGE = f"""
class Large(Child):
    tools = tuple(f"tool_{{number:03}}" for number in range({MANY}))

Large().serve()
"""
STUCK = """
import os, time

class Stuck(Child):
    tools = ("echo", "hang")

    def call(self, request_id, params, line):
        while params["name"] == "hang" and not os.path.exists(__file__ + ".freed"):
            time.sleep(0.01)
        super().call(request_id, params, line)

Stuck().serve()
"""
MODES: tuple[Mode, ...] = ("legacy", "auto")


def team(workspace: Path, codes: dict[str, str]) -> None:
    """Children from a few lines each, everything of theirs allowed, approved and locked."""
    python = safe_python()
    servers = {
        name: {"command": python, "args": ["-S", str(script(workspace, name, code))]}
        for name, code in codes.items()
    }
    govern(workspace, servers, {name: ["*"] for name in codes})
    for name in codes:
        ran(workspace, "approve", name, "--yes")
    ran(workspace, "lock")


async def use(host: Sdk, suite: str, **arguments: Any) -> Any:
    return await host.client.call_tool(suite, arguments)


@pytest.mark.parametrize("mode", MODES)
async def test_tools_list_returns_only_suite_tools_when_lazy_mode_is_enabled(
    workspace: Path, mode: Mode
) -> None:
    """Acceptance test 1, and its budget: at most 50 KB."""
    team(workspace, {"large": LARGE, "small": "Child().serve()"})
    before = starts(workspace)
    async with sdk_host(SWITCHBOARD, cwd=workspace, mode=mode, env=ON) as host:
        tools = (await host.client.list_tools()).tools
    assert [tool.name for tool in tools] == ["large_suite", "small_suite"]
    listed = next(line for line in host.heard if '"large_suite"' in line)
    assert len(listed.encode()) <= 50_000
    assert starts(workspace) == before


@pytest.mark.parametrize("mode", MODES)
async def test_op_list_subtools_returns_child_tools_cached_and_size_limited(
    workspace: Path, mode: Mode
) -> None:
    """Acceptance test 2: all tools in pages of at most 200, from the lock, without a start."""
    team(workspace, {"large": LARGE})
    before = starts(workspace)
    found: list[str] = []
    cursor: dict[str, str] = {}
    async with sdk_host(SWITCHBOARD, cwd=workspace, mode=mode, env=ON) as host:
        while True:
            page = json.loads(text_of(await use(host, "large_suite", op="list_subtools", **cursor)))
            assert len(page["tools"]) <= 200
            found += [tool["name"] for tool in page["tools"]]
            if not page.get("truncated"):
                break
            assert page["truncated"] is True
            cursor = {"cursor": page["cursor"]}
    assert found == [f"tool_{number:03}" for number in range(MANY)]
    assert starts(workspace) == before


@pytest.mark.parametrize("mode", MODES)
async def test_health_check_gate_unhealthy_child_prevents_routing(workspace: Path, mode: Mode) -> None:
    """Acceptance test 4, in governed mode."""
    team(workspace, {"kid": STUCK})
    config = json.loads((workspace / "switchboard.config.json").read_text())
    config["suites"]["kid"]["rpcMs"] = 400
    configure(workspace, {**config, "health": {"probeMs": 300, "failures": 1000}})
    ran(workspace, "approve", "--settings", "--yes")

    async def outcome(host: Sdk, subtool: str) -> dict[str, Any]:
        result = await use(host, "kid_suite", action="call", subtool=subtool, args={})
        told: dict[str, Any] = (result.structured_content or {}).get("error", {"code": "ok"})
        return told

    async with sdk_host(SWITCHBOARD, cwd=workspace, mode=mode, env=ON) as host:
        assert (await outcome(host, "hang"))["code"] == "child_timeout"
        end = time.monotonic() + PATIENCE_S
        while (told := await outcome(host, "echo"))["code"] != "child_unhealthy":
            assert told["code"] in ("child_timeout", "child_unhealthy")
            assert time.monotonic() < end
        assert told["child"] == "kid"
        assert told["retryable"] is True
        assert 0 < told["retryAfterMs"] <= 300
        (workspace / "kid.py.freed").touch()
        while (await outcome(host, "echo"))["code"] != "ok":
            assert time.monotonic() < end
