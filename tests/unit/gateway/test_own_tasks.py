"""Tasks that Switchboard runs: across protocol versions, of suites, and of slow calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchboard_mcp.config.gate import GateRule
from switchboard_mcp.config.models import Expose, TaskSettings
from switchboard_mcp.config.sections import LimitSettings, Profile
from switchboard_mcp.errors import failure
from switchboard_mcp.gateway.suites.profile_suite import profile_view
from switchboard_mcp.gateway.tasks import own_tasks
from switchboard_mcp.middleware import Answer, Next, ToolCall, refuse
from switchboard_mcp.policy.access import access
from tests.unit.gateway.board import ECHO, EVERYTHING, PREFIX, Board, FakeChild, Host, Json
from tests.unit.gateway.pipeline.chained import chained

TASKS = PREFIX + "tasks"
RELATED = PREFIX + "related-task"
KNOWS_TASKS: Json = {**EVERYTHING, "extensions": {TASKS: {}}}
BUILD: Json = {"name": "build", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
HAS_TASKS: dict[str, Json] = {
    "legacy": {"tools": {}, "resources": {}, "tasks": {"requests": {"tools": {"call": {}}}}},
    "modern": {"tools": {}, "resources": {}, "extensions": {TASKS: {}}},
}
DONE: Json = {"content": [{"type": "text", "text": "done"}]}
UNKNOWN: Json = {"code": -32602, "message": "Unknown or expired task."}
QUESTION: Json = {"mode": "form", "message": "Which?", "requestedSchema": {"type": "object"}}
ANSWER: Json = {"action": "accept", "content": {"which": "this"}}
# The host, and the child. A task between a modern host and a modern child is the child's own: `test_tasks`.
BRIDGES = [("legacy", "legacy"), ("legacy", "modern"), ("modern", "legacy")]
across = pytest.mark.parametrize(("host_era", "child_era"), BRIDGES)


class Bridge:
    """A host with a task, and the child that works on it as a task of its own."""

    def __init__(self, board: Board, host_era: str, child_era: str, principal: str = "ann") -> None:
        self.board = board
        self.child_era = child_era
        self.kid = board.child(era=child_era, tools=[BUILD, ECHO], capabilities=HAS_TASKS[child_era])
        self.modern = host_era == "modern"
        board.host(principal="first").call("echo")  # the child becomes known
        self.kid.server.give(self.kid.server.last(), DONE)
        self.host = self.connect(principal)
        self.task = self.start()

    def connect(self, principal: str) -> Host:
        return self.board.host(KNOWS_TASKS, modern=self.modern, principal=principal)

    def start(self, host: Host | None = None, id: str = "t1") -> str:
        """Begin a call as a task; its id for the host."""
        host = host or self.host
        called = host.call("build", params={} if self.modern else {"task": {"ttl": 60_000}})
        sent = self.kid.server.last()
        if self.child_era == "legacy":
            if not self.modern:
                assert sent["params"]["task"] == {}
            handle: Json = {"task": {"taskId": id, "status": "working", "ttl": None}}
        else:
            assert TASKS in sent["params"]["_meta"][PREFIX + "clientCapabilities"]["extensions"]
            handle = {"resultType": "task", "taskId": id, "status": "working", "ttlMs": None}
        if self.modern:
            self.board.advance(1.5)
            result: Json = host.result(called)
            assert (result["resultType"], result["status"]) == ("task", "working")
            # The tool is one that can be called without a task, and it was.
            self.plain = sent
        else:
            self.kid.server.give(sent, handle)
            result = host.result(called)["task"]
            assert result["status"] == "working"
        names = ("ttlMs", "pollIntervalMs") if self.modern else ("ttl", "pollInterval")
        assert all(isinstance(result[name], int) for name in names)
        task: str = result["taskId"]
        assert len(task) == 48
        return task

    def ask_child(self) -> None:
        """Let the child ask for input."""
        if self.child_era == "legacy":
            meta = {} if self.modern else {"_meta": {RELATED: {"taskId": "t1"}}}
            self.kid.server.ask("elicitation/create", {**QUESTION, **meta})
        else:
            self.poll({"status": "input_required", "inputRequests": {"k": _question()}})

    def child_got_answer(self) -> bool:
        if self.child_era == "legacy":
            reply = self.kid.server.reply()
            return reply is not None and reply["result"] == ANSWER
        answers: Json = self.kid.server.last("tasks/update")["params"]["inputResponses"]
        return answers == {"k": ANSWER}

    def finish(self, result: Json | None = None, error: Json | None = None) -> None:
        """Let the child end the task."""
        result = DONE if result is None else result
        if self.child_era == "modern":
            self.poll(
                {"status": "failed", "error": error} if error else {"status": "completed", "result": result}
            )
            return
        sent = self.plain if self.modern else self.kid.server.last("tasks/result")
        self.kid.server.send({"id": sent["id"], **({"error": error} if error else {"result": result})})

    def poll(self, answer: Json) -> None:
        """Let the gateway poll the modern child, and answer that."""
        self.board.advance(1.5)
        polled = self.kid.server.last("tasks/get")
        assert polled["params"]["taskId"] == "t1"
        self.kid.server.give(polled, {"resultType": "complete", "taskId": "t1", "ttlMs": None, **answer})

    def get(self, host: Host | None = None, **reported: object) -> Json:
        """Let the host poll. A legacy child is asked too, if it has a task of its own."""
        host = host or self.host
        before = len(self.kid.server.requests("tasks/get"))
        id = host.ask("tasks/get", {"taskId": self.task})
        if self.child_era == "legacy" and len(self.kid.server.requests("tasks/get")) > before:
            self.kid.server.give(self.kid.server.last("tasks/get"), {"taskId": "t1", **reported})
        return host.result(id)

    def fetch(self, host: Host | None = None) -> Json:
        """The result, as the host's protocol version has it."""
        host = host or self.host
        if self.modern:
            found: Json = self.get(host)["result"]
            return found
        found = host.get("tasks/result", {"taskId": self.task})
        assert found.pop("_meta") == {RELATED: {"taskId": self.task}}
        return found


def _question() -> Json:
    return {"method": "elicitation/create", "params": QUESTION}


@across
def test_a_task_is_started_polled_and_its_result_fetched(board: Board, host_era: str, child_era: str) -> None:
    bridge = Bridge(board, host_era, child_era)
    assert bridge.get()["status"] == "working"
    bridge.finish()
    polled = bridge.get()
    assert (polled["taskId"], polled["status"]) == (bridge.task, "completed")
    assert ("result" in polled) is bridge.modern
    assert bridge.fetch() == DONE
    assert bridge.fetch() == DONE  # as often as the host wants
    assert board.errors == []


@across
def test_a_task_gets_the_input_that_it_needs(board: Board, host_era: str, child_era: str) -> None:
    bridge = Bridge(board, host_era, child_era)
    host, task = bridge.host, bridge.task
    bridge.ask_child()
    polled = bridge.get()
    assert polled["status"] == "input_required"
    if bridge.modern:
        assert polled["inputRequests"] == {"q1": _question()}
        for _ in range(2):  # the second answer is ignored
            update = {"taskId": task, "inputResponses": {"q1": ANSWER, "never": {}}}
            assert host.get("tasks/update", update) == {"resultType": "complete"}
        waiting = None
    else:
        assert host.heard("elicitation/create") == []
        waiting = host.ask("tasks/result", {"taskId": task})
        (question,) = host.heard("elicitation/create")
        assert question["params"]["_meta"][RELATED] == {"taskId": task}
        host.reply(question, ANSWER)
    assert bridge.child_got_answer()
    assert bridge.get()["status"] == "working"
    bridge.finish()
    if waiting is not None:
        assert host.result(waiting)["content"] == DONE["content"]
    assert bridge.fetch() == DONE


@across
def test_a_question_waits_for_a_host_that_comes_back(board: Board, host_era: str, child_era: str) -> None:
    bridge = Bridge(board, host_era, child_era)
    if not bridge.modern:
        bridge.host.ask("tasks/result", {"taskId": bridge.task})
    bridge.ask_child()
    assert len(bridge.host.heard("elicitation/create")) == (not bridge.modern)
    bridge.host.leave()
    again = bridge.connect("ann")
    if bridge.modern:
        again.get("tasks/update", {"taskId": bridge.task, "inputResponses": {"q1": ANSWER}})
    else:
        again.ask("tasks/result", {"taskId": bridge.task})
        again.reply(again.heard("elicitation/create")[0], ANSWER)
    assert bridge.child_got_answer()


@across
def test_a_client_that_comes_back_fetches_the_result(board: Board, host_era: str, child_era: str) -> None:
    bridge = Bridge(board, host_era, child_era)
    bridge.host.leave()
    bridge.finish()
    assert bridge.fetch(bridge.connect("ann")) == DONE


@across
@pytest.mark.parametrize("other", ["bob", "ann"])
def test_a_task_is_its_owners_alone(board: Board, host_era: str, child_era: str, other: str) -> None:
    bridge = Bridge(board, host_era, child_era)
    bridge.finish()
    stranger = bridge.connect(other)  # of another principal, or another session of the same
    methods = ["tasks/get", "tasks/cancel", "tasks/update" if bridge.modern else "tasks/result"]
    for method in methods:
        for task in (bridge.task, "t1", "never"):
            assert stranger.error(stranger.ask(method, {"taskId": task})) == UNKNOWN
    if not bridge.modern:
        assert stranger.get("tasks/list")["tasks"] == []
        assert [task["taskId"] for task in bridge.host.get("tasks/list")["tasks"]] == [bridge.task]
        # The child's id is of no use to the owner either.
        assert bridge.host.error(bridge.host.ask("tasks/get", {"taskId": "t1"})) == UNKNOWN
    assert bridge.fetch() == DONE


@across
def test_a_cancelled_task_is_cancelled_at_the_child(board: Board, host_era: str, child_era: str) -> None:
    bridge = Bridge(board, host_era, child_era)
    cancelled = bridge.host.get("tasks/cancel", {"taskId": bridge.task})
    if bridge.modern:
        assert cancelled == {"resultType": "complete"}
        assert bridge.kid.server.last("notifications/cancelled")["params"]["requestId"] == bridge.plain["id"]
        assert bridge.host.get("tasks/cancel", {"taskId": bridge.task}) == cancelled
    else:
        assert (cancelled["taskId"], cancelled["status"]) == (bridge.task, "cancelled")
        assert bridge.kid.server.last("tasks/cancel")["params"]["taskId"] == "t1"
        assert bridge.host.error(bridge.host.ask("tasks/cancel", {"taskId": bridge.task}))["code"] == -32602
        assert "cancelled" in str(bridge.host.error(bridge.host.ask("tasks/result", {"taskId": bridge.task})))
    assert bridge.get()["status"] == "cancelled"


@across
def test_a_failed_tool_and_a_failed_request_differ_as_each_version_says(
    board: Board, host_era: str, child_era: str
) -> None:
    bridge = Bridge(board, host_era, child_era)
    bridge.finish({**DONE, "isError": True})
    assert bridge.get()["status"] == ("completed" if bridge.modern else "failed")
    assert bridge.fetch() == {**DONE, "isError": True}


def test_a_host_that_never_fetches_failures_sees_a_failed_tool_as_completed(board: Board) -> None:
    bridge = Bridge(board, "legacy", "legacy")
    info = {"name": "Visual Studio Code", "version": "1.140"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": KNOWS_TASKS, "clientInfo": info}
    bridge.host.get("initialize", hello)
    bridge.finish({**DONE, "isError": True})
    assert bridge.get()["status"] == "completed"


@across
def test_a_task_expires_with_its_time_to_live(board: Board, host_era: str, child_era: str) -> None:
    board.task_settings = TaskSettings(ttl="1m")
    bridge = Bridge(board, host_era, child_era)
    waiting = None if bridge.modern else bridge.host.ask("tasks/result", {"taskId": bridge.task})
    board.advance(61)
    if waiting is not None:
        assert bridge.host.error(waiting) == UNKNOWN
    assert bridge.host.error(bridge.host.ask("tasks/get", {"taskId": bridge.task})) == UNKNOWN
    stopped = "notifications/cancelled" if bridge.modern else "tasks/cancel"
    assert bridge.kid.server.requests(stopped)


@across
def test_a_task_whose_child_dies_has_failed_and_says_so(board: Board, host_era: str, child_era: str) -> None:
    bridge = Bridge(board, host_era, child_era)
    bridge.kid.server.die()
    board.advance(1.5)
    runs = len(bridge.kid.runs)
    found = bridge.fetch()
    assert found["isError"] is True
    assert "died" in str(found)
    assert len(bridge.kid.runs) == runs  # a poll starts no child


@across
def test_its_requests_are_recorded_and_take_no_slot_of_a_call(
    board: Board, host_era: str, child_era: str
) -> None:
    kid = board.child("other")
    assert kid is not None
    recorder = None

    class Recorded(Bridge):
        def connect(self, principal: str) -> Host:
            nonlocal recorder
            recorder = chained(self.board, limits=LimitSettings(concurrent=1))
            return super().connect(principal)

    bridge = Recorded(board, host_era, child_era)
    assert recorder is not None
    assert bridge.get()["status"] == "working"
    bridge.finish()
    assert bridge.fetch() == DONE
    kinds = [(record[0], record[1], record[2], record[3], record[5]) for record in recorder.records]
    fetched = "tasks/get" if bridge.modern else "tasks/result"
    assert kinds == [
        ("tasks/get", "ann", "kid", "build", "ok"),
        ("call", "ann", "kid", "build", "ok"),
        (fetched, "ann", "kid", "build", "ok"),
    ]


def _deny(board: Board) -> None:
    board.gateway.all_suites["kid_suite"].access = access(Expose(deny=["build"]))


def _hide(board: Board) -> None:
    board.gateway.views["ann"] = profile_view(
        board.gateway.all_suites, Profile(suites=[]), board.services.log
    )


def _deny_in_profile(board: Board) -> None:
    profile = Profile(suites=["*"], expose={"kid": Expose(deny=["build"])})
    board.gateway.views["ann"] = profile_view(board.gateway.all_suites, profile, board.services.log)


def _intercept(board: Board) -> None:
    async def never(call: ToolCall, next: Next) -> Answer:
        return refuse(call, "Never.")

    chained(board, never)


def _break_audit(board: Board) -> None:
    recorder = chained(board)
    recorder.fail_closed, recorder.write_failure = True, failure("audit_failed", "The disk is full.")


@pytest.mark.parametrize("stop", [_deny, _hide, _deny_in_profile, _intercept, _break_audit])
@across
def test_no_request_about_it_passes_what_stops_the_tool(
    board: Board, host_era: str, child_era: str, stop: Callable[[Board], None]
) -> None:
    bridge = Bridge(board, host_era, child_era)
    bridge.ask_child()
    stop(board)
    methods = ["tasks/get", "tasks/cancel", "tasks/update" if bridge.modern else "tasks/result"]
    before = len(bridge.kid.server.heard)
    for method in methods:
        answered = bridge.host.ask(method, {"taskId": bridge.task, "inputResponses": {"q1": ANSWER}})
        assert "error" in (bridge.host.answer(answered) or {}), method
    assert len(bridge.kid.server.heard) == before
    if not bridge.modern and stop in (_deny, _deny_in_profile):
        assert bridge.host.get("tasks/list")["tasks"] == []


def test_not_past_the_lock(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = Bridge(board, "legacy", "legacy")
    bridge.finish()
    blocked = failure("tool_drifted", "It has changed.")
    inventory = bridge.kid.inventory
    monkeypatch.setattr(type(inventory), "governed", True)
    monkeypatch.setattr(type(inventory), "tool_blocked_reason", lambda self, name: blocked)
    assert "changed" in str(bridge.host.error(bridge.host.ask("tasks/result", {"taskId": bridge.task})))


def test_the_principal_with_too_many_tasks_gets_no_more_until_one_has_ended(board: Board) -> None:
    board.task_settings = TaskSettings(limit=1)
    bridge = Bridge(board, "legacy", "legacy")
    refused = bridge.host.error(bridge.host.call("build", params={"task": {}}))
    assert "tasks.limit" in str(refused)
    bridge.finish()
    second = bridge.start(id="t2")
    assert bridge.host.error(bridge.host.ask("tasks/get", {"taskId": bridge.task})) == UNKNOWN
    bridge.host.ask("tasks/get", {"taskId": second})
    assert bridge.kid.server.last("tasks/get")["params"]["taskId"] == "t2"


def test_results_that_are_too_large_together_push_out_the_oldest(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_tasks, "MAX_KEPT_BYTES", 80)
    bridge = Bridge(board, "legacy", "legacy")
    bridge.finish()
    first, bridge.task = bridge.task, bridge.start(id="t2")
    bridge.finish()
    assert bridge.host.error(bridge.host.ask("tasks/result", {"taskId": first})) == UNKNOWN
    assert bridge.fetch() == DONE


def test_a_legacy_host_is_told_that_suites_run_as_tasks(board: Board) -> None:
    bridge = Bridge(board, "legacy", "legacy")
    hello = bridge.host.get("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    assert hello["capabilities"]["tasks"] == {
        "list": {},
        "cancel": {},
        "requests": {"tools": {"call": {}}},
    }
    (tool,) = bridge.host.get("tools/list")["tools"]
    assert tool["execution"] == {"taskSupport": "optional"}
    modern = board.host(KNOWS_TASKS, modern=True)
    assert "tasks" not in modern.get("server/discover")["capabilities"]
    assert TASKS in modern.get("server/discover")["capabilities"]["extensions"]
    assert "execution" not in modern.get("tools/list")["tools"][0]


def test_without_tasks_behind_it_a_suite_ignores_the_wish_for_one(board: Board) -> None:
    kid = board.child()
    host = board.host(KNOWS_TASKS)
    assert "tasks" not in host.get("initialize", {"protocolVersion": "2025-11-25"})["capabilities"]
    called = host.call(params={"task": {}})
    assert "task" not in kid.server.last()["params"]
    kid.server.give(kid.server.last(), DONE)
    assert host.result(called) == DONE


def test_introspect_and_tools_without_tasks_run_as_tasks_too(board: Board) -> None:
    bridge = Bridge(board, "legacy", "legacy")
    params = {"name": "kid_suite", "arguments": {"action": "introspect"}, "task": {}}
    task = bridge.host.get("tools/call", params)["task"]["taskId"]
    assert "build" in str(bridge.host.get("tasks/result", {"taskId": task}))
    plain = bridge.host.result(bridge.host.call("echo", params={"task": {}}))["task"]["taskId"]
    assert "task" not in bridge.kid.server.last()["params"]
    bridge.kid.server.give(bridge.kid.server.last(), DONE)
    assert bridge.host.get("tasks/result", {"taskId": plain})["content"] == DONE["content"]


def test_the_time_to_live_is_the_one_that_the_host_wants_within_the_limit(board: Board) -> None:
    board.task_settings = TaskSettings(ttl="1h")
    bridge = Bridge(board, "legacy", "legacy")
    for wanted, got in ((5_000, 5_000), (10**12, 3_600_000), (None, 3_600_000), ("x", 3_600_000)):
        created = bridge.host.result(bridge.host.call("echo", params={"task": {"ttl": wanted}}))
        assert created["task"]["ttl"] == got


@pytest.mark.parametrize(("wanted", "told"), [(50, 50), (-5, 50), (0.001, 50), (1e300, 60_000)])
def test_no_child_makes_a_host_poll_without_end_or_never(board: Board, wanted: float, told: int) -> None:
    bridge = Bridge(board, "legacy", "legacy")
    assert bridge.get(pollInterval=wanted)["pollInterval"] == told


def test_status_messages_of_the_child_and_changes_reach_the_owner(board: Board) -> None:
    bridge = Bridge(board, "legacy", "legacy")
    other = bridge.connect("bob")
    polled = bridge.get(statusMessage="half", pollInterval=50)
    assert (polled["taskId"], polled["statusMessage"], polled["pollInterval"]) == (bridge.task, "half", 50)
    status = {"taskId": "t1", "status": "working", "statusMessage": "nearly"}
    bridge.kid.server.notify("notifications/tasks/status", status)
    bridge.finish()
    reported = bridge.host.notifications("notifications/tasks/status")
    assert [(one["taskId"], one["status"], one["statusMessage"]) for one in reported] == [
        (bridge.task, "working", "half"),
        (bridge.task, "working", "nearly"),
        (bridge.task, "completed", "nearly"),
    ]
    assert other.heard("notifications/tasks/status") == []


def test_the_status_message_of_a_modern_child_reaches_a_legacy_host(board: Board) -> None:
    bridge = Bridge(board, "legacy", "modern")
    bridge.poll({"status": "working", "statusMessage": "half"})
    assert bridge.get()["statusMessage"] == "half"


def test_a_legacy_child_that_has_lost_its_task_is_no_error_of_a_poll(board: Board) -> None:
    bridge = Bridge(board, "legacy", "legacy")
    id = bridge.host.ask("tasks/get", {"taskId": bridge.task})
    bridge.kid.server.refuse(bridge.kid.server.last("tasks/get"), -32602, "what task?")
    assert bridge.host.result(id)["status"] == "working"


def test_progress_of_a_task_reaches_a_legacy_owner_under_its_own_token(board: Board) -> None:
    bridge = Bridge(board, "legacy", "legacy")
    created = bridge.host.call("echo", params={"task": {}}, meta={"progressToken": "mine"})
    task = bridge.host.result(created)["task"]["taskId"]
    token = bridge.kid.server.last()["params"]["_meta"]["progressToken"]
    params = {"progressToken": token, "progress": 1, "message": "half"}
    bridge.kid.server.notify("notifications/progress", params)
    assert bridge.host.notifications("notifications/progress") == [{**params, "progressToken": "mine"}]
    assert bridge.host.get("tasks/get", {"taskId": task})["statusMessage"] == "half"


def test_the_links_in_a_result_are_readable_by_the_owner_that_fetched_it(board: Board) -> None:
    bridge = Bridge(board, "legacy", "legacy")
    bridge.finish({"content": [{"type": "resource_link", "uri": "mem://new", "name": "n"}]})
    read = {"uri": "mem://new"}
    assert bridge.host.error(bridge.host.ask("resources/read", read))["code"] == -32002
    bridge.fetch()
    bridge.host.ask("resources/read", read)
    assert bridge.kid.server.last("resources/read")["params"]["uri"] == "mem://new"


def test_a_tool_that_only_runs_as_a_task_is_one_at_once_for_a_modern_host(board: Board) -> None:
    tool = {**BUILD, "execution": {"taskSupport": "required"}}
    kid = board.child(tools=[tool], capabilities=HAS_TASKS["legacy"])
    board.host(principal="first").call("build")
    kid.server.refuse(kid.server.last(), -1)
    host = board.host(KNOWS_TASKS, modern=True)
    task = host.result(host.call("build"))["taskId"]
    assert kid.server.last()["params"]["task"] == {}
    kid.server.give(kid.server.last(), {"task": {"taskId": "t1", "status": "working"}})
    kid.server.give(kid.server.last("tasks/result"), {**DONE, "_meta": {RELATED: {"taskId": "t1"}}})
    found = host.get("tasks/get", {"taskId": task})
    assert (found["status"], found["result"]) == ("completed", DONE)


def test_a_quick_tool_that_could_run_as_a_task_is_a_plain_call(board: Board) -> None:
    kid = board.child(tools=[BUILD], capabilities=HAS_TASKS["legacy"])
    host = board.host(KNOWS_TASKS, modern=True)
    called = host.call("build")
    board.advance(0.9)
    kid.server.give(kid.server.last(), DONE)
    assert host.result(called) == {"resultType": "complete", **DONE}
    board.advance(5)
    assert board.errors == []


def test_a_modern_child_that_requires_tasks_is_awaited_for_a_legacy_host(board: Board) -> None:
    kid = board.child(era="modern", capabilities=HAS_TASKS["modern"])
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


class TestAfter:
    """`tasks.after`: a slow plain call of a modern host."""

    @pytest.fixture(params=["suite", "direct"])
    def slow(self, board: Board, request: pytest.FixtureRequest) -> tuple[FakeChild, Host, int | str, str]:
        board.task_settings = TaskSettings(after="5s")
        kid = board.child(exposure=request.param)
        host = board.host(KNOWS_TASKS, modern=True, principal="ann")
        assert TASKS in host.get("server/discover")["capabilities"]["extensions"]
        called = self.call(host, request.param)
        return kid, host, called, request.param

    def call(self, host: Host, exposure: str) -> int | str:
        return host.call() if exposure == "suite" else host.ask("tools/call", {"name": "echo"})

    def test_it_becomes_a_task_that_survives_its_host(
        self, board: Board, slow: tuple[FakeChild, Host, int | str, str]
    ) -> None:
        kid, host, called, _ = slow
        board.advance(4.9)
        assert host.answer(called) is None
        board.advance(0.2)
        task = host.result(called)["taskId"]
        host.leave()
        assert kid.server.requests("notifications/cancelled") == []
        board.advance(300)  # longer than a call may take
        kid.server.give(kid.server.last(), DONE)
        back = board.host(KNOWS_TASKS, modern=True, principal="ann")
        found = back.get("tasks/get", {"taskId": task})
        assert (found["resultType"], found["status"], found["result"]) == ("complete", "completed", DONE)
        assert "ttl" not in found

    def test_what_the_child_asks_then_is_input_of_the_task(
        self, board: Board, slow: tuple[FakeChild, Host, int | str, str]
    ) -> None:
        kid, host, called, _ = slow
        board.advance(5.1)
        task = host.result(called)["taskId"]
        kid.server.ask("elicitation/create", QUESTION)
        assert host.get("tasks/get", {"taskId": task})["inputRequests"] == {"q1": _question()}
        host.get("tasks/update", {"taskId": task, "inputResponses": {"q1": ANSWER}})
        reply = kid.server.reply()
        assert reply is not None
        assert reply["result"] == ANSWER
        kid.server.give(kid.server.last(), DONE)
        assert host.get("tasks/get", {"taskId": task})["result"] == DONE

    def test_a_quick_call_and_a_host_without_the_extension_are_as_ever(
        self, board: Board, slow: tuple[FakeChild, Host, int | str, str]
    ) -> None:
        kid, host, called, exposure = slow
        kid.server.give(kid.server.last(), DONE)
        assert host.result(called) == {"resultType": "complete", **DONE}
        plain = board.host(EVERYTHING, modern=True)
        waiting = self.call(plain, exposure)
        board.advance(10)
        assert plain.answer(waiting) is None
        kid.server.give(kid.server.last(), DONE)
        assert plain.result(waiting) == {"resultType": "complete", **DONE}

    def test_a_call_that_waits_for_input_becomes_a_task_when_it_goes_on(
        self, board: Board, slow: tuple[FakeChild, Host, int | str, str]
    ) -> None:
        kid, host, called, exposure = slow
        kid.server.ask("elicitation/create", QUESTION)
        board.advance(0.1)
        state = host.result(called)["requestState"]
        board.advance(6)
        retry = {"requestState": state, "inputResponses": {"q1": ANSWER}}
        again = (
            host.call(params=retry)
            if exposure == "suite"
            else host.ask("tools/call", {"name": "echo", **retry})
        )
        board.advance(6)
        task = host.result(again)["taskId"]
        kid.server.give(kid.server.last(), DONE)
        assert host.get("tasks/get", {"taskId": task})["result"] == DONE

    def test_at_the_limit_it_stays_a_plain_call(self, board: Board) -> None:
        board.task_settings = TaskSettings(after="5s", limit=1)
        kid = board.child()
        host = board.host(KNOWS_TASKS, modern=True)
        first, second = host.call(), host.call()
        board.advance(6)
        assert host.result(first)["resultType"] == "task"
        assert host.answer(second) is None
        kid.server.give(kid.server.last(), DONE)
        assert host.result(second) == {"resultType": "complete", **DONE}


def test_the_tasks_of_two_principals_are_not_visible_to_each_other(board: Board) -> None:
    board.task_settings = TaskSettings(after="5s")
    kid = board.child()
    hosts = [board.passer(KNOWS_TASKS, principal=name) for name in ("ann", "bob")]
    calls = [hosts[number % 2].call(args={"n": number}) for number in range(200)]
    board.advance(6)
    tasks = [hosts[number % 2].result(call)["taskId"] for number, call in enumerate(calls)]
    for sent in list(kid.server.requests("tools/call")):
        kid.server.give(sent, {"content": [], "n": sent["params"]["arguments"]["n"]})
    assert len(set(tasks)) == 200
    for number, task in enumerate(tasks):
        owner, other = hosts[number % 2], hosts[1 - number % 2]
        assert other.error(other.ask("tasks/get", {"taskId": task})) == UNKNOWN
        assert owner.get("tasks/get", {"taskId": task})["result"]["n"] == number


class TestListening:
    """`taskIds` of `subscriptions/listen`."""

    def test_changes_of_a_task_of_ours_are_notified(self, board: Board) -> None:
        bridge = Bridge(board, "modern", "legacy")
        other = bridge.connect("bob")
        wanted = {"notifications": {"taskIds": [bridge.task, "never"]}}
        for host, honoured in ((bridge.host, {"taskIds": [bridge.task]}), (other, {})):
            host.ask("subscriptions/listen", wanted)
            (acknowledged,) = host.notifications("notifications/subscriptions/acknowledged")
            assert acknowledged["notifications"] == honoured
        bridge.ask_child()
        bridge.host.get("tasks/update", {"taskId": bridge.task, "inputResponses": {"q1": ANSWER}})
        bridge.finish()
        changes = bridge.host.notifications("notifications/tasks")
        assert [change["status"] for change in changes] == ["input_required", "working", "completed"]
        assert changes[0]["inputRequests"] == {"q1": _question()}
        assert changes[-1]["result"] == DONE
        assert all(PREFIX + "subscriptionId" in change["_meta"] for change in changes)
        assert other.heard("notifications/tasks") == []

    def test_changes_of_a_childs_task_are_notified_under_our_id(self, board: Board) -> None:
        kid = board.child(era="modern", capabilities=HAS_TASKS["modern"])
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

    def test_only_a_host_that_knows_tasks_can_listen(self, board: Board) -> None:
        board.child()
        host = board.host(EVERYTHING, modern=True)
        error = host.error(host.ask("subscriptions/listen", {"notifications": {"taskIds": ["x"]}}))
        assert error["code"] == -32021


def test_a_task_in_a_process_of_ones_own_ends_with_its_session(board: Board) -> None:
    board.task_settings = TaskSettings(after="5s")
    kids = board.isolated()
    host = board.host(KNOWS_TASKS, modern=True, principal="ann")
    called = host.call()
    board.advance(6)
    task = host.result(called)["taskId"]
    assert len(kids.made) == 1
    host.leave()
    board.advance(1)
    back = board.host(KNOWS_TASKS, modern=True, principal="ann")
    found = back.get("tasks/get", {"taskId": task})
    assert found["result"]["isError"] is True


@pytest.mark.parametrize("after", ["", "1s", "10m", "soon", "-1s"])
def test_times_are_checked_when_the_config_is_read(after: str) -> None:
    if after in ("", "1s", "10m"):
        assert TaskSettings(after=after).after_s == {"": 0, "1s": 1, "10m": 600}[after]
    else:
        with pytest.raises(ValueError, match="such as"):
            TaskSettings(after=after)


def test_what_the_gate_asks_is_a_question_of_the_task(board: Board) -> None:
    kid = board.child(tools=[BUILD], capabilities=HAS_TASKS["legacy"])
    board.host(principal="first").call("build")
    kid.server.refuse(kid.server.last(), -1)
    chained(board, gate=[GateRule(ask="session", subtool="build")])
    host, calls = board.host(KNOWS_TASKS), len(kid.server.requests("tools/call"))
    task = host.result(host.call("build", params={"task": {}}))["task"]["taskId"]
    assert host.get("tasks/get", {"taskId": task})["status"] == "input_required"
    assert len(kid.server.requests("tools/call")) == calls
    host.ask("tasks/result", {"taskId": task})
    (question,) = host.heard("elicitation/create")
    assert question["params"]["_meta"][RELATED] == {"taskId": task}
    host.reply(question, {"action": "accept", "content": {}})
    assert len(kid.server.requests("tools/call")) == calls + 1
    host.call("build", params={"task": {}})  # the answer counts for the session, and so for its other tasks
    assert len(kid.server.requests("tools/call")) == calls + 2
