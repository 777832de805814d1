"""Inputs for the fuzz tests: JSON near the grammar of each surface, and bytes that are mutated from it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

SECRET = "s3cr3t-of-the-child-4711"
NASTY = [
    "",
    "\u200b",
    "\x1b[2J",
    "\ud83d\ude00",
    "a" * 3000,
    "../" * 50,
    "%2e%2e",
    "${HOME}",
    "\x00",
    "*",
    "{}",
]
texts = st.one_of(st.sampled_from(NASTY), st.text(max_size=20))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def near(*usual: Any) -> st.SearchStrategy[Any]:
    """Return mostly one of the usual values, and sometimes anything."""
    return st.one_of(*[st.just(value) for value in usual], *[st.just(value) for value in usual], values)


def sometimes(members: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Return an object with some of the members."""
    return st.fixed_dictionaries({}, optional=members)


@st.composite
def mutated(draw: st.DrawFn, source: st.SearchStrategy[bytes]) -> bytes:
    """Return bytes with a few places changed, removed or repeated."""
    data = bytearray(draw(source))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["set", "cut", "insert", "repeat"]))
        if kind == "set" and data:
            data[at] = draw(st.integers(0, 255))
        elif kind == "cut":
            del data[at : at + draw(st.integers(1, 20))]
        elif kind == "insert":
            data[at:at] = draw(
                st.binary(max_size=8) | st.sampled_from([b'"', b"{", b"]", b"\\", b"\\ud800", b"\xff"])
            )
        elif kind == "repeat":
            data[at:at] = data[at : at + 30] * draw(st.integers(1, 50))
    return bytes(data)


def encoded(value: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return value.map(lambda one: json.dumps(one).encode("utf-8", "surrogatepass"))


SUBTOOLS = ("echo", "leak", "denied", "unknown")
arguments = sometimes(
    {
        "action": near("introspect", "call"),
        "op": near("list_subtools", "call"),
        "subtool": near(*SUBTOOLS),
        "args": near({}, {"message": "hi"}, '{"message":"hi"}', {"args": {"message": "x"}}),
        "arguments": near({"action": "call", "subtool": "denied"}),
        "query": texts,
        "verbosity": near("names", "full", "signature", "summary"),
        "cursor": near("n1.00000000", "1.abc"),
    }
)
params = sometimes(
    {
        "name": near("plain_suite", "denied", "echo", "leak"),
        "arguments": arguments | values,
        "uri": near("switchboard://plain/file:///a", "file:///a"),
        "_meta": near({"progressToken": 1}, {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}),
        "cursor": texts,
        "requestId": near(1),
        "level": near("debug"),
        "taskId": texts,
    }
)
METHODS = (
    "tools/list tools/call ping resources/list resources/read prompts/list prompts/get completion/complete "
    "logging/setLevel resources/subscribe tasks/list tasks/get tasks/cancel server/discover subscriptions/listen "
    "notifications/cancelled notifications/progress unknown/method"
).split()
messages = sometimes(
    {
        "jsonrpc": near("2.0"),
        "id": st.integers(1, 50) | st.text(max_size=3) | values,
        "method": near(*METHODS),
        "params": params | values,
        "result": values,
        "error": near({"code": -32603, "message": "x"}),
    }
).map(lambda message: {"jsonrpc": "2.0", **message})
