"""Whatever a TOML document looks like: the tables that are asked for change, and no other line."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.setup.edit import toml_edit
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from tests.cases import each_case

KEY = ["mcp_servers"]
OURS = {"command": "switchboard", "args": ["--workspace", 'C:\\w "x"'], "startup_timeout_sec": 60}
NAMES = ("github", '"docs.server"', "'li teral'", "fs", "switchboard_x")
VALUES = st.sampled_from(
    [
        '"text # no comment"', "'[not.a.table]'", "1", "true", "[1, 2] # c",
        '[\n  "a", # ]\n  "b",\n]', '{ a = 1, b = "}" }',
        '"""\nmany\n[mcp_servers.no]\nlines"""', "'''\n'raw' = 1\n'''", "2024-01-01T00:00:00Z", '"\\" ]"',
    ]
)  # fmt: skip
GAPS = st.sampled_from(["", "\n", "# a comment\n", "\n\n", "# [mcp_servers.none]\n"])


@st.composite
def bodies(draw: st.DrawFn) -> str:
    count = draw(st.integers(0, 3))
    return "".join(f"{draw(GAPS)}k{number} = {draw(VALUES)}\n" for number in range(count))


@st.composite
def documents(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(("", "\ufeff"))) + draw(bodies())
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        text += f"{draw(GAPS)}[mcp_servers.{name}]\n{draw(bodies())}"
        if draw(st.booleans()):
            text += f"{draw(GAPS)}[mcp_servers.{name}.env]\n{draw(bodies())}"
        if draw(st.booleans()):
            text += f"{draw(GAPS)}[other.{name}]\n{draw(bodies())}"
    text += draw(GAPS)
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


def parsed(text: str) -> dict[str, Any]:
    return tomllib.loads(text.removeprefix("\ufeff"))


@given(documents(), st.lists(st.sampled_from(NAMES), unique=True), st.booleans())
def test_a_change_says_what_was_asked_and_the_rest_stays(text: str, written: list[str], put: bool) -> None:
    remove = [name.strip("\"'") for name in written]
    wanted = parsed(text)
    servers = wanted.get("mcp_servers", {})
    for name in remove:
        servers.pop(name, None)
    if put:
        servers["switchboard"] = OURS
        wanted["mcp_servers"] = servers
    after = toml_edit.replace_tables(text, KEY, remove, {"switchboard": OURS} if put else {})
    found = parsed(after)
    if not servers:
        found.pop("mcp_servers", None)
        wanted.pop("mcp_servers", None)
    assert found == wanted
    statements = toml_edit.scan(text)
    for statement in statements:
        if statement.path[:1] != ("mcp_servers",) or statement.path[1] not in remove:
            assert text[statement.start : statement.end].strip() in after


@given(documents())
def test_an_edit_that_changes_nothing_changes_no_character(text: str) -> None:
    assert toml_edit.replace_tables(text, KEY, ["nobody"], {}) == text


@given(documents())
def test_a_removed_entry_can_be_put_back(text: str) -> None:
    before = parsed(text)
    names = list(before.get("mcp_servers", {}))
    taken = toml_edit.entry_texts(text, KEY, names)
    after = toml_edit.replace_tables(text, KEY, names, {"switchboard": OURS})
    assert parsed(toml_edit.restore_tables(after, KEY, ["switchboard"], taken)) == before


def test_pairs_in_the_map_s_own_table_and_dotted_keys() -> None:
    text = '[mcp_servers]\na = { command = "a" }\nb.command = "b" # b\nb.args = []\n\n[z]\nk = 1\n'
    after = toml_edit.replace_tables(text, KEY, ["a", "b"], {"switchboard": {"command": "s"}})
    assert after == '[mcp_servers]\n\n[z]\nk = 1\n\n[mcp_servers.switchboard]\ncommand = "s"\n'
    back = toml_edit.restore_tables(after, KEY, ["switchboard"], toml_edit.entry_texts(text, KEY, ["a", "b"]))
    assert tomllib.loads(back) == tomllib.loads(text)


@each_case(
    ("text", "why"),
    [
        ('mcp_servers = { a = { command = "a" } }\n', "on one line"),
        ("a = \n", "not valid TOML"),
        ("a = [" + "[" * 5000, "TOML|nested"),
    ],
)
def test_an_edit_that_is_not_safe_is_refused(text: str, why: str) -> None:
    with pytest.raises(UnsafeEditError, match=why):
        toml_edit.replace_tables(text, KEY, ["a"], {"switchboard": {"command": "s"}})
