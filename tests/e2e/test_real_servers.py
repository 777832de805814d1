"""Published servers behind Switchboard: every result has the very bytes that a direct connection gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import each_case
from tests.e2e.host import Host, switchboard
from tests.e2e.servers import Call, Servers
from tests.e2e.workspaces import WHOLE_RESULTS, add_child, configure


def through(host: Host, name: str, call: Call) -> bytes:
    arguments = {"action": "call", "subtool": call.subtool, "args": call.args}
    return host.raw_answer(host.ask("tools/call", {"name": f"{name}_suite", "arguments": arguments})).result


def direct(host: Host, call: Call) -> bytes:
    return host.raw_answer(host.ask("tools/call", {"name": call.subtool, "arguments": call.args})).result


@pytest.fixture
def host(servers: Servers, workspace: Path) -> Iterator[Host]:
    """A Switchboard with all servers."""
    for name in Servers.names:
        add_child(workspace, name, servers.command(name), env=servers.env(name, "child"))
    configure(workspace, WHOLE_RESULTS)
    with switchboard(workspace) as running:
        running.initialize()
        assert running.tool_names() == [f"{name}_suite" for name in Servers.names]
        yield running


@each_case("name", Servers.names)
def test_a_call_through_the_suite_gives_the_bytes_of_a_direct_call(
    host: Host, servers: Servers, name: str
) -> None:
    with Host(servers.command(name), extra=servers.env(name, "direct")) as server:
        begun = host.ask("tools/call", {"name": f"{name}_suite", "arguments": {"action": "introspect"}})
        server.initialize()
        host.answer(begun)
        for call in servers.calls(name):
            result = through(host, name, call)
            assert result == direct(server, call)
            decoded = json.loads(result)
            assert tuple(block["type"] for block in decoded["content"]) == call.blocks
            assert ("structuredContent" in decoded) == call.structured
            assert decoded.get("isError", False) == call.error
        assert host.subtools(f"{name}_suite") == [tool["name"] for tool in server.tools()]
