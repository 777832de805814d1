from __future__ import annotations

from typing import Any

from switchboard_mcp.redaction.arguments import compile_masks
from switchboard_mcp.redaction.redactor import MASK
from tests.cases import each_case

ARGS: dict[str, Any] = {
    "user": "ada",
    "password": "hunter22",
    "card": {"number": 41111111, "holder": "Ada L", "Password": "deep"},
    "people": [{"pin": "1234", "name": "Ada"}, {"pin": "5678", "name": "Bob"}],
    "x-auth-a": "one",
    "x-auth-b": {"inner": ["two"]},
    "flag": True,
}


@each_case(
    ("patterns", "hidden"),
    [
        (["password"], ["hunter22", "deep"]),
        (["PASSWORD"], ["hunter22", "deep"]),
        (["card.number"], ["41111111"]),
        (["card.*"], ["41111111", "Ada L", "deep"]),
        (["*.password"], ["deep"]),
        (["people.pin"], ["1234", "5678"]),
        (["x-auth-*"], ["one", "two"]),
        (["**.inner"], ["two"]),
        (["card.**.password"], ["deep"]),
        (["flag"], []),
        (["nothing.here", "number"], ["41111111"]),
    ],
)
def test_a_mask_hides_what_it_names_and_nothing_else(patterns: list[str], hidden: list[str]) -> None:
    masks = compile_masks(tuple(patterns))
    assert masks is not None
    assert sorted(masks.values_to_hide(ARGS)) == sorted(hidden)
    shown = str(masks.mask(ARGS))
    assert [text for text in hidden if text in shown] == []
    assert ("Bob" in shown) is ("Bob" not in hidden)


def test_a_mask_keeps_the_place_of_its_value() -> None:
    masks = compile_masks(("card.number", "people.pin", "flag"))
    assert masks is not None
    assert masks.mask(ARGS) == {
        **ARGS,
        "card": {"number": MASK, "holder": "Ada L", "Password": "deep"},
        "people": [{"pin": MASK, "name": "Ada"}, {"pin": MASK, "name": "Bob"}],
        "flag": MASK,
    }


def test_no_patterns_are_no_masks() -> None:
    assert compile_masks(()) is None
    assert compile_masks(("",)) is None


def test_arguments_nested_beyond_reason_are_masked_whole() -> None:
    deep: Any = "secret"
    for _ in range(3000):
        deep = {"a": deep}
    masks = compile_masks(("b",))
    assert masks is not None
    assert "secret" not in str(masks.mask(deep))
    assert masks.values_to_hide(deep) == []
