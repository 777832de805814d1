"""Bytes pass through Switchboard as they are: results to the host, arguments and `_meta` to the child."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.e2e.host import Host, switchboard
from tests.e2e.workspaces import WHOLE_RESULTS, add_child, configure, faulty

# What careless relays change: numbers beyond 64 bits, 1.0, exponents, escapes, spaces, order, double keys.
ODD_ARGS = (
    rb'{"z":123456789012345678901234567890,"a":1.0,"b":1,"c":1E+2,"d":-0.0,"e":1e-400,'
    rb'"f" : [ 1 , 2 ],"g":"\u00e9\ud83d\ude00\/\u0000","h":null,"\u0069":{"nested":{}},"a":"again"}'
)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A Switchboard whose child answers with odd JSON, or with the very request it got."""
    workspace = tmp_path_factory.mktemp("odd")
    add_child(workspace, "odd", faulty("odd-json"))
    configure(workspace, WHOLE_RESULTS)
    with switchboard(workspace, env={**os.environ, "XDG_CACHE_HOME": str(workspace / "cache")}) as host:
        host.initialize()
        yield host


def received(odd: Host, body: bytes) -> bytes:
    """The bytes that the child got for a request of ours."""
    odd.send(body)
    text: str = odd.answer("raw")["result"]["content"][0]["text"]
    return text.encode()


def call_of(args: bytes, *, meta: bytes = b"") -> bytes:
    meta = b',"_meta":' + meta if meta else b""
    return (
        b'{"jsonrpc":"2.0","id":"raw","method":"tools/call","params":{"name":"odd_suite",'
        b'"arguments":{"action":"call","subtool":"received","args":%b}%b}}' % (args, meta)
    )


def test_the_result_has_the_bytes_the_child_wrote(odd: Host) -> None:
    with Host(faulty("odd-json")) as child:
        child.initialize()
        written = child.raw_answer(child.ask("tools/call", {"name": "odd", "arguments": {}})).result
    arguments = {"action": "call", "subtool": "odd"}
    asked = odd.ask("tools/call", {"name": "odd_suite", "arguments": arguments})
    assert odd.raw_answer(asked).result == written
    for piece in (
        rb"123456789012345678901234567890",
        rb'"float":1.0',
        rb"\ud83d\ude00\/",
        rb'"spaced" : [ ]',
        rb'"_meta":{"example.com/trace":"abc"}',
        rb'"unknownField":{"kept":true}',
    ):
        assert piece in written


def test_the_child_gets_the_bytes_of_the_arguments(odd: Host) -> None:
    assert b'"arguments":' + ODD_ARGS in received(odd, call_of(ODD_ARGS))


def test_the_child_gets_every_member_of_meta(odd: Host) -> None:
    meta = b'{"example.com/trace":{"big":123456789012345678901,"one":1.0},"traceparent":"00-ab"}'
    assert b'"_meta":' + meta in received(odd, call_of(b"{}", meta=meta))


def test_arguments_that_are_not_ascii_arrive_as_they_were_sent(odd: Host) -> None:
    args = '{"text":"naïve 😀 \u2028","ключ":"値"}'.encode()
    assert b'"arguments":' + args in received(odd, call_of(args))


def test_the_host_gets_its_own_id_back_as_it_wrote_it(odd: Host) -> None:
    for id in (b'"\\u0061 b"', b"-7", b"12345678901234567890", b'"1"', b"1"):
        odd.send(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % id)
        assert odd.next_message().body == b'{"jsonrpc":"2.0","id":%b,"result":{}}' % id


def test_a_request_keeps_its_meaning_whatever_the_order_of_its_members(odd: Host) -> None:
    odd.send(
        b'{ "params" : {"arguments":{"args":{},"subtool":"received","action":"call"},"name":"odd_suite"} ,'
        b' "method" : "tools\\/call" , "extra" : [1] , "id" : "raw" , "jsonrpc" : "2.0" }'
    )
    request = json.loads(odd.answer("raw")["result"]["content"][0]["text"])
    assert request["params"] == {"name": "received", "arguments": {}}


def test_a_large_argument_comes_back_whole(odd: Host) -> None:
    args = b'{"text":"%b"}' % (b"x" * (4 << 20))
    assert b'"arguments":' + args in received(odd, call_of(args))
