"""What reaches a host through Switchboard is what reaches it directly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fidelity import REPLY, Line, conversation, exact
from tests.e2e.host import Host, switchboard
from tests.e2e.workspaces import PYTHON, REPO, add_child, configure

PECULIAR = [*PYTHON, str(REPO / "tests" / "children" / "peculiar.py")]


class PipeLine:
    """A line over pipes, to a child or to Switchboard."""

    def __init__(self, host: Host, *, modern: bool) -> None:
        self.modern = modern
        self._host = host
        host.replies.update(REPLY)
        if not modern:
            host.initialize()

    def exchange(self, message: bytes) -> list[bytes]:
        self._host.send(message)
        id = json.loads(message)["id"]
        heard: list[bytes] = []
        while True:
            told = self._host.next_message()
            heard.append(told.body)
            if told.json.get("id") == id and "method" not in told.json:
                return heard

    def tell(self, message: bytes) -> None:
        self._host.send(message)


Connect = Callable[[Path, bool], AbstractContextManager[Line]]


@contextmanager
def through_pipes(workspace: Path, modern: bool) -> Iterator[Line]:
    """Switchboard over stdio, as a host starts it."""
    with switchboard(workspace) as host:
        yield PipeLine(host, modern=modern)


@contextmanager
def child_on_pipes(workspace: Path) -> Iterator[Callable[[bool], AbstractContextManager[Line]]]:
    """The child as a process of Switchboard's own; gives how to talk with it directly."""
    add_child(workspace, "kid", PECULIAR)
    configure(workspace, {"suites": {"kid": {"exposure": "direct"}}})

    @contextmanager
    def directly(modern: bool) -> Iterator[Line]:
        with Host(PECULIAR) as host:
            yield PipeLine(host, modern=modern)

    yield directly


FRONTS = {"stdio": through_pipes}
CHILDREN = {"stdio": child_on_pipes}


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize("child", CHILDREN)
@pytest.mark.parametrize("front", FRONTS)
def test_a_host_hears_what_it_would_hear_directly(workspace: Path, front: str, child: str, era: str) -> None:
    modern = era == "modern"
    with CHILDREN[child](workspace) as directly:
        with directly(modern) as line:
            expected = conversation(line)
        with FRONTS[front](workspace, modern) as line:
            heard = conversation(line)
    for asked, messages in expected.items():
        assert heard[asked] == messages, asked
    assert heard.keys() == expected.keys()


def test_the_comparison_sees_what_is_easily_lost() -> None:
    def same(one: bytes, other: bytes) -> bool:
        left: Any = exact(one)
        return bool(left == exact(other))

    assert same(b'{"a": 1}', b'{"a":1}')
    for other in (b'{"a":1.0}', b'{"a":1,"a":1}', b'{"a":"1"}', b'{"b":1}', b'{"a":1,"b":2}'):
        assert not same(b'{"a":1}', other)
