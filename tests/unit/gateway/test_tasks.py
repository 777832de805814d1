"""Tasks: tools of handshake-era children that only run as tasks, and tasks that a call of a suite starts."""

from __future__ import annotations

import pytest

from switchboard_mcp.gateway import issued_ids
from switchboard_mcp.gateway.client_requests.suspended_requests import COALESCE_S
from tests.cases import each_case
from tests.unit.gateway.board import ECHO, EVERYTHING, PREFIX, Board, FakeChild, Host, Json, open_board
from tests.unit.gateway.pipeline.chained import chained

TOOL: Json = {"name": "research", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
CREATED: Json = {"task": {"taskId": "t1", "status": "working", "ttl": 1000}}
DONE: Json = {"content": [{"type": "text", "text": "found"}]}


@pytest.fixture(params=["suite handshake", "suite modern", "direct modern"])
def research(request: pytest.FixtureRequest, board: Board) -> tuple[FakeChild, Host, int | str]:
    """The call of such a tool by a host that knows nothing of it."""
    exposure, era = request.param.split()
    kid = board.child(exposure=exposure, tools=[TOOL, {"name": "echo"}])
    host = board.host(EVERYTHING, modern=era == "modern")
    if exposure == "suite":
        return kid, host, host.call("research", args={"q": 1})
    return kid, host, host.ask("tools/call", {"name": "research", "arguments": {"q": 1}})


def test_the_call_is_made_as_a_task_and_its_result_waited_for(
    board: Board, research: tuple[FakeChild, Host, int | str]
) -> None:
    kid, host, called = research
    params = kid.server.last()["params"]
    assert (params["task"], params["arguments"]) == ({}, {"q": 1})
    kid.server.give(kid.server.last(), CREATED)
    assert host.answer(called) is None
    assert kid.server.last("tasks/result")["params"] == {"taskId": "t1"}
    board.advance(3600)
    kid.server.give(kid.server.last("tasks/result"), DONE)
    assert host.result(called)["content"] == DONE["content"]


def test_its_questions_meanwhile_reach_the_host(
    board: Board, research: tuple[FakeChild, Host, int | str]
) -> None:
    kid, host, called = research
    kid.server.give(kid.server.last(), CREATED)
    kid.server.ask("elicitation/create", {"message": "Which?"})
    board.advance(COALESCE_S)
    if host.modern:
        assert host.result(called)["resultType"] == "input_required"
    else:
        assert len(host.heard("elicitation/create")) == 1


def test_with_the_answer_it_has_all_its_time_again(board: Board) -> None:
    kid = board.child(tools=[TOOL])
    host = board.host(EVERYTHING)
    called = host.call("research")
    kid.server.give(kid.server.last(), CREATED)
    kid.server.ask("elicitation/create", {"message": "Which?"})
    host.reply(host.heard("elicitation/create")[0], {"action": "accept"})
    board.advance(3600)
    kid.server.give(kid.server.last("tasks/result"), DONE)
    assert host.result(called) == DONE


def test_cancelling_it_cancels_the_task(board: Board, research: tuple[FakeChild, Host, int | str]) -> None:
    kid, host, called = research
    kid.server.give(kid.server.last(), CREATED)
    host.cancel(called)
    assert kid.server.last("tasks/cancel")["params"] == {"taskId": "t1"}
    assert host.answer(called) is None


def test_an_error_instead_of_a_task_is_reported(
    board: Board, research: tuple[FakeChild, Host, int | str]
) -> None:
    kid, host, called = research
    kid.server.refuse(kid.server.last(), -32603, "no room")
    answer = host.answer(called)
    assert answer is not None
    assert "no room" in str(answer)


def test_other_tools_are_called_as_ever(board: Board) -> None:
    kid = board.child(tools=[TOOL, {"name": "echo"}])
    host = board.host()
    called = host.call("echo")
    assert "task" not in kid.server.last()["params"]
    kid.server.give(kid.server.last(), {"content": [], "taskId": "not one"})
    assert host.result(called) == {"content": [], "taskId": "not one"}


def test_a_host_that_knows_tasks_makes_them_itself(board: Board) -> None:
    kid = board.child(exposure="direct", tools=[TOOL])
    host = board.host()
    called = host.ask("tools/call", {"name": "research", "task": {"ttl": 5}})
    assert kid.server.last()["params"]["task"] == {"ttl": 5}
    kid.server.give(kid.server.last(), CREATED)
    assert host.result(called) == CREATED


TASKS = PREFIX + "tasks"
KNOWS_TASKS: Json = {**EVERYTHING, "extensions": {TASKS: {}}}
HAS_TASKS: Json = {"tools": {}, "resources": {}, "extensions": {TASKS: {}}}
UNKNOWN: Json = {"code": -32602, "message": "Unknown or expired task."}


def handle(id: str, ttl_ms: int | None = 60_000, **more: object) -> Json:
    """The result with which a modern child announces a task."""
    return {"resultType": "task", "taskId": id, "status": "working", "ttlMs": ttl_ms, **more}


def modern_child(board: Board, **more: object) -> FakeChild:
    return board.child(era="modern", capabilities=HAS_TASKS, **more)  # type: ignore[arg-type]


def started(kid: FakeChild, host: Host, id: str = "1", **more: object) -> str:
    """Start a task through the suite; its id for the host."""
    called = host.call()
    kid.server.give(kid.server.last("tools/call"), {**handle(id), **more})
    task = host.result(called)["taskId"]
    assert isinstance(task, str)
    return task


def test_a_task_of_a_suite_has_an_id_of_our_own_and_is_found_again(board: Board) -> None:
    kid, host = modern_child(board), board.host(KNOWS_TASKS, modern=True)
    called = host.call()
    declared = kid.server.last("tools/call")["params"]["_meta"][PREFIX + "clientCapabilities"]
    assert TASKS in declared["extensions"]
    kid.server.give(kid.server.last("tools/call"), handle("1", pollIntervalMs=5))
    created = host.result(called)
    task = created["taskId"]
    assert len(task) >= 32
    assert all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in task)
    assert (created["resultType"], created["ttlMs"], created["pollIntervalMs"]) == ("task", 60_000, 5)

    question = {"k": {"method": "elicitation/create", "params": {"message": "1"}}}
    polled = host.ask("tasks/get", {"taskId": task})
    assert kid.server.last("tasks/get")["params"]["taskId"] == "1"
    kid.server.give(
        kid.server.last("tasks/get"),
        {**handle("1"), "resultType": "complete", "status": "input_required", "inputRequests": question},
    )
    answer = host.result(polled)
    assert (answer["taskId"], answer["inputRequests"]) == (task, question)

    for method, more in (
        ("tasks/update", {"inputResponses": {"k": {"action": "accept"}}}),
        ("tasks/cancel", {}),
    ):
        sent = host.ask(method, {"taskId": task, **more})
        params = kid.server.last(method)["params"]
        assert (params["taskId"], params.get("inputResponses", {})) == ("1", more.get("inputResponses", {}))
        kid.server.give(kid.server.last(method), {"resultType": "complete"})
        assert host.result(sent)["resultType"] == "complete"


def test_the_result_of_a_task_comes_as_the_child_sent_it_and_its_links_can_be_read(board: Board) -> None:
    kid, host = modern_child(board), board.host(KNOWS_TASKS, modern=True)
    task = started(kid, host)
    result = {"content": [{"type": "resource_link", "uri": "mem://new"}, {"type": "text", "text": "1"}]}
    polled = host.ask("tasks/get", {"taskId": task})
    kid.server.give(
        kid.server.last("tasks/get"),
        {**handle("1"), "resultType": "complete", "status": "completed", "result": result},
    )
    assert host.result(polled)["result"] == result
    suite = board.gateway.all_suites["kid_suite"]
    issued = host.session.broker.issued
    assert issued.find(host.session, suite.child, issued_ids.IdKind.RESOURCE, "mem://new") is not None


def test_the_extension_is_declared_to_the_child_only_by_a_request_that_declares_it(board: Board) -> None:
    kid, host = modern_child(board), board.host(EVERYTHING, modern=True)
    called = host.call()
    meta = kid.server.last("tools/call")["params"]["_meta"]
    assert TASKS not in meta[PREFIX + "clientCapabilities"].get("extensions", {})
    kid.server.give(kid.server.last("tools/call"), handle("1"))
    assert "child_protocol" in str(host.result(called))
    assert host.error(host.ask("tasks/get", {"taskId": "1"}))["code"] == -32021


def test_a_call_that_selects_from_its_result_runs_as_a_plain_call(board: Board) -> None:
    kid, host = modern_child(board), board.host(KNOWS_TASKS, modern=True)
    arguments = {"action": "call", "subtool": "echo", "args": {}, "select": "a"}
    host.ask("tools/call", {"name": "kid_suite", "arguments": arguments})
    meta = kid.server.last("tools/call")["params"]["_meta"]
    assert TASKS not in meta[PREFIX + "clientCapabilities"]["extensions"]


@each_case(("era", "offered"), [("modern", True), ("legacy", False)], board=open_board)
def test_the_extension_is_offered_if_a_child_behind_a_suite_has_it(
    board: Board, era: str, offered: bool
) -> None:
    board.child(era=era, capabilities=HAS_TASKS)
    host = board.host(KNOWS_TASKS, modern=True)
    host.call()  # the child becomes known
    extensions = host.get("server/discover")["capabilities"].get("extensions", {})
    assert (TASKS in extensions) is offered
    old = board.host().get("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    assert TASKS not in old["capabilities"].get("extensions", {})


def test_the_tasks_of_two_principals_are_not_visible_to_each_other(board: Board) -> None:
    kid = modern_child(board)
    hosts = [board.passer(KNOWS_TASKS, principal=name) for name in ("ann", "bob")]
    tasks = [started(kid, hosts[number % 2], str(number)) for number in range(200)]
    assert len(set(tasks)) == 200
    for number, task in enumerate(tasks):
        owner, other = hosts[number % 2], hosts[1 - number % 2]
        for foreign in (task, str(number)):
            assert other.error(other.ask("tasks/get", {"taskId": foreign})) == UNKNOWN
        assert owner.error(owner.ask("tasks/get", {"taskId": str(number)})) == UNKNOWN  # the child's own id
        polled = owner.ask("tasks/get", {"taskId": task})
        assert kid.server.last("tasks/get")["params"]["taskId"] == str(number)
        kid.server.give(kid.server.last("tasks/get"), {**handle(str(number)), "resultType": "complete"})
        assert owner.result(polled)["taskId"] == task


def test_a_child_that_gives_two_clients_the_same_id_shares_no_task(board: Board) -> None:
    kid = modern_child(board)
    ann, bob = (board.passer(KNOWS_TASKS, principal=name) for name in ("ann", "bob"))
    first, again, second = started(kid, ann), started(kid, ann), started(kid, bob)
    assert first == again != second
    assert bob.error(bob.ask("tasks/get", {"taskId": second})) == UNKNOWN
    ann.ask("tasks/get", {"taskId": first})
    assert kid.server.last("tasks/get")["params"]["taskId"] == "1"


def test_the_same_id_of_two_children_is_two_tasks(board: Board) -> None:
    kids = [modern_child(board, name=name) for name in ("one", "two")]
    host = board.host(KNOWS_TASKS, modern=True)
    for kid in kids:
        called = host.call(suite=f"{kid.name}_suite")
        kid.server.give(kid.server.last("tools/call"), handle("1"))
        before = len(kid.server.requests("tasks/get"))
        host.ask("tasks/get", {"taskId": host.result(called)["taskId"]})
        assert len(kid.server.requests("tasks/get")) == before + 1


def test_a_client_that_reconnects_finds_its_task(board: Board) -> None:
    kid, host = modern_child(board), board.host(KNOWS_TASKS, modern=True, principal="ann")
    task = started(kid, host)
    host.leave()
    board.host(KNOWS_TASKS, modern=True, principal="ann").ask("tasks/get", {"taskId": task})
    assert kid.server.last("tasks/get")["params"]["taskId"] == "1"


def test_a_task_ends_with_its_time_to_live_which_the_child_may_change(board: Board) -> None:
    kid, host = modern_child(board), board.host(KNOWS_TASKS, modern=True)
    task, short, endless = (started(kid, host, id) for id in "123")
    for id, ttl_ms in ((task, 120_000), (endless, None)):
        host.ask("tasks/get", {"taskId": id})
        sent = kid.server.last("tasks/get")
        kid.server.give(sent, {**handle(sent["params"]["taskId"], ttl_ms), "resultType": "complete"})

    def is_known(id: str) -> bool:
        answer = host.answer(host.ask("tasks/get", {"taskId": id}))
        assert answer is None or answer["error"] == UNKNOWN
        return answer is None

    board.advance(59)
    assert [is_known(id) for id in (task, short, endless)] == [True, True, True]
    board.advance(2)
    assert [is_known(id) for id in (task, short, endless)] == [True, False, True]
    board.advance(60)
    assert [is_known(id) for id in (task, short, endless)] == [False, False, True]
    board.advance(issued_ids.MAX_TASK_S)
    assert not is_known(endless)


def test_a_task_ends_with_the_process_that_runs_it(board: Board) -> None:
    kid, host = modern_child(board), board.host(KNOWS_TASKS, modern=True)
    task = started(kid, host)
    kid.server.die()
    assert host.error(host.ask("tasks/get", {"taskId": task})) == UNKNOWN


def test_a_principal_with_too_many_tasks_makes_plain_calls_until_some_have_ended(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issued_ids, "MAX_TASKS", 2)
    kid, host = modern_child(board), board.host(KNOWS_TASKS, modern=True)
    first, _ = started(kid, host, "1"), started(kid, host, "2")

    def declared() -> bool:
        host.call()
        meta = kid.server.last("tools/call")["params"]["_meta"]
        return TASKS in meta[PREFIX + "clientCapabilities"]["extensions"]

    assert not declared()
    host.ask("tasks/get", {"taskId": first})
    kid.server.give(
        kid.server.last("tasks/get"), {**handle("1"), "resultType": "complete", "status": "completed"}
    )
    assert declared()
    assert host.error(host.ask("tasks/get", {"taskId": first})) == UNKNOWN
    assert started(kid, host, "3")
    assert not declared()
    board.advance(61)
    assert declared()


def test_a_task_passes_a_pipeline_and_is_recorded(board: Board) -> None:
    kid = modern_child(board, tools=[dict(ECHO)])
    host = board.host(KNOWS_TASKS, modern=True, principal="ann")
    recorder = chained(board)
    task = started(kid, host)
    polled = host.ask("tasks/get", {"taskId": task})
    kid.server.give(kid.server.last("tasks/get"), {**handle("1"), "resultType": "complete"})
    assert host.result(polled)["taskId"] == task
    assert [(record[0], record[1], record[3]) for record in recorder.records] == [
        ("call", "ann", "echo"),
        ("tasks/get", "ann", "echo"),
    ]


def test_a_task_whose_id_is_too_long_to_be_kept_is_refused(board: Board) -> None:
    kid, host = modern_child(board), board.host(KNOWS_TASKS, modern=True)
    called = host.call()
    kid.server.give(kid.server.last("tools/call"), handle("x" * 1_025))
    assert "child_protocol" in str(host.result(called))


@each_case("exposure", ["suite", "direct"], board=open_board)
def test_a_child_that_runs_a_task_is_not_idle(board: Board, exposure: str) -> None:
    kid, host = modern_child(board, exposure=exposure), board.host(KNOWS_TASKS, modern=True)
    called = host.call() if exposure == "suite" else host.ask("tools/call", {"name": "echo"})
    kid.server.give(kid.server.last("tools/call"), handle("1", 40_000_000))
    task = host.result(called)["taskId"]

    def stopped() -> bool:
        for _ in range(3):
            board.loop.now += 10_000
            kid.sweep(board.loop.now)
            board.settle()
        return kid.server.stopped

    assert not stopped()
    polled = host.ask("tasks/get", {"taskId": task})
    ended = {**handle("1", 40_000_000), "resultType": "complete", "status": "failed"}
    kid.server.give(kid.server.last("tasks/get"), ended)
    assert host.result(polled)["status"] == "failed"
    assert stopped()


def test_a_notification_about_a_task_of_a_suite_reaches_its_owner_under_our_id(board: Board) -> None:
    kid = modern_child(board)
    host, other = (board.host(KNOWS_TASKS, modern=True, principal=name) for name in ("ann", "bob"))
    task = started(kid, host)
    host.call()
    other.call()
    kid.server.notify("notifications/tasks", {"taskId": "1", "status": "completed"})
    board.settle()
    assert other.heard("notifications/tasks") == []
    assert [one["taskId"] for one in host.notifications("notifications/tasks")] == [task]


def test_a_task_of_a_child_of_ones_own_is_found_again(board: Board) -> None:
    kids = board.isolated(era="modern")
    host, other = (board.passer(KNOWS_TASKS, principal=name) for name in ("ann", "bob"))
    called = host.call()
    kid = kids.made[-1]
    kid.server.give(kid.server.last("tools/call"), handle("1"))
    task = host.result(called)["taskId"]
    other.call()
    assert "error" in (other.answer(other.ask("tasks/get", {"taskId": task})) or {})
    host.ask("tasks/get", {"taskId": task})
    (sent,) = (one for made in kids.made for run in made.runs for one in run.requests("tasks/get"))
    assert sent["params"]["taskId"] == "1"


def test_a_modern_child_that_requires_tasks_is_awaited_for_a_legacy_host(board: Board) -> None:
    kid = board.child(era="modern", capabilities=HAS_TASKS)
    host = board.host(EVERYTHING)
    called = host.call()
    first = kid.server.last()
    assert "extensions" not in first["params"]["_meta"][PREFIX + "clientCapabilities"]
    required: Json = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    kid.server.refuse(first, -32021, "tasks only", required)
    again = kid.server.last()
    assert TASKS in again["params"]["_meta"][PREFIX + "clientCapabilities"]["extensions"]
    kid.server.give(again, {"resultType": "task", "taskId": "t1", "status": "working", "pollIntervalMs": 500})
    board.advance(0.6)
    polled = kid.server.last("tasks/get")
    kid.server.give(polled, {"resultType": "complete", "taskId": "t1", "status": "completed", "result": DONE})
    assert host.result(called) == DONE


def test_changes_of_a_childs_task_are_notified_under_our_id(board: Board) -> None:
    kid = board.child(era="modern", capabilities=HAS_TASKS)
    host = board.host(KNOWS_TASKS, modern=True)
    called = host.call()
    handle = {"resultType": "task", "taskId": "t1", "status": "working", "ttlMs": None}
    kid.server.give(kid.server.last(), handle)
    task = host.result(called)["taskId"]
    listening = host.ask("subscriptions/listen", {"notifications": {"taskIds": [task]}})
    body = {"resultType": "complete", "taskId": "t1", "ttlMs": None, "pollIntervalMs": 500}
    for status in ("working", "working", "completed"):
        sent = kid.server.last("tasks/get")
        assert sent["params"]["taskId"] == "t1"
        kid.server.give(sent, {**body, "status": status})
        board.advance(0.6)
    changes = host.notifications("notifications/tasks")
    assert [(change["taskId"], change["status"]) for change in changes] == [
        (task, "working"),
        (task, "completed"),
    ]
    polls = len(kid.server.requests("tasks/get"))
    board.advance(5)
    host.cancel(listening)
    assert len(kid.server.requests("tasks/get")) == polls


def test_only_a_host_that_knows_tasks_can_listen(board: Board) -> None:
    board.child()
    host = board.host(EVERYTHING, modern=True)
    error = host.error(host.ask("subscriptions/listen", {"notifications": {"taskIds": ["x"]}}))
    assert error["code"] == -32021
