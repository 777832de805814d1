"""Results in parts: heads, pages and searches lose nothing that they do not say."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from switchboard_mcp.suites.results import answers
from switchboard_mcp.suites.results.answers import (
    KeptResult,
    compact,
    head_of,
    lines_with,
    page_of,
    read_result,
    text_answer,
)
from switchboard_mcp.suites.token_estimate import estimate
from tests.cases import each_case


def body(*texts: str, **members: object) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text} for text in texts], **members}).encode()


def test_a_text_is_a_serialisation_only_if_it_says_the_same() -> None:
    same = read_result(body('{ "a": [1, 2] }', structuredContent={"a": [1, 2]}))
    other = read_result(body('{ "a": [1, 2] }', structuredContent={"a": [1, 3]}))
    page = read_result(body("a page", structuredContent={"result": "a page"}))
    assert same is not None
    assert same.serialised
    assert other is not None
    assert not other.serialised
    assert page is not None
    assert not page.serialised


@each_case(
    "other",
    [
        b"{}",
        b'{"resultType":"input_required","inputRequests":{}}',
        b'{"task":{"taskId":"t"}}',
        b'{"content":7}',
        b"[]",
    ],
)
def test_a_result_of_another_form_stays_unchanged(other: bytes) -> None:
    assert read_result(other) is None


def test_other_members_and_blocks_stay() -> None:
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    raw = {"content": [{"type": "text", "text": "long"}, image], "_meta": {"k": 1}, "isError": True}
    kept = read_result(json.dumps(raw).encode())
    assert kept is not None
    assert kept.is_error
    answer = json.loads(text_answer(kept, "short"))
    assert answer == {
        "content": [{"type": "text", "text": "short"}, image],
        "_meta": {"k": 1},
        "isError": True,
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(json_values, st.sampled_from([None, 2]))
def test_compact_json_has_the_same_value_and_is_never_larger(value: object, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    shorter = compact(text)
    assert json.loads(shorter) == value
    assert len(shorter) <= len(text)


def test_numbers_and_escapes_keep_their_spelling() -> None:
    text = '{"a": 1.0, "b": 12345678901234567890, "c": "\\u00e9", "a": 2}'
    assert compact(text) == text.replace(": ", ":").replace(", ", ",")


@given(st.text(max_size=3000), st.integers(20, 200), st.integers(0, 4000), st.integers(0, 4000))
def test_the_pages_of_a_text_make_the_whole(text: str, tokens: int, shown: int, end: int) -> None:
    end = end if end < len(text) else 0
    _, pages = page_of(text, 1, tokens, shown, end)
    assert "".join(page_of(text, number, tokens, shown, end)[0] for number in range(1, pages + 1)) == text
    assert page_of(text, pages + 1, tokens, shown, end)[0] == ""
    if 0 < shown < len(text) - end:
        assert page_of(text, 1, tokens, shown, end)[0] == text[:shown]
    if end:
        assert page_of(text, pages, tokens, shown, end)[0] == text[-end:]


def test_a_head_is_about_as_long_as_asked_and_ends_with_a_line() -> None:
    text = "".join(f"line {number} of the file\n" for number in range(5000))
    head, shown, end = head_of(text, 1000, exact_json=False)
    assert text.startswith(head)
    assert (shown, end) == (len(head), 0)
    assert head.endswith("\n")
    assert 700 < estimate(head) < 1200


def test_the_end_of_a_log_is_kept() -> None:
    text = "".join(f"step {number}\n" for number in range(5000)) + "Error: exit code 3"
    head, shown, end = head_of(text, 1000, exact_json=False)
    assert head.startswith(text[:shown])
    assert head.endswith(text[-end:])
    assert head.endswith("Error: exit code 3")
    assert "lines …]" in head


def test_a_search_shows_lines_with_their_numbers() -> None:
    text = "\n".join(f"line {number}" for number in range(1, 100)) + "\nthe needle is here\nafter"
    found = lines_with(text, "needle", 100, bool)
    assert "100: the needle is here" in found
    assert "98: line 98" in found
    assert lines_with(text, "nothing of it", 100, bool) == ""


@given(json_values)
def test_json_that_is_decoded_in_parts_has_the_same_value(value: object) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(answers, "PART_BYTES", 4)
        kept = KeptResult("", [], Raw(json.dumps([value]).encode()))
        assert kept.value() == [value]
