from __future__ import annotations

from itertools import pairwise

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.server.http.request_framing import (
    FAILED,
    MAX_CHUNK_OVERHEAD_BYTES,
    MAX_HEAD_BYTES,
    FramingState,
    RequestFraming,
)

END, MALFORMED, TOO_LARGE = FramingState.END, FramingState.MALFORMED, FramingState.TOO_LARGE
CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


class Complete:
    """Counts the requests that the parser behind has seen to their end."""

    def __init__(self) -> None:
        self.requests = 0

    def on_message_complete(self) -> None:
        self.requests += 1


def state_after(data: bytes, cut: int = 1_000_000) -> FramingState:
    framing = RequestFraming()
    for start in range(0, len(data), cut):
        framing.feed(data[start : start + cut])
    return framing.state


def frames(data: bytes, cuts: list[int]) -> list[bytes]:
    """The requests in `data`, found in pieces."""
    bounds = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    framing, found, request = RequestFraming(), [], b""
    for start, stop in pairwise(bounds):
        piece = data[start:stop]
        while piece:
            size = framing.feed(piece)
            request, piece = request + piece[:size], piece[size:]
            if framing.state is not END:
                break
            found.append(request)
            request = b""
            framing.reset()
    return found


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A valid request."""
    name = st.text("abcXYZ-", min_size=1, max_size=5)
    value = st.text("ab: ;=,chunked0123", max_size=12).map(str.strip)
    headers = [
        f"X-{key}: {text}".encode() for key, text in draw(st.lists(st.tuples(name, value), max_size=3))
    ]
    body = draw(st.binary(max_size=40))
    kind = draw(st.sampled_from(["none", "length", "chunked"]))
    content = b""
    if kind == "length":
        headers.append(draw(st.sampled_from([b"Content-Length: %d", b"CONTENT-LENGTH:%d"])) % len(body))
        content = body
    elif kind == "chunked":
        headers.append(draw(st.sampled_from([b"Transfer-Encoding: chunked", b"transfer-encoding:CHUNKED"])))
        size = draw(st.integers(1, 20))
        extension = draw(st.sampled_from([b"", b";a=b", b";name"]))
        for start in range(0, len(body), size):
            chunk = body[start : start + size]
            content += b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk)
        content += (
            b"0"
            + extension
            + b"\r\n"
            + draw(st.sampled_from([b"", b"A: b\r\n", b"A: b\r\nC: d\r\n"]))
            + b"\r\n"
        )
    method = draw(st.sampled_from([b"GET", b"POST", b"DELETE"]))
    return b"\r\n".join([method + b" /mcp?a=b HTTP/1.1", *draw(st.permutations(headers)), b"", b""]) + content


@given(st.lists(requests(), min_size=1, max_size=4), st.lists(st.integers(0, 5_000), max_size=12))
def test_each_request_ends_where_the_parser_sees_its_end(sent: list[bytes], cuts: list[int]) -> None:
    assert frames(b"".join(sent), cuts) == sent
    complete = Complete()
    parser = httptools.HttpRequestParser(complete)
    for number, request in enumerate(sent, 1):
        parser.feed_data(request[:-1])
        assert complete.requests == number - 1
        parser.feed_data(request[-1:])
        assert complete.requests == number


@given(st.binary(max_size=300), st.lists(st.integers(0, 400), max_size=5))
def test_any_bytes_are_framed_the_same_in_any_chunking(data: bytes, cuts: list[int]) -> None:
    for start in (b"", b"GET / HTTP/1.1\r\n", CHUNKED, CHUNKED + b"0\r\n"):
        assert frames(start + data, cuts) == frames(start + data, [])


@pytest.mark.parametrize("cut", [1, 7, 1_000_000])
@pytest.mark.parametrize(
    ("data", "state"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", END),
        (b"\r\n\r\nGET / HTTP/1.1\r\n\r\n", END),
        (b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", END),
        (b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab", END),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", FramingState.BODY),
        (b"POST / HTTP/1.1\r\nX-Content-Length: 3\r\n\r\n", END),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", MALFORMED),
        (b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", MALFORMED),
        (b"POST / HTTP/1.1\r\nContent-Length:\r\n\r\n", MALFORMED),
        (b"POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", MALFORMED),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", MALFORMED),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", MALFORMED),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", MALFORMED),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", MALFORMED),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n", MALFORMED),
        (b"POST / HTTP/1.1\r\nContent-Length: %b\r\n\r\n" % (b"9" * 40), MALFORMED),
        (b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", MALFORMED),
        (b"GET / HTTP/1.1\r\nA: b\nContent-Length: 5\r\n\r\n", MALFORMED),
        (b"GET / HTTP/1.1\r\nA: b\rContent-Length: 5\r\n\r\n", MALFORMED),
        (b"GET / HTTP/1.1\r\nA: b\n\nGET /next HTTP/1.1\r\n\r\n", MALFORMED),
        (CHUNKED + b"x\r\n", MALFORMED),
        (CHUNKED + b"\r\n", MALFORMED),
        (CHUNKED + b"0\n\r\n", MALFORMED),
        (CHUNKED + b"-1\r\n", MALFORMED),
        (CHUNKED + b"f" * 16 + b"\r\n", MALFORMED),
        (CHUNKED + b"5;a=b\r\nhello\r\n0\r\n\r\n", END),
        (CHUNKED + b"0\r\nA: b\r\n", FramingState.TRAILERS),
        (CHUNKED + b"0\r\nA: b\r\n\r\n", END),
        (b"\r\n" * MAX_HEAD_BYTES, TOO_LARGE),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * MAX_HEAD_BYTES, TOO_LARGE),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n", TOO_LARGE),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * (MAX_HEAD_BYTES - 30) + b"\r\n\r\n", END),
        (CHUNKED + b"5;" + b"x" * MAX_CHUNK_OVERHEAD_BYTES, TOO_LARGE),
        (CHUNKED + b"5;" + b"x" * (MAX_CHUNK_OVERHEAD_BYTES - 100) + b"\r\nhello\r\n0\r\n\r\n", END),
        (CHUNKED + b"1\r\nx\r\n" * 20_000, TOO_LARGE),
        (CHUNKED + b"14\r\n" + b"x" * 20 + b"\r\n", FramingState.CHUNK_SIZE),
        (CHUNKED + (b"28\r\n" + b"x" * 40 + b"\r\n") * 10_000 + b"0\r\n\r\n", END),
        (CHUNKED + (b"14\r\n" + b"x" * 20 + b"\r\n") * 10_000 + b"0\r\n\r\n", TOO_LARGE),
        (CHUNKED + b"fffff\r\n" + b"x" * 0xFFFFF + b"\r\n0\r\n" + b"A:b\r\n" * 7_000, TOO_LARGE),
    ],
)
def test_a_request_is_framed_or_rejected(data: bytes, state: FramingState, cut: int) -> None:
    if cut == 1 and len(data) > 100_000:
        cut = 3
    assert state_after(data, cut) is state


@given(st.binary(min_size=1, max_size=50))
def test_after_a_failure_nothing_more_is_taken(data: bytes) -> None:
    framing = RequestFraming()
    framing.feed(CHUNKED + b"x\r\n")
    assert framing.state in FAILED
    assert framing.feed(data) == 0
