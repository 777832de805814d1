from __future__ import annotations

import itertools
import time
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.protocol import framing
from switchboard_mcp.protocol.framing import (
    BOM,
    OVERSIZED_EXCERPT_BYTES,
    Frame,
    FrameDecoder,
    NonMessage,
    Oversized,
)
from switchboard_mcp.protocol.jsonrpc import find_id
from tests.cases import each_case

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
ANSWER = '{"jsonrpc":"2.0","id":2,"result":{"text":"naïve ☕ 🎉"}}'.encode()
NOTE = b'{"method":"notifications/x","params":{"deep":[1,2,{"a":"\\n"}]},"jsonrpc":"2.0"}'
BATCH = b'[{"jsonrpc":"2.0","id":3,"method":"a"},{"jsonrpc":"2.0","id":4,"method":"b"}]'


def headed(body: bytes, header: bytes = b"Content-Length: %d\r\n\r\n") -> bytes:
    return header % len(body) + body


def split(chunks: Iterable[bytes], limit: int = framing.MAX_MESSAGE_BYTES) -> list[Frame]:
    """All pieces of a stream, in the order they came out."""
    splitter = FrameDecoder(limit)
    out: list[Frame] = []
    for chunk in chunks:
        out += splitter.feed(chunk)
    return out + splitter.close()


def bytewise(data: bytes) -> list[bytes]:
    return [data[place : place + 1] for place in range(len(data))]


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


# A stream with everything in it that real programs were seen to write, and what must come out.
EVERYTHING: list[tuple[bytes, list[Frame]]] = [
    (b"Server starting on stdio\n", [NonMessage(b"Server starting on stdio")]),
    (PING + b"\n", [PING]),
    (ANSWER + b"\r\n", [ANSWER]),
    (b"\n\r\n", []),
    (b'{"level":"info","msg":"ready","id":1}\n', [NonMessage(b'{"level":"info","msg":"ready","id":1}')]),
    (headed(ANSWER), [ANSWER]),
    (headed(PING), [PING]),
    (NOTE + b"\n", [NOTE]),
    (b"12:00:01 INFO: a line with a colon\n", [NonMessage(b"12:00:01 INFO: a line with a colon")]),
    (
        b"content-LENGTH:%d\nContent-Type: application/vscode-jsonrpc; charset=utf-8\n\n%b"
        % (len(NOTE), NOTE),
        [NOTE],
    ),
    (b"\xff\xfe not UTF-8 \xc3\n", [NonMessage(b"\xff\xfe not UTF-8 \xc3")]),
    (b'{"jsonrpc":"2.0","id":5,"result":"caf\xe9"}\n', [b'{"jsonrpc":"2.0","id":5,"result":"caf\xe9"}']),
    (BATCH + b"\n", [BATCH]),
    (b"[done]\n", [NonMessage(b"[done]")]),
    (b"\x1b[0m\n", [NonMessage(b"\x1b[0m")]),
    (headed(BATCH), [BATCH]),
    (BOM + PING + b"\n", [PING]),
    (b"  \t" + PING + b" \t\n", [PING]),
]
STREAM = b"".join(data for data, _ in EVERYTHING)
PIECES = [piece for _, pieces in EVERYTHING for piece in pieces]


class TestChunking:
    def test_a_stream_fed_whole_gives_its_messages_and_its_noise_in_order(self) -> None:
        assert split([STREAM]) == PIECES

    def test_a_stream_fed_byte_by_byte_gives_the_same(self) -> None:
        assert split(bytewise(STREAM)) == PIECES

    @given(st.sets(st.integers(0, len(STREAM)), max_size=40))
    def test_a_stream_cut_anywhere_gives_the_same(self, places: set[int]) -> None:
        assert split(cut(STREAM, places)) == PIECES

    @given(st.permutations(EVERYTHING), st.sets(st.integers(0, len(STREAM)), max_size=10))
    def test_the_order_of_framings_and_noise_does_not_matter(
        self, parts: list[tuple[bytes, list[Frame]]], places: set[int]
    ) -> None:
        stream = b"".join(data for data, _ in parts)
        assert split(cut(stream, places)) == [piece for _, pieces in parts for piece in pieces]

    @given(
        st.binary(max_size=400), st.sets(st.integers(0, 400), max_size=12), st.sampled_from([8, 64, 10_000])
    )
    def test_any_bytes_at_all_give_the_same_pieces_in_any_chunking(
        self, data: bytes, places: set[int], limit: int
    ) -> None:
        chunks = cut(data, {place for place in places if place <= len(data)})
        assert split(chunks, limit) == split([data], limit) == split(bytewise(data), limit)

    @given(
        st.lists(
            st.sampled_from(
                [
                    *(data for data, _ in EVERYTHING),
                    b"Content-Length: 12\r\n",
                    b"Content-Length: 0\r\n\r\n",
                    b"Content-Length: 9999999999\r\n",
                    b"\r\n",
                    b"\n",
                    b"{",
                    b'"jsonrpc"',
                    BOM,
                    b"x" * 100,
                ]
            ),
            max_size=12,
        ),
        st.sets(st.integers(0, 600), max_size=12),
        st.sampled_from([60, 10_000]),
    )
    def test_lies_and_halves_give_the_same_pieces_in_any_chunking(
        self, parts: list[bytes], places: set[int], limit: int
    ) -> None:
        data = b"".join(parts)
        chunks = cut(data, {place for place in places if place <= len(data)})
        assert split(chunks, limit) == split([data], limit) == split(bytewise(data), limit)

    def test_several_messages_in_one_chunk_come_out_together(self) -> None:
        assert FrameDecoder().feed(PING + b"\n" + ANSWER + b"\n" + headed(NOTE) + PING + b"\n") == [
            PING,
            ANSWER,
            NOTE,
            PING,
        ]

    def test_a_message_is_given_out_as_soon_as_its_newline_is_there(self) -> None:
        splitter = FrameDecoder()
        assert splitter.feed(PING) == []
        assert splitter.feed(b"\n") == [PING]

    def test_a_body_is_given_out_with_its_last_byte(self) -> None:
        splitter = FrameDecoder()
        assert splitter.feed(headed(PING)[:-1]) == []
        assert splitter.feed(PING[-1:]) == [PING]

    @each_case("place", range(1, len(headed(ANSWER))))
    def test_a_message_split_inside_its_headers_or_body_is_whole(self, place: int) -> None:
        data = headed(ANSWER)
        assert split([data[:place], data[place:] + headed(PING)]) == [ANSWER, PING]


class TestContentLength:
    @each_case(
        "header",
        [
            b"Content-Length: %d\r\n\r\n",
            b"content-length: %d\r\n\r\n",
            b"CONTENT-LENGTH:%d\r\n\r\n",
            b"Content-Length: %d\n\n",
            b"Content-Length:    %d  \r\n\r\n",
            b"Content-Length: %d\r\nContent-Type: application/json\r\n\r\n",
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n",
            b"Content-Length: %d\nX-Trace: 1:2:3\nX-Other: y\n\n",
            b"Content-Length: 5\r\nContent-Length: %d\r\n\r\n",
            BOM + b"Content-Length: %d\r\n\r\n",
        ],
    )
    def test_every_spelling_of_the_headers_is_understood(self, header: bytes) -> None:
        assert split([headed(ANSWER, header) + PING + b"\n"]) == [ANSWER, PING]

    def test_a_body_may_hold_newlines_and_comes_out_on_one_line(self) -> None:
        body = b'{\r\n  "jsonrpc": "2.0",\n  "id": 1,\n  "result": "a\\nb"\n}\n'
        (message,) = split([headed(body)])
        assert isinstance(message, bytes)
        assert b"\n" not in message
        assert b"\r" not in message
        assert message.replace(b" ", b"") == b'{"jsonrpc":"2.0","id":1,"result":"a\\nb"}'

    def test_a_byte_order_mark_within_a_body_is_dropped(self) -> None:
        assert split([headed(BOM + PING)]) == [PING]

    def test_a_body_is_a_message_even_without_the_word_jsonrpc(self) -> None:
        assert split([headed(b"{}")]) == [b"{}"]

    def test_newlines_in_a_body_do_not_end_it(self) -> None:
        body = b'{"jsonrpc":"2.0",\n\n"id":1}'
        assert split(bytewise(headed(body) + PING + b"\n")) == [body.replace(b"\n", b" "), PING]

    def test_a_body_that_looks_like_headers_is_a_body(self) -> None:
        body = b"Content-Length: 3\r\n\r\nabc"
        assert split([headed(body) + headed(PING)]) == [body.replace(b"\r\n", b"  "), PING]


class TestLyingHeaders:
    @each_case("value", [b"abc", b"-5", b"", b"1e3", b"+7", b"5 5", b"0x10", "٣".encode()])
    def test_a_length_that_is_no_number_is_noise_and_the_stream_lives_on(self, value: bytes) -> None:
        line = b"Content-Length: " + value
        assert split([line + b"\r\n\r\n" + PING + b"\n"]) == [NonMessage(line.strip()), PING]

    @each_case("digits", ["2147483647", "99999999999999999999", "9" * 5000])
    def test_a_length_beyond_all_reason_does_not_swallow_the_stream(self, digits: str) -> None:
        line = b"Content-Length: " + digits.encode()
        assert split([line + b"\r\n\r\n" + PING + b"\n"]) == [NonMessage(line), PING]

    def test_a_length_of_zero_is_no_message(self) -> None:
        assert split([b"Content-Length: 0\r\n\r\n" + PING + b"\n" + headed(ANSWER)]) == [PING, ANSWER]

    def test_a_json_line_right_after_a_header_line_is_a_message(self) -> None:
        stream = b"Content-Length: 500\n" + PING + b"\n" + ANSWER + b"\n\n" + NOTE + b"\n"
        assert split([stream]) == split(bytewise(stream)) == [PING, ANSWER, NOTE]

    def test_a_json_line_with_a_byte_order_mark_right_after_a_header_line_is_a_message(self) -> None:
        assert split([b"Content-Length: 500\n" + BOM + PING + b"\n"]) == [PING]

    def test_a_batch_right_after_a_header_line_is_a_message(self) -> None:
        assert split([b"Content-Length: 500\n" + BATCH + b"\n" + PING + b"\n"]) == [BATCH, PING]

    def test_a_log_line_without_a_colon_ends_what_looked_like_headers(self) -> None:
        stream = b"Content-Length: 500\nof the upload\n\n" + PING + b"\n"
        assert split([stream]) == [NonMessage(b"of the upload"), PING]

    def test_a_json_log_line_ends_what_looked_like_headers(self) -> None:
        stream = b'Content-Length: 500\n{"level":"info"}\n\n' + PING + b"\n"
        assert split([stream]) == [NonMessage(b'{"level":"info"}'), PING]


class TestEndOfStream:
    def test_a_last_line_without_a_newline_counts(self) -> None:
        assert split([PING + b"\n" + ANSWER]) == [PING, ANSWER]

    def test_a_last_log_line_without_a_newline_is_noise(self) -> None:
        assert split([PING + b"\nbye"]) == [PING, NonMessage(b"bye")]

    def test_a_trailing_newline_adds_no_line(self) -> None:
        splitter = FrameDecoder()
        assert splitter.feed(PING + b"\n") == [PING]
        assert splitter.close() == []

    def test_an_empty_stream_is_empty(self) -> None:
        assert FrameDecoder().close() == []

    @each_case("chop", [1, 10, len(ANSWER) - 1])
    def test_a_body_cut_off_is_noise_and_no_message(self, chop: int) -> None:
        data = headed(ANSWER)[:-chop]
        assert split([data]) == split(bytewise(data)) == [NonMessage(ANSWER[:-chop])]

    def test_the_noise_of_a_long_body_cut_off_is_short(self) -> None:
        data = b"Content-Length: 100000\r\n\r\n" + b"x" * 50_000
        assert split([data]) == [NonMessage(b"x" * OVERSIZED_EXCERPT_BYTES)]

    @each_case("end", [b"Content-Length: 10", b"Content-Length: 10\r\n", b"Content-Length: 10\r\n\r\n"])
    def test_headers_without_a_body_are_nothing(self, end: bytes) -> None:
        assert split([PING + b"\n" + end]) == [PING]

    def test_after_its_end_a_splitter_begins_anew(self) -> None:
        splitter = FrameDecoder(100)
        for half in (
            headed(ANSWER)[:-1],
            ANSWER[:-1],
            b"Content-Length: 50\r\n",
            b"x" * 500,
            headed(b"x" * 500)[:-1],
        ):
            splitter.feed(half)
            splitter.close()
            assert splitter.feed(PING + b"\n") == [PING]


class TestOversized:
    LIMIT = 4096
    FILL = b"y" * 10_000

    def first(self) -> bytes:
        return b'{"jsonrpc":"2.0","id":77,"result":"' + self.FILL + b'"}'

    def last(self) -> bytes:
        return b'{"result":"' + self.FILL + b'","jsonrpc":"2.0","id":"a\\"b"}'

    @each_case("framed", [False, True], ids=["newline", "content-length"])
    @each_case("size", [1, 7, 1000, 4096, 1 << 20])
    def test_one_too_large_message_fails_alone_and_its_id_is_found(self, framed: bool, size: int) -> None:
        stream = b""
        for message in (PING, self.first(), ANSWER, self.last(), NOTE):
            stream += headed(message) if framed else message + b"\n"
        pieces = split([stream[start : start + size] for start in range(0, len(stream), size)], self.LIMIT)
        assert [piece for piece in pieces if isinstance(piece, bytes)] == [PING, ANSWER, NOTE]
        first, last = (piece for piece in pieces if isinstance(piece, Oversized))
        assert first == Oversized(
            len(self.first()), self.first()[:OVERSIZED_EXCERPT_BYTES], self.first()[-OVERSIZED_EXCERPT_BYTES:]
        )
        assert find_id(first.head, first.tail) == b"77"
        assert last.size == len(self.last())
        assert find_id(last.head, last.tail) == b'"a\\"b"'

    @each_case("framed", [False, True], ids=["newline", "content-length"])
    @each_case("over", [-1, 0, 1])
    def test_the_limit_itself_still_passes(self, framed: bool, over: int) -> None:
        message = b'{"jsonrpc":"2.0","result":"%b","id":5}'
        message %= b"x" * (self.LIMIT + over - len(message) + 2)
        assert len(message) == self.LIMIT + over
        stream = headed(message) if framed else message + b"\n"
        for chunks in ([stream], cut(stream, {30, 4000}), bytewise(stream)):
            (piece,) = split(chunks, self.LIMIT)
            if over > 0:
                assert isinstance(piece, Oversized)
                assert find_id(piece.head, piece.tail) == b"5"
            else:
                assert piece == message

    def test_an_oversized_last_line_is_reported_at_the_end(self) -> None:
        (piece,) = split(cut(self.first(), {5000}), self.LIMIT)
        assert isinstance(piece, Oversized)
        assert piece.size == len(self.first())

    def test_discarded_data_is_not_kept_meanwhile(self) -> None:
        splitter = FrameDecoder(self.LIMIT)
        for _ in range(1000):
            assert splitter.feed(self.FILL) == []
        assert (
            sum(map(len, splitter._parts)) + len(splitter._head) + len(splitter._tail)
            <= 2 * OVERSIZED_EXCERPT_BYTES
        )

    def test_an_oversized_message_does_not_change_what_a_later_one_keeps(self) -> None:
        splitter = FrameDecoder(self.LIMIT)
        splitter.feed(b"a" * 9000)
        splitter.feed(b"\n")
        (second,) = splitter.feed(b"b" * 3000) or splitter.feed(b"b" * 3000) or splitter.feed(b"\n")
        assert second == Oversized(6000, b"b" * OVERSIZED_EXCERPT_BYTES, b"b" * OVERSIZED_EXCERPT_BYTES)


class TestHeadersFlag:
    """Whoever answers in the framing it was asked in needs to know the last one."""

    def test_it_follows_the_messages(self) -> None:
        splitter = FrameDecoder()
        assert not splitter.uses_headers
        for data, expected in (
            (headed(PING), True),
            (PING + b"\n", False),
            (headed(BATCH), True),
            (BATCH + b"\n", False),
        ):
            splitter.feed(data)
            assert splitter.uses_headers is expected

    def test_noise_and_halves_do_not_change_it(self) -> None:
        splitter = FrameDecoder()
        splitter.feed(headed(PING))
        for data in (b"noise\n", b"\n", b"C", b"on", b"tent-Length: 5\r\n", b"\r\n", b"hell"):
            splitter.feed(data)
            assert splitter.uses_headers
        splitter.close()
        assert splitter.uses_headers

    def test_an_oversized_body_counts(self) -> None:
        splitter = FrameDecoder(50)
        splitter.feed(headed(b"x" * 60))
        assert splitter.uses_headers


class TestCost:
    @each_case("framed", [False, True], ids=["newline", "content-length"])
    def test_a_message_of_64_mib_passes_whole(self, framed: bool) -> None:
        message = b'{"jsonrpc":"2.0","id":1,"result":"' + b"z" * (64 << 20) + b'"}'
        splitter = FrameDecoder()
        head = b"Content-Length: %d\r\n\r\n" % len(message) if framed else b""
        assert splitter.feed(head) == []
        view = memoryview(message)
        out: list[Frame] = []
        for start in range(0, len(message), 1 << 20):
            out += splitter.feed(bytes(view[start : start + (1 << 20)]))
        out += splitter.feed(b"" if framed else b"\n")
        assert len(out) == 1
        assert out[0] == message

    @each_case("framed", [False, True], ids=["newline", "content-length"])
    def test_one_message_of_16_mib_costs_about_as_much_as_16_of_1_mib(self, framed: bool) -> None:
        # A cost that grew with the square of a message's size would make the one message 16 times as dear.
        assert cpu_seconds(16 << 20, 1, framed) <= 5 * cpu_seconds(1 << 20, 16, framed)

    @each_case("framed", [False, True], ids=["newline", "content-length"])
    def test_throwing_away_costs_no_more_than_keeping(self, framed: bool) -> None:
        kept = cpu_seconds(4 << 20, 4, framed)
        assert cpu_seconds(4 << 20, 4, framed, limit=1 << 20) <= 3 * kept


def cpu_seconds(size: int, times: int, framed: bool, limit: int = framing.MAX_MESSAGE_BYTES) -> float:
    """CPU time, best of a few, to read messages of `size` bytes that arrive in chunks of 64 KiB."""
    body = b'{"jsonrpc":"2.0","id":1,"result":"' + b"z" * size + b'"}'
    stream = (headed(body) if framed else body + b"\n") * times
    chunks = [stream[start : start + 65_536] for start in range(0, len(stream), 65_536)]
    best = float("inf")
    for _ in range(5):
        splitter = FrameDecoder(limit)
        began = time.process_time()
        found = sum(len(splitter.feed(chunk)) for chunk in chunks)
        best = min(best, time.process_time() - began)
        assert found == times
    return best
