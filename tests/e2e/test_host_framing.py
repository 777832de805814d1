"""Both framings a host may use: answers come in the framing of the question, at any chunking."""

from __future__ import annotations

import json

import pytest

from tests.e2e.host import Host

PING = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}'


def framed(body: bytes, *more: bytes) -> bytes:
    return b"\r\n".join([b"Content-Length: %d" % len(body), *more, b"", body])


@pytest.fixture
def host(mock: Host) -> Host:
    mock.headers = False
    return mock


def test_lines_are_answered_with_lines(host: Host) -> None:
    host.write(PING % 1 + b"\n")
    assert host.next_message() == (b'{"jsonrpc":"2.0","id":1,"result":{}}', False)


def test_content_length_is_answered_with_content_length(host: Host) -> None:
    host.write(framed(PING % 1))
    assert host.next_message() == (b'{"jsonrpc":"2.0","id":1,"result":{}}', True)


def test_the_framing_may_change_from_message_to_message(host: Host) -> None:
    for number, headers in enumerate([True, False, True, True, False]):
        host.headers = headers
        host.send(PING % number)
        assert host.next_message().headers is headers


def test_a_suite_call_is_answered_in_the_framing_of_the_host(host: Host) -> None:
    host.headers = True
    asked = host.ask(
        "tools/call",
        {"name": "mock_suite", "arguments": {"action": "call", "subtool": "echo", "args": {"message": "é"}}},
    )
    answer = host.raw_answer(asked)
    assert answer.headers
    assert answer.json["result"] == {"content": [{"type": "text", "text": "é"}]}


def test_several_messages_in_one_chunk_are_all_answered(host: Host) -> None:
    host.write(framed(PING % 1) + PING % 2 + b"\n" + PING % 3 + b"\r\n" + framed(PING % 4))
    assert {json.loads(host.next_message().body)["id"] for _ in range(4)} == {1, 2, 3, 4}


def test_a_message_may_arrive_byte_by_byte(host: Host) -> None:
    body = '{"jsonrpc":"2.0","id":"é😀","method":"ping"}'.encode()
    for stream in (framed(body, b"Content-Type: application/vscode-jsonrpc; charset=utf-8"), body + b"\n"):
        for place in range(len(stream)):
            host.write(stream[place : place + 1])
        assert host.next_message().json == {"jsonrpc": "2.0", "id": "é😀", "result": {}}


def test_headers_are_read_in_any_case(host: Host) -> None:
    body = PING % 1
    host.write(b"content-length:%d\r\nX-Other: 1\r\n\r\n" % len(body) + body)
    assert host.next_message().json["id"] == 1


def test_a_body_with_line_breaks_is_one_message(host: Host) -> None:
    arguments = {"action": "call", "subtool": "add", "args": {"a": 1, "b": 2}}
    request = {"jsonrpc": "2.0", "id": 9, "method": "tools/call"}
    body = json.dumps({**request, "params": {"name": "mock_suite", "arguments": arguments}}, indent=2)
    host.write(framed(body.encode()))
    assert host.answer(9)["result"]["structuredContent"] == {"sum": 3}


def test_lines_that_are_no_messages_are_skipped(host: Host) -> None:
    host.write(b"\n\r\nhello there\n" + PING % 5 + b"\n")
    assert host.next_message().json["id"] == 5


def test_bytes_that_are_not_utf8_do_not_stop_the_stream(host: Host) -> None:
    host.write(b'{"jsonrpc":"2.0","id":6,"method":"ping","x":"\xff\xc3"}\n' + PING % 7 + b"\n")
    assert [host.next_message().json["id"] for _ in range(2)] == [6, 7]
