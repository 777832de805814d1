"""Children of which each host has its own."""

from __future__ import annotations

from tests.unit.gateway.board import EVERYTHING, Board, Json

FORM: Json = {"message": "Name?", "requestedSchema": {"type": "object"}}


def test_each_session_has_a_process_of_its_own(board: Board) -> None:
    kid = board.isolated()
    one, two = board.host(), board.host()
    one.call(args={"who": 1})
    two.call(args={"who": 2})
    one.call(args={"who": 1})
    first, second = (child.server for child in kid.made)
    assert [call["params"]["arguments"] for call in first.requests("tools/call")] == [{"who": 1}, {"who": 1}]
    assert [call["params"]["arguments"] for call in second.requests("tools/call")] == [{"who": 2}]


def test_hosts_that_come_anew_with_each_request_share_by_principal(board: Board) -> None:
    kid = board.isolated()
    for principal in ("ann", "bob", "ann", ""):
        host = board.passer(principal=principal)
        host.call()
        host.leave()
    assert len(kid.made) == 3
    assert len(kid.made[0].server.requests("tools/call")) == 2
    assert not kid.made[0].server.stopped


def test_the_process_goes_with_its_session(board: Board) -> None:
    kid = board.isolated()
    one, two = board.host(), board.host()
    one.call()
    two.call()
    one.leave()
    assert [child.server.stopped for child in kid.made] == [True, False]


def test_beyond_the_cap_a_host_is_told_what_to_do(board: Board) -> None:
    kid = board.isolated(most=2)
    hosts = [board.host() for _ in range(3)]
    last = [host.call() for host in hosts][-1]
    error = hosts[2].result(last)["structuredContent"]["error"]
    assert error["code"] == "child_isolation_full"
    assert "isolationMax" in error["hint"]
    hosts[0].leave()
    hosts[2].call()
    assert len(kid.made) == 3
    assert len(kid.made[2].server.requests("tools/call")) == 1


def test_an_idle_process_is_stopped_and_does_not_count(board: Board) -> None:
    kid = board.isolated(most=1)
    one, two = board.passer(principal="ann"), board.passer(principal="bob")
    one.call()
    kid.made[0].server.give(kid.made[0].server.last(), {})
    for _ in range(4):
        board.loop.now += 1000
        kid.sweep(board.loop.now)
        board.settle()
    assert kid.made[0].server.stopped
    two.call()
    assert len(kid.made) == 2
    assert len(kid.made[1].server.requests("tools/call")) == 1


def test_a_call_whose_host_thinks_for_long_goes_on_in_a_process_that_is_known(board: Board) -> None:
    kid = board.isolated(era="modern")
    host = board.host(EVERYTHING)
    called = host.call()
    asks = {"name": {"method": "elicitation/create", "params": FORM}}
    first = kid.made[0].server
    first.give(first.last(), {"resultType": "input_required", "inputRequests": asks})
    for _ in range(4):
        board.loop.now += 700
        kid.sweep(board.loop.now)
        board.settle()
    assert first.stopped
    host.reply(host.heard("elicitation/create")[0], {"action": "accept"})
    second = kid.made[1].server
    second.give(second.last(), {"resultType": "complete", "content": []})
    assert host.result(called) == {"content": []}
    host.leave()
    assert second.stopped


def test_one_at_work_is_not_idle(board: Board) -> None:
    kid = board.isolated()
    host = board.host(EVERYTHING)
    host.call()
    kid.made[0].server.ask("elicitation/create", FORM)
    for _ in range(3):
        board.loop.now += 700
        kid.sweep(board.loop.now)
        board.settle()
    assert not kid.made[0].server.stopped


def test_questions_and_logs_find_their_host_with_any_number_at_work(board: Board) -> None:
    kid = board.isolated()
    one, two = board.host(EVERYTHING), board.host(EVERYTHING)
    one.call()
    two.call()
    first, second = (child.server for child in kid.made)
    second.ask("elicitation/create", FORM)
    first.notify("notifications/message", {"level": "info", "data": "one"})
    assert one.heard("elicitation/create") == []
    assert len(two.heard("elicitation/create")) == 1
    assert [notification["data"] for notification in one.notifications("notifications/message")] == ["one"]
    assert two.heard("notifications/message") == []
    two.reply(two.heard("elicitation/create")[0], {"action": "accept"})
    assert second.reply() is not None


def test_its_messages_outside_a_call_go_to_its_own_host(board: Board) -> None:
    kid = board.isolated()
    one, two = board.host(EVERYTHING), board.host(EVERYTHING)
    one.call()
    two.call()
    for child in kid.made:
        child.server.give(child.server.last(), {})
    kid.made[1].server.notify("vendor/news", {"a": 1})
    kid.made[1].server.ask("roots/list")
    assert one.heard("vendor/news") == one.heard("roots/list") == []
    assert two.notifications("vendor/news") == [{"a": 1}]
    assert len(two.heard("roots/list")) == 1


def test_a_request_of_a_shared_child_outside_a_call_has_no_owner(board: Board) -> None:
    kid = board.isolated()
    passer = board.passer(EVERYTHING, principal="ann")
    passer.call()
    kid.made[0].server.give(kid.made[0].server.last(), {})
    passer.leave()
    host = board.host(EVERYTHING)
    kid.made[0].server.ask("elicitation/create", FORM)
    kid.made[0].server.notify("vendor/news", {})
    assert host.heard("elicitation/create") == host.heard("vendor/news") == []


def test_facts_learned_from_one_process_count_for_all(board: Board) -> None:
    board.isolated()
    one, two = board.host(), board.host()
    introspect = {"name": "kid_suite", "arguments": {"action": "introspect"}}
    assert "echo" not in two.get("tools/list")["tools"][0]["description"]
    one.get("tools/call", introspect)
    assert "echo" in two.get("tools/list")["tools"][0]["description"]


def test_cancelling_reaches_the_right_process(board: Board) -> None:
    kid = board.isolated()
    one, two = board.host(), board.host()
    called = one.call()
    two.call()
    one.cancel(called)
    first, second = (child.server for child in kid.made)
    assert first.last("notifications/cancelled")["params"]["requestId"] == first.last()["id"]
    assert second.requests("notifications/cancelled") == []


def test_levels_and_roots_reach_those_they_are_for(board: Board) -> None:
    kid = board.isolated()
    one, two = board.host(EVERYTHING), board.host(EVERYTHING)
    one.get("logging/setLevel", {"level": "error"})
    one.call()
    two.call()
    two.notify("notifications/roots/list_changed")
    first, second = (child.server for child in kid.made)
    assert first.last("logging/setLevel")["params"]["level"] == "error"
    assert first.requests("notifications/roots/list_changed") == []
    assert len(second.requests("notifications/roots/list_changed")) == 1


def test_a_direct_child_is_isolated_as_well(board: Board) -> None:
    kid = board.isolated(exposure="direct")
    one, two = board.host(), board.host()
    one.ask("tools/call", {"name": "echo"})
    two.ask("tools/call", {"name": "echo"})
    assert [len(child.server.requests("tools/call")) for child in kid.made] == [1, 1]


def test_a_followed_resource_is_followed_in_the_hosts_own_process(board: Board) -> None:
    kid = board.isolated(exposure="direct", lists={"resources/list": [{"uri": "mem://a"}]})
    one, two = board.host(), board.host()
    one.get("resources/subscribe", {"uri": "mem://a"})
    two.ask("tools/call", {"name": "echo"})
    first, second = (child.server for child in kid.made)
    second.notify("notifications/resources/updated", {"uri": "mem://b"})
    first.notify("notifications/resources/updated", {"uri": "mem://a"})
    assert one.notifications("notifications/resources/updated") == [{"uri": "mem://a"}]
    assert two.notifications("notifications/resources/updated") == [{"uri": "mem://b"}]


def test_a_child_of_ones_own_hears_what_its_own_host_can_do(board: Board) -> None:
    kid = board.isolated()
    board.services.shared_capabilities = b'{"shared":{}}'
    board.host(EVERYTHING).call()
    board.passer(EVERYTHING, principal="ann").call()
    own, principals = (child.server.last("initialize")["params"]["capabilities"] for child in kid.made)
    assert own == EVERYTHING
    assert principals == {"shared": {}}
