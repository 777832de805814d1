"""The list of suite tools: one per child, named, described, bounded, and wiser on the second start."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases import each_case
from tests.e2e.host import Host, Json, switchboard
from tests.e2e.shell import run
from tests.e2e.workspaces import MOCK_CHILD, add_child, configure, scripted, write_child

MAX_LIST_BYTES = 50_000
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
SCHEMA = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": ["introspect", "call"]},
        "subtool": {"type": "string"},
        "args": {"type": "object"},
    },
    "required": ["action"],
}
PROPERTIES = {"action", "subtool", "args"}


def annotated(*annotations: Any) -> list[str]:
    """A child with one tool for each of the given annotations."""
    return scripted(f"""
        class Annotated(Child):
            def page(self, cursor):
                given = {annotations!r}
                return {{"tools": [{{**tool(f"tool_{{i}}"), "annotations": a}} for i, a in enumerate(given)]}}

        Annotated().serve()
    """)


# --- what stands in it -----------------------------------------------------------------------------------


def test_one_tool_per_child_sorted_by_name_whatever_the_order_of_files(workspace: Path) -> None:
    for folder, name in (("1", "zebra"), ("2", "ant"), ("3", "Mole")):
        write_child(workspace, folder, {"name": name, "command": "true"})
    configure(workspace, {"mcpServers": {"bee": {"command": "true"}}})
    with switchboard(workspace) as host:
        assert host.tool_names() == ["Mole_suite", "ant_suite", "bee_suite", "zebra_suite"]


def test_children_are_found_in_both_default_folders(workspace: Path) -> None:
    add_child(workspace, "visible", ["true"])
    hidden = workspace / ".switchboard" / "mcps" / "hidden"
    hidden.mkdir(parents=True)
    (hidden / ".mcp.json").write_text(json.dumps({"name": "hidden", "command": "true"}))
    with switchboard(workspace) as host:
        assert host.tool_names() == ["hidden_suite", "visible_suite"]


def test_a_suite_tool_has_a_small_schema_and_no_tool_of_its_child(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    with switchboard(workspace) as host:
        host.introspect("mock_suite")
        (tool,) = host.tools()
    assert tool["name"] == "mock_suite"
    assert tool["inputSchema"] == SCHEMA


def test_the_description_comes_from_the_best_source(workspace: Path) -> None:
    cases: dict[str, tuple[Json, Json, str]] = {
        "all": ({"switchboardDescription": "A.", "description": "C."}, {"description": "B."}, "A."),
        "suite": ({"description": "C."}, {"description": "B."}, "B."),
        "own": ({"description": "C."}, {}, "C."),
        "none": ({}, {}, "Tools of the MCP server 'none'."),
    }
    for name, (own, _, _) in cases.items():
        write_child(workspace, name, {"name": name, "command": "true", **own})
    configure(workspace, {"suites": {name: suite for name, (_, suite, _) in cases.items()}})
    with switchboard(workspace) as host:
        descriptions = {tool["name"]: tool["description"] for tool in host.tools()}
    assert descriptions == {f"{name}_suite": description for name, (*_, description) in cases.items()}


INTRODUCED = """
    class Introduced(Child):
        def result(self, method, params):
            found = super().result(method, params)
            if method == "initialize":
                found["serverInfo"] |= SERVER
                found["instructions"] = INSTRUCTIONS
            return found

    Introduced().serve()
"""


def test_a_server_describes_itself_unless_the_config_does(workspace: Path) -> None:
    cases: dict[str, tuple[Json, str, str]] = {
        "described": ({"description": "Maps and routes.", "title": "Maps"}, "Use it.", "Maps and routes."),
        "instructed": (
            {"title": "Maps"},
            "Finds places. Then plans\u200b routes.",
            "Finds places. Then plans routes.",
        ),
        "titled": ({"title": "Maps"}, "", "Tools of Maps."),
        "named": ({"title": None}, "", "Tools of the MCP server 'named'."),
    }
    for name, (server, instructions, _) in cases.items():
        code = INTRODUCED.replace("SERVER", repr(server)).replace("INSTRUCTIONS", repr(instructions))
        add_child(workspace, name, scripted(code))
    with switchboard(workspace) as host:
        for name in cases:
            host.introspect(f"{name}_suite")
        descriptions = {tool["name"]: tool["description"] for tool in host.tools()}
    assert descriptions == {f"{name}_suite": f"{text} Subtools: echo." for name, (*_, text) in cases.items()}


def test_always_load_marks_the_suites_that_ask_for_it(workspace: Path) -> None:
    for name in ("marked", "plain"):
        add_child(workspace, name, ["true"])
    configure(workspace, {"suites": {"marked": {"alwaysLoad": True}}})
    with switchboard(workspace) as host:
        marked, plain = host.tools()
    assert marked["_meta"] == {"anthropic/alwaysLoad": True}
    assert "_meta" not in plain


# --- names -----------------------------------------------------------------------------------------------


def test_names_are_unique_and_made_of_what_every_host_takes(workspace: Path) -> None:
    names = [
        "plain",
        "with space",
        "with-space",
        "with_space",
        "with.space",
        "ünïcödé",
        "日本語",
        "中文",
        "x" * 200,
        "x" * 199 + "y",
        "@scope/package",
        "plain_suite",
        "😀",
    ]
    configure(workspace, {"mcpServers": {name: {"command": "true"} for name in names}})
    with switchboard(workspace) as host:
        listed = host.tool_names()
        again = host.tool_names()
    assert len(set(listed)) == len(names)
    assert all(NAME.fullmatch(name) for name in listed)
    assert all(len(name) <= 40 for name in listed)
    assert "plain_suite" in listed
    assert listed == again


def test_configured_names_stand_and_stay_unique_and_within_64(workspace: Path) -> None:
    servers = {name: {"command": "true"} for name in ("a", "b", "c", "d")}
    suites = {
        "a": {"suiteName": "shared"},
        "b": {"suiteName": "shared"},
        "c": {"suiteName": "n" * 90},
        "d": {"suiteName": "d" * 64},
    }
    configure(workspace, {"mcpServers": servers, "suites": suites})
    with switchboard(workspace) as host:
        listed = host.tool_names()
    assert len(set(listed)) == 4
    assert "shared" in listed
    assert "d" * 64 in listed
    assert all(NAME.fullmatch(name) for name in listed)


def test_a_suite_answers_to_its_name_whatever_became_of_the_childs(workspace: Path) -> None:
    configure(
        workspace,
        {"mcpServers": {"日本語 child": {"command": MOCK_CHILD[0], "args": MOCK_CHILD[1:]}}},
    )
    with switchboard(workspace) as host:
        (name,) = host.tool_names()
        assert host.call(name, "echo", message="found")["content"][0]["text"] == "found"


# --- size ------------------------------------------------------------------------------------------------


@each_case(
    "description", ["", "Long words about what it does. " * 100, "説明" * 1000, '"\\\n' * 500], ids=len
)
def test_two_hundred_children_fit_into_fifty_kilobytes(workspace: Path, description: str) -> None:
    names = [f"a-child-with-a-rather-long-name-{number:03d}" for number in range(200)]
    servers = {name: {"command": "true", "description": description} for name in names}
    suites = {name: {"alwaysLoad": True, "suiteName": name.ljust(64, "-")} for name in names[:100]}
    configure(workspace, {"mcpServers": servers, "suites": suites})
    with switchboard(workspace) as host:
        answer = host.raw_answer(host.ask("tools/list"))
        assert "list_paged" not in host.stderr
    tools = answer.json["result"]["tools"]
    assert len(answer.result) <= MAX_LIST_BYTES
    assert len(tools) == 200
    assert [tool["name"] for tool in tools] == sorted(tool["name"] for tool in tools)
    assert all(tool["description"] and set(tool["inputSchema"]["properties"]) == PROPERTIES for tool in tools)


STATELESS = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
FAMILIES: tuple[Json, ...] = ({}, {"_meta": STATELESS})


def crowd(workspace: Path, count: int = 1000) -> list[str]:
    """Children by the thousand, two built-in suites, a pinned subtool and a favourite. Returns all tool names."""
    servers: dict[str, Any] = {f"child-{number:04d}": {"command": "true"} for number in range(count)}
    servers["zoo"] = {"command": MOCK_CHILD[0], "args": MOCK_CHILD[1:]}
    suites = {"zoo": {"pin": ["echo"]}, "child-0777": {"alwaysLoad": True}}
    built_in = {"mail": {"enabled": True}, "find": {"enabled": True}}
    configure(workspace, {"mcpServers": servers, "suites": suites, **built_in})
    return sorted([*(f"{name}_suite" for name in servers), "mail_suite", "switchboard_suite", "echo"])


def read_pages(host: Host, family: Json, page: Json | None = None) -> list[Json]:
    """Every page from the first, or from the given one, on; each within the limit."""
    pages = [] if page is None else [page]
    while not pages or "nextCursor" in pages[-1]:
        cursor = {"cursor": pages[-1]["nextCursor"]} if pages else {}
        answer = host.raw_answer(host.ask("tools/list", {**family, **cursor}))
        assert "result" in answer.json, answer.json
        assert len(answer.result) <= MAX_LIST_BYTES
        pages.append(answer.json["result"])
    return pages


def names_in(pages: list[Json]) -> list[str]:
    return [tool["name"] for page in pages for tool in page["tools"]]


def test_a_thousand_children_are_listed_in_pages_and_the_first_holds_what_matters(workspace: Path) -> None:
    everything = crowd(workspace)
    for family in FAMILIES:
        with switchboard(workspace) as host:
            pages = read_pages(host, family)
            host.close()
            # The broker says so once.
            assert host.stderr.count("tools.list_paged") == (0 if family else 1)
        listed = names_in(pages)
        suites = [tool for page in pages for tool in page["tools"] if tool["name"] != "echo"]
        assert [tool["name"] for tool in suites if set(tool["inputSchema"]["properties"]) != PROPERTIES] == []
        assert len(pages) > 1
        assert sorted(listed) == everything
        assert listed[:5] == ["mail_suite", "switchboard_suite", "echo", "child-0777_suite", "zoo_suite"]
        assert listed[5:] == sorted(listed[5:])
        for tool in pages[0]["tools"][:2]:
            assert tool["inputSchema"] == SCHEMA
            assert len(tool["description"]) > 40


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A Switchboard whose list has several pages."""
    workspace = tmp_path_factory.mktemp("crowded")
    crowd(workspace, 600)
    with switchboard(workspace, env={**os.environ, "XDG_CACHE_HOME": str(workspace / "cache")}) as host:
        yield host


@each_case("cursor", ["x", "1", "1.", "1.0123456789abcdef", "0.{stamp}", "-1.{stamp}", "99.{stamp}",
                      "1.{stamp}.", "١.{stamp}", "9" * 5000 + ".{stamp}", 5, ["1"]], ids=str)  # fmt: skip
def test_a_cursor_that_was_never_issued_is_an_invalid_param(crowded: Host, cursor: object) -> None:
    for family in FAMILIES:
        _, stamp = crowded.result("tools/list", family)["nextCursor"].split(".")
        wrong = cursor.format(stamp=stamp) if isinstance(cursor, str) else cursor
        assert crowded.error("tools/list", {**family, "cursor": wrong})["code"] == -32602
        for first in (None, ""):
            assert "nextCursor" in crowded.result("tools/list", {**family, "cursor": first})


def test_a_reload_between_two_pages_ends_the_old_list_with_a_clear_error(workspace: Path) -> None:
    everything = crowd(workspace)
    with switchboard(workspace) as host:
        host.initialize()
        first = host.result("tools/list")
        add_child(workspace, "new", ["true"])
        host.notification("notifications/tools/list_changed")
        error = host.error("tools/list", {"cursor": first["nextCursor"]})
        assert error["code"] == -32602
        assert "Call tools/list without a cursor" in error["message"]
        assert sorted(names_in(read_pages(host, {}))) == sorted([*everything, "new_suite"])


def test_a_child_that_becomes_known_between_two_pages_leaves_no_gap(workspace: Path) -> None:
    everything = crowd(workspace)
    servers = json.loads((workspace / "switchboard.config.json").read_text())
    servers["mcpServers"]["child-0900"] = {"command": MOCK_CHILD[0], "args": MOCK_CHILD[1:]}
    configure(workspace, servers)
    with switchboard(workspace) as host:
        first = host.result("tools/list")
        host.introspect("child-0900_suite")
        assert host.result("tools/list") != first
        assert sorted(names_in(read_pages(host, {}, first))) == everything
        assert "child-0900_suite" in names_in([host.result("tools/list")])


def test_the_tools_of_a_direct_child_have_pages_too(workspace: Path) -> None:
    code = """
        class Many(Child):
            def page(self, cursor):
                return {"tools": [{**tool(f"tool_{i:04d}"), "description": "words " * 100} for i in range(200)]}

        Many().serve()
    """
    add_child(workspace, "many", scripted(code))
    configure(workspace, {"suites": {"many": {"exposure": "direct"}}})
    with switchboard(workspace) as host:
        pages = read_pages(host, {})
        assert len(pages) > 1
        assert names_in(pages) == [f"tool_{number:04d}" for number in range(200)]
        last = host.result("tools/call", {"name": "tool_0199", "arguments": {"message": "hi"}})
        assert last["content"][0]["text"] == "hi"


def test_commands_see_every_page(workspace: Path) -> None:
    everything = crowd(workspace)
    ran = run(workspace, "list", "--json")
    assert {tool["name"] for tool in json.loads(ran.stdout)["tools"]} >= {*everything} - {"echo"}


def test_a_long_description_is_cut_at_a_word_with_an_ellipsis(workspace: Path) -> None:
    write_child(workspace, "a", {"name": "a", "command": "true", "description": "word " * 1000})
    with switchboard(workspace) as host:
        (tool,) = host.tools()
    assert len(tool["description"]) <= 1000
    assert tool["description"].endswith("word…")


# --- the second start ------------------------------------------------------------------------------------


def test_from_the_second_start_on_a_suite_hints_at_what_is_inside(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD, description="A pretend browser")
    configure(workspace, {"suites": {"mock": {"expose": {"deny": ["crash"]}}}})
    with switchboard(workspace) as host:
        (first,) = host.tools()
        host.introspect("mock_suite")
    with switchboard(workspace) as host:
        (second,) = host.tools()
    assert first["description"] == "A pretend browser"
    assert "annotations" not in first
    assert second["description"].startswith("A pretend browser. Subtools: click, type_text, navigate")
    assert "crash" not in second["description"]
    assert second["annotations"] == {"readOnlyHint": False, "destructiveHint": False}


def test_another_command_of_the_same_name_is_not_confused_with_the_first(workspace: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    with switchboard(workspace) as host:
        host.introspect("mock_suite")
    add_child(workspace, "mock", [*MOCK_CHILD, "--page-size", "3"])
    with switchboard(workspace) as host:
        (tool,) = host.tools()
    assert "Subtools" not in tool["description"]


def test_annotations_are_derived_from_those_of_the_subtools(workspace: Path) -> None:
    cases: list[tuple[list[Any], bool, bool]] = [
        ([{"readOnlyHint": True}, {"readOnlyHint": True}], True, False),
        ([{"readOnlyHint": True}, {"readOnlyHint": False, "destructiveHint": False}], False, False),
        ([{"readOnlyHint": True}, {"readOnlyHint": False, "destructiveHint": True}], False, True),
        ([{"readOnlyHint": True}, {}], False, True),
        ([None], False, True),
        ([{"readOnlyHint": "yes"}, {"readOnlyHint": True}], False, True),
    ]
    for number, (tools, _, _) in enumerate(cases):
        add_child(workspace, f"kid-{number}", annotated(*tools))
    with switchboard(workspace) as host:
        for number, (tools, _, _) in enumerate(cases):
            assert len(host.subtools(f"kid-{number}_suite")) == len(tools)
    with switchboard(workspace) as host:
        derived = [tool["annotations"] for tool in host.tools()]
    assert derived == [
        {"readOnlyHint": read_only, "destructiveHint": destructive} for _, read_only, destructive in cases
    ]


def test_a_cache_that_cannot_be_read_or_written_does_no_harm(workspace: Path, isolated_cache: Path) -> None:
    add_child(workspace, "mock", MOCK_CHILD)
    isolated_cache.write_text("a file where the folder should be")
    with switchboard(workspace) as host:
        assert host.tool_names() == ["mock_suite"]
        assert host.call("mock_suite", "echo", message="fine")["content"][0]["text"] == "fine"
    isolated_cache.unlink()
    with switchboard(workspace) as host:
        host.introspect("mock_suite")
    for file in isolated_cache.rglob("*"):
        if file.is_file():
            file.write_bytes(b"\xff{")
    with switchboard(workspace) as host:
        assert host.tool_names() == ["mock_suite"]
        assert "click" in host.subtools("mock_suite")
