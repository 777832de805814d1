"""Whatever a host sends, every answer belongs to a request, and nothing denied or secret passes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.driver import fuzz
from tests.fuzz.grammar import encoded, messages, mutated
from tests.fuzz.program import StdioServer, make_workspace, stdio_server

pytestmark = pytest.mark.soak("fuzz")

lines = st.one_of(
    encoded(messages),
    encoded(messages),
    encoded(st.lists(messages, max_size=3)),
    mutated(encoded(messages)),
    st.binary(max_size=200),
).map(lambda line: line.replace(b"\n", b" "))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StdioServer]:
    with stdio_server(make_workspace(Path(tmp_path_factory.mktemp("fuzz")) / "w")) as running:
        yield running


@fuzz(150)
@given(st.lists(lines, min_size=1, max_size=5))
def test_a_host_can_send_anything(server: StdioServer, sent: list[bytes]) -> None:
    server.watched.begin()
    for line in sent:
        # A host that says how long its message is may swallow the next ones: that is its own affair.
        if not line.strip().lower().startswith(b"content-length"):
            server.send(line)
    server.ping()
    server.check()
