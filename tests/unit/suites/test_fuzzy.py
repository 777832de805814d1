from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.suites.fuzzy import nearest, rank
from tests.cases import each_case

TOOLS = [
    ("create_issue", "Open a new issue in a repository."),
    ("listIssues", "Shows the issues of a repository, newest first."),
    ("delete-file", "Remove one file."),
    ("search_code", "Find text in every file of a repository."),
    ("HTTPFetch", "Download a web page and return it as markdown."),
    ("maps_weather", "查询指定城市的天气"),
]
NAMES = [
    "create_issue",
    "list_issues",
    "get_pull_request",
    "searchCode",
    "delete-file",
    "read_file",
    "write_file",
]


def found(query: str, floor: float = 0.0) -> list[str]:
    return [TOOLS[place][0] for place in rank(query, TOOLS, floor)]


@each_case(
    ("query", "best"),
    [
        ("create issue", "create_issue"),
        ("creating issues", "create_issue"),
        ("issue creation", "create_issue"),
        ("list issues", "listIssues"),
        ("deleted files", "delete-file"),
        ("deleteFile", "delete-file"),
        ("search_code", "search_code"),
        ("http", "HTTPFetch"),
        ("downloading pages", "HTTPFetch"),
        ("城市天气", "maps_weather"),
        ("CREATE", "create_issue"),
    ],
)
def test_the_best_match_comes_first(query: str, best: str) -> None:
    assert found(query)[0] == best


@each_case("query", ["", "   ", "!?", "quantum", "was via"])
def test_a_query_that_shares_no_word_finds_nothing(query: str) -> None:
    assert found(query) == []


def test_only_documents_that_match_are_returned() -> None:
    assert sorted(found("issue")) == ["create_issue", "listIssues"]


def test_a_word_in_the_name_counts_more_than_in_the_text() -> None:
    documents = [("other", "weather report"), ("weather", "other report")]
    assert rank("weather", documents) == [1, 0]


def test_empty_words_do_not_count_beside_real_ones() -> None:
    assert "search_code" not in found("in a new issue")


def test_a_query_of_empty_words_alone_is_still_tried() -> None:
    assert rank("for you", [("thanks", "for you"), ("other", "text")]) == [0]


def test_equal_scores_keep_their_order() -> None:
    assert rank("same", [("same", ""), ("same", ""), ("same", "")]) == [0, 1, 2]


def test_weak_matches_fall_below_the_floor() -> None:
    everything = found("delete file repository")
    strong = found("delete file repository", 0.5)
    assert everything[: len(strong)] == strong
    assert len(strong) < len(everything)
    assert strong[0] == "delete-file"


def test_no_documents_match_nothing() -> None:
    assert rank("anything", []) == []


@given(st.text(), st.lists(st.tuples(st.text(), st.text()), max_size=10))
def test_any_text_ranks_without_repeats(query: str, documents: list[tuple[str, str]]) -> None:
    places = rank(query, documents)
    assert len(set(places)) == len(places)
    assert set(places) <= set(range(len(documents)))


@each_case(
    ("misspelt", "expected"),
    [
        pytest.param("createIssue", ["create_issue"], id="other case and separator"),
        pytest.param("READ-FILE", "read_file", id="capitals"),
        pytest.param("issue_create", ["create_issue"], id="other order of words"),
        pytest.param("create_isue", ["create_issue"], id="letter missing"),
        pytest.param("list_issue", "list_issues", id="singular"),
        pytest.param("pull", ["get_pull_request"], id="part of the name"),
        pytest.param("read", ["read_file"], id="beginning of the name"),
        pytest.param("delete_file_now", "delete-file", id="more than the name"),
        pytest.param("zzz", [], id="nothing near"),
        pytest.param("", [], id="nothing asked"),
        pytest.param("__", [], id="only separators"),
    ],
)
def test_a_misspelt_name_finds_what_was_meant(misspelt: str, expected: str | list[str]) -> None:
    near = nearest(misspelt, NAMES)
    assert near == expected if isinstance(expected, list) else near[0] == expected


def test_the_same_letters_come_before_a_longer_name() -> None:
    assert nearest("getfile", ["get_file_info", "get_file", "get"])[0] == "get_file"


def test_no_more_names_than_asked_for() -> None:
    assert len(nearest("file", ["file1", "file2", "file3", "file4"])) == 3
    assert len(nearest("file", ["file1", "file2", "file3", "file4"], count=1)) == 1


@given(st.text(), st.lists(st.text(), max_size=8))
def test_near_names_are_known_names(misspelt: str, known: list[str]) -> None:
    near = nearest(misspelt, known)
    assert set(near) <= set(known)
    assert len(near) == len(set(near)) <= 3
