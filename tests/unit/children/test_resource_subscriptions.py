"""Hearing of changes of one child, in the era it speaks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from switchboard_mcp.children.resource_subscriptions import FIRST_WAIT_S, LONGEST_WAIT_S
from switchboard_mcp.errors import failure
from tests.unit.gateway.board import PREFIX, Board, FakeChild, Json

LISTEN = "subscriptions/listen"
LOST = failure("child_answer_lost", "The stream is gone.")


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board()
    yield board
    board.close()


def listens(kid: FakeChild) -> list[Json]:
    return kid.server.requests(LISTEN)


def acknowledge(kid: FakeChild, listen: Json | None = None) -> None:
    listen = listen or listens(kid)[-1]
    kid.server.notify(
        "notifications/subscriptions/acknowledged",
        {"_meta": {PREFIX + "subscriptionId": listen["id"]}, "notifications": {}},
    )


def lose(board: Board, kid: FakeChild) -> None:
    """The stream of the listen request is gone, the child is not."""
    kid.carriers[-1].lost(str(listens(kid)[-1]["id"]).encode(), LOST)
    board.settle()


def test_a_modern_child_is_listened_to_for_the_lists_it_tells_of(board: Board) -> None:
    capabilities = {"tools": {"listChanged": True}, "prompts": {}, "resources": {"listChanged": False}}
    kid = board.child(era="modern", capabilities=capabilities)
    board.host().call()
    (listen,) = listens(kid)
    assert listen["params"]["notifications"] == {"toolsListChanged": True}
    assert listen["params"]["_meta"][PREFIX + "protocolVersion"] == "2026-07-28"


def test_a_child_that_tells_of_nothing_is_not_listened_to(board: Board) -> None:
    kid = board.child(era="modern", capabilities={"tools": {}})
    old = board.child("old")
    host = board.host()
    host.call()
    host.call(suite="old_suite")
    assert listens(kid) == listens(old) == []


def test_a_change_notification_fetches_and_passes_the_list(board: Board) -> None:
    kid = board.child(era="modern")
    host = board.host()
    host.call()
    acknowledge(kid)
    kid.lists["tools/list"] = [{"name": "other"}]
    meta = {"_meta": {PREFIX + "subscriptionId": listens(kid)[-1]["id"]}}
    kid.server.notify("notifications/tools/list_changed", meta)
    assert host.heard("notifications/tools/list_changed") == [
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    ]
    assert list(kid.inventory.tools) == ["other"]


def test_listening_is_no_work(board: Board) -> None:
    kid = board.child(era="modern")
    board.host().call()
    acknowledge(kid)
    kid.server.give(kid.server.last(), {})
    for _ in range(3):
        board.loop.now += 1000
        kid.sweep(board.loop.now)
        board.settle()
    assert kid.server.stopped


def test_listening_never_times_out(board: Board) -> None:
    kid = board.child(era="modern")
    board.host().call()
    acknowledge(kid)
    kid.server.give(kid.server.last(), {})
    board.advance(7 * 24 * 3600)
    assert kid.server.requests("notifications/cancelled") == []
    assert len(listens(kid)) == 1


def test_a_lost_subscription_is_opened_anew_and_what_was_missed_counts_as_changed(board: Board) -> None:
    kid = board.child(era="modern", lists={"prompts/list": [{"name": "p"}]})
    host = board.host()
    host.call()
    acknowledge(kid)
    before = len(host.heard("notifications/tools/list_changed"))
    lose(board, kid)
    assert len(listens(kid)) == 1
    board.advance(FIRST_WAIT_S)
    assert len(listens(kid)) == 2
    assert len(host.heard("notifications/tools/list_changed")) == before
    acknowledge(kid)
    assert len(host.heard("notifications/tools/list_changed")) == before + 1


@pytest.mark.parametrize("answer", [{"result": {"resultType": "complete"}}, {"error": {"code": -32000}}])
def test_a_subscription_that_the_child_ends_is_opened_anew(board: Board, answer: Json) -> None:
    kid = board.child(era="modern")
    board.host().call()
    acknowledge(kid)
    kid.server.send({"id": listens(kid)[-1]["id"], **answer})
    board.advance(FIRST_WAIT_S)
    assert len(listens(kid)) == 2


def test_the_wait_grows_and_is_short_again_after_success(board: Board) -> None:
    kid = board.child(era="modern")
    board.host().call()
    waits = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, LONGEST_WAIT_S, LONGEST_WAIT_S]
    for count, wait in enumerate(waits, 1):
        lose(board, kid)
        board.advance(wait - 0.01)
        assert len(listens(kid)) == count
        board.advance(0.02)
        assert len(listens(kid)) == count + 1
    acknowledge(kid)
    lose(board, kid)
    board.advance(FIRST_WAIT_S)
    assert len(listens(kid)) == len(waits) + 2


def test_a_child_that_knows_no_subscriptions_is_asked_once(board: Board) -> None:
    kid = board.child(era="modern")
    board.host().call()
    kid.server.refuse(listens(kid)[-1], -32601)
    board.advance(1000)
    assert len(listens(kid)) == 1


def test_an_acknowledgement_of_something_else_means_nothing(board: Board) -> None:
    kid = board.child(era="modern")
    board.host().call()
    first = listens(kid)[-1]
    kid.subscriptions.subscribe("a")
    board.settle()
    kid.server.notify("notifications/subscriptions/acknowledged", {"_meta": {}})
    kid.server.notify("notifications/subscriptions/acknowledged")
    acknowledge(kid, {"id": 999})
    acknowledge(kid, first)
    assert kid.server.requests("notifications/cancelled") == []
    acknowledge(kid)
    assert kid.server.last("notifications/cancelled")["params"]["requestId"] == first["id"]


def test_subscriptions_of_one_moment_are_one_request(board: Board) -> None:
    kid = board.child(era="modern")
    board.host().call()
    acknowledge(kid)
    heard: list[bool] = []
    for uri in ("a", "b", "c"):
        kid.subscriptions.subscribe(uri, heard.append)
    board.settle()
    assert len(listens(kid)) == 2
    assert listens(kid)[-1]["params"]["notifications"]["resourceSubscriptions"] == ["a", "b", "c"]
    assert heard == []
    acknowledge(kid)
    assert heard == [True, True, True]


def test_a_waiting_call_gets_an_error_when_the_child_stops(board: Board) -> None:
    kid = board.child(era="modern")
    board.host().call()
    heard: list[bool] = []
    kid.subscriptions.subscribe("a", heard.append)
    board.settle()
    kid.server.die()
    assert heard == [False]


def test_following_again_before_the_first_is_in_force_loses_nobody(board: Board) -> None:
    kid = board.child(era="modern")
    board.host().call()
    heard: list[bool] = []
    kid.subscriptions.subscribe("a", heard.append)
    board.settle()
    kid.subscriptions.subscribe("b", heard.append)
    board.settle()
    assert heard == []
    acknowledge(kid)
    assert heard == [True, True]
    live = listens(kid)[-1]["id"]
    cancelled = {message["params"]["requestId"] for message in kid.server.requests("notifications/cancelled")}
    assert cancelled == {listen["id"] for listen in listens(kid)} - {live}


def test_a_missed_update_is_reported_once_it_is_listened_to_again(board: Board) -> None:
    kid = board.child(era="modern", exposure="direct", lists={"resources/list": [{"uri": "mem://a"}]})
    host = board.host()
    request = host.ask("resources/subscribe", {"uri": "mem://a"})
    acknowledge(kid)
    assert host.result(request) == {}
    lose(board, kid)
    board.advance(FIRST_WAIT_S)
    acknowledge(kid)
    assert host.notifications("notifications/resources/updated") == [{"uri": "mem://a"}]
