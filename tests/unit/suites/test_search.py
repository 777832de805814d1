from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.suites.search import COMMON, Index, SearchDocument
from tests.cases import each_case

ENTRIES = [
    SearchDocument("create_issue", "Open a new issue in a repository. Labels are optional.", "github"),
    SearchDocument("search", "Search the encyclopedia for articles.", "wikipedia"),
    SearchDocument("search", "Look up places by name.", "maps", parameters="query radius latitude longitude"),
    SearchDocument("write_file", "Write text to a file.", "filesystem"),
    SearchDocument(
        "get_quote",
        "The latest price of a stock.",
        "finance",
        about="Markets, currencies and financial news.",
    ),
    SearchDocument("calculate", "Work out an expression.", "calculator"),
]


def found(query: str) -> list[str]:
    return [f"{ENTRIES[hit.place].server}.{ENTRIES[hit.place].name}" for hit in Index(ENTRIES).search(query)]


@each_case(
    ("query", "best"),
    [
        pytest.param("search wikipedia", "wikipedia.search", id="the name of the server"),
        pytest.param("places within a radius", "maps.search", id="a parameter"),
        pytest.param("save my notes", "filesystem.write_file", id="a word that means nearly the same"),
        pytest.param("wiki", "wikipedia.search", id="the beginning of a word"),
        pytest.param("githubs", "github.create_issue", id="more than the word"),
        pytest.param("caculate the sum", "calculator.calculate", id="a word misspelt"),
        pytest.param("currencies", "finance.get_quote", id="what the server says of itself"),
        pytest.param("please help me to open an issue", "github.create_issue", id="a polite sentence"),
        pytest.param("calculations", "calculator.calculate", id="another form of the word"),
    ],
)
def test_a_sentence_finds_the_tool_it_means(query: str, best: str) -> None:
    assert found(query)[0] == best


REQUESTS = [
    SearchDocument("create_pull_request", "Propose changes to a repository.", "github"),
    SearchDocument("delete_file", "Remove a file.", "filesystem"),
    SearchDocument("list_files", "Show the files of a folder.", "filesystem"),
    SearchDocument("list_pods", "List the pods of a Kubernetes cluster.", "cluster"),
    SearchDocument("get_current_time", "The current time in a timezone.", "clock"),
    SearchDocument("convert_time", "Convert a time between timezones.", "clock"),
    SearchDocument("forecast", "The weather of the next days.", "sky"),
    SearchDocument("get_links", "All URLs of a page.", "web"),
]


@each_case(
    ("query", "best"),
    [
        pytest.param("open a PR", "create_pull_request", id="an abbreviation"),
        pytest.param("my open PRs", "create_pull_request", id="an abbreviation in the plural"),
        pytest.param("k8s", "list_pods", id="an abbreviation with a digit"),
        pytest.param("what time is it in Tokyo", "get_current_time", id="a question"),
        pytest.param("files, but do not delete any", "list_files", id="a negation"),
        pytest.param("Wie wird das Wetter?", "forecast", id="German"),
        pytest.param("la météo à Paris", "forecast", id="French with accents"),
        pytest.param("url", "get_links", id="capitals in the plural"),
    ],
)
def test_a_query_is_read_as_people_write(query: str, best: str) -> None:
    assert REQUESTS[Index(REQUESTS).search(query)[0].place].name == best


def test_a_query_of_negations_only_is_still_searched() -> None:
    assert Index(REQUESTS).search("not delete")


@each_case("query", ["", "zebra", "?!", "xylophone zither"])
def test_words_that_nobody_knows_find_nothing(query: str) -> None:
    assert found(query) == []


def test_the_first_sentence_of_a_description_counts_more_than_the_rest() -> None:
    index = Index(
        [
            SearchDocument("a", "Other things. Also weather."),
            SearchDocument("b", "Weather. Also other things."),
        ]
    )
    assert [hit.place for hit in index.search("weather")] == [1, 0]


def test_the_word_itself_counts_more_than_a_rarer_one_that_means_nearly_the_same() -> None:
    common = [SearchDocument(f"tool_{number}", "Whatever was created.") for number in range(9)]
    index = Index(
        [
            *common,
            SearchDocument("add_comment", "Write under an issue."),
            SearchDocument("create_issue", "Open an issue."),
        ]
    )
    assert index.search("create an issue")[0].place == len(common) + 1


def test_no_more_hits_than_asked_for_best_first() -> None:
    hits = Index(ENTRIES).search("search the issue file", limit=2)
    assert len(hits) == 2
    assert hits[0].score >= hits[1].score


def test_a_word_that_all_tools_share_only_tells_the_found_apart() -> None:
    many = [SearchDocument(f"get_{number}", "Get a thing.") for number in range(COMMON + 1)]
    index = Index([*many, SearchDocument("get_weather", "Get the weather.")])
    assert [hit.place for hit in index.search("get weather")] == [COMMON + 1]
    assert len(index.search("get")) == COMMON + 2


texts = st.text(max_size=40)
entries = st.lists(st.builds(SearchDocument, texts, texts, texts, texts, texts), max_size=8)


@given(texts, entries)
def test_any_text_is_searched_without_repeats_and_the_same_way_twice(
    query: str, known: list[SearchDocument]
) -> None:
    hits = Index(known).search(query)
    assert len({hit.place for hit in hits}) == len(hits)
    assert hits == Index(known).search(query)
    assert all(hit.score > 0 for hit in hits)


@given(entries.filter(bool))
def test_a_tool_is_found_by_its_own_words(known: list[SearchDocument]) -> None:
    from switchboard_mcp.suites.text_analysis import words

    if words(known[0].name):
        assert 0 in {hit.place for hit in Index(known).search(known[0].name)}


@each_case("said", ["Read a file. DEPRECATED: use the other.", "[deprecated] Read a file."])
def test_a_deprecated_tool_comes_after_its_replacement(said: str) -> None:
    index = Index(
        [
            SearchDocument("read_file", said),
            SearchDocument("read_text_file", "Read a file as text."),
            SearchDocument("x", "Else."),
        ]
    )
    assert [hit.place for hit in index.search("read a file")] == [1, 0]
