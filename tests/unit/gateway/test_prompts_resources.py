"""Prompts and resources of several children, under names that tell them apart."""

from __future__ import annotations

from switchboard_mcp.config.models import Expose
from switchboard_mcp.policy.resource_uris import matches_template
from tests.cases import each_case
from tests.unit.gateway.board import Board, FakeChild, Host, Json, open_board

PROMPTS, RESOURCES, TEMPLATES = "prompts/list", "resources/list", "resources/templates/list"


def lists(
    prompts: list[str] | None = None, uris: list[str] | None = None, templates: list[str] | None = None
) -> dict[str, list[Json]]:
    return {
        PROMPTS: [{"name": name, "vendor": 1} for name in prompts or []],
        RESOURCES: [{"uri": uri, "name": "n", "vendor": 1} for uri in uris or []],
        TEMPLATES: [{"uriTemplate": uri, "name": "n"} for uri in templates or []],
    }


def names(host: Host, method: str) -> list[str]:
    key = {PROMPTS: "name", RESOURCES: "uri", TEMPLATES: "uriTemplate"}[method]
    (entries,) = (value for value in host.get(method).values() if isinstance(value, list))
    return [entry[key] for entry in entries]


def start(host: Host, *children: FakeChild) -> None:
    """Have the children tell what they offer."""
    for child in children:
        host.ask("tools/call", {"name": f"{child.name}_suite", "arguments": {"action": "introspect"}})


def test_listing_starts_no_suite(board: Board) -> None:
    kid = board.child(lists=lists(["p"]))
    host = board.host()
    for method in (PROMPTS, RESOURCES, TEMPLATES, "tools/list"):
        host.get(method)
    assert kid.runs == []


def test_tools_of_a_suite_are_shown_once_they_are_known(board: Board) -> None:
    kid, odd = (
        board.child(lists=lists(["p"], ["file:///a b"], ["x://{id}/y"])),
        board.child("a/b", lists=lists([], ["u"])),
    )
    host = board.host()
    start(host, kid)
    host.ask("tools/call", {"name": "a_b_suite", "arguments": {"action": "introspect"}})
    assert odd.runs
    assert names(host, PROMPTS) == ["kid__p"]
    assert names(host, RESOURCES) == ["switchboard://a%2Fb/u", "switchboard://kid/file:///a b"]
    assert names(host, TEMPLATES) == ["switchboard://kid/x://{id}/y"]
    assert host.get(PROMPTS)["prompts"][0] == {"name": "kid__p", "vendor": 1}
    assert len(host.heard("notifications/prompts/list_changed")) == 1
    assert len(host.heard("notifications/resources/list_changed")) == 2


def test_a_list_that_stays_empty_is_no_news(board: Board) -> None:
    kid = board.child(lists=lists())
    host = board.host()
    start(host, kid)
    assert host.heard("notifications/prompts/list_changed") == []


def test_a_changed_list_of_prompts_is_fetched_and_sent(board: Board) -> None:
    kid = board.child(lists=lists(["p"]))
    host = board.host()
    start(host, kid)
    kid.lists[PROMPTS].append({"name": "q"})
    kid.server.notify("notifications/prompts/list_changed")
    assert len(host.heard("notifications/prompts/list_changed")) == 2
    assert names(host, PROMPTS) == ["kid__p", "kid__q"]


def test_denied_entries_are_neither_listed_nor_served(board: Board) -> None:
    kid = board.child(
        lists=lists(["open", "shut"], ["mem://open", "mem://shut"]),
        expose=Expose(deny=["shut", "mem://shut"]),
    )
    host = board.host()
    start(host, kid)
    assert names(host, PROMPTS) == ["kid__open"]
    assert names(host, RESOURCES) == ["switchboard://kid/mem://open"]
    assert host.error(host.ask("prompts/get", {"name": "kid__shut"}))["code"] == -32602
    for uri in ("switchboard://kid/mem://shut", "mem://shut"):
        assert host.error(host.ask("resources/read", {"uri": uri}))["code"] == -32002
        assert host.error(host.ask("resources/subscribe", {"uri": uri}))["code"] == -32002
    complete = {"ref": {"type": "ref/prompt", "name": "kid__shut"}, "argument": {}}
    assert host.error(host.ask("completion/complete", complete))["code"] == -32602
    assert kid.server.requests("prompts/get") == kid.server.requests("resources/read") == []


def test_entries_that_cannot_be_read_do_not_hide_the_others(board: Board) -> None:
    odd: dict[str, list[object]] = {PROMPTS: [7, {"name": 3}, {}, None, {"name": "good"}]}
    kid = board.child(lists=odd)  # type: ignore[arg-type]  # that is the point
    host = board.host()
    start(host, kid)
    assert names(host, PROMPTS) == ["kid__good"]


def test_a_prompt_is_got_by_its_own_name_with_all_else_as_it_was(board: Board) -> None:
    kid = board.child(lists=lists(["p"]))
    host = board.host()
    params = {"name": "kid__p", "arguments": {"a": "1"}, "vendor": [1]}
    request_id = host.ask("prompts/get", params, meta={"v/x": 1})
    assert kid.server.last("prompts/get")["params"] == {**params, "name": "p", "_meta": {"v/x": 1}}
    kid.server.give(kid.server.last("prompts/get"), {"messages": [], "vendor": 2})
    assert host.result(request_id) == {"messages": [], "vendor": 2}


def test_of_two_names_that_begin_alike_the_one_that_is_known_is_meant(board: Board) -> None:
    one, two = board.child("a", lists=lists(["b__c"])), board.child("a__b", lists=lists(["x"]))
    host = board.host()
    start(host, one, two)
    host.ask("prompts/get", {"name": "a__b__c"})
    assert one.server.last("prompts/get")["params"]["name"] == "b__c"
    host.ask("prompts/get", {"name": "a__b__x"})
    assert two.server.last("prompts/get")["params"]["name"] == "x"
    two.lists[PROMPTS].append({"name": "new"})  # without a notification
    host.ask("prompts/get", {"name": "a__b__new"})
    assert two.server.last("prompts/get")["params"]["name"] == "new"


@each_case("name", ["p", "other__p", "", "kid_p"], board=open_board)
def test_a_prompt_nobody_has_is_refused(board: Board, name: str) -> None:
    board.child(lists=lists(["p"]))
    host = board.host()
    assert host.error(host.ask("prompts/get", {"name": name}))["code"] == -32602


@each_case(("method", "key"), [("prompts/get", "name"), ("resources/read", "uri")])
@each_case("value", [None, 3, [], {}], board=open_board)
def test_a_name_that_is_no_text_is_refused(board: Board, method: str, key: str, value: object) -> None:
    board.child()
    host = board.host()
    assert host.error(host.ask(method, {} if value is None else {key: value}))["code"] == -32602


def test_a_resource_is_read_by_its_own_uri_and_told_by_the_one_the_host_used(board: Board) -> None:
    kid = board.child(lists=lists([], ["mem://a"], ["mem://t/{id}"]))
    host = board.host()
    request_id = host.ask("resources/read", {"uri": "switchboard://kid/mem://a"})
    assert kid.server.last("resources/read")["params"] == {"uri": "mem://a"}
    contents = [{"uri": "mem://a", "text": "1", "v": 1.5}, {"uri": "mem://b", "blob": ""}, {"odd": 1}, 7]
    kid.server.give(kid.server.last("resources/read"), {"contents": contents, "vendor": 1})
    assert host.result(request_id) == {
        "contents": [
            {"uri": "switchboard://kid/mem://a", "text": "1", "v": 1.5},
            {"uri": "switchboard://kid/mem://b", "blob": ""},
            {"odd": 1},
            7,
        ],
        "vendor": 1,
    }


@each_case("uri", ["mem://a", "mem://t/5"], board=open_board)
def test_a_childs_own_uri_is_understood_where_only_one_has_it(board: Board, uri: str) -> None:
    kid = board.child(lists=lists([], ["mem://a", "mem://both"], ["mem://t/{id}"]))
    other = board.child("other", lists=lists([], ["mem://both"]))
    host = board.host()
    start(host, kid, other)
    request_id = host.ask("resources/read", {"uri": uri})
    kid.server.give(kid.server.last("resources/read"), {"contents": [{"uri": uri}]})
    assert host.result(request_id) == {"contents": [{"uri": uri}]}
    assert host.error(host.ask("resources/read", {"uri": "mem://both"}))["code"] == -32002
    assert host.error(host.ask("resources/read", {"uri": "mem://nowhere"}))["data"] == {
        "uri": "mem://nowhere"
    }


@each_case(("modern", "code"), [(False, -32002), (True, -32602)], board=open_board)
def test_a_resource_that_is_not_found_is_reported_in_the_hosts_era(
    board: Board, modern: bool, code: int
) -> None:
    kid = board.child(lists=lists([], ["mem://a"]))
    host = board.host(modern=modern)
    request_id = host.ask("resources/read", {"uri": "switchboard://kid/mem://a"})
    kid.server.refuse(kid.server.last("resources/read"), -32002, "gone", {"uri": "mem://a"})
    error = host.error(request_id)
    assert error["code"] == code
    assert error["data"] == {"uri": "switchboard://kid/mem://a" if modern else "mem://a"}


def test_a_modern_host_has_cache_hints_with_what_it_may_keep(board: Board) -> None:
    kid = board.child(lists=lists(["p"], ["mem://a"]))
    host = board.host(modern=True)
    for method in (PROMPTS, RESOURCES, TEMPLATES, "tools/list", "server/discover"):
        result = host.get(method)
        assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")
    request_id = host.ask("resources/read", {"uri": "switchboard://kid/mem://a"})
    kid.server.give(kid.server.last("resources/read"), {"contents": []})
    assert host.result(request_id) == {
        "resultType": "complete",
        "contents": [],
        "ttlMs": 0,
        "cacheScope": "private",
    }
    got = host.ask("prompts/get", {"name": "kid__p"})
    kid.server.give(kid.server.last("prompts/get"), {"messages": []})
    assert host.result(got) == {"resultType": "complete", "messages": []}


@each_case(
    ("ref", "own"),
    [
        (
            {"type": "ref/prompt", "name": "kid__p", "title": "T"},
            {"type": "ref/prompt", "name": "p", "title": "T"},
        ),
        (
            {"type": "ref/resource", "uri": "switchboard://kid/x://{id}/y"},
            {"type": "ref/resource", "uri": "x://{id}/y"},
        ),
        ({"type": "ref/resource", "uri": "x://{id}/y"}, {"type": "ref/resource", "uri": "x://{id}/y"}),
    ],
    board=open_board,
)
def test_a_completion_names_what_it_is_for_as_the_child_knows_it(board: Board, ref: Json, own: Json) -> None:
    kid = board.child(lists=lists(["p"], [], ["x://{id}/y"]))
    host = board.host()
    start(host, kid)
    params = {"argument": {"name": "id", "value": "1"}, "context": {"arguments": {"b": "2"}}, "vendor": 1}
    request_id = host.ask("completion/complete", {"ref": ref, **params})
    assert kid.server.last("completion/complete")["params"] == {"ref": own, **params}
    kid.server.give(kid.server.last("completion/complete"), {"completion": {"values": []}})
    assert host.result(request_id) == {"completion": {"values": []}}


@each_case(
    "params", [{}, {"ref": {}}, {"ref": {"type": "ref/prompt", "name": "no"}}, {"ref": 3}], board=open_board
)
def test_a_completion_for_nothing_is_refused(board: Board, params: Json) -> None:
    board.child()
    host = board.host()
    assert host.error(host.ask("completion/complete", params))["code"] == -32602


@each_case(
    ("template", "uri", "expected"),
    [
        ("a://{x}", "a://1", True),
        ("a://{x}/b", "a://1/b", True),
        ("a://{x}/b", "a://1/c", False),
        ("a://{x}/{y}.md", "a://1/2.md", True),
        ("a://{+path}", "a://1/2/3", True),
        ("a://b", "a://b", False),
        ("{any}", "a://b", False),
        ("a://b{?q}c", "a://b", False),
    ],
)
def test_a_uri_fits_a_template_that_begins_and_ends_like_it(template: str, uri: str, expected: bool) -> None:
    assert matches_template(template, uri) is expected


def test_tools_that_are_others_than_last_time_are_reported(board: Board) -> None:
    kid = board.child()
    host = board.host()
    start(host, kid)
    assert host.heard("notifications/tools/list_changed") == []
    kid.server.die()
    host.call()
    assert host.heard("notifications/tools/list_changed") == []
    kid.lists["tools/list"] = [{"name": "another"}]
    kid.server.die()
    board.advance(5)
    host.call()
    assert len(kid.runs) == 3
    assert len(host.heard("notifications/tools/list_changed")) == 1
    assert "another" in host.get("tools/list")["tools"][0]["description"]
