from __future__ import annotations

import json
from typing import Any

import pytest

from switchboard_mcp.server.http import resumable_streams
from switchboard_mcp.server.http.event_stream import event
from switchboard_mcp.server.http.resumable_streams import PostStream, Stream
from tests.cases import each_case


class Output:
    """Takes everything, and keeps it."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.closed = self.finished = False

    def put(self, chunk: bytes) -> None:
        self.chunks.append(chunk)

    def put_first(self, chunk: bytes) -> None:
        self.chunks.insert(0, chunk)

    def finish(self) -> None:
        self.finished = True

    def wake(self) -> None:
        """Nobody waits."""

    @property
    def data(self) -> list[str]:
        return [chunk.decode().partition("data: ")[2].strip() for chunk in self.chunks]


def output() -> Any:
    return Output()


def post(*ids: bytes, batch: bool = False) -> tuple[PostStream, Any, list[PostStream]]:
    done: list[PostStream] = []
    output_ = output()
    return PostStream(1, output_, list(ids), done.append, batch=batch), output_, done


@each_case("message", [b'{"a":1}', b'{\n "a":\r\n 1}', b'{"a":"\\n"}', b'{"a":1}\r'])
def test_a_message_is_one_line_of_an_event(message: bytes) -> None:
    name, data, *rest = event(message).split(b"\n")
    assert (name, rest) == (b"event: message", [b"", b""])
    assert b"\r" not in data
    assert json.loads(data.removeprefix(b"data: ")) == json.loads(message)


def test_notices_without_a_listener_wait_for_one() -> None:
    stream, output_ = Stream(0), output()
    stream.send(b"1")
    stream.attach(output_, None, primed=False)
    stream.send(b"2")
    assert output_.data == ["1", "2"]
    output_.closed = True
    stream.send(b"3")
    second = output()
    stream.attach(second, None, primed=False)
    assert second.data == ["3"]


def test_a_position_gives_all_entries_after_it() -> None:
    stream, output_ = Stream(4), output()
    stream.attach(output_, None, primed=True)
    for message in (b"1", b"2", b"3"):
        stream.send(message)
    assert output_.data == ["", "1", "2", "3"]
    assert b"id: 4-0\nretry: " in output_.chunks[0]
    second = output()
    stream.attach(second, 1, primed=False)
    assert second.data == ["2", "3"]
    assert output_.finished


def test_a_stream_keeps_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumable_streams, "MAX_STORED_EVENTS", 3)
    stream, output_ = Stream(0), output()
    for number in range(10):
        stream.send(b"%d" % number)
    stream.attach(output_, None, primed=False)
    assert output_.data == ["7", "8", "9"]
    monkeypatch.setattr(resumable_streams, "MAX_STORED_BYTES", 10)
    stream.send(b"x" * 100)
    again = output()
    stream.attach(again, 0, primed=False)
    assert again.data == []


def test_an_answer_that_comes_alone_is_json() -> None:
    one, output_, done = post(b"1")
    assert one.body() is None
    one.answer(b"answer")
    assert (one.body(), done, output_.chunks) == (b"answer", [one], [])


def test_an_answer_after_something_else_is_an_event() -> None:
    one, output_, done = post(b"1")
    one.send(b"progress")
    one.answer(b"answer")
    assert one.body() is None
    one.commit(primed=True)
    assert output_.data == ["", "progress", "answer"]
    assert (output_.finished, one.finished, done) == (True, True, [one])


def test_an_answer_is_given_once() -> None:
    one, output_, done = post(b"1")
    one.commit(primed=False)
    one.answer(b"answer")
    one.answer(b"again")
    one.refuse(b"1", -32800, "cancelled")
    one.fail_all()
    assert output_.data == ["answer"]
    assert done == [one]


def test_the_answers_of_a_batch_are_an_array() -> None:
    several, _road, done = post(b"1", b'"b"', batch=True)
    several.answer(b'{"jsonrpc":"2.0","id":"b","result":{}}')
    assert several.body() is None
    several.refuse(b'"b"', -32800, "already answered")
    several.refuse(b"1", -32800, "cancelled")
    body = several.body()
    assert body is not None
    assert [answer["id"] for answer in json.loads(body)] == ["b", 1]
    assert done == [several]


def test_unanswered_parts_of_a_batch_are_given_up() -> None:
    several, _road, _done = post(b"1", b"2", b"3", batch=True)
    several.answer(b'{"jsonrpc":"2.0","id":2,"result":{}}')
    several.fail_all()
    body = several.body()
    assert body is not None
    assert [answer["id"] for answer in json.loads(body)] == [2, 1, 3]


def test_a_stream_that_was_lost_before_its_answer_has_it_later() -> None:
    one, output_, _done = post(b"1")
    one.send(b"progress")
    one.commit(primed=True)
    output_.closed = True
    one.answer(b"answer")
    again = output()
    one.attach(again, 1, primed=True)
    assert again.data == ["", "answer"]
    assert again.finished
