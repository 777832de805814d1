"""What children say without being asked."""

from __future__ import annotations

import pytest

from tests.cases import each_case
from tests.unit.gateway.board import EVERYTHING, PREFIX, Board, FakeChild, Json, Road, open_board

LOG: Json = {"level": "info", "logger": "db", "data": {"n": 1.0}, "vendor": 1}
LEVEL = PREFIX + "logLevel"


def new_kid(board: Board) -> FakeChild:
    return board.child()


kid = pytest.fixture(new_kid, name="kid")


# --- logs --------------------------------------------------------------------------------------------------


def test_a_log_message_names_the_suite_it_is_from(board: Board, kid: FakeChild) -> None:
    host = board.host()
    host.call()
    kid.server.notify("notifications/message", LOG)
    kid.server.notify("notifications/message", {"level": "info"})
    assert host.notifications("notifications/message") == [
        {**LOG, "logger": "kid/db"},
        {"level": "info", "logger": "kid"},
    ]


def test_a_log_message_of_a_direct_child_is_as_it_came(board: Board) -> None:
    kid = board.child(exposure="direct")
    host = board.host()
    kid.server.notify("notifications/message", LOG)
    assert host.notifications("notifications/message") == [LOG]


@each_case(
    ("wanted", "level", "heard"),
    [
        ("", "debug", True),
        ("warning", "info", False),
        ("warning", "warning", True),
        ("warning", "emergency", True),
        ("warning", "verbose", True),
        ("warning", "", True),
    ],
    board=open_board,
    kid=new_kid,
)
def test_a_host_hears_what_is_as_loud_as_it_asked(
    board: Board, kid: FakeChild, wanted: str, level: str, heard: bool
) -> None:
    host = board.host()
    if wanted:
        host.get("logging/setLevel", {"level": wanted})
    host.call()
    kid.server.notify("notifications/message", {"level": level, "data": 1})
    assert bool(host.heard("notifications/message")) is heard


def test_a_modern_host_hears_only_what_a_request_asked_for(board: Board, kid: FakeChild) -> None:
    host = board.host(modern=True)
    silent, curious, strict = Road(), Road(), Road()
    host.call(road=silent)
    host.call(road=curious, meta={LEVEL: "info"})
    host.call(road=strict, meta={LEVEL: "error"})
    kid.server.notify("notifications/message", LOG)
    assert silent.heard == strict.heard == []
    assert [message["params"]["data"] for message in curious.heard] == [{"n": 1.0}]
    kid.server.notify("notifications/message", {**LOG, "level": "alert"})
    assert len(strict.heard) == 1
    assert len(curious.heard) == 1


def test_a_modern_host_hears_nothing_between_requests(board: Board, kid: FakeChild) -> None:
    host = board.host(modern=True)
    host.call(meta={LEVEL: "debug"})
    kid.server.give(kid.server.last(), {})
    kid.server.notify("notifications/message", LOG)
    assert host.heard("notifications/message") == []


def test_with_two_hosts_at_work_a_log_message_is_nobodys(board: Board, kid: FakeChild) -> None:
    one, two = board.host(), board.host()
    one.call()
    two.call()
    kid.server.notify("notifications/message", LOG)
    assert one.heard("notifications/message") == two.heard("notifications/message") == []


def test_children_are_asked_for_the_lowest_level_any_host_wants(board: Board, kid: FakeChild) -> None:
    one, two = board.host(), board.host()
    one.get("logging/setLevel", {"level": "error"})
    one.call()
    two.get("logging/setLevel", {"level": "debug"})
    two.leave()
    levels = [message["params"]["level"] for message in kid.server.requests("logging/setLevel")]
    assert levels == ["error", "debug", "error"]


@each_case("level", ["loud", "", None, 3], board=open_board, kid=new_kid)
def test_an_unknown_level_is_refused(board: Board, kid: FakeChild, level: object) -> None:
    host = board.host()
    assert host.error(host.ask("logging/setLevel", {"level": level}))["code"] == -32602


def test_a_child_without_logging_is_not_asked_for_a_level(board: Board) -> None:
    kid = board.child(capabilities={"tools": {}})
    host = board.host()
    host.get("logging/setLevel", {"level": "error"})
    host.call()
    assert kid.server.requests("logging/setLevel") == []


@each_case("params", ["text", [1], 7, {"level": 3}, {"level": None}], board=open_board, kid=new_kid)
def test_a_log_message_that_cannot_be_read_is_dropped(board: Board, kid: FakeChild, params: Json) -> None:
    host = board.host()
    called = host.call()
    kid.server.notify("notifications/message", params)
    kid.server.give(kid.server.last(), {})
    assert host.result(called) == {}
    assert host.heard("notifications/message") == []


# --- progress ----------------------------------------------------------------------------------------------


def test_progress_goes_to_the_call_it_is_of_whoever_else_is_there(board: Board, kid: FakeChild) -> None:
    one, two = board.host(), board.host(modern=True)
    one.call(meta={"progressToken": "same"})
    two.call(meta={"progressToken": "same"})
    first, second = (m["params"]["_meta"]["progressToken"] for m in kid.server.requests("tools/call"))
    assert first != second
    kid.server.notify("notifications/progress", {"progressToken": second, "progress": 1, "vendor": [1]})
    assert one.heard("notifications/progress") == []
    assert two.notifications("notifications/progress") == [
        {"progressToken": "same", "progress": 1, "vendor": [1]}
    ]


def test_progress_extends_the_time_of_a_call(board: Board, kid: FakeChild) -> None:
    host = board.host()
    called = host.call(meta={"progressToken": 1})
    for step in range(5):
        board.advance(50)
        kid.server.notify(
            "notifications/progress", {"progressToken": int(kid.server.last()["id"]), "progress": step}
        )
    assert host.answer(called) is None
    board.advance(61)
    assert host.answer(called) is not None


# --- what is unknown ---------------------------------------------------------------------------------------


@each_case("modern", [False, True], board=open_board, kid=new_kid)
def test_an_unknown_notification_reaches_the_host_at_work(board: Board, kid: FakeChild, modern: bool) -> None:
    idle, host = board.host(), board.host(modern=modern)
    host.call()
    kid.server.send(
        b'{"jsonrpc":"2.0","method":"notifications/vendor","params":{"big":12345678901234567890123}}'
    )
    kid.server.notify("vendor/other")
    assert host.notifications("notifications/vendor") == [{"big": 12345678901234567890123}]
    assert "params" not in host.heard("vendor/other")[0]
    assert idle.heard("notifications/vendor") == []


@each_case(
    "method",
    ["notifications/elicitation/complete", "notifications/tasks/status"],
    board=open_board,
    kid=new_kid,
)
def test_notifications_of_the_handshake_era_do_not_reach_a_modern_host(
    board: Board, kid: FakeChild, method: str
) -> None:
    old = board.host(EVERYTHING)
    old.call()
    kid.server.ask("elicitation/create", {"mode": "url", "url": "https://x", "elicitationId": "e"})
    kid.server.notify(method, {"elicitationId": "e"})
    assert old.notifications(method) == [{"elicitationId": "e"}]
    kid.server.give(kid.server.last(), {})
    new = board.host(modern=True)
    new.call()
    kid.server.notify(method, {"elicitationId": "other"})
    assert new.heard(method) == []
    assert len(old.heard(method)) == 1


# --- changes -----------------------------------------------------------------------------------------------


def test_a_changed_list_reaches_every_host_of_old_and_those_who_listen(board: Board, kid: FakeChild) -> None:
    old, listening, deaf = board.host(), board.host(modern=True), board.host(modern=True)
    old.call()
    id = listening.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    deaf.ask("subscriptions/listen", {"notifications": {"promptsListChanged": True}})
    kid.lists["tools/list"] = [{"name": "other"}]
    kid.server.notify("notifications/tools/list_changed")
    assert len(old.heard("notifications/tools/list_changed")) == 1
    assert listening.notifications("notifications/tools/list_changed") == [
        {"_meta": {PREFIX + "subscriptionId": id}}
    ]
    assert deaf.heard("notifications/tools/list_changed") == []
    assert "other" in old.get("tools/list")["tools"][0]["description"]


def test_a_listener_that_has_cancelled_hears_no_more(board: Board, kid: FakeChild) -> None:
    host = board.host(modern=True)
    host.call()
    id = host.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    host.cancel(id)
    kid.server.notify("notifications/tools/list_changed")
    assert host.heard("notifications/tools/list_changed") == []
    assert host.answer(id) is None


def test_changed_roots_are_reported_to_children_that_run(board: Board, kid: FakeChild) -> None:
    new = board.child("new", era="modern")
    host = board.host(EVERYTHING)
    host.notify("notifications/roots/list_changed")
    assert kid.runs == []
    host.call()
    host.call(suite="new_suite")
    host.notify("notifications/roots/list_changed")
    assert len(kid.server.requests("notifications/roots/list_changed")) == 1
    assert new.server.requests("notifications/roots/list_changed") == []


def test_a_notification_nobody_knows_goes_to_the_one_child_shown_as_it_is(board: Board) -> None:
    kid, suite = board.child(exposure="direct"), board.child("other")
    host = board.host()
    host.call(suite="other_suite")
    host.notify("notifications/vendor", {"a": [1]})
    assert kid.server.last("notifications/vendor")["params"] == {"a": [1]}
    assert suite.server.requests("notifications/vendor") == []
    assert len(kid.server.requests("notifications/initialized")) == 1
