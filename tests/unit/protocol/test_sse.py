from __future__ import annotations

import itertools
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.protocol.framing import OVERSIZED_EXCERPT_BYTES, Oversized
from switchboard_mcp.protocol.jsonrpc import find_id
from switchboard_mcp.protocol.sse import EventStream, ServerSentEvent
from tests.cases import each_case

ANSWER = '{"jsonrpc":"2.0","id":2,"result":{"text":"naïve ☕ 🎉"}}'.encode()
NOTE = b'{"jsonrpc":"2.0","method":"notifications/x"}'


def events(chunks: Iterable[bytes], limit: int = 1 << 20) -> list[ServerSentEvent | Oversized]:
    stream = EventStream(limit)
    return [event for chunk in chunks for event in stream.feed(chunk)]


def bytewise(data: bytes) -> list[bytes]:
    return [data[place : place + 1] for place in range(len(data))]


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


# A stream with all that servers write, and what must come out.
EVERYTHING: list[tuple[bytes, list[ServerSentEvent]]] = [
    (b"\xef\xbb\xbf: hello\n\n", []),
    (b"event: message\ndata: " + ANSWER + b"\n\n", [ServerSentEvent("message", ANSWER)]),
    (b"event: message\r\ndata: " + NOTE + b"\r\n\r\n", [ServerSentEvent("message", NOTE)]),
    (b"data:" + NOTE + b"\rid:7\r\r", [ServerSentEvent("message", NOTE)]),
    (b": ping - 2026-01-01 00:00:00\n\n\n\n", []),
    (b"id: 8\nretry: 500\ndata:\n\n", [ServerSentEvent("message", b"")]),
    (
        b"event: endpoint\ndata: /messages?session_id=1\n\n",
        [ServerSentEvent("endpoint", b"/messages?session_id=1")],
    ),
    (b"data: a\ndata:  b\ndata\nignored: x\nignored\n\n", [ServerSentEvent("message", b"a\n b\n")]),
    (b"data: caf\xe9\n\n", [ServerSentEvent("message", b"caf\xe9")]),
    (b"id: 9\n\n", [ServerSentEvent("message", b"")]),
]
STREAM = b"".join(data for data, _ in EVERYTHING)
EVENTS = [event for _, found in EVERYTHING for event in found]


class TestChunking:
    def test_a_stream_fed_whole_gives_its_events_in_order(self) -> None:
        assert events([STREAM]) == EVENTS

    def test_a_stream_fed_byte_by_byte_gives_the_same(self) -> None:
        assert events(bytewise(STREAM)) == EVENTS

    @given(st.sets(st.integers(0, len(STREAM)), max_size=40))
    def test_a_stream_cut_anywhere_gives_the_same(self, places: set[int]) -> None:
        assert events(cut(STREAM, places)) == EVENTS

    def test_an_event_comes_out_with_its_blank_line_and_not_before(self) -> None:
        stream = EventStream()
        assert stream.feed(b"data: 1\n") == []
        assert stream.feed(b"\n") == [ServerSentEvent("message", b"1")]

    def test_an_event_cut_off_by_the_end_of_the_stream_is_dropped(self) -> None:
        assert events([b"data: 1\n\ndata: 2\n"]) == [ServerSentEvent("message", b"1")]


class TestTakingUpAgain:
    def test_the_last_id_holds_until_another_is_given(self) -> None:
        stream = EventStream()
        assert stream.last_id == ""
        stream.feed(b"id: 7\ndata: x\n\ndata: y\n\n")
        assert stream.last_id == "7"
        stream.feed("id: ü/8\n\n".encode())
        assert stream.last_id == "ü/8"

    def test_the_id_of_an_event_that_was_cut_off_does_not_count(self) -> None:
        stream = EventStream()
        stream.feed(b"id: 7\n\nid: 8\ndata: half")
        assert stream.last_id == "7"

    def test_an_id_with_a_nul_is_none(self) -> None:
        stream = EventStream()
        stream.feed(b"id: 7\n\nid: 8\0\ndata: x\n\n")
        assert stream.last_id == "7"

    def test_the_time_to_wait_is_what_was_said_last_in_whole_milliseconds(self) -> None:
        stream = EventStream()
        assert stream.retry_ms is None
        stream.feed(
            b"retry: 500\n\nretry: soon\n\nretry: 1.5\n\nretry: -1\n\nretry: " + b"9" * 5000 + b"\n\n"
        )
        assert stream.retry_ms == 500

    def test_another_stream_goes_on_from_the_same_place_with_nothing_of_the_one_before(self) -> None:
        stream = EventStream()
        stream.feed(b"id: 7\nretry: 5\n\nid: 8\nevent: odd\ndata: half")
        stream.restart()
        assert (stream.last_id, stream.retry_ms) == ("7", 5)
        assert stream.feed(b"\xef\xbb\xbfdata: whole\n\n") == [ServerSentEvent("message", b"whole")]
        assert stream.last_id == "7"


class TestLimit:
    HUGE = b'{"jsonrpc":"2.0","id":41,"result":"' + b"x" * 9000 + b'"}'

    @each_case("size", [1, 7, 1000, 1 << 20])
    def test_an_event_beyond_the_limit_is_named_and_the_next_one_is_whole(self, size: int) -> None:
        data = b"event: message\ndata: " + self.HUGE + b"\n\ndata: next\n\n"
        chunks = cut(data, range(0, len(data), size))
        huge, following = events(chunks, limit=4096)
        assert isinstance(huge, Oversized)
        assert huge.size > 9000
        assert find_id(huge.head, b"") == b"41"
        assert huge.head == self.HUGE[:OVERSIZED_EXCERPT_BYTES]
        assert huge.tail.endswith(b'xxx"}')
        assert following == ServerSentEvent("message", b"next")

    def test_many_lines_of_data_count_together(self) -> None:
        data = b"data: " + b"x" * 100 + b"\n"
        huge, following = events([data * 100, b"\ndata: next\n\n"], limit=4096)
        assert isinstance(huge, Oversized)
        assert following == ServerSentEvent("message", b"next")

    def test_an_event_at_the_limit_passes(self) -> None:
        assert events([b"data:" + b"x" * 4091 + b"\n\n"], limit=4096) == [
            ServerSentEvent("message", b"x" * 4091)
        ]

    def test_comments_never_add_up_to_an_event_beyond_the_limit(self) -> None:
        assert events([b": ping\n"] * 10_000 + [b"data: x\n\n"], limit=64) == [
            ServerSentEvent("message", b"x")
        ]
