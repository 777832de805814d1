from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.gateway.pipeline.result_pages import (
    PageStart,
    ResultPage,
    SplitResult,
    build_page,
    split_result,
)
from switchboard_mcp.gateway.pipeline.token_bucket import TokenBucket
from tests.cases import each_case


class TestRate:
    def test_a_burst_passes_and_the_next_one_waits_for_a_token(self) -> None:
        bucket = TokenBucket(60, 3, 0.0)
        assert [bucket.take(0.0) for _ in range(3)] == [0, 0, 0]
        assert bucket.take(0.0) == 1.0
        assert bucket.take(0.4) == pytest.approx(0.6)
        assert bucket.take(1.0) == 0

    def test_without_a_burst_a_whole_minute_may_come_at_once(self) -> None:
        bucket = TokenBucket(120, None, 0.0)
        assert [bucket.take(0.0) == 0 for _ in range(121)] == [True] * 120 + [False]

    def test_a_long_pause_earns_no_more_than_the_burst(self) -> None:
        bucket = TokenBucket(60, 2, 0.0)
        assert [bucket.take(1e6) == 0 for _ in range(3)] == [True, True, False]

    @given(st.lists(st.floats(0, 2), max_size=200), st.integers(1, 600), st.integers(1, 20))
    def test_no_more_pass_than_the_burst_and_what_time_brings(
        self, pauses: list[float], calls: int, burst: int
    ) -> None:
        now, passed = 0.0, 0
        bucket = TokenBucket(calls, burst, now)
        for pause in pauses:
            now += pause
            passed += bucket.take(now) == 0
        assert passed <= burst + now * calls / 60 + 1e-6

    @given(st.integers(1, 600), st.integers(1, 20), st.floats(0, 100))
    def test_a_call_after_the_retry_time_is_admitted(self, calls: int, burst: int, start: float) -> None:
        bucket = TokenBucket(calls, burst, start)
        while not (wait := bucket.take(start)):
            pass
        assert bucket.take(start + wait + 1e-6) == 0


def result(*blocks: object, **more: object) -> SplitResult:
    whole = split_result(json.dumps({"content": list(blocks), **more}).encode())
    assert whole is not None
    return whole


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def pages(whole: SplitResult, room: int) -> list[list[dict[str, str]]]:
    found, place = [], PageStart()
    while True:
        one: ResultPage = build_page(whole, place, room)
        found.append([json.loads(bytes(block)) for block in one.blocks])
        if one.next_start is None:
            return found
        assert one.next_start != place
        place = one.next_start


class TestPages:
    @given(st.lists(st.text(max_size=300), max_size=6), st.integers(40, 400))
    def test_the_texts_of_all_pages_together_are_the_texts(self, texts: list[str], room: int) -> None:
        found = pages(result(*map(text, texts)), room)
        paged = [block["text"] for one in found for block in one]
        assert "".join(paged) == "".join(texts)

    @given(st.text(max_size=2000), st.integers(64, 400))
    def test_no_page_has_more_than_its_room(self, value: str, room: int) -> None:
        for one in pages(result(text(value)), room):
            written = sum(len(json.dumps(block["text"], ensure_ascii=False).encode()) for block in one)
            assert written <= room + 8

    def test_a_block_that_is_no_text_stays_whole(self) -> None:
        image = {"type": "image", "data": "A" * 300, "mimeType": "image/png"}
        found = pages(result(text("x" * 500), image, text("end")), 400)
        assert [block for one in found for block in one if block["type"] == "image"] == [image]
        assert found[-1][-1] == text("end")

    def test_a_block_that_never_fits_is_left_out_with_a_note(self) -> None:
        image = {"type": "image", "data": "A" * 3000, "mimeType": "image/png"}
        ((before, note, after),) = pages(result(text("a"), image, text("b")), 1000)
        assert (before, after) == (text("a"), text("b"))
        assert "image" in note["text"]
        assert "3,0" in note["text"]

    def test_structured_content_is_dropped_where_text_says_the_same(self) -> None:
        whole = result(text("{}"), structuredContent={"a": 1}, isError=True)
        assert whole.blocks == ["{}"]
        assert set(whole.members) == {"isError"}

    def test_structured_content_alone_becomes_text(self) -> None:
        assert json.loads(str(result(structuredContent={"a": 1}).blocks[0])) == {"a": 1}

    @each_case("odd", [b"[]", b'{"content":5}', b'{"content":[1]}', b"nothing"])
    def test_unreadable_text_is_not_cut(self, odd: bytes) -> None:
        assert split_result(odd) is None
