"""Large schemas and arguments do not hold up others: whoever asks for little is answered first."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.host import Host, switchboard
from tests.e2e.workspaces import add_child, configure, scripted

# 400 kB in which every definition has the same name: naming them apart once took minutes.
HUGE = """
    count = 3500
    schema = {
        "$defs": {
            f"a{i}": {"x": {"properties": {"p": {"$ref": f"#/$defs/a{i}/x"}}}} for i in range(count)
        },
        "properties": {f"k{i}": {"$ref": f"#/$defs/a{i}/x"} for i in range(count)},
    }
    many = [{**tool(f"t{i}"), "inputSchema": {"anyOf": [{"type": "null"}] * 100}} for i in range(200)]

    class Huge(Child):
        def page(self, cursor):
            return {"tools": [{**tool("echo"), "inputSchema": schema}, *many]}

    Huge().serve()
"""
HIDING = {"suites": {"huge": {"redactArgs": ["*a*b*", "x.**.*y*"]}}}


def order(host: Host, *ids: str) -> list[str]:
    """Return the ids in the order in which their answers come."""
    came: list[str] = []
    while len(came) < len(ids):
        message = host.next_message().json
        if message.get("id") in ids and "method" not in message:
            came.append(message["id"])
    return came


def test_a_ping_is_answered_while_a_huge_schema_is_described(workspace: Path) -> None:
    add_child(workspace, "huge", scripted(HUGE))
    with switchboard(workspace) as host:
        host.initialize()
        host.call("huge_suite", "echo", message="hi")  # it runs, and its tools are known
        arguments = {"action": "introspect", "verbosity": "signature"}
        host.ask("tools/call", {"name": "huge_suite", "arguments": arguments}, id="tools")
        host.ask("ping", id="ping")
        assert order(host, "tools", "ping") == ["ping", "tools"]


def test_a_huge_schema_is_shown_as_any_object(workspace: Path) -> None:
    add_child(workspace, "huge", scripted(HUGE))
    with switchboard(workspace) as host:
        host.initialize()
        (echo,) = host.introspect("huge_suite", subtool="echo")["tools"]
        assert echo["inputSchema"] == {"type": "object"}
        (first,) = host.introspect("huge_suite", subtool="t1")["tools"]
        assert len(first["inputSchema"]["anyOf"]) == 100


def test_a_call_with_huge_arguments_is_searched_for_secrets_and_answered(workspace: Path) -> None:
    add_child(workspace, "huge", scripted(HUGE))
    configure(workspace, HIDING)
    with switchboard(workspace) as host:
        host.initialize()
        host.call("huge_suite", "echo", message="hi")
        args = {"message": "hi", **{f"k{i}": [{"a": {"xb": i}}] for i in range(20_000)}}
        result = host.call("huge_suite", "echo", **args)
        assert result["content"][0]["text"] == "hi"
