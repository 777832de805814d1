from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.suites.summary import one_line, summarise
from tests.cases import each_case

TWO_SENTENCES = "Reads a file. Then it prints every line of it, one after the other."


@each_case(
    ("text", "limit", "expected"),
    [
        pytest.param("Reads a file.", 160, "Reads a file.", id="short text stays"),
        pytest.param("  Reads\n\n\ta   file. ", 160, "Reads a file.", id="white space collapses"),
        pytest.param("Reads   a file.", 13, "Reads a file.", id="fits once white space is gone"),
        pytest.param("", 10, "", id="nothing"),
        pytest.param(" \n ", 10, "", id="only white space"),
        pytest.param(TWO_SENTENCES, 20, "Reads a file. …", id="sentence that ends in the second half"),
        pytest.param(
            TWO_SENTENCES, 40, "Reads a file. Then it prints every line…", id="word when it ended too early"
        ),
        pytest.param(
            TWO_SENTENCES,
            38,
            "Reads a file. Then it prints every…",
            id="never half a word when a gap is near",
        ),
        pytest.param(
            "Is it there? (Or not!) Who knows what else", 28, "Is it there? (Or not!) …", id="other stops"
        ),
        pytest.param("Takes a path, e.g. a folder somewhere", 26, "Takes a path, e.g. a…", id="abbreviation"),
        pytest.param(
            "Version 1.25 of everything that there is", 14, "Version 1.25…", id="a stop inside a number"
        ),
        pytest.param("abcdefghijklmnop", 6, "abcde…", id="one long word"),
        pytest.param("one two, three", 9, "one two…", id="no comma before the ellipsis"),
        pytest.param(
            "把坐标转换为地址。支持各种名称和编号的解析", 14, "把坐标转换为地址。 …", id="wide full stop"
        ),
        pytest.param("word", 1, "…", id="limit of one"),
        pytest.param("word", 2, "w…", id="limit of two"),
        pytest.param("word", 0, "", id="no room at all"),
    ],
)
def test_a_text_becomes_one_line_cut_at_a_good_place(text: str, limit: int, expected: str) -> None:
    assert summarise(text, limit) == expected


@each_case(
    "cluster",
    ["👨‍👩‍👧‍👦", "👍🏽", "e\u0301", "🇩🇪", "❤\ufe0f", "🏴\U000e0067\U000e0062\U000e007f"],
    ids=["family", "skin tone", "accent", "flag", "variation", "tag"],
)
@each_case("limit", range(9, 24))
def test_a_cut_never_splits_what_a_reader_sees_as_one_character(cluster: str, limit: int) -> None:
    summary = summarise(cluster * 30, limit)
    kept = summary.removesuffix("…")
    assert summary.endswith("…")
    assert kept == cluster * (len(kept) // len(cluster))
    assert len(summary) <= limit


def test_a_cluster_longer_than_the_line_is_shown_in_part() -> None:
    assert summarise("e" + "\u0301" * 50, 5) == "e" + "\u0301" * 3 + "…"


@given(st.text(), st.integers(1, 200))
def test_a_summary_keeps_to_the_limit_and_says_when_it_was_cut(text: str, limit: int) -> None:
    summary = summarise(text, limit)
    whole = one_line(text)
    assert len(summary) <= limit
    if len(whole) <= limit:
        assert summary == whole
    else:
        assert summary.endswith("…")
        assert whole.startswith(summary[:-1].rstrip())


@given(st.text(alphabet="ab .,!? \n", max_size=400), st.integers(1, 60))
def test_a_summary_is_one_line_of_single_spaces(text: str, limit: int) -> None:
    summary = summarise(text, limit)
    assert summary == one_line(summary)


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=1), st.integers(1, 40))
def test_a_summary_stays_valid_utf_8(text: str, limit: int) -> None:
    summary = summarise(text, limit)
    assert summary.encode().decode() == summary
    assert not any(unicodedata.category(character) == "Cs" for character in summary)
