"""Servers that choose their tools by what the client can do: commands see all, and each host its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.governed import ON, command, govern, safe_python, script
from tests.e2e.host import Host, switchboard
from tests.e2e.servers import Servers
from tests.e2e.shell import answered, parsed, run
from tests.e2e.workspaces import add_child, scripted

FULL = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}}
CHOOSY = """
class Choosy(Child):
    def receive(self, message, line):
        if message.get("method") == "initialize":
            declared = message["params"]["capabilities"]
            self.tools = ("echo", *sorted(name for name in ("sampling", "elicitation", "roots") if name in declared))
        super().receive(message, line)

Choosy().serve()
"""


def initialize(host: Host, capabilities: Mapping[str, object]) -> Host:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": {"name": "h", "version": "1"},
    }
    host.result("initialize", params)
    host.notify("notifications/initialized")
    return host


def test_commands_and_hosts_see_what_fits_them_in_any_order(workspace: Path) -> None:
    add_child(workspace, "choosy", scripted(CHOOSY))
    hosts: list[Mapping[str, object]] = [{}, {"sampling": {}}, FULL]
    for _ in range(2):
        (listed,) = parsed(run(workspace, "list", "--refresh", "--json"))["children"]
        assert listed["subtools"] == 4
        for capabilities in hosts:
            with switchboard(workspace) as host:
                seen = initialize(host, capabilities).subtools("choosy_suite")
            assert seen == ["echo", *sorted(capabilities)]


def test_a_command_sees_all_tools_of_a_published_server(workspace: Path, servers: Servers) -> None:
    add_child(workspace, "everything", servers.command("everything"))
    (listed,) = parsed(run(workspace, "list", "--refresh", "--json"))["children"]
    assert listed["subtools"] >= 17
    with switchboard(workspace) as host:
        seen = initialize(host, {}).subtools("everything_suite")
    assert 0 < len(seen) < listed["subtools"]


def test_a_server_that_asks_a_command_for_roots_gets_none_and_keeps_its_own_folders(
    workspace: Path, servers: Servers
) -> None:
    add_child(workspace, "filesystem", servers.command("filesystem"))
    out = answered(run(workspace, "call", "filesystem", "list_allowed_directories"))
    assert str(servers.folder) in out
    assert str(workspace) not in out.splitlines()


def test_a_governed_child_is_the_same_for_every_host_and_accepting_never_loops(workspace: Path) -> None:
    path = script(workspace, "choosy", CHOOSY)
    govern(workspace, {"choosy": {"command": safe_python(), "args": [str(path)]}}, {"choosy": ["*"]})
    assert command(workspace, "approve", "--all", "--yes").returncode == 0
    hosts: list[Mapping[str, object]] = [{}, FULL]
    for capabilities in hosts:
        with switchboard(workspace, env={**os.environ, **ON}) as host:
            initialize(host, capabilities)
            for name in host.subtools("choosy_suite"):
                assert "isError" not in host.call("choosy_suite", name, message="x"), name
            assert len(host.subtools("choosy_suite")) == 4
    assert command(workspace, "lock", "--check").returncode == 0
