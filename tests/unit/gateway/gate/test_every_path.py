"""No set of rules lets through what one of its deny rules matches, on any path to a child."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchboard_mcp.config.gate import GateSettings
from switchboard_mcp.gateway.factory import open_gate
from switchboard_mcp.gateway.pipeline.pipeline import attach_pipelines
from switchboard_mcp.policy.gate.conditions import Surroundings
from switchboard_mcp.policy.gate.rules import GateCall, GateRules, Kind, tool_hints
from tests.unit.gateway.board import FOLDER, Board, Host, Json
from tests.unit.gateway.test_call_path import program_call

TOOLS: list[Json] = [
    {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "write", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": False}},
]
LISTS: dict[str, list[Json]] = {
    "prompts/list": [{"name": "read", "arguments": [{"name": "path"}]}],
    "resources/list": [{"uri": "file:///w/read", "name": "read"}],
}
# By name: settings of the suite, the tool that is called, and its kind.
PATHS: dict[str, tuple[dict[str, Any], str, Kind]] = {
    "suite": ({}, "kid_suite", "tool"),
    "whole suite of twins": ({"split": True}, "kid_suite", "tool"),
    "read suite": ({"split": True}, "kid_read_suite", "tool"),
    "write suite": ({"split": "auto"}, "kid_write_suite", "tool"),
    "program": ({}, "program", "tool"),
    "direct": ({"exposure": "direct"}, "", "tool"),
    "pin": ({"pin": ["*"]}, "", "tool"),
    "prompt": ({"exposure": "direct"}, "prompts/get", "prompt"),
    "resource": ({"exposure": "direct"}, "resources/read", "resource"),
    "subscription": ({"exposure": "direct"}, "resources/subscribe", "resource"),
}

names = st.sampled_from(["read", "write", "*", "r*", "other"])
suites = st.sampled_from(
    ["kid", "kid_suite", "kid_*", "kid_read_suite", "kid_write_suite", "other", "*", ["other", "kid"]]
)
conditions = st.sampled_from(
    [
        {"outside": "."},
        {"glob": "/etc/**"},
        {"equals": "x"},
        {"present": True},
        {"regex": "pass"},
        {"inside": "."},
    ]
)
parts = st.fixed_dictionaries(
    {},
    optional={
        "suite": suites,
        "subtool": names,
        "hints": st.sampled_from([{"readOnly": True}, {"readOnly": False}, {"destructive": True}]),
        "args": st.dictionaries(
            st.sampled_from(["path", "a", "deep.path", "**.path"]), conditions, max_size=2
        ),
        "principal": st.sampled_from(["natural_language", "ann", "*"]),
        "client": st.sampled_from(["claude*", "*"]),
    },
)
others = st.one_of(
    st.fixed_dictionaries({"resource": st.sampled_from(["file:///w/*", "*", "file:///x"])}),
    st.fixed_dictionaries({"prompt": names}),
)
effects = st.sampled_from([{"deny": True}, {"deny": True}, {"ask": "session"}, {"allow": True}])
rule_sets = st.lists(
    st.builds(lambda rule, effect: {**rule, **effect}, st.one_of(parts, parts, others), effects), max_size=5
)
values = st.sampled_from(["x", "/etc/passwd", "../x", "~/x", "%2e%2e/x", "a/b", "/ETC/x", "password", 7])
arguments = st.one_of(
    st.dictionaries(st.sampled_from(["path", "PATH", "a"]), values, max_size=2),
    st.builds(lambda value: {"deep": {"path": value}}, values),
    st.builds(lambda value: {"list": [{"Path": value}]}, values),
)


class AnyScene:
    """A child behind a gate, on one of the paths."""

    def __init__(self, board: Board, written: list[Json], otherwise: str, suite: dict[str, Any]) -> None:
        self.kid = board.child(tools=TOOLS, lists=LISTS, **suite)
        gate = msgspec.convert({"rules": written, "otherwise": otherwise}, GateSettings)
        config = msgspec.structs.replace(board.config, gate=gate)
        attach_pipelines(
            board.gateway.suites, config, board.services, None, open_gate(config, board.services)
        )

    def reached(self) -> bool:
        """Whether the child has received what was called."""
        methods = ("tools/call", "prompts/get", "resources/read", "resources/subscribe")
        return any(self.kid.server.requests(method) for method in methods) if self.kid.runs else False


def call(host: Host, tool: str, kind: Kind, name: str, args: Json) -> None:
    if kind != "tool":
        host.get(f"{kind}s/list")
    if kind == "prompt":
        host.ask(tool, {"name": "read", "arguments": args})
    elif kind == "resource":
        host.ask(tool, {"uri": "file:///w/read"})
    elif tool == "program":
        program_call(host, name, msgspec.json.encode(args))
    elif tool:
        host.call(name, tool, args=args)
    else:
        host.get("tools/list")
        host.ask("tools/call", {"name": name, "arguments": args})


@pytest.mark.parametrize("modern", [False, True], ids=["handshake", "stateless"])
@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=8, deadline=None)
@given(
    written=rule_sets,
    otherwise=st.sampled_from(["allow", "allow", "deny"]),
    args=arguments,
    name=st.sampled_from(["read", "write"]),
    principal=st.sampled_from(["", "ann", "natural_language"]),
)
def test_no_path_leads_past_a_rule_that_denies(
    path: str, modern: bool, written: list[Json], otherwise: str, args: Json, name: str, principal: str
) -> None:
    suite, tool, kind = PATHS[path]
    if tool == "resources/subscribe" and modern:
        return  # there is no such request in that era
    board = Board()
    try:
        scene = AnyScene(board, written, otherwise, suite)
        host = board.host(modern=modern, principal=principal)
        call(host, tool, kind, name, args)
        effect = decided(written, otherwise, kind, tool, name, args, host)
        refused_by_twin = tool == "kid_read_suite" and name == "write"
        approved = tool == "program" and effect == "ask"  # the user has confirmed the program
        assert scene.reached() is ((effect == "allow" or approved) and not refused_by_twin)
    finally:
        board.close()


def decided(
    written: list[Json], otherwise: str, kind: Kind, tool: str, name: str, args: Json, host: Host
) -> str:
    """The strictest of what each rule alone says; a rule that asks refuses, since nobody can be asked."""
    item = {"tool": name, "prompt": "read", "resource": "file:///w/read"}[kind]
    twin = tool.replace("program", "kid_suite") if kind == "tool" else ""
    made = GateCall(kind, "kid", "kid_suite", item, host.session.client, host.session.principal, "", twin)
    hints = tool_hints(name == "read", None, None) if kind == "tool" else tool_hints(None, None, None)
    around = Surroundings(FOLDER, FOLDER, "", str)
    effects = set()
    for rule in written:
        gate = GateRules(msgspec.convert({"rules": [rule], "otherwise": "allow"}, GateSettings))
        found = gate.candidates(made)
        decision = found.settled or gate.strictest(found, kind, hints, [args], around)
        if decision.rule == 0:
            effects.add(decision.effect)
    for effect in ("deny", "ask", "allow"):
        if effect in effects:
            return effect
    return otherwise if kind == "tool" else "allow"
