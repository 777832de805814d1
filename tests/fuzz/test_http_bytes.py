"""Whatever bytes a connection carries, the HTTP server answers the next client, and lets nobody in without a token."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.e2e.web import Web, serving
from tests.fuzz.driver import fuzz
from tests.fuzz.grammar import SECRET, encoded, messages, mutated
from tests.fuzz.program import Process, make_workspace
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.soak("fuzz")

names = st.sampled_from(
    "Host Origin Content-Type Content-Length Transfer-Encoding Accept Mcp-Session-Id Mcp-Protocol-Version Mcp-Method "
    "Authorization Connection Expect Upgrade Last-Event-ID Cookie X".split()
)
worth = st.one_of(
    st.sampled_from(
        "localhost 127.0.0.1 [::1].evil application/json text/event-stream chunked 5 -1 0 99999999999 close keep-alive "
        "100-continue websocket 2026-07-28 2025-03-26 Bearer Bearer\tx".split()
    ),
    st.text(st.characters(codec="latin-1", exclude_characters="\r\n"), max_size=30),
)
headers = st.lists(st.tuples(names, worth), max_size=6)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from(["GET", "POST", "DELETE", "OPTIONS", "PUT", "PRI", "get"]))
    path = draw(
        st.sampled_from(
            "/mcp /sse /messages /health /status /metrics / /api/overview /events /../etc //mcp /mcp?token=x".split()
        )
    )
    body = draw(encoded(messages) | st.binary(max_size=100))
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in draw(headers)]
    if draw(st.booleans()):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with serving(make_workspace(Path(tmp_path_factory.mktemp("fuzz")) / "w")) as running:
        yield running


@pytest.fixture(scope="module")
def watched(web: Web) -> Process:
    return Process(web.process.pid)


@fuzz(150)
@given(st.lists(requests() | mutated(requests()) | st.binary(max_size=200), min_size=1, max_size=3))
def test_a_connection_can_carry_anything(web: Web, watched: Process, parts: list[bytes]) -> None:
    place = urlsplit(web.url)
    watched.begin()
    with socket.create_connection((place.hostname or "", place.port or 0), PATIENCE_S) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
                assert len(answer) < 1_000_000
        except OSError:  # it has closed first: also an answer
            answer = b""
    assert SECRET.encode() not in answer
    # Without a token nothing of a child is seen.
    assert b"plain_suite" not in answer
    if answer:
        assert answer.startswith(b"HTTP/1.1 ")
        assert b" 500 " not in answer.split(b"\r\n")[0], answer[:500]
    assert web.ask("GET", "/health").status == 200
    watched.check()
