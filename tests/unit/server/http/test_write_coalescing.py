from __future__ import annotations

import asyncio
from typing import cast

from switchboard_mcp.server.http.write_coalescing import CoalescingTransport
from tests.cases import each_case

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Sink:
    def __init__(self) -> None:
        self.said: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.said.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def joining(sink: Sink) -> CoalescingTransport:
    return CoalescingTransport(cast(asyncio.Transport, sink), asyncio.get_running_loop())


async def test_head_and_body_go_out_together() -> None:
    sink = Sink()
    for body in (b"{}", b""):
        link = joining(sink)
        link.write(HEAD)
        link.write(body)
        assert sink.said.pop() == HEAD + body
        await asyncio.sleep(0)
        assert sink.said == []


async def test_a_head_whose_body_takes_its_time_is_not_kept() -> None:
    sink = Sink()
    link = joining(sink)
    link.write(HEAD)
    assert sink.said == []
    await asyncio.sleep(0)
    assert sink.said == [HEAD]
    link.write(b"data: 1\n\n")
    assert sink.said == [HEAD, b"data: 1\n\n"]


async def test_nothing_is_lost_at_the_end() -> None:
    sink = Sink()
    link = joining(sink)
    link.write(HEAD)
    link.close()
    assert (sink.said, link.is_closing()) == ([HEAD], True)


@each_case("data", [b"HTTP/1.1 100 Continue\r\n", b"data: HTTP/\r\n\r\n", b"\r\n\r\n", b""])
async def test_data_without_a_head_is_sent_at_once(data: bytes) -> None:
    sink = Sink()
    joining(sink).write(data)
    assert sink.said == [data]
