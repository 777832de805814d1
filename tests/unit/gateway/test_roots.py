"""Servers ask for roots once, right after their handshake: the first call waits for the answer of its host."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.gateway.board import Board, FakeChild, Host, Json

ROOTS: Json = {"roots": {}}
A, B = ({"roots": [{"uri": f"file:///{name}"}]} for name in "ab")


class Rooted:
    """A child that asks for roots when it starts, and again when they have changed."""

    def __init__(self, kid: FakeChild) -> None:
        self.kid = kid
        self.asked = 0
        kid.extra = self.answer

    def answer(self, message: Json) -> Json | None:
        if message["method"] == "tools/list" and not self.asked:
            self.ask()
        return None

    def ask(self) -> None:
        self.asked += 1
        self.kid.server.ask("roots/list", id=f"roots{self.asked}")

    def ask_again(self) -> None:
        """Ask as servers do that were told of a change."""
        assert len(self.kid.server.requests("notifications/roots/list_changed")) == self.asked
        self.ask()

    @property
    def told(self) -> object:
        """The latest answer."""
        reply = self.kid.server.reply(f"roots{self.asked}")
        return reply and reply.get("result")

    @property
    def calls(self) -> int:
        return len(self.kid.server.requests("tools/call"))


@pytest.fixture
def rooted(board: Board) -> Rooted:
    return Rooted(board.child("kid"))


def reply_handshake(host: Host, roots: Json) -> None:
    host.reply(host.heard("roots/list")[-1], roots)


def reply_stateless(host: Host, roots: Json) -> None:
    """Send the call again with the input that it requires."""
    host.board.advance(0.02)
    asked = [one["result"] for one in host.road.heard if "inputRequests" in one.get("result", {})][-1]
    (key,) = asked["inputRequests"]
    host.call(params={"inputResponses": {key: roots}, "requestState": asked["requestState"]})


@pytest.mark.parametrize(("modern", "reply"), [(False, reply_handshake), (True, reply_stateless)])
def test_the_first_call_waits_until_its_host_has_said_its_roots(
    board: Board, rooted: Rooted, modern: bool, reply: Callable[[Host, Json], None]
) -> None:
    host = board.host(ROOTS, modern=modern)
    host.call()
    board.advance(0.02)
    assert (rooted.asked, rooted.calls) == (1, 0)
    reply(host, A)
    assert rooted.told == A
    board.advance(0.1)
    assert rooted.calls == 1


def test_a_host_that_says_nothing_delays_the_call_for_a_bounded_time(board: Board, rooted: Rooted) -> None:
    board.host(ROOTS).call()
    for _ in range(5):
        board.advance(1)
    assert rooted.calls == 1


@pytest.mark.parametrize(("modern", "reply"), [(False, reply_handshake), (True, reply_stateless)])
def test_roots_in_place_of_which_the_workspace_was_said_are_corrected_at_the_next_call(
    board: Board, rooted: Rooted, modern: bool, reply: Callable[[Host, Json], None]
) -> None:
    without = board.host()
    without.call()
    board.advance(0.1)
    assert rooted.calls == 1
    assert rooted.told != A
    without.leave()
    host = board.host(ROOTS, modern=modern)
    host.call()
    rooted.ask_again()
    reply(host, B)
    assert rooted.told == B
    board.advance(0.1)
    assert rooted.calls == 2
    host.call()
    assert rooted.calls == 3
    assert rooted.asked == 2


def test_a_host_without_roots_waits_for_nothing(board: Board, rooted: Rooted) -> None:
    host = board.host()
    host.call()
    host.call()
    assert rooted.calls == 2
