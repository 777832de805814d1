"""`select`: what it understands, what it refuses, and that no expression takes long."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.suites.results.select import MAX_CHARS, SelectError, compile_select
from tests.cases import each_case

VALUE = {
    "total": 2,
    "items": [
        {"id": 1, "state": "open", "price": 5, "tags": ["a"]},
        {"id": 2, "state": "closed", "price": 150.5, "done": True},
    ],
    "odd name": {"x": None},
}


@each_case(
    ("expression", "answer"),
    [
        ("total", 2),
        ("$.total", 2),
        (".total", 2),
        ("$", VALUE),
        ("@", VALUE),
        ('"odd name"', {"x": None}),
        ("items[0].id", 1),
        ("items[-1].id", 2),
        ("items[:1].id", [1]),
        ("items[].id", [1, 2]),
        ("items[*].id", [1, 2]),
        ("items[].{n:id,s:state}", [{"n": 1, "s": "open"}, {"n": 2, "s": "closed"}]),
        ("items[].[id,state]", [[1, "open"], [2, "closed"]]),
        ("items[?state=='open'].id", [1]),
        ('items[?state=="open"].id', [1]),
        ("items[?state='open'].id", [1]),
        ("items[?price > 100].id", [2]),
        ("items[?price > `100`].id", [2]),
        ("items[?price >= 150.5].id", [2]),
        ("items[?done == true].id", [2]),
        ("items[?@.state=='open'].id", [1]),
        ("items[?state=='open' || price > 100] | [0].id", 1),
        ("items[?!done].id", [1]),
        ("length(items)", 2),
        ("items[?contains(state, 'ope')].id", [1]),
        ("items[?starts_with(state, 'c')].id", [2]),
        ("keys(@)", ["total", "items", "odd name"]),
        ("items[?state=='none']", []),
        ("items[].tags[]", ["a"]),
    ],
)
def test_an_expression_selects(expression: str, answer: object) -> None:
    assert compile_select(expression).apply(VALUE, bool) == answer


@each_case(
    ("expression", "problem"),
    [
        ("items[?price > ]", 'cannot read "items[?price > ]" at column 16. Example:'),
        ("items[", "cannot read"),
        ("'", "cannot read"),
        ("items[?a == `x y`]", "between backticks"),
        ("sort(items)", "function sort is not available here"),
        ("map(&id, items)", "is not available here"),
        ("x" * (MAX_CHARS + 1), f"longer than {MAX_CHARS} characters"),
        ("||".join(["a"] * 40), "more than 60 parts"),
        ("(" * 90 + "a" + ")" * 90, ""),
    ],
)
def test_an_expression_that_cannot_be_used_is_refused_before_the_call(expression: str, problem: str) -> None:
    if problem:
        with pytest.raises(SelectError, match="select: ") as refused:
            compile_select(expression)
        assert problem in str(refused.value)
    else:
        compile_select(expression)


@each_case(
    ("expression", "problem"),
    [
        ("item[].id", 'no field "item" here. Nearest: "items". Shape: {total:int,items:[2]{id:int'),
        ("items[].stat", 'no field "stat" here. Nearest: "state".'),
        ("items[?stat=='open']", 'no field "stat" here. Nearest: "state".'),
        ("items.id", '"id" is asked of a list. Write [].id behind it.'),
        ("length(total)", "Shape:"),
    ],
)
def test_a_selection_of_nothing_has_a_reason(expression: str, problem: str) -> None:
    with pytest.raises(SelectError, match="select: ") as refused:
        compile_select(expression).apply(VALUE, bool)
    assert problem in str(refused.value)


HOSTILE = {"items": [{"a": {"b": [1, 2, 3]}, "c": "x"} for _ in range(20_000)]}


@each_case(
    "expression",
    [
        "items[?" + "||".join(["c=='y'"] * 20) + "]",
        "|".join(["[@,@]"] * 30),
        "*[].*[].*[].*[].*",
        "items[].items[].items[]",
        "items[?items[?items[?c=='x']]]",
        "[items,items,items,items,items,items,items,items]|[*][].[a,a,a,a,a,a,a,a]",
    ],
)
def test_no_expression_takes_long(expression: str) -> None:
    began = time.thread_time()
    with suppress(SelectError):
        compile_select(expression).apply(HOSTILE, bool)
    assert time.thread_time() - began < 10


@given(st.text(alphabet="abc.[]*?=<>!&|(){}:,@$'\"`0123456789 \\_-", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(SelectError):
        compile_select(text).apply(VALUE, bool)


DIALECTS = ("items[?{f}=={v}]", "$.items[?{f} == {v}]", ".items[?(@.{f}=={v})]", "items[?@.{f} = {v}]")
values = st.integers(-50, 50) | st.booleans() | st.text(alphabet="abé '|xyz-0", max_size=5)


@given(st.lists(values, min_size=1, max_size=6), st.data())
def test_every_dialect_of_a_filter_finds_the_same_and_a_wrong_name_is_never_an_empty_list(
    states: list[object], data: st.DataObject
) -> None:
    document = {"items": [{"state": state} for state in states]}
    wanted = data.draw(st.sampled_from(states))
    literal = json.dumps(wanted, ensure_ascii=False)
    same = [row for row in document["items"] if json.dumps(row["state"]) == json.dumps(wanted)]
    for dialect in DIALECTS:
        assert compile_select(dialect.format(f="state", v=literal)).apply(document, bool) == same
        with pytest.raises(SelectError, match=r'no field "stat" here\. Nearest: "state"'):
            compile_select(dialect.format(f="stat", v=literal)).apply(document, bool)
