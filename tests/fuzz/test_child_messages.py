"""Whatever a child writes, the host's calls are answered, once each, and Switchboard lives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.driver import fuzz
from tests.fuzz.grammar import encoded, messages, mutated, near, sometimes, texts, values
from tests.fuzz.program import StdioServer, make_workspace, stdio_server

pytestmark = pytest.mark.soak("fuzz")

NOTIFICATIONS = (
    "tools/list_changed",
    "resources/updated",
    "message",
    "progress",
    "cancelled",
    "tasks/status",
    "x",
)
notifications = st.tuples(st.sampled_from(NOTIFICATIONS), values).map(
    lambda pair: {"jsonrpc": "2.0", "method": f"notifications/{pair[0]}", "params": pair[1]}
)
requests = sometimes(
    {
        "method": near("sampling/createMessage", "elicitation/create", "roots/list", "ping", "tools/list"),
        "id": near(1, "a"),
        "params": values,
        "message": texts,
    }
).map(lambda message: {"jsonrpc": "2.0", **message})
written = st.one_of(
    encoded(notifications),
    encoded(requests),
    encoded(messages),
    encoded(st.lists(messages, max_size=3)),
    mutated(encoded(notifications)),
    st.binary(max_size=200),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StdioServer]:
    with stdio_server(make_workspace(Path(tmp_path_factory.mktemp("fuzz")) / "w")) as running:
        yield running


@fuzz(150)
@given(st.lists(written, min_size=1, max_size=3))
def test_a_child_can_write_anything(server: StdioServer, lines: list[bytes]) -> None:
    server.watched.begin()
    noise = b"\n".join(line for line in lines if b"ontent-" not in line.lower())
    arguments = {"action": "call", "subtool": "noise", "args": {"hex": noise.hex()}}
    id = f"noise-{sum(server.sent.values())}"
    call = {"jsonrpc": "2.0", "id": id, "method": "tools/call"}
    server.send(json.dumps({**call, "params": {"name": "plain_suite", "arguments": arguments}}).encode())
    server.ping()
    server.wait_for(json.dumps(id))
    server.check()
