from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.suites.token_estimate import estimate
from tests.cases import each_case

# Text and its count by a real o200k tokenizer.
COUNTED = [
    ("PROSE", "Read the complete contents of a file from the file system as text.", 14),
    ("NAMES", '{"name":"list_pull_requests","summary":"List the pull requests of a repository."}', 18),
    (
        "SCHEMA",
        (
            '{"type":"object","properties":{"path":{"type":"string","description":"Where the file lies"},'
            '"head":{"type":"integer","minimum":1,"maximum":100}},"required":["path"],"additionalProperties":false}'
        ),
        46,
    ),
    ("SIGNATURE", '(path: string "where it lies", head?: integer(1..100)=10, mode: "fast"|"careful")', 27),
]


@each_case(("text", "counted"), [case[1:] for case in COUNTED], ids=[case[0] for case in COUNTED])
def test_the_estimate_is_near_the_real_count(text: str, counted: int) -> None:
    assert estimate(text) == pytest.approx(counted, rel=0.15)


def test_indentation_costs_little() -> None:
    flat = '{\n"a": 1,\n"b": 2\n}'
    assert estimate(flat.replace("\n", "\n            ")) == estimate(flat)


def test_other_scripts_cost_by_the_character() -> None:
    assert 12 <= estimate("将一个经纬度坐标转换为行政区划地址信息") <= 16


def test_an_empty_text_costs_no_tokens() -> None:
    assert estimate("") == 0


@given(st.text())
def test_text_and_its_bytes_cost_the_same(text: str) -> None:
    assert estimate(text) == estimate(text.encode("utf-8", "surrogatepass"))


@given(st.text(), st.text())
def test_more_text_never_costs_less(text: str, more: str) -> None:
    assert estimate(text + more) >= estimate(text)


@given(st.lists(st.text(alphabet='abcXYZ 019{}":,', min_size=1), max_size=20))
def test_the_cost_of_a_whole_is_about_the_cost_of_its_parts(parts: list[str]) -> None:
    apart = sum(estimate(part) for part in parts)
    # A border between two parts can join or split one word, and every part is rounded.
    assert abs(estimate(",".join(parts)) - apart) <= 3 * len(parts) + 1
