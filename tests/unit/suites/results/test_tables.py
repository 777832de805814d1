"""Tables for lists of similar objects: exact, or not made."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchboard_mcp.suites.results.answers import compact
from switchboard_mcp.suites.results.tables import MAX_TABLE_CHARS, from_tables, to_tables
from tests.cases import each_case

WRITTEN = """\
{"query":"x","total":3,"items":@1}
@1 3 rows
id|name|url|tags
1|Ada|https://a.example/1|["x","y"]
2|"true"||[]
3|"a|b"|""|null"""
ITEMS = [
    {"id": 1, "name": "Ada", "url": "https://a.example/1", "tags": ["x", "y"]},
    {"id": 2, "name": "true", "tags": []},
    {"id": 3, "name": "a|b", "url": "", "tags": None},
]


def dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def test_a_list_of_similar_objects_becomes_a_table() -> None:
    value = {"query": "x", "total": 3, "items": ITEMS}
    assert to_tables(dumped(value)) == WRITTEN
    assert from_tables(WRITTEN) == dumped(value)


# What a cell may not be confused with.
ODD = r" |a |||@1|{|[]|null|True|NaN|-1|1e5|.5|-inf|@1 3 rows|\|é|[x|a{b|1:2|1 Main St|2026-01-01".split("|")
odd = st.sampled_from([*ODD, "|", "a|b", '"', "\n", "\u2028", "\x85", "\x7f"])
text = odd | st.text(max_size=6)
leaf = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
value = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=6
)
rows = st.lists(text, min_size=2, max_size=4, unique=True).flatmap(
    lambda names: st.lists(st.fixed_dictionaries(dict.fromkeys(names, value)), min_size=3, max_size=5)
)


@settings(max_examples=100)
@given(st.fixed_dictionaries({"a": rows, "b": value}) | rows | st.lists(rows, max_size=3))
def test_a_table_gives_back_the_same_text(document: Any) -> None:
    written = compact(dumped(document))
    tables = to_tables(written)
    if tables is not None:
        assert from_tables(tables) == written


@each_case(
    "written",
    [
        '[{"a":1.0,"b":1e3},{"a":10000000000000000000001,"b":-0},{"a":1.10,"b":0}]',  # spelling of numbers
        '[{"a":"\\u00e9","b":"\\/"},{"a":"x","b":"y"},{"a":"x","b":"y"}]',  # spelling of strings
    ],
)
def test_spelling_stays(written: str) -> None:
    tables = to_tables(written)
    assert tables is not None
    assert from_tables(tables) == written


@each_case(
    "written",
    [
        '[{"a":1,"a":2,"b":0},{"a":1,"b":2},{"a":1,"b":2}]',  # a name twice
        '[{"a":1,"b":2},{"b":1,"a":2},{"a":1,"b":2}]',  # another order
        '[{"a":1,"b":2},{"a":1,"b":2}]',  # too few
        "[1,2,3]",
        '[{"a":1},{"a":2},{"a":3}]',  # one column is no table
        '[{"a":1,"b":1},{"c":1,"d":1},{"e":1,"f":1}]',  # nothing in common
        "not JSON",
        "[" * 5000,
        '[{"a":1,"b":"' + "x" * MAX_TABLE_CHARS + '"},{"a":1,"b":1},{"a":1,"b":1}]',
    ],
)
def test_a_value_that_is_no_table_stays_json(written: str) -> None:
    assert to_tables(written) is None


@each_case("broken", ["{}\nx", "@1\n@1 2 rows\na|b\n1|2", "@1\n@1 1 rows\na|b\n1|2|3"])
def test_a_broken_table_is_refused(broken: str) -> None:
    with pytest.raises(ValueError, match=r"table|row"):
        from_tables(broken)
