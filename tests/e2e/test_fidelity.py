"""What reaches a host through Switchboard is what reaches it directly: every front, every kind of child, both eras."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fidelity import Line, between_eras, conversation, exact
from tests.e2e.host import Host, switchboard
from tests.e2e.lines import PipeLine, WebLine, events, socket
from tests.e2e.web import serving
from tests.e2e.workspaces import PYTHON, REPO, configure

PECULIAR = [*PYTHON, str(REPO / "tests" / "children" / "peculiar.py")]
PECULIAR_WEB = [sys.executable, str(REPO / "tests" / "children" / "peculiar_web.py")]
FRONTS = ("stdio", "http", "sse")
CHILDREN = ("stdio", "http", "sse", "ws")
# HTTP+SSE is of the handshake era alone. Between two eras there is no direct connection to compare with.
ROWS = [
    (era, front, child)
    for era in ("handshake", "modern")
    for front in FRONTS
    for child in CHILDREN
    if era == "handshake" or "sse" not in (front, child)
]


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    """Where the child is, by transport."""
    with subprocess.Popen(PECULIAR_WEB, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


def directly(child: str, addresses: dict[str, str], *, modern: bool) -> AbstractContextManager[Line]:
    """A line to the child itself."""
    if child == "stdio":
        return piped(Host(PECULIAR), modern=modern)
    if child == "http":
        return nullcontext(WebLine(addresses[child], {}, modern=modern))
    return events(addresses[child], {}) if child == "sse" else socket(addresses[child], modern=modern)


@contextmanager
def piped(host: Host, *, modern: bool) -> Iterator[Line]:
    with host:
        yield PipeLine(host, modern=modern)


@contextmanager
def through(front: str, workspace: Path, *, modern: bool) -> Iterator[Line]:
    """A line to Switchboard."""
    if front == "stdio":
        with piped(switchboard(workspace), modern=modern) as line:
            yield line
        return
    with serving(workspace, env=os.environ) as web:
        if front == "http":
            yield WebLine(f"{web.url}/mcp", web.bearer, modern=modern)
        else:
            with events(f"{web.url}/sse", web.bearer) as line:
                yield line


# Each era, front and kind of child at least once; the others are in `make soak`.
QUICK = {
    ("handshake", "stdio", "stdio"),
    ("handshake", "http", "http"),
    ("handshake", "sse", "ws"),
    ("handshake", "stdio", "sse"),
    ("modern", "stdio", "http"),
    ("modern", "http", "stdio"),
    ("modern", "http", "ws"),
}


@pytest.mark.parametrize(
    ("era", "front", "child"),
    [pytest.param(*row, marks=() if row in QUICK else pytest.mark.soak("servers")) for row in ROWS],
)
def test_a_host_hears_what_it_would_hear_directly(
    workspace: Path, addresses: dict[str, str], era: str, front: str, child: str
) -> None:
    modern = era == "modern"
    entry = {"command": PECULIAR[0], "args": PECULIAR[1:]}
    if child != "stdio":
        entry = {"type": child, "url": addresses[child]}
    configure(workspace, {"mcpServers": {"kid": entry}, "suites": {"kid": {"exposure": "direct"}}})
    with directly(child, addresses, modern=modern) as line:
        expected = conversation(line)
    with through(front, workspace, modern=modern) as line:
        heard = conversation(line)
    for asked, messages in expected.items():
        assert heard[asked] == messages, asked
    assert heard.keys() == expected.keys()


@pytest.mark.parametrize(("host", "kid"), [("legacy", "modern"), ("modern", "legacy")])
def test_between_two_eras_only_what_they_differ_in_is_changed(workspace: Path, host: str, kid: str) -> None:
    entry = {"command": PECULIAR[0], "args": [*PECULIAR[1:], kid]}
    configure(workspace, {"mcpServers": {"kid": entry}, "suites": {"kid": {"exposure": "direct"}}})
    with piped(Host([*PECULIAR, kid]), modern=kid == "modern") as line:
        expected = conversation(line)
    with through("stdio", workspace, modern=host == "modern") as line:
        heard = conversation(line)
    # What a child asks in the middle of a call is another thing in each era.
    for asked in (expected.keys() & heard.keys()) - {"speak"}:
        assert between_eras(heard[asked]) == between_eras(expected[asked]), asked


def test_the_comparison_sees_what_is_easily_lost() -> None:
    def same(one: bytes, other: bytes) -> bool:
        left: Any = exact(one)
        return bool(left == exact(other))

    assert same(b'{"a": 1}', b'{"a":1}')
    for other in (b'{"a":1.0}', b'{"a":1,"a":1}', b'{"a":"1"}', b'{"b":1}', b'{"a":1,"b":2}'):
        assert not same(b'{"a":1}', other)
