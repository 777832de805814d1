"""Whatever a document looks like: what is asked for changes, and no other character."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.config.documents import decode_json
from switchboard_mcp.setup.edit import jsonc_edit
from switchboard_mcp.setup.edit.jsonc_tree import parse
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from tests.cases import each_case

NAMES = ("github", "fs", "a.b", "ünïcode", 'with "quotes"', "// no comment", "switchboard", "x")
OURS = {"command": "switchboard", "args": ["--workspace", "/w"], "env": {}}
GAPS = st.sampled_from(
    ["", " ", "\n", "\n  ", "\r\n\t", " // c, }\n", "/* { */", " /* x */ ", '\n// \u00e4 "\n  ', "  \n\n    "]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**12),
    st.text(max_size=8),
    st.just("//"),
    st.just("/*"),
    st.just("\\"),
)


@st.composite
def documents(draw: st.DrawFn, depth: int = 3) -> str:
    """A value as people might write it: comments and white space anywhere, commas at the end."""
    kind = draw(st.sampled_from(("scalar", "object", "array"))) if depth else "scalar"
    if kind == "scalar":
        value = draw(SCALARS)
        return json.dumps(value, ensure_ascii=draw(st.booleans()))
    if kind == "array":
        items = [draw(documents(depth - 1)) for _ in range(draw(st.integers(0, 3)))]
        return "[" + _joined(draw, items) + "]"
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    return _object(draw, names, depth)


def _object(draw: st.DrawFn, names: list[str], depth: int) -> str:
    members = [f"{json.dumps(name)}{draw(GAPS)}:{draw(GAPS)}{draw(documents(depth - 1))}" for name in names]
    return "{" + _joined(draw, members) + "}"


def _joined(draw: st.DrawFn, parts: list[str]) -> str:
    result = draw(GAPS)
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        comma = "," if not last or draw(st.booleans()) else ""
        result += f"{part}{draw(GAPS)}{comma}{draw(GAPS)}"
    return result


@st.composite
def settings(draw: st.DrawFn) -> str:
    """A document with a map of servers among other things."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=5))
    servers = f'"mcpServers"{draw(GAPS)}:{draw(GAPS)}{_object(draw, names, 2)}'
    before = [f'"k{number}":{draw(GAPS)}{draw(documents(2))}' for number in range(draw(st.integers(0, 2)))]
    after = [f'"z{number}":{draw(GAPS)}{draw(documents(2))}' for number in range(draw(st.integers(0, 2)))]
    start = draw(st.sampled_from(("", "\ufeff", "// top\n")))
    return start + "{" + _joined(draw, [*before, servers, *after]) + "}" + draw(GAPS)


@given(documents())
def test_a_document_means_what_the_parser_of_the_config_says(text: str) -> None:
    assert parse(text).value == decode_json(text.encode())


@given(settings(), st.lists(st.sampled_from(NAMES), unique=True), st.booleans())
def test_a_change_says_what_was_asked_and_keeps_every_other_character(
    text: str, remove: list[str], put: bool
) -> None:
    before = decode_json(text.encode())
    assert isinstance(before, dict)
    wanted = {"switchboard": OURS} if put else {}
    after = jsonc_edit.replace_members(text, ["mcpServers"], remove, wanted)
    servers = {name: value for name, value in before["mcpServers"].items() if name not in remove}
    if put:
        servers.setdefault("switchboard", OURS)
    assert decode_json(after.encode()) == {**before, "mcpServers": servers}
    # What stood before and after the map is the same, and so is every comment outside of a removed value.
    node = next(member for member in parse(text).members if member.name == "mcpServers")
    assert after.startswith(text[: node.value.start + 1])
    assert after.endswith(text[node.value.end - 1 :])
    for kept in node.value.members:
        if kept.name not in remove:
            assert text[kept.start : kept.end] in after
    assert all(comment in after for comment in _comments(text))


def _comments(text: str) -> set[str]:
    """The comments of the map that stand in none of its members."""
    node = next(member for member in parse(text).members if member.name == "mcpServers").value
    outside = text[: node.end]
    for member in reversed(node.members):
        outside = outside[: member.start] + outside[member.end :]
    return {found.strip() for found in re.findall(r"//[^\n]*|/\*.*?\*/", outside[node.start :])}


@given(settings())
def test_a_member_that_is_taken_out_and_put_back_is_where_it_was(text: str) -> None:
    before = decode_json(text.encode())
    assert isinstance(before, dict)
    names = [name for name in before["mcpServers"] if name != "switchboard"][:1]
    if not names or "switchboard" in before["mcpServers"]:
        return
    taken = jsonc_edit.member_texts(text, ["mcpServers"], names)
    after = jsonc_edit.replace_members(text, ["mcpServers"], names, {"switchboard": OURS})
    assert jsonc_edit.restore_members(after, ["mcpServers"], ["switchboard"], taken) == text


@given(settings())
def test_an_edit_that_changes_nothing_changes_no_character(text: str) -> None:
    assert jsonc_edit.replace_members(text, ["mcpServers"], [], {}) == text
    assert jsonc_edit.replace_members(text, ["nothing", "here"], ["a"], {}) == text


@st.composite
def lists(draw: st.DrawFn) -> tuple[list[str], str]:
    items = draw(st.lists(st.sampled_from(("a", "b", "switchboard")), unique=True))
    return items, '{"mcp":{"allowed":[' + _joined(draw, [json.dumps(item) for item in items]) + "]}}"


@given(lists())
def test_an_item_is_added_once_and_taken_out_again(drawn: tuple[list[str], str]) -> None:
    items, text = drawn
    path = ("mcp", "allowed")
    after = jsonc_edit.add_item(text, path, "switchboard")
    assert decode_json(after.encode()) == {
        "mcp": {"allowed": [*items, *([] if "switchboard" in items else ["switchboard"])]}
    }
    assert jsonc_edit.add_item(after, path, "switchboard") == after
    gone = jsonc_edit.remove_item(after, path, "switchboard")
    assert decode_json(gone.encode()) == {
        "mcp": {"allowed": [item for item in items if item != "switchboard"]}
    }


@each_case(
    ("text", "after"),
    [
        ("", '{\n  "mcpServers": {\n    "s": {}\n  }\n}\n'),
        ("{}", '{\n  "mcpServers": {\n    "s": {}\n  }\n}'),
        ('{"a":1}', '{"a":1, "mcpServers": {"s": {}}}'),
        ('{\r\n\t"a": 1\r\n}\r\n', '{\r\n\t"a": 1,\r\n\t"mcpServers": {\r\n\t\t"s": {}\r\n\t}\r\n}\r\n'),
        ('{\n    "mcpServers": {}\n}', '{\n    "mcpServers": {\n        "s": {}\n    }\n}'),
        ('{"mcpServers": {"a": {}}}', '{"mcpServers": {"a": {}, "s": {}}}'),
        (
            '{\n  "mcpServers": {\n    "a": {} // one\n  }\n}',
            '{\n  "mcpServers": {\n    "a": {}, // one\n    "s": {}\n  }\n}',
        ),
        (
            '{\n  "mcpServers": {\n    // none\n  }\n}',
            '{\n  "mcpServers": {\n    // none\n    "s": {}\n  }\n}',
        ),
    ],
)
def test_a_new_entry_is_formatted_like_its_neighbours(text: str, after: str) -> None:
    assert jsonc_edit.replace_members(text, ["mcpServers"], [], {"s": {}}) == after


@each_case(
    ("text", "why"),
    [
        ('{"mcpServers": {"a": 1,, "b": 2}}', "line 1 column 24"),
        ('{"mcpServers": {"a": {}}', "it ends too early, at line 1 column 25"),
        ('{"mcpServers": {}} x', "Extra data at line 1 column 20"),
        ('{"mcpServers": {} /* ', "never closed"),
        ('{"mcpServers": {}, "mcpServers": {}}', "twice"),
        ('{"mcpServers": []}', "not a map of servers"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{"a": "\\x"}', "not valid JSON"),
    ],
)
def test_an_edit_that_is_not_safe_is_refused_with_the_place(text: str, why: str) -> None:
    with pytest.raises(UnsafeEditError, match=re.escape(why)):
        jsonc_edit.replace_members(text, ["mcpServers"], ["a"], {"s": {}})
