"""Resources that hosts follow, over children of either era."""

from __future__ import annotations

from tests.cases import each_case
from tests.unit.gateway.board import PREFIX, Board, FakeChild, Host, Json, open_board

URI = "mem://a"
SHOWN = "switchboard://kid/mem://a"
UPDATED = "notifications/resources/updated"
LISTS: dict[str, list[Json]] = {"resources/list": [{"uri": URI, "name": "a"}], "resources/templates/list": []}


def child(board: Board, era: str = "legacy", **more: object) -> FakeChild:
    return board.child(era=era, lists=LISTS, **more)  # type: ignore[arg-type]  # settings of the suite


def acknowledge(kid: FakeChild) -> None:
    """A modern child says that it listens."""
    listen = kid.server.last("subscriptions/listen")
    meta = {PREFIX + "subscriptionId": listen["id"]}
    notification = {"notifications": listen["params"]["notifications"], "_meta": meta}
    kid.server.notify("notifications/subscriptions/acknowledged", notification)


def updated(kid: FakeChild, uri: str = URI, **more: object) -> None:
    kid.server.notify(UPDATED, {"uri": uri, **more})


def subscribe(host: Host, uri: str = SHOWN) -> int | str:
    return host.ask("resources/subscribe", {"uri": uri})


# --- hosts of old ------------------------------------------------------------------------------------------


def test_a_followed_resource_is_reported_by_the_name_the_host_used(board: Board) -> None:
    kid = child(board)
    host = board.host()
    assert host.result(subscribe(host)) == {}
    assert kid.server.last("resources/subscribe")["params"] == {"uri": URI}
    updated(kid, title="t", _meta={"v/x": 1})
    assert host.notifications(UPDATED) == [{"uri": SHOWN, "title": "t", "_meta": {"v/x": 1}}]
    subscribe(host, URI)
    updated(kid)
    assert [notification["uri"] for notification in host.notifications(UPDATED)] == [SHOWN, SHOWN, URI]


def test_a_part_of_a_followed_resource_is_reported_too(board: Board) -> None:
    kid = child(board)
    host = board.host()
    subscribe(host)
    updated(kid, "mem://a/part")
    updated(kid, "mem://ab")
    assert [notification["uri"] for notification in host.notifications(UPDATED)] == [SHOWN + "/part"]


def test_only_the_host_that_follows_hears(board: Board) -> None:
    kid = child(board)
    one, two = board.host(), board.host()
    subscribe(one)
    updated(kid)
    assert len(one.heard(UPDATED)) == 1
    assert two.heard(UPDATED) == []


def test_the_child_is_told_when_the_last_one_stops_following(board: Board) -> None:
    kid = child(board)
    one, two = board.host(), board.host()
    subscribe(one)
    subscribe(two)
    assert one.get("resources/unsubscribe", {"uri": SHOWN}) == {}
    updated(kid)
    assert one.heard(UPDATED) == []
    assert len(two.heard(UPDATED)) == 1
    assert kid.server.requests("resources/unsubscribe") == []
    two.leave()
    assert kid.server.last("resources/unsubscribe")["params"] == {"uri": URI}


def test_following_twice_counts_once(board: Board) -> None:
    kid = child(board)
    host = board.host()
    subscribe(host)
    subscribe(host)
    host.get("resources/unsubscribe", {"uri": SHOWN})
    assert len(kid.server.requests("resources/unsubscribe")) == 1


def test_unsubscribing_from_what_is_not_followed_is_fine(board: Board) -> None:
    kid = child(board)
    host = board.host()
    assert host.get("resources/unsubscribe", {"uri": "mem://other"}) == {}
    assert kid.runs == []


def test_a_refusal_of_the_child_is_reported_and_nothing_is_followed(board: Board) -> None:
    def script(message: Json) -> Json | None:
        refusal = {"error": {"code": -32601, "message": "no subscriptions"}}
        return refusal if message["method"] == "resources/subscribe" else None

    kid = child(board, script=script)
    host = board.host()
    assert host.error(subscribe(host))["message"] == "no subscriptions"
    updated(kid)
    assert host.heard(UPDATED) == []
    host.leave()
    assert kid.server.requests("resources/unsubscribe") == []


def test_an_unknown_resource_cannot_be_followed(board: Board) -> None:
    child(board)
    host = board.host()
    assert host.error(subscribe(host, "other://x"))["code"] == -32002


def test_a_child_that_comes_back_is_subscribed_to_again(board: Board) -> None:
    kid = child(board)
    host = board.host()
    subscribe(host)
    kid.server.die()
    host.call()
    assert len(kid.runs) == 2
    assert kid.server.last("resources/subscribe")["params"] == {"uri": URI}
    updated(kid)
    assert len(host.heard(UPDATED)) == 1


def test_a_child_with_a_followed_resource_is_not_idle(board: Board) -> None:
    kid = child(board)
    host = board.host()
    subscribe(host)
    for _ in range(3):
        board.loop.now += 10_000
        kid.sweep(board.loop.now)
        board.settle()
    assert len(kid.runs) == 1
    assert not kid.server.stopped
    host.leave()
    for _ in range(3):
        board.loop.now += 10_000
        kid.sweep(board.loop.now)
        board.settle()
    assert kid.server.stopped


def test_an_update_nobody_asked_for_goes_on_where_the_child_is_shown_as_it_is(board: Board) -> None:
    kid = child(board, exposure="direct")
    host = board.host()
    updated(kid)
    assert host.notifications(UPDATED) == [{"uri": URI}]


def test_a_modern_child_is_followed_by_listening_to_it(board: Board) -> None:
    kid = child(board, "modern")
    host = board.host()
    host.call()
    acknowledge(kid)
    first = kid.server.last("subscriptions/listen")
    assert first["params"]["notifications"] == {"toolsListChanged": True, "resourcesListChanged": True}
    request_id = subscribe(host)
    assert host.answer(request_id) is None
    listen = kid.server.last("subscriptions/listen")
    assert listen["params"]["notifications"]["resourceSubscriptions"] == [URI]
    assert kid.server.requests("notifications/cancelled") == []
    acknowledge(kid)
    assert host.result(request_id) == {}
    assert kid.server.last("notifications/cancelled")["params"]["requestId"] == first["id"]
    updated(kid, _meta={PREFIX + "subscriptionId": listen["id"], "v/x": 1})
    assert host.notifications(UPDATED) == [{"uri": SHOWN, "_meta": {"v/x": 1}}]
    host.get("resources/unsubscribe", {"uri": SHOWN})
    assert "resourceSubscriptions" not in kid.server.last("subscriptions/listen")["params"]["notifications"]


def test_a_modern_child_that_never_says_that_it_listens_is_not_waited_for(board: Board) -> None:
    kid = child(board, "modern")
    host = board.host()
    request_id = subscribe(host)
    board.advance(59)
    assert host.answer(request_id) is None
    board.advance(2)
    assert "does not support subscriptions" in host.error(request_id)["message"]
    acknowledge(kid)
    updated(kid)
    assert host.heard(UPDATED) == []


def test_a_waiter_for_a_subscription_gets_an_error_when_the_child_stops(board: Board) -> None:
    kid = child(board, "modern")
    host = board.host()
    request_id = subscribe(host)
    assert kid.server.requests("subscriptions/listen")
    board.loop.run_until_complete(kid.close())
    assert "does not support subscriptions" in host.error(request_id)["message"]


@each_case("params", [{"_meta": 5}, {"_meta": None}, [], {}], board=open_board)
def test_an_acknowledgement_that_makes_no_sense_is_none(board: Board, params: Json) -> None:
    kid = child(board, "modern")
    host = board.host()
    request_id = subscribe(host)
    problems: list[object] = []
    board.loop.set_exception_handler(lambda _loop, context: problems.append(context))
    kid.server.notify("notifications/subscriptions/acknowledged", params)
    assert problems == []
    assert host.answer(request_id) is None
    acknowledge(kid)
    assert host.result(request_id) == {}


def test_a_modern_child_that_cannot_be_listened_to_says_so(board: Board) -> None:
    def script(message: Json) -> Json | None:
        refusal = {"error": {"code": -32601, "message": "no"}}
        return refusal if message["method"] == "subscriptions/listen" else None

    child(board, "modern", script=script)
    host = board.host()
    assert host.error(subscribe(host))["code"] == -32601


# --- those who listen --------------------------------------------------------------------------------------


def listen(host: Host, *uris: str, **kinds: bool) -> int | str:
    wishes: Json = dict(kinds)
    if uris:
        wishes["resourceSubscriptions"] = list(uris)
    return host.ask("subscriptions/listen", {"notifications": wishes})


@each_case("era", ["legacy", "modern"], board=open_board)
def test_a_modern_host_hears_of_the_resources_it_listens_to(board: Board, era: str) -> None:
    kid = child(board, era)
    host = board.host(modern=True)
    id = listen(host, SHOWN, "other://x", toolsListChanged=True)
    meta = {"_meta": {PREFIX + "subscriptionId": id}}
    assert host.notifications("notifications/subscriptions/acknowledged") == [
        {"notifications": {"toolsListChanged": True, "resourceSubscriptions": [SHOWN]}, **meta}
    ]
    updated(kid)
    assert host.notifications(UPDATED) == [{"uri": SHOWN, **meta}]
    host.cancel(id)
    updated(kid)
    assert len(host.heard(UPDATED)) == 1
    if era == "legacy":
        assert len(kid.server.requests("resources/subscribe")) == 1
        assert len(kid.server.requests("resources/unsubscribe")) == 1


@each_case(
    ("resources", "honoured"),
    [({"subscribe": True}, True), ({"subscribe": False}, False), ({}, False), ({"subscribe": 1}, False)],
)
@each_case("known", [True, False], board=open_board)
def test_the_acknowledgement_names_no_resource_of_a_child_that_is_known_to_have_no_subscriptions(
    board: Board, resources: Json, honoured: bool, known: bool
) -> None:
    child(board, capabilities={"tools": {}, "resources": resources})
    host = board.host(modern=True)
    if known:
        host.call()
    listen(host, SHOWN)
    (notification,) = host.notifications("notifications/subscriptions/acknowledged")
    expected = {"resourceSubscriptions": [SHOWN]} if honoured or not known else {}
    assert notification["notifications"] == expected


def test_the_id_of_a_subscription_keeps_its_type(board: Board) -> None:
    child(board)
    host = board.host(modern=True)
    for id in (5, "5"):
        host.ask("subscriptions/listen", {"notifications": {}}, id=id)
    notification = host.notifications("notifications/subscriptions/acknowledged")
    assert [one["_meta"][PREFIX + "subscriptionId"] for one in notification] == [5, "5"]
    assert [one["notifications"] for one in notification] == [{}, {}]


@each_case(
    "params", [{}, {"notifications": 1}, {"notifications": {"toolsListChanged": "yes"}}], board=open_board
)
def test_a_listen_request_that_says_nothing_useful_is_refused(board: Board, params: Json) -> None:
    host = board.host(modern=True)
    assert host.error(host.ask("subscriptions/listen", params))["code"] == -32602
    assert host.session.listens == {}


def test_a_host_that_goes_listens_no_more(board: Board) -> None:
    kid = child(board)
    host = board.passer()
    listen(host, SHOWN)
    host.leave()
    updated(kid)
    assert host.heard(UPDATED) == []
    assert len(kid.server.requests("resources/unsubscribe")) == 1


def test_several_hosts_follow_one_resource_with_one_subscription(board: Board) -> None:
    kid = child(board)
    old, new = board.host(), board.host(modern=True)
    subscribe(old)
    id = listen(new, SHOWN)
    assert len(kid.server.requests("resources/subscribe")) == 1
    updated(kid)
    assert old.notifications(UPDATED) == [{"uri": SHOWN}]
    assert new.notifications(UPDATED) == [{"uri": SHOWN, "_meta": {PREFIX + "subscriptionId": id}}]
    old.leave()
    assert kid.server.requests("resources/unsubscribe") == []


def test_an_id_listens_once(board: Board) -> None:
    child(board)
    host = board.host(modern=True)
    listen = {"notifications": {"toolsListChanged": True}}
    host.ask("subscriptions/listen", listen, id="x")
    host.ask("subscriptions/listen", listen, id="x")
    assert host.error("x")["code"] == -32600
    assert len(host.heard("notifications/subscriptions/acknowledged")) == 1


def test_a_resource_that_the_child_does_not_offer_is_not_acknowledged(board: Board) -> None:
    child(board, exposure="direct")
    host = board.host(modern=True)
    host.get("resources/list")
    wanted = {"notifications": {"resourceSubscriptions": [URI, "mem://unlisted"]}}
    host.ask("subscriptions/listen", wanted)
    (acknowledged,) = host.notifications("notifications/subscriptions/acknowledged")
    assert acknowledged["notifications"] == {"resourceSubscriptions": [URI]}
